//! Backends that die, to test what supervises them: the reference, except where N leaves 3 when
//! divided by 31 and the job is `token_topk`.

use super::reference::Reference;
use super::{Backend, Call, Capabilities, Failure, Job, Outputs};
use crate::op::Op;
use hisa_ref::Stage;
use std::time::Duration;

/// The job they go wrong in.
pub const OP: Op = Op::Stage(Stage::TokenTopk);

/// Whether they go wrong on a case of `n` keys.
#[must_use]
pub const fn strikes(n: usize) -> bool {
    n % 31 == 3
}

/// A way to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Abort,
    Exit,
    Hang,
    Lost,
    /// As `Lost`, with jobs that run together.
    LostTogether,
    Panic,
    Slow,
}

/// The reference with one way to go wrong.
#[derive(Debug)]
pub struct Saboteur {
    name: &'static str,
    way: Way,
    inner: Reference,
    lost: bool,
}

impl Saboteur {
    /// The one of this name, behind `saboteur:`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let (name, way) = match name {
            "abort" => ("saboteur:abort", Way::Abort),
            "exit" => ("saboteur:exit", Way::Exit),
            "hang" => ("saboteur:hang", Way::Hang),
            "lost" => ("saboteur:lost", Way::Lost),
            "lost-together" => ("saboteur:lost-together", Way::LostTogether),
            "panic" => ("saboteur:panic", Way::Panic),
            "slow" => ("saboteur:slow", Way::Slow),
            _ => return None,
        };
        Some(Self {
            name,
            way,
            inner: Reference::new(),
            lost: false,
        })
    }
}

impl Backend for Saboteur {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        if self.lost && job.op != OP {
            return Err(Failure::Unsupported("not run: lost".to_owned()));
        }
        if self.lost || job.op == OP && strikes(job.n) {
            match self.way {
                Way::Abort => std::process::abort(),
                Way::Exit => std::process::exit(3),
                Way::Hang => loop {
                    std::thread::sleep(Duration::from_secs(1));
                },
                Way::Lost | Way::LostTogether => {
                    self.lost = true;
                    return Err(Failure::Error("lost".to_owned()));
                }
                Way::Panic => panic!("sabotage"),
                Way::Slow => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        self.inner.run(job, out)
    }

    fn gathers(&self) -> bool {
        self.way == Way::LostTogether
    }

    fn run_all(&mut self, calls: &mut [Call<'_>]) -> Vec<Result<(), Failure>> {
        let one = |call: &mut Call<'_>| self.run(&mut call.job, &mut call.out);
        let results: Vec<_> = calls.iter_mut().map(one).collect();
        // What was lost on the way cannot be told apart afterwards.
        let all_lost = || Err(Failure::Error("lost, together".to_owned()));
        match self.lost {
            true => calls.iter().map(|_| all_lost()).collect(),
            false => results,
        }
    }

    fn broken(&self) -> Option<String> {
        self.lost.then(|| format!("{}: lost", self.name))
    }
}
