//! Every message on connections of every role, by real sockets.

use crate::peers::{Cluster, SERVERS, birth, node, operations};
use yesquel::{ConnectError, Credentials, Denial, Timestamp, TreeId, TxnId};
use yesquel_model::{GroupEpoch, KeyRange};
use yesquel_server::issue_token;
use yesquel_transport::{Transport, block_on};
use yesquel_wire::{
    ByteWriter, Decision, Expect, HorizonReport, Operations, Participants, PeerReport, Question, Questions,
    Request, TransactionList, WriteOperation, greeting::Role,
};

const ROLES: [(Role, &[u8]); 3] =
    [(Role::Client, b"client"), (Role::Peer, b"peer"), (Role::Operator, b"peer")];
const OWN: u64 = 9;
const OTHER: u64 = 8;

/// The roles that may send a message, beside servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Senders {
    /// Clients and operators.
    All,
    Operators,
    /// Machines that join.
    Joiners,
    None,
}

impl Senders {
    fn of_clients(is_for_clients: bool) -> Senders {
        if is_for_clients { Senders::All } else { Senders::None }
    }

    fn include(self, role: Role) -> bool {
        match role {
            Role::Peer => true,
            Role::Joiner => self == Senders::Joiners,
            Role::Operator => matches!(self, Senders::All | Senders::Operators),
            Role::Client => self == Senders::All,
        }
    }
}

/// Name, bytes, and what may send it.
type Message = (String, Vec<u8>, Senders);

fn encoded(request: &Request<'_>, senders: Senders) -> Message {
    let mut bytes = Vec::new();
    request.write(&mut ByteWriter(&mut bytes));
    (format!("{request:?}"), bytes, senders)
}

fn message(request: &Request<'_>, is_for_clients: bool) -> Message {
    encoded(request, Senders::of_clients(is_for_clients))
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
        directory: 0,
        load: None,
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
    all.push(("a report".to_owned(), report.encode(), Senders::None));
    all.push(encoded(&Request::Join { request: b"{}" }, Senders::Joiners));
    all.push(encoded(&Request::Manage { command: b"{}" }, Senders::Operators));
    all.extend(of_transaction(OWN, true));
    all.extend(of_transaction(OTHER, false));
    all
}

/// The credential of servers also signs tokens: those of a client, or of another cluster, are refused
/// in the greeting.
#[test]
fn a_token_must_be_signed_by_the_cluster() {
    let cluster = Cluster::start(Some(b"client"), Some(b"peer"));
    let own = cluster.connect(OWN, b"peer", Role::Peer).unwrap().membership().cluster;
    let other = yesquel::ClusterId([9; 16]);
    for (cluster_of_token, signed_by) in [(own, Some(&b"client"[..])), (own, None), (other, Some(b"peer"))] {
        let signed_by = signed_by.map(Credentials::from);
        let token = issue_token(cluster_of_token, false, u64::MAX, signed_by.as_ref()).unwrap();
        match cluster.connect(OWN, &token.encode(), Role::Joiner) {
            Err(ConnectError::Denied { denial: Denial::Credential, .. }) => assert_eq!(cluster_of_token, own),
            Err(ConnectError::Denied { denial: Denial::OtherCluster(found), .. }) => {
                assert_eq!((cluster_of_token, found), (other, own));
            }
            result => panic!("{result:?}"),
        }
    }
    for credential in [&b"peer"[..], b"client", b""] {
        let result = cluster.connect(OWN, credential, Role::Joiner);
        assert!(matches!(result, Err(ConnectError::Denied { denial: Denial::Credential, .. })), "{result:?}");
    }
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
        for (name, bytes, senders) in messages() {
            let connection = cluster.connect(OWN, credential, role).unwrap();
            let answer = block_on(connection.call(SERVERS[0], &bytes));
            assert_eq!(answer.is_ok(), senders.include(role), "{role:?}: {name}: {answer:?}");
        }
    }
    let own = cluster.connect(OWN, b"peer", Role::Peer).unwrap().membership().cluster;
    let token = issue_token(own, false, u64::MAX, Some(&b"peer".into())).unwrap().encode();
    for (name, bytes, senders) in messages() {
        let connection = cluster.connect(OWN, &token, Role::Joiner).unwrap();
        let answer = block_on(connection.call(SERVERS[0], &bytes));
        assert_eq!(answer.is_ok(), senders.include(Role::Joiner), "{name}: {answer:?}");
    }
    // The server serves on.
    assert!(cluster.connect(OWN, b"client", Role::Client).is_ok());
}
