//! The lines of the protocol, version 1 (`docs/PROTOCOL.md`): what is written, and what is read
//! strictly.

use super::process::shown;
use crate::backend::{Fill, Job};
use crate::case::{WindowSource, WindowSpec};
use crate::op::Op;
use crate::save::{format_word, overflow_word};
use hisa_ref::Strictness;
use serde::{Deserialize, Serialize};

/// The version of the protocol.
pub const VERSION: u64 = 1;
/// The first line.
pub(super) const HELLO: &[u8] = b"{\"hello\":1}\n";
/// Longest reason that is kept, in characters.
const WHY_MAX: usize = 2000;

/// One case, as a request names it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Case {
    pub(super) stage: &'static str,
    pub(super) params: Params,
    #[serde(rename = "in")]
    pub(super) input: String,
    #[serde(rename = "out")]
    pub(super) output: String,
    pub(super) fill: &'static str,
}

/// Parameters; what a job does not have is left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct Params {
    block_size: usize,
    block_topk: usize,
    topk_tokens: usize,
    rank: String,
    strict: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    scale_format: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overflow: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces: Option<Vec<usize>>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    windows: Option<WindowParams>,
}

/// What `windows` needs besides offsets.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
struct WindowParams {
    /// M, padding rows included.
    rows: usize,
    /// N.
    keys: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_stride: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_positions: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cp_rank: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cp_ranks: Option<usize>,
}

impl Params {
    pub(super) fn of(job: &Job<'_>) -> Self {
        let quantizes = job.op == Op::Stage(hisa_ref::Stage::Quantize);
        let strictness = match quantizes {
            true => job.quantize.strictness,
            false => job.strictness,
        };
        Self {
            block_size: job.params.block_size(),
            block_topk: job.params.block_topk(),
            topk_tokens: job.params.topk_tokens(),
            rank: job.params.rank().to_string(),
            strict: strictness == Strictness::Strict,
            scale_format: quantizes.then(|| format_word(job.quantize.format)),
            overflow: quantizes.then(|| overflow_word(job.quantize.overflow)),
            pieces: (job.op == Op::Append).then(|| job.pieces.to_vec()),
            windows: job
                .spec
                .filter(|_| job.op == Op::Windows)
                .map(|spec| WindowParams::of(spec, job.m, job.n)),
        }
    }

    /// The same as strings, for the metadata of a file: a list has dots between its entries.
    pub(super) fn metadata(&self) -> Vec<(String, String)> {
        let Ok(serde_json::Value::Object(all)) = serde_json::to_value(self) else {
            return Vec::new();
        };
        let text = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(list) => {
                let entries: Vec<String> = list.iter().map(ToString::to_string).collect();
                entries.join(".")
            }
            other => other.to_string(),
        };
        all.iter()
            .map(|(key, value)| (key.clone(), text(value)))
            .collect()
    }
}

impl WindowParams {
    fn of(spec: &WindowSpec, rows: usize, keys: usize) -> Self {
        let (kv_stride, first_positions) = match &spec.source {
            WindowSource::Strided {
                stride,
                first_positions,
                ..
            } => (
                Some(*stride),
                Some(first_positions.clone()).filter(|list| !list.is_empty()),
            ),
            _ => (None, None),
        };
        Self {
            rows,
            keys,
            kv_stride,
            first_positions,
            cp_rank: spec.shard.map(|shard| shard.rank),
            cp_ranks: spec.shard.map(|shard| shard.ranks),
        }
    }
}

/// The word of a request.
pub(super) const fn fill_word(fill: Fill) -> &'static str {
    match fill {
        Fill::Zeros => "zeros",
        Fill::Ones => "ones",
    }
}

