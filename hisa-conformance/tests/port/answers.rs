//! What a port answers: right, wrong, and not at all.

use super::{STRUCK, Value};
use super::{Stand, cases, findings, port, stderr};

#[test]
fn a_right_port_is_clean_one_by_one_and_in_lists() {
    for batch in [1, 3, 64] {
        let stand = Stand::new();
        let (output, report) = stand.fuzz(&port("none", batch), &[]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!((cases(&report), findings(&report).len()), (9, 0));
        assert_eq!(report["run"]["label"], "tiny-none");
        assert_eq!(report["run"]["arithmetic"], "exact");
        let passed = |id: &str| tally(&report, id, "passed");
        assert!(passed("index_map.values") > 3 && passed("block_mask.mask") > 3);
        assert!(passed("index_map.stale") > 3 && passed("block_mask.repeat") > 3);
        // What it does to its own memory nobody sees, and nobody claims to.
        for id in ["index_map.guard", "block_mask.inputs"] {
            assert_eq!(passed(id), 0);
            assert!(tally(&report, id, "skipped") > 3);
        }
        stand.assert_clean();
    }
}

fn tally(report: &Value, id: &str, what: &str) -> u64 {
    let checks = report["checks"].as_array().unwrap();
    let at = checks.iter().position(|check| check["id"] == id).unwrap();
    report["summary"]["tallies"][at][what].as_u64().unwrap()
}

/// Runs a port with a fault; what the first finding says it got, and the words on its stderr. Only
/// the case it strikes on may have findings, all cases are run, and nothing stays.
fn struck(fault: &str, batch: usize, limit: &str) -> (String, String, String) {
    let stand = Stand::new();
    let (output, report) = stand.fuzz(&port(fault, batch), &["--time-limit", limit]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{fault}: {said}");
    assert_eq!(cases(&report), 9, "{fault}: a case is missing: {said}");
    let found = findings(&report);
    let places: Vec<_> = found.iter().map(|(id, case, _)| (id, case)).collect();
    assert!(
        found.iter().all(|(_, case, _)| *case == STRUCK),
        "{fault}: {places:?}"
    );
    stand.assert_clean();
    let (id, _, detail) = &found[0];
    let words = detail["stderr"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    (
        id.clone(),
        detail["got"].as_str().unwrap().to_owned(),
        words.join("\n"),
    )
}

/// One by one and in lists, in turn: enough where the reply itself is fine.
const IN_TURN: &[&[usize]] = &[&[1], &[8]];
/// Each fault in both ways.
const BOTH: &[&[usize]] = &[&[1, 8]];

fn assert_struck(faults: &[(&str, &str, &str)], batches: &[&[usize]]) {
    let batches = batches.iter().cycle();
    for (&(fault, check, got), batches) in faults.iter().zip(batches) {
        for &batch in *batches {
            let (id, text, _) = struck(fault, batch, "20");
            assert_eq!(id, check, "{fault}, lists of {batch}: {text}");
            assert!(text.contains(got), "{fault}, lists of {batch}: {text}");
        }
    }
}

/// Output files that are not what was asked for.
#[test]
fn wrong_files_are_findings() {
    assert_struck(
        &[
            (
                "dtype",
                "block_mask.runs",
                "tensor \"block_mask\" is F64; accepted: F32",
            ),
            ("too-wide", "index_map.runs", "1099511627776"),
            ("nan", "block_mask.mask", "NaN"),
            (
                "missing",
                "block_mask.runs",
                "tensor \"block_mask\" is missing",
            ),
            ("shape", "block_mask.shape", "f32 ["),
            ("short", "block_mask.shape", "f32 ["),
        ],
        IN_TURN,
    );
}

#[test]
fn damaged_files_are_findings() {
    assert_struck(
        &[
            ("truncated", "block_mask.runs", "the output file"),
            (
                "oversized",
                "block_mask.runs",
                "the file takes 1073741824 bytes, above the limit",
            ),
            ("huge-tensor", "block_mask.runs", "the output file"),
            ("no-file", "block_mask.runs", "no output file was written"),
            ("folder", "block_mask.runs", "the output file"),
            ("pipe", "block_mask.runs", "the output file"),
        ],
        IN_TURN,
    );
}

#[test]
fn wrong_values_and_old_contents_are_findings() {
    for batch in [1, 8] {
        assert_eq!(struck("wrong", batch, "20").0, "index_map.range");
        let (id, got, _) = struck("stale", batch, "20");
        assert_eq!(id, "block_mask.stale", "{got}");
    }
}

/// What is allowed beyond what is needed.
#[test]
fn wide_ids_and_further_tensors_and_files_are_no_findings() {
    for fault in ["wide", "extra", "other-files"] {
        let stand = Stand::new();
        let (output, report) = stand.fuzz(&port(fault, 4), &[]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{fault}: {}",
            stderr(&output)
        );
        assert_eq!(cases(&report), 9);
        stand.assert_clean();
    }
}

/// Lines that are no reply to what was asked.
#[test]
fn broken_lines_are_findings() {
    assert_struck(
        &[
            (
                "garbage",
                "block_mask.runs",
                "\"Segmentation fault, sort of\" is no reply",
            ),
            (
                "wrong-id",
                "block_mask.runs",
                "broke the protocol: a reply to request",
            ),
            (
                "half",
                "block_mask.runs",
                "is gone: exit status: 0, within the line",
            ),
            ("binary", "block_mask.runs", "is no reply"),
            (
                "huge-line",
                "block_mask.runs",
                "a line of more than 1048576 bytes",
            ),
        ],
        BOTH,
    );
}

#[test]
fn broken_replies_are_findings() {
    assert_struck(
        &[
            ("no-why", "block_mask.runs", "broke the protocol"),
            ("unknown-key", "block_mask.runs", "unknown field `took`"),
        ],
        BOTH,
    );
    // In answer to a list, one status is none.
    let (id, got, _) = struck("error", 8, "20");
    assert_eq!(id, "block_mask.runs");
    assert!(got.contains("out of memory"), "{got}");
}

#[test]
fn what_a_port_reports_is_told_with_its_words() {
    let (id, got, words) = struck("error", 1, "20");
    assert_eq!(
        (id.as_str(), got.as_str()),
        ("block_mask.runs", "error: out of memory")
    );
    assert_eq!(words, "the allocator is sad");
    let (_, got, _) = struck("refused", 1, "20");
    assert_eq!(got, "refused: ks looks odd");
    let stand = Stand::new();
    let (output, report) = stand.fuzz(&port("unsupported", 1), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let skips = report["summary"]["skips"].as_object().unwrap();
    assert!(
        skips.keys().any(|why| why == "index_map: too many rows"),
        "{skips:?}"
    );
    stand.assert_clean();
}

/// Every line is a reply, but there are too many, or too few.
#[test]
fn a_second_reply_breaks_what_comes_after_it() {
    let (id, got, _) = struck("twice", 1, "20");
    assert!(id.starts_with("block_mask."), "{id}");
    assert!(
        got.contains("a line nobody asked for") || got.contains("a reply to"),
        "{got}"
    );
    let (id, got, _) = struck("short-list", 8, "20");
    assert_eq!(id, "block_mask.runs");
    assert!(got.contains("3 statuses for 4 cases"), "{got}");
}

/// Each output where another should be: the status says ok, and the checks do not.
#[test]
fn outputs_out_of_order_are_found() {
    let stand = Stand::new();
    let (output, report) = stand.fuzz(&port("swapped", 8), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let found = findings(&report);
    assert!(
        found.iter().all(|(id, ..)| !id.ends_with("stale")),
        "{found:?}"
    );
    assert!(
        found.iter().any(|(id, ..)| id == "block_mask.runs"),
        "{found:?}"
    );
    assert_eq!(cases(&report), 9);
    stand.assert_clean();
}

#[test]
fn an_answer_before_the_question_is_a_finding() {
    let stand = Stand::new();
    let (output, report) = stand.fuzz(&port("early", 1), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let found = findings(&report);
    let got = found[0].2["got"].as_str().unwrap();
    assert!(
        got.contains("a line nobody asked for") || got.contains("no reply"),
        "{got}"
    );
    stand.assert_clean();
}

/// A port that ends is told with its status and its last words.
#[test]
fn ends_are_findings() {
    for batch in [1, 8] {
        let (id, got, words) = struck("exit", batch, "20");
        assert_eq!(
            (id.as_str(), got.as_str()),
            ("block_mask.runs", "the port is gone: exit status: 3")
        );
        assert_eq!(words, "first words\nlast words");
        let (_, got, _) = struck("signal", batch, "20");
        assert!(
            got.contains("SIGSEGV") || got.contains("status: 139"),
            "{got}"
        );
        let (_, got, _) = struck("closes-stdout", batch, "20");
        assert_eq!(got, "the port is gone: it closed its output");
    }
}

#[test]
fn a_hundred_megabytes_of_complaints_are_cut_to_the_last_lines() {
    let (_, got, words) = struck("noise", 1, "20");
    assert_eq!(got, "the port is gone: exit status: 1");
    assert!(
        words.len() < 10_000 && words.starts_with("xxx"),
        "{} bytes",
        words.len()
    );
}

#[test]
fn hangs_are_findings() {
    let (id, got, words) = struck("hang", 1, "0.6");
    assert_eq!(
        (id.as_str(), got.as_str()),
        ("block_mask.runs", "no end within 600ms")
    );
    assert_eq!(words, "thinking");
    assert_eq!(struck("no-newline", 1, "0.6").1, "no end within 600ms");
}

#[test]
fn hangs_in_lists_are_findings() {
    let (id, got, words) = struck("hang", 8, "0.6");
    assert_eq!(
        (id.as_str(), got.as_str()),
        ("block_mask.runs", "no end within 600ms")
    );
    assert_eq!(words, "thinking");
}

#[test]
fn a_port_that_reads_no_more_is_a_finding() {
    let (_, got, _) = struck("closes-stdin", 1, "0.6");
    assert!(
        got.contains("it closed its input") || got.contains("no end within"),
        "{got}"
    );
}

/// What a port leaves behind goes with it.
#[test]
fn children_of_a_port_go_with_it() {
    for fault in ["sleeper", "sleeper-setsid"] {
        let (_, got, _) = struck(fault, 1, "20");
        assert_eq!(got, "the port is gone: exit status: 1");
    }
    assert_eq!(struck("daemon", 1, "0.6").1, "no end within 600ms");
}
