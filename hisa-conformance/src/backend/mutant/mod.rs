//! A port of its own, plain and scalar, with one planted fault.
//!
//! Each stage is written as a kernel would be: loops over rows, inputs read through the arena,
//! outputs written where they belong. Without a fault it agrees with the specification bit for
//! bit. With one it shows that the checks find what they are there for: [`MUTANTS`] names the
//! check that has to.

mod append;
mod block_mask;
mod block_pool;
mod block_scores;
mod block_sparse;
mod block_topk;
mod dsa;
mod encode;
mod fault;
mod hisa;
mod index_map;
mod launch;
mod quantize;
mod scoring;
mod select;
mod token_scores;
mod token_topk;
mod windows;

pub use fault::MUTANTS;

use super::{Backend, Capabilities, Failure, Job, Outputs};
use crate::op::Op;
use fault::Fault;
use hisa_ref::Stage;
use launch::{Launch, Rows};

/// A port with one fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mutant {
    /// Its name; the backend is `mutant:NAME`.
    pub name: &'static str,
    /// Kind of fault: 7 for K7, ragged tails.
    pub kind: u8,
    /// The job in which the fault sits.
    pub op: Op,
    /// Id of the check that finds it first.
    pub caught_by: &'static str,
    /// What the port does wrong, in a sentence.
    pub about: &'static str,
    /// Numbers n of public reports BR-n of such a fault.
    pub reports: &'static [u16],
    fault: Fault,
}

impl Mutant {
    /// Whether a process survives the fault; false for those that end it or run for ever.
    #[must_use]
    pub const fn survives(&self) -> bool {
        !matches!(self.fault, Fault::TtopkAbort | Fault::TtopkHang)
    }
}

/// The mutant of that name, without `mutant:`; `none` is the port without a fault.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Backend>> {
    if name == "none" {
        return Some(Box::new(Port::new("mutant:none".to_owned(), Fault::None)));
    }
    let mutant = MUTANTS.iter().find(|mutant| mutant.name == name)?;
    Some(Box::new(Port::new(format!("mutant:{name}"), mutant.fault)))
}

/// A scalar port takes minutes beyond.
const WORK_MAX: usize = 1 << 27;

struct Port {
    name: String,
    fault: Fault,
    capabilities: Capabilities,
    /// Launches so far, by job.
    launches: [u32; Op::ALL.len()],
    /// What a faulty port keeps between calls.
    kept: hisa::Kept,
}

impl Port {
    fn new(name: String, fault: Fault) -> Self {
        Self {
            name,
            fault,
            capabilities: Capabilities {
                work_max: WORK_MAX,
                ..Capabilities::all()
            },
            launches: [0; Op::ALL.len()],
            kept: hisa::Kept::default(),
        }
    }
}

impl Backend for Port {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        let launched = &mut self.launches[job.op.index()];
        *launched += 1;
        let launch = Launch::new(self.fault, *launched, job);
        match job.op {
            Op::Windows => windows::run(&launch, job, out),
            Op::Stage(Stage::Quantize) => quantize::run(&launch, job, out),
            Op::Stage(stage) => run_stage(stage, &launch, job, out),
            Op::Append => append::run(&launch, job, out),
            Op::Hisa => hisa::run(&launch, &mut self.kept, job, out),
            Op::Dsa => dsa::run(&launch, job, out),
            Op::BlockSparse => block_sparse::run(&launch, job, out),
        }
    }
}

fn run_stage(
    stage: Stage,
    launch: &Launch,
    job: &mut Job<'_>,
    out: &mut Outputs,
) -> Result<(), Failure> {
    if stage == Stage::BlockPool {
        let starts = launch::sequence_starts(job);
        let mut codes = out.codes("pooled_k")?.clone();
        let mut scales = out.f32("pooled_scale")?.clone();
        let keys = (job.codes("k")?, job.f32("k_scale")?);
        block_pool::run(launch, keys, &starts, (&mut codes, &mut scales));
        *out.codes("pooled_k")? = codes;
        *out.f32("pooled_scale")? = scales;
        return Ok(());
    }
    let rows = Rows::of(job)?;
    match stage {
        Stage::Quantize | Stage::BlockPool => {}
        Stage::BlockScores => {
            let queries = (job.codes("q")?, job.f32("weights")?);
            let pooled = (job.codes("pooled_k")?, job.f32("pooled_scale")?);
            block_scores::run(launch, queries, pooled, &rows, out.f32("block_scores")?);
        }
        Stage::BlockMask => {
            block_mask::run(
                launch,
                job.f32("block_scores")?,
                &rows,
                out.f32("block_mask")?,
            );
        }
        Stage::BlockTopk => {
            let masked = job.f32("block_mask")?;
            block_topk::run(launch, masked, &rows, launch.kept, out.i32("block_ids")?);
        }
        Stage::TokenScores => {
            let queries = (job.codes("q")?, job.f32("weights")?);
            let keys = (job.codes("k")?, job.f32("k_scale")?);
            let ids = job.i32("block_ids")?;
            token_scores::run(launch, queries, keys, ids, &rows, out.f32("token_scores")?);
        }
        Stage::TokenTopk => {
            let (scores, ids) = (job.f32("token_scores")?, job.i32("block_ids")?);
            let mut slots = out.i32("slots")?.clone();
            token_topk::run(launch, scores, ids, &rows, &mut slots, &mut out.workspace);
            *out.i32("slots")? = slots;
        }
        Stage::IndexMap => {
            let (slots, ids) = (job.i32("slots")?, job.i32("block_ids")?);
            index_map::run(launch, slots, ids, &rows, out.i32("indices")?);
            if launch.is(Fault::MapInPlace)
                && let Some(slots) = job.tensors.i32_mut("slots")
            {
                *slots = out.i32("indices")?.clone();
            }
        }
    }
    Ok(())
}
