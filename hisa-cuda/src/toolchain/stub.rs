//! Small shared libraries for tests: what stands for a driver or an NVRTC that is not there.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles C to `folder/name`. None, said aloud, where there is no C compiler.
pub(crate) fn library(folder: &Path, name: &str, source: &str) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no C compiler");
        return None;
    }
    let file = folder.join(name);
    let code = folder.join(format!("{name}.c"));
    std::fs::write(&code, source).unwrap();
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&file, &code])
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    Some(file)
}
