//! Transactions with a participant that is lost for good, which an operator ends at the others.

use crate::peers::{Cluster, SERVERS, ask, birth, create, prepare_among, read};
use yesquel::{GivenUp, Role, ServerId, Timestamp, TxnId, status::UndecidedTransaction};
use yesquel_transport::SocketTransport;
use yesquel_wire::{Decision, Participants, Reply, Request, TransactionOutcome};

/// A group that no server knows.
const LOST: ServerId = ServerId(2);
const ALL: [ServerId; 3] = [SERVERS[0], SERVERS[1], LOST];

/// Two servers with a table each, and a transaction that has their votes.
struct InDoubt {
    cluster: Cluster,
    writer: SocketTransport,
    txn: TxnId,
    birth: Timestamp,
    /// The larger one of the votes.
    at: Timestamp,
}

impl InDoubt {
    fn new() -> InDoubt {
        let cluster = Cluster::start(None, None);
        let writer = cluster.client(1);
        for server in SERVERS {
            create(&writer, server, TxnId { client: 1, number: 1 + u64::from(server.0) });
        }
        let (txn, birth) = (TxnId { client: 1, number: 3 }, birth());
        let vote = |server| {
            let reply = prepare_among(&writer, (server, &ALL), (txn, birth), b"v");
            let Ok(Reply::Voted(at)) = Reply::decode(&reply) else { panic!("{reply:?}") };
            at
        };
        let at = SERVERS.map(vote).into_iter().max().unwrap();
        InDoubt { cluster, writer, txn, birth, at }
    }

    fn undecided(&self) -> UndecidedTransaction {
        UndecidedTransaction {
            client: self.txn.client,
            number: self.txn.number,
            birth: self.birth.0,
            participants: ALL.map(|group| group.0).to_vec(),
            ..UndecidedTransaction::default()
        }
    }

    /// The client's decision to commit, at one server.
    fn commit_at(&self, server: ServerId) -> Vec<u8> {
        let participants = Participants::encode(&ALL);
        let participants = Participants::decode(&participants).unwrap();
        let (txn, birth, decision) = (self.txn, self.birth, Decision::Commit(self.at));
        ask(&self.writer, server, &Request::Decide { txn, birth, participants, decision })
    }

    fn values(&self) -> [Option<Vec<u8>>; 2] {
        SERVERS.map(|server| read(&self.writer, server))
    }
}

#[test]
fn it_aborts_where_no_participant_that_is_left_has_committed() {
    let doubt = InDoubt::new();
    let store = doubt.cluster.store(Role::Peer);
    for server in SERVERS {
        let listed = store.status_of(server).unwrap().commit_protocol.undecided;
        let [listed] = &listed[..] else { panic!("{listed:?}") };
        let expected = doubt.undecided();
        assert_eq!((listed.client, listed.number, listed.birth), (1, 3, expected.birth));
        assert_eq!(listed.participants, expected.participants);
        assert!(listed.unknown.contains(&LOST.0) && !listed.unknown.contains(&server.0), "{listed:?}");
    }
    assert_eq!(store.end_without(&doubt.undecided(), &[LOST]).unwrap(), GivenUp::Aborted);
    assert_eq!(doubt.values(), [None, None]);
    for server in SERVERS {
        assert_eq!(store.status_of(server).unwrap().commit_protocol.undecided, []);
    }
    // Again, and against a client that decides later.
    assert_eq!(store.end_without(&doubt.undecided(), &[LOST]).unwrap(), GivenUp::Aborted);
    let aborted = Reply::Outcome(TransactionOutcome::Decided(Decision::Abort));
    assert_eq!(Reply::decode(&doubt.commit_at(SERVERS[1])), Ok(aborted));
    assert_eq!(doubt.values(), [None, None]);
}

#[test]
fn it_commits_where_a_participant_that_is_left_has_committed() {
    for first in SERVERS {
        let doubt = InDoubt::new();
        assert_eq!(Reply::decode(&doubt.commit_at(first)), Ok(Reply::Done));
        let store = doubt.cluster.store(Role::Peer);
        assert_eq!(store.end_without(&doubt.undecided(), &[LOST]).unwrap(), GivenUp::Committed);
        assert_eq!(doubt.values(), [Some(b"v".to_vec()), Some(b"v".to_vec())]);
    }
}

/// A machine with several groups is lost.
#[test]
fn it_ends_at_the_participant_that_is_left_of_several() {
    let doubt = InDoubt::new();
    let store = doubt.cluster.store(Role::Peer);
    assert_eq!(store.end_without(&doubt.undecided(), &[SERVERS[1], LOST]).unwrap(), GivenUp::Aborted);
    let undecided = SERVERS.map(|server| store.status_of(server).unwrap().transactions.undecided);
    assert_eq!(undecided, [0, 1]);
}

#[test]
fn a_client_ends_no_transactions_of_others() {
    let doubt = InDoubt::new();
    assert!(doubt.cluster.store(Role::Client).end_without(&doubt.undecided(), &[LOST]).is_err());
    let store = doubt.cluster.store(Role::Peer);
    for server in SERVERS {
        assert_eq!(store.status_of(server).unwrap().transactions.undecided, 1);
    }
}
