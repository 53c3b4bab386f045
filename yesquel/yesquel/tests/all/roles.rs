//! Every message on connections of every role, by real sockets.

use crate::peers::{Cluster, SERVERS, birth, node, operations};
use yesquel::{ConnectError, Denial, Timestamp, TreeId, TxnId};
use yesquel_model::{GroupEpoch, KeyRange};
use yesquel_transport::{Transport, block_on};
use yesquel_wire::{
    ByteWriter, Decision, Expect, HorizonReport, Operations, Participants, PeerReport, Question, Questions,
    Request, TransactionList, WriteOperation, greeting::Role,
};

const ROLES: [(Role, &[u8]); 2] = [(Role::Client, b"client"), (Role::Peer, b"peer")];
const OWN: u64 = 9;
const OTHER: u64 = 8;

/// Name, bytes, and whether a client may send it.
type Message = (String, Vec<u8>, bool);

fn message(request: &Request<'_>, is_for_clients: bool) -> Message {
    let mut bytes = Vec::new();
    request.write(&mut ByteWriter(&mut bytes));
    (format!("{request:?}"), bytes, is_for_clients)
}

/// Messages that name a transaction.
fn of_transaction(client: u64, is_own: bool) -> Vec<Message> {
    let put = WriteOperation::Put { key: b"k", value: b"v", is_large: false, expect: Expect::Any };
    let put = operations(SERVERS[0], put);
    let operations = Operations::decode(&put).unwrap();
    let encoded = Participants::encode(&SERVERS);
    let participants = Participants::decode(&encoded).unwrap();
    let (birth, snapshot, seen, lease, staged) = (birth(), None, Timestamp::ZERO, 0, None);
    let txn = |number| TxnId { client, number };
    let resolve = |number, is_voter| Request::Resolve { txn: txn(number), birth, participants, is_voter };
    let decide = |number, decision| Request::Decide { txn: txn(number), birth, participants, decision };
    let (range, tree) = (KeyRange::all(), TreeId::new(1).unwrap());
    let (holder, ms, wait_ms, waits) = (txn(50), 100, 0, false);
    [
        Request::Commit { txn: txn(1), birth, snapshot, seen, lease, staged, operations },
        Request::Prepare {
            txn: txn(2),
            birth,
            waits,
            snapshot,
            seen,
            participants,
            lease,
            staged,
            operations,
        },
        Request::Stage { name: txn(60), part: 0, operations },
        Request::Unstage { name: txn(60) },
        decide(3, Decision::Abort),
        decide(4, Decision::Commit(Timestamp::ZERO)),
        resolve(5, false),
        Request::Outcome { txn: txn(6), birth },
        Request::Lease { holder, ranges: vec![(tree, range)], ms, wait_ms, seen },
        Request::Release { holder },
    ]
    .iter()
    .map(|request| message(request, is_own))
    .chain([message(&resolve(7, true), false)])
    .collect()
}

/// All messages of the protocol.
fn messages() -> Vec<Message> {
    let mut lookup = Vec::new();
    Question::Lookup { node: node(SERVERS[0]), key: b"k" }.write(&mut ByteWriter(&mut lookup));
    let questions = Questions::decode(&lookup).unwrap();
    let mut list = Vec::new();
    TransactionList::push(&mut list, 70, birth(), &SERVERS);
    let ended = |client| Request::Ended { client, transactions: TransactionList::decode(&list).unwrap() };
    let report = PeerReport {
        server: SERVERS[1],
        wall_ms: birth().ms(),
        oldest: [None, None],
        more: false,
        horizon: HorizonReport::default(),
        epoch: GroupEpoch::FIRST,
        address: Box::default(),
    };
    let (tree, node) = (TreeId::new(1).unwrap(), node(SERVERS[0]));
    let for_all = [
        Request::Read { snapshot: None, seen: Timestamp::ZERO, questions },
        Request::Take { node, count: 1, above: 0 },
        Request::Inspect { tree: None },
        Request::Inspect { tree: Some(tree) },
        Request::InspectAfter { node },
        Request::Directory,
    ];
    let for_servers = [
        Request::DropValue { value: node, nodes: 1, since: birth() },
        Request::ValueUse { root: node, key: b"k", value: node },
    ];
    let mut all: Vec<Message> = for_all.iter().map(|request| message(request, true)).collect();
    all.extend(for_servers.iter().map(|request| message(request, false)));
    all.extend([OWN, OTHER].map(|client| message(&ended(client), false)));
    all.push(("a report".to_owned(), report.encode(), false));
    all.extend(of_transaction(OWN, true));
    all.extend(of_transaction(OTHER, false));
    all
}

#[test]
fn a_credential_is_for_one_role() {
    let cluster = Cluster::start(Some(b"client"), Some(b"peer"));
    for credential in [&b"client"[..], b"peer", b"", b"another"] {
        for (role, expected) in ROLES {
            match cluster.connect(1, credential, role) {
                Ok(_) => assert_eq!(credential, expected),
                Err(ConnectError::Denied { denial: Denial::Credential, .. }) => {
                    assert_ne!(credential, expected);
                }
                Err(error) => panic!("{role:?} with {credential:?}: {error}"),
            }
        }
    }
}

/// A message that the role does not permit ends the connection; all others are answered.
#[test]
fn every_message_is_for_some_roles() {
    let cluster = Cluster::start(Some(b"client"), Some(b"peer"));
    for (role, credential) in ROLES {
        for (name, bytes, is_for_clients) in messages() {
            let connection = cluster.connect(OWN, credential, role).unwrap();
            let answer = block_on(connection.call(SERVERS[0], &bytes));
            assert_eq!(answer.is_ok(), is_for_clients || role == Role::Peer, "{role:?}: {name}: {answer:?}");
        }
    }
    // The server serves on.
    assert!(cluster.connect(OWN, b"client", Role::Client).is_ok());
}
