//! One example block: its fields, checked against what its stage knows.

use crate::calls::Call;
use crate::tensor::{Kind, Tensor, to_code, to_i32};
use hisa_ref::{CuSeqlens, E4M3, Result, Strictness, Windows};
use ndarray::{Array1, Array2, Array3};
use serde_json::{Map, Value};

const COMMON: [&str; 6] = ["name", "clause", "stage", "params", "expect", "error"];
const WINDOW_FIELDS: [&str; 6] = [
    "cu_seqlens",
    "cu_seqlens_q",
    "cu_seqlens_k",
    "ks",
    "ke",
    "n",
];

/// A parsed block.
pub(crate) struct Example {
    fields: Map<String, Value>,
    params: Map<String, Value>,
}

impl Example {
    /// Panics with what is wrong with the block.
    pub(crate) fn parse(text: &str) -> Self {
        let fields: Map<String, Value> = serde_json::from_str(text)
            .unwrap_or_else(|error| panic!("an example does not parse: {error}\n{text}"));
        let params = match fields.get("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params.clone(),
            Some(other) => panic!("params is {other}"),
        };
        let example = Self { fields, params };
        example.check_fields();
        example
    }

    fn check_fields(&self) {
        let (name, call) = (self.name(), Call::named(self));
        for field in self.fields.keys() {
            let field = field.as_str();
            let window = call.windows && WINDOW_FIELDS.contains(&field);
            let known = COMMON.contains(&field) || call.inputs.contains(&field) || window;
            assert!(known, "{name}: unknown key {field}");
        }
        for param in self.params.keys() {
            assert!(
                call.params.contains(&param.as_str()),
                "{name}: unknown parameter {param}"
            );
        }
        for input in call.inputs {
            assert!(self.fields.contains_key(*input), "{name}: no {input}");
        }
        let expectations = ["expect", "error"].map(|key| self.fields.contains_key(key));
        assert!(
            expectations[0] != expectations[1],
            "{name}: needs either expect or error"
        );
        assert!(
            self.error().is_some() || !self.expected_names().is_empty(),
            "{name}: no output"
        );
        assert!(self.error() != Some(""), "{name}: an empty error");
    }

