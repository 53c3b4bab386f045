//! A removed credential: it is refused, and its open connections end.

use crate::machine::{Files, Machine, serve};
use crate::support::Process;
use yesquel::{Address, Role, Store};

#[test]
fn a_removed_credential_is_refused_and_its_connections_end() {
    let place = tempfile::tempdir().unwrap();
    let files = Files::create(place.path(), "machine");
    files.write("clients", "first\nsecond\nthird\n");
    for name in ["first", "second", "third"] {
        files.write(name, name);
    }
    let address = Address::Unix(files.path("socket"));
    let mut machine = Machine::started(Process::spawn(&mut serve(&files, &address)), &files);
    let connect = |name: &str| Store::connect(&address, files.options(name, Role::Client));
    let [first, second, third] = ["first", "second", "third"].map(|name| connect(name).unwrap());
    first.create_database("shop").unwrap();
    for store in [&second, &third] {
        assert_eq!(store.databases().unwrap().len(), 1);
    }
    machine.wait_until(|machine| [1, 2, 3].iter().all(|line| machine.admitted("client", *line) >= 1));
    let taken = machine.metric("yesquel_connections_accepted_total");
    // The third client gets another credential in time.
    files.write("third", "first\n");
    files.write("clients", "first\n");
    machine.reload();
    let said = machine.log_with("were read again", 1);
    assert!(said.contains("closed=2"), "{said}");
    assert!(said.contains("their credential was removed connections=2"), "{said}");
    // They are no refused connections, and the remaining credential shows 0 for roles without connections.
    let count = |name: &str| machine.metric(name);
    assert_eq!(count("yesquel_connections_revoked_total"), Some(2));
    assert_eq!(count("yesquel_connections_refused_total"), Some(0));
    // The first one goes on, by the same connection.
    assert_eq!(first.databases().unwrap().len(), 1);
    assert_eq!(machine.metric("yesquel_connections_accepted_total"), taken);
    assert_eq!(machine.admitted("client", 1), 1);
    // No request of the others is handled any more.
    let error = second.create_database("other").unwrap_err().to_string();
    assert!(error.contains("credential"), "{error}");
    assert!(connect("second").unwrap_err().to_string().contains("rejects this credential"));
    // The third one connects again, with what its file has now.
    assert_eq!(third.databases().unwrap().len(), 1);
    machine.wait_until(|machine| machine.admitted("client", 1) == 2);
}
