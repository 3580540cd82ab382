//! Reading an address. The grammar stands in [`super::address`].

use super::address::{ADDRESS_BYTES_MAX, OFFSETS_MAX, SCHEME};
use super::error::{AddressError, AddressProblem};
use super::patch::Patch;
use super::windows::{Shard, WindowSource, WindowSpec};
use super::{Case, PATCHES_MAX, ROWS_MAX};
use crate::generate::programmed::Program;
use crate::generate::values::{
    CodeKind, Codes, PRESETS, RowKind, ScaleKind, Scales, Values, WeightKind, preset,
};
use hisa_ref::{Rank, Window};
use std::str::FromStr;

type Parsed<T> = Result<T, AddressError>;

impl FromStr for Case {
    type Err = AddressError;

    /// Reads an address and checks that its sizes are within the caps of [`Case::check`].
    fn from_str(text: &str) -> Parsed<Self> {
        if text.len() > ADDRESS_BYTES_MAX {
            let (bytes, limit) = (text.len(), ADDRESS_BYTES_MAX);
            return Err(problem(0, AddressProblem::TooLong { bytes, limit }));
        }
        let Some(body) = text.strip_prefix(SCHEME) else {
            return Err(problem(0, AddressProblem::Scheme));
        };
        let mut fields = Fields::read(body)?;
        let case = Self {
            m: fields.size("M")?,
            n: fields.size("N")?,
            h: fields.size("H")?,
            d: fields.size("D")?,
            block_size: fields.size("B")?,
            block_topk: fields.size("m")?,
            topk_tokens: fields.size("K")?,
            rank: match fields.take("rank") {
                Some(field) => field.convert("bf16 or f32", |word| word.parse::<Rank>().ok())?,
                None => Rank::Bf16,
            },
            windows: fields.windows()?,
            values: fields.values()?,
            seed: match fields.take("seed") {
                Some(field) => field.convert("a seed of at most 64 bits", seed)?,
                None => 0,
            },
            patches: std::mem::take(&mut fields.patches),
        };
        if let Some(field) = fields.list.first() {
            let key = field.key.to_owned();
            return Err(problem(field.at, AddressProblem::UnknownKey { key }));
        }
        case.check()
            .map_err(|error| problem(0, AddressProblem::Case(error)))?;
        Ok(case)
    }
}

impl FromStr for WindowSpec {
    type Err = AddressError;

    /// Reads the windows of an address alone, such as `cu=0.1.3`; places count from the start of
    /// an address that held nothing else.
    fn from_str(text: &str) -> Parsed<Self> {
        let mut fields = Fields::read(text)?;
        let spec = fields.windows()?;
        if let Some(field) = fields.list.first() {
            let key = field.key.to_owned();
            return Err(problem(field.at, AddressProblem::UnknownKey { key }));
        }
        if let Some(patch) = fields.patches.first() {
            let key = patch.to_string();
            return Err(problem(0, AddressProblem::UnknownKey { key }));
        }
        Ok(spec)
    }
}

/// One `key=value` and where its value starts.
struct Field<'a> {
    key: &'a str,
    value: &'a str,
    at: usize,
}

impl Field<'_> {
    fn convert<T>(
        &self,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Parsed<T> {
        parse(self.value).ok_or_else(|| self.wrong(0, expected))
    }

    fn wrong(&self, offset: usize, expected: &'static str) -> AddressError {
        let rest = self.value.get(offset..).unwrap_or("");
        let got = rest.chars().take(40).collect();
        let problem = AddressProblem::Value {
            key: self.key.to_owned(),
            expected,
            got,
        };
        AddressError {
            at: self.at + offset,
            problem,
        }
    }

    fn list<T>(&self, expected: &'static str, entry: fn(&str) -> Option<T>) -> Parsed<Vec<T>> {
        let mut entries = Vec::new();
        let mut offset = 0;
        if self.value.is_empty() {
            return Ok(entries);
        }
        for text in self.value.split('.') {
            if entries.len() == OFFSETS_MAX {
                return Err(self.too_many(offset, OFFSETS_MAX));
            }
            entries.push(entry(text).ok_or_else(|| self.wrong(offset, expected))?);
            offset += text.len() + 1;
        }
        Ok(entries)
    }

    fn too_many(&self, offset: usize, limit: usize) -> AddressError {
        let key = self.key.to_owned();
        problem(self.at + offset, AddressProblem::TooMany { key, limit })
    }

    fn program(&self, prefix: usize) -> Parsed<Program> {
        Program::parse(&self.value[prefix..])
            .map_err(|(offset, expected)| self.wrong(prefix + offset, expected))
    }

    fn rows(&self) -> Parsed<Vec<Window>> {
        let expected = "windows START:END or pad, each with or without xCOUNT";
        let mut rows = Vec::new();
        let mut offset = 0;
        if self.value.is_empty() {
            return Ok(rows);
        }
        for text in self.value.split('.') {
            let (window, count) = window_run(text).ok_or_else(|| self.wrong(offset, expected))?;
            if count > ROWS_MAX - rows.len() {
                return Err(self.too_many(offset, ROWS_MAX));
            }
            rows.resize(rows.len() + count, window);
            offset += text.len() + 1;
        }
        Ok(rows)
    }
}

