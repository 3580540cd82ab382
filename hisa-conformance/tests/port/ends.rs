//! Runs that end before their time: nothing outlives them.

use super::{STRUCK, Stand, cases, findings, finished, port, signal, stderr};
use std::process::Child;

/// A run whose port has left a daemon behind and hangs; the ids of `hisa` and of its worker.
fn hanging(stand: &Stand, more: &[&str]) -> (Child, u32) {
    let command = port("daemon", 1);
    let args = [
        "fuzz",
        "--cases",
        "9",
        "--seed",
        "3",
        "--jobs",
        "1",
        "--no-save",
        "--no-shrink",
    ];
    let args = [&args[..], &["--port", &command], more].concat();
    let child = stand.hisa(&args).spawn().unwrap();
    stand.wait_for("sleep 1000");
    let mut processes = stand.processes().into_iter();
    let worker = processes.find(|(_, command)| command.ends_with(" worker "));
    (child, worker.unwrap().0)
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    for name in ["INT", "TERM"] {
        let stand = Stand::new();
        let (child, _) = hanging(&stand, &[]);
        signal(child.id(), name);
        let output = finished(child);
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        stand.assert_clean();
    }
}

#[test]
fn a_run_that_is_killed_leaves_no_process_and_no_exchange_file() {
    let stand = Stand::new();
    let state = stand.path("state");
    let (child, _) = hanging(&stand, &["--state", state.to_str().unwrap()]);
    signal(child.id(), "KILL");
    finished(child);
    stand.assert_soon_clean();
}

/// The worker of a port, killed from outside or silent for too long, takes the port along, and the
/// case is run again.
#[test]
fn a_worker_that_is_killed_takes_its_port_along() {
    for name in ["KILL", "STOP"] {
        let stand = Stand::new();
        let (state, json) = (stand.path("state"), stand.path("report.json"));
        let files = [state.to_str().unwrap(), json.to_str().unwrap()];
        let more = ["--state", files[0], "--json", files[1], "--time-limit", "1"];
        let (child, worker) = hanging(&stand, &more);
        signal(worker, name);
        let output = finished(child);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let report = std::fs::read_to_string(&json).unwrap();
        let report = serde_json::from_str(&report).unwrap();
        assert_eq!(cases(&report), 9, "{}", stderr(&output));
        let found = findings(&report);
        assert!(
            found.iter().all(|(_, case, _)| *case == STRUCK),
            "{found:?}"
        );
        assert_eq!(found[0].2["got"], "no end within 1s");
        stand.assert_clean();
    }
}

/// A daemon of a port that behaves otherwise.
#[test]
fn a_daemon_of_a_clean_port_goes_at_the_end() {
    let stand = Stand::new();
    let (output, report) = stand.fuzz(&port("leaves-daemon", 1), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(cases(&report), 9);
    stand.assert_clean();
}
