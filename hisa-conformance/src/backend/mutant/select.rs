//! The radix selection that `token_topk` and the flat indexer share.
//!
//! A histogram of the upper key bits tells in which bin the K-th candidate lies. What lies above
//! is chosen; of the candidates in that bin, the best fill up.

use super::fault::Fault;
use super::launch::Launch;
use hisa_ref::bf16::round_to_bf16;
use hisa_ref::order::rank_key;

/// Bins of the histogram: the upper eight bits of a key.
const BINS: usize = 256;

/// A score, and the position that decides ties.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    key: u32,
    tie: u32,
    position: u32,
}

impl Candidate {
    fn bin(self) -> usize {
        (self.key >> 24) as usize
    }
}

/// Positions of the `k` best of `scores`, best first; -1 marks a place that was lost.
pub(super) fn best(
    launch: &Launch,
    scores: &[(f32, u32)],
    k: usize,
    workspace: &mut Vec<u32>,
) -> Vec<i64> {
    let all: Vec<Candidate> = scores
        .iter()
        .map(|&(score, position)| Candidate {
            key: key(launch, score),
            tie: tie(launch, position),
            position,
        })
        .collect();
    let threshold = threshold(launch, &all, k, workspace);
    let mut chosen: Vec<Candidate> = all
        .iter()
        .copied()
        .filter(|c| c.bin() > threshold)
        .collect();
    let mut bin: Vec<Candidate> = all
        .iter()
        .copied()
        .filter(|c| c.bin() == threshold)
        .collect();
    match launch.fault {
        Fault::TtopkBuffer4096 => bin.truncate(4096),
        Fault::TtopkBuffer32 => bin.truncate(32),
        _ => {}
    }
    sort(launch, &mut bin);
    bin.truncate(k.saturating_sub(chosen.len()));
    chosen.extend(bin);
    sort(launch, &mut chosen);
    chosen.truncate(k);
    let mut places: Vec<i64> = chosen.iter().map(|c| i64::from(c.position)).collect();
    if launch.is(Fault::TtopkTieBuffer) {
        lose_ties(&chosen, scores.len() > k, &mut places);
    }
    places
}

/// Bin of the `k`-th best candidate; 0 where there are no more than `k`.
fn threshold(launch: &Launch, all: &[Candidate], k: usize, histogram: &mut Vec<u32>) -> usize {
    if histogram.len() < BINS {
        let old = histogram.first().copied().unwrap_or(0);
        histogram.resize(BINS, old);
    }
    if !launch.is(Fault::TtopkHistogram) {
        histogram[..BINS].fill(0);
    }
    for candidate in all {
        let count = &mut histogram[candidate.bin()];
        *count = count.saturating_add(1);
    }
    let mut above = 0;
    let mut found = None;
    for bin in (0..BINS).rev() {
        above += u64::from(histogram[bin]);
        let reached = if launch.is(Fault::TtopkBinEdge) {
            above > k as u64
        } else {
            above >= k as u64
        };
        if reached && found.is_none() {
            found = Some(bin);
        }
    }
    histogram[..BINS].fill(0);
    let missing = if launch.is(Fault::TtopkBinEdge) && all.len() == k {
        BINS - 1
    } else {
        0
    };
    found.unwrap_or(missing)
}

fn sort(launch: &Launch, candidates: &mut [Candidate]) {
    let coarse = u32::from(launch.is(Fault::TtopkCoarseKey)) * 16;
    candidates.sort_unstable_by_key(|c| (u32::MAX - (c.key >> coarse), c.tie));
}

/// Of the ties with the last chosen one, all beyond four become -1, unless they come last.
fn lose_ties(chosen: &[Candidate], bounded: bool, places: &mut [i64]) {
    let Some(last) = chosen.last().filter(|_| bounded) else {
        return;
    };
    let first = chosen.iter().position(|c| c.key == last.key).unwrap_or(0);
    let end = places.len() - 1;
    for place in &mut places[(first + 4).min(end)..end] {
        *place = -1;
    }
}

/// A number that is larger for what ranks earlier.
fn key(launch: &Launch, score: f32) -> u32 {
    let bits = score.to_bits();
    let ordered = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 0x8000_0000
    };
    match launch.fault {
        Fault::TtopkNanLargest if score.is_nan() => u32::MAX,
        Fault::TtopkNanZero if score.is_nan() => rank_key(0.0),
        Fault::TtopkZerosBySign if score == 0.0 => ordered,
        Fault::TtopkTotalOrder => ordered,
        Fault::TtopkBf16 => rank_key(round_to_bf16(score)),
        _ => rank_key(score),
    }
}

fn tie(launch: &Launch, position: u32) -> u32 {
    match launch.fault {
        Fault::TtopkTiesHigh => u32::MAX - position,
        Fault::TtopkTiesParity => position | (1 - position % 2) << 31,
        Fault::TtopkRace if launch.number > 1 => position.reverse_bits(),
        _ => position,
    }
}
