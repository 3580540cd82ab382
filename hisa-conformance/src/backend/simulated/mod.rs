//! Backends with the arithmetic of kernels, computed here: proof that bounds hold and are close.
//!
//! | name | what it does |
//! |---|---|
//! | `simulated:CLASS` | dots of the class by its model, heads in f32; declares a bound |
//! | `simulated:CLASS:model` | the same, and declares the model, bit for bit |
//! | `simulated:f32` | f32 throughout, pooling and quantising too, in an order set by the codes |
//! | `simulated:f32-ftz` | the same, subnormals flushed to zero |
//! | `simulated:bf16-out` | dots rounded once, heads in f32, scores rounded to bf16 |

mod memo;
mod pipeline;
mod quotients;

use super::{Backend, Capabilities, Failure, Job, Outputs, reference::Reference};
use crate::numerics::{BoundedScores, ModelScores, Numerics, Quotients, Scores};
use hisa_ref::E4M3;
use hisa_ref::bf16::round_to_bf16;
use hisa_ref::bound::Dots;
use hisa_ref::model::{self, Arithmetic, DotClass, Epilogue, HeadOrder, Relu, ScalePlace};

/// The word before the colon.
pub const PREFIX: &str = "simulated:";

/// A backend with known arithmetic.
#[derive(Debug)]
pub struct Simulated {
    name: String,
    capabilities: Capabilities,
    rule: Rule,
    memo: memo::Memo,
    exact: Reference,
}

/// What it computes.
#[derive(Debug, Clone, Copy)]
struct Rule {
    /// The class of dots; none for f32 sums in an order that the codes decide.
    class: Option<DotClass>,
    /// Flush to zero.
    flush: bool,
    /// Scores are rounded to bf16.
    bf16: bool,
    /// Pooling and quantising in f32.
    quotients: bool,
}

/// Heads as DeepGEMM's `sm_90` kernel sums them.
const EPILOGUE: Epilogue = Epilogue {
    order: HeadOrder::DeepGemmSm90,
    arithmetic: Arithmetic {
        fused: true,
        flush: false,
    },
    scale: ScalePlace::Outside,
    relu: Relu::KeepsNan,
};

impl Simulated {
    /// The one of that name, which may carry [`PREFIX`].
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let name = name.strip_prefix(PREFIX).unwrap_or(name);
        let (kind, model) = match name.split_once(':') {
            Some((kind, "model")) => (kind, true),
            Some(_) => return None,
            None => (name, false),
        };
        let plain = Rule {
            class: Some(DotClass::Exact),
            flush: false,
            bf16: false,
            quotients: false,
        };
        let rule = match kind {
            "f32" | "f32-ftz" => Rule {
                class: None,
                flush: kind == "f32-ftz",
                quotients: true,
                ..plain
            },
            "bf16-out" => Rule {
                bf16: true,
                ..plain
            },
            class => Rule {
                class: Some(DotClass::from_name(class)?),
                ..plain
            },
        };
        let numerics = rule.numerics(model)?;
        Some(Self {
            name: format!("{PREFIX}{name}"),
            capabilities: Capabilities {
                numerics,
                ..Capabilities::all()
            },
            rule,
            memo: memo::Memo::default(),
            exact: Reference::new(),
        })
    }

    /// Every name, with the prefix.
    #[must_use]
    pub fn names() -> Vec<String> {
        let classes = DotClass::ALL.into_iter().map(DotClass::name);
        let others = ["f32", "f32-ftz", "bf16-out"];
        let models = DotClass::ALL
            .into_iter()
            .map(|class| format!("{class}:model"));
        let plain = classes.chain(others).map(str::to_owned);
        plain
            .chain(models)
            .map(|name| format!("{PREFIX}{name}"))
            .collect()
    }

    /// The same arithmetic under another declaration: how a test sees that a false one is found.
    #[must_use]
    pub fn declaring(mut self, numerics: Numerics) -> Self {
        self.capabilities.numerics = numerics;
        self
    }
}

impl Rule {
    /// What is true of it; none for a model where there is no fixed order.
    fn numerics(self, model: bool) -> Option<Numerics> {
        if model {
            let class = self.class.filter(|_| !self.bf16)?;
            let epilogue = EPILOGUE;
            return Some(Numerics::of_scores(Scores::Model(ModelScores {
                class,
                epilogue,
            })));
        }
        let dots = self.class.map_or(Dots::F32AnyOrder, Dots::Class);
        let scores = Scores::Bounded(BoundedScores {
            flush: self.flush,
            bf16: self.bf16,
            ..BoundedScores::of(dots)
        });
        let quotients = match self.quotients {
            true => Quotients::F32 { flush: self.flush },
            false => Quotients::Exact,
        };
        Some(Numerics {
            quantize: quotients,
            block_pool: quotients,
            scores,
        })
    }

