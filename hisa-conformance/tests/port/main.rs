//! Ports: programs that speak the protocol, well and badly. Whatever they do, the run goes on with
//! the next case, and no process and no file of theirs stays.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod answers;
mod commands;
mod docs;
mod ends;
mod hello;
mod limits;
mod speed;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const HISA: &str = env!("CARGO_BIN_EXE_hisa");
const PORT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/port/port.py");
/// A seed whose only case with more rows than the port's limit is [`STRUCK`] among [`CASES`].
const SEED: &str = "3";
const STRUCK: u64 = 7;
const CASES: &str = "9";

/// A place for one test: temporary files of its own, and a mark on all its processes.
struct Stand {
    folder: tempfile::TempDir,
    mark: String,
}

impl Stand {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        Self {
            folder,
            mark: format!("{}-{next}", std::process::id()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn hisa(&self, args: &[&str]) -> Command {
        let mut command = Command::new(HISA);
        command.args(args).env("PORT_MARK", &self.mark);
        command
            .env("TMPDIR", self.path("tmp"))
            .current_dir(self.folder.path());
        command.env_remove("HISA_PORT_DIR");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.hisa(args).output().unwrap()
    }

    /// A run on a port with a fault, without shrinking, with its report.
    fn fuzz(&self, port: &str, more: &[&str]) -> (Output, Value) {
        let report = self.path("report.json");
        let state = self.path("state");
        let args = [
            &[
                "fuzz", "--cases", CASES, "--seed", SEED, "--jobs", "1", "--port", port,
            ][..],
            &[
                "--no-save",
                "--no-shrink",
                "--state",
                state.to_str().unwrap(),
            ],
            &["--json", report.to_str().unwrap()],
            more,
        ];
        let output = self.run(&args.concat());
        let text = std::fs::read_to_string(&report).unwrap_or_else(|_| panic!("{output:?}"));
        (output, serde_json::from_str(&text).unwrap())
    }

    /// Asserts that neither a process nor a temporary file is left.
    fn assert_clean(&self) {
        let left = self.processes();
        assert!(left.is_empty(), "processes stay: {left:?}");
        let files = names_in(&self.path("tmp"));
        assert!(files.is_empty(), "files stay: {files:?}");
    }

    /// The same after a while.
    fn assert_soon_clean(&self) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) && !self.processes().is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.assert_clean();
    }

    /// Processes with the mark of this stand, by id and command.
    fn processes(&self) -> Vec<(u32, String)> {
        let marks = [
            format!("PORT_MARK={}", self.mark),
            format!("DAEMON={}", self.mark),
        ];
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut found = Vec::new();
        for id in ids {
            let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            let mut entries = environment.split(|&byte| byte == 0);
            if entries.any(|entry| marks.iter().any(|mark| mark.as_bytes() == entry)) {
                let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
                let command = String::from_utf8_lossy(&command).replace('\0', " ");
                found.push((id, command));
            }
        }
        found
    }

    /// Waits for a process of this stand with these words in its command.
    fn wait_for(&self, words: &str) -> u32 {
        let begun = Instant::now();
        loop {
            let found = self.processes();
            if let Some((id, _)) = found.iter().find(|(_, command)| command.contains(words)) {
                return *id;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "no {words} in {found:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The interpreter itself: what `python3` names may be a script that looks for it every time.
fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let mut command = Command::new("python3");
        let said = command
            .args(["-c", "import sys; print(sys.executable)"])
            .output();
        String::from_utf8(said.unwrap().stdout)
            .unwrap()
            .trim()
            .to_owned()
    })
}

/// The command of the port with a fault, which takes lists of this many cases. Without `exec` the
/// shell would hold the pipes as well.
fn port(fault: &str, batch: usize) -> String {
    let python = python();
    format!("exec '{python}' -S -E '{PORT}' {fault} {batch}")
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Ids of the checks that failed, with the number of the case and the detail.
fn findings(report: &Value) -> Vec<(String, u64, &Value)> {
    let found = report["summary"]["findings"].as_array().unwrap().iter();
    found
        .map(|found| {
            let check = found["check"].as_u64().unwrap() as usize;
            let id = report["checks"][check]["id"].as_str().unwrap().to_owned();
            (
                id,
                found["source"]["index"].as_u64().unwrap(),
                &found["detail"],
            )
        })
        .collect()
}

fn cases(report: &Value) -> u64 {
    report["summary"]["cases"]["ragged"].as_u64().unwrap_or(0)
}

/// Sends a signal by the shell's name for it.
fn signal(id: u32, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &id.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Waits for a program, but not for ever.
fn finished(mut child: Child) -> Output {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
            panic!("it does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}
