//! The reference against the oracle, bit for bit, stage by stage.

use super::{Context, Verdict};
use crate::case::{Shard, WindowSource};
use crate::oracle as second;
use hisa_ref::stages::quantize::{self as reference_quantize, QuantizeOptions, ScaleFormat};
use hisa_ref::{E4M3, Overflow, Result, Strictness};

type Judged = Result<Verdict>;

/// Windows made from offsets by either side. Windows given row by row leave nothing to compare.
pub(super) fn windows(context: &Context) -> Judged {
    let spec = &context.case.windows;
    let rows = context.case.m - spec.padding_rows;
    let global_rows = rows * spec.shard.map_or(1, |shard| shard.ranks);
    let narrow = |offsets: &[i64]| offsets.iter().map(|&at| at as i32).collect::<Vec<i32>>();
    let global = match &spec.source {
        WindowSource::Rows(_) => return Ok(Verdict::NotApplicable),
        WindowSource::Causal(cu) => second::windows_from_cu_seqlens(&narrow(cu), global_rows),
        WindowSource::Separate { q, k } => {
            second::windows_from_offsets(&narrow(q), &narrow(k), global_rows)
        }
        WindowSource::Strided {
            q,
            k,
            stride,
            first_positions,
        } => {
            let first: Vec<i64> = first_positions.iter().map(|&p| p.into()).collect();
            let k = k.as_deref().map(narrow);
            let stride = *stride as i32;
            second::windows_with_stride(&narrow(q), stride, &first, k.as_deref(), global_rows)
        }
    };
    let mut expected = match spec.shard {
        Some(Shard { rank, ranks }) => second::windows_zigzag(&global, rank, ranks),
        None => global,
    };
    expected.resize(context.case.m, second::NO_SEQUENCE);
    Ok(Verdict::from_difference(first_difference(
        expected.iter().copied(),
        context.oracle_input.windows.iter().copied(),
        &[context.case.m],
        |pair| format!("{pair:?}"),
    )))
}

/// One combination of scale format and overflow per case, by its seed, so that all come up.
pub(super) fn quantize(context: &Context) -> Judged {
    let Ok(x) = context.case.x() else {
        return Ok(Verdict::NotApplicable);
    };
    let (format, oracle_format) = match context.case.seed & 1 {
        0 => (ScaleFormat::F32, second::ScaleFormat::Float32),
        _ => (ScaleFormat::Ue8m0, second::ScaleFormat::Ue8m0),
    };
    let (overflow, oracle_overflow) = match context.case.seed & 2 {
        0 => (Overflow::Saturating, second::e4m3::Overflow::Saturating),
        _ => (
            Overflow::NonSaturating,
            second::e4m3::Overflow::NonSaturating,
        ),
    };
    let options = QuantizeOptions {
        format,
        overflow,
        strictness: Strictness::Permissive,
    };
    let got = reference_quantize::run(x.view(), options)?;
    let rows: Vec<f32> = x.iter().copied().collect();
    let (codes, scales) = second::quantize(&rows, context.case.d, oracle_overflow, oracle_format);
    let shape = [context.case.n, context.case.d];
    let difference = codes_differ(codes, &got.codes, &shape).or_else(|| {
        let expected = scales.into_iter();
        first_difference(
            expected,
            got.scale.iter().map(|s| s.to_bits()),
            &shape[..1],
            show_bits,
        )
    });
    Ok(Verdict::from_difference(
        difference.map(|text| format!("{options:?}: {text}")),
    ))
}

pub(super) fn block_pool(context: &Context) -> Judged {
    let (expected, got) = (&context.oracle, &context.trace);
    let shape = [context.case.blocks(), context.case.d];
    let difference = floats_differ(&expected.pooled_scale, &got.pooled_scale, &shape[..1])
        .or_else(|| codes_differ(expected.pooled_k.iter().copied(), &got.pooled_k, &shape));
    Ok(Verdict::from_difference(difference))
}

pub(super) fn block_scores(context: &Context) -> Judged {
    let shape = [context.case.m, context.case.blocks()];
    let (expected, got) = (&context.oracle.block_scores, &context.trace.block_scores);
    Ok(Verdict::from_difference(floats_differ(
        expected, got, &shape,
    )))
}

pub(super) fn block_mask(context: &Context) -> Judged {
    let shape = [context.case.m, context.case.blocks()];
    let (expected, got) = (&context.oracle.block_mask, &context.trace.block_mask);
    Ok(Verdict::from_difference(floats_differ(
        expected, got, &shape,
    )))
}

pub(super) fn block_topk(context: &Context) -> Judged {
    let shape = [context.case.m, context.case.block_topk];
    let (expected, got) = (&context.oracle.block_ids, &context.trace.block_ids);
    Ok(Verdict::from_difference(ids_differ(expected, got, &shape)))
}

pub(super) fn token_scores(context: &Context) -> Judged {
    let shape = [context.case.m, context.params().slots()];
    let (expected, got) = (&context.oracle.token_scores, &context.trace.token_scores);
    Ok(Verdict::from_difference(floats_differ(
        expected, got, &shape,
    )))
}

pub(super) fn token_topk(context: &Context) -> Judged {
    let shape = [context.case.m, context.case.topk_tokens];
    let (expected, got) = (&context.oracle.slots, &context.trace.slots);
    Ok(Verdict::from_difference(ids_differ(expected, got, &shape)))
}

pub(super) fn index_map(context: &Context) -> Judged {
    let shape = [context.case.m, context.case.topk_tokens];
    let (expected, got) = (&context.oracle.indices, &context.trace.indices);
    Ok(Verdict::from_difference(ids_differ(expected, got, &shape)))
}

