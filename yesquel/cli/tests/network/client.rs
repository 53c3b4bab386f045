//! A client in a process of its own: its threads append to lists of several groups in one
//! transaction, by maps or by SQL, and record it in a journal.

use crate::{
    journal::{Journal, THREADS, now},
    lists::{GROUPS, Lists, SLOTS, elements, group_of},
    load::{RoundLoad, SqlLevel},
    place::Place,
    sql_client::SqlWriter,
};
use std::{
    env,
    io::Read as _,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use yesquel::SocketOptions;
use yesquel_client::{Client, CommitError, RequestError};
use yesquel_histories::{ListOperation, RecordedOutcome};
use yesquel_model::Refusal;
use yesquel_seeds::Random;
use yesquel_transport::{SocketTransport, block_on};
use yesquel_tree::{Tree, TreeError, TreeTransaction, Trees};

/// What a client is to do: its number, the round, the seed of the run, and the folder.
const ORDER: &str = "YESQUEL_NETWORK_CLIENT";
/// Time between two transactions of a thread.
const PAUSE: Duration = Duration::from_millis(3);

/// Starts a client. It ends when its standard input is closed.
pub(crate) fn start(mut command: Command, place: &Place, number: u64, round: u64, seed: u64) -> Child {
    command.arg(env::current_exe().unwrap());
    command.args(["--exact", "client_process", "--nocapture"]);
    command.env(ORDER, format!("{number} {round} {seed} {}", place.folder().display()));
    let log = std::fs::File::create(place.client_log(number)).unwrap();
    command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().unwrap()
}

/// Runs the client that the environment orders, if any.
pub(crate) fn run_if_ordered() {
    let Ok(order) = env::var(ORDER) else { return };
    let mut words = order.splitn(4, ' ');
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (client, round, seed) = (number(), number(), number());
    let place = Place::at(words.next().unwrap().into());
    let journal = Journal::create(&place.journal(client)).unwrap();
    let load = RoundLoad::of(seed, round);
    let seed = seed.wrapping_add(client);
    let mut random = Random::new(seed);
    // Clients with a long timeout learn the outcomes of transactions that others do not.
    let timeout = Duration::from_secs([1, 3, 10][random.next(3) as usize]);
    let ends = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&ends);
    thread::spawn(move || {
        // Until the driver closes it, or is gone.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        is_over.store(true, Relaxed);
    });
    let threads =
        ClientThreads { place: &place, journal: &journal, client, round, seed, timeout, ends: &ends };
    match load {
        RoundLoad::Maps { is_serializable } => threads.write_maps(is_serializable),
        RoundLoad::Sql(level) => threads.write_sql(level),
    }
}

/// What the threads of a client share.
struct ClientThreads<'a> {
    place: &'a Place,
    journal: &'a Journal,
    client: u64,
    round: u64,
    seed: u64,
    timeout: Duration,
    ends: &'a AtomicBool,
}

impl ClientThreads<'_> {
    /// Runs the threads, with the number of each in the history and its draws.
    fn run(&self, work: impl Fn(u64, Random) + Sync) {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (work, process) = (&work, self.client * THREADS + thread);
                let random = Random::new(self.seed.wrapping_mul(THREADS).wrapping_add(thread));
                scope.spawn(move || work(process, random));
            }
        });
    }

    fn write_maps(&self, is_serializable: bool) {
        let ClientThreads { place, journal, round, ends, .. } = *self;
        let Some(trees) = connect(place, self.client, self.timeout, ends) else { return };
        let roots = place.trees();
        self.run(|process, random| {
            let (trees, roots, lists, element) = (&trees, &roots, Lists::new(round), process << 32);
            let mut writer =
                Writer { trees, roots, journal, process, random, lists, element, is_serializable };
            while !ends.load(Relaxed) {
                writer.transact();
                thread::sleep(PAUSE);
            }
        });
    }

    fn write_sql(&self, level: SqlLevel) {
        let ClientThreads { place, journal, round, timeout, ends, .. } = *self;
        self.run(|process, random| {
            let changes_schemas = process == self.client * THREADS;
            let writer =
                SqlWriter { place, journal, process, random, round, level, timeout, changes_schemas };
            writer.work(ends);
        });
    }
}

