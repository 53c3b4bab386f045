//! A credential of clients never sends the message of a server, after a reload either.

use crate::machine::{Files, Machine, serve};
use crate::support::Process;
use yesquel::{Address, ConnectError, Denial, Role};
use yesquel_model::{ServerId, Timestamp};
use yesquel_transport::{SocketTransport, Transport, block_on};
use yesquel_wire::{ByteWriter, Request, TransactionList};

/// A message of servers: transactions of a client have ended.
fn message_of_servers() -> Vec<u8> {
    let mut list = Vec::new();
    TransactionList::push(&mut list, 2, Timestamp::ZERO, &[ServerId(0)]);
    let transactions = TransactionList::decode(&list).unwrap();
    let mut bytes = Vec::new();
    Request::Ended { client: 1, transactions }.write(&mut ByteWriter(&mut bytes));
    bytes
}

#[test]
fn a_credential_of_clients_sends_no_message_of_servers_after_a_reload() {
    let place = tempfile::tempdir().unwrap();
    let files = Files::create(place.path(), "machine");
    files.write("clients", "client\n");
    files.write("servers", "server\n");
    let address = Address::Unix(files.path("socket"));
    let mut machine = Machine::started(Process::spawn(&mut serve(&files, &address)), &files);
    let connect = |client: u64, credential: &str, role: Role| {
        files.write("credential", credential);
        SocketTransport::connect(std::slice::from_ref(&address), client, files.options("credential", role))
    };
    // A connection from before the reload.
    let before = connect(1, "client", Role::Client).unwrap();
    let sends =
        |transport: &SocketTransport| block_on(transport.call(ServerId(0), &message_of_servers())).is_ok();
    // The credential that was one of servers is one of clients now, and the other way round.
    files.write("clients", "client\nserver\n");
    files.write("servers", "new\n");
    machine.reload();
    assert!(!sends(&before));
    for credential in ["client", "server"] {
        for role in [Role::Peer, Role::Operator] {
            let denied = connect(2, credential, role);
            assert!(
                matches!(denied, Err(ConnectError::Denied { denial: Denial::Credential, .. })),
                "{credential} {role:?}: {denied:?}"
            );
        }
        assert!(!sends(&connect(3, credential, Role::Client).unwrap()), "{credential}");
    }
    assert!(connect(4, "new", Role::Client).is_err());
    assert!(sends(&connect(5, "new", Role::Peer).unwrap()));
    // Neither by a file that has it for both roles.
    files.write("servers", "new\nclient\n");
    machine.fail_to_reload();
    assert!(connect(6, "client", Role::Peer).is_err());
}
