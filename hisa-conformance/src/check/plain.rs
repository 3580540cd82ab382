//! The checks of every job: it runs, writes what it should and nothing else, every time alike.

use super::{Detail, Verdict};
use crate::backend::{Buffer, Buffers, Failure, Kind};
use crate::op::Op;
use crate::problem::Problem;
use crate::trial::Trial;
use hisa_ref::Stage;

/// Unpacks a result, or returns its verdict from the check.
macro_rules! some {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(verdict) => return verdict,
        }
    };
}
pub(super) use some;

pub(super) fn runs(trial: &mut Trial<'_>, op: Op) -> Verdict {
    match &some!(trial.first(op)).outputs {
        Ok(_) => Verdict::Pass,
        Err(failure) => Verdict::Fail(Box::new(Detail {
            at: "the call".to_owned(),
            expected: "a result".to_owned(),
            got: failure.to_string(),
            stderr: failure.stderr().to_vec(),
            ..Detail::default()
        })),
    }
}

/// The types and shapes of all outputs. Everything later relies on them.
pub(super) fn shape(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let problem = trial.problem;
    let outputs = some!(trial.written(op));
    match misshapen(op, problem, outputs) {
        Some(detail) => Verdict::Fail(Box::new(detail)),
        None => Verdict::Pass,
    }
}

/// The first output of another type or shape than its job gives it.
pub(crate) fn misshapen(op: Op, problem: &Problem, outputs: &Buffers) -> Option<Detail> {
    op.outputs().iter().find_map(|&name| {
        let (kind, shape) = (Kind::of_output(name), problem.output_shape(op, name)?);
        let got = outputs.get(name);
        let same = |got: &Buffer| got.kind() == kind && got.shape() == shape;
        (!got.is_some_and(same)).then(|| Detail {
            at: name.to_owned(),
            expected: format!("{} {shape:?}", kind.name()),
            got: got.map_or_else(|| "nothing".to_owned(), describe),
            ..Detail::default()
        })
    })
}

fn describe(buffer: &Buffer) -> String {
    format!("{} {:?}", buffer.kind().name(), buffer.shape())
}

pub(super) fn repeat(trial: &mut Trial<'_>, op: Op) -> Verdict {
    some!(trial.outputs(op));
    verdict_of_change(
        trial.twice(op).repeat.clone(),
        "the first run",
        "the second run",
    )
}

pub(super) fn stale(trial: &mut Trial<'_>, op: Op) -> Verdict {
    some!(trial.outputs(op));
    let old = "with outputs and workspace holding 0";
    verdict_of_change(trial.twice(op).stale.clone(), old, "holding 0x7fffffff")
}

/// The first element of any output with other bits than in the first run. Block scores outside
/// the block window are not specified (SPEC 3.2) and may change.
pub(crate) fn change(
    op: Op,
    problem: &Problem,
    first: &Buffers,
    later: &Result<Buffers, Failure>,
) -> Option<Change> {
    let (windows, b) = (problem.inputs.windows.rows(), problem.b());
    let columns = problem.blocks().max(1);
    let specified = |at: usize| {
        let window = windows.get(at / columns);
        op != Op::Stage(Stage::BlockScores)
            || window.is_some_and(|window| window.blocks(b).contains(&(at % columns)))
    };
    let later = match later {
        Ok(later) => later,
        Err(failure) => return Some(("the call".into(), "a result".into(), failure.to_string())),
    };
    first.iter().find_map(|(name, buffer)| {
        let Some(other) = later.get(name) else {
            return Some((name.to_owned(), "a tensor".to_owned(), "none".to_owned()));
        };
        let at = buffer.first_changed(other, specified)?;
        Some((
            place(name, buffer.shape(), at),
            buffer.show(at),
            other.show(at),
        ))
    })
}

/// A place, and what two runs wrote there.
pub(crate) type Change = (String, String, String);

fn verdict_of_change(change: Option<Change>, before: &str, after: &str) -> Verdict {
    let Some((at, expected, got)) = change else {
        return Verdict::Pass;
    };
    Verdict::Fail(Box::new(Detail {
        at,
        expected: format!("{expected} ({before})"),
        got: format!("{got} ({after})"),
        ..Detail::default()
    }))
}

/// Nothing can be said of memory that is not seen.
const OWN_MEMORY: &str = "the memory it works in is its own";

pub(super) fn guard(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let own_memory = trial.capabilities().own_memory;
    let outputs = some!(trial.outputs(op));
    if own_memory {
        return Verdict::Skip(OWN_MEMORY.to_owned());
    }
    let damaged = outputs
        .iter()
        .find_map(|(name, buffer)| Some((name, buffer.damaged_guard()?)));
    let Some((name, at)) = damaged else {
        return Verdict::Pass;
    };
    let (side, distance) = match at {
        ..0 => ("before", -at),
        _ => ("after", at + 1),
    };
    Verdict::Fail(Box::new(Detail {
        at: format!("{name}, element {distance} {side} the tensor"),
        expected: "left alone".to_owned(),
        got: "written".to_owned(),
        ..Detail::default()
    }))
}

pub(super) fn inputs(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let own_memory = trial.capabilities().own_memory;
    let changed = some!(trial.first(op)).changed_input;
    if own_memory {
        return Verdict::Skip(OWN_MEMORY.to_owned());
    }
    let Some((name, at)) = changed else {
        return Verdict::Pass;
    };
    Verdict::Fail(Box::new(Detail {
        at: format!("{name}, element {at}"),
        expected: "unchanged".to_owned(),
        got: "changed".to_owned(),
        ..Detail::default()
    }))
}

/// `name[row, column]` of an element of a row-major tensor.
pub(super) fn place(name: &str, shape: &[usize], at: usize) -> String {
    let columns: usize = shape.iter().skip(1).product();
    if shape.len() < 2 {
        format!("{name}[{at}]")
    } else {
        let columns = columns.max(1);
        format!("{name}[{}, {}]", at / columns, at % columns)
    }
}
