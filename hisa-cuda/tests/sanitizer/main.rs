//! The set of runs for `compute-sanitizer`: every kernel, every branch that one GPU can take, each
//! tensor an allocation of its own and of its exact size, outputs and workspaces never initialised.
//!
//! ```text
//! compute-sanitizer --tool memcheck   --error-exitcode 9 TEST_BINARY
//! compute-sanitizer --tool initcheck  --error-exitcode 9 TEST_BINARY
//! compute-sanitizer --tool racecheck  --error-exitcode 9 TEST_BINARY
//! compute-sanitizer --tool synccheck  --error-exitcode 9 TEST_BINARY
//! ```
//!
//! What comes out is compared as well: bits of the reference, and for tensor cores bits of their
//! model in a few columns. Without a GPU it says so and passes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stderr, reason = "progress and skips are said aloud")]

mod blocks;
#[path = "../device/mod.rs"]
mod device;
mod indexers;
mod inputs;
mod tokens;

use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr};
use device::{Numbers, Resident, Tensors, bits, class, host};
use device::{assert_same_but_nan_payloads, model_score};
use hisa_cuda::stages::Input;
use hisa_cuda::{Device, Sizes};
use hisa_ref::model::DotClass;
use hisa_ref::trace::Trace;
use hisa_ref::{HisaParams, Keys, Queries, Rank};
use inputs::{Case, cases, shuffled};
use ndarray::{Array2, Axis};
use std::sync::Arc;
use tokens::Expected;

#[test]
fn every_kernel_over_the_fixed_set() {
    let Some((host, _guard)) = host("sanitizer") else {
        return;
    };
    let run = Run {
        device: host.device(),
        stream: host.device().stream().unwrap(),
        class: class("scores of tensor cores in sanitizer", &host),
    };
    let cases = cases();
    for (done, case) in cases.iter().enumerate() {
        run.case(case);
        if (done + 1) % 20 == 0 {
            eprintln!("{} of {} cases", done + 1, cases.len());
        }
    }
}

/// Where everything runs.
struct Run<'d> {
    device: &'d Device,
    stream: Arc<CudaStream>,
    /// The model of its tensor cores.
    class: Option<DotClass>,
}

/// One case with what the reference makes of it.
struct Work<'a> {
    what: String,
    case: &'a Case,
    tensors: &'a Tensors,
    resident: &'a Resident,
    sizes: Sizes,
    params: HisaParams,
    trace: &'a Trace,
}

impl Work<'_> {
    /// The tensors on the device; codes begin `shift` bytes into their allocations.
    fn input<'a>(&'a self, stream: &'a CudaStream) -> Input<'a> {
        let mut input = self.resident.slices(stream);
        input.queries.q = input.queries.q.tail(self.case.shift);
        input.keys.codes = input.keys.codes.tail(self.case.shift);
        input
    }
}

impl Run<'_> {
    fn case(&self, case: &Case) {
        let [rows, keys, heads, head_dim, b, kept, k] = case.shape;
        let mut numbers = Numbers(case.seed * 1000 + keys as u64);
        let tensors = case.tensors(&mut numbers);
        let rank = [Rank::Bf16, Rank::F32][case.seed as usize / 2 % 2];
        let params = HisaParams::new(b, kept, k).unwrap().with_rank(rank);
        let mut resident = Resident::new(&self.stream, &tensors);
        if case.shift > 0 {
            let codes = bits(tensors.q.as_slice().unwrap());
            resident.q = self.upload(&[&vec![0x7F; case.shift][..], &codes].concat());
            let codes = bits(tensors.k.as_slice().unwrap());
            resident.k = self.upload(&[&vec![0x7F; case.shift][..], &codes].concat());
        }
        let work = Work {
            what: format!("{case:?}"),
            case,
            tensors: &tensors,
            resident: &resident,
            sizes: Sizes {
                rows,
                keys,
                heads,
                head_dim,
            },
            params,
            trace: &hisa_ref::hisa::trace(&tensors.input(), &params).unwrap(),
        };
        self.quantize(&mut numbers, &work);
        self.block_stages(&work);
        self.token_stages(&work, &work.trace.block_ids, &work.expected());
        if case.shuffled {
            let all = work.sizes.blocks(b) as i32;
            let (ids, plain) = shuffled(&mut numbers, &work.trace.block_ids, all);
            let expected = Expected::of(&tensors, &params, &plain);
            self.token_stages(&work, &ids, &expected);
        }
        self.indexers(&work);
    }

    /// Memory nothing was written to.
    fn raw<T: DeviceRepr>(&self, len: usize) -> CudaSlice<T> {
        // SAFETY: whether somebody reads it before it is written is what the sanitizer finds out.
        unsafe { self.stream.alloc(len.max(1)) }.unwrap()
    }

    /// A tensor of its exact size, or of one element where it has none.
    fn upload<T: DeviceRepr + Default + Copy>(&self, values: &[T]) -> CudaSlice<T> {
        let one = [T::default()];
        let values = if values.is_empty() { &one } else { values };
        self.stream.clone_htod(values).unwrap()
    }

    fn vector<T: DeviceRepr>(&self, from: &CudaSlice<T>, len: usize) -> Vec<T> {
        self.part(from, 0..len)
    }

    fn part<T: DeviceRepr>(&self, from: &CudaSlice<T>, range: std::ops::Range<usize>) -> Vec<T> {
        match range.is_empty() {
            true => Vec::new(),
            false => self.stream.clone_dtoh(&from.slice(range)).unwrap(),
        }
    }

    fn matrix<T: DeviceRepr>(&self, from: &CudaSlice<T>, shape: (usize, usize)) -> Array2<T> {
        Array2::from_shape_vec(shape, self.vector(from, shape.0 * shape.1)).unwrap()
    }

    /// That scores of tensor cores are those of the model, in the first and the last row, and in
    /// as many columns as are cheap; that columns without a key, of all rows, are `-inf`.
    fn assert_model(
        &self,
        what: &str,
        got: &Array2<f32>,
        (queries, keys): (&Queries<'_>, &Keys<'_>),
        key_of: impl Fn(usize, usize) -> Option<usize>,
    ) {
        const CODES: usize = 50_000;
        let columns = (CODES / (queries.heads() * queries.head_dim())).clamp(1, 64);
        let mut expected = got.clone();
        for (row, mut values) in expected.axis_iter_mut(Axis(0)).enumerate() {
            let mut keyed = Vec::new();
            for (column, value) in values.iter_mut().enumerate() {
                match key_of(row, column) {
                    Some(key) => keyed.push((column, key)),
                    None => *value = f32::NEG_INFINITY,
                }
            }
            let (Some(class), true) = (self.class, row == 0 || row + 1 == got.nrows()) else {
                continue;
            };
            let step = keyed.len().div_ceil(columns).max(1);
            for &(column, key) in keyed.iter().step_by(step) {
                values[column] = model_score(class, queries, keys, (row, key));
            }
        }
        assert_same_but_nan_payloads(&format!("tensor cores, {what}"), got, &expected);
    }
}
