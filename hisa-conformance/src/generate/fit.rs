//! Cases made to fit the sizes a backend takes, so that it is judged on them instead of skipped.
//!
//! The fitted case is a case like any other: its address alone rebuilds its bytes.

use super::{Generated, Generator};
use crate::backend::limits::{Extents, Limits};
use crate::case::{Case, WindowSource};
use crate::shrink::{Extent, Shape};
use hisa_ref::Window;

/// Products of M, N, H and D up to which rows are kept although a case has grown.
const WORK_MAX: usize = 1 << 26;
/// Elements of results, M times the largest of N, m*B and K, up to which the same holds.
const RESULTS_MAX: usize = 1 << 22;

/// Case `index` of a generator, within the limits where it can be made to fit them; as it is
/// where it cannot, for the backend to refuse. What the generator vouches for is not vouched for
/// of a changed case.
#[must_use]
pub fn fitted(generator: &dyn Generator, index: u64, limits: &Limits) -> Option<Generated> {
    let generated = generator.case(index)?;
    match fit(&generated.case, limits) {
        Some(case) if case != generated.case => Some(case.into()),
        _ => Some(generated),
    }
}

/// The case with sizes within the limits, and as much of the rest as those leave; `None` where
/// that is no case. It depends on the two arguments alone.
#[must_use]
pub fn fit(case: &Case, limits: &Limits) -> Option<Case> {
    if limits.refuses(&extents(case)).is_none() {
        return Some(case.clone());
    }
    let mut fitted = case.clone();
    fitted.block_size = limits.block_size.fit(case.block_size);
    fitted.block_topk = limits.blocks.fit(case.block_topk);
    fitted.topk_tokens = limits.topk.fit(case.topk_tokens);
    fitted = resized(fitted, Extent::Heads, limits.heads.fit(case.h))?;
    fitted = resized(fitted, Extent::Dims, limits.fit_dims(case.d))?;
    let keys = limits.keys.fit(case.n);
    let rows = limits.rows.fit(affordable(&fitted, keys, work(case)));
    fitted = with_tokens(fitted, rows, keys, limits)?;
    let fine = limits.refuses(&extents(&fitted)).is_none()
        && fitted.check().is_ok()
        && fitted.params().is_ok()
        && fitted.windows().is_ok();
    fine.then_some(fitted)
}

const fn extents(case: &Case) -> Extents {
    Extents {
        heads: case.h,
        dims: case.d,
        block_size: case.block_size,
        rows: case.m,
        keys: case.n,
        topk: case.topk_tokens,
        blocks: case.block_topk,
    }
}

/// Products, and elements of results.
fn work(case: &Case) -> [usize; 2] {
    let columns = case.block_size.saturating_mul(case.block_topk);
    let columns = columns.max(case.topk_tokens).max(case.n);
    let products = [case.m, case.n, case.h, case.d];
    let products = products.into_iter().fold(1, usize::saturating_mul);
    [products, case.m.saturating_mul(columns)]
}

/// Rows that take no more work than before, or than is little.
fn affordable(case: &Case, keys: usize, before: [usize; 2]) -> usize {
    let row = work(&Case {
        m: 1,
        n: keys,
        windows: WindowSource::Rows(Vec::new()).into(),
        patches: Vec::new(),
        ..case.clone()
    });
    let of = |at: usize, most: usize| before[at].max(most) / row[at].max(1);
    case.m.min(of(0, WORK_MAX).min(of(1, RESULTS_MAX)).max(1))
}

/// With other heads or dimensions; what is added is drawn from the seed like the rest.
fn resized(case: Case, extent: Extent, size: usize) -> Option<Case> {
    let before = case.extent(extent);
    if size < before {
        return case.without(extent, size..before);
    }
    Some(match extent {
        Extent::Heads => Case { h: size, ..case },
        Extent::Dims => Case { d: size, ..case },
        Extent::Keys => Case { n: size, ..case },
        Extent::Rows => case,
    })
}

fn with_tokens(case: Case, rows: usize, keys: usize, limits: &Limits) -> Option<Case> {
    if (rows, keys) == (case.m, case.n) {
        return Some(case);
    }
    if let Some(causal) = with_causal_tokens(&case, rows.min(keys), limits) {
        return Some(causal);
    }
    let mut case = case.to_rows().ok()?;
    case = resized(case, Extent::Keys, keys)?;
    if rows < case.m {
        return case.without(Extent::Rows, rows..case.m);
    }
    let WindowSource::Rows(windows) = &mut case.windows.source else {
        return None;
    };
    let whole = Window {
        ks: 0,
        ke: i32::try_from(keys).ok()?,
    };
    let known = windows.len();
    let again = |row: usize| {
        if known == 0 {
            whole
        } else {
            windows[row % known]
        }
    };
    let more: Vec<Window> = (known..rows).map(again).collect();
    windows.extend(more);
    case.m = rows;
    Some(case)
}

/// Packed sequences cut at a number of tokens, or with one more sequence up to it, so that the
/// windows are still made from offsets.
fn with_causal_tokens(case: &Case, tokens: usize, limits: &Limits) -> Option<Case> {
    let plain = case.windows.shard.is_none() && case.windows.padding_rows == 0;
    let taken = limits.rows.takes(tokens) && limits.keys.takes(tokens);
    let WindowSource::Causal(cu) = &case.windows.source else {
        return None;
    };
    if !plain || !taken || cu.len() < 2 {
        return None;
    }
    let end = i64::try_from(tokens).ok()?;
    let mut offsets: Vec<i64> = cu.iter().map(|&offset| offset.min(end)).collect();
    if offsets.last().is_some_and(|&last| last < end) {
        offsets.push(end);
    }
    let mut case = case.clone();
    (case.m, case.n) = (tokens, tokens);
    case.windows.source = WindowSource::Causal(offsets);
    case.drop_stray_patches();
    Some(case)
}
