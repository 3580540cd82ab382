//! `hisa list`: the names the other commands take, and what they stand for.

use super::{CliError, Outcome, print};
use crate::backend;
use crate::backend::mutant::MUTANTS;
use crate::backend::simulated::Simulated;
use crate::check::CHECKS;
use crate::flags::Flag;
use crate::generate;
use crate::generate::values::PRESETS;
use crate::op::Op;
use clap::{Args, ValueEnum};

/// Arguments of `hisa list`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct ListArgs {
    /// Which names; all of them if absent.
    #[arg(value_enum)]
    pub what: Option<Names>,
}

/// A kind of name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Names {
    /// What `--backend` takes.
    Backends,
    /// Where cases come from.
    Generators,
    /// What is checked, and the clause of docs/SPEC.md that asks for it.
    Checks,
    /// Why a case is interesting.
    Flags,
    /// What `v=` takes in an address.
    Presets,
    /// What `--stage` takes.
    Stages,
}

impl Names {
    /// Every kind, in the order of the help.
    pub const ALL: [Self; 6] = [
        Self::Backends,
        Self::Generators,
        Self::Checks,
        Self::Flags,
        Self::Presets,
        Self::Stages,
    ];

    const fn heading(self) -> &'static str {
        match self {
            Self::Backends => "backends",
            Self::Generators => "generators",
            Self::Checks => "checks",
            Self::Flags => "flags",
            Self::Presets => "presets",
            Self::Stages => "stages and indexers",
        }
    }

    /// Names and what they stand for, each in one line.
    #[must_use]
    pub fn rows(self) -> Vec<(String, String)> {
        let row = |name: &str, about: &str| (name.to_owned(), about.to_owned());
        match self {
            Self::Backends => {
                let fixed = backend::NAMES.map(|(name, about)| row(name, about));
                let mutants = MUTANTS.iter();
                let mutants = mutants.map(|one| row(&format!("mutant:{}", one.name), one.about));
                let simulated = Simulated::names();
                let arithmetic = |name: &String| {
                    let made = backend::by_name(name).ok()?;
                    Some(row(
                        name,
                        &format!("Arithmetic {}.", made.capabilities().arithmetic()),
                    ))
                };
                let simulated = simulated.iter().filter_map(arithmetic);
                let fixed = fixed.into_iter().chain(on_gpu());
                let all = fixed.chain(simulated).chain(mutants);
                all.chain(kernel_faults()).collect()
            }
            Self::Generators => {
                let made = generate::NAMES.map(|name| generate::by_name(name, 0, 0));
                let made = made.iter().flatten();
                made.map(|made| row(made.name(), made.about())).collect()
            }
            Self::Checks => CHECKS
                .iter()
                .map(|check| {
                    let about = format!("{}, SPEC {}", check.group.name(), check.clause);
                    (check.id(), about)
                })
                .collect(),
            Self::Flags => {
                let flags = Flag::ALL.iter();
                flags.map(|flag| row(flag.name(), flag.about())).collect()
            }
            Self::Presets => {
                let presets = PRESETS.iter();
                presets
                    .map(|preset| row(preset.name, preset.about))
                    .collect()
            }
            Self::Stages => Op::ALL.map(|op| row(op.name(), op.about())).to_vec(),
        }
    }
}

/// The backends on a GPU, each with whether it can run here.
fn on_gpu() -> Vec<(String, String)> {
    let here = match available() {
        Ok(gpu) => format!("Here: {gpu}."),
        Err(why) => format!("Not here: {why}."),
    };
    let row = |(name, about): (&str, &str)| (name.to_owned(), format!("{about} {here}"));
    backend::GPU_NAMES.map(row).to_vec()
}

#[cfg(feature = "cuda")]
fn available() -> Result<String, String> {
    backend::cuda::available().map_err(|error| error.to_string())
}

#[cfg(not(feature = "cuda"))]
fn available() -> Result<String, String> {
    Err("not built in".to_owned())
}

#[cfg(feature = "cuda")]
fn kernel_faults() -> Vec<(String, String)> {
    use backend::cuda::faults::{FAULTS, PREFIX};
    let row = |fault: &backend::cuda::faults::Fault| {
        (format!("{PREFIX}{}", fault.name), fault.about.to_owned())
    };
    FAULTS.iter().map(row).collect()
}

#[cfg(not(feature = "cuda"))]
fn kernel_faults() -> Vec<(String, String)> {
    Vec::new()
}

/// Prints the names.
///
/// # Errors
/// [`CliError::Stdout`].
pub fn run(args: ListArgs) -> Result<Outcome, CliError> {
    if let Some(what) = args.what {
        print(&table(what))?;
        return Ok(Outcome::Clean);
    }
    let tables = Names::ALL.map(|what| format!("{}\n{}", what.heading(), table(what)));
    print(&tables.join("\n\n"))?;
    Ok(Outcome::Clean)
}

fn table(what: Names) -> String {
    let rows = what.rows();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, about): &(String, String)| format!("  {name:<width$}  {about}");
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_listed_once_and_explained() {
        for what in Names::ALL {
            let rows = what.rows();
            assert!(!rows.is_empty(), "{what:?}");
            let names: BTreeSet<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names.len(), rows.len(), "{what:?}");
            assert!(rows.iter().all(|(_, about)| !about.is_empty()), "{what:?}");
        }
        assert_eq!(Names::Generators.rows().len(), generate::NAMES.len());
        let backends = Names::Backends.rows();
        assert!(
            !backends
                .iter()
                .any(|(name, _)| name.starts_with("saboteur"))
        );
    }
}
