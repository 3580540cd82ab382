//! Ports that cannot be used at all: exit status 2, and why.

use super::{Stand, port, stderr};

fn refused(command: &str, more: &[&str]) -> String {
    let stand = Stand::new();
    let args = [
        "fuzz",
        "--cases",
        "3",
        "--seed",
        "3",
        "--no-save",
        "--port",
        command,
    ];
    let output = stand.run(&[&args[..], more].concat());
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{command}: {said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
    stand.assert_clean();
    said
}

#[test]
fn a_port_that_says_no_hello_cannot_be_used() {
    for (fault, why) in [
        ("hello-version", "it speaks version 2, and this is 1"),
        ("hello-stage", "there is no stage \"topk\""),
        ("hello-nonsense", "\"loading model... done\" is no hello"),
        (
            "hello-exit",
            "it ended before its hello: exit status: 1; it last said \"no such device\"",
        ),
    ] {
        let said = refused(&port(fault, 1), &[]);
        assert!(said.contains(why), "{fault}: {said}");
    }
    let said = refused(&port("hello-silent", 1), &["--start-limit", "0.5"]);
    assert!(said.contains("no hello within 500ms"), "{said}");
}

#[test]
fn a_command_that_cannot_be_started_is_named() {
    let said = refused("./no-such-port --fast", &[]);
    assert!(
        said.contains("port:./no-such-port --fast: it ended before its hello"),
        "{said}"
    );
    assert!(said.contains("exit status: 127"), "{said}");
    let said = refused("", &[]);
    assert!(
        said.contains("ended before its hello: exit status: 0"),
        "{said}"
    );
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let stand = Stand::new();
    let command = port("none", 1);
    let args = ["fuzz", "--cases", "3", "--no-save", "--port", &command];
    let output = stand
        .hisa(&args)
        .env("HISA_PORT_DIR", "/no/such/folder")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("/no/such/folder"),
        "{}",
        stderr(&output)
    );
}
