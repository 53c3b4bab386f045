//! Commit over several groups: its round trips and messages, and many clients that write the same
//! rows in two groups, on a simulated cluster without faults.

use crate::support::{create_leaves, node};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
};
use yesquel_client::{Client, ReadReply, ReadView, SentCounts, ServerQuestions, Writes};
use yesquel_model::{Conflict, Refusal, ServerId, Timestamp, TxnId};
use yesquel_seeds::check_seeds;
use yesquel_simulation::{
    Application, Cluster, InjectedFault, Network, SERVERS_MAX, SharedCluster, TASKS_PER_PROCESS, TaskFuture,
    pause, run,
};
use yesquel_transport::Transport;
use yesquel_wire::{
    Answer, ByteWriter, Decision, Expect, NodeOperation, Operations, Participants, Question, Reply, Request,
    WriteOperation,
};

/// Clients that write the same rows.
const CLIENTS: usize = 32;
/// Transactions of each.
const ROUNDS: u64 = 8;
const SERVERS: usize = 3;
/// Far longer than a run takes.
const LIMIT_MS: u64 = 60_000;

fn put(server: usize) -> NodeOperation<'static> {
    let write = WriteOperation::Put { key: b"row", value: b"value", expect: Expect::Any, is_large: false };
    NodeOperation { node: node(server), write }
}

/// What a task does with its network.
type Work = Rc<dyn Fn(SharedCluster, usize, Network) -> TaskFuture>;

/// A cluster with an empty leaf on each server, whose tasks do something.
struct Tasks {
    cluster: SharedCluster,
    work: Work,
}

impl Application for Tasks {
    fn set_up(&self, network: Network) -> TaskFuture {
        let servers = self.cluster.borrow().server_count();
        Box::pin(create_leaves(network, servers, |_, _| {}))
    }

    fn process(&self, process: usize, network: Network, _: u64) -> [TaskFuture; TASKS_PER_PROCESS] {
        std::array::from_fn(|number| {
            let task = process * TASKS_PER_PROCESS + number;
            (self.work)(Rc::clone(&self.cluster), task, network.clone())
        })
    }

    fn observe(&self, _: Network, _: u64) -> TaskFuture {
        Box::pin(async {})
    }

    fn verify(&self, cluster: &mut Cluster, _: &str) {
        yesquel_simulation::outcomes(&cluster.logs());
    }
}

fn run_tasks(seed: u64, work: impl Fn(SharedCluster, usize, Network) -> TaskFuture + 'static) {
    run_servers(SERVERS, seed, work);
}

fn run_servers(
    count: usize,
    seed: u64,
    work: impl Fn(SharedCluster, usize, Network) -> TaskFuture + 'static,
) {
    let work: Work = Rc::new(work);
    let latency = InjectedFault::Latency { seed, late_in: 0, late_us: 0 };
    run(&[InjectedFault::Servers { count }, latency], |cluster| {
        Rc::new(Tasks { cluster: Rc::clone(cluster), work: Rc::clone(&work) })
    });
}

/// Runs a task of one client, which must end.
fn run_client<F: Future<Output = ()> + 'static>(
    servers: usize,
    work: impl Fn(Client<Network>) -> F + 'static,
) {
    let has_ended = Rc::new(Cell::new(false));
    let ended = Rc::clone(&has_ended);
    run_servers(servers, 1, move |_, task, network| {
        let work = (task == 0).then(|| work(Client::new(network, 1)));
        let ended = Rc::clone(&ended);
        Box::pin(async move {
            if let Some(work) = work {
                work.await;
                ended.set(true);
            }
        })
    });
    assert!(has_ended.get());
}

/// Requests beyond those that overlap others.
fn trips(counts: SentCounts) -> u64 {
    counts.requests - counts.overlapping
}

fn sent_since(client: &Client<Network>, before: SentCounts) -> SentCounts {
    let now = client.counters().counts();
    SentCounts {
        requests: now.requests - before.requests,
        overlapping: now.overlapping - before.overlapping,
        ..now
    }
}

/// A commit takes one round trip, over however many groups, and a prepare and a decision to each
/// group. Nothing else is sent: no message tells that an end may be forgotten.
#[test]
fn a_commit_takes_one_round_trip_and_two_messages_a_group() {
    run_client(SERVERS, |client| async move {
        for (servers, reads) in [(1, false), (2, false), (3, false), (1, true), (2, true), (3, true)] {
            let before = client.counters().counts();
            let mut snapshot = None;
            if reads {
                let question = Question::Lookup { node: node(0), key: b"row" };
                client.read(&mut snapshot, ServerId(0), &[question]).await.unwrap();
            }
            let mut writes = Writes::new();
            (0..servers).for_each(|server| writes.push(&put(server)));
            client.commit(snapshot, &writes).await.unwrap();
            let after = sent_since(&client, before);
            let messages = if servers == 1 { 1 } else { 2 * servers as u64 };
            let reads = u64::from(reads);
            assert_eq!((trips(after), after.requests), (1 + reads, messages + reads), "{servers}");
        }
    });
}

