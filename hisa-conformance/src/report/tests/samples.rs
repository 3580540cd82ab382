//! Reports of every kind a run can end in.

use crate::backend::reference::Reference;
use crate::backend::{Backend, Capabilities, Failure, Job, Outputs, basis_of};
use crate::case::Case;
use crate::check::{CHECKS, Detail, position};
use crate::measure::SHARES;
use crate::op::Op;
use crate::problem::Problem;
use crate::report::portrait::portrait;
use crate::report::{Report, RunInfo, SelfTest, SelfTestRow};
use crate::summary::{Finding, Shrunk, Source, Summary, Tally};
use crate::trial::Trial;
use crate::truth::Truth;
use crate::worker::judge::judge_all;
use hisa_ref::Stage;

/// Something no page, document or terminal may take literally.
pub(super) const HOSTILE: &str = "<script>alert('x')</script> & \"]]>\u{1b}[31m\n\u{202e}\u{fffe}";

const CASE: &str = "hisa:M=1,N=8192,H=1,D=16,B=128,m=64,K=2048,rank=bf16/win=0:8192/\
                    q=e0,k=e0,s=prog:3f900000u400x8192,w=first,x=normal/seed=0x1";

pub(super) fn info(backend: &str) -> RunInfo {
    RunInfo {
        backend: backend.to_owned(),
        basis: "reference".to_owned(),
        arithmetic: "exact".to_owned(),
        seed: "0x48495341".to_owned(),
        effort: "quick".to_owned(),
        elapsed: 9.87,
        jobs: 2,
        date: "2026-01-31 17:05:00".to_owned(),
        ..RunInfo::default()
    }
}

/// A report whose version does not change with the crate's.
fn report(info: RunInfo, summary: Summary, self_test: Option<SelfTest>) -> Report {
    let mut report = Report::new(info, &Op::ALL, summary, Vec::new(), self_test);
    report.version = "1.2.3".to_owned();
    report
}

fn passing() -> Summary {
    let tally = |check: usize| Tally {
        passed: 12_010 - check as u64,
        not_applicable: check as u64,
        ..Tally::default()
    };
    let mut summary = Summary {
        tallies: (0..CHECKS.len()).map(tally).collect(),
        ..Summary::default()
    };
    for (name, count) in [("edge", 429), ("exhaustive", 1573), ("ragged", 10_000)] {
        summary.cases.insert(name.to_owned(), count);
    }
    let histogram = summary.measures.of(Op::Dsa, "flat_scores");
    (histogram.values, histogram.ulps) = (123_456, vec![123_456]);
    summary
}

pub(super) fn clean() -> Report {
    report(info("reference"), passing(), None)
}

fn finding(id: &str, case: &str, detail: Detail) -> Finding {
    Finding {
        check: position(id).unwrap(),
        source: Source {
            generator: "edge".to_owned(),
            index: 0,
        },
        case: case.to_owned(),
        flags: Vec::new(),
        detail,
        shrunk: None,
        saved: None,
        expected: None,
    }
}

