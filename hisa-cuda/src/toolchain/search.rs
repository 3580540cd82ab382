//! Where NVRTC may be: files that are there, in the order they are to be tried.

use crate::{Error, Result};
use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variable that names NVRTC, or a folder that holds it. Nothing else is tried where it is set.
pub const VARIABLE: &str = "HISA_NVRTC";

/// Names of the library, newest first.
pub const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Folders of a toolkit that hold its libraries.
const TOOLKIT_LIBRARIES: [&str; 3] = [
    "lib64",
    "lib",
    if cfg!(target_arch = "x86_64") {
        "targets/x86_64-linux/lib"
    } else {
        "targets/sbsa-linux/lib"
    },
];

/// What the search depends on. A variable that is empty counts as absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `HISA_NVRTC`.
    pub hisa_nvrtc: Option<PathBuf>,
    /// `LD_LIBRARY_PATH`.
    pub library_path: Option<OsString>,
    /// `CUDA_HOME`, `CUDA_PATH`, as far as set.
    pub toolkits: Vec<PathBuf>,
    /// The folder that toolkits named `cuda` and `cuda-*` are installed in: `/usr/local`.
    pub toolkits_in: Option<PathBuf>,
    /// `VIRTUAL_ENV`, `CONDA_PREFIX`, as far as set.
    pub prefixes: Vec<PathBuf>,
    /// `PATH`.
    pub path: Option<OsString>,
}

impl Environment {
    /// That of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let variable = |name: &&str| std::env::var_os(name).filter(|value| !value.is_empty());
        let paths = |names: &[&str]| {
            names
                .iter()
                .filter_map(variable)
                .map(PathBuf::from)
                .collect()
        };
        Self {
            hisa_nvrtc: variable(&VARIABLE).map(PathBuf::from),
            library_path: variable(&"LD_LIBRARY_PATH"),
            toolkits: paths(&["CUDA_HOME", "CUDA_PATH"]),
            toolkits_in: Some(PathBuf::from("/usr/local")),
            prefixes: paths(&["VIRTUAL_ENV", "CONDA_PREFIX"]),
            path: variable(&"PATH"),
        }
    }
}

/// What a search gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Files that are there, and at the end bare names, for the system's loader to find.
    pub libraries: Vec<PathBuf>,
    /// Every folder and name that was tried, in order.
    pub searched: Vec<PathBuf>,
}

impl Candidates {
    /// Takes the libraries of `folders`: by folder, and by name within a folder.
    fn add(&mut self, folders: impl IntoIterator<Item = PathBuf>) {
        for folder in folders {
            if !self.searched.contains(&folder) {
                self.libraries.extend(libraries_in(&folder));
                self.searched.push(folder);
            }
        }
    }
}

/// Where NVRTC may be, in this order: `HISA_NVRTC` and nothing else; `LD_LIBRARY_PATH`; the
/// toolkit; the Python packages of the active environment; the system's loader.
///
/// # Errors
/// [`Error::Setting`] where `HISA_NVRTC` names nothing that can be loaded.
pub fn candidates(environment: &Environment) -> Result<Candidates> {
    if let Some(named) = &environment.hisa_nvrtc {
        return self::named(named);
    }
    let mut candidates = Candidates::default();
    candidates.add(split(environment.library_path.as_ref()));
    for toolkit in toolkits(environment) {
        candidates.add(TOOLKIT_LIBRARIES.map(|folder| toolkit.join(folder)));
    }
    for prefix in python_prefixes(environment) {
        candidates.add([prefix.join("lib")]);
        let mut packages = packages(&prefix, "lib");
        // Wheels of several releases may lie side by side: the newest goes first.
        packages.sort_by_key(|folder| NAMES.iter().position(|name| folder.join(name).is_file()));
        candidates.add(packages);
    }
    candidates.libraries.extend(NAMES.map(PathBuf::from));
    candidates.searched.extend(NAMES.map(PathBuf::from));
    Ok(candidates)
}

fn named(value: &Path) -> Result<Candidates> {
    let libraries = if value.is_dir() {
        libraries_in(value)
    } else if value.is_file() {
        vec![value.to_owned()]
    } else {
        return Err(unusable(value, "there is no such file or folder"));
    };
    if libraries.is_empty() {
        return Err(unusable(
            value,
            &format!("it holds none of {}", NAMES.join(", ")),
        ));
    }
    Ok(Candidates {
        libraries,
        searched: vec![value.to_owned()],
    })
}

