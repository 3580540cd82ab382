//! Compiles units into shared libraries, once for each text.

use libloading::Library;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// A loaded library. Calls into it must not overlap, as its threads and shared memory are static.
pub(super) type Shared = &'static Mutex<Library>;

type Slot = &'static OnceLock<Mutex<Library>>;

/// Undefined behaviour that a device would turn into wrong numbers or faults.
const CHECKS: &str = "-fsanitize=shift,bounds,alignment,signed-integer-overflow,\
                      integer-divide-by-zero,float-cast-overflow";
const FLAGS: [&str; 9] = [
    "-std=c++17",
    "-O1",
    "-g",
    "-Werror=float-conversion",
    "-fPIC",
    "-I.",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
];
const SOURCES: [&str; 4] = ["scheduler.cpp", "launch.cpp", "matrix.cpp", "undefined.cpp"];
const DYNAMIC: &str = "extern __shared__ __align__(16) unsigned char dynamic_shared[];";

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn emulator() -> PathBuf {
    package().join("tests/emulator")
}

fn compiler() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned())
}

/// Whether there is a C++ compiler. Says so where there is none, and panics where one is required.
pub(crate) fn have_compiler() -> bool {
    let found = Command::new(compiler()).arg("--version").output();
    if found.is_ok_and(|output| output.status.success()) {
        return true;
    }
    let required = std::env::var_os("HISA_REQUIRE_EMULATOR").unwrap_or_default();
    assert!(
        required.is_empty(),
        "HISA_REQUIRE_EMULATOR is set, and {} does not run",
        compiler()
    );
    eprintln!(
        "SKIPPED: no C++ compiler ({}) to emulate kernels with",
        compiler()
    );
    false
}

/// The text of a file of `src/kernels`.
pub(crate) fn kernel_text(file: &str) -> String {
    std::fs::read_to_string(package().join("src/kernels").join(file)).unwrap()
}

/// The library of a unit, compiled unless the same texts were compiled before.
///
/// `texts` replace files of `src/kernels`, or add to them, by their path in that folder.
pub(super) fn unit(file: &str, texts: &[(&str, String)], defines: &[&str]) -> Shared {
    let mut sources = headers();
    for &(name, ref text) in texts {
        sources.retain(|(known, _)| known != name);
        sources.push((name.to_owned(), text.clone()));
    }
    if texts.iter().all(|&(name, _)| name != file) {
        sources.push((file.to_owned(), kernel_text(file)));
    }
    let names = included(file, &sources);
    sources.retain(|(name, _)| !name.starts_with("common/") || names.contains(name));
    let kernels = sources.iter().filter(|(name, _)| names.contains(name));
    let wrapper = wrapper(file, kernels.flat_map(|(_, text)| entries(text)));
    for (_, text) in &mut sources {
        *text = text.replace(
            DYNAMIC,
            "#define dynamic_shared (emulator::shared_memory())",
        );
    }
    sources.push(("unit.cpp".to_owned(), wrapper));
    let folder = folder(&sources, defines);
    slot(&folder).get_or_init(|| {
        if !folder.exists() {
            build(&folder, &sources, defines);
        }
        // SAFETY: its initialisers only fill in the table of entries.
        Mutex::new(unsafe { Library::new(folder.join("unit.so")).unwrap() })
    })
}

/// Where the library of this folder stands once it is loaded: there is one for all who ask.
fn slot(folder: &Path) -> Slot {
    static SLOTS: Mutex<Option<HashMap<PathBuf, Slot>>> = Mutex::new(None);
    let mut slots = SLOTS.lock().unwrap();
    let slots = slots.get_or_insert_default();
    slots
        .entry(folder.to_owned())
        .or_insert_with(|| Box::leak(Box::default()))
}

fn build(folder: &Path, sources: &[(String, String)], defines: &[&str]) {
    let scratch = write(folder, sources);
    let mut objects = vec![compile(scratch.path(), "unit.cpp", defines, &[CHECKS])];
    if defines.is_empty() {
        objects.extend(runtime().iter().map(|name| folder_of_runtime().join(name)));
    } else {
        let names = SOURCES.iter();
        objects.extend(names.map(|name| compile(scratch.path(), name, defines, &[])));
    }
    link(scratch.path(), &objects);
    keep(scratch, folder);
}

