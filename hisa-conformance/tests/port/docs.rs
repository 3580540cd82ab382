//! What the documentation shows has to run.

use super::{Stand, findings, stderr};

/// The port at the beginning of `docs/PROTOCOL.md`.
#[test]
fn the_shortest_port_of_the_manual_is_right() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/PROTOCOL.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let code = manual
        .split("```python\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let stand = Stand::new();
    std::fs::write(stand.path("shortest.py"), code).unwrap();
    let (output, report) = stand.fuzz("python3 shortest.py", &["--stage", "index_map"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(findings(&report).is_empty());
    assert_eq!(report["run"]["label"], "shortest");
    stand.assert_clean();
}
