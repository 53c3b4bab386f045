//! Machines that have joined by a token keep the credential of servers in their folders, and rotate it
//! there.

use crate::{PROGRAM, support::Process};
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

fn wait_for_states(place: &Path, name: &str, wanted: &str) {
    while states(place, name) != wanted {
        std::thread::yield_now();
    }
}

fn reload(server: &Process) {
    let count = || server.said().matches("were read again").count();
    let before = count();
    server.signal(Signal::HUP);
    while count() == before {
        assert!(!server.said().contains("cannot be read"), "{}", server.said());
        std::thread::yield_now();
    }
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
    wait_for_states(place, "a", "serving serving serving");
    assert!(remove("3", "servers").status.success());
    assert_eq!(third.wait().code(), Some(1), "{}", third.said());
    let rotate = |content: &str, joined: &[(&str, &Process)]| {
        write("servers", content);
        reload(&founder);
        for (name, process) in joined {
            write(&format!("{name}/peer-credential"), content);
            reload(process);
        }
    };
    rotate("old\nnew\n", &[("b", &second)]);
    rotate("new\nold\n", &[("b", &second)]);
    // A machine that joins meanwhile gets both.
    let fourth = join("d");
    let all = "serving serving removed serving";
    wait_for_states(place, "a", all);
    rotate("new\n", &[("b", &second), ("d", &fourth)]);
    // A removed machine stays removed in the directory, which is read for the next one.
    let _fifth = join("e");
    let all = "serving serving removed serving serving";
    wait_for_states(place, "a", all);
    second.terminate();
    let _second = serve(place, "b", &[]);
    wait_for_states(place, "b", all);
    write("old", "old\n");
    let refused = remove("2", "old");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("rejects this credential"), "{said}");
}
