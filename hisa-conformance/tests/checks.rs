//! Every check notices the fault it is named after, and is the first to notice it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_conformance::backend::reference::Reference;
use hisa_conformance::backend::{
    Backend, Buffer, Capabilities, Element, Failure, Guarded, Job, MARGIN, Outputs,
};
use hisa_conformance::case::Case;
use hisa_conformance::check::CHECKS;
use hisa_conformance::flags::Flags;
use hisa_conformance::op::Op;
use hisa_conformance::problem::Problem;
use hisa_conformance::summary::{Source, Summary};
use hisa_conformance::worker::judge::{Exhibit, Terms, judge};
use hisa_ref::{E4M3, Stage};
use std::collections::BTreeSet;

/// Runs after the reference: job, outputs, number of the call.
type Damage = fn(&mut Job<'_>, &mut Outputs, u64) -> Result<(), Failure>;

/// The reference, with one job's outputs damaged.
struct Damaged {
    inner: Reference,
    op: Op,
    damage: Damage,
    calls: u64,
    on_any_rows: bool,
    gathers: bool,
}

impl Backend for Damaged {
    fn name(&self) -> &'static str {
        "damaged"
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        self.inner.run(job, out)?;
        // Related problems with fewer rows have no row to damage.
        if job.op == self.op && (job.m == 24 || self.on_any_rows) {
            self.calls += 1;
            (self.damage)(job, out, self.calls)?;
        }
        Ok(())
    }

    fn gathers(&self) -> bool {
        self.gathers
    }
}

/// Two sequences of 9 and 15 keys: 24 rows in blocks of 4, some windows cut, two heads.
fn case() -> Case {
    let mut case = Case::with_cu(&[0, 9, 24]);
    (case.h, case.seed, case.topk_tokens, case.block_topk) = (2, 4, 5, 3);
    case
}

fn findings(op: Op, damage: Damage) -> Summary {
    findings_on(op, damage, (false, false))
}

fn findings_on(op: Op, damage: Damage, (on_any_rows, gathers): (bool, bool)) -> Summary {
    let problem = Problem::new(&case()).unwrap();
    let inner = Reference::new();
    let mut backend = Damaged {
        inner,
        op,
        damage,
        calls: 0,
        on_any_rows,
        gathers,
    };
    let exhibit = Exhibit {
        problem: &problem,
        source: &Source {
            generator: "test".into(),
            index: 0,
        },
        case: "case",
        flags: &|| Flags::NONE,
    };
    let terms = Terms {
        together: true,
        ..Terms::of(&Op::ALL)
    };
    let mut summary = Summary::default();
    let basis = &mut Reference::new();
    judge(&exhibit, &mut backend, basis, &terms, &mut summary);
    summary
}

fn first_finding(op: Op, damage: Damage) -> String {
    first_of(&findings(op, damage))
}

fn first_of(summary: &Summary) -> String {
    let first = summary.findings.first();
    first.map_or("nothing".to_owned(), |finding| CHECKS[finding.check].id())
}

/// Changes the first element of the first output.
fn change_first(out: &mut Outputs, op: Op, at: usize) {
    let name = op.outputs()[0];
    match out.tensors.remove(name).unwrap() {
        Buffer::Codes(mut codes) => {
            codes.body_mut()[at] = E4M3::from_bits(codes.body()[at].to_bits() ^ 0x11);
            out.tensors.put(name, Buffer::Codes(codes));
        }
        Buffer::F32(mut floats) => {
            floats.body_mut()[at] = f32::from_bits(floats.body()[at].to_bits() ^ 1);
            out.tensors.put(name, Buffer::F32(floats));
        }
        Buffer::I32(mut ids) => {
            ids.body_mut()[at] ^= 1;
            out.tensors.put(name, Buffer::I32(ids));
        }
    }
}

fn overrun<T: Element>(tensor: &mut Guarded<T>, value: T) {
    let end = tensor.arena().len() - MARGIN;
    tensor.arena_mut()[end] = value;
}

