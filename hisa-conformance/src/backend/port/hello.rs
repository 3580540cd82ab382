//! What a port says of itself, before anything else.

use super::process::shown;
use super::protocol::{VERSION, place};
use crate::backend::Capabilities;
use crate::backend::limits::Limits;
use crate::numerics::Numerics;
use crate::op::Op;
use serde::Deserialize;

/// Most cases of a request that a port may ask for.
pub const BATCH_MAX: usize = 1024;
/// Longest name of a port, in characters.
pub const NAME_MAX: usize = 64;

/// The first line of a port, understood.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hello {
    pub(super) name: String,
    pub(super) batch: usize,
    pub(super) capabilities: Capabilities,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(rename = "hello")]
    _version: u64,
    name: String,
    stages: Vec<String>,
    #[serde(default)]
    numerics: RawNumerics,
    #[serde(default)]
    limits: Limits,
    #[serde(default = "one")]
    batch: usize,
    #[serde(default = "yes")]
    permissive: bool,
    #[serde(default = "yes")]
    ordered: bool,
}

const fn one() -> usize {
    1
}

const fn yes() -> bool {
    true
}

/// Exact dots and f32 in any order, where nothing else is said.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawNumerics {
    quantize: String,
    block_pool: String,
    scores: String,
}

impl Default for RawNumerics {
    fn default() -> Self {
        Self {
            quantize: "f32".to_owned(),
            block_pool: "f32".to_owned(),
            scores: "bounded:exact".to_owned(),
        }
    }
}

impl RawNumerics {
    fn read(&self) -> Result<Numerics, String> {
        let stages = [
            ("quantize", &self.quantize),
            ("block_pool", &self.block_pool),
            ("scores", &self.scores),
        ];
        let mut said = Vec::new();
        for (stage, arithmetic) in stages {
            if arithmetic.contains([',', '=']) {
                return Err(format!(
                    "numerics: {stage} is {arithmetic:?}, which names no one"
                ));
            }
            if arithmetic != "exact" {
                said.push(format!("{stage}={arithmetic}"));
            }
        }
        if said.is_empty() {
            return Ok(Numerics::default());
        }
        said.join(",").parse().map_err(|error| format!("{error}"))
    }
}

impl Hello {
    /// Reads the line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(line: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            hello: Option<serde_json::Value>,
        }
        let no_hello = |why: String| format!("{} is no hello: {why}", shown(line));
        // Another version may have other fields; it is refused for what it is.
        let version: Version =
            serde_json::from_slice(line).map_err(|error| no_hello(place(&error)))?;
        match version.hello {
            None => return Err(no_hello("missing field `hello`".to_owned())),
            Some(version) if version != VERSION => {
                return Err(format!(
                    "it speaks version {version}, and this is {VERSION}"
                ));
            }
            Some(_) => {}
        }
        let raw: Raw = serde_json::from_slice(line).map_err(|error| no_hello(place(&error)))?;
        let length = raw.name.chars().count();
        let visible = |c: char| !c.is_control();
        if !(1..=NAME_MAX).contains(&length) || !raw.name.chars().all(visible) {
            return Err(format!(
                "its name is not 1 to {NAME_MAX} visible characters"
            ));
        }
        if !(1..=BATCH_MAX).contains(&raw.batch) {
            return Err(format!(
                "batch is {}; allowed are 1 to {BATCH_MAX}",
                raw.batch
            ));
        }
        raw.limits.check()?;
        Ok(Self {
            batch: raw.batch,
            capabilities: Capabilities {
                ops: stages(&raw.stages)?,
                limits: raw.limits,
                fits: true,
                own_memory: true,
                permissive: raw.permissive,
                ordered: raw.ordered,
                numerics: raw.numerics.read()?,
                ..Capabilities::all()
            },
            name: raw.name,
        })
    }
}

