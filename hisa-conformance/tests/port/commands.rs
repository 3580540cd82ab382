//! Ports on the command line.

use super::{Stand, findings, port, stderr, stdout};
use hisa_conformance::case::Case;
use hisa_conformance::problem::Problem;
use hisa_conformance::save::{Origin, save};

/// A wrong port is found, its case made small through the protocol, and the line replays it.
#[test]
fn a_finding_is_shrunk_through_the_port_and_replayed_by_its_line() {
    let stand = Stand::new();
    let command = port("wrong", 16);
    let args = [
        "fuzz", "--cases", "9", "--seed", "3", "--jobs", "1", "--port", &command,
    ];
    let output = stand.run(&args);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("replay "))
        .unwrap();
    let line = line.trim_start().trim_start_matches("replay").trim();
    assert!(
        line.starts_with("hisa replay --port 'exec '\\''/"),
        "{line}"
    );
    // The fault needs seven rows and one id from 1 on.
    assert!(
        line.contains("'hisa:M=7,N=2,H=1,D=1,B=1,m=1,K=1,"),
        "{line}"
    );
    let again = line.replacen("hisa", super::HISA, 1);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &again]).env("PORT_MARK", &stand.mark);
    let replayed = shell.current_dir(stand.folder.path()).output().unwrap();
    assert_eq!(replayed.status.code(), Some(1), "{replayed:?}");
    assert!(
        stdout(&replayed).contains("FAIL index_map.range"),
        "{replayed:?}"
    );
    let saved = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("saved "));
    let saved = stand.path(saved.unwrap().trim());
    let output = stand.run(&["replay", "--port", &command, saved.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    stand.assert_clean();
}

#[test]
fn several_ports_have_a_report_each_and_one_table() {
    let stand = Stand::new();
    let commands = ["none", "wrong", "limits"].map(|fault| port(fault, 8));
    let args = [
        "fuzz",
        "--cases",
        "9",
        "--seed",
        "3",
        "--no-save",
        "--no-shrink",
        "--json",
        "r.json",
    ];
    let ports = commands
        .iter()
        .flat_map(|command| ["--port", command.as_str()]);
    let args: Vec<&str> = args.into_iter().chain(ports).collect();
    let output = stand.run(&args);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let labels: Vec<String> = (1..=3)
        .map(|number| {
            let text = std::fs::read_to_string(stand.path(&format!("r-{number}.json"))).unwrap();
            let report: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(findings(&report).is_empty(), number != 2);
            report["run"]["label"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(labels, ["tiny-none", "tiny-wrong", "tiny-limits"]);
    let text = stdout(&output);
    let table: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.contains("1:tiny-none"))
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|word| !word.is_empty())
                .collect()
        })
        .collect();
    assert_eq!(table[0], ["1:tiny-none", "2:tiny-wrong", "3:tiny-limits"]);
    assert!(
        table.iter().any(|row| row[..2] == ["block_mask", "ok"]),
        "{text}"
    );
    assert!(
        table
            .iter()
            .any(|row| row[0] == "index_map" && row[2].starts_with("FAIL")),
        "{text}"
    );
    assert_eq!(
        *table.last().unwrap(),
        ["run", "clean", "not clean", "clean"]
    );
    stand.assert_clean();
}

#[test]
fn a_port_that_cannot_be_used_keeps_no_other_from_its_run() {
    let stand = Stand::new();
    let (bad, good) = (port("hello-version", 1), port("none", 1));
    let args = [
        "fuzz",
        "--cases",
        "2",
        "--seed",
        "3",
        "--no-save",
        "--port",
        &bad,
        "--port",
        &good,
    ];
    let output = stand.run(&args);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("1:tiny-none"),
        "{}",
        stdout(&output)
    );
    let args = [
        "fuzz", "--cases", "2", "--json", "-", "--port", &good, "--port", &good,
    ];
    let output = stand.run(&args);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("--json - holds one report"),
        "{}",
        stderr(&output)
    );
    let args = ["replay", "--port", &good, "--port", &good, "hisa:x"];
    let output = stand.run(&args);
    assert_eq!(output.status.code(), Some(2));
    stand.assert_clean();
}

#[test]
fn a_port_is_checked_on_a_dump() {
    let stand = Stand::new();
    let case = Case::with_cu(&[0, 3, 9]);
    let problem = Problem::new(&case).unwrap();
    let input = save(&problem, &Origin::default(), stand.folder.path()).unwrap();
    let input = input.to_str().unwrap();
    let check = |fault: &str| {
        let command = port(fault, 1);
        stand.run(&["check", "--input", input, "--port", &command])
    };
    let output = check("none");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains("compared value by value: block_mask, indices; 0 of 2 differ"),
        "{said}"
    );
    assert!(
        said.contains("block_pool (block_pool is not offered), block_scores"),
        "{said}"
    );
    let output = check("wrong");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output).starts_with("FAIL indices["),
        "{}",
        stdout(&output)
    );
    let output = check("exit");
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    let first = "FAIL block_mask: the port is gone: exit status: 3 | first words | last words";
    assert!(text.contains(first), "{text}");
    let output = check("hello-version");
    assert_eq!(output.status.code(), Some(2));
    stand.assert_clean();
}
