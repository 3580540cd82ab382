//! The one-line form of a declaration.
//!
//! ```text
//! numerics   = "exact" | stage { "," stage }          each stage at most once, in this order
//! stage      = "quantize=" quotients | "block_pool=" quotients | "scores=" scores
//! quotients  = "f32" [ "+ftz" ]
//! scores     = "bounded:" dots [ "+ftz" ] [ "+bf16" ] [ "+mul" count ]
//!            | "model:" class "+" order [ "+fma" ] [ "+ftz" ] [ "+inside" ] [ "+fmax" ]
//! dots       = class | "f32-any-order"
//! class      = a name of SPEC 11.1: "exact" (rounded once to f32), "hopper-qgmma", ...
//! order      = "sequential" | "deepgemm-sm90"
//! count      = 1 to 64
//! ```
//!
//! A stage that is not named is exact.

use super::{BoundedScores, ModelScores, Numerics, Quotients, Scores};
use hisa_ref::bound::Dots;
use hisa_ref::model::{Arithmetic, DotClass, Epilogue, HeadOrder, Relu, ScalePlace};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Most further multiplications of a declaration.
pub const MULTIPLICATIONS_MAX: usize = 64;

/// Why a line is no declaration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("numerics {text:?}: {part:?} where {expected} is expected")]
pub struct NumericsError {
    /// The whole line.
    pub text: String,
    /// The part that cannot be read.
    pub part: String,
    /// What could stand there.
    pub expected: &'static str,
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut stages = Vec::new();
        for (name, quotients) in [("quantize", self.quantize), ("block_pool", self.block_pool)] {
            if let Quotients::F32 { flush } = quotients {
                stages.push(format!("{name}=f32{}", option(flush, "+ftz")));
            }
        }
        if self.scores != Scores::Exact {
            stages.push(format!("scores={}", self.scores));
        }
        match stages.is_empty() {
            true => f.write_str("exact"),
            false => f.write_str(&stages.join(",")),
        }
    }
}

impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Bounded(bounded) => write!(f, "bounded:{bounded}"),
            Self::Model(model) => write!(f, "model:{model}"),
        }
    }
}

impl fmt::Display for BoundedScores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dots {
            Dots::Class(class) => write!(f, "{class}")?,
            Dots::F32AnyOrder => f.write_str(ANY_ORDER)?,
        }
        write!(f, "{}", option(self.flush, "+ftz"))?;
        write!(f, "{}", option(self.bf16, "+bf16"))?;
        match self.multiplications {
            0 => Ok(()),
            count => write!(f, "+mul{count}"),
        }
    }
}

impl fmt::Display for ModelScores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epilogue = &self.epilogue;
        let order = match epilogue.order {
            HeadOrder::Sequential => "sequential",
            HeadOrder::DeepGemmSm90 => "deepgemm-sm90",
        };
        write!(f, "{}+{order}", self.class)?;
        write!(f, "{}", option(epilogue.arithmetic.fused, "+fma"))?;
        write!(f, "{}", option(epilogue.arithmetic.flush, "+ftz"))?;
        let inside = epilogue.scale == ScalePlace::InsideRelu;
        write!(f, "{}", option(inside, "+inside"))?;
        write!(f, "{}", option(epilogue.relu == Relu::Fmax, "+fmax"))
    }
}

const ANY_ORDER: &str = "f32-any-order";

const fn option(set: bool, word: &'static str) -> &'static str {
    if set { word } else { "" }
}

impl FromStr for Numerics {
    type Err = NumericsError;

    fn from_str(text: &str) -> Result<Self, NumericsError> {
        let wrong = |(part, expected): (&str, &'static str)| NumericsError {
            text: text.to_owned(),
            part: part.to_owned(),
            expected,
        };
        parse(text).map_err(wrong)
    }
}

impl TryFrom<String> for Numerics {
    type Error = NumericsError;

    fn try_from(text: String) -> Result<Self, NumericsError> {
        text.parse()
    }
}

impl From<Numerics> for String {
    fn from(numerics: Numerics) -> Self {
        numerics.to_string()
    }
}

/// The part that cannot be read, and what could stand there.
type Wrong<'a> = (&'a str, &'static str);

fn parse(text: &str) -> Result<Numerics, Wrong<'_>> {
    let mut numerics = Numerics::default();
    if text == "exact" {
        return Ok(numerics);
    }
    let mut named = 0;
    for stage in text.split(',') {
        let (name, value) = stage
            .split_once('=')
            .ok_or((stage, "exact, or stage=arithmetic"))?;
        let position = match name {
            "quantize" => 1,
            "block_pool" => 2,
            "scores" => 3,
            _ => return Err((name, "quantize, block_pool or scores")),
        };
        if position <= named {
            return Err((name, "each stage once, in the order of the data"));
        }
        named = position;
        match position {
            1 => numerics.quantize = quotients(value)?,
            2 => numerics.block_pool = quotients(value)?,
            _ => numerics.scores = scores(value)?,
        }
    }
    Ok(numerics)
}