/// A wrong selection, shrunk; a known finding; a skipped job; a check nothing exercised.
pub(super) fn findings() -> Report {
    let mut summary = passing();
    let detail = |at: &str, expected: &str, got: &str| Detail {
        at: at.to_owned(),
        expected: expected.to_owned(),
        got: got.to_owned(),
        ..Detail::default()
    };
    let mut wrong = finding(
        "token_topk.selection",
        CASE,
        detail("slots[0, 0]", "2048 ids", "2048 ids"),
    );
    wrong.shrunk = Some(Shrunk {
        case: "hisa:M=1,N=4,H=1,D=8,B=4,m=1,K=1/win=0:4/q=e0,k=e0,s=e0,w=first/seed=0x1".to_owned(),
        sizes: [1, 4, 1, 8],
        detail: Detail {
            more: 2,
            cause: Some("ties go to the higher slot".to_owned()),
            ..detail("slots[0, 0]", "1 ids, 0 among them", "1 ids, instead 3")
        },
        runs: 31,
    });
    let mut known = finding(
        "token_scores.scores",
        "dump/in.safetensors",
        Detail {
            bound: Some("0x1p-20, 3.1 times that far off".to_owned()),
            ..detail(
                "token_scores[2, 5]",
                "1.5e0 = 0x1.8p0 (0x3fc00000)",
                "1.25e0 = 0x1.4p0 (0x3fa00000)",
            )
        },
    );
    known.expected = Some("weights are cut to bf16 (issue 12)".to_owned());
    known.saved = Some("findings/0001.safetensors".to_owned());
    for (id, failed) in [("token_topk.selection", 1913), ("token_scores.scores", 1)] {
        let tally = &mut summary.tallies[position(id).unwrap()];
        (tally.passed, tally.failed) = (tally.passed - failed, failed);
    }
    for (check, tally) in CHECKS.iter().zip(&mut summary.tallies) {
        if check.op == Op::Append {
            *tally = Tally {
                skipped: 12_010,
                ..Tally::default()
            };
        }
    }
    let skip = "append: append is not offered".to_owned();
    summary.skips.insert(skip, 72_060);
    summary.tallies[position("hisa.nest").unwrap()].passed = 0;
    summary.tallies[position("token_scores.scores").unwrap()].expected = 1;
    summary.findings = vec![wrong, known];
    (summary.findings_total, summary.expected_total) = (1914, 1);
    let mut info = info("my port's kernel");
    info.stopped = Some("interrupted".to_owned());
    report(info, summary, None)
}

/// A backend with rounding, within its bounds but for one value.
pub(super) fn bounded() -> Report {
    let mut summary = passing();
    summary.measures = Default::default();
    for (job, tensor, most) in [
        (Stage::BlockScores, "block_scores", 0.42),
        (Stage::TokenScores, "token_scores", f64::INFINITY),
    ] {
        let histogram = summary.measures.of(Op::Stage(job), tensor);
        histogram.ulps = vec![81_234_567, 9_120_345, 512_003, 40_021, 977, 12];
        histogram.shares = vec![90_000_001, 812_345, 90_210, 4_101, 32];
        if most > 1.0 {
            histogram.ulps.resize(33, 0);
            histogram.ulps[32] = 3;
            histogram.shares.resize(SHARES + 1, 0);
            histogram.shares[SHARES] = 3;
        }
        histogram.ulps_max = if most > 1.0 { u64::from(u32::MAX) } else { 29 };
        histogram.values = histogram.ulps.iter().sum();
        histogram.share_max = most;
    }
    let mut info = info("cuda:sm90");
    info.arithmetic = "f32 in any order, exact dots".to_owned();
    info.shard = Some("2/8".to_owned());
    report(info, summary, None)
}

/// 90 faults, one of them missed and one caught by another check.
pub(super) fn self_test() -> Report {
    let row = |at: usize| {
        let check = &CHECKS[at % CHECKS.len()];
        SelfTestRow {
            fault: format!("{}-fault-{at}", check.name),
            kind: 1 + at as u32 % 17,
            about: format!("{} departs from {} in one place", check.op, check.clause),
            meant: check.id(),
            caught_by: Some(check.id()),
            cases: 1 + (at * at) as u64,
            shrunk_sizes: Some([1, 4 + at, 1, 8]),
            shrunk_case: Some(CASE.to_owned()),
        }
    };
    let mut rows: Vec<SelfTestRow> = (0..90).map(row).collect();
    (rows[7].caught_by, rows[7].shrunk_sizes) = (None, None);
    rows[7].shrunk_case = None;
    rows[9].caught_by = Some("hisa.runs".to_owned());
    let self_test = SelfTest {
        rows,
        canary_noticed: true,
        copy_passed: true,
        elapsed: 41.5,
    };
    report(info("mutants"), Summary::default(), Some(self_test))
}

