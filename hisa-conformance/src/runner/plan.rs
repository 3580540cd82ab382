//! What a run is to do, cut into batches.

use crate::backend;
use crate::backend::port::{self, Setup};
use crate::effort::{DEFAULT_SEED, Effort, FINDINGS_MAX};
use crate::expect::Expectation;
use crate::generate::by_name;
use crate::op::Op;
use crate::worker::{Batch, Config};
use std::path::PathBuf;
use std::time::Duration;

/// Seconds a case may take where a run does not say.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Cases of a run without an end: years of work, and far from overflow.
pub const ENDLESS: u64 = 1 << 40;
/// Most shards: a position times this stays far from overflow.
pub const SHARDS_MAX: u64 = 1 << 16;
/// Most worker processes.
pub const JOBS_MAX: usize = 1024;

/// Which jobs of a backend are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Mode {
    /// Windows, stages and `append`, each fed with true inputs.
    Isolated,
    /// The indexers, end to end.
    Chained,
    /// All of them.
    #[default]
    Both,
}

impl Mode {
    /// The jobs of this mode; where `named` is not empty, only those in it.
    #[must_use]
    pub fn ops(self, named: &[Op]) -> Vec<Op> {
        let wanted = |op: &Op| {
            let in_mode = match self {
                Self::Isolated => !op.is_indexer(),
                Self::Chained => op.is_indexer(),
                Self::Both => true,
            };
            in_mode && (named.is_empty() || named.contains(op))
        };
        Op::ALL.into_iter().filter(wanted).collect()
    }
}

/// One of several parts of a run, each on a machine of its own: of every generator's cases, in
/// the order in which they are taken, those whose position leaves `index` when divided by `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Which part, from 0.
    pub index: u64,
    /// How many parts.
    pub of: u64,
}

impl Shard {
    /// Everything.
    pub const WHOLE: Self = Self { index: 0, of: 1 };
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(index, of)| {
            let (index, of) = (index.parse().ok()?, of.parse().ok()?);
            (index < of && of <= SHARDS_MAX).then_some(Self { index, of })
        });
        let wanted = format!("a shard is i/n, with i from 0 and below n, n up to {SHARDS_MAX}");
        parts.ok_or(wanted)
    }
}

/// Which generators a run takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// Edge, exhaustive, random and DeepSeek cases, as many as the effort says.
    All,
    /// Random cases only.
    Random,
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Name of the backend.
    pub backend: String,
    /// Seed of the random generators.
    pub seed: u64,
    /// Which generators.
    pub suite: Suite,
    /// Random cases; the effort's number where absent.
    pub cases: Option<u64>,
    /// How much of everything else.
    pub effort: Effort,
    /// Jobs to judge.
    pub ops: Vec<Op>,
    /// Known deviations.
    pub expectations: Vec<Expectation>,
    /// The part to do.
    pub shard: Shard,
    /// Worker processes; as many as suit machine and backend where absent.
    pub jobs: Option<usize>,
    /// How long a case may take.
    pub time_limit: Duration,
    /// How long a port may take to say hello.
    pub start_limit: Duration,
    /// After how long no further batch begins.
    pub duration: Option<Duration>,
    /// Most findings kept with their details; all are counted.
    pub findings_max: usize,
    /// Most cases of a batch; by default as many as suit the generator.
    pub batch_max: u64,
    /// The `hisa` program, whose `worker` command is run; this very program where absent. A
    /// program that is not `hisa` has to name it.
    pub program: Option<PathBuf>,
    /// Folder for the cases in flight; a temporary one where absent.
    pub state: Option<PathBuf>,
}

impl Plan {
    /// Everything an effort holds, on this backend.
    #[must_use]
    pub fn new(backend: &str, effort: Effort) -> Self {
        Self {
            backend: backend.to_owned(),
            seed: DEFAULT_SEED,
            suite: Suite::All,
            cases: None,
            effort,
            ops: Op::ALL.to_vec(),
            expectations: Vec::new(),
            shard: Shard::WHOLE,
            jobs: None,
            time_limit: TIME_LIMIT,
            start_limit: port::START_LIMIT,
            duration: None,
            findings_max: FINDINGS_MAX,
            batch_max: u64::MAX,
            program: None,
            state: None,
        }
    }

    /// What workers are told.
    #[must_use]
    pub fn config(&self) -> Config {
        Config {
            expectations: self.expectations.clone(),
            port: Setup {
                time_limit: self.time_limit,
                start_limit: self.start_limit,
                folder: None,
            },
            ..Config::new(&self.backend, &self.ops, self.findings_max)
        }
    }

