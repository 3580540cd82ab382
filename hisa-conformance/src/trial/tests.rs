use super::together::RELATED_BYTES_MAX;
use super::*;
use crate::backend::Call;
use crate::backend::mutant::{self, MUTANTS};
use crate::backend::reference::Reference;
use crate::case::Case;
use crate::check::{CHECKS, Group, position};
use crate::flags::Flags;
use crate::selftest::cases;
use crate::summary::{Source, Summary};
use crate::worker::judge::{Exhibit, Terms, judge_by};

type Damage = fn(&Job<'_>, &mut Outputs);

/// A backend which counts how it is called.
struct Counted {
    inner: Box<dyn Backend>,
    gathers: bool,
    panics_together: bool,
    together: usize,
    alone: usize,
    /// Runs after every job.
    damage: Damage,
}

impl Counted {
    fn new(inner: Box<dyn Backend>, gathers: bool) -> Self {
        Self {
            inner,
            gathers,
            panics_together: false,
            together: 0,
            alone: 0,
            damage: |_, _| {},
        }
    }

    fn right(gathers: bool) -> Self {
        Self::new(Box::new(Reference::new()), gathers)
    }

    fn one(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        self.inner.run(job, out)?;
        (self.damage)(job, out);
        Ok(())
    }
}

impl Backend for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        self.alone += 1;
        self.one(job, out)
    }

    fn gathers(&self) -> bool {
        self.gathers
    }

    fn run_all(&mut self, calls: &mut [Call<'_>]) -> Vec<Result<(), Failure>> {
        assert!(!self.panics_together, "all lost");
        self.together += calls.len();
        let one = |call: &mut Call<'_>| self.one(&mut call.job, &mut call.out);
        calls.iter_mut().map(one).collect()
    }
}

/// Two heads, so that every relation applies.
fn problem(cu: &[i64]) -> Problem {
    let mut case = Case::with_cu(cu);
    case.h = 2;
    Problem::new(&case).unwrap()
}

/// All that the checks of `ops` find.
fn judged(backend: &mut Counted, problem: &Problem, ops: &[Op]) -> Summary {
    let truth = Truth::of_ops(problem, &mut Reference::new(), ops);
    let exhibit = Exhibit {
        problem,
        source: &Source {
            generator: "test".to_owned(),
            index: 0,
        },
        case: "",
        flags: &|| Flags::NONE,
    };
    let terms = Terms {
        together: true,
        ..Terms::of(ops)
    };
    let mut summary = Summary::default();
    judge_by(&exhibit, &truth, backend, &terms, &mut summary);
    summary
}

const SMALL: [i64; 3] = [0, 2, 5];
/// Two runs of every job.
const TWICE: usize = 2 * Op::ALL.len();
/// Scores by stage 1 and 2, `hisa` 9, `dsa` 4, `block_sparse` 2.
const RELATED: usize = 1 + 2 + 9 + 4 + 2;

#[test]
fn planned_jobs_run_together_and_only_once() {
    let (mut backend, problem) = (Counted::right(true), problem(&SMALL));
    let truth = Truth::of_ops(&problem, &mut Reference::new(), &Op::ALL);
    let mut trial = Trial::new(&problem, &truth, &mut backend);
    trial.plan(&Op::ALL);
    for check in CHECKS {
        let verdict = (check.judge)(&mut trial, check.op);
        assert!(
            check.group != Group::Relations || verdict == Verdict::Pass,
            "{check:?}: {verdict:?}"
        );
        assert!(!matches!(verdict, Verdict::Fail(_)), "{check:?}");
    }
    assert!(trial.gathered.is_empty(), "answers are dropped once taken");
    assert_eq!((backend.together, backend.alone), (TWICE + RELATED, 0));
}

#[test]
fn what_was_not_planned_runs_alone() {
    let (mut backend, problem) = (Counted::right(true), problem(&SMALL));
    judged(&mut backend, &problem, &[Op::BlockSparse]);
    assert_eq!((backend.together, backend.alone), (2 + 2, 0));
    // `equal-flat` of `dsa` looks at `hisa` as well.
    let mut backend = Counted::right(true);
    judged(&mut backend, &problem, &[Op::Dsa]);
    assert_eq!((backend.together, backend.alone), (2 + 4, 1));
}