    fn word(&self, key: &str) -> &str {
        match self.fields.get(key) {
            Some(Value::String(word)) => word,
            other => panic!("{key} of an example is {other:?}"),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.word("name")
    }

    pub(crate) fn clause(&self) -> &str {
        self.word("clause")
    }

    pub(crate) fn stage(&self) -> &str {
        self.word("stage")
    }

    /// A part of the message the call must be refused with.
    pub(crate) fn error(&self) -> Option<&str> {
        self.fields.get("error").map(|_| self.word("error"))
    }

    /// Names of the expected outputs.
    pub(crate) fn expected_names(&self) -> Vec<&str> {
        let expect = self.fields.get("expect").and_then(Value::as_object);
        expect
            .map(|expect| expect.keys().map(String::as_str).collect())
            .unwrap_or_default()
    }

    /// One expected output.
    pub(crate) fn expected(&self, name: &str, kind: Kind) -> Tensor {
        self.read(&self.fields["expect"][name], name, kind)
    }

    fn read(&self, value: &Value, name: &str, kind: Kind) -> Tensor {
        Tensor::parse(value, kind)
            .unwrap_or_else(|error| panic!("{}: {name}: {error}", self.name()))
    }

    /// One input.
    pub(crate) fn tensor(&self, name: &str, kind: Kind) -> Tensor {
        self.read(&self.fields[name], name, kind)
    }

    pub(crate) fn codes_vector(&self, name: &str) -> Array1<E4M3> {
        self.tensor(name, Kind::Code).vector(to_code)
    }

    /// Codes of two dimensions; where there is no key, `q` tells D.
    pub(crate) fn codes_matrix(&self, name: &str) -> Array2<E4M3> {
        let d = match self.fields.get("q") {
            Some(_) => self.tensor("q", Kind::Code).shape()[2],
            None => 0,
        };
        self.tensor(name, Kind::Code).matrix(d, to_code)
    }

    pub(crate) fn codes_cube(&self, name: &str) -> Array3<E4M3> {
        self.tensor(name, Kind::Code).cube(to_code)
    }

    pub(crate) fn f32_vector(&self, name: &str) -> Array1<f32> {
        self.tensor(name, Kind::F32).vector(f32::from_bits)
    }

    pub(crate) fn f32_matrix(&self, name: &str) -> Array2<f32> {
        self.tensor(name, Kind::F32).matrix(0, f32::from_bits)
    }

    pub(crate) fn i32_matrix(&self, name: &str) -> Array2<i32> {
        self.tensor(name, Kind::I32).matrix(0, to_i32)
    }

    fn integers(&self, value: &Value) -> Vec<i64> {
        let items = value
            .as_array()
            .map(|items| items.iter().map(Value::as_i64).collect());
        let integers: Option<Option<Vec<i64>>> = items;
        integers
            .flatten()
            .unwrap_or_else(|| panic!("{}: {value} is no list", self.name()))
    }

    /// Lists of key counts.
    pub(crate) fn splits(&self) -> Vec<Vec<usize>> {
        let splits = self.fields["splits"].as_array().expect("splits is a list");
        let lengths = |split| {
            self.integers(split)
                .into_iter()
                .map(|len| len as usize)
                .collect()
        };
        splits.iter().map(lengths).collect()
    }

    /// A parameter that may be absent.
    pub(crate) fn param(&self, name: &str) -> Option<usize> {
        let value = self.params.get(name)?;
        let number = value
            .as_u64()
            .unwrap_or_else(|| panic!("{}: {name}: {value}", self.name()));
        Some(number as usize)
    }

    /// A parameter that the stage needs.
    pub(crate) fn size(&self, name: &str) -> usize {
        self.param(name)
            .unwrap_or_else(|| panic!("{}: no parameter {name}", self.name()))
    }

    /// A parameter that is a list and may be absent.
    pub(crate) fn list(&self, name: &str) -> Option<Vec<usize>> {
        let integers = self.integers(self.params.get(name)?);
        Some(integers.into_iter().map(|entry| entry as usize).collect())
    }

    /// The meaning of a word among `choices`; the first is the default.
    pub(crate) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> T {
        let Some(value) = self.params.get(name) else {
            return choices[0].1;
        };
        let found = choices
            .iter()
            .find(|(word, _)| value.as_str() == Some(word));
        found
            .unwrap_or_else(|| panic!("{}: {name} is {value}", self.name()))
            .1
    }

    pub(crate) fn strictness(&self) -> Strictness {
        match self.params.get("strict") {
            None | Some(Value::Bool(true)) => Strictness::Strict,
            Some(Value::Bool(false)) => Strictness::Permissive,
            Some(other) => panic!("{}: strict is {other}", self.name()),
        }
    }

    fn offsets(&self, name: &'static str) -> Result<Option<CuSeqlens>> {
        let Some(value) = self.fields.get(name) else {
            return Ok(None);
        };
        CuSeqlens::new(name, &self.integers(value)).map(Some)
    }

    fn ends(&self, name: &str) -> Vec<i32> {
        self.tensor(name, Kind::I32).vector(to_i32).to_vec()
    }

    /// The windows, in whichever form they are given.
    pub(crate) fn windows(&self) -> Result<Windows> {
        if let Some(cu) = self.offsets("cu_seqlens")? {
            return Windows::causal(&cu, cu.total(), cu.total());
        }
        let Some(cu_q) = self.offsets("cu_seqlens_q")? else {
            let n = self.fields["n"].as_u64().expect("n is a count") as usize;
            return Windows::from_rows(&self.ends("ks"), &self.ends("ke"), n);
        };
        let cu_k = self.offsets("cu_seqlens_k")?;
        let m = cu_q.total();
        match (self.param("kv_stride"), cu_k) {
            (None, Some(cu_k)) => Windows::causal_qk(&cu_q, &cu_k, m, cu_k.total()),
            (Some(stride), cu_k) => {
                let first = self
                    .params
                    .get("first_positions")
                    .map(|value| self.integers(value));
                let first: Vec<u32> = first
                    .unwrap_or_default()
                    .into_iter()
                    .map(|p| p as u32)
                    .collect();
                let derived = || {
                    (0..cu_q.sequences())
                        .map(|s| cu_q.sequence(s).len().checked_div(stride).unwrap_or(0))
                };
                let n = cu_k
                    .as_ref()
                    .map_or_else(|| derived().sum(), CuSeqlens::total);
                Windows::strided(&cu_q, cu_k.as_ref(), stride, &first, m, n)
            }
            (None, None) => panic!("{}: neither cu_seqlens_k nor kv_stride", self.name()),
        }
    }
}