const ERROR: Damage = |_, _, _| Err(Failure::Error("device lost".into()));
const PANIC: Damage = |_, _, _| panic!("index out of bounds");
const SHAPE: Damage = |job, out, _| {
    let name = job.op.outputs()[0];
    out.tensors
        .put(name, Buffer::I32(Guarded::filled(&[1, 1, 1], 0)));
    Ok(())
};
const ABSENT: Damage = |job, out, _| {
    out.tensors.remove(job.op.outputs()[0]);
    Ok(())
};
const GUARD: Damage = |job, out, _| {
    match job.op.outputs()[0] {
        name @ ("codes" | "pooled_k") => overrun(out.codes(name)?, E4M3::ZERO),
        name @ ("ks" | "block_ids" | "slots" | "indices") => overrun(out.i32(name)?, 0),
        name => overrun(out.f32(name)?, 0.0),
    }
    Ok(())
};
const INPUTS: Damage = |job, _, _| {
    let names: Vec<&'static str> = job.tensors.iter().map(|(name, _)| name).collect();
    let Some(Buffer::F32(mut tensor)) = names.iter().find_map(|name| {
        matches!(job.tensors.get(name), Some(Buffer::F32(_))).then(|| job.tensors.remove(name))?
    }) else {
        // index_map reads ids alone.
        let mut ids = job.tensors.i32("slots").unwrap().clone();
        ids.body_mut()[0] = 77;
        job.tensors.put("slots", Buffer::I32(ids));
        return Ok(());
    };
    tensor.body_mut()[0] = f32::from_bits(tensor.body()[0].to_bits() ^ 1);
    let name = names
        .into_iter()
        .find(|name| job.tensors.get(name).is_none())
        .unwrap();
    job.tensors.put(name, Buffer::F32(tensor));
    Ok(())
};
const REPEAT: Damage = |job, out, calls| {
    // The first call is right, all later ones are not.
    if calls > 1 {
        change_first(out, job.op, 0);
    }
    Ok(())
};
const STALE: Damage = |job, out, _| {
    if out.workspace[0] != 0 {
        change_first(out, job.op, 0);
    }
    Ok(())
};

#[test]
fn the_checks_of_every_job_notice_their_fault() {
    let plain: [(&str, Damage); 8] = [
        ("runs", ERROR),
        ("runs", PANIC),
        ("shape", SHAPE),
        ("shape", ABSENT),
        ("repeat", REPEAT),
        ("guard", GUARD),
        ("inputs", INPUTS),
        ("stale", STALE),
    ];
    for op in Op::ALL {
        for (name, damage) in plain {
            let has_relations = CHECKS.iter().any(|check| {
                check.op == op && check.group == hisa_conformance::check::Group::Relations
            });
            if name == "repeat" && has_relations {
                continue; // a relation runs the job again, and notices first
            }
            if name == "inputs" && op.inputs().is_empty() {
                continue;
            }
            assert_eq!(first_finding(op, damage), format!("{op}.{name}"));
        }
    }
}

fn ids_mut<'a>(out: &'a mut Outputs, name: &str) -> &'a mut Guarded<i32> {
    out.tensors.i32_mut(name).unwrap()
}

/// Row `row` of `indices`, where the job is the first of its kind on the whole problem.
fn row_mut<'a>(out: &'a mut Outputs, name: &str, row: usize) -> &'a mut [i32] {
    let tensor = ids_mut(out, name);
    let columns = tensor.columns();
    &mut tensor.body_mut()[row * columns..(row + 1) * columns]
}

/// Row 8 sees all nine keys of the first sequence and has five ids.
const FULL: usize = 8;
/// Row 1 sees two keys.
const SHORT: usize = 1;