pub(crate) fn unusable(value: &Path, reason: &str) -> Error {
    Error::Setting {
        name: VARIABLE,
        value: value.to_owned(),
        reason: reason.to_owned(),
    }
}

fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let files = NAMES.map(|name| folder.join(name));
    files.into_iter().filter(|file| file.is_file()).collect()
}

fn split(list: Option<&OsString>) -> Vec<PathBuf> {
    let folders = list.map(std::env::split_paths).into_iter().flatten();
    folders
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect()
}

/// Those that variables name, then `cuda`, then each `cuda-*`, newest first.
fn toolkits(environment: &Environment) -> Vec<PathBuf> {
    let mut found = environment.toolkits.clone();
    if let Some(folder) = &environment.toolkits_in {
        found.push(folder.join("cuda"));
        found.extend(entries(folder, "cuda-"));
    }
    found
}

/// The folders `nvidia/*/leaf` of the Python packages that the active environment has.
#[must_use]
pub fn package_folders(environment: &Environment, leaf: &str) -> Vec<PathBuf> {
    let prefixes = python_prefixes(environment).into_iter();
    prefixes
        .flat_map(|prefix| packages(&prefix, leaf))
        .collect()
}

fn packages(prefix: &Path, leaf: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // Distributions keep what pip installs under `local`.
    for lib in [prefix.join("lib"), prefix.join("local/lib")] {
        for python in entries(&lib, "python3") {
            for folder in ["site-packages", "dist-packages"] {
                let vendor = entries(&python.join(folder).join("nvidia"), "");
                found.extend(vendor.into_iter().map(|package| package.join(leaf)));
            }
        }
    }
    found.retain(|folder| folder.is_dir());
    found
}

/// `VIRTUAL_ENV`, `CONDA_PREFIX`, the folder that the first `python3` on `PATH` is installed in,
/// and, where that is a link, the one it leads to. Told by the layout of folders; Python is not
/// run.
fn python_prefixes(environment: &Environment) -> Vec<PathBuf> {
    let mut prefixes = environment.prefixes.clone();
    let folders = split(environment.path.as_ref()).into_iter();
    let python = folders
        .map(|folder| folder.join("python3"))
        .find(|file| file.is_file());
    let resolved = python
        .as_ref()
        .and_then(|file| std::fs::canonicalize(file).ok());
    for file in [python, resolved].into_iter().flatten() {
        if let Some(prefix) = file.parent().and_then(Path::parent) {
            prefixes.push(prefix.to_owned());
        }
    }
    let mut seen = Vec::new();
    prefixes.retain(|prefix| {
        let new = !seen.contains(prefix);
        seen.push(prefix.clone());
        new
    });
    prefixes
}

