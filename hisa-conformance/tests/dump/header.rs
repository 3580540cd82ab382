//! Containers: lengths, JSON, names, offsets, each refused by name and number.

use super::{file, open};
use hisa_conformance::dump::{
    DumpError, FILE_BYTES_MAX, HEADER_BYTES_MAX, HeaderError, TensorFile,
};

const A8: &str = r#""a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;

/// One tensor `a` in a file of 8 data bytes.
fn one(dtype: &str, shape: &str, offsets: &str) -> Vec<u8> {
    let header =
        format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#);
    file(&header, &[0; 8])
}

/// F32 `a` at [0, 8) and U8 [4] `b` wherever it says, in a file of 12 data bytes.
fn two(offsets: &str) -> Vec<u8> {
    let header = format!(r#"{{{A8},"b":{{"dtype":"U8","shape":[4],"data_offsets":{offsets}}}}}"#);
    file(&header, &[0; 12])
}

/// Each file is refused with this variant of [`HeaderError`] and exactly this message.
fn assert_refused(table: &[(Vec<u8>, &str, &str)]) {
    for (bytes, variant, words) in table {
        let error = open(bytes).unwrap_err();
        let DumpError::Header { problem, .. } = &error else {
            panic!("{words}: {error:?}")
        };
        let debug = format!("{problem:?}");
        assert_eq!(debug.split(' ').next(), Some(*variant), "{words}");
        assert_eq!(error.to_string(), format!("x.safetensors: {words}"));
    }
}

#[test]
fn lengths_that_do_not_fit_the_file() {
    let alone = "the length of the header alone takes 8";
    let tail = "bytes, but only";
    assert_refused(&[
        (
            vec![],
            "TooShort",
            &format!("the file holds 0 bytes; {alone}"),
        ),
        (
            vec![1; 7],
            "TooShort",
            &format!("the file holds 7 bytes; {alone}"),
        ),
        (
            file("{}", &[])[..9].to_vec(),
            "Truncated",
            &format!("the header is declared as 2 {tail} 1 follow"),
        ),
        (
            vec![0xFF; 16],
            "Truncated",
            &format!("the header is declared as 18446744073709551615 {tail} 8 follow"),
        ),
        (
            file(&" ".repeat(HEADER_BYTES_MAX as usize + 1), &[]),
            "TooLarge",
            "the header takes 4194305 bytes, above the limit of 4194304",
        ),
    ]);
}

#[test]
fn headers_that_are_not_headers() {
    let no_brace = "it does not begin with {";
    for (header, reason) in [
        ("", no_brace),
        (" {}", no_brace),
        ("[]", no_brace),
        ("{", "EOF while parsing an object at line 1 column 1"),
        ("{}x", "trailing characters at line 1 column 3"),
        (
            r#"{"a":1}"#,
            "invalid type: integer `1`, expected struct RawTensor at line 1 column 6",
        ),
        (
            r#"{"__metadata__":{"k":1}}"#,
            "invalid type: integer `1`, expected a string at line 1 column 22",
        ),
        (
            r#"{"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,8]}}"#,
            "invalid value: integer `-2`, expected u64 at line 1 column 30",
        ),
        (
            r#"{"a":{"dtype":"U8","dtype":"U8"}}"#,
            "duplicate field `dtype` at line 1 column 26",
        ),
        (
            r#"{"a":{"dtype":"U8"}}"#,
            "missing field `shape` at line 1 column 19",
        ),
    ] {
        let words = format!("the header is not a safetensors header: {reason}");
        assert_refused(&[(file(header, &[]), "NotJson", &words)]);
    }
}

#[test]
fn names_given_twice_or_too_long() {
    let long = "n".repeat(300);
    let named = format!(r#"{{"{long}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}}}"#);
    let shown = "n".repeat(32);
    assert_refused(&[
        (
            file(&format!("{{{A8},{A8}}}"), &[0; 8]),
            "Duplicate",
            "the header names \"a\" twice",
        ),
        (
            file(r#"{"__metadata__":{},"__metadata__":{}}"#, &[]),
            "Duplicate",
            "the header names \"__metadata__\" twice",
        ),
        (
            file(r#"{"__metadata__":{"k":"1","k":"2"}}"#, &[]),
            "DuplicateMetadata",
            "the metadata names \"k\" twice",
        ),
        (
            file(&named, &[]),
            "NameTooLong",
            &format!("the name \"{shown}..\".. takes 300 bytes, above the limit of 256"),
        ),
    ]);
}

#[test]
fn tensors_that_contradict_themselves() {
    assert_refused(&[
        (
            one("E4M3", "[8]", "[0,8]"),
            "UnknownDtype",
            "tensor \"a\" has the unknown dtype \"E4M3\"",
        ),
        (
            one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"),
            "Rank",
            "tensor \"a\" has 9 dimensions, above the limit of 8",
        ),
        (
            one("F32", "[4294967296,4294967296]", "[0,8]"),
            "Overflow",
            "tensor \"a\" has shape [4294967296, 4294967296], more F32 than can be addressed",
        ),
        (
            one("U8", "[4294967296,0,4294967296]", "[0,0]"),
            "Overflow",
            "tensor \"a\" has shape [4294967296, 0, 4294967296], more U8 than can be addressed",
        ),
        (
            one("F4", "[3]", "[0,8]"),
            "PartialByte",
            "tensor \"a\" has shape [3], which does not fill whole bytes as F4",
        ),
        (
            one("F32", "[2]", "[8,0]"),
            "Backwards",
            "tensor \"a\" ends at offset 0, before its begin 8",
        ),
        (
            one("F32", "[3]", "[0,8]"),
            "Size",
            "tensor \"a\" is F32 [3], 12 bytes, but its offsets span 8",
        ),
        (
            one("U8", "[1000000000000]", "[0,1000000000000]"),
            "PastEnd",
            "tensor \"a\" ends at offset 1000000000000, but the file holds 8 bytes of data",
        ),
    ]);
}

#[test]
fn tensors_that_contradict_each_other() {
    assert_refused(&[
        (
            two("[6,10]"),
            "Overlap",
            "tensor \"b\" begins at offset 6, inside \"a\", which ends at 8",
        ),
        (
            two("[0,4]"),
            "Overlap",
            "tensor \"a\" begins at offset 0, inside \"b\", which ends at 4",
        ),
        (
            one("U8", "[4]", "[4,8]"),
            "Gap",
            "tensor \"a\" begins at offset 4; the bytes from 0 are no tensor's",
        ),
        (
            file(&format!("{{{A8}}}"), &[0; 9]),
            "Trailing",
            "the tensors end at offset 8, but the file holds 9 bytes of data",
        ),
    ]);
}

#[test]
fn a_file_beyond_its_cap_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse.safetensors");
    let sparse = std::fs::File::create(&path).unwrap();
    if sparse.set_len(FILE_BYTES_MAX + 1).is_err() {
        return; // A file system without sparse files cannot hold the case.
    }
    let error = TensorFile::open(&path).unwrap_err();
    let limit = FILE_BYTES_MAX;
    assert!(
        matches!(&error, DumpError::Header { problem: HeaderError::FileTooLarge { bytes, .. }, .. }
            if *bytes == limit + 1),
        "{error}"
    );
}

#[test]
fn paths_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.safetensors");
    let error = TensorFile::open(&missing).unwrap_err();
    assert!(
        matches!(&error, DumpError::Io { action: "open", source, .. }
            if source.kind() == std::io::ErrorKind::NotFound)
    );
    assert!(
        error
            .to_string()
            .contains("none.safetensors: cannot open: "),
        "{error}"
    );
    let error = TensorFile::open(folder.path()).unwrap_err();
    assert!(matches!(&error, DumpError::NotAFile { file } if file == folder.path()));
}