#[test]
fn the_checks_on_ids_notice_their_fault() {
    let topk = Op::Stage(Stage::TokenTopk);
    for (op, name) in [(topk, "slots"), (Op::Hisa, "indices"), (Op::Dsa, "indices")] {
        let cases: [(&str, Damage); 7] = [
            ("range", |job, out, _| {
                // BR-38: an id past every key is no padding.
                row_mut(out, last_output(job.op), SHORT)[2] = 2_147_480_000;
                Ok(())
            }),
            ("range", |job, out, _| {
                row_mut(out, last_output(job.op), FULL)[4] = -2;
                Ok(())
            }),
            ("tail", |job, out, _| {
                // BR-10: -1 before a valid id.
                row_mut(out, last_output(job.op), FULL)[1] = -1;
                Ok(())
            }),
            ("unique", |job, out, _| {
                // BR-36: the first id once more.
                let row = row_mut(out, last_output(job.op), SHORT);
                row[2] = row[0];
                Ok(())
            }),
            ("count", |job, out, _| {
                row_mut(out, last_output(job.op), FULL)[4] = -1;
                Ok(())
            }),
            ("selection", |job, out, _| {
                let name = last_output(job.op);
                let row = row_mut(out, name, FULL);
                let absent = (0..9).find(|id| !row.contains(id)).unwrap();
                row[2] = absent;
                Ok(())
            }),
            ("order", |job, out, _| {
                // BR-15: the right set in another order.
                row_mut(out, last_output(job.op), FULL).swap(0, 1);
                Ok(())
            }),
        ];
        for (check, damage) in cases {
            assert_eq!(first_finding(op, damage), format!("{op}.{check}"), "{name}");
        }
    }
}

const fn last_output(op: Op) -> &'static str {
    match op {
        Op::Stage(Stage::TokenTopk) => "slots",
        _ => "indices",
    }
}

/// What a check says is enough to act on.
#[test]
fn an_id_out_of_range_is_named_with_its_place_and_the_limit() {
    let summary = findings(Op::Hisa, |_, out, _| {
        row_mut(out, "indices", 3)[1] = 2_147_480_000;
        Ok(())
    });
    let detail = &summary.findings[0].detail;
    assert_eq!(detail.at, "indices[3, 1]");
    assert_eq!(detail.expected, "-1, or an id of at least 0 and below 4");
    assert_eq!(detail.got, "2147480000");
}

#[test]
fn the_checks_on_values_and_masks_notice_their_fault() {
    use Stage::{BlockMask, BlockScores, Quantize};
    let cases: [(Op, &str, Damage); 7] = [
        (Op::Windows, "values", |_, out, _| {
            ids_mut(out, "ke").body_mut()[3] -= 1;
            Ok(())
        }),
        (Op::Stage(Quantize), "values", |_, out, _| {
            out.f32("scale")?.body_mut()[2] *= 2.0;
            Ok(())
        }),
        (Op::Stage(Stage::BlockPool), "values", |job, out, _| {
            change_first(out, job.op, 5);
            Ok(())
        }),
        (Op::Append, "values", |job, out, _| {
            change_first(out, job.op, 5);
            Ok(())
        }),
        (Op::Stage(BlockScores), "scores", |_, out, _| {
            let scores = out.f32("block_scores")?;
            scores.body_mut()[0] = scores.body()[0].next_up();
            Ok(())
        }),
        (Op::Stage(BlockMask), "mask", |_, out, _| {
            out.f32("block_mask")?.body_mut()[0] = f32::MAX;
            Ok(())
        }),
        (Op::Stage(BlockMask), "values", |_, out, _| {
            // Block 1 of the three that row 8 sees.
            let masked = out.f32("block_mask")?;
            let at = FULL * masked.columns() + 1;
            masked.body_mut()[at] = masked.body()[at].next_up();
            Ok(())
        }),
    ];
    for (op, check, damage) in cases {
        assert_eq!(first_finding(op, damage), format!("{op}.{check}"));
    }
}

