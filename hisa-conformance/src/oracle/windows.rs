//! Windows: the keys and blocks a row may see, and the builders of window lists.
//!
//! The builders take well-formed offsets: they start with 0, never decrease and end with the
//! number of rows or keys. A row that lies in no sequence gets [`NO_SEQUENCE`].

use std::ops::Range;

/// Window of a row that lies in no sequence; it is empty.
pub const NO_SEQUENCE: (i32, i32) = (i32::MAX, 0);

/// Keys of a window `(ks, ke)`, absolute; nothing if `ks >= ke`, whatever the numbers are.
/// SPEC W.1.
pub fn window_keys((ks, ke): (i32, i32)) -> Range<usize> {
    match (usize::try_from(ks), usize::try_from(ke)) {
        (Ok(ks), Ok(ke)) if ks < ke => ks..ke,
        _ => 0..0,
    }
}

/// Blocks of `block_size` keys that a window touches; `0..0` if it is empty. SPEC W.3.
pub fn window_blocks(window: (i32, i32), block_size: usize) -> Range<usize> {
    let keys = window_keys(window);
    if keys.is_empty() {
        0..0
    } else {
        keys.start / block_size..keys.end.div_ceil(block_size)
    }
}

/// Causal self-attention windows `[rows]` from one list of offsets that holds for rows and keys.
/// SPEC W.4.
pub fn windows_from_cu_seqlens(cu_seqlens: &[i32], rows: usize) -> Vec<(i32, i32)> {
    windows_from_offsets(cu_seqlens, cu_seqlens, rows)
}

/// Causal windows `[rows]` from the offsets of queries and of keys: the last row of a sequence
/// sees all its keys, the row before it one key less, and so on. SPEC W.5.
pub fn windows_from_offsets(
    cu_seqlens_q: &[i32],
    cu_seqlens_k: &[i32],
    rows: usize,
) -> Vec<(i32, i32)> {
    per_sequence(cu_seqlens_q, cu_seqlens_k, rows, |row| {
        row.local + 1 + row.len_k - row.len_q
    })
}

/// Windows `[rows]` over keys that each stand for `kv_stride` positions. `first_positions` holds
/// the position of each sequence's first row, 0 where it is missing; without `cu_seqlens_k` a
/// sequence has `len_q / kv_stride` keys. SPEC W.6.
pub fn windows_with_stride(
    cu_seqlens_q: &[i32],
    kv_stride: i32,
    first_positions: &[i64],
    cu_seqlens_k: Option<&[i32]>,
    rows: usize,
) -> Vec<(i32, i32)> {
    let strided_keys = || {
        let mut cu = vec![0];
        let mut end = 0;
        for pair in cu_seqlens_q.windows(2) {
            end += (pair[1] - pair[0]) / kv_stride;
            cu.push(end);
        }
        cu
    };
    let cu_seqlens_k = cu_seqlens_k.map_or_else(strided_keys, <[i32]>::to_vec);
    per_sequence(cu_seqlens_q, &cu_seqlens_k, rows, |row| {
        let first = first_positions.get(row.sequence).copied().unwrap_or(0);
        (first + row.local + 1).div_euclid(kv_stride.into())
    })
}

/// Rows that rank `rank` of `ranks` holds under context parallelism, as global row numbers
/// `[rows / ranks]`: of `2 * ranks` equal chunks, number `rank` from the front, then number
/// `rank` from the back. `rows` must be a multiple of `2 * ranks`. SPEC W.7.
pub fn zigzag_rows(rows: usize, rank: usize, ranks: usize) -> Vec<usize> {
    let chunk = rows / (2 * ranks);
    let rows_of = |index: usize| index * chunk..(index + 1) * chunk;
    rows_of(rank).chain(rows_of(2 * ranks - 1 - rank)).collect()
}

/// Windows of the rows that [`zigzag_rows`] gives, taken unchanged from the `global` ones.
pub fn windows_zigzag(global: &[(i32, i32)], rank: usize, ranks: usize) -> Vec<(i32, i32)> {
    zigzag_rows(global.len(), rank, ranks)
        .into_iter()
        .map(|row| global[row])
        .collect()
}

/// A row and the sequence it lies in.
struct Row {
    sequence: usize,
    local: i64,
    len_q: i64,
    len_k: i64,
}