/// A request about one case, or about several: they are answered in the same form.
pub(super) fn request(id: u64, cases: &[Case]) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct One<'a> {
        id: u64,
        #[serde(flatten)]
        case: &'a Case,
    }
    #[derive(Serialize)]
    struct List<'a> {
        id: u64,
        cases: &'a [Case],
    }
    let mut line = match cases {
        [case] => serde_json::to_vec(&One { id, case })?,
        _ => serde_json::to_vec(&List { id, cases })?,
    };
    line.push(b'\n');
    Ok(line)
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    Unsupported(String),
    Refused(String),
    Error(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    id: u64,
    status: Option<String>,
    why: Option<String>,
    cases: Option<Vec<CaseReply>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseReply {
    status: String,
    why: Option<String>,
}

/// The statuses in the reply to request `id` about `count` cases.
///
/// # Errors
/// What is wrong with the line.
pub(super) fn reply(line: &[u8], id: u64, count: usize) -> Result<Vec<Status>, String> {
    let reply: Reply = serde_json::from_slice(line)
        .map_err(|error| format!("{} is no reply: {}", shown(line), place(&error)))?;
    if reply.id != id {
        return Err(format!(
            "a reply to request {} where {id} is asked",
            reply.id
        ));
    }
    let Reply {
        status, why, cases, ..
    } = reply;
    match (status, cases) {
        (Some(status), None) if count == 1 => Ok(vec![read(&status, why)?]),
        (None, Some(cases)) if count > 1 && why.is_none() => {
            if cases.len() != count {
                return Err(format!("{} statuses for {count} cases", cases.len()));
            }
            let each = cases.into_iter();
            each.map(|case| read(&case.status, case.why)).collect()
        }
        _ if count == 1 => Err("a reply to one case holds status and no cases".to_owned()),
        _ => Err("a reply to a list holds cases, and neither status nor why".to_owned()),
    }
}

/// An error of the reader without its type's preamble.
pub(super) fn place(error: &serde_json::Error) -> String {
    error.to_string()
}

fn read(status: &str, why: Option<String>) -> Result<Status, String> {
    let why = || -> Result<String, String> {
        let why = why.ok_or_else(|| format!("status {status:?} without a why"))?;
        Ok(why.chars().take(WHY_MAX).collect())
    };
    match status {
        "ok" => Ok(Status::Ok),
        "unsupported" => Ok(Status::Unsupported(why()?)),
        "refused" => Ok(Status::Refused(why()?)),
        "error" => Ok(Status::Error(why()?)),
        _ => Err(format!(
            "status {status:?}; known are ok, unsupported, refused, error"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Params as JSON, of a job on a small case with strided keys.
    fn params(op: Op) -> serde_json::Value {
        use crate::backend::Buffers;
        use crate::case::{Case as Generated, WindowSource};
        let source = WindowSource::Strided {
            q: vec![0, 6],
            k: None,
            stride: 2,
            first_positions: vec![3],
        };
        let case = Generated::with_windows(6, 3, source.into());
        let problem = crate::problem::Problem::new(&case).unwrap();
        let job = Job::new(op, &problem, &Buffers::default()).unwrap();
        serde_json::to_value(Params::of(&job)).unwrap()
    }

    #[test]
    fn every_job_has_its_parameters_and_no_others() {
        let common = serde_json::json!({
            "block_size": 4, "block_topk": 2, "topk_tokens": 4, "rank": "bf16", "strict": true
        });
        assert_eq!(params(Op::Dsa), common);
        let with = |more: serde_json::Value| {
            let mut all = common.clone();
            let more = more.as_object().unwrap().clone();
            all.as_object_mut().unwrap().extend(more);
            all
        };
        // Generated rows hold what they like, whatever the other tensors hold.
        let quantize = params(Op::Stage(hisa_ref::Stage::Quantize));
        let expected = serde_json::json!({
            "strict": false, "scale_format": "f32", "overflow": "saturating"
        });
        assert_eq!(quantize, with(expected));
        let expected = serde_json::json!({
            "rows": 6, "keys": 3, "kv_stride": 2, "first_positions": [3]
        });
        assert_eq!(params(Op::Windows), with(expected));
        assert_eq!(
            params(Op::Append),
            with(serde_json::json!({"pieces": [0, 3, 0, 3]}))
        );
    }

    fn of(line: &str, count: usize) -> Result<Vec<Status>, String> {
        reply(line.as_bytes(), 7, count)
    }

    #[test]
    fn replies_are_read() {
        assert_eq!(of(r#"{"id":7,"status":"ok"}"#, 1), Ok(vec![Status::Ok]));
        let error = of(r#" {"status":"error","why":"no memory","id":7}"#, 1);
        assert_eq!(error, Ok(vec![Status::Error("no memory".into())]));
        let list = r#"{"id":7,"cases":[{"status":"refused","why":"x"},{"status":"ok"}]}"#;
        assert_eq!(
            of(list, 2),
            Ok(vec![Status::Refused("x".into()), Status::Ok])
        );
    }

    #[test]
    fn what_is_no_reply_is_refused_with_its_reason() {
        for (line, count, reason) in [
            ("", 1, "\"\" is no reply"),
            ("hello", 1, "\"hello\" is no reply"),
            ("[]", 1, "is no reply"),
            (r#"{"status":"ok"}"#, 1, "missing field `id`"),
            (r#"{"id":7}"#, 1, "holds status"),
            (r#"{"id":8,"status":"ok"}"#, 1, "request 8 where 7"),
            (r#"{"id":"7","status":"ok"}"#, 1, "invalid type"),
            (r#"{"id":7,"id":7,"status":"ok"}"#, 1, "duplicate field"),
            (r#"{"id":7,"status":"ok","wy":""}"#, 1, "unknown field `wy`"),
            (r#"{"id":7,"status":"done"}"#, 1, "status \"done\""),
            (r#"{"id":7,"status":"error"}"#, 1, "without a why"),
            (r#"{"id":7,"status":"ok"} {}"#, 1, "trailing"),
            (r#"{"id":7,"cases":[{"status":"ok"}]}"#, 1, "holds status"),
            (
                r#"{"id":7,"cases":[{"status":"ok"}]}"#,
                2,
                "1 statuses for 2 cases",
            ),
            (r#"{"id":7,"status":"ok"}"#, 2, "holds cases"),
        ] {
            let error = of(line, count).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
