//! proptest strategies for cases that shrink well.
//!
//! They choose sizes, windows and a seed, each on its own and never one inside another; tensors
//! follow from the seed. So a failing case shrinks in its sizes, and the elements that remain
//! keep their values (BR-105).

use super::values::PRESETS;
use crate::case::Case;
use hisa_ref::{Rank, Window};
use proptest::collection::vec;
use proptest::prelude::*;

/// Offsets of up to `sequences_max` sequences of up to `len_max` tokens each, 0 first. Empty
/// sequences are one third of all.
pub fn cu_seqlens(sequences_max: usize, len_max: i64) -> impl Strategy<Value = Vec<i64>> {
    let len = prop_oneof![1 => Just(0), 2 => 0..=len_max];
    vec(len, 0..=sequences_max).prop_map(|lengths| {
        let mut offsets = vec![0];
        let mut total = 0;
        for len in lengths {
            total += len;
            offsets.push(total);
        }
        offsets
    })
}

/// A window without a number of keys: two places, each a fraction of 1/4096 of all keys.
#[derive(Debug, Clone, Copy)]
pub enum RawWindow {
    /// Between two places, in either order; empty where they coincide.
    Between(u32, u32),
    /// (INT32_MAX, 0).
    Padding,
    /// Starting after its end.
    Reversed(u32, u32),
}

const PLACES: u32 = 4096;

impl RawWindow {
    /// The window over `n` keys, always valid.
    #[must_use]
    pub fn over(self, n: usize) -> Window {
        let place = |at: u32| (u64::from(at) * (n as u64 + 1) / (u64::from(PLACES) + 1)) as i32;
        match self {
            Self::Between(a, b) => Window {
                ks: place(a.min(b)),
                ke: place(a.max(b)),
            },
            Self::Padding => Window::PADDING,
            Self::Reversed(a, b) => Window {
                ks: place(a.max(b)).saturating_add(1),
                ke: place(a.min(b)),
            },
        }
    }
}

/// A window; shrinks toward all keys.
pub fn raw_window() -> impl Strategy<Value = RawWindow> {
    let place = || 0..=PLACES;
    prop_oneof![
        12 => (place(), place())
            .prop_map(|(start, cut)| RawWindow::Between(start, PLACES - cut)),
        1 => Just(RawWindow::Padding),
        1 => (place(), place()).prop_map(|(a, b)| RawWindow::Reversed(a, b)),
    ]
}

/// Everything of a case but its windows.
#[derive(Debug, Clone)]
struct Rest {
    h: usize,
    d: usize,
    block_size: usize,
    block_topk: usize,
    topk_tokens: usize,
    rank: Rank,
    preset: usize,
    seed: u64,
}

fn rest() -> impl Strategy<Value = Rest> {
    let rank = prop_oneof![Just(Rank::Bf16), Just(Rank::F32)];
    let sizes = (
        1..=4usize,
        1..=32usize,
        1..=17usize,
        1..=6usize,
        1..=24usize,
    );
    (sizes, rank, 0..PRESETS.len(), any::<u64>()).prop_map(|(sizes, rank, preset, seed)| {
        let (h, d, block_size, block_topk, topk_tokens) = sizes;
        Rest {
            h,
            d,
            block_size,
            block_topk,
            topk_tokens,
            rank,
            preset,
            seed,
        }
    })
}

fn complete(case: Case, rest: &Rest) -> Case {
    let Rest {
        h,
        d,
        block_size,
        block_topk,
        topk_tokens,
        rank,
        preset,
        seed,
    } = *rest;
    let values = PRESETS[preset].values();
    Case {
        h,
        d,
        block_size,
        block_topk,
        topk_tokens,
        rank,
        values,
        seed,
        ..case
    }
}

/// Cases with up to `m_max` rows, each with a window of its own, over up to `n_max` keys.
pub fn row_cases(m_max: usize, n_max: usize) -> impl Strategy<Value = Case> {
    (vec(raw_window(), 0..=m_max), 0..=n_max, rest()).prop_map(|(rows, n, rest)| {
        let rows = rows.into_iter().map(|row| row.over(n)).collect();
        complete(Case::with_rows(rows, n), &rest)
    })
}

/// Cases with up to `sequences_max` packed causal sequences of up to `len_max` tokens.
pub fn packed_cases(sequences_max: usize, len_max: i64) -> impl Strategy<Value = Case> {
    (cu_seqlens(sequences_max, len_max), rest())
        .prop_map(|(cu, rest)| complete(Case::with_cu(&cu), &rest))
}

/// Either of the two, at sizes for tests: up to 64 rows or keys.
pub fn cases() -> impl Strategy<Value = Case> {
    prop_oneof![2 => row_cases(12, 64), 1 => packed_cases(5, 12)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::test_runner::{Config, TestError, TestRunner};

    proptest! {
        #![proptest_config(Config { failure_persistence: None, cases: 400, ..Config::default() })]

        #[test]
        fn addresses_come_back(case in cases()) {
            let address = case.to_string();
            prop_assert_eq!(&address.parse::<Case>().unwrap(), &case);
            prop_assert!(address.is_ascii() && !address.contains(char::is_whitespace));
        }

        #[test]
        fn windows_are_always_valid(case in cases()) {
            let windows = case.windows().unwrap();
            prop_assert_eq!((windows.len(), windows.n()), (case.m, case.n));
            let inputs = case.inputs().unwrap();
            prop_assert!(inputs.indexer_input().is_ok());
        }

        #[test]
        fn damaged_addresses_never_panic(
            case in cases(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = case.to_string().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(case) = String::from_utf8_lossy(&bytes).parse::<Case>() {
                prop_assert_eq!(case.to_string().parse::<Case>().unwrap(), case);
            }
        }
    }

    #[test]
    fn sizes_shrink_alone() {
        let config = Config {
            failure_persistence: None,
            ..Config::default()
        };
        let rng = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let failing = |case: Case| {
            prop_assert!(case.n < 40 || case.m < 1);
            Ok(())
        };
        let Err(TestError::Fail(_, case)) = runner.run(&row_cases(12, 64), failing) else {
            panic!("a case with 40 keys must be found");
        };
        assert_eq!((case.n, case.m, case.h, case.d), (40, 1, 1, 1));
        assert_eq!(
            (case.block_size, case.block_topk, case.topk_tokens),
            (1, 1, 1)
        );
        assert_eq!(case.windows().unwrap().rows(), [Window { ks: 0, ke: 40 }]);
    }
}
