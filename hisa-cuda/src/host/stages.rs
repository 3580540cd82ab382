//! One stage on arrays in host memory. What the reference and the kernels refuse is refused before
//! anything is copied.

use super::Host;
use super::staged::{bytes, sizes};
use crate::error::Result;
use crate::shape::{Blocks, HEAD_DIM_MAX, at_most, check_topk};
use crate::stages::{
    Scoring, block_mask, block_pool, block_scores, block_topk, index_map, quantize, token_scores,
    token_topk,
};
use hisa_ref::input::{check_dims_match, check_windows};
use hisa_ref::params::{block_count, check_size};
use hisa_ref::stages::block_pool::Pooled;
use hisa_ref::stages::check_rows;
use hisa_ref::stages::index_map::check_slots;
use hisa_ref::stages::quantize::{self as quantize_rules, QuantizeOptions, Quantized};
use hisa_ref::stages::token_scores::check_block_ids;
use hisa_ref::{E4M3, IndexerInput, Keys, Queries, Rank, Windows};
use ndarray::{Array1, Array2, ArrayView2};

impl Host {
    /// `codes` and `scale` of `[rows, D]` (SPEC 1).
    ///
    /// # Errors
    /// In strict mode as `hisa_ref::stages::quantize::run`; those of the device.
    pub fn quantize(
        &mut self,
        x: ArrayView2<'_, f32>,
        options: QuantizeOptions,
    ) -> Result<Quantized> {
        quantize_rules::check(x, options)?;
        let (rows, head_dim) = x.dim();
        let owned = x.as_standard_layout();
        let values = owned.as_slice().unwrap_or_default();
        self.start(5 * values.len() + 4 * rows, 3)?;
        let x = self.arena.put(values)?;
        let (codes, scale) = (
            self.arena.reserve::<u8>(x.len())?,
            self.arena.reserve(rows)?,
        );
        self.arena.upload()?;
        let args = quantize::Args {
            x: quantize::RowSlice::F32(self.arena.read(x)),
            rows,
            head_dim,
            format: options.format,
            overflow: options.overflow,
            codes: self.arena.write(codes),
            scale: self.arena.write(scale),
        };
        quantize::launch(&self.device, self.arena.stream(), &args)?;
        self.arena.download()?;
        Ok(Quantized {
            codes: self.matrix(codes.cast::<E4M3>(), (rows, head_dim))?,
            scale: Array1::from_vec(self.arena.get(scale)?.to_vec()),
        })
    }