/// The fields not yet used, and the patches in order.
struct Fields<'a> {
    list: Vec<Field<'a>>,
    patches: Vec<Patch>,
    end: usize,
}

impl<'a> Fields<'a> {
    fn read(body: &'a str) -> Parsed<Self> {
        let mut fields = Self {
            list: Vec::new(),
            patches: Vec::new(),
            end: SCHEME.len() + body.len(),
        };
        let mut at = SCHEME.len();
        for text in body.split(['/', ',']) {
            fields.add(text, at)?;
            at += text.len() + 1;
        }
        Ok(fields)
    }

    fn add(&mut self, text: &'a str, at: usize) -> Parsed<()> {
        let Some((key, value)) = text.split_once('=') else {
            let field = text.chars().take(40).collect();
            return Err(problem(at, AddressProblem::Field { field }));
        };
        let field = Field {
            key,
            value,
            at: at + key.len() + 1,
        };
        if key.contains('.') {
            if self.patches.len() == PATCHES_MAX {
                return Err(problem(
                    at,
                    AddressProblem::TooMany {
                        key: "patches".to_owned(),
                        limit: PATCHES_MAX,
                    },
                ));
            }
            let patch = Patch::parse(key, value).map_err(|expected| field.wrong(0, expected))?;
            self.patches.push(patch);
            return Ok(());
        }
        if !KEYS.contains(&key) {
            let key = key.chars().take(40).collect();
            return Err(problem(at, AddressProblem::UnknownKey { key }));
        }
        if self.list.iter().any(|other| other.key == key) {
            return Err(problem(
                at,
                AddressProblem::RepeatedKey {
                    key: key.to_owned(),
                },
            ));
        }
        self.list.push(field);
        Ok(())
    }