/// Connects to all servers, as soon as all can be reached.
fn connect(
    place: &Place,
    client: u64,
    timeout: Duration,
    ends: &AtomicBool,
) -> Option<Trees<SocketTransport>> {
    let options = SocketOptions { timeout, connect_timeout: Duration::from_secs(1), ..place.options() };
    let addresses: Vec<_> = (0..GROUPS).map(Place::address).collect();
    while !ends.load(Relaxed) {
        match SocketTransport::connect(&addresses, client, options.clone()) {
            Ok(transport) => return Some(Trees::new(Client::new(transport, client))),
            Err(error) => println!("{error}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
    None
}

/// Returns whether a fault explains the refusal, which then had no effect.
fn is_expected(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Conflict(_)
            | Refusal::SnapshotTooOld { .. }
            | Refusal::GivenUp(_)
            | Refusal::TooFarAhead(_)
            | Refusal::ClockDiffers { .. }
            | Refusal::DiskFailed
            | Refusal::DiskFull
            | Refusal::DiskLost
    )
}

/// Returns the outcome of a transaction that failed.
pub(crate) fn outcome(error: &TreeError) -> RecordedOutcome {
    match error {
        TreeError::Commit(CommitError::Unknown(
            RequestError::Lost(_) | RequestError::Refused(Refusal::DiskLost),
        )) => RecordedOutcome::Unknown,
        TreeError::Client(RequestError::Lost(_))
        | TreeError::Commit(CommitError::Failed(RequestError::Lost(_))) => RecordedOutcome::Aborted,
        TreeError::Client(RequestError::Refused(refusal))
        | TreeError::Commit(
            CommitError::Refused { refusal, .. } | CommitError::Failed(RequestError::Refused(refusal)),
        ) if is_expected(*refusal) => RecordedOutcome::Aborted,
        error => panic!("no fault explains this error: {error:?}"),
    }
}

struct Writer<'a> {
    trees: &'a Trees<SocketTransport>,
    roots: &'a [Tree],
    journal: &'a Journal,
    process: u64,
    random: Random,
    lists: Lists,
    /// The last element that was appended.
    element: u64,
    is_serializable: bool,
}

impl Writer<'_> {
    /// Runs a transaction and records it.
    fn transact(&mut self) {
        let (begun, mut operations) = (now(), Vec::new());
        let mut transaction = self.trees.begin();
        if self.is_serializable {
            transaction.serializable();
        }
        self.element += 1;
        for _ in 0..1 + self.random.next(4) {
            if let Err(error) = self.operate(&mut transaction, &mut operations) {
                // It was not sent. An unexpected error ends the client.
                assert_eq!(outcome(&error), RecordedOutcome::Aborted, "{error:?}");
                return;
            }
        }
        let entry = self.journal.try_commit(self.process, begun, &operations);
        let committed = block_on(transaction.commit());
        let outcome = committed.map_or_else(|error| outcome(&error), |_| RecordedOutcome::Committed);
        self.journal.end(entry, outcome);
    }

    /// Reads a list, and appends to most of them.
    fn operate(
        &mut self,
        transaction: &mut TreeTransaction<'_, SocketTransport>,
        operations: &mut Vec<ListOperation>,
    ) -> Result<(), TreeError> {
        let slot = self.random.next(SLOTS);
        let (key, list) = loop {
            let key = self.lists.key(slot);
            let value = block_on(transaction.get(self.roots[group_of(key)], &key.to_be_bytes()))?;
            let list = elements(value.as_deref());
            let has_own = list.contains(&self.element);
            // One element a list and transaction.
            if has_own {
                operations.push(ListOperation::read(key, list));
                return Ok(());
            }
            operations.push(ListOperation::read(key, list.clone()));
            if !self.lists.saw(slot, list.len()) {
                break (key, list);
            }
        };
        if self.random.next(3) > 0 {
            let all = list.iter().chain([&self.element]);
            let value: Vec<u8> = all.flat_map(|element| element.to_be_bytes()).collect();
            transaction.put(self.roots[group_of(key)], &key.to_be_bytes(), &value)?;
            operations.push(ListOperation::append(key, self.element));
        }
        Ok(())
    }
}