    const fn arithmetic(self, fused: bool) -> Arithmetic {
        Arithmetic {
            fused,
            flush: self.flush,
        }
    }

    /// The dots of a query row and a key. The order of an f32 sum follows from codes alone, so that
    /// a row scores alike wherever it stands and whatever the scales are.
    fn dots(self, q: &[E4M3], key: &[E4M3], seed: u64) -> Vec<f32> {
        let rows = q.chunks_exact(key.len());
        match self.class {
            Some(class) => rows.map(|row| model::dot(class, row, key)).collect(),
            None => rows.map(|row| self.f32_dot(row, key, seed)).collect(),
        }
    }

    fn score(self, dots: &[f32], weights: &[f32], scale: f32, seed: u64) -> f32 {
        let epilogue = match self.class {
            Some(_) => EPILOGUE,
            None => self.epilogue(seed),
        };
        let score = epilogue.score(dots, weights, scale);
        if self.bf16 {
            round_to_bf16(score)
        } else {
            score
        }
    }

    fn epilogue(self, seed: u64) -> Epilogue {
        Epilogue {
            order: [HeadOrder::Sequential, HeadOrder::DeepGemmSm90][(seed >> 8 & 1) as usize],
            arithmetic: self.arithmetic(seed >> 9 & 1 == 0),
            scale: [ScalePlace::InsideRelu, ScalePlace::Outside][(seed >> 10 & 1) as usize],
            relu: Relu::KeepsNan,
        }
    }

    fn f32_dot(self, q: &[E4M3], key: &[E4M3], seed: u64) -> f32 {
        let pairs = q.iter().zip(key);
        let terms: Vec<(f32, f32)> = pairs.map(|(q, k)| (q.to_f32(), k.to_f32())).collect();
        sum_of_products(&terms, self.arithmetic(seed >> 11 & 1 == 0), seed)
    }
}

/// `sum a * b` in f32, in one of four orders.
fn sum_of_products(terms: &[(f32, f32)], arithmetic: Arithmetic, seed: u64) -> f32 {
    let step = |sum: f32, &(a, b): &(f32, f32)| arithmetic.mul_then_add(a, b, sum);
    match seed % 4 {
        0 => terms.iter().fold(0.0, step),
        1 => terms.iter().rev().fold(0.0, step),
        2 => {
            // Four running sums, added at the end.
            let lane = |lane: usize| terms.iter().skip(lane).step_by(4).fold(0.0, step);
            let add = |a, b| arithmetic.add(a, b);
            add(add(lane(0), lane(1)), add(lane(2), lane(3)))
        }
        _ => tree(terms, arithmetic),
    }
}

/// Neighbours first.
fn tree(terms: &[(f32, f32)], arithmetic: Arithmetic) -> f32 {
    match terms {
        [] => 0.0,
        [(a, b)] => arithmetic.mul(*a, *b),
        _ => {
            let (left, right) = terms.split_at(terms.len() / 2);
            arithmetic.add(tree(left, arithmetic), tree(right, arithmetic))
        }
    }
}

/// FNV-1a over codes.
fn digest(codes: &[E4M3]) -> u64 {
    let bytes = codes.iter().map(|code| u64::from(code.to_bits()));
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ byte).wrapping_mul(0x0100_0000_01B3)
    });
    hash ^ hash >> 29
}

impl Backend for Simulated {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        let rule = memo::Scorer {
            rule: self.rule,
            memo: &mut self.memo,
        };
        pipeline::run(rule, &mut self.exact, job, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_makes_a_backend_of_that_name() {
        for name in Simulated::names() {
            let made = Simulated::new(&name).unwrap();
            assert_eq!(made.name(), name);
            let declared = made.capabilities().numerics.to_string();
            assert_eq!(declared.parse(), Ok(made.capabilities().numerics));
        }
        for name in [
            "simulated:f16",
            "simulated:f32:model",
            "simulated:exact:bits",
            "",
        ] {
            assert!(Simulated::new(name).is_none(), "{name}");
        }
    }
}