/// Parts that were staged at a group to which the transaction writes nothing else commit with it, and
/// so do those of a transaction that has nothing else.
#[test]
fn parts_at_a_group_without_other_operations_commit() {
    run_client(SERVERS, |client| async move {
        for written in [&[][..], &[0], &[2], &[0, 2]] {
            let (value, mut staging) = (written.len().to_string(), client.staging());
            let write = |key| {
                let (value, expect) = (value.as_bytes(), Expect::Any);
                WriteOperation::Put { key, value, expect, is_large: false }
            };
            let part = Operations::encode(&[NodeOperation { node: node(1), write: write(b"part") }]);
            client.stage(&mut staging, ServerId(1), &part).await.unwrap();
            let mut writes = Writes::new();
            for server in written {
                writes.push(&NodeOperation { node: node(*server), write: write(b"row") });
            }
            client.commit_staged(None, &writes, &mut staging).await.unwrap();
            for (server, key) in
                [(1, &b"part"[..])].into_iter().chain(written.iter().map(|s| (*s, &b"row"[..])))
            {
                let question = Question::Lookup { node: node(server), key };
                let mut snapshot = None;
                let reading = client.read(&mut snapshot, ServerId(server as u16), &[question]).await.unwrap();
                let answer = reading.answers().unwrap().iter().next();
                assert_eq!(answer, Some(Answer::Value(value.as_bytes())), "{written:?}");
            }
        }
    });
}

/// An update over n groups takes two round trips in the critical path: all groups are read at one
/// snapshot in the first, and commit in the second. It sends three messages to each group.
#[test]
fn an_update_over_groups_takes_two_round_trips() {
    run_client(SERVERS_MAX, |client| async move {
        for servers in [1, 2, 4, 8] {
            let before = client.counters().counts();
            let mut view = ReadView::default();
            let asked: Vec<ServerQuestions<'_>> = (0..servers)
                .map(|server| {
                    let question = Question::Lookup { node: node(server), key: b"row" };
                    (ServerId(server as u16), vec![question])
                })
                .collect();
            let replies = client.read_all(&mut view, &asked).await.unwrap();
            let absent =
                |reply: &ReadReply| matches!(reply.answers().unwrap().iter().next(), Some(Answer::Absent));
            // The round before has written the lower half.
            let absents = replies.iter().filter(|reply| absent(reply)).count();
            assert_eq!(absents, servers.div_ceil(2));
            let read = sent_since(&client, before);
            assert_eq!((trips(read), read.requests), (1, servers as u64), "{servers}");
            let mut writes = Writes::new();
            (0..servers).for_each(|server| writes.push(&put(server)));
            client.commit(view.snapshot, &writes).await.unwrap();
            let all = sent_since(&client, before);
            let messages = if servers == 1 { 2 } else { 3 * servers as u64 };
            assert_eq!((trips(all), all.requests), (2, messages), "{servers}");
        }
    });
}

/// The results of contending clients.
#[derive(Debug, Default)]
struct Throughput {
    commits: u64,
    messages: u64,
    /// When the last client was done.
    ended_ms: u64,
    /// The times of all commits, in milliseconds.
    at_ms: Vec<u64>,
}

/// Polls all futures until each is done.
async fn all(mut futures: Vec<TaskFuture>) {
    poll_fn(|context: &mut Context<'_>| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A request of the test itself, as today's clients sent it: one server after the other, and no
/// waiting.
async fn ask(network: &Network, messages: &mut u64, server: usize, request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.write(&mut ByteWriter(&mut bytes));
    *messages += 1;
    network.call(ServerId(server as u16), &bytes).await.unwrap()
}

fn prepare_of<'a>(
    txn: TxnId,
    clock: Timestamp,
    participants: Participants<'a>,
    operations: Operations<'a>,
) -> Request<'a> {
    let (birth, waits, snapshot, seen, lease, staged) = (clock, false, None, Timestamp::ZERO, 0, None);
    Request::Prepare { txn, birth, waits, snapshot, seen, participants, lease, staged, operations }
}

