//! Servers that ask each other for votes: a transaction of a client that is gone ends without it,
//! and a connection can send only what its role permits.

use std::{path::Path, time::SystemTime};
use tempfile::TempDir;
use yesquel::{
    Address, ConnectError, EngineSettings, ListenOptions, LogOptions, NodeId, PeerOptions, Server, ServerId,
    SocketOptions, Store, Timestamp, TreeId, TxnId,
};
use yesquel_model::KeyRange;
use yesquel_transport::{SocketTransport, Transport, block_on};
use yesquel_wire::{
    Answer, ByteWriter, Decision, Expect, NewNode, NodeKind, NodeOperation, Operations, Participants,
    Question, Questions, Reply, Request, TransactionList, Vote, WriteOperation, greeting::Role,
};

pub(crate) const SERVERS: [ServerId; 2] = [ServerId(0), ServerId(1)];

/// Two servers that know each other.
pub(crate) struct Cluster {
    servers: Vec<Server>,
    folder: TempDir,
}

fn address(folder: &Path, server: ServerId) -> Address {
    Address::Unix(folder.join(format!("server-{}.sock", server.0)))
}

fn start(
    folder: &Path,
    server: ServerId,
    credential: Option<&[u8]>,
    peer_credential: Option<&[u8]>,
) -> Result<Server, yesquel::Error> {
    let others = SERVERS.into_iter().filter(|other| *other != server);
    let peers = PeerOptions {
        servers: others.map(|other| (other, address(folder, other))).collect(),
        credential: peer_credential.map(Into::into),
        tls: None,
    };
    let listen = ListenOptions {
        addresses: vec![address(folder, server)],
        credential: credential.map(Into::into),
        peers,
        ..ListenOptions::default()
    };
    let settings = EngineSettings { server, ..EngineSettings::default() };
    Server::start(None, settings, LogOptions::default(), listen)
}

impl Cluster {
    pub(crate) fn start(credential: Option<&[u8]>, peer_credential: Option<&[u8]>) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let start = |server: ServerId| start(folder.path(), server, credential, peer_credential).unwrap();
        Cluster { servers: SERVERS.map(start).into(), folder }
    }

    pub(crate) fn connect(
        &self,
        client: u64,
        credential: &[u8],
        role: Role,
    ) -> Result<SocketTransport, ConnectError> {
        let addresses = SERVERS.map(|server| address(self.folder.path(), server));
        let options = SocketOptions { credential: credential.into(), role, lanes: 0, ..Default::default() };
        SocketTransport::connect(&addresses, client, options)
    }

    /// A store whose connections have a role.
    pub(crate) fn store(&self, role: Role) -> Store {
        let addresses = SERVERS.map(|server| address(self.folder.path(), server));
        Store::connect_any(&addresses, SocketOptions { role, ..SocketOptions::default() }).unwrap()
    }

    pub(crate) fn client(&self, client: u64) -> SocketTransport {
        self.connect(client, b"", Role::Client).unwrap()
    }
}

/// The birth of a transaction that begins now.
pub(crate) fn birth() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::from_ms(now.as_millis() as u64)
}

pub(crate) fn node(server: ServerId) -> NodeId {
    NodeId::root(TreeId::new(1).unwrap(), server)
}

pub(crate) fn ask(transport: &SocketTransport, server: ServerId, request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.write(&mut ByteWriter(&mut bytes));
    block_on(transport.call(server, &bytes)).unwrap()
}

pub(crate) fn operations(server: ServerId, write: WriteOperation<'_>) -> Vec<u8> {
    Operations::encode(&[NodeOperation { node: node(server), write }])
}

pub(crate) fn create(transport: &SocketTransport, server: ServerId, txn: TxnId) {
    let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
    let created = operations(server, WriteOperation::Create(new));
    let operations = Operations::decode(&created).unwrap();
    let (snapshot, seen) = (None, Timestamp::ZERO);
    let (birth, lease, staged) = (birth(), 0, None);
    let commit = Request::Commit { txn, birth, snapshot, seen, lease, staged, operations };
    let reply = ask(transport, server, &commit);
    assert!(matches!(Reply::decode(&reply), Ok(Reply::Committed(_))));
}

/// Prepares a write of `value` at a server, with both as participants.
fn prepare(transport: &SocketTransport, server: ServerId, txn: TxnId, value: &[u8]) -> Vec<u8> {
    prepare_among(transport, (server, &SERVERS), (txn, birth()), value)
}

/// Prepares a write of `value` at a server, with these participants.
pub(crate) fn prepare_among(
    transport: &SocketTransport,
    (server, participants): (ServerId, &[ServerId]),
    (txn, birth): (TxnId, Timestamp),
    value: &[u8],
) -> Vec<u8> {
    let put = WriteOperation::Put { key: b"k", value, is_large: false, expect: Expect::Any };
    let put = operations(server, put);
    let operations = Operations::decode(&put).unwrap();
    let participants = Participants::encode(participants);
    let participants = Participants::decode(&participants).unwrap();
    let (snapshot, seen) = (None, Timestamp::ZERO);
    let (waits, lease, staged) = (false, 0, None);
    let prepare =
        Request::Prepare { txn, birth, waits, snapshot, seen, participants, lease, staged, operations };
    ask(transport, server, &prepare)
}

