//! Where cases come from: generators, and the values and random numbers they share.
//!
//! | generator | what it yields |
//! |---|---|
//! | `edge` | hand-picked corners and the inputs of public bug reports |
//! | `exhaustive` | every small shape, every window and every way to cut it into sequences |
//! | `ragged` | random cases for fuzzing |
//! | `deepseek` | a few rows at the sizes of DeepSeek-V3.2 |
//! | `corpus` | shrunk cases that once caught a fault; append only |
//! | `large` | reports that need much memory or time, run only by name |
//!
//! Case i of a generator depends on i and the seed alone, so that work can be split, resumed and
//! repeated in any order. Inputs that must be refused are apart, in [`edge::rejected`].

pub mod corpus;
pub mod deepseek;
pub mod edge;
pub mod exhaustive;
pub mod fit;
pub mod programmed;
pub mod ragged;
pub mod strategies;
pub mod stream;
pub mod values;

use crate::case::Case;
use crate::flags::Flags;
use std::borrow::Cow;

/// A case and why it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The case.
    pub case: Case,
    /// One line for people; empty where the flags say it all.
    pub comment: Cow<'static, str>,
    /// Numbers n of the public reports BR-n whose trigger it is.
    pub reports: &'static [u16],
    /// What the generator vouches for. [`crate::flags::flags`] finds the rest.
    pub flags: Flags,
}

impl From<Case> for Generated {
    fn from(case: Case) -> Self {
        Self {
            case,
            comment: Cow::Borrowed(""),
            reports: &[],
            flags: Flags::NONE,
        }
    }
}

/// A numbered list of cases.
pub trait Generator: std::fmt::Debug + Send + Sync {
    /// The word the command line and reports use.
    fn name(&self) -> &'static str;

    /// What it yields, in one sentence.
    fn about(&self) -> &'static str;

    /// How many cases it promises.
    fn len(&self) -> u64;

    /// True where it promises none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Case `index`; `None` from [`Self::len`] on.
    fn case(&self, index: u64) -> Option<Generated>;
}

impl dyn Generator + '_ {
    /// All cases in order.
    pub fn iter(&self) -> impl Iterator<Item = Generated> + '_ {
        (0..self.len()).filter_map(|index| self.case(index))
    }
}

/// Names of all generators, in the order of the table above.
pub const NAMES: [&str; 6] = [
    "edge",
    "exhaustive",
    "ragged",
    "deepseek",
    "corpus",
    "large",
];

/// The generator with this name. `seed` and `count` matter only to the random ones.
#[must_use]
pub fn by_name(name: &str, seed: u64, count: u64) -> Option<Box<dyn Generator>> {
    Some(match name {
        "edge" => Box::new(edge::Edge::new()),
        "exhaustive" => Box::new(exhaustive::Exhaustive::new()),
        "ragged" => Box::new(ragged::Ragged { seed, count }),
        "deepseek" => Box::new(deepseek::DeepSeek { seed, count }),
        "corpus" => Box::new(corpus::Corpus::new()),
        "large" => Box::new(edge::Large::new()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn generators_keep_their_promises() {
        for name in NAMES {
            let generator = by_name(name, 1, 300).unwrap();
            assert_eq!(generator.name(), name);
            assert!(generator.about().ends_with('.'));
            assert!(!generator.is_empty());
            let mut addresses = HashSet::new();
            for (index, Generated { case, .. }) in generator.iter().enumerate() {
                let address = case.to_string();
                assert_eq!(address.parse::<Case>().as_ref(), Ok(&case), "{address}");
                case.params().unwrap();
                case.windows()
                    .unwrap_or_else(|error| panic!("{name} {index} {address} {error}"));
                assert!(addresses.insert(address), "{name} {index} {case}");
            }
            assert_eq!(addresses.len() as u64, generator.len());
            assert!(generator.case(generator.len()).is_none());
        }
        assert!(by_name("none", 1, 1).is_none());
    }
}
