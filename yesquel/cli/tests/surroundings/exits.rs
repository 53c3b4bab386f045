//! Processes that exit right after a commit at two servers: their decisions arrive, so that no
//! server must ask the other for a vote, and no reader waits for that.
//!
//! `EXITS=1000` sets the number of processes for each way to exit.

#![expect(unsafe_code, reason = "_exit() is the system's")]

use crate::groups::{Groups, SERVERS, connect, get_from_all, put_in_all};
use rustix::process::{Signal, getpid, kill_process};
use std::{
    env,
    fmt::Write as _,
    process::{self, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use yesquel::{Address, NodeId, SocketOptions};
use yesquel_transport::block_on;
use yesquel_tree::Tree;

/// Processes for each way to exit.
const EXITS: u64 = 25;
/// Processes at a time.
const AT_A_TIME: u64 = 4;
const READERS: u64 = 2;
/// Keys that the processes write and the readers read.
const KEYS: u64 = 8;
/// How long a reader waits before the server asks the others for their votes.
const WAITED_FOR: Duration = Duration::from_millis(500);

/// Variables of a process that commits and exits: how, where, and its number.
const WAY: &str = "YESQUEL_TEST_EXIT";
const PLACE: &str = "YESQUEL_TEST_PLACE";
const NUMBER: &str = "YESQUEL_TEST_NUMBER";

/// How a process ends after its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It closes its connections.
    Close,
    /// It calls `exit()`.
    Exit,
    /// It returns from `main()`.
    Return,
    /// It calls `_exit()`: no handler runs.
    AtOnce,
    /// It is killed.
    Kill,
}

const WAYS: [Way; 5] = [Way::Close, Way::Exit, Way::Return, Way::AtOnce, Way::Kill];

impl Way {
    /// Whether the process ends in an orderly way.
    fn is_orderly(self) -> bool {
        matches!(self, Way::Close | Way::Exit | Way::Return)
    }
}

fn key(number: u64) -> [u8; 8] {
    (number % KEYS).to_be_bytes()
}

/// A process of [`decisions_of_exiting_processes_arrive`]; without its variables it does nothing.
#[test]
fn exiting_committer() {
    let (Ok(way), Ok(place), Ok(number)) = (env::var(WAY), env::var(PLACE), env::var(NUMBER)) else { return };
    let way = WAYS.into_iter().find(|known| format!("{known:?}") == way).unwrap();
    let (mut addresses, mut all) = (Vec::<Address>::new(), Vec::new());
    for one in place.split(',') {
        let (address, root) = one.split_once('=').unwrap();
        addresses.push(address.parse().unwrap());
        all.push(Tree::at(NodeId::from_bits(root.parse().unwrap())));
    }
    let number: u64 = number.parse().unwrap();
    let client = u64::from(process::id()) << 20 | number;
    let trees = connect(&addresses, client, SocketOptions::default());
    let begun = Instant::now();
    put_in_all(&trees, &all, &key(number), &number.to_be_bytes()).unwrap();
    // The parent's only output to read.
    eprintln!("committed {}", begun.elapsed().as_micros());
    match way {
        Way::Close => drop(trees),
        Way::Exit => process::exit(0),
        Way::Return => std::mem::forget(trees),
        // SAFETY: the process ends.
        Way::AtOnce => unsafe { libc::_exit(0) },
        Way::Kill => kill_process(getpid(), Signal::KILL).unwrap(),
    }
}

/// Latencies of the readers and the longest commit, of some processes.
struct Measured {
    reads: Vec<Duration>,
    longest_commit: Duration,
}

impl Measured {
    fn quantile(&self, of: f64) -> Duration {
        self.reads[((self.reads.len() - 1) as f64 * of) as usize]
    }
}

/// Runs processes that commit and exit, several at a time, while others read what they write.
fn run(addresses: &[Address], all: &[Tree], way: Option<Way>, exits: u64) -> Measured {
    let place =
        addresses.iter().zip(all).map(|(address, tree)| format!("{address}={}", tree.root().to_bits()));
    let place = place.collect::<Vec<_>>().join(",");
    let (next, longest_us, ends) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let committed = |number: u64| {
        let Some(way) = way else { return stays(addresses, all, number) };
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "exits::exiting_committer", "--nocapture"]);
        command.env(WAY, format!("{way:?}")).env(PLACE, &place).env(NUMBER, number.to_string());
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success() != (way == Way::Kill), "{way:?}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let took = said.lines().find_map(|line| line.strip_prefix("committed ")).expect(&said);
        longest_us.fetch_max(took.parse().unwrap(), SeqCst);
    };
    let mut reads = thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let ends = &ends;
                scope.spawn(move || {
                    let trees = connect(addresses, 1 + reader, SocketOptions::default());
                    let mut latencies = Vec::new();
                    for number in 0.. {
                        if ends.load(SeqCst) {
                            break;
                        }
                        let begun = Instant::now();
                        let found = get_from_all(&trees, all, &key(number)).unwrap();
                        latencies.push(begun.elapsed());
                        assert_eq!(found[0], found[1], "half a transaction");
                    }
                    latencies
                })
            })
            .collect();
        let committers: Vec<_> = (0..AT_A_TIME)
            .map(|_| {
                let (next, committed) = (&next, &committed);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, SeqCst);
                        if number >= exits {
                            return;
                        }
                        committed(number);
                    }
                })
            })
            .collect();
        committers.into_iter().for_each(|committer| committer.join().unwrap());
        ends.store(true, SeqCst);
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    });
    reads.sort_unstable();
    Measured { reads, longest_commit: Duration::from_micros(longest_us.into_inner()) }
}

