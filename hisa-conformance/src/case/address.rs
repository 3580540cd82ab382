//! Addresses: a case in one line that a shell passes on unquoted.
//!
//! ```text
//! hisa:M=3,N=3,H=2,D=32,B=16,m=2,K=8,rank=bf16/cu=0.1.1.3/v=normal/seed=0x91
//!
//! address  = "hisa:" field *( ( "/" | "," ) field )
//! field    = key "=" value              in any order, each key once; patches may repeat
//! ```
//!
//! | keys | value |
//! |---|---|
//! | `M` `N` `H` `D` | query rows, keys, heads, dimensions of a head |
//! | `B` `m` `K` | keys of a block, blocks kept, tokens kept |
//! | `rank` | `bf16` (default) or `f32` |
//! | `cu` | offsets of causal sequences, separated by dots |
//! | `cuq` `cuk` | offsets of queries and of keys |
//! | `stride` `pos` | with `cuq`, keys of several positions; `pos` has each sequence's first one |
//! | `win` | windows `START:END`, separated by dots; `pad` for (INT32_MAX, 0); `xCOUNT` repeats |
//! | `cp` | `RANKofRANKS`: the rows one context-parallel rank holds |
//! | `pad` | rows of no sequence added at the end (default 0) |
//! | `v` | the name of a preset (default `normal`), or instead of it all of: |
//! | `q` `k` `s` `w` `x` | kinds of values; `k=blocks:PROGRAM` and `s=prog:PROGRAM` write scores |
//! | `q.R.H.D` `k.N.D` `s.N` `w.R.H` `x.N.D` | a patch: the bits of one element, `_` for all |
//! | `seed` | decimal, or hexadecimal after `0x` (default 0) |
//!
//! Numbers are decimal unless they are bits. Programs are described in
//! [`crate::generate::programmed`], kinds and presets in [`crate::generate::values`]. Printing
//! writes every field but empty ones in the order above, with `/` between groups. The grammar
//! only ever grows: what parses today means the same bytes in every later version.

use super::Case;
use super::windows::{Shard, WindowSource, WindowSpec};
use crate::generate::values::{Codes, Scales, Values};
use hisa_ref::Window;
use std::fmt;

/// What every address starts with.
pub const SCHEME: &str = "hisa:";
/// Longest address that is read, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 1 << 20;
/// Most offsets of one list.
pub const OFFSETS_MAX: usize = 1 << 18;

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            m,
            n,
            h,
            d,
            block_size,
            block_topk,
            topk_tokens,
            rank,
            ..
        } = self;
        write!(
            f,
            "{SCHEME}M={m},N={n},H={h},D={d},B={block_size},m={block_topk}"
        )?;
        write!(
            f,
            ",K={topk_tokens},rank={rank}/{}/{}",
            self.windows, self.values
        )?;
        for (index, patch) in self.patches.iter().enumerate() {
            write!(f, "{}{patch}", if index == 0 { '/' } else { ',' })?;
        }
        write!(f, "/seed={:#x}", self.seed)
    }
}

impl fmt::Display for WindowSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            WindowSource::Causal(cu) => write!(f, "cu={}", Dotted(cu))?,
            WindowSource::Separate { q, k } => write!(f, "cuq={},cuk={}", Dotted(q), Dotted(k))?,
            WindowSource::Strided {
                q,
                k,
                stride,
                first_positions,
            } => {
                write!(f, "cuq={}", Dotted(q))?;
                if let Some(k) = k {
                    write!(f, ",cuk={}", Dotted(k))?;
                }
                write!(f, ",stride={stride}")?;
                if !first_positions.is_empty() {
                    write!(f, ",pos={}", Dotted(first_positions))?;
                }
            }
            WindowSource::Rows(rows) => write_rows(rows, f)?,
        }
        if let Some(Shard { rank, ranks }) = self.shard {
            write!(f, ",cp={rank}of{ranks}")?;
        }
        if self.padding_rows > 0 {
            write!(f, ",pad={}", self.padding_rows)?;
        }
        Ok(())
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.preset_name() {
            return write!(f, "v={name}");
        }
        write!(f, "q={}", self.q)?;
        match &self.k {
            Codes::Kind(kind) => write!(f, ",k={kind}")?,
            Codes::Blocks(program) => write!(f, ",k=blocks:{program}")?,
        }
        match &self.s {
            Scales::Kind(kind) => write!(f, ",s={kind}")?,
            Scales::Program(program) => write!(f, ",s=prog:{program}")?,
        }
        write!(f, ",w={},x={}", self.w, self.x)
    }
}

/// A list with dots between its entries.
struct Dotted<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Dotted<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.0.iter().enumerate() {
            write!(f, "{}{entry}", if index == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

fn write_rows(rows: &[Window], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("win=")?;
    for (index, run) in rows.chunk_by(|a, b| a == b).enumerate() {
        f.write_str(if index == 0 { "" } else { "." })?;
        match run[0] {
            Window::PADDING => f.write_str("pad")?,
            Window { ks, ke } => write!(f, "{ks}:{ke}")?,
        }
        if run.len() > 1 {
            write!(f, "x{}", run.len())?;
        }
    }
    Ok(())
}