/// Every text of the report is [`HOSTILE`].
pub(super) fn hostile() -> Report {
    let mut report = findings();
    let text = || HOSTILE.to_owned();
    let run = &mut report.run;
    for field in [
        &mut run.backend,
        &mut run.basis,
        &mut run.arithmetic,
        &mut run.seed,
        &mut run.effort,
        &mut run.date,
    ] {
        *field = text();
    }
    (run.shard, run.stopped) = (Some(text()), Some(text()));
    report.summary.skips.insert(text(), 7);
    report.summary.cases.insert(text(), 7);
    for finding in &mut report.summary.findings {
        let detail = &mut finding.detail;
        (detail.at, detail.expected, detail.got) = (text(), text(), text());
        (detail.bound, detail.cause) = (Some(text()), Some(text()));
        (finding.saved, finding.case) = (Some(text()), text());
        if let Some(shrunk) = &mut finding.shrunk {
            (shrunk.detail, shrunk.case) = (finding.detail.clone(), text());
        }
    }
    report.reasons.push(text());
    let histogram = report.summary.measures.0["dsa.flat_scores"].clone();
    report.summary.measures.0.insert(text(), histogram);
    let mut self_test = self_test().self_test.unwrap();
    self_test.rows.truncate(3);
    for row in &mut self_test.rows {
        (row.fault, row.about, row.meant) = (text(), text(), text());
        (row.caught_by, row.shrunk_case) = (Some(format!("{HOSTILE}!")), Some(text()));
    }
    report.self_test = Some(self_test);
    report.portrait = faulty().portrait;
    if let Some(portrait) = &mut report.portrait {
        portrait.check = text();
    }
    report
}

/// The reference with an error of one in its mask, and a tail of ids moved by one.
pub(super) struct Faulty(pub(super) Reference);

impl Backend for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        self.0.run(job, out)?;
        let windows = job.windows.rows();
        if let Ok(scores) = out.f32("flat_scores") {
            let columns = scores.columns();
            for (row, window) in windows.iter().enumerate().skip(100) {
                if let Some(key) = window.keys().next_back().filter(|key| key % 3 > 0) {
                    scores.body_mut()[row * columns + key] = f32::NEG_INFINITY;
                }
            }
        }
        if job.op == Op::Dsa {
            let indices = out.i32("indices")?;
            let columns = indices.columns();
            for (row, window) in windows.iter().enumerate().skip(100) {
                for id in &mut indices.body_mut()[row * columns..(row + 1) * columns] {
                    if *id > 100 && (*id as usize) < window.len() - 1 {
                        *id += 1;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A case of 200 rows and 300 keys; the first sequence has 100 rows of them.
pub(super) fn faulty_problem() -> (Case, Problem) {
    let mut case = Case::with_cu(&[0, 60, 300]);
    (case.h, case.seed, case.topk_tokens, case.block_topk) = (2, 4, 24, 9);
    let problem = Problem::new(&case).unwrap();
    (case, problem)
}

/// A real run of a faulty backend on one case, with pictures.
pub(super) fn faulty() -> Report {
    let (case, problem) = faulty_problem();
    let (mut backend, mut basis) = (Faulty(Reference::new()), basis_of("faulty"));
    let mut summary = Summary::default();
    let source = Source {
        generator: "edge".to_owned(),
        index: 17,
    };
    let address = case.to_string();
    let named = (&source, address.as_str());
    judge_all(&problem, named, &mut backend, basis.as_mut(), &mut summary);
    let truth = Truth::new(&problem, basis.as_mut());
    let mut trial = Trial::new(&problem, &truth, &mut backend);
    let pictures = portrait(&mut trial, summary.findings[0].check);
    let mut report = report(info("faulty"), summary, None);
    report.portrait = pictures;
    report
}

pub(super) fn all() -> Vec<(&'static str, Report)> {
    vec![
        ("clean", clean()),
        ("findings", findings()),
        ("bounded", bounded()),
        ("self-test", self_test()),
        ("hostile", hostile()),
        ("faulty", faulty()),
    ]
}
