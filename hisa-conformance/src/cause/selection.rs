//! Other rules for masks, choices and ids.

use super::Alternative;
use crate::backend::{Buffer, Buffers, Guarded, Job};
use hisa_ref::Stage::{BlockMask, BlockTopk, IndexMap, TokenTopk};
use hisa_ref::bf16::round_to_bf16;
use hisa_ref::{Rank, Window, order};
use std::cmp::Ordering;
use std::ops::Range;

pub(super) const ALTERNATIVES: &[Alternative] = &[
    Alternative {
        stage: BlockMask,
        does: "forces neither end of the block window",
        outputs: |job| mask(job, |_, _| false),
    },
    Alternative {
        stage: BlockMask,
        does: "forces the last block of the window, but not the first",
        outputs: |job| mask(job, |blocks, block| block + 1 == blocks.end),
    },
    Alternative {
        stage: BlockMask,
        does: "forces the first block of the window, but not the last",
        outputs: |job| mask(job, |blocks, block| block == blocks.start),
    },
    Alternative {
        stage: BlockTopk,
        does: "breaks ties by the higher block id",
        outputs: |job| {
            blocks(
                job,
                Rule {
                    ties_high: true,
                    ..Rule::of(job)
                },
            )
        },
    },
    Alternative {
        stage: BlockTopk,
        does: "ranks blocks by their f32 scores instead of the bf16 ones",
        outputs: |job| {
            blocks(
                job,
                Rule {
                    key: |score| score,
                    ..Rule::of(job)
                },
            )
        },
    },
    Alternative {
        stage: BlockTopk,
        does: "ranks blocks by their bf16 scores instead of the f32 ones",
        outputs: |job| {
            blocks(
                job,
                Rule {
                    key: round_to_bf16,
                    ..Rule::of(job)
                },
            )
        },
    },
    Alternative {
        stage: BlockTopk,
        does: "cuts block scores to bf16 instead of rounding them",
        outputs: |job| {
            blocks(
                job,
                Rule {
                    key: cut_to_bf16,
                    ..Rule::of(job)
                },
            )
        },
    },
    Alternative {
        stage: BlockTopk,
        does: "ranks NaN above every number",
        outputs: |job| {
            blocks(
                job,
                Rule {
                    nan_first: true,
                    ..Rule::of(job)
                },
            )
        },
    },
    Alternative {
        stage: BlockTopk,
        does: "does not force the ends of the window",
        outputs: |job| {
            blocks(
                job,
                Rule {
                    forced: false,
                    ..Rule::of(job)
                },
            )
        },
    },
    Alternative {
        stage: TokenTopk,
        does: "breaks ties by the higher key",
        outputs: |job| {
            tokens(
                job,
                Rule {
                    ties_high: true,
                    ..Rule::EXACT
                },
            )
        },
    },
    Alternative {
        stage: TokenTopk,
        does: "ranks NaN above every number",
        outputs: |job| {
            tokens(
                job,
                Rule {
                    nan_first: true,
                    ..Rule::EXACT
                },
            )
        },
    },
    Alternative {
        stage: TokenTopk,
        does: "ranks token scores rounded to bf16",
        outputs: |job| {
            tokens(
                job,
                Rule {
                    key: round_to_bf16,
                    ..Rule::EXACT
                },
            )
        },
    },
    Alternative {
        stage: TokenTopk,
        does: "takes a score of -inf for an absent key",
        outputs: |job| {
            tokens(
                job,
                Rule {
                    drops: |s| s == f32::NEG_INFINITY,
                    ..Rule::EXACT
                },
            )
        },
    },
    Alternative {
        stage: TokenTopk,
        does: "takes a NaN score for an absent key",
        outputs: |job| {
            tokens(
                job,
                Rule {
                    drops: f32::is_nan,
                    ..Rule::EXACT
                },
            )
        },
    },
    Alternative {
        stage: IndexMap,
        does: "gives absolute keys instead of positions within the window",
        outputs: |job| ids(job, |key, _, _| key),
    },
    Alternative {
        stage: IndexMap,
        does: "counts ids from the block the window starts in, not from the window",
        outputs: |job| ids(job, |key, window, b| key - i64::from(window.ks) / b * b),
    },
    Alternative {
        stage: IndexMap,
        does: "gives positions within a block",
        outputs: |job| ids(job, |key, _, b| key % b),
    },
];

/// A way to choose the best.
#[derive(Clone, Copy)]
struct Rule {
    key: fn(f32) -> f32,
    ties_high: bool,
    nan_first: bool,
    forced: bool,
    drops: fn(f32) -> bool,
}

impl Rule {
    /// The specification's rule for tokens.
    const EXACT: Self = Self {
        key: |score| score,
        ties_high: false,
        nan_first: false,
        forced: true,
        drops: |_| false,
    };