/// The jobs, in the order of [`Op::ALL`].
fn stages(names: &[String]) -> Result<Vec<Op>, String> {
    let mut ops = Vec::new();
    for name in names {
        let known = || Op::ALL.map(Op::name).join(", ");
        let op = Op::from_name(name).ok_or_else(|| {
            format!(
                "there is no stage {}; known are {}",
                shown(name.as_bytes()),
                known()
            )
        })?;
        if ops.contains(&op) {
            return Err(format!("stage {op} is named twice"));
        }
        ops.push(op);
    }
    if ops.is_empty() {
        return Err("it names no stage".to_owned());
    }
    ops.sort_by_key(|op| op.index());
    Ok(ops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::limits::Sizes;

    fn of(line: &str) -> Result<Hello, String> {
        Hello::read(line.as_bytes())
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let hello = of(r#"{"hello":1,"name":"p","stages":["dsa","block_pool"]}"#).unwrap();
        assert_eq!((hello.name.as_str(), hello.batch), ("p", 1));
        let capabilities = hello.capabilities;
        let names: Vec<&str> = capabilities.ops.iter().map(|op| op.name()).collect();
        assert_eq!(names, ["block_pool", "dsa"]);
        assert!(capabilities.permissive && capabilities.ordered && capabilities.own_memory);
        assert_eq!(
            capabilities.arithmetic(),
            "quantize=f32,block_pool=f32,scores=bounded:exact"
        );
        assert_eq!(capabilities.limits, Limits::default());
    }

    #[test]
    fn what_is_said_is_understood() {
        let hello = of(
            r#"{"hello":1,"name":"p","stages":["dsa"],"batch":1024,"permissive":false,
               "ordered":false,"numerics":{"scores":"exact","quantize":"exact"},
               "limits":{"H":[32,64],"N":4096,"m":8,"D_multiple":16}}"#,
        );
        let Hello {
            batch,
            capabilities,
            ..
        } = hello.unwrap();
        assert_eq!(batch, 1024);
        assert!(!capabilities.permissive && !capabilities.ordered);
        assert_eq!(capabilities.arithmetic(), "block_pool=f32");
        let limits = capabilities.limits;
        assert_eq!(limits.heads, Sizes::Only(vec![32, 64]));
        assert_eq!(
            (limits.keys, limits.blocks),
            (Sizes::Max(4096), Sizes::Max(8))
        );
        assert_eq!((limits.rows, limits.dims_multiple), (Sizes::Any, 16));
    }

    #[test]
    fn what_is_no_hello_is_refused_by_name() {
        let with = |more: &str| format!(r#"{{"hello":1,"name":"p","stages":["dsa"]{more}}}"#);
        for (line, reason) in [
            ("", "is no hello"),
            ("ready", "\"ready\" is no hello"),
            ("{}", "missing field `hello`"),
            (r#"{"hello":2,"name":"p","stages":[]}"#, "version 2"),
            (r#"{"hello":"1","name":"p","stages":[]}"#, "version \"1\""),
            (r#"{"hello":1,"stages":["dsa"]}"#, "missing field `name`"),
            (r#"{"hello":1,"name":"","stages":["dsa"]}"#, "its name"),
            (r#"{"hello":1,"name":"a\nb","stages":["dsa"]}"#, "its name"),
            (r#"{"hello":1,"name":"p","stages":[]}"#, "no stage"),
            (
                r#"{"hello":1,"name":"p","stages":["topk"]}"#,
                "no stage \"topk\"",
            ),
            (
                r#"{"hello":1,"name":"p","stages":["dsa","dsa"]}"#,
                "dsa is named twice",
            ),
            (&with(r#","batch":0"#), "batch is 0"),
            (&with(r#","batch":1025"#), "batch is 1025"),
            (&with(r#","limts":{}"#), "unknown field `limts`"),
            (&with(r#","limits":{"h":3}"#), "unknown field `h`"),
            (&with(r#","limits":{"H":0}"#), "H"),
            (&with(r#","limits":{"H":[]}"#), "H"),
            (
                &with(r#","limits":{"D":[8],"D_multiple":16}"#),
                "no D allowed",
            ),
            (&with(r#","numerics":{"scores":"fast"}"#), "fast"),
            (
                &with(r#","numerics":{"quantize":"f32,scores=bounded:exact"}"#),
                "names no one",
            ),
        ] {
            let error = of(line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