    /// One mean key per block (SPEC 2).
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`]; those of the device.
    pub fn block_pool(&mut self, keys: &Keys<'_>, block_size: usize) -> Result<Pooled> {
        check_size("block_size", block_size)?;
        let (n, d) = (keys.len(), keys.head_dim());
        at_most("D", d, HEAD_DIM_MAX)?;
        let blocks = block_count(n, block_size);
        self.start((n + blocks) * (d + 4), 4)?;
        let staged = self.put_keys(keys)?;
        let pooled_k = self.arena.reserve::<u8>(blocks * d)?;
        let pooled_scale = self.arena.reserve::<f32>(blocks)?;
        self.arena.upload()?;
        let args = block_pool::Args {
            keys: staged.slices(&self.arena),
            len: n,
            head_dim: d,
            block_size,
            first_block: 0,
            pooled_k: self.arena.write(pooled_k),
            pooled_scale: self.arena.write(pooled_scale),
        };
        block_pool::launch(&self.device, self.arena.stream(), &args)?;
        self.arena.download()?;
        Ok(Pooled {
            codes: self.matrix(pooled_k.cast::<E4M3>(), (blocks, d))?,
            scales: Array1::from_vec(self.arena.get(pooled_scale)?.to_vec()),
        })
    }

    /// `[M, Nb]` scores of pooled blocks (SPEC 3).
    ///
    /// # Errors
    /// As `hisa_ref::stages::block_scores::run`; [`crate::Error::Unsupported`];
    /// those of the device.
    pub fn block_scores(
        &mut self,
        queries: &Queries<'_>,
        pooled: &Keys<'_>,
        windows: &Windows,
        block_size: usize,
        scoring: Scoring,
    ) -> Result<Array2<f32>> {
        check_size("block_size", block_size)?;
        check_dims_match(queries, pooled, "pooled_k")?;
        check_windows(queries, windows.n(), windows)?;
        let sizes = sizes(queries, windows.n());
        sizes.check()?;
        let columns = sizes.blocks(block_size);
        self.start(bytes(&sizes, pooled.len()) + 4 * sizes.rows * columns, 7)?;
        let staged = self.put_input(queries, pooled, windows)?;
        let scores = self.arena.reserve::<f32>(sizes.rows * columns)?;
        self.arena.upload()?;
        let input = staged.slices(&self.arena);
        let args = block_scores::Args {
            queries: input.queries,
            pooled: input.keys,
            windows: input.windows,
            sizes,
            block_size,
            scoring,
            scores: self.arena.write(scores),
        };
        block_scores::launch(&self.device, self.arena.stream(), &args)?;
        self.arena.download()?;
        self.matrix(scores, (sizes.rows, columns))
    }

    /// Masks `[M, Nb]` scores in place (SPEC 4).
    ///
    /// # Errors
    /// As `hisa_ref::stages::block_mask::run`; those of the device.
    pub fn block_mask(
        &mut self,
        scores: &mut Array2<f32>,
        windows: &Windows,
        block_size: usize,
    ) -> Result<()> {
        let columns = check_block_scores(scores.dim(), windows, block_size)?;
        let owned = scores.as_standard_layout().into_owned();
        let rows = windows.len();
        self.start(4 * owned.len() + 8 * rows, 3)?;
        let staged = self.put_windows(windows)?;
        let masked = self.arena.put(owned.as_slice().unwrap_or_default())?;
        self.arena.upload()?;
        let args = block_mask::Args {
            scores: self.arena.write(masked),
            windows: staged.slices(&self.arena),
            rows: windows.len(),
            keys: windows.n(),
            block_size,
        };
        block_mask::launch(&self.device, self.arena.stream(), &args)?;
        self.arena.download()?;
        *scores = self.matrix(masked, (rows, columns))?;
        Ok(())
    }

    /// `[M, m]` ids of the chosen blocks (SPEC 5).
    ///
    /// # Errors
    /// As `hisa_ref::stages::block_topk::run`; those of the device.
    pub fn block_topk(
        &mut self,
        masked: ArrayView2<'_, f32>,
        windows: &Windows,
        (block_size, block_topk): (usize, usize),
        rank: Rank,
    ) -> Result<Array2<i32>> {
        let blocks = Blocks::new(block_size, block_topk)?;
        check_block_scores(masked.dim(), windows, block_size)?;
        let owned = masked.as_standard_layout();
        let rows = windows.len();
        self.start(4 * owned.len() + 4 * rows * (2 + block_topk), 4)?;
        let staged = self.put_windows(windows)?;
        let masked = self.arena.put(owned.as_slice().unwrap_or_default())?;
        let ids = self.arena.reserve::<i32>(rows * block_topk)?;
        self.arena.upload()?;
        let args = block_topk::Args {
            masked: self.arena.read(masked),
            windows: staged.slices(&self.arena),
            rows,
            keys: windows.n(),
            blocks,
            rank,
            block_ids: self.arena.write(ids),
        };
        block_topk::launch(&self.device, self.arena.stream(), &args)?;
        self.arena.download()?;
        self.matrix(ids, (rows, block_topk))
    }

    /// `[M, S]` scores of the keys of kept blocks (SPEC 6).
    ///
    /// # Errors
    /// As `hisa_ref::stages::token_scores::run`; [`crate::Error::Unsupported`];
    /// those of the device.
    pub fn token_scores(
        &mut self,
        input: &IndexerInput<'_>,
        block_ids: ArrayView2<'_, i32>,
        block_size: usize,
        scoring: Scoring,
    ) -> Result<Array2<f32>> {
        let sizes = sizes(input.queries(), input.keys().len());
        sizes.check()?;
        let blocks = Blocks::new(block_size, block_ids.ncols())?;
        check_ids(block_ids, input.windows(), blocks)?;
        let columns = blocks.slots();
        let row = 4 * (columns + blocks.kept());
        self.start(bytes(&sizes, sizes.keys) + sizes.rows * row, 8)?;
        let staged = self.put_input(input.queries(), input.keys(), input.windows())?;
        let ids = self.put_matrix(block_ids)?;
        let scores = self.arena.reserve::<f32>(sizes.rows * columns)?;
        self.arena.upload()?;
        let input = staged.slices(&self.arena);
        let args = token_scores::Args {
            queries: input.queries,
            keys: input.keys,
            block_ids: self.arena.read(ids),
            windows: input.windows,
            sizes,
            blocks,
            scoring,
            scores: self.arena.write(scores),
        };
        token_scores::launch(&self.device, self.arena.stream(), &args)?;
        self.arena.download()?;
        self.matrix(scores, (sizes.rows, columns))
    }

    /// `[M, K]` slots, best first (SPEC 7).
    ///
    /// # Errors
    /// As `hisa_ref::stages::token_topk::run`; [`crate::Error::Unsupported`];
    /// those of the device.
    pub fn token_topk(
        &mut self,
        token_scores: ArrayView2<'_, f32>,
        block_ids: ArrayView2<'_, i32>,
        windows: &Windows,
        block_size: usize,
        topk: usize,
    ) -> Result<Array2<i32>> {
        let blocks = Blocks::new(block_size, block_ids.ncols())?;
        check_ids(block_ids, windows, blocks)?;
        let (dim, columns) = (token_scores.dim(), blocks.slots());
        check_rows("token_scores", dim, windows, columns, "S", block_size)?;
        check_topk(topk)?;
        let rows = windows.len();
        self.start(4 * rows * (2 + columns + blocks.kept() + topk), 5)?;
        let staged = self.put_windows(windows)?;
        let ids = self.put_matrix(block_ids)?;
        let scores = self.put_matrix(token_scores)?;
        let slots = self.arena.reserve::<i32>(rows * topk)?;
        self.arena.upload()?;
        let args = token_topk::Args {
            token_scores: self.arena.read(scores),
            block_ids: self.arena.read(ids),
            windows: staged.slices(&self.arena),
            rows,
            keys: windows.n(),
            blocks,
            topk,
            slots: self.arena.write(slots),
        };
        token_topk::launch(&self.device, self.arena.stream(), &args)?;
        self.arena.download()?;
        self.matrix(slots, (rows, topk))
    }

    /// `[M, K]` ids relative to the windows (SPEC 8).
    ///
    /// # Errors
    /// As `hisa_ref::stages::index_map::run`; those of the device.
    pub fn index_map(
        &mut self,
        slots: ArrayView2<'_, i32>,
        block_ids: ArrayView2<'_, i32>,
        windows: &Windows,
        block_size: usize,
    ) -> Result<Array2<i32>> {
        let blocks = Blocks::new(block_size, block_ids.ncols())?;
        check_slots(slots, block_ids, windows, block_size)?;
        let (rows, topk) = slots.dim();
        self.start(4 * rows * (2 + blocks.kept() + 2 * topk), 5)?;
        let staged = self.put_windows(windows)?;
        let ids = self.put_matrix(block_ids)?;
        let slots = self.put_matrix(slots)?;
        let indices = self.arena.reserve::<i32>(rows * topk)?;
        self.arena.upload()?;
        let args = index_map::Args {
            slots: self.arena.read(slots),
            block_ids: self.arena.read(ids),
            windows: staged.slices(&self.arena),
            rows: windows.len(),
            keys: windows.n(),
            blocks,
            topk,
            indices: self.arena.write(indices),
        };
        index_map::launch(&self.device, self.arena.stream(), &args)?;
        self.arena.download()?;
        self.matrix(indices, (rows, topk))
    }
}

/// Nb, where the matrix has that many columns.
fn check_block_scores(dim: (usize, usize), windows: &Windows, block_size: usize) -> Result<usize> {
    check_size("block_size", block_size)?;
    let columns = block_count(windows.n(), block_size);
    check_rows("block_scores", dim, windows, columns, "Nb", block_size)?;
    Ok(columns)
}

/// SPEC 6.3.
fn check_ids(block_ids: ArrayView2<'_, i32>, windows: &Windows, blocks: Blocks) -> Result<()> {
    let (dim, kept) = (block_ids.dim(), blocks.kept());
    check_rows("block_ids", dim, windows, kept, "m", blocks.size())?;
    let all = block_count(windows.n(), blocks.size());
    Ok(check_block_ids(block_ids, all)?)
}