/// For comparison: a client that does not exit commits the same.
fn stays(addresses: &[Address], all: &[Tree], number: u64) {
    thread_local! {
        static TREES: std::cell::OnceCell<crate::groups::SocketTrees> = const { std::cell::OnceCell::new() };
    }
    TREES.with(|trees| {
        let trees = trees.get_or_init(|| connect(addresses, 1_000 + number, SocketOptions::default()));
        put_in_all(trees, all, &key(number), &number.to_be_bytes()).unwrap();
    });
}

/// Recoveries by their causes.
fn started(groups: &Groups) -> [u64; 3] {
    ["waiter", "connection", "age"]
        .map(|cause| groups.sum(&format!("yesquel_recoveries_started_total{{cause=\"{cause}\"}}")))
}

#[test]
fn decisions_of_exiting_processes_arrive() {
    let exits = env::var("EXITS").map_or(EXITS, |text| text.parse().unwrap());
    let groups = Groups::start();
    let trees = groups.client(100);
    let all = SERVERS.map(|server| block_on(trees.create(server)).unwrap());
    (0..KEYS).for_each(|number| put_in_all(&trees, &all, &key(number), b"first").unwrap());
    let mut table = String::new();
    for way in [None].into_iter().chain(WAYS.map(Some)) {
        let before = started(&groups);
        let measured = run(&groups.addresses, &all, way, exits);
        // Whatever is in doubt ends.
        groups.wait_for("yesquel_transactions_undecided", 0);
        let after = started(&groups);
        let [waiter, connection, age]: [u64; 3] = std::array::from_fn(|at| after[at] - before[at]);
        let name = way.map_or_else(|| "stays".to_owned(), |way| format!("{way:?}"));
        writeln!(
            table,
            "{name}: {exits} commits, recoveries {waiter} by a waiter, {connection} by the connection, {age} by age; {} reads, p50 {:?}, p99 {:?}, longest {:?}",
            measured.reads.len(),
            measured.quantile(0.5),
            measured.quantile(0.99),
            measured.quantile(1.0),
        )
        .unwrap();
        if way.is_none_or(Way::is_orderly) {
            // A server that sees the end of a connection has handled the decisions before it.
            assert_eq!(connection, 0, "{table}");
            // A client may be slow between its votes and its decisions.
            assert!(waiter == 0 || measured.longest_commit >= WAITED_FOR, "{table}");
        }
    }
    println!("{table}");
}
