//! One request to a backend, and the place its answer goes.

use super::{Buffer, Buffers, Failure, Guarded, Kind};
use crate::case::WindowSpec;
use crate::op::Op;
use crate::problem::Problem;
use hisa_ref::stages::quantize::QuantizeOptions;
use hisa_ref::{E4M3, HisaParams, Strictness, Windows};

/// What a backend is to do, with copies of all tensors it reads. A backend that changes them is
/// found out.
#[derive(Debug)]
pub struct Job<'a> {
    /// What to run.
    pub op: Op,
    /// B, m, K and the rank type.
    pub params: HisaParams,
    /// Whether NaN and its like are refused. Pooled tensors are always taken as they are.
    pub strictness: Strictness,
    /// How `quantize` is run.
    pub quantize: QuantizeOptions,
    /// The windows; also tensors `ks` and `ke` where the job reads them.
    pub windows: &'a Windows,
    /// For `windows`: sequence offsets to make them from.
    pub spec: Option<&'a WindowSpec>,
    /// For `append`: as [`Problem::pieces`].
    pub pieces: &'a [usize],
    /// M, query rows.
    pub m: usize,
    /// N, keys.
    pub n: usize,
    /// H, heads.
    pub h: usize,
    /// D, dimensions of a head.
    pub d: usize,
    /// The tensors the job reads, by name.
    pub tensors: Buffers,
}

impl<'a> Job<'a> {
    /// The job `op` on `problem`. Tensors that earlier stages write come from `made`.
    ///
    /// # Errors
    /// The name of the tensor that is neither in the problem nor in `made`.
    pub fn new(op: Op, problem: &'a Problem, made: &Buffers) -> Result<Self, &'static str> {
        Self::with(op, problem, |name| {
            input(problem, name).or_else(|| made.get(name).cloned())
        })
    }

    /// The same, with copies of the caller's tensors from `inputs`, as [`inputs`] makes them.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn copied(
        op: Op,
        problem: &'a Problem,
        inputs: &Buffers,
        made: &Buffers,
    ) -> Result<Self, &'static str> {
        Self::with(op, problem, |name| {
            inputs.get(name).or_else(|| made.get(name)).cloned()
        })
    }

    fn with(
        op: Op,
        problem: &'a Problem,
        tensor: impl Fn(&str) -> Option<Buffer>,
    ) -> Result<Self, &'static str> {
        let mut tensors = Buffers::default();
        for &name in op.inputs() {
            tensors.put(name, tensor(name).ok_or(name)?);
        }
        let inputs = &problem.inputs;
        Ok(Self {
            op,
            params: inputs.params,
            strictness: inputs.strictness,
            quantize: problem.quantize,
            windows: &inputs.windows,
            spec: problem.spec.as_ref(),
            pieces: &problem.pieces,
            m: problem.m(),
            n: problem.n(),
            h: problem.h(),
            d: problem.d(),
            tensors,
        })
    }

    /// The codes of that name.
    ///
    /// # Errors
    /// [`Failure::Error`] where the job has none.
    pub fn codes(&self, name: &str) -> Result<&Guarded<E4M3>, Failure> {
        self.tensors.codes(name).ok_or_else(|| absent(name))
    }

    /// The floats of that name.
    ///
    /// # Errors
    /// As [`Self::codes`].
    pub fn f32(&self, name: &str) -> Result<&Guarded<f32>, Failure> {
        self.tensors.f32(name).ok_or_else(|| absent(name))
    }

    /// The ids of that name.
    ///
    /// # Errors
    /// As [`Self::codes`].
    pub fn i32(&self, name: &str) -> Result<&Guarded<i32>, Failure> {
        self.tensors.i32(name).ok_or_else(|| absent(name))
    }
}

/// Outside the block windows scores are not specified (SPEC 3.2), and the stage after them has to
/// do with whatever a port left there (SPEC 4.1): NaN and infinity in turn.
pub(crate) fn unspecify(scores: &mut Guarded<f32>, problem: &Problem) {
    let (windows, columns) = (problem.inputs.windows.rows(), scores.columns().max(1));
    for (at, score) in scores.body_mut().iter_mut().enumerate() {
        let (row, block) = (at / columns, at % columns);
        let inside = |window: &hisa_ref::Window| window.blocks(problem.b()).contains(&block);
        if !windows.get(row).is_some_and(inside) {
            *score = if at % 2 == 0 { f32::NAN } else { f32::INFINITY };
        }
    }
}

/// Every second zero becomes `-0.0`, from the first on: both zeros are the same
/// score (SPEC V.4), and the stage after has to rank them alike, whichever a port hands on.
pub(crate) fn mix_zeros(scores: &mut Guarded<f32>) {
    let zeros = scores.body_mut().iter_mut().filter(|score| **score == 0.0);
    for zero in zeros.step_by(2) {
        *zero = -0.0;
    }
}

