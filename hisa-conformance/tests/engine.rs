//! The run engine: one summary whatever the division of work, and backends that die.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_conformance::backend::saboteur;
use hisa_conformance::check::CHECKS;
use hisa_conformance::effort::Effort;
use hisa_conformance::expect::{self, Expectation};
use hisa_conformance::generate::ragged::random_case;
use hisa_conformance::op::Op;
use hisa_conformance::runner::{
    self, CRASHES_MAX, Judge, Launcher, Nobody, Observer, Plan, RunError, RunOutcome, Shard, Suite,
    runs_check,
};
use hisa_conformance::subject::Subject;
use hisa_conformance::summary::{Finding, Summary, Tally};
use std::time::{Duration, Instant};

const HISA: &str = env!("CARGO_BIN_EXE_hisa");

/// The first seed with two or three struck cases among the first 50.
fn seed() -> u64 {
    let struck = |seed: &u64| {
        let sizes = (0..50).map(|index| random_case(*seed, index).n);
        sizes.filter(|&n| saboteur::strikes(n)).count()
    };
    (1..).find(|seed| (2..=3).contains(&struck(seed))).unwrap()
}

fn random(backend: &str, cases: u64) -> Plan {
    Plan {
        suite: Suite::Random,
        seed: seed(),
        cases: Some(cases),
        jobs: Some(2),
        program: Some(HISA.into()),
        ..Plan::new(backend, Effort::Quick)
    }
}

fn run(plan: &Plan) -> RunOutcome {
    watched(plan, &mut Nobody)
}