/// The file and all that it includes, directly or not.
fn included(file: &str, sources: &[(String, String)]) -> Vec<String> {
    let mut names = vec![file.to_owned()];
    let mut next = 0;
    while let Some(name) = names.get(next) {
        next += 1;
        let text = sources.iter().find(|(known, _)| known == name);
        let lines = text.iter().flat_map(|(_, text)| text.lines());
        let found: Vec<_> = lines
            .filter_map(|line| line.strip_prefix("#include \"")?.split('"').next())
            .filter(|name| !names.iter().any(|known| known == name))
            .map(str::to_owned)
            .collect();
        names.extend(found);
    }
    names
}

/// Entries have internal linkage here, so that units cannot meet.
fn wrapper(file: &str, entries: impl Iterator<Item = (String, String)>) -> String {
    let mut wrapper = format!("#include \"cuda.hpp\"\nnamespace {{\n#include \"{file}\"\n}}\n");
    for (name, bounds) in entries {
        wrapper += &format!("EMULATOR_ENTRY({name}, {bounds})\n");
    }
    wrapper
}

/// Names of the functions marked `__global__`, with their launch bounds.
fn entries(text: &str) -> Vec<(String, String)> {
    let lines = text.lines();
    let code: Vec<&str> = lines
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect();
    let code = code.join(" ");
    let entry = |piece: &str| {
        let (mut head, mut bounds) = (piece.split('{').next()?, "1024");
        if let Some((_, rest)) = head.split_once("__launch_bounds__(") {
            (bounds, head) = rest.split_once(')')?;
        }
        let name = head.split('(').next()?.split_whitespace().next_back()?;
        Some((name.to_owned(), bounds.to_owned()))
    };
    code.split("__global__").skip(1).filter_map(entry).collect()
}

/// The emulator's own files and the common headers of the kernels, one of them replaced.
fn headers() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for (folder, under) in [
        (emulator(), ""),
        (package().join("src/kernels/common"), "common/"),
        (emulator().join("common"), "common/"),
    ] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{under}{}", path.file_name().unwrap().to_str().unwrap());
            let kind = path.extension().and_then(|ending| ending.to_str());
            if matches!(kind, Some("hpp" | "cpp" | "cuh")) {
                files.retain(|(known, _)| *known != name);
                files.push((name, std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

fn folder(sources: &[(String, String)], defines: &[&str]) -> PathBuf {
    let mut hash = Sha256::new();
    for part in FLAGS.iter().chain(defines).chain([&CHECKS]) {
        hash.update(part);
    }
    hash.update(compiler());
    for (name, text) in sources {
        hash.update(name);
        hash.update(text);
    }
    let digest = hash.finalize();
    let name: String = digest[..12]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("emulator")
        .join(name)
}

/// The sources in a new folder beside where they belong.
fn write(folder: &Path, sources: &[(String, String)]) -> tempfile::TempDir {
    let parent = folder.parent().unwrap();
    std::fs::create_dir_all(parent).unwrap();
    let scratch = tempfile::tempdir_in(parent).unwrap();
    std::fs::create_dir(scratch.path().join("common")).unwrap();
    for (name, text) in sources {
        std::fs::write(scratch.path().join(name), text).unwrap();
    }
    scratch
}

/// Moves a finished folder to its name; another process may have been faster.
fn keep(scratch: tempfile::TempDir, folder: &Path) {
    if std::fs::rename(scratch.path(), folder).is_ok() {
        let _moved = scratch.keep();
    }
    assert!(folder.exists(), "{} could not be made", folder.display());
}

fn folder_of_runtime() -> PathBuf {
    let own = headers()
        .into_iter()
        .filter(|(name, _)| !name.starts_with("common/"));
    folder(&own.collect::<Vec<_>>(), &["runtime"])
}

/// Object files of the emulator itself, compiled once.
fn runtime() -> &'static [String] {
    static OBJECTS: OnceLock<Vec<String>> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        let folder = folder_of_runtime();
        if !folder.exists() {
            let scratch = write(&folder, &headers());
            for name in SOURCES {
                compile(scratch.path(), name, &[], &[]);
            }
            keep(scratch, &folder);
        }
        SOURCES.iter().map(|name| format!("{name}.o")).collect()
    })
}

fn compile(folder: &Path, source: &str, defines: &[&str], more: &[&str]) -> PathBuf {
    let object = folder.join(format!("{source}.o"));
    let mut command = Command::new(compiler());
    command.current_dir(folder).args(FLAGS).args(more);
    command.args(defines.iter().map(|define| format!("-D{define}")));
    run(command.args(["-c", source, "-o"]).arg(&object));
    object
}

fn link(folder: &Path, objects: &[PathBuf]) {
    let mut command = Command::new(compiler());
    command.args(["-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs,-z,nodelete", "-o"]);
    run(command.arg(folder.join("unit.so")).args(objects).arg("-lm"));
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{log}");
}