/// Reads the key at a server; waits for the transactions that it meets.
pub(crate) fn read(transport: &SocketTransport, server: ServerId) -> Option<Vec<u8>> {
    let mut questions = Vec::new();
    Question::Lookup { node: node(server), key: b"k" }.write(&mut ByteWriter(&mut questions));
    let questions = Questions::decode(&questions).unwrap();
    let reply = ask(transport, server, &Request::Read { snapshot: None, seen: Timestamp::ZERO, questions });
    match Reply::lookup(&reply) {
        Some((_, Answer::Value(value))) => Some(value.to_vec()),
        Some((_, Answer::Absent)) => None,
        other => panic!("{other:?}"),
    }
}

fn is_yes(reply: &[u8]) -> bool {
    matches!(Reply::decode(reply), Ok(Reply::Voted(_)))
}

#[test]
fn transactions_of_a_client_that_is_gone_end_at_all_servers() {
    let cluster = Cluster::start(None, None);
    let writer = cluster.client(1);
    for server in SERVERS {
        create(&writer, server, TxnId { client: 1, number: 1 + u64::from(server.0) });
    }
    // All have voted: it commits.
    let txn = TxnId { client: 1, number: 3 };
    assert!(SERVERS.iter().all(|server| is_yes(&prepare(&writer, *server, txn, b"both"))));
    drop(writer);
    let reader = cluster.client(2);
    assert_eq!(SERVERS.map(|server| read(&reader, server).unwrap()), [b"both", b"both"]);
    // One has voted: it is rolled back, and the other one does not vote for it later.
    let writer = cluster.client(3);
    let txn = TxnId { client: 3, number: 1 };
    assert!(is_yes(&prepare(&writer, SERVERS[1], txn, b"half")));
    assert_eq!(SERVERS.map(|server| read(&reader, server).unwrap()), [b"both", b"both"]);
    assert!(!is_yes(&prepare(&writer, SERVERS[0], txn, b"half")));
    let undecided = cluster.servers.iter().map(|server| server.status().transactions.undecided);
    assert_eq!(undecided.sum::<u64>(), 0);
}

#[test]
fn servers_with_a_credential_of_their_own_recover() {
    let cluster = Cluster::start(Some(b"client"), Some(b"peer"));
    let writer = cluster.connect(1, b"client", Role::Client).unwrap();
    for server in SERVERS {
        create(&writer, server, TxnId { client: 1, number: 1 + u64::from(server.0) });
    }
    let txn = TxnId { client: 1, number: 3 };
    assert!(SERVERS.iter().all(|server| is_yes(&prepare(&writer, *server, txn, b"v"))));
    assert_eq!(SERVERS.map(|server| read(&writer, server).unwrap()), [b"v", b"v"]);
}

#[test]
fn a_server_without_the_credential_of_servers_joins_none() {
    let folder = tempfile::tempdir().unwrap();
    let _server = start(folder.path(), SERVERS[0], Some(b"client"), None).unwrap();
    let place = [address(folder.path(), SERVERS[0])];
    for credential in [&b""[..], b"client"] {
        let options = SocketOptions { credential: credential.into(), role: Role::Peer, ..Default::default() };
        assert!(SocketTransport::connect(&place, 1, options).is_err());
    }
    let refused = start(folder.path(), SERVERS[1], Some(b"client"), None);
    assert!(matches!(refused, Err(yesquel::Error::NoFounder { server: 0, .. })), "{refused:?}");
}

#[test]
fn a_client_cannot_decide_transactions_of_others() {
    let cluster = Cluster::start(None, None);
    let (victim, other) = (cluster.client(1), cluster.client(2));
    create(&victim, SERVERS[0], TxnId { client: 1, number: 1 });
    let txn = TxnId { client: 1, number: 2 };
    assert!(is_yes(&prepare(&victim, SERVERS[0], txn, b"v")));
    let (birth, participants) = (birth(), Participants::encode(&SERVERS));
    let participants = Participants::decode(&participants).unwrap();
    let resolve = |is_voter| Request::Resolve { txn, birth, participants, is_voter };
    let mut list = Vec::new();
    TransactionList::push(&mut list, txn.number, birth, &SERVERS);
    let transactions = TransactionList::decode(&list).unwrap();
    let commit = Decision::Commit(Timestamp::ZERO);
    for request in [
        Request::Decide { txn, birth, participants, decision: Decision::Abort },
        Request::Decide { txn, birth, participants, decision: commit },
        resolve(false),
        Request::Ended { client: 1, transactions },
    ] {
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        // The server closes the connection.
        assert!(block_on(other.call(SERVERS[0], &bytes)).is_err(), "{request:?}");
    }
    // Nor ask in the name of a participant about its own.
    let mut bytes = Vec::new();
    resolve(true).write(&mut ByteWriter(&mut bytes));
    assert!(!Request::is_permitted(&bytes, Role::Client, 1) && Request::is_permitted(&bytes, Role::Peer, 1));
    let vote = ask(&victim, SERVERS[0], &resolve(false));
    assert!(matches!(Reply::decode(&vote), Ok(Reply::Vote(Vote::Yes { .. }))));
    // A server may ask.
    let peer = cluster.connect(3, b"", Role::Peer).unwrap();
    let vote = ask(&peer, SERVERS[0], &resolve(true));
    assert!(matches!(Reply::decode(&vote), Ok(Reply::Vote(Vote::Yes { .. }))));
}