#[test]
fn the_checks_on_blocks_and_tokens_notice_their_fault() {
    use Stage::{BlockTopk, IndexMap, TokenScores};
    let cases: [(Op, &str, Damage); 8] = [
        (Op::Stage(BlockTopk), "range", |_, out, _| {
            row_mut(out, "block_ids", 0)[2] = 6;
            Ok(())
        }),
        (Op::Stage(BlockTopk), "unique", |_, out, _| {
            row_mut(out, "block_ids", FULL)[2] = 0;
            Ok(())
        }),
        (Op::Stage(BlockTopk), "forced", |_, out, _| {
            let row = row_mut(out, "block_ids", FULL);
            row[0] = -1;
            Ok(())
        }),
        (Op::Stage(BlockTopk), "selection", |_, out, _| {
            let row = row_mut(out, "block_ids", FULL);
            row[1] = -1;
            Ok(())
        }),
        (Op::Stage(TokenScores), "mask", |_, out, _| {
            // Row 0 sees key 0 alone; slot 1 is hidden from it. BR-27: a finite sentinel.
            out.f32("token_scores")?.body_mut()[1] = f32::MIN;
            Ok(())
        }),
        (Op::Stage(TokenScores), "scores", |job, out, _| {
            change_first(out, job.op, 0);
            Ok(())
        }),
        (Op::Stage(IndexMap), "range", |_, out, _| {
            row_mut(out, "indices", 12)[0] = 20;
            Ok(())
        }),
        (Op::Stage(IndexMap), "values", |_, out, _| {
            row_mut(out, "indices", FULL).swap(0, 1);
            Ok(())
        }),
    ];
    for (op, check, damage) in cases {
        assert_eq!(first_finding(op, damage), format!("{op}.{check}"));
    }
}

#[test]
fn the_checks_of_the_flat_and_the_block_indexer_notice_their_fault() {
    let cases: [(Op, &str, Damage); 6] = [
        (Op::Dsa, "mask", |_, out, _| {
            out.f32("flat_scores")?.body_mut()[1] = 0.0;
            Ok(())
        }),
        (Op::Dsa, "scores", |job, out, _| {
            change_first(out, job.op, 0);
            Ok(())
        }),
        (Op::BlockSparse, "range", |_, out, _| {
            row_mut(out, "indices", 0)[1] = 1;
            Ok(())
        }),
        (Op::BlockSparse, "tail", |_, out, _| {
            row_mut(out, "indices", FULL)[0] = -1;
            Ok(())
        }),
        (Op::BlockSparse, "unique", |_, out, _| {
            let row = row_mut(out, "indices", FULL);
            row[1] = row[0];
            Ok(())
        }),
        (Op::BlockSparse, "selection", |_, out, _| {
            let row = row_mut(out, "indices", FULL);
            let last = row.iter().rposition(|&id| id != -1).unwrap();
            row[last] = -1;
            Ok(())
        }),
    ];
    for (op, check, damage) in cases {
        assert_eq!(first_finding(op, damage), format!("{op}.{check}"));
    }
}

/// Relations see faults that need another problem to show: here the first run is always right.
#[test]
fn the_relations_notice_their_fault() {
    let cases: [(Op, &str, Damage); 15] = [
        (Op::Hisa, "window", |job, out, _| {
            wrong_if(job, out, nan_keys(job))
        }),
        (Op::Hisa, "split", |job, out, _| {
            wrong_if(job, out, job.m == 12)
        }),
        (Op::Hisa, "rows", |job, out, _| {
            wrong_if(job, out, reversed(job))
        }),
        (Op::Hisa, "neighbours", |job, out, _| {
            wrong_if(job, out, nan_queries(job))
        }),
        (Op::Hisa, "nest", |job, out, _| {
            wrong_if(job, out, job.params.topk_tokens() == 6)
        }),
        (Op::Hisa, "permute", |job, out, _| {
            wrong_if(job, out, first_weight_moved(job))
        }),
        (Op::Hisa, "scale", |job, out, _| {
            wrong_if(job, out, first_scale_moved(job))
        }),
        (Op::Hisa, "negate", |job, out, _| {
            wrong_if(job, out, negated(job))
        }),
        (Op::Dsa, "window", |job, out, _| {
            wrong_if(job, out, nan_keys(job))
        }),
        (Op::Dsa, "rows", |job, out, _| {
            wrong_if(job, out, reversed(job))
        }),
        (Op::Dsa, "nest", |job, out, _| {
            wrong_if(job, out, job.params.topk_tokens() == 6)
        }),
        (Op::Dsa, "negate", |job, out, _| {
            wrong_if(job, out, negated(job))
        }),
        (Op::BlockSparse, "rows", |job, out, _| {
            wrong_if(job, out, reversed(job))
        }),
        (Op::BlockSparse, "negate", |job, out, _| {
            wrong_if(job, out, negated(job))
        }),
        (Op::Stage(Stage::TokenScores), "scale", |job, out, _| {
            if first_scale_moved(job) {
                change_first(out, job.op, 0);
            }
            Ok(())
        }),
    ];
    for (op, check, damage) in cases {
        let [alone, together] = [false, true].map(|gathers| {
            let summary = findings_on(op, damage, (true, gathers));
            assert_eq!(first_of(&summary), format!("{op}.{check}"));
            (summary.findings, summary.tallies)
        });
        assert_eq!(together, alone, "{op}.{check}");
    }
}

