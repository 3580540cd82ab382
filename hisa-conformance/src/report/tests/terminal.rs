//! The text for terminals.

use super::samples;
use crate::report::text::{TextOptions, render, verdicts};
use crate::report::words;

const PLAIN: TextOptions = TextOptions {
    colour: false,
    all_faults: true,
    findings_max: 20,
};

#[test]
fn a_clean_run_reads_as_it_always_did() {
    assert_eq!(
        render(&samples::clean(), &PLAIN),
        include_str!("golden/clean.txt")
    );
}

#[test]
fn a_run_with_findings_reads_as_it_always_did() {
    assert_eq!(
        render(&samples::findings(), &PLAIN),
        include_str!("golden/findings.txt")
    );
}

#[test]
fn rounding_is_told_in_a_line_per_tensor() {
    let text = render(&samples::bounded(), &PLAIN);
    for line in [
        "block_scores.block_scores  90907925 values, 81234567 equal, at most 29 ulps, 42.0 % of \
         the bound",
        "token_scores.token_scores  90907928 values, 81234567 equal, NaN on one side, beyond any \
         bound",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn the_self_test_is_a_table_and_its_holes_are_named() {
    let text = render(&samples::self_test(), &PLAIN);
    assert_eq!(
        text.lines().filter(|line| line.contains("-fault-")).count(),
        90
    );
    let totals = [
        "self-test: 90 faults, 88 caught as meant, 1 by another check, 1 not caught",
        "           idle backend noticed: yes; faultless copy passed: yes; 41.5 s",
    ]
    .join("\n");
    assert!(text.contains(&totals), "{text}");
    assert!(text.contains("NOT CAUGHT (meant: "), "{text}");
    assert!(
        text.contains("because 1 fault of the self-test not caught"),
        "{text}"
    );
    assert!(
        !text.contains("never exercised"),
        "no case was to be run\n{text}"
    );
}

#[test]
fn lines_fit_the_terminal_but_for_what_others_wrote() {
    let mut many = samples::findings();
    for tally in &mut many.summary.tallies {
        tally.failed = 12_345_678;
    }
    let mut reports = samples::all();
    reports.retain(|(name, _)| *name != "hostile");
    reports.push(("many", many));
    for (name, report) in reports {
        for line in render(&report, &PLAIN).lines() {
            let free = ["  case", "  replay", "  because"];
            let is_free = free.iter().any(|word| line.starts_with(word));
            assert!(is_free || line.chars().count() <= 100, "{name}: {line}");
        }
        for line in verdicts(&report, &PLAIN).lines() {
            assert!(line.len() <= 100, "{name}: {line}");
        }
    }
}

#[test]
fn colours_change_nothing_but_colours() {
    let colour = TextOptions {
        colour: true,
        findings_max: 20,
        all_faults: true,
    };
    for (name, report) in samples::all() {
        let painted = render(&report, &colour);
        assert!(painted.contains("\u{1b}["), "{name} has no colours");
        let mut bare = String::new();
        for (at, piece) in painted.split('\u{1b}').enumerate() {
            let rest = piece.split_once('m').map_or(piece, |(_, rest)| rest);
            bare.push_str(if at == 0 { piece } else { rest });
        }
        assert_eq!(bare, render(&report, &PLAIN), "{name}");
    }
}

#[test]
fn nothing_from_outside_controls_the_terminal() {
    let text = render(&samples::hostile(), &PLAIN);
    let harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(harmful), "{text}");
    assert!(!text.contains("\n\\n"), "a line break of somebody else's");
}

#[test]
fn a_replay_line_survives_a_shell() {
    for argument in [
        "it's",
        "a b",
        "$(x)",
        "hisa:M=1,s=3f900000u400x8192",
        "",
        "~",
        "*",
        "-x",
    ] {
        let output = std::process::Command::new("sh")
            .arg("-c")
            .arg(format!("printf %s {}", words::shell(argument)))
            .output()
            .unwrap();
        if argument != "-x" {
            assert_eq!(String::from_utf8(output.stdout).unwrap(), argument);
        }
    }
    let report = samples::findings();
    assert_eq!(
        report.replay(&report.summary.findings[1]),
        "hisa replay --backend 'my port'\\''s kernel' dump/in.safetensors"
    );
    let mut report = report;
    report.run.backend_args = vec!["--port".to_owned(), "python3 port.py".to_owned()];
    assert_eq!(
        report.replay(&report.summary.findings[1]),
        "hisa replay --port 'python3 port.py' dump/in.safetensors"
    );
}

#[test]
fn one_case_is_told_by_job() {
    let text = verdicts(&samples::findings(), &PLAIN);
    let of = |job: &str| text.lines().find(|line| line.starts_with(job)).unwrap();
    assert_eq!(
        of("token_topk"),
        "token_topk    FAIL: selection  pass: runs shape range tail unique count order repeat \
         guard inputs"
    );
    assert!(
        of("append").starts_with("append        skip: runs shape values repeat"),
        "{text}"
    );
    assert!(of("token_scores").contains("known: scores"), "{text}");
    assert!(text.contains("does not apply: nest"), "{text}");
}

#[test]
fn findings_beyond_those_shown_are_counted() {
    let options = TextOptions {
        findings_max: 1,
        ..PLAIN
    };
    let text = render(&samples::findings(), &options);
    assert!(text.contains("1913 more findings not shown"), "{text}");
    assert!(!text.contains("KNOWN"), "{text}");
}

/// `cargo test -p hisa-conformance --lib write_samples -- --ignored`: pages and texts to look at,
/// in the folder for temporary files.
#[test]
#[ignore = "writes files for people"]
fn write_samples() {
    let folder = std::env::temp_dir().join("hisa-report-samples");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, report) in samples::all() {
        let path = |ending: &str| folder.join(format!("{name}.{ending}"));
        std::fs::write(path("txt"), render(&report, &PLAIN)).unwrap();
        crate::report::html::write(&report, &path("html")).unwrap();
        crate::report::json::write(&report, &path("json")).unwrap();
        crate::report::junit::write(&report, &path("xml")).unwrap();
    }
    println!("{}", folder.display());
}