/// Windows of rows that see the first `visible(row)` keys of their sequence, as far as it has so
/// many. SPEC W.8.
fn per_sequence(
    cu_q: &[i32],
    cu_k: &[i32],
    rows: usize,
    visible: impl Fn(Row) -> i64,
) -> Vec<(i32, i32)> {
    let mut windows = vec![NO_SEQUENCE; rows];
    for (sequence, (q, k)) in cu_q.windows(2).zip(cu_k.windows(2)).enumerate() {
        let (len_q, len_k) = (i64::from(q[1] - q[0]), i64::from(k[1] - k[0]));
        for (row, local) in (q[0]..q[1]).zip(0..) {
            let keys = visible(Row {
                sequence,
                local,
                len_q,
                len_k,
            })
            .clamp(0, len_k);
            // The clamp keeps the sum at most k[1].
            windows[row as usize] = (k[0], k[0] + keys as i32);
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sequence_is_causal() {
        assert_eq!(
            windows_from_cu_seqlens(&[0, 3], 3),
            [(0, 1), (0, 2), (0, 3)]
        );
    }

    #[test]
    fn br_50_empty_sequences_keep_their_index() {
        assert_eq!(windows_from_cu_seqlens(&[0, 0, 1, 2], 2), [(0, 1), (1, 2)]);
        assert_eq!(windows_from_cu_seqlens(&[0, 1, 1, 2], 2), [(0, 1), (1, 2)]);
        let q = windows_from_offsets(&[0, 0, 1, 2], &[0, 4, 6, 9], 2);
        assert_eq!(q, [(4, 6), (6, 9)]);
    }

    #[test]
    fn br_51_repeated_ends_add_nothing() {
        assert_eq!(
            windows_from_cu_seqlens(&[0, 3, 5, 5, 5], 5),
            windows_from_cu_seqlens(&[0, 3, 5], 5)
        );
    }

    #[test]
    fn br_54_no_rows() {
        assert_eq!(windows_from_cu_seqlens(&[0], 0), []);
        assert_eq!(windows_from_cu_seqlens(&[0, 0], 0), []);
    }

    /// SPEC W.8.
    #[test]
    fn rows_without_a_sequence() {
        assert_eq!(windows_from_cu_seqlens(&[0, 1], 2), [(0, 1), NO_SEQUENCE]);
        assert_eq!(window_keys(NO_SEQUENCE), 0..0);
    }

    #[test]
    fn queries_align_with_the_last_keys() {
        // Two rows over five keys; three rows over one key, two of which see nothing.
        let windows = windows_from_offsets(&[0, 2, 5], &[0, 5, 6], 5);
        assert_eq!(windows, [(0, 4), (0, 5), (5, 5), (5, 5), (5, 6)]);
    }

    #[test]
    fn strided_keys() {
        let windows = windows_with_stride(&[0, 5, 7], 2, &[], None, 7);
        assert_eq!(
            windows,
            [(0, 0), (0, 1), (0, 1), (0, 2), (0, 2), (2, 2), (2, 3)]
        );
        let windows = windows_with_stride(&[0, 2, 4], 4, &[7, 3], Some(&[0, 2, 9]), 4);
        assert_eq!(windows, [(0, 2), (0, 2), (2, 3), (2, 3)]);
        let stride_one = windows_with_stride(&[0, 2, 5], 1, &[], None, 5);
        assert_eq!(stride_one, windows_from_cu_seqlens(&[0, 2, 5], 5));
    }

    #[test]
    fn zigzag_pairs_front_and_back() {
        assert_eq!(zigzag_rows(8, 0, 2), [0, 1, 6, 7]);
        assert_eq!(zigzag_rows(8, 1, 2), [2, 3, 4, 5]);
        assert_eq!(zigzag_rows(4, 0, 1), [0, 1, 2, 3]);
        let global = windows_from_cu_seqlens(&[0, 4, 8], 8);
        assert_eq!(
            windows_zigzag(&global, 0, 2),
            [(0, 1), (0, 2), (4, 7), (4, 8)]
        );
    }

    #[test]
    fn blocks_are_rounded_outwards() {
        assert_eq!(window_blocks((3, 9), 4), 0..3);
        assert_eq!(window_blocks((4, 8), 4), 1..2);
        assert_eq!(window_blocks((7, 8), 1), 7..8);
    }

    #[test]
    fn br_55_empty_windows_touch_no_block() {
        for window in [
            (2, 2),
            (0, 0),
            (4, 4),
            (5, 3),
            (i32::MAX, i32::MIN),
            (-1, -1),
        ] {
            assert_eq!(window_blocks(window, 1), 0..0);
        }
    }

    #[test]
    fn br_72_no_overflow_at_the_end_of_i32() {
        assert_eq!(window_blocks((0, i32::MAX), 128), 0..16_777_216);
    }
}
