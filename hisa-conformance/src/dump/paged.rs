//! Keys in the layout of a serving engine: pages of a cache and a table that strings them together.
//!
//! A page of P tokens (64 where it is served) takes `P * (D + 4)` bytes: first the D codes of every
//! token, token after token, then the f32 scale of every token, little-endian. The shape
//! `[pages, P, D + 4]` says how large a page is, not where a token lies: its last four columns are
//! not the scales of its rows. So it is written and read by vLLM (`indexer_k_quant_and_cache` and
//! `cp_gather_indexer_k_quant_cache` in `csrc/cache_kernels.cu`) and by DeepGEMM
//! (`fp8_paged_mqa_logits`, the fused cache of `csrc/apis/attention.hpp`, commit 54e2261).

use super::FILE_BYTES_MAX;
use super::error::{DumpError, PagedProblem, TensorError};
use super::read::TensorFile;
use super::tensor::Data;
use hisa_ref::E4M3;
use ndarray::{Array1, Array2};
use safetensors::Dtype;
use std::io::{Read, Seek};

type Result<T> = std::result::Result<T, DumpError>;

/// Pages are bytes.
const BYTES: &[Dtype] = &[Dtype::U8];
/// Bytes of a scale.
const SCALE_BYTES: usize = 4;
/// Keys are counted in int32 (SPEC V.9).
const KEYS_MAX: u64 = i32::MAX as u64;

/// What the keys are called when they come as they are, and in a cache.
const NAMES: [&str; 3] = ["kv_cache", "block_table", "seq_lens"];

/// Keys and where each sequence of them starts.
pub(super) struct Keys {
    /// Codes `[N, D]`.
    pub(super) k: Array2<E4M3>,
    /// Scales `[N]`.
    pub(super) k_scale: Array1<f32>,
    /// Offsets `[S + 1]` of the sequences, where the keys came from a cache.
    pub(super) offsets: Option<Vec<i64>>,
}

impl Keys {
    /// Reads `k` and `k_scale`, or gathers them from `kv_cache` `[pages, P, D + 4]` U8 (a fourth
    /// dimension of 1 before the last is allowed), `block_table` `[S, W]` I32 and `seq_lens` `[S]`
    /// I32: the keys of sequence 0, then those of sequence 1, and so on.
    pub(super) fn read<R: Read + Seek>(file: &mut TensorFile<R>) -> Result<Self> {
        if !is_paged(file)? {
            return Ok(Self {
                k: file.codes("k", "[N, D]")?,
                k_scale: file.floats("k_scale", "[N]")?,
                offsets: None,
            });
        }
        let cache = Cache::read(file)?;
        let table: Array2<i32> = file.windows("block_table", "[S, W]")?;
        let lens: Array1<i32> = file.windows("seq_lens", "[S]")?;
        let wrong = |problem| DumpError::Paged {
            file: file.path().to_owned(),
            problem,
        };
        let offsets = offsets(&lens, &table, cache.page).map_err(wrong)?;
        check_pages(&offsets, &table, &cache).map_err(wrong)?;
        let (n, d) = (offsets.last().map_or(0, |&keys| keys as usize), cache.dim);
        // Sequences may share pages, so that a short file asks for more keys than any file holds.
        let bytes = (n as u64).saturating_mul((d + SCALE_BYTES) as u64);
        let problem = TensorError::Allocation { bytes };
        let too_large = || DumpError::tensor(file.path(), "kv_cache", problem.clone());
        if bytes > FILE_BYTES_MAX {
            return Err(too_large());
        }
        let (mut k, mut k_scale) = (Vec::new(), Vec::new());
        let reserved = k
            .try_reserve_exact(n * d)
            .and_then(|()| k_scale.try_reserve_exact(n));
        reserved.map_err(|_| too_large())?;
        for (sequence, column, tokens) in pages(&offsets, cache.page) {
            // Checked above: the page is there.
            let (codes, scales) = cache.tokens(table[[sequence, column]] as usize, tokens);
            k.extend(codes.iter().map(|&code| E4M3::from_bits(code)));
            k_scale.extend(scales.map(f32::from_le_bytes));
        }
        Ok(Self {
            k: Array2::from_shape_vec((k_scale.len(), d), k)
                .unwrap_or_else(|_| unreachable!("D codes were gathered for every key")),
            k_scale: k_scale.into(),
            offsets: Some(offsets),
        })
    }
}