/// Entries of a folder whose names start so, the highest version first. None where the folder
/// cannot be read.
pub(crate) fn entries(folder: &Path, start: &str) -> Vec<PathBuf> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(start))
        .collect();
    names.sort_by_cached_key(|name| Reverse((version(name), name.clone())));
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// The numbers in a name: `cuda-12.10` is later than `cuda-12.9`.
pub(crate) fn version(name: &str) -> Vec<u64> {
    let digits = name.split(|c: char| !c.is_ascii_digit());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder tree with these files, all empty.
    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, b"").unwrap();
        }
        root
    }

    /// The files found, relative to the root, without the bare names at the end.
    fn found(root: &Path, environment: &Environment) -> Vec<String> {
        let mut libraries = candidates(environment).unwrap().libraries;
        let bare = libraries.split_off(libraries.len() - NAMES.len());
        assert_eq!(bare, NAMES.map(PathBuf::from));
        let inside = |path: PathBuf| {
            path.strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        };
        libraries.into_iter().map(inside).collect()
    }

    fn list(folders: &[PathBuf]) -> Option<OsString> {
        Some(std::env::join_paths(folders).unwrap())
    }

    #[test]
    fn every_place_is_searched_in_order() {
        let root = tree(&[
            "second/libnvrtc.so.12",
            "first/libnvrtc.so",
            "first/libnvrtc.so.13",
            "first/libnvrtc.alt.so.13",
            "home/targets/x86_64-linux/lib/libnvrtc.so.13",
            "home/targets/sbsa-linux/lib/libnvrtc.so.13",
            "usr/cuda/lib64/libnvrtc.so",
            "usr/cuda-12.9/lib64/libnvrtc.so",
            "usr/cuda-12.10/lib/libnvrtc.so",
            "usr/cuda-13.0/lib/libnvrtc.so",
            "venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
            "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            "venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.13",
            "conda/lib/libnvrtc.so.12",
            "sys/bin/python3",
            "sys/local/lib/python3.11/dist-packages/nvidia/cu13/lib/libnvrtc.so.13",
        ]);
        let at = |path: &str| root.path().join(path);
        let environment = Environment {
            hisa_nvrtc: None,
            library_path: list(&[at("first"), PathBuf::new(), at("absent"), at("second")]),
            toolkits: vec![at("home")],
            toolkits_in: Some(at("usr")),
            prefixes: vec![at("venv"), at("conda")],
            path: list(&[at("absent"), at("sys/bin")]),
        };
        let own = TOOLKIT_LIBRARIES[2];
        assert_eq!(
            found(root.path(), &environment),
            [
                "first/libnvrtc.so.13".to_owned(),
                "first/libnvrtc.so".to_owned(),
                "second/libnvrtc.so.12".to_owned(),
                format!("home/{own}/libnvrtc.so.13"),
                "usr/cuda/lib64/libnvrtc.so".to_owned(),
                "usr/cuda-13.0/lib/libnvrtc.so".to_owned(),
                "usr/cuda-12.10/lib/libnvrtc.so".to_owned(),
                "usr/cuda-12.9/lib64/libnvrtc.so".to_owned(),
                "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13".to_owned(),
                "venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12".to_owned(),
                "conda/lib/libnvrtc.so.12".to_owned(),
                "sys/local/lib/python3.11/dist-packages/nvidia/cu13/lib/libnvrtc.so.13".to_owned(),
            ]
        );
        let searched = candidates(&environment).unwrap().searched;
        assert!(searched.contains(&at("absent")), "{searched:?}");
        assert!(searched.ends_with(&NAMES.map(PathBuf::from)));
    }

    #[cfg(unix)]
    #[test]
    fn a_python_that_is_a_link_stands_for_both_environments() {
        let root = tree(&[
            "base/bin/python3.11",
            "base/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            "later/bin/python3",
            "later/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            "venv/bin/activate",
            "venv/lib/python3.11/site-packages/nvidia/cu12/lib/libnvrtc.so.12",
        ]);
        let at = |path: &str| root.path().join(path);
        std::os::unix::fs::symlink(at("base/bin/python3.11"), at("venv/bin/python3")).unwrap();
        let environment = Environment {
            path: list(&[at("venv/bin"), at("later/bin")]),
            ..Environment::default()
        };
        assert_eq!(
            found(root.path(), &environment),
            [
                "venv/lib/python3.11/site-packages/nvidia/cu12/lib/libnvrtc.so.12",
                "base/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            ]
        );
    }

    #[test]
    fn a_named_library_is_the_only_one() {
        let root = tree(&["named/libnvrtc.so.12", "other/libnvrtc.so.13", "empty/file"]);
        let at = |path: &str| root.path().join(path);
        let named = |value: PathBuf| {
            candidates(&Environment {
                hisa_nvrtc: Some(value),
                library_path: list(&[at("other")]),
                ..Environment::default()
            })
        };
        let library = at("named/libnvrtc.so.12");
        for value in [at("named"), library.clone()] {
            assert_eq!(named(value).unwrap().libraries, [library.as_path()]);
        }
        for (value, reason) in [
            ("absent", "there is no such file or folder"),
            (
                "empty",
                "it holds none of libnvrtc.so.13, libnvrtc.so.12, libnvrtc.so",
            ),
        ] {
            let message = named(at(value)).unwrap_err().to_string();
            let expected = format!("HISA_NVRTC is {}: {reason}", at(value).display());
            assert_eq!(message, expected);
        }
    }
}