fn absent(name: &str) -> Failure {
    Failure::Error(format!("the job has no tensor {name}"))
}

/// Every tensor of the caller's, as jobs hold it.
pub(crate) fn inputs(problem: &Problem) -> Buffers {
    let mut tensors = Buffers::default();
    for name in ["x", "q", "k", "k_scale", "weights", "ks", "ke"] {
        if let Some(buffer) = input(problem, name) {
            tensors.put(name, buffer);
        }
    }
    tensors
}

/// A tensor of the caller's.
fn input(problem: &Problem, name: &str) -> Option<Buffer> {
    let tensors = &problem.inputs.tensors;
    let rows = problem.inputs.windows.rows();
    let bounds = |of: fn(&hisa_ref::Window) -> &i32| {
        Buffer::I32(Guarded::of(&[rows.len()], rows.iter().map(of)))
    };
    Some(match name {
        "x" => Buffer::F32(Guarded::from_array(problem.x.as_ref()?)),
        "q" => Buffer::Codes(Guarded::from_array(&tensors.q)),
        "k" => Buffer::Codes(Guarded::from_array(&tensors.k)),
        "k_scale" => Buffer::F32(Guarded::from_array(&tensors.k_scale)),
        "weights" => Buffer::F32(Guarded::from_array(&tensors.weights)),
        "ks" => bounds(|window| &window.ks),
        "ke" => bounds(|window| &window.ke),
        _ => return None,
    })
}

/// What outputs and workspace hold before a backend runs. A result may not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fill {
    /// Zeros, as fresh memory often has: a fault that needs other contents does not show.
    #[default]
    Zeros,
    /// 0x7FFFFFFF: NaN as a float, an id far out of range.
    Ones,
}

impl Fill {
    const fn bits(self) -> u32 {
        match self {
            Self::Zeros => 0,
            Self::Ones => 0x7FFF_FFFF,
        }
    }
}

/// A job with the place its answer goes.
#[derive(Debug)]
pub struct Call<'a> {
    /// What to do.
    pub job: Job<'a>,
    /// Where it goes.
    pub out: Outputs,
}

/// The outputs of a job, and memory a backend may use on the way.
#[derive(Debug, Clone, Default)]
pub struct Outputs {
    /// The tensors of [`Op::outputs`], in their shapes.
    pub tensors: Buffers,
    /// Scratch memory with the contents of [`Fill`]; a backend may resize it.
    pub workspace: Vec<u32>,
    /// What both held at first.
    pub fill: Fill,
}

/// Words of workspace every job is lent.
pub(crate) const WORKSPACE_WORDS: usize = 64;

impl Outputs {
    /// The outputs of `op` on `problem`, all holding `fill`.
    #[must_use]
    pub fn new(op: Op, problem: &Problem, fill: Fill) -> Self {
        let mut tensors = Buffers::default();
        let bits = fill.bits();
        for &name in op.outputs() {
            let Some(shape) = problem.output_shape(op, name) else {
                continue;
            };
            let buffer = match Kind::of_output(name) {
                Kind::Codes => {
                    Buffer::Codes(Guarded::filled(&shape, E4M3::from_bits(bits as u8 & 0x7F)))
                }
                Kind::I32 => Buffer::I32(Guarded::filled(&shape, bits as i32)),
                Kind::F32 => Buffer::F32(Guarded::filled(&shape, f32::from_bits(bits))),
            };
            tensors.put(name, buffer);
        }
        Self {
            tensors,
            workspace: vec![bits; WORKSPACE_WORDS],
            fill,
        }
    }

    /// The codes of that name, to be written.
    ///
    /// # Errors
    /// [`Failure::Error`] where the job has no such output.
    pub fn codes(&mut self, name: &str) -> Result<&mut Guarded<E4M3>, Failure> {
        self.tensors.codes_mut(name).ok_or_else(|| no_output(name))
    }

    /// The floats of that name, to be written.
    ///
    /// # Errors
    /// As [`Self::codes`].
    pub fn f32(&mut self, name: &str) -> Result<&mut Guarded<f32>, Failure> {
        self.tensors.f32_mut(name).ok_or_else(|| no_output(name))
    }

    /// The ids of that name, to be written.
    ///
    /// # Errors
    /// As [`Self::codes`].
    pub fn i32(&mut self, name: &str) -> Result<&mut Guarded<i32>, Failure> {
        self.tensors.i32_mut(name).ok_or_else(|| no_output(name))
    }
}

fn no_output(name: &str) -> Failure {
    Failure::Error(format!("the job has no output {name}"))
}