    /// Worker processes, at least one.
    #[must_use]
    pub fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let suitable = || cores().min(backend::processes_max(&self.backend));
        self.jobs.unwrap_or_else(suitable).clamp(1, JOBS_MAX)
    }

    /// The cases of the shard, one entry per generator, each as one long batch.
    #[must_use]
    pub fn parts(&self) -> Vec<Batch> {
        let random = self.cases.unwrap_or(self.effort.ragged_cases());
        let all = [
            ("edge", 1, 0),
            ("corpus", 1, 0),
            ("exhaustive", self.effort.exhaustive_stride(), 0),
            ("ragged", 1, random),
            ("deepseek", 1, self.effort.deepseek_cases()),
        ];
        let taken = all
            .into_iter()
            .filter(|(name, ..)| self.suite == Suite::All || *name == "ragged");
        let part = |(name, stride, count): (&str, u64, u64)| {
            let cases = by_name(name, self.seed, count)?.len().div_ceil(stride);
            let Shard { index, of } = self.shard;
            Some(Batch {
                generator: name.to_owned(),
                seed: self.seed,
                count,
                first: index * stride,
                stride: of * stride,
                len: cases.saturating_sub(index).div_ceil(of),
            })
        };
        taken.filter_map(part).collect()
    }

    /// Cases the plan will run.
    #[must_use]
    pub fn promised(&self) -> u64 {
        self.parts().iter().map(|part| part.len).sum()
    }

    /// The parts in batches, in order.
    pub fn batches(&self) -> impl Iterator<Item = Batch> + use<> {
        let batch_max = self.batch_max.max(1);
        self.parts().into_iter().flat_map(move |part| {
            let len = batch_max.min(suitable(&part.generator));
            let starts = (0..part.len.div_ceil(len)).map(move |at| at * len);
            starts.map(move |from| part.part(from, len.min(part.len - from)))
        })
    }
}

/// Cases of a generator that take a fraction of a second: few enough that all workers end at
/// about the same time, many enough that handing them out costs nothing.
fn suitable(generator: &str) -> u64 {
    match generator {
        "ragged" | "exhaustive" => 128,
        "edge" | "corpus" => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn indices(plan: &Plan) -> Vec<(String, u64)> {
        let batches = plan.batches();
        let of = |batch: Batch| {
            let indices = batch.indices();
            indices.map(move |index| (batch.generator.clone(), index))
        };
        batches.flat_map(of).collect()
    }

    #[test]
    fn shards_are_disjoint_and_complete_whatever_the_batches() {
        let whole = Plan {
            cases: Some(130),
            ..Plan::new("reference", Effort::Quick)
        };
        let all = indices(&whole);
        assert_eq!(all.len() as u64, whole.promised());
        let expected: BTreeSet<_> = all.iter().cloned().collect();
        assert_eq!(expected.len(), all.len(), "a case is taken twice");
        for of in [2, 3, 7] {
            for batch_max in [1, 5, u64::MAX] {
                let mut joined = Vec::new();
                for index in 0..of {
                    let shard = Plan {
                        shard: Shard { index, of },
                        batch_max,
                        ..whole.clone()
                    };
                    let part = indices(&shard);
                    assert_eq!(part.len() as u64, shard.promised());
                    let ragged = part.iter().filter(|(name, _)| name == "ragged");
                    assert!(ragged.clone().count() > 0);
                    assert!(ragged.clone().all(|(_, case)| case % of == index));
                    joined.extend(part);
                }
                assert_eq!(joined.len(), all.len(), "{of} shards");
                assert_eq!(joined.into_iter().collect::<BTreeSet<_>>(), expected);
            }
        }
    }

    #[test]
    fn shards_are_read_as_they_are_written() {
        assert_eq!("2/5".parse(), Ok(Shard { index: 2, of: 5 }));
        for bad in ["", "1", "2/2", "-1/2", "0/0", "1/x", "0/65537"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }

    #[test]
    fn processes_that_share_a_gpu_are_few() {
        let workers = |backend: &str, jobs| {
            let plan = Plan::new(backend, Effort::Quick);
            Plan { jobs, ..plan }.workers()
        };
        assert!(workers("cuda", None) <= 4 && workers("cuda:exact", None) <= 4);
        assert_eq!(workers("cuda", Some(7)), 7);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(workers("reference", None), cores.min(JOBS_MAX));
    }

    #[test]
    fn modes_part_the_jobs() {
        let (isolated, chained) = (Mode::Isolated.ops(&[]), Mode::Chained.ops(&[]));
        assert_eq!(chained, [Op::Hisa, Op::Dsa, Op::BlockSparse]);
        assert_eq!([isolated, chained].concat().len(), Op::ALL.len());
        assert_eq!(Mode::Both.ops(&[Op::Dsa]), [Op::Dsa]);
        assert!(Mode::Isolated.ops(&[Op::Dsa]).is_empty());
    }
}
