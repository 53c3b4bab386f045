//! Each metric of the commit over several servers moves as what it counts happens.

use crate::groups::{Groups, SERVERS, put_in_all};
use rustix::process::Signal;
use std::{pin::Pin, time::SystemTime};
use yesquel::{Address, NodeId, ServerId, SocketOptions, Timestamp, TxnId};
use yesquel_transport::{LostCall, SocketTransport, Transport, block_on};
use yesquel_tree::Tree;
use yesquel_wire::{
    ByteWriter, Decision, Expect, NodeOperation, Operations, Participants, Question, Questions, Reply,
    Request, WriteOperation,
};

/// A client that speaks the protocol by itself.
struct RawClient {
    transport: SocketTransport,
    number: u64,
    node: NodeId,
    birth: Timestamp,
}

type SentRequest<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, LostCall>> + 'a>>;

impl RawClient {
    fn new(addresses: &[Address], number: u64, tree: Tree) -> RawClient {
        let options = SocketOptions { lanes: 0, ..SocketOptions::default() };
        let transport = SocketTransport::connect(addresses, number, options).unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        RawClient { transport, number, node: tree.root(), birth: Timestamp::from_ms(now.as_millis() as u64) }
    }

    fn txn(&self, number: u64) -> TxnId {
        TxnId { client: self.number, number }
    }

    fn send(&self, request: &Request<'_>) -> SentRequest<'_> {
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        Box::pin(self.transport.call(ServerId(0), &bytes))
    }

    fn ask(&self, request: &Request<'_>) -> Vec<u8> {
        block_on(self.send(request)).unwrap()
    }

    /// Sends a request for the vote of the first server on a write of one key.
    fn prepare(&self, number: u64, waits: bool) -> SentRequest<'_> {
        let put = WriteOperation::Put { key: b"k", value: b"v", is_large: false, expect: Expect::Any };
        let put = Operations::encode(&[NodeOperation { node: self.node, write: put }]);
        let participants = Participants::encode(&SERVERS);
        self.send(&Request::Prepare {
            txn: self.txn(number),
            birth: self.birth,
            waits,
            snapshot: None,
            seen: Timestamp::ZERO,
            participants: Participants::decode(&participants).unwrap(),
            lease: 0,
            staged: None,
            operations: Operations::decode(&put).unwrap(),
        })
    }

    fn votes(&self, number: u64) {
        let reply = block_on(self.prepare(number, false)).unwrap();
        assert!(matches!(Reply::decode(&reply), Ok(Reply::Voted(_))), "{:?}", Reply::decode(&reply));
    }

    /// Reads the key; waits for the transactions that it meets.
    fn read(&self) -> SentRequest<'_> {
        let mut questions = Vec::new();
        Question::Lookup { node: self.node, key: b"k" }.write(&mut ByteWriter(&mut questions));
        let questions = Questions::decode(&questions).unwrap();
        self.send(&Request::Read { snapshot: None, seen: Timestamp::ZERO, questions })
    }

    /// Sends each of the other requests of a commit once.
    fn asks_the_rest(&self) {
        let participants = Participants::encode(&SERVERS);
        let participants = Participants::decode(&participants).unwrap();
        let (birth, decision) = (self.birth, Decision::Abort);
        self.ask(&Request::Resolve { txn: self.txn(20), birth, participants, is_voter: false });
        self.ask(&Request::Decide { txn: self.txn(21), birth, participants, decision });
        self.ask(&Request::Outcome { txn: self.txn(22), birth });
        let put = WriteOperation::Put { key: b"s", value: b"v", is_large: false, expect: Expect::Any };
        let put = Operations::encode(&[NodeOperation { node: self.node, write: put }]);
        let operations = Operations::decode(&put).unwrap();
        self.ask(&Request::Stage { name: self.txn(23), part: 0, operations });
    }
}

/// Values of the first server's metrics.
struct Metrics<'a>(&'a Groups);

impl Metrics<'_> {
    fn get(&self, name: &str) -> u64 {
        self.0.servers[0].metrics().get(name).copied().unwrap_or_default() as u64
    }

    /// Waits until a metric has reached a value.
    fn wait_for(&self, name: &str, least: u64) {
        while self.get(name) < least {
            std::thread::yield_now();
        }
    }

    fn message(&self, kind: &str) -> u64 {
        self.get(&format!("yesquel_commit_messages_total{{kind=\"{kind}\"}}"))
    }

    fn started(&self, cause: &str) -> u64 {
        self.get(&format!("yesquel_recoveries_started_total{{cause=\"{cause}\"}}"))
    }

    /// Waits for an end that recovery has found.
    fn wait_for_abort(&self, cause: &str) {
        let name = format!("yesquel_recoveries_ended_total{{cause=\"{cause}\",result=\"abort\"}}");
        self.wait_for(&name, 1);
        assert_eq!((self.get(&name), self.started(cause)), (1, 1), "{cause}");
    }
}