/// One attempt in sequential order; true if it committed.
async fn sequential_attempt(network: &Network, txn: TxnId, messages: &mut u64) -> bool {
    let encoded = Participants::encode(&[ServerId(0), ServerId(1)]);
    let participants = Participants::decode(&encoded).unwrap();
    let birth = Timestamp::from_ms(network.clock().ms());
    let (mut at, mut asked, mut is_yes) = (Timestamp::ZERO, Vec::new(), true);
    for server in [0, 1] {
        let operations = Operations::encode(&[put(server)]);
        let request = prepare_of(txn, birth, participants, Operations::decode(&operations).unwrap());
        asked.push(server);
        match Reply::decode(&ask(network, messages, server, &request).await).unwrap() {
            Reply::Voted(vote) => at = at.max(vote),
            Reply::Refused { refusal: Refusal::Conflict(Conflict::Prepared { .. }), .. } => {
                is_yes = false;
                break;
            }
            reply => panic!("{reply:?}"),
        }
    }
    let decision = if is_yes { Decision::Commit(at) } else { Decision::Abort };
    for server in asked {
        ask(network, messages, server, &Request::Decide { txn, birth, participants, decision }).await;
    }
    is_yes
}

/// A client that has prepared at one group, and dies.
async fn prepare_and_die(network: &Network, number: u64) {
    let encoded = Participants::encode(&[ServerId(0), ServerId(1)]);
    let participants = Participants::decode(&encoded).unwrap();
    let operations = Operations::encode(&[put(1)]);
    let txn = TxnId { client: 900, number };
    let birth = Timestamp::from_ms(network.clock().ms());
    let request = prepare_of(txn, birth, participants, Operations::decode(&operations).unwrap());
    ask(network, &mut 0, 1, &request).await;
}

/// 32 clients that write two rows in two groups; one more dies between its vote and the decision.
fn contend(seed: u64, is_sequential: bool, dies: bool) -> Throughput {
    let results = Rc::new(RefCell::new(Throughput::default()));
    let counted = Rc::clone(&results);
    run_tasks(seed, move |cluster, task, network| {
        let counted = Rc::clone(&counted);
        let clients = (0..CLIENTS).filter(move |client| client % (TASKS_PER_PROCESS * 3) == task);
        let mut futures: Vec<TaskFuture> = Vec::new();
        for client in clients {
            let (cluster, network, counted) = (Rc::clone(&cluster), network.clone(), Rc::clone(&counted));
            futures.push(Box::pin(async move {
                let own = Client::new(network.clone(), 100 + client as u64);
                let (mut number, mut messages) = (0, 0);
                for _ in 0..ROUNDS {
                    if is_sequential {
                        loop {
                            number += 1;
                            let txn = TxnId { client: 100 + client as u64, number };
                            if sequential_attempt(&network, txn, &mut messages).await {
                                break;
                            }
                        }
                    } else {
                        let mut writes = Writes::new();
                        [0, 1].into_iter().for_each(|server| writes.push(&put(server)));
                        own.commit(None, &writes).await.unwrap();
                    }
                    let at_ms = cluster.borrow_mut().clock(0).uptime_ms;
                    counted.borrow_mut().at_ms.push(at_ms);
                }
                let mut counted = counted.borrow_mut();
                counted.commits += ROUNDS;
                counted.messages += messages + own.counters().counts().requests;
                counted.ended_ms = counted.ended_ms.max(cluster.borrow_mut().clock(0).uptime_ms);
            }));
        }
        if dies && task == 0 {
            let network = network.clone();
            futures.push(Box::pin(async move {
                pause(&cluster, 20_000).await;
                prepare_and_die(&network, 1).await;
            }));
        }
        Box::pin(all(futures))
    });
    drop(Rc::clone(&results));
    results.take()
}

/// Each client commits each of its transactions, whatever the others do, and the whole is not slower
/// than clients that ask one group after the other and begin again when they are refused.
#[test]
fn clients_that_write_the_same_rows_in_two_groups_make_progress() {
    let (mut new, mut old) = (Throughput::default(), Throughput::default());
    check_seeds(4, |seed| {
        for (is_sequential, sum) in [(false, &mut new), (true, &mut old)] {
            let one = contend(seed, is_sequential, false);
            assert_eq!(one.commits, CLIENTS as u64 * ROUNDS);
            sum.commits += one.commits;
            sum.messages += one.messages;
            sum.ended_ms += one.ended_ms;
        }
    });
    println!("new {new:?}, sequential {old:?}");
    assert!(new.ended_ms <= old.ended_ms, "virtual time: {} and {} ms", new.ended_ms, old.ended_ms);
    assert!(new.messages <= old.messages, "messages: {} and {}", new.messages, old.messages);
}

/// A dead client's vote stops the others only until recovery has ended its transaction.
#[test]
fn a_dead_clients_vote_stops_the_others_for_a_second_at_most() {
    check_seeds(4, |seed| {
        let mut all = contend(seed, false, true);
        assert_eq!(all.commits, CLIENTS as u64 * ROUNDS);
        all.at_ms.sort_unstable();
        let pause_ms = all.at_ms.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(pause_ms <= 1_000, "seed {seed}: no commit for {pause_ms} ms");
        assert!(all.ended_ms < LIMIT_MS);
    });
}