    fn take(&mut self, key: &str) -> Option<Field<'a>> {
        let index = self.list.iter().position(|field| field.key == key)?;
        Some(self.list.remove(index))
    }

    fn need(&mut self, key: &'static str) -> Parsed<Field<'a>> {
        let end = self.end;
        self.take(key)
            .ok_or_else(|| problem(end, AddressProblem::MissingKey { key }))
    }

    fn size(&mut self, key: &'static str) -> Parsed<usize> {
        self.need(key)?.convert("a decimal number", decimal)
    }

    fn offsets(&mut self, key: &str) -> Parsed<Option<Vec<i64>>> {
        let offsets = |field: Field<'_>| field.list("offsets separated by dots", signed);
        self.take(key).map(offsets).transpose()
    }

    fn windows(&mut self) -> Parsed<WindowSpec> {
        let source = self.source()?;
        let shard = match self.take("cp") {
            Some(field) => Some(field.convert("RANKofRANKS", shard)?),
            None => None,
        };
        let padding_rows = match self.take("pad") {
            Some(field) => field.convert("a decimal number", decimal)?,
            None => 0,
        };
        Ok(WindowSpec {
            source,
            shard,
            padding_rows,
        })
    }

    fn source(&mut self) -> Parsed<WindowSource> {
        let forms = "exactly one of cu, cuq and win";
        let given = ["cu", "cuq", "win"].map(|key| self.list.iter().any(|f| f.key == key));
        match given.iter().filter(|&&given| given).count() {
            0 => return Err(problem(self.end, AddressProblem::MissingKey { key: forms })),
            1 => {}
            _ => {
                let (key, relation) = ("win, cu or cuq", "with another of them");
                return Err(problem(0, AddressProblem::Conflict { key, relation }));
            }
        }
        if let Some(cu) = self.offsets("cu")? {
            return self.alone(WindowSource::Causal(cu));
        }
        if let Some(field) = self.take("win") {
            let rows = field.rows()?;
            return self.alone(WindowSource::Rows(rows));
        }
        let q = self.offsets("cuq")?.unwrap_or_default();
        let k = self.offsets("cuk")?;
        if let Some(stride) = self.take("stride") {
            let stride = stride.convert("a decimal number", decimal)?;
            let first_positions = match self.take("pos") {
                Some(field) => field.list("positions separated by dots", decimal)?,
                None => Vec::new(),
            };
            return Ok(WindowSource::Strided {
                q,
                k,
                stride,
                first_positions,
            });
        }
        let missing = AddressProblem::MissingKey {
            key: "cuk or stride",
        };
        let k = k.ok_or_else(|| problem(self.end, missing))?;
        self.forbid("pos", "without stride")?;
        Ok(WindowSource::Separate { q, k })
    }

    fn alone(&self, source: WindowSource) -> Parsed<WindowSource> {
        for key in ["cuk", "stride", "pos"] {
            self.forbid(key, "without cuq")?;
        }
        Ok(source)
    }

    fn forbid(&self, key: &'static str, relation: &'static str) -> Parsed<()> {
        match self.list.iter().find(|field| field.key == key) {
            Some(field) => Err(problem(
                field.at,
                AddressProblem::Conflict { key, relation },
            )),
            None => Ok(()),
        }
    }

    fn values(&mut self) -> Parsed<Values> {
        let kinds = ["q", "k", "s", "w", "x"];
        let named = self.take("v");
        if let Some(field) = &named {
            for key in kinds {
                self.forbid(key, "with v")?;
            }
            return field.convert("the name of a preset", |name| Some(preset(name)?.values()));
        }
        if !kinds
            .iter()
            .any(|key| self.list.iter().any(|field| field.key == *key))
        {
            return Ok(PRESETS[0].values());
        }
        let q = self
            .need("q")?
            .convert(CodeKind::WORDS, CodeKind::from_word)?;
        let field = self.need("k")?;
        let k = match field.value.strip_prefix(BLOCKS) {
            Some(_) => Codes::Blocks(field.program(BLOCKS.len())?),
            None => Codes::Kind(field.convert(CodeKind::WORDS, CodeKind::from_word)?),
        };
        let field = self.need("s")?;
        let s = match field.value.strip_prefix(PROGRAM) {
            Some(_) => Scales::Program(field.program(PROGRAM.len())?),
            None => Scales::Kind(field.convert(ScaleKind::WORDS, ScaleKind::from_word)?),
        };
        let w = self
            .need("w")?
            .convert(WeightKind::WORDS, WeightKind::from_word)?;
        let x = self
            .need("x")?
            .convert(RowKind::WORDS, RowKind::from_word)?;
        Ok(Values { q, k, s, w, x })
    }
}

const KEYS: [&str; 23] = [
    "M", "N", "H", "D", "B", "m", "K", "rank", "cu", "cuq", "cuk", "stride", "pos", "win", "cp",
    "pad", "v", "q", "k", "s", "w", "x", "seed",
];
const BLOCKS: &str = "blocks:";
const PROGRAM: &str = "prog:";

fn problem(at: usize, problem: AddressProblem) -> AddressError {
    AddressError { at, problem }
}

/// A number without sign and without leading zeros, so that it has one spelling.
fn decimal<T: FromStr>(text: &str) -> Option<T> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = text == "0" || !text.starts_with('0');
    if digits && canonical {
        text.parse().ok()
    } else {
        None
    }
}

/// A decimal number with or without a minus sign.
fn signed<T: FromStr>(text: &str) -> Option<T> {
    match text.strip_prefix('-') {
        Some("0") => None,
        Some(digits) => decimal::<u64>(digits).and_then(|_| text.parse().ok()),
        None => decimal(text),
    }
}

fn seed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None => decimal(text),
    }
}

fn shard(text: &str) -> Option<Shard> {
    let (rank, ranks) = text.split_once("of")?;
    Some(Shard {
        rank: decimal(rank)?,
        ranks: decimal(ranks)?,
    })
}

fn window_run(text: &str) -> Option<(Window, usize)> {
    let (window, count) = match text.split_once('x') {
        Some((window, count)) => (window, decimal(count)?),
        None => (text, 1),
    };
    if window == "pad" {
        return Some((Window::PADDING, count));
    }
    let (ks, ke) = window.split_once(':')?;
    Some((
        Window {
            ks: signed(ks)?,
            ke: signed(ke)?,
        },
        count,
    ))
}
