//! Machines that have joined by a token keep the credential of servers in their folders, and rotate it
//! there.

use crate::{PROGRAM, support::Process, waiting::wait_until};
use rustix::process::Signal;
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

fn socket(name: &str) -> String {
    format!("./{name}.sock")
}

fn run(place: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM).current_dir(place).args(arguments).output().unwrap()
}

fn serve(place: &Path, name: &str, more: &[&str]) -> Process {
    let mut command = Command::new(PROGRAM);
    command.current_dir(place).args(["serve", "--data", name, "--listen", &socket(name)]).args(more);
    let process = Process::spawn(command.args(["--credential-file", "clients"]));
    process.wait_until_ready();
    process
}

/// States of the machines, as one of them knows them.
fn states(place: &Path, name: &str) -> String {
    let arguments = ["cluster", "status", &socket(name), "--json", "--credential-file", "clients"];
    let output = run(place, &[&arguments[..], &["--connect-timeout", "0.3"]].concat());
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let machines = status["machines"].as_array().unwrap().iter();
    machines.map(|machine| machine["state"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

fn wait_for_states(server: &Process, place: &Path, name: &str, wanted: &str) {
    wait_until(server, || states(place, name) == wanted);
}

/// Sends SIGHUP. Returns the line of the log about the reload.
fn reload(server: &Process) -> String {
    let texts = ["were read again", "cannot be read: the former stay in force"];
    let lines = || {
        let said = server.said();
        let lines = said.lines().filter(|line| texts.iter().any(|text| line.contains(text)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = lines().len();
    server.signal(Signal::HUP);
    wait_until(server, || lines().len() > before);
    lines().pop().unwrap()
}

#[test]
fn machines_that_have_joined_rotate_the_credential_in_their_folders() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let write = |name: &str, content: &str| fs::write(place.join(name), content).unwrap();
    write("clients", "client\n");
    write("servers", "old\n");
    let founder_options = ["--peer-credential-file", "servers"];
    let founder = serve(place, "a", &founder_options);
    let join = |name: &str| {
        let options = ["--token-file", "token", "--peer-credential-file", "servers"];
        let added = run(place, &[&["cluster", "add", &socket("a")][..], &options].concat());
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let process = serve(place, name, &["--join", &socket("a"), "--token-file", "token"]);
        fs::remove_file(place.join("token")).unwrap();
        process
    };
    let remove = |machine: &str, credential: &str| {
        let options = ["--peer-credential-file", credential];
        run(place, &[&["cluster", "remove", &socket("a"), machine][..], &options].concat())
    };
    let (mut second, mut third) = (join("b"), join("c"));
    wait_for_states(&founder, place, "a", "serving serving serving");
    assert!(remove("3", "servers").status.success());
    assert_eq!(third.wait().code(), Some(1), "{}", third.said());
    let rotate = |content: &str, joined: &[(&str, &Process)]| {
        write("servers", content);
        for (name, process) in joined {
            write(&format!("{name}/peer-credential"), content);
            assert!(reload(process).contains("were read again"));
        }
        assert!(reload(&founder).contains("were read again"));
    };
    rotate("old\nnew\n", &[("b", &second)]);
    rotate("new\nold\n", &[("b", &second)]);
    // The founder has the directory, and says when the former credential proves no entry of it.
    let proves = "the first server credential proves the entries of the directory";
    let count = || founder.said().matches(proves).count();
    let before = count();
    assert!(reload(&founder).contains("were read again"));
    wait_until(&founder, || count() > before);
    // A machine that joins meanwhile gets both.
    let fourth = join("d");
    let all = "serving serving removed serving";
    wait_for_states(&founder, place, "a", all);
    rotate("new\n", &[("b", &second), ("d", &fourth)]);
    // A removed machine stays removed in the directory, which is read for the next one.
    let _fifth = join("e");
    let all = "serving serving removed serving serving";
    wait_for_states(&founder, place, "a", all);
    second.terminate();
    let second = serve(place, "b", &[]);
    wait_for_states(&second, place, "b", all);
    write("old", "old\n");
    let refused = remove("2", "old");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("rejects this credential"), "{said}");
    // A reload without the file, or with two of them, fails instead of leaving the old ones in force.
    fs::remove_file(place.join("b/peer-credential")).unwrap();
    let line = reload(&second);
    assert!(line.contains("ERROR") && line.contains("the credentials of servers is missing"), "{line}");
    write("b/peer-credential", "new\n");
    write("b/peer-credential-encrypted", "new\n");
    let line = reload(&second);
    assert!(line.contains("ERROR") && line.contains("only one can be right"), "{line}");
    fs::remove_file(place.join("b/peer-credential-encrypted")).unwrap();
    assert!(reload(&second).contains("server_credentials=1"), "{}", second.said());
}
