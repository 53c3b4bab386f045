//! Files that cannot be used: the former ones stay in force, and the log and the metrics say so.

use crate::{
    certificates::Authority,
    machine::{Files, Machine, free_address, serve},
    support::Process,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use yesquel::{Role, Store};

const EXPIRY: &str = "yesquel_certificate_expiry_timestamp_seconds";
/// Beginning of 2040, and of 2041.
const EXPIRES: u64 = 2_208_988_800;
const EXPIRES_NEXT: u64 = 2_240_611_200;

#[test]
fn a_file_that_cannot_be_used_leaves_all_former_ones_in_force() {
    let place = tempfile::tempdir().unwrap();
    let (files, authority) = (Files::create(place.path(), "machine"), Authority::new("authority"));
    let [made, next] = [2040, 2041].map(|year| authority.certify(year));
    files.write("ca.pem", &authority.pem());
    files.write_certificate(&made);
    files.write("clients", "client\n");
    files.write("servers", "server\n");
    files.write("credential", "client\n");
    files.write("changed", "changed\n");
    let address = free_address();
    let mut machine = Machine::started(Process::spawn(&mut serve(&files, &address)), &files);
    assert_eq!(machine.metric(EXPIRY), Some(EXPIRES));
    let connect = |credential: &str| Store::connect(&address, files.options(credential, Role::Client));
    let store = connect("credential").unwrap();
    // The other files have changed, and would be in force if the broken one were not.
    let half = &next.certificate[..next.certificate.len() / 2];
    for (broken, content, named) in [
        ("certificate.pem", half, "certificate.pem"),
        ("certificate.pem", "", "certificate.pem"),
        ("key.pem", next.key.as_str(), "key.pem"),
        ("ca.pem", "-----BEGIN CERTIFICATE-----\n", "ca.pem"),
        ("servers", "", "servers"),
        ("servers", "# of servers\nserver\n", "begins with '#'"),
        ("servers", "server\nchanged\n", "the credentials of clients and of servers"),
    ] {
        let before = fs::read_to_string(files.path(broken)).unwrap();
        files.write(broken, content);
        files.write("clients", "changed\n");
        let line = machine.fail_to_reload();
        assert!(line.contains("ERROR") && line.contains(named), "{line}");
        files.write(broken, &before);
        store.databases().unwrap();
        connect("credential").unwrap().databases().unwrap();
        assert!(connect("changed").is_err());
        assert_eq!(machine.metric(EXPIRY), Some(EXPIRES));
    }
    // A file that is gone.
    fs::remove_file(files.path("servers")).unwrap();
    machine.fail_to_reload();
    // A pipe to which no process writes does not block the server.
    mknodat(CWD, files.path("servers"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let line = machine.fail_to_reload();
    assert!(line.contains("not a regular file"), "{line}");
    files.write("servers", "server\n");
    files.write_certificate(&next);
    machine.reload();
    assert_eq!(machine.metric(EXPIRY), Some(EXPIRES_NEXT));
    let said = machine.log_with("certificate_expires=\"2041-01-01T00:00:00Z\"", 1);
    assert!(said.contains("client_credentials=1 server_credentials=1 authorities=1"), "{said}");
    connect("changed").unwrap().databases().unwrap();
    assert!(connect("credential").is_err());
}