#[test]
fn the_metrics_of_commits_over_servers_move() {
    let groups = Groups::start();
    let (trees, metrics) = (groups.client(100), Metrics(&groups));
    let all = SERVERS.map(|server| block_on(trees.create(server)).unwrap());
    let (commits, kinds) = (metrics.get("yesquel_commits_total"), ["commit", "prepare", "decide"]);
    assert!(commits > 0 && metrics.message("commit") >= commits);
    let [_, prepares, decisions] = kinds.map(|kind| metrics.message(kind));
    put_in_all(&trees, &all, b"k", b"v").unwrap();
    // COMMIT does not wait until the servers have the decision.
    metrics.wait_for("yesquel_commits_of_groups_total{up_to=\"2\"}", 1);
    assert_eq!(groups.sum("yesquel_commits_of_groups_total{up_to=\"2\"}"), 1, "at the first server only");
    assert_eq!((metrics.message("prepare"), metrics.message("decide")), (prepares + 1, decisions + 1));

    // A vote that stays in doubt, and others that meet it.
    groups.servers[1].process.signal(Signal::STOP);
    let [first, second] = [1, 2].map(|number| RawClient::new(&groups.addresses[..1], number, all[0]));
    first.votes(1);
    assert_eq!(metrics.get("yesquel_transactions_undecided"), 1);
    let refused = block_on(second.prepare(1, false)).unwrap();
    assert!(matches!(Reply::decode(&refused), Ok(Reply::Refused { .. })));
    assert_eq!(metrics.get("yesquel_prepares_refused_total"), 1);
    let queued = second.prepare(2, true);
    metrics.wait_for("yesquel_prepares_queued_total", 1);
    assert_eq!(metrics.get("yesquel_queued_prepares"), 1);
    groups.servers[1].process.signal(Signal::CONT);
    let voted = block_on(queued).unwrap();
    assert!(matches!(Reply::decode(&voted), Ok(Reply::Voted(_))));
    assert_eq!(metrics.get("yesquel_queued_prepares"), 0);
    // The other server has refused: a commit contradicts that.
    let participants = Participants::encode(&SERVERS);
    let participants = Participants::decode(&participants).unwrap();
    let (txn, birth, decision) = (first.txn(1), first.birth, Decision::Commit(first.birth));
    first.ask(&Request::Decide { txn, birth, participants, decision });
    assert_eq!(metrics.get("yesquel_contradictions_total"), 1);
}

/// Recoveries by their causes, the other messages, and the ages.
#[test]
fn the_metrics_of_recovery_and_ages_move() {
    let groups = Groups::start();
    let (trees, metrics) = (groups.client(100), Metrics(&groups));
    let tree = block_on(trees.create(SERVERS[0])).unwrap();
    let client = RawClient::new(&groups.addresses, 1, tree);
    // Sent together.
    let (_vote, read) = (client.prepare(1, false), client.read());
    block_on(read).unwrap();
    metrics.wait_for_abort("waiter");
    client.votes(2);
    metrics.wait_for_abort("age");
    let other = RawClient::new(&groups.addresses, 2, tree);
    drop(other.prepare(1, false));
    drop(other);
    metrics.wait_for_abort("connection");
    let kinds = ["resolve", "decide", "outcome", "stage"];
    let before = kinds.map(|kind| metrics.message(kind));
    client.asks_the_rest();
    let after = kinds.map(|kind| metrics.message(kind));
    assert_eq!(std::array::from_fn(|at| after[at] - before[at]), [1, 1, 1, 1]);
    assert!(metrics.get("yesquel_transaction_ends") >= 2);
    assert!(metrics.get("yesquel_remembered_clients") >= 2);
    metrics.wait_for("yesquel_horizon_age_milliseconds", 1);
    metrics.wait_for("yesquel_snapshot_oldest_milliseconds", 1);
    let all = groups.servers[0].metrics();
    assert!(all.contains_key("yesquel_peer_clock_ahead_milliseconds{server=\"1\"}"), "{all:?}");
    assert_eq!(all["yesquel_not_serving"], 0.0);
}