/// The fused indexer, which never writes the tensors in between.
pub(super) fn hisa(context: &Context) -> Judged {
    let shape = [context.case.m, context.case.topk_tokens];
    let difference = ids_differ(&context.oracle.indices, &context.indices, &shape);
    Ok(Verdict::from_difference(difference))
}

pub(super) fn dsa(context: &Context) -> Judged {
    let (expected, got) = (&context.oracle_dsa, &context.dsa);
    let ids = [context.case.m, context.case.topk_tokens];
    let fused = hisa_ref::dsa::run(&context.input()?, context.case.topk_tokens)?;
    let scores = [context.case.m, context.case.n];
    let difference = floats_differ(&expected.flat_scores, &got.flat_scores, &scores)
        .or_else(|| ids_differ(&expected.slots, &got.slots, &ids))
        .or_else(|| ids_differ(&expected.indices, &got.indices, &ids))
        .or_else(|| ids_differ(&expected.indices, &fused, &ids));
    Ok(Verdict::from_difference(difference))
}

pub(super) fn block_sparse(context: &Context) -> Judged {
    let (Some(expected), Some(got)) = (&context.oracle_block_sparse, &context.block_sparse) else {
        return Ok(Verdict::NotApplicable);
    };
    let difference = ids_differ(&expected.block_ids, &got.block_ids, got.block_ids.shape())
        .or_else(|| ids_differ(&expected.indices, &got.indices, got.indices.shape()));
    Ok(Verdict::from_difference(difference))
}

fn codes_differ<'a>(
    expected: impl IntoIterator<Item = u8>,
    got: impl IntoIterator<Item = &'a E4M3>,
    shape: &[usize],
) -> Option<String> {
    let got = got.into_iter().map(|code| code.to_bits());
    first_difference(expected.into_iter(), got, shape, |code| {
        format!("{code:#04x}")
    })
}

pub(super) fn floats_differ<'a>(
    expected: impl IntoIterator<Item = &'a f32>,
    got: impl IntoIterator<Item = &'a f32>,
    shape: &[usize],
) -> Option<String> {
    let expected = expected.into_iter().map(|value| value.to_bits());
    first_difference(
        expected,
        got.into_iter().map(|value| value.to_bits()),
        shape,
        show_bits,
    )
}

pub(super) fn ids_differ<'a>(
    expected: impl IntoIterator<Item = &'a i32>,
    got: impl IntoIterator<Item = &'a i32>,
    shape: &[usize],
) -> Option<String> {
    let (expected, got) = (expected.into_iter().copied(), got.into_iter().copied());
    first_difference(expected, got, shape, |id| id.to_string())
}

fn show_bits(bits: u32) -> String {
    format!("{:e} ({bits:#010x})", f32::from_bits(bits))
}

/// The first element in which two row-major tensors of `shape` differ, and how many more do.
fn first_difference<T: PartialEq + Copy>(
    expected: impl Iterator<Item = T>,
    got: impl Iterator<Item = T>,
    shape: &[usize],
    show: impl Fn(T) -> String,
) -> Option<String> {
    let elements: usize = shape.iter().product();
    let (mut first, mut count, mut pairs) = (None, 0u64, 0);
    let (mut expected, mut got) = (expected.fuse(), got.fuse());
    loop {
        match (expected.next(), got.next()) {
            (None, None) => break,
            (Some(e), Some(g)) if e == g => {}
            (Some(e), Some(g)) => {
                first.get_or_insert((pairs, e, g));
                count += 1;
            }
            _ => return Some(format!("sizes differ after {pairs} elements")),
        }
        pairs += 1;
    }
    if pairs != elements {
        return Some(format!("{pairs} elements, shape {shape:?} has {elements}"));
    }
    first.map(|(at, e, g)| {
        let columns = shape.get(1).copied().unwrap_or(1).max(1);
        let (row, column) = (at / columns, at % columns);
        let place = if shape.len() > 1 {
            format!("[{row}, {column}]")
        } else {
            format!("[{at}]")
        };
        let more = if count > 1 {
            format!(", {} more differ", count - 1)
        } else {
            String::new()
        };
        format!("{place}: expected {}, got {}{more}", show(e), show(g))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ(expected: &[i32], got: &[i32], shape: &[usize]) -> Option<String> {
        ids_differ(expected, got, shape)
    }

    #[test]
    fn differences_name_place_and_count() {
        assert_eq!(differ(&[1, 2, 3, 4], &[1, 2, 3, 4], &[2, 2]), None);
        let text = differ(&[1, 2, 3, 4], &[1, 2, 9, 9], &[2, 2]).unwrap();
        assert_eq!(text, "[1, 0]: expected 3, got 9, 1 more differ");
        assert_eq!(differ(&[5], &[6], &[1]).unwrap(), "[0]: expected 5, got 6");
    }

    #[test]
    fn lengths_and_shapes_count_too() {
        assert!(
            differ(&[1, 2], &[1], &[2])
                .unwrap()
                .contains("sizes differ after 1")
        );
        assert!(differ(&[1, 2], &[1, 2], &[3]).unwrap().contains("has 3"));
        let (minus, plus, nan) = (-0.0f32, 0.0f32, f32::NAN);
        assert!(
            floats_differ([&minus], [&plus], &[1]).is_some(),
            "bits, not values"
        );
        assert!(floats_differ([&nan], [&nan], &[1]).is_none());
    }
}