#[test]
fn a_second_run_that_differs_is_noticed_and_told_apart() {
    let (mut backend, problem) = (Counted::right(true), problem(&SMALL));
    backend.damage = |job, out| {
        if job.op == Op::Dsa && out.workspace[0] != 0 {
            out.i32("indices").unwrap().body_mut()[0] += 1;
        }
    };
    let truth = Truth::of_ops(&problem, &mut Reference::new(), &Op::ALL);
    let mut trial = Trial::new(&problem, &truth, &mut backend);
    trial.plan(&[Op::Dsa]);
    trial.first(Op::Dsa).unwrap();
    let twice = trial.twice(Op::Dsa);
    assert!(twice.stale.is_some() && twice.repeat.is_none());
    assert_eq!((backend.together, backend.alone), (2 + 4, 1));
}

#[test]
fn large_related_problems_run_one_by_one() {
    let large = problem(&[0, 600]);
    assert!(4 * 4 * large.m() * large.n() > RELATED_BYTES_MAX);
    let mut backend = Counted::right(true);
    let summary = judged(&mut backend, &large, &Op::ALL);
    assert_eq!(summary.findings, []);
    assert_eq!((backend.together, backend.alone), (TWICE, RELATED));
}

#[test]
fn after_a_panic_every_job_runs_alone() {
    let (mut backend, problem) = (Counted::right(true), problem(&SMALL));
    backend.panics_together = true;
    let summary = judged(&mut backend, &problem, &Op::ALL);
    assert_eq!(summary.findings, []);
    assert_eq!((backend.together, backend.alone), (0, TWICE + RELATED));
}

/// `split` stops at the first half, which has two rows; all together the second runs as well.
#[test]
fn without_gathering_nothing_runs_before_a_check_asks() {
    let problem = problem(&SMALL);
    let wrong_on_half: Damage = |job, out| {
        if job.op == Op::Hisa && job.m == 2 {
            out.i32("indices").unwrap().body_mut()[0] += 1;
        }
    };
    let counts = [false, true].map(|gathers| {
        let mut backend = Counted::right(gathers);
        backend.damage = wrong_on_half;
        let summary = judged(&mut backend, &problem, &Op::ALL);
        let found = summary.findings.iter();
        let found: Vec<_> = found.map(|found| CHECKS[found.check].id()).collect();
        assert_eq!(found, ["hisa.split"]);
        (backend.together, backend.alone)
    });
    assert_eq!(counts, [(0, TWICE + RELATED - 1), (TWICE + RELATED, 0)]);
}

/// Faults that relations catch, and others of the same jobs that live on state between calls.
#[test]
fn findings_are_the_same_together_and_alone() {
    let cases: Vec<_> = cases().take(120).collect();
    let of_relation = |mutant: &&mutant::Mutant| {
        let check = position(mutant.caught_by).map(|check| &CHECKS[check]);
        check.is_some_and(|check| check.relate.is_some())
    };
    let caught: Vec<_> = MUTANTS.iter().filter(of_relation).collect();
    assert!(caught.len() >= 4, "{} mutants", caught.len());
    for mutant in caught {
        let mut found = false;
        for (_, case) in &cases {
            let problem = Problem::new(case).unwrap();
            let findings = [false, true].map(|gathers| {
                let inner = mutant::by_name(mutant.name).unwrap();
                let mut backend = Counted::new(inner, gathers);
                let summary = judged(&mut backend, &problem, &[mutant.op]);
                assert_eq!(backend.together > 0, gathers, "{case}");
                (summary.findings, summary.tallies, summary.skips)
            });
            assert_eq!(findings[0], findings[1], "{} on {case}", mutant.name);
            let ids = findings[0].0.iter().map(|found| CHECKS[found.check].id());
            found |= ids.into_iter().any(|id| id == mutant.caught_by);
        }
        assert!(found, "{}", mutant.name);
    }
}