fn quotients(text: &str) -> Result<Quotients, Wrong<'_>> {
    match text {
        "f32" => Ok(Quotients::F32 { flush: false }),
        "f32+ftz" => Ok(Quotients::F32 { flush: true }),
        _ => Err((text, "f32 or f32+ftz")),
    }
}

fn scores(text: &str) -> Result<Scores, Wrong<'_>> {
    let (kind, rest) = text.split_once(':').ok_or((text, SCORES))?;
    let mut words = rest.split('+').peekable();
    let first = words.next().unwrap_or_default();
    match kind {
        "bounded" => {
            let dots = match DotClass::from_name(first) {
                Some(class) => Dots::Class(class),
                None if first == ANY_ORDER => Dots::F32AnyOrder,
                None => return Err((first, "f32-any-order or a class of dots")),
            };
            let bounded = BoundedScores {
                dots,
                flush: words.next_if_eq(&"ftz").is_some(),
                bf16: words.next_if_eq(&"bf16").is_some(),
                multiplications: multiplications(&mut words)?,
            };
            done(words, Scores::Bounded(bounded))
        }
        "model" => {
            let class = DotClass::from_name(first).ok_or((first, "a class of dots"))?;
            let order = match words.next().unwrap_or_default() {
                "sequential" => HeadOrder::Sequential,
                "deepgemm-sm90" => HeadOrder::DeepGemmSm90,
                other => return Err((other, "sequential or deepgemm-sm90")),
            };
            let epilogue = epilogue(order, &mut words);
            done(words, Scores::Model(ModelScores { class, epilogue }))
        }
        _ => Err((kind, SCORES)),
    }
}

const SCORES: &str = "bounded: or model:";

type Words<'a> = std::iter::Peekable<std::str::Split<'a, char>>;

fn done<'a>(mut words: Words<'a>, scores: Scores) -> Result<Scores, Wrong<'a>> {
    match words.next() {
        Some(word) => Err((word, "an option, each once, in the order of the grammar")),
        None => Ok(scores),
    }
}

fn multiplications<'a>(words: &mut Words<'a>) -> Result<usize, Wrong<'a>> {
    let Some(word) = words.next_if(|word| word.starts_with("mul")) else {
        return Ok(0);
    };
    let count = word["mul".len()..].parse::<usize>().ok();
    let canonical =
        |count: &usize| (1..=MULTIPLICATIONS_MAX).contains(count) && *word == format!("mul{count}");
    count.filter(canonical).ok_or((word, "mul1 to mul64"))
}

fn epilogue(order: HeadOrder, words: &mut Words<'_>) -> Epilogue {
    let mut set = |word: &str| words.next_if_eq(&word).is_some();
    let arithmetic = Arithmetic {
        fused: set("fma"),
        flush: set("ftz"),
    };
    let scale = match set("inside") {
        true => ScalePlace::InsideRelu,
        false => ScalePlace::Outside,
    };
    let relu = match set("fmax") {
        true => Relu::Fmax,
        false => Relu::KeepsNan,
    };
    Epilogue {
        order,
        arithmetic,
        scale,
        relu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_print_and_parse_back() {
        for text in [
            "exact",
            "quantize=f32",
            "block_pool=f32+ftz",
            "quantize=f32+ftz,block_pool=f32,scores=bounded:f32-any-order+ftz",
            "scores=bounded:exact",
            "scores=bounded:hopper-qgmma+ftz+bf16+mul3",
            "scores=model:ada-qmma+sequential",
            "scores=model:hopper-qgmma+deepgemm-sm90+fma+ftz+inside+fmax",
        ] {
            let numerics: Numerics = text.parse().unwrap();
            assert_eq!(numerics.to_string(), text);
            let json = serde_json::to_string(&numerics).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Numerics>(&json).unwrap(), numerics);
        }
        let default = Numerics::default();
        assert!(default.exact_scores() && default.exact_selection());
        assert_eq!(default.to_string(), "exact");
    }

    #[test]
    fn what_is_no_declaration_is_refused_by_the_part_that_is_wrong() {
        for (text, part) in [
            ("", ""),
            ("exact,scores=bounded:exact", "exact"),
            ("scores=exact", "exact"),
            ("quantize=exact", "exact"),
            ("pool=f32", "pool"),
            ("scores=bounded:exact,quantize=f32", "quantize"),
            ("quantize=f32,quantize=f32", "quantize"),
            ("scores=bounded:hopper", "hopper"),
            ("scores=bounded:exact+bf16+ftz", "ftz"),
            ("scores=bounded:exact+mul0", "mul0"),
            ("scores=bounded:exact+mul65", "mul65"),
            ("scores=bounded:exact+mul01", "mul01"),
            ("scores=model:exact", ""),
            ("scores=model:f32-any-order+sequential", "f32-any-order"),
            ("scores=model:exact+tree", "tree"),
            ("scores=model:exact+sequential+bf16", "bf16"),
            ("scores=exactly:exact", "exactly"),
        ] {
            let error = text.parse::<Numerics>().unwrap_err();
            assert_eq!(error.part, part, "{error}");
        }
    }
}