    /// The specification's rule for blocks.
    fn of(job: &Job<'_>) -> Self {
        match job.params.rank() {
            Rank::Bf16 => Self {
                key: round_to_bf16,
                ..Self::EXACT
            },
            Rank::F32 => Self::EXACT,
        }
    }

    /// Best first.
    fn compare(&self, (a, at): (f32, usize), (b, other): (f32, usize)) -> Ordering {
        let (a, b) = ((self.key)(a), (self.key)(b));
        let by_score = match (a.is_nan(), b.is_nan()) {
            (true, false) if self.nan_first => Ordering::Less,
            (false, true) if self.nan_first => Ordering::Greater,
            _ => order::compare_scores(a, b),
        };
        let ties = if self.ties_high {
            other.cmp(&at)
        } else {
            at.cmp(&other)
        };
        by_score.then(ties)
    }
}

fn cut_to_bf16(score: f32) -> f32 {
    f32::from_bits(score.to_bits() & 0xFFFF_0000)
}

fn one(name: &'static str, buffer: Buffer) -> Option<Buffers> {
    let mut buffers = Buffers::default();
    buffers.put(name, buffer);
    Some(buffers)
}

fn mask(job: &Job<'_>, forces: fn(&Range<usize>, usize) -> bool) -> Option<Buffers> {
    let mut scores = job.tensors.f32("block_scores")?.clone();
    let (columns, b) = (scores.columns(), job.params.block_size());
    for (at, score) in scores.body_mut().iter_mut().enumerate() {
        let blocks = job.windows.rows()[at / columns].blocks(b);
        let block = at % columns;
        if !blocks.contains(&block) {
            *score = f32::NEG_INFINITY;
        } else if forces(&blocks, block) {
            *score = f32::INFINITY;
        }
    }
    one("block_mask", Buffer::F32(scores))
}

fn blocks(job: &Job<'_>, rule: Rule) -> Option<Buffers> {
    let (scores, m) = (job.tensors.f32("block_mask")?, job.params.block_topk());
    let mut ids = Guarded::filled(&[job.m, m], -1i32);
    for (row, window) in job.windows.rows().iter().enumerate() {
        let window = window.blocks(job.params.block_size());
        let end = |block: usize| match block {
            _ if !rule.forced => 2,
            _ if block + 1 == window.end => 0,
            _ if block == window.start => 1,
            _ => 2,
        };
        let mut chosen: Vec<usize> = window.clone().collect();
        let score = |block: usize| (scores.row(row)[block], block);
        chosen.sort_by(|&a, &b| {
            end(a)
                .cmp(&end(b))
                .then_with(|| rule.compare(score(a), score(b)))
        });
        chosen.truncate(m);
        chosen.sort_unstable();
        let places = ids.body_mut().iter_mut().skip(row * m);
        places
            .zip(chosen)
            .for_each(|(place, block)| *place = block as i32);
    }
    one("block_ids", Buffer::I32(ids))
}

fn tokens(job: &Job<'_>, rule: Rule) -> Option<Buffers> {
    let (scores, block_ids) = (
        job.tensors.f32("token_scores")?,
        job.tensors.i32("block_ids")?,
    );
    let (k, b) = (job.params.topk_tokens(), job.params.block_size());
    let mut slots = Guarded::filled(&[job.m, k], -1i32);
    for (row, window) in job.windows.rows().iter().enumerate() {
        let mut candidates: Vec<(usize, usize)> = (0..scores.columns())
            .filter_map(|slot| {
                let block = usize::try_from(block_ids.row(row)[slot / b]).ok()?;
                let key = block * b + slot % b;
                window.contains(key).then_some((key, slot))
            })
            .filter(|&(_, slot)| !(rule.drops)(scores.row(row)[slot]))
            .collect();
        candidates
            .sort_by(|a, b| rule.compare((scores.row(row)[a.1], a.0), (scores.row(row)[b.1], b.0)));
        let places = slots.body_mut().iter_mut().skip(row * k).take(k);
        places
            .zip(candidates)
            .for_each(|(place, (_, slot))| *place = slot as i32);
    }
    one("slots", Buffer::I32(slots))
}

fn ids(job: &Job<'_>, id: fn(i64, Window, i64) -> i64) -> Option<Buffers> {
    let (slots, block_ids) = (job.tensors.i32("slots")?, job.tensors.i32("block_ids")?);
    let mut indices = slots.clone();
    let (columns, b) = (slots.columns(), job.params.block_size());
    for (at, place) in indices.body_mut().iter_mut().enumerate() {
        let (row, slot) = (at / columns, usize::try_from(*place).ok());
        let Some(slot) = slot else { continue };
        let block = i64::from(*block_ids.row(row).get(slot / b)?);
        let key = block * b as i64 + (slot % b) as i64;
        *place = id(key, job.windows.rows()[row], b as i64) as i32;
    }
    one("indices", Buffer::I32(indices))
}