#[test]
fn the_relations_of_scores_notice_their_fault() {
    for stage in [Stage::BlockScores, Stage::TokenScores] {
        let damage: Damage = |job, out, _| {
            if first_weight_moved(job) {
                change_first(out, job.op, 0);
            }
            Ok(())
        };
        let op = Op::Stage(stage);
        let [alone, together] = [false, true].map(|gathers| {
            let summary = findings_on(op, damage, (false, gathers));
            assert_eq!(first_of(&summary), format!("{op}.permute"));
            (summary.findings, summary.tallies)
        });
        assert_eq!(together, alone, "{op}.permute");
    }
}

/// `hisa` alone, where it differs from `dsa`, is seen by its own selection; a fault that both
/// share is not. Here `dsa` is right, and its agreement with `hisa` is what is checked.
#[test]
fn two_indexers_of_a_backend_are_held_to_each_other() {
    let damage: Damage = |_, out, _| {
        row_mut(out, "indices", SHORT).swap(0, 1);
        Ok(())
    };
    let summary = findings(Op::Dsa, damage);
    let ids: Vec<String> = summary
        .findings
        .iter()
        .map(|f| CHECKS[f.check].id())
        .collect();
    assert!(ids.contains(&"dsa.equal-flat".to_owned()), "{ids:?}");
}

fn wrong_if(job: &Job<'_>, out: &mut Outputs, wrong: bool) -> Result<(), Failure> {
    if wrong {
        let ids = out.i32("indices")?;
        let columns = ids.columns();
        for row in 0..job.m {
            let row = &mut ids.body_mut()[row * columns..(row + 1) * columns];
            if row[0] >= 0 {
                row[0] = -1;
            }
        }
    }
    Ok(())
}

fn reversed(job: &Job<'_>) -> bool {
    job.m == 24 && job.windows.rows()[0].len() > 1
}

fn nan_keys(job: &Job<'_>) -> bool {
    job.codes("k")
        .unwrap()
        .body()
        .iter()
        .any(|code| code.is_nan())
}

fn nan_queries(job: &Job<'_>) -> bool {
    job.codes("q")
        .unwrap()
        .body()
        .iter()
        .any(|code| code.is_nan())
}

fn original() -> Problem {
    Problem::new(&case()).unwrap()
}

fn first_weight_moved(job: &Job<'_>) -> bool {
    let weights = &original().inputs.tensors.weights;
    job.m == 24 && job.f32("weights").unwrap().body()[0] == weights[(0, 1)]
}

fn first_scale_moved(job: &Job<'_>) -> bool {
    let scale = original().inputs.tensors.k_scale[0];
    job.n == 24 && job.f32("k_scale").unwrap().body()[0] == 8.0 * scale
}

fn negated(job: &Job<'_>) -> bool {
    let code = original().inputs.tensors.k[(0, 0)].to_bits();
    job.n == 24 && job.codes("k").unwrap().body()[0].to_bits() == code ^ 0x80
}

/// This file has a fault for every check there is.
#[test]
fn no_check_goes_untested() {
    let text = include_str!("checks.rs");
    let names: BTreeSet<&str> = CHECKS.iter().map(|check| check.name).collect();
    for name in names {
        let quoted = format!("\"{name}\"");
        assert!(
            text.contains(&quoted) || text.contains(&format!(".{name}\"")),
            "no test damages what {name} looks at"
        );
    }
}