/// Whether a file holds its keys in a cache.
pub(super) fn is_paged<R: Read + Seek>(file: &TensorFile<R>) -> Result<bool> {
    let wrong = |problem| DumpError::Paged {
        file: file.path().to_owned(),
        problem,
    };
    let (found, missing): (Vec<_>, Vec<_>) =
        NAMES.into_iter().partition(|name| file.contains(name));
    let Some(&first) = found.first() else {
        return Ok(false);
    };
    if let Some(&missing) = missing.first() {
        return Err(wrong(PagedProblem::Part {
            found: first,
            missing,
        }));
    }
    match ["k", "k_scale"]
        .into_iter()
        .find(|name| file.contains(name))
    {
        Some(found) => Err(wrong(PagedProblem::Twice { found })),
        None => Ok(true),
    }
}

/// Offsets of the sequences of a file whose keys are in a cache, from `seq_lens` alone.
pub(super) fn sequence_offsets<R: Read + Seek>(file: &mut TensorFile<R>) -> Result<Vec<i64>> {
    Ok(sums(&file.windows("seq_lens", "[S]")?))
}

/// 0, and the sum of the lengths after each.
fn sums(lens: &Array1<i32>) -> Vec<i64> {
    let ends = lens.iter().scan(0, |end, &len| {
        *end += i64::from(len);
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

struct Cache {
    bytes: Vec<u8>,
    pages: usize,
    page: usize,
    dim: usize,
}

impl Cache {
    fn read<R: Read + Seek>(file: &mut TensorFile<R>) -> Result<Self> {
        let (shape, data) = file.tensor("kv_cache", BYTES)?.into_parts();
        let wrong = |problem| DumpError::tensor(file.path(), "kv_cache", problem);
        let (pages, page, width) = match *shape.as_slice() {
            [pages, page, width] | [pages, page, 1, width] if width > SCALE_BYTES => {
                (pages, page, width)
            }
            _ => {
                let expected = "[pages, P, D + 4] or [pages, P, 1, D + 4]";
                let got = shape;
                return Err(wrong(TensorError::Dimensions { got, expected }));
            }
        };
        let Data::U8(bytes) = data else {
            let (got, accepted) = (data.dtype(), BYTES);
            return Err(wrong(TensorError::Dtype { got, accepted }));
        };
        Ok(Self {
            bytes: bytes.into_owned(),
            pages,
            page,
            dim: width - SCALE_BYTES,
        })
    }

    /// Codes and scales of the first tokens of a page that is there.
    fn tokens(
        &self,
        page: usize,
        count: usize,
    ) -> (&[u8], impl Iterator<Item = [u8; SCALE_BYTES]>) {
        let page_bytes = self.page * (self.dim + SCALE_BYTES);
        let bytes = &self.bytes[page * page_bytes..][..page_bytes];
        let (codes, scales) = bytes.split_at(self.page * self.dim);
        let scales = scales.as_chunks().0[..count].iter().copied();
        (&codes[..count * self.dim], scales)
    }
}

/// Where each sequence starts among all keys, and where the last one ends.
fn offsets(
    lens: &Array1<i32>,
    table: &Array2<i32>,
    page: usize,
) -> std::result::Result<Vec<i64>, PagedProblem> {
    let (sequences, width) = table.dim();
    if sequences != lens.len() {
        return Err(PagedProblem::Sequences {
            table: sequences,
            lens: lens.len(),
        });
    }
    let room = (width as u64).saturating_mul(page as u64);
    let fits = |len: i32| u64::try_from(len).is_ok_and(|len| len <= room);
    if let Some(sequence) = lens.iter().position(|&len| !fits(len)) {
        let len = lens[sequence];
        return Err(PagedProblem::Length {
            sequence,
            len,
            room,
        });
    }
    let offsets = sums(lens);
    match offsets.last() {
        Some(&keys) if keys as u64 > KEYS_MAX => Err(PagedProblem::Keys { keys: keys as u64 }),
        _ => Ok(offsets),
    }
}

/// The pages of every sequence, as sequence, column of the table and tokens held there. Entries of
/// the table past the end of a sequence are not among them.
fn pages(offsets: &[i64], page: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    offsets
        .windows(2)
        .enumerate()
        .flat_map(move |(sequence, ends)| {
            let tokens = (ends[1] - ends[0]) as usize;
            let columns = 0..tokens.div_ceil(page.max(1));
            columns.map(move |column| (sequence, column, page.min(tokens - column * page)))
        })
}

/// Every page that is needed is there.
fn check_pages(
    offsets: &[i64],
    table: &Array2<i32>,
    cache: &Cache,
) -> std::result::Result<(), PagedProblem> {
    let is_there = |entry: i32| usize::try_from(entry).is_ok_and(|page| page < cache.pages);
    let absent =
        |(sequence, column, _): &(usize, usize, usize)| !is_there(table[[*sequence, *column]]);
    match pages(offsets, cache.page).find(absent) {
        Some((sequence, column, _)) => Err(PagedProblem::Page {
            sequence,
            column,
            entry: table[[sequence, column]],
            pages: cache.pages,
        }),
        None => Ok(()),
    }
}
