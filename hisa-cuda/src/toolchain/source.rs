//! The text of the kernels, as it is compiled.

use crate::kernel::Unit;
use crate::toolchain::Arch;
use crate::{Error, Result};

/// Pairs of a file's name, relative to `src/kernels`, and its text.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../kernels/", $name)))),*]
    };
}

/// The headers, by the names that `#include` uses.
const HEADERS: &[(&str, &str)] = files![
    "common/best.cuh",
    "common/buckets.cuh",
    "common/columns.cuh",
    "common/cta.cuh",
    "common/digits.cuh",
    "common/e4m3.cuh",
    "common/flat_topk.cuh",
    "common/order.cuh",
    "common/ptx.cuh",
    "common/score_exact.cuh",
    "common/score_mma.cuh",
    "common/select.cuh",
    "common/slots.cuh",
    "common/sort.cuh",
    "common/token_entries.cuh",
    "common/types.cuh",
    "common/walk.cuh",
    "common/wide.cuh",
];

/// The units.
const UNITS: &[(&str, &str)] = files![
    "quantize.cu",
    "block_pool.cu",
    "block_scores.cu",
    "block_mask.cu",
    "block_topk.cu",
    "token_scores.cu",
    "token_topk.cu",
    "index_map.cu",
    "dsa.cu",
    "block_sparse.cu",
];

/// The options of every compilation, the architecture aside. Fused only where written, no
/// approximations, and no file of the machine it runs on.
pub const OPTIONS: [&str; 7] = [
    "--std=c++17",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "-lineinfo",
    "--no-source-include",
];

/// The options of a compilation for `arch`.
#[must_use]
pub fn options(arch: Arch) -> Vec<String> {
    let mut options = vec![format!("--gpu-architecture={arch}")];
    options.extend(OPTIONS.map(str::to_owned));
    options
}

/// A unit and its headers: all that the compiler reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The name of the unit's file.
    pub file: String,
    /// The text of the unit.
    pub text: String,
    /// Names, as `#include` has them, and texts of the headers.
    pub headers: Vec<(String, String)>,
}

impl Source {
    /// The source of a unit, as it is in this crate, with the headers it includes.
    #[must_use]
    pub fn of(unit: Unit) -> Self {
        let text = text_of(UNITS, unit.file()).unwrap_or_default();
        let mut headers = Vec::new();
        add_headers(&mut headers, text);
        Self {
            file: unit.file().to_owned(),
            text: text.to_owned(),
            headers,
        }
    }

    /// A copy with one change: `find`, in the unit or in any header, becomes `replace`. Planted
    /// faults are made this way.
    ///
    /// # Errors
    /// [`Error::Change`] where `find` is empty or not there exactly once.
    pub fn with_change(&self, find: &str, replace: &str) -> Result<Self> {
        let mut changed = self.clone();
        let headers = changed.headers.iter_mut().map(|(_, text)| text);
        let texts = std::iter::once(&mut changed.text).chain(headers);
        let mut found = 0;
        for text in texts {
            let here = occurrences(text, find);
            found += here;
            if here == 1 {
                *text = text.replacen(find, replace, 1);
            }
        }
        if found == 1 {
            return Ok(changed);
        }
        Err(Error::Change {
            unit: self.file.clone(),
            find: find.to_owned(),
            found,
        })
    }
}

fn text_of(files: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let found = files.iter().find(|(file, _)| *file == name);
    found.map(|(_, text)| *text)
}

/// Adds the headers that a text includes, and those that they include, each once.
fn add_headers(headers: &mut Vec<(String, String)>, text: &str) {
    for name in included(text) {
        let Some(text) = text_of(HEADERS, name) else {
            // The compiler will name it.
            continue;
        };
        if !headers.iter().any(|(known, _)| known == name) {
            headers.push((name.to_owned(), text.to_owned()));
            add_headers(headers, text);
        }
    }
}

fn included(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("#include")?.trim();
        name.strip_prefix('"')?.split('"').next()
    })
}

/// How often `find` is in `text`, overlapping or not. An empty text is nowhere.
fn occurrences(text: &str, find: &str) -> usize {
    if find.is_empty() {
        return 0;
    }
    let starts = text.char_indices().map(|(at, _)| at);
    starts.filter(|&at| text[at..].starts_with(find)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        Source {
            file: "a.cu".to_owned(),
            text: "one two two aaa".to_owned(),
            headers: vec![("common/b.cuh".to_owned(), "two three".to_owned())],
        }
    }

    #[test]
    fn a_change_is_made_once_in_unit_or_header() {
        let changed = source().with_change("one", "1").unwrap();
        assert_eq!(changed.text, "1 two two aaa");
        assert_eq!(changed.headers, source().headers);
        let changed = source().with_change("three", "").unwrap();
        assert_eq!(changed.text, source().text);
        assert_eq!(changed.headers[0].1, "two ");
    }

    #[test]
    fn a_change_of_nothing_or_of_several_places_is_refused() {
        for (find, found) in [("four", 0), ("", 0), ("two", 3), ("aa", 2)] {
            let error = source().with_change(find, "x").unwrap_err();
            let unit = "a.cu".to_owned();
            let find = find.to_owned();
            assert_eq!(error, Error::Change { unit, find, found });
        }
    }

    #[test]
    fn headers_are_those_that_are_included() {
        let text = "#include \"common/types.cuh\" // why\n #include <x>\n#include \"y\"";
        let names: Vec<&str> = included(text).collect();
        assert_eq!(names, ["common/types.cuh", "y"]);
        let mut headers = Vec::new();
        add_headers(&mut headers, text);
        add_headers(&mut headers, text);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[0].0, "common/types.cuh");
    }

    #[test]
    fn the_tables_hold_every_file_of_the_folder() {
        let kernels = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernels");
        let mut files = 0;
        for (table, folder, ending) in [(UNITS, "", ".cu"), (HEADERS, "common/", ".cuh")] {
            for entry in std::fs::read_dir(kernels.join(folder)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if name.ends_with(ending) {
                    files += 1;
                    let name = format!("{folder}{name}");
                    assert!(
                        text_of(table, &name).is_some(),
                        "{name} is not in the table"
                    );
                }
            }
        }
        assert_eq!(files, UNITS.len() + HEADERS.len());
        for unit in Unit::ALL {
            let source = Source::of(unit);
            assert!(source.text.contains("__global__"), "{}", unit.file());
            let types = |(name, _): &(String, String)| name == "common/types.cuh";
            assert!(source.headers.iter().any(types), "{}", unit.file());
        }
    }

    #[test]
    fn options_name_a_real_architecture() {
        let options = options(Arch::CI[2]);
        assert_eq!(options[0], "--gpu-architecture=sm_90a");
        assert!(options.contains(&"--fmad=false".to_owned()));
    }
}
