//! A disk that takes no more, as a file that must not grow: writes fail
//! clearly, reads go on, and all that was acknowledged is there afterwards.

use crate::{PROGRAM, support::Process};
use std::process::{Command, Output};

#[test]
fn writes_fail_clearly_and_reads_go_on() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let serve = |limit: &str| {
        let mut command = Command::new("bash");
        let script = format!("{limit} exec \"$0\" \"$@\"");
        command.arg("-c").arg(script).arg(PROGRAM).arg("serve").arg("--data").arg(place.path().join("data"));
        let server = Process::spawn(command.arg("--listen").arg(&socket));
        server.wait_until_ready();
        server
    };
    let run = |command: &[&str]| -> Output {
        let (first, rest) = command.split_first().unwrap();
        let mut run = Command::new(PROGRAM);
        run.arg(first);
        if *first == "databases" {
            run.arg(rest[0]).arg(&socket).args(&rest[1..]);
        } else {
            run.arg(&socket).args(rest);
        }
        run.output().unwrap()
    };
    let fails = |command: &[&str]| {
        let output = run(command);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // Of 2,000 KiB.
    let mut server = serve("ulimit -f 2000;");
    assert!(run(&["databases", "create", "shop"]).status.success());
    let value = "x".repeat(30_000);
    let key = |number: u32| format!("key{number:04}");
    let mut taken = 0;
    let said = loop {
        let output = run(&["tree", "shop/stock", "put", &key(taken), &value]);
        if !output.status.success() {
            break String::from_utf8(output.stderr).unwrap();
        }
        taken += 1;
        assert!(taken < 100, "the disk takes all");
    };
    // What was under way may be on the disk, or not; what comes later is not.
    let lost = "failed or is full while it was written; whether the transaction was committed is not known";
    assert!(said.contains(lost), "{said}");
    let said = fails(&["tree", "shop/stock", "put", "more", "v"]);
    assert!(said.contains("has failed or is full: it takes no writes until it is started anew"), "{said}");
    assert!(!said.contains("not known"), "{said}");
    assert!(taken > 10);
    let all_is_there = || {
        for number in 0..taken {
            let output = run(&["tree", "shop/stock", "get", &key(number)]);
            assert!(output.status.success() && output.stdout.len() == 30_001, "{number} of {taken}");
        }
    };
    all_is_there();
    let status = run(&["status"]);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(
        status.contains("FAILED: ") && status.contains("it cannot be written: File too large"),
        "{status}"
    );
    server.terminate();
    assert!(server.said().contains("the disk has failed"), "{}", server.said());
    // With room it goes on where it was.
    let _server = serve("");
    all_is_there();
    assert!(run(&["tree", "shop/stock", "put", "more", "v"]).status.success());
}