/// A run whose record of lost workers goes with the test.
fn watched(plan: &Plan, observer: &mut dyn Observer) -> RunOutcome {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan {
        state: Some(folder.path().join("state")),
        ..plan.clone()
    };
    runner::run(&plan, observer).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_summary_however_the_work_is_divided() {
    let plan = random("saboteur:panic", 150);
    let here = runner::run_here(&plan).unwrap();
    assert!(
        here.summary.findings_total > 2,
        "a summary without findings proves little"
    );
    assert_eq!(here.summary.total_cases(), 150);
    for (jobs, batch_max) in [(1, 64), (3, 7), (2, 1)] {
        let divided = Plan {
            jobs: Some(jobs),
            batch_max,
            ..plan.clone()
        };
        assert_eq!(
            run(&divided),
            here,
            "{jobs} workers, batches of {batch_max}"
        );
    }
}

#[test]
fn shards_add_up_to_the_whole() {
    let plan = random("saboteur:panic", 120);
    let whole = run(&plan).summary;
    let mut sum = Summary::default();
    for index in 0..3 {
        let shard = Plan {
            shard: Shard { index, of: 3 },
            ..plan.clone()
        };
        let part = run(&shard);
        assert_eq!(part.promised, 40);
        assert!(
            part.summary
                .findings
                .iter()
                .all(|found| found.source.index % 3 == index)
        );
        sum.merge(part.summary, usize::MAX);
    }
    sum.findings
        .sort_by_key(|found| (found.source.index, found.check));
    assert_eq!(sum, whole);
}

/// The random cases on which a saboteur strikes.
fn struck(plan: &Plan) -> Vec<u64> {
    let cases = 0..plan.cases.unwrap();
    cases
        .filter(|&index| saboteur::strikes(random_case(plan.seed, index).n))
        .collect()
}

/// The findings are exactly those of the job that was sabotaged, on exactly the cases that were;
/// every other case is judged as the reference is.
fn assert_charged(plan: &Plan, report: &RunOutcome, got: &str) {
    let struck = struck(plan);
    assert!(struck.len() > 1, "{struck:?}");
    let findings = &report.summary.findings;
    let places: Vec<u64> = findings.iter().map(|found| found.source.index).collect();
    assert_eq!(places, struck);
    for found in findings {
        assert_eq!(found.check, runs_check(saboteur::OP));
        assert_eq!(
            found.case,
            random_case(plan.seed, found.source.index).to_string()
        );
        assert!(found.detail.got.contains(got), "{:?}", found.detail);
        assert_eq!(found.detail.cause, None);
    }
    assert_eq!(report.summary.findings_total, struck.len() as u64);
    assert_eq!(report.summary.total_cases(), plan.promised());
    // The same cases without those that were struck, on the reference.
    let mut others = Summary::default();
    let mut from = 0;
    for end in struck.iter().copied().chain([plan.promised()]) {
        others.merge(reference_cases(plan.seed, from, end), 0);
        from = end + 1;
    }
    let mut left = report.summary.clone();
    left.tallies[runs_check(saboteur::OP)].failed -= struck.len() as u64;
    assert_eq!(left.tallies, others.tallies);
    assert_eq!(left.measures, others.measures);
}

/// Random cases `from..end` on the reference, judged as a saboteur is, by the reference.
fn reference_cases(seed: u64, from: u64, end: u64) -> Summary {
    use hisa_conformance::worker::{Batch, Config, Worker};
    let batch = Batch {
        generator: "ragged".into(),
        seed,
        count: end,
        first: from,
        stride: 1,
        len: end.saturating_sub(from),
    };
    // Slow, but sound.
    let config = Config::new("saboteur:slow", &Op::ALL, 0);
    let mut worker = Worker::new(&config).unwrap();
    worker.batch(&batch, &mut |_| {}).unwrap()
}

#[test]
fn an_abort_is_charged_to_its_case_and_job() {
    let plan = random("saboteur:abort", 80);
    let report = run(&plan);
    assert!(report.deaths >= 2 * struck(&plan).len() as u64);
    assert_charged(&plan, &report, "signal: 6");
    let other = Plan {
        batch_max: 5,
        jobs: Some(1),
        ..plan
    };
    assert_eq!(run(&other).summary, report.summary);
}

#[test]
fn an_exit_is_charged_to_its_case_and_job() {
    let plan = random("saboteur:exit", 80);
    assert_charged(&plan, &run(&plan), "exit status: 3");
}

#[test]
fn a_hang_is_charged_to_its_case_and_job() {
    let plan = Plan {
        time_limit: Duration::from_secs(3),
        ..random("saboteur:hang", 50)
    };
    assert_charged(&plan, &run(&plan), "no end within 3s");
}

#[test]
fn a_backend_that_breaks_for_good_costs_its_case_and_no_other() {
    let plan = random("saboteur:lost", 80);
    let (struck, report) = (struck(&plan), run(&plan));
    assert!(struck.len() > 1, "{struck:?}");
    assert_eq!(report.deaths, struck.len() as u64);
    assert_eq!(report.summary.total_cases(), plan.promised());
    let findings = &report.summary.findings;
    let places: Vec<u64> = findings.iter().map(|found| found.source.index).collect();
    assert_eq!(places, struck);
    for found in findings {
        assert_eq!(found.check, runs_check(saboteur::OP));
        assert!(found.detail.got.contains("lost"), "{:?}", found.detail);
    }
    assert_eq!(report.summary.findings_total, struck.len() as u64);
    // Jobs behind the one that broke the backend are left out, in that case alone.
    let later = &report.summary.tallies[runs_check(Op::BlockSparse)];
    assert_eq!(later.skipped, struck.len() as u64);
    assert_eq!(later.passed, plan.promised() - later.skipped);
    let other = Plan {
        batch_max: 5,
        jobs: Some(1),
        ..plan
    };
    assert_eq!(run(&other).summary, report.summary);
}

#[test]
fn a_backend_that_breaks_among_jobs_run_together_is_charged_to_the_one() {
    let plan = random("saboteur:lost-together", 80);
    let (apart, together) = (run(&random("saboteur:lost", 80)), run(&plan));
    let of = |report: &RunOutcome| {
        let places = |found: &Finding| (found.source.index, found.check, found.detail.got.clone());
        let findings = report.summary.findings.iter();
        findings.map(places).collect::<Vec<_>>()
    };
    assert!(of(&apart).len() > 1);
    assert_eq!(of(&together), of(&apart));
    assert_eq!(together.summary.tallies, apart.summary.tallies);
    // Each case takes two workers: one that does not know which job it was, and one that does.
    assert_eq!(together.deaths, 2 * apart.deaths);
}

#[test]
fn a_panic_costs_no_worker() {
    let plan = random("saboteur:panic", 80);
    let report = run(&plan);
    assert_eq!(report.deaths, 0);
    let failed = |tally: &Tally| tally.failed > 0;
    let checks: Vec<usize> = (0..CHECKS.len())
        .filter(|&check| failed(&report.summary.tallies[check]))
        .collect();
    assert_eq!(checks, [runs_check(saboteur::OP)]);
    assert!(report.summary.findings[0].detail.got.contains("sabotage"));
}

#[test]
fn a_known_crash_is_a_known_finding() {
    let row = |check: &str| Expectation {
        backend: "saboteur:abort".to_owned(),
        check: check.to_owned(),
        flag: None,
        reason: "it aborts".to_owned(),
        link: "https://example.org/1".to_owned(),
    };
    let plan = Plan {
        expectations: vec![row("token_topk.runs"), row("token_topk.shape")],
        ..random("saboteur:abort", 50)
    };
    let summary = run(&plan).summary;
    let struck = struck(&plan).len() as u64;
    assert_eq!(
        (summary.findings_total, summary.expected_total),
        (struck, struck)
    );
    assert_eq!(
        summary.expected.get(&plan.expectations[0].key()),
        Some(&struck)
    );
    let unmet = expect::unmet(&plan.expectations, &plan.backend, &summary);
    assert_eq!(unmet, [&plan.expectations[1]]);
    let flags = |finding: &Finding| !finding.flags.is_empty();
    assert!(
        summary.findings.iter().all(flags),
        "why the case is interesting"
    );
}

#[test]
fn a_backend_that_dies_everywhere_ends_the_run() {
    let plan = Plan {
        ops: vec![saboteur::OP],
        findings_max: 3,
        ..random("saboteur:exit", 2000)
    };
    let report = run(&plan);
    assert!(report.stopped.is_some());
    assert_eq!(report.summary.findings_total, CRASHES_MAX);
    assert_eq!(report.summary.findings.len(), 3);
    // It ends with the case that was one too many, whatever the division of work.
    let last = struck(&plan)[CRASHES_MAX as usize - 1];
    assert_eq!(report.summary.total_cases(), last + 1);
    assert!(
        report
            .complaints()
            .iter()
            .any(|why| why.contains("stopped early"))
    );
}

#[test]
fn unknown_names_end_the_run_with_their_reason() {
    let error = runner::run(&random("nobody", 10), &mut Nobody).unwrap_err();
    assert!(
        matches!(&error, RunError::Refused { why } if why.contains("\"nobody\"")),
        "{error}"
    );
    let absent = Plan {
        program: Some("/nowhere/hisa".into()),
        ..random("reference", 10)
    };
    let error = runner::run(&absent, &mut Nobody).unwrap_err();
    assert!(matches!(error, RunError::Program { .. }), "{error}");
}

#[test]
fn findings_pass_by_the_observer_in_order_before_they_are_reported() {
    struct Saver(Vec<u64>);
    impl Observer for Saver {
        fn on_finding(&mut self, found: &mut Finding, judge: &mut Judge) -> Result<(), RunError> {
            self.0.push(found.source.index);
            let failing = judge.failing(&found.case.parse().unwrap())?;
            assert_eq!(failing, [(found.check, found.detail.clone())]);
            found.saved = Some(format!("case-{}", found.source.index));
            Ok(())
        }
    }
    let plan = random("saboteur:abort", 80);
    let mut saver = Saver(Vec::new());
    let report = watched(&plan, &mut saver);
    assert_eq!(saver.0, struck(&plan));
    assert!(
        report
            .summary
            .findings
            .iter()
            .all(|found| found.saved.is_some())
    );
}

#[test]
fn a_judge_goes_on_after_a_crash_and_a_bad_subject() {
    let launcher = Launcher::new(Some(HISA.as_ref()), Duration::from_secs(60)).unwrap();
    let plan = random("saboteur:abort", 80);
    let mut judge = Judge::new(launcher, &plan.config());
    let struck = struck(&plan)[0];
    let address = |index| Subject::Case(Box::new(random_case(plan.seed, index)));
    assert_eq!(judge.failing(&address(struck + 1)).unwrap(), []);
    let failing = judge.failing(&address(struck)).unwrap();
    assert_eq!(failing[0].0, runs_check(saboteur::OP));
    let error = judge
        .failing(&Subject::File("/no/such.safetensors".into()))
        .unwrap_err();
    assert!(matches!(error, RunError::Refused { .. }), "{error}");
    let absent = judge.failing(&Subject::File("/nowhere.safetensors".into()));
    assert!(
        matches!(absent, Err(RunError::Refused { .. })),
        "{absent:?}"
    );
    assert_eq!(judge.failing(&address(struck + 1)).unwrap(), []);
    judge.set_ops(&[Op::Dsa]);
    assert_eq!(judge.failing(&address(struck)).unwrap(), []);
}

/// What needs /proc to look at other processes.
#[cfg(target_os = "linux")]
mod processes {
    use super::*;
    use std::process::{Child, Command, Output, Stdio};

    /// Living processes whose parent is `parent`.
    fn children(parent: u32) -> Vec<u32> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().map_while(Result::ok) {
            let name = entry.file_name().to_string_lossy().parse::<u32>();
            let (Ok(pid), Ok(stat)) = (name, std::fs::read_to_string(entry.path().join("stat")))
            else {
                continue;
            };
            // "PID (NAME) STATE PARENT ...", and a name may hold anything.
            let rest = stat.rsplit_once(')').unwrap().1;
            let mut fields = rest.split_whitespace();
            let (state, of) = (fields.next().unwrap(), fields.next().unwrap());
            if of == parent.to_string() && state != "Z" {
                found.push(pid);
            }
        }
        found
    }

    fn is_alive(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next());
        state.is_some_and(|state| state != 'Z')
    }

    fn kill(signal: &str, pid: u32) {
        let status = Command::new("kill")
            .args([signal, &pid.to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    fn wait_for(what: &str, condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < Duration::from_secs(120), "no {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn fuzz(backend: &str, extra: &[&str], state: &std::path::Path) -> Child {
        let mut command = Command::new(HISA);
        let seed = seed().to_string();
        command.args(["fuzz", "--jobs", "2", "--seed", &seed, "--backend", backend]);
        command.args(extra).arg("--state").arg(state);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Two workers, both in the middle of a batch.
    fn workers(parent: u32, state: &std::path::Path) -> Vec<u32> {
        let journals = || std::fs::read_dir(state).map_or(0, Iterator::count);
        wait_for("workers at work", || {
            children(parent).len() == 2 && journals() == 2
        });
        std::thread::sleep(Duration::from_millis(300));
        children(parent)
    }

    fn text(output: Output) -> (String, String) {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    }

    #[test]
    fn a_worker_killed_from_outside_costs_no_case() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let parent = fuzz("saboteur:slow", &["--cases", "1500"], &state);
        let workers = workers(parent.id(), &state);
        kill("-9", workers[0]);
        let output = parent.wait_with_output().unwrap();
        let status = output.status;
        let (stdout, stderr) = text(output);
        assert!(
            stdout.contains("clean: 1500 cases, 0 findings"),
            "{stdout}\n{stderr}"
        );
        assert!(status.success(), "{stdout}\n{stderr}");
        assert!(stderr.contains("workers were lost"), "{stderr}");
        assert!(
            state.join("worker-0.json").exists(),
            "the record of a lost worker is kept"
        );
    }

    #[test]
    fn a_parent_that_is_killed_or_interrupted_leaves_no_orphan() {
        for signal in ["-9", "-2", "-15"] {
            let folder = tempfile::tempdir().unwrap();
            let state = folder.path().join("state");
            let limits = ["--minutes", "10", "--time-limit", "600"];
            let mut parent = fuzz("saboteur:hang", &limits, &state);
            let workers = workers(parent.id(), &state);
            kill(signal, parent.id());
            parent.wait().unwrap();
            wait_for("end of the workers", || {
                !workers.iter().any(|&pid| is_alive(pid))
            });
            assert_eq!(
                state.exists(),
                signal == "-9",
                "the record after kill {signal}"
            );
        }
    }
}
