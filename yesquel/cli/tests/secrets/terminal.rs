//! SIGHUP reads files again; a closed terminal ends the server all the same.

use crate::{PROGRAM, support::Process, waiting::wait_until};
use rustix::{
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use std::{path::Path, process::Command};
use yesquel::{Address, SocketOptions, Store};

fn wait_for_reloads(server: &Process, count: usize) {
    wait_until(server, || server.said().matches("were read again").count() >= count);
}

fn serve(command: &mut Command, place: &Path) -> Process {
    let server = Process::spawn(command.args(["serve", "--in-memory", "--listen"]).arg(place.join("socket")));
    server.wait_until_ready();
    server
}

#[test]
fn a_closed_terminal_shuts_a_server_down_cleanly() {
    let place = tempfile::tempdir().unwrap();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    // A session of its own, whose terminal this is. Under `nohup` the tests ignore the signal.
    let mut command = Command::new("sh");
    command.args(["-c", "exec env --default-signal=HUP setsid --ctty \"$@\" <\"$0\"", &name, PROGRAM]);
    let mut server = serve(&mut command, place.path());
    server.signal(Signal::HUP);
    wait_for_reloads(&server, 1);
    drop(terminal);
    let status = server.wait();
    assert!(status.success(), "{status}: {}", server.said());
    assert!(!place.path().join("socket").exists());
}

#[test]
fn a_server_without_a_terminal_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let nohup = ["-c", "trap '' HUP; exec setsid \"$@\"", "sh", PROGRAM];
    for arguments in [&["-c", "exec setsid \"$@\"", "sh", PROGRAM][..], &nohup] {
        let mut server = serve(Command::new("sh").args(arguments), place.path());
        for count in 1..=2 {
            server.signal(Signal::HUP);
            wait_for_reloads(&server, count);
        }
        let address = Address::Unix(place.path().join("socket"));
        Store::connect(&address, SocketOptions::default()).unwrap().databases().unwrap();
        server.terminate();
    }
}
