//! A core on a folder: acknowledged state survives every kind of end.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, SystemTime},
};
use yesquel_engine::{Caller, EngineSettings};
use yesquel_model::{KeyRange, LocalId, NodeId, ServerId, Timestamp, TreeId, TxnId};
use yesquel_server::{
    Core, CoreError, DataFolder, DataFolderError, Durability, LogOptions, ReplySink, WallTime,
};
use yesquel_wire::{
    Answer, ByteWriter, Decision, Expect, NewNode, NodeKind, NodeOperation, Operations, Participants,
    Question, Questions, Reply, Request, TransactionOutcome, WriteOperation,
};

struct Replies(Sender<Vec<u8>>);

impl ReplySink for Replies {
    fn deliver(&self, _: Caller, reply: &[u8]) {
        self.0.send(reply.to_vec()).unwrap();
    }
}

struct Server {
    core: Core,
    replies: Receiver<Vec<u8>>,
    number: u64,
    last_txn: u64,
}

/// Folder of the group of server 0.
const GROUP: &str = "group-00000";

/// Unique transaction numbers.
static NEXT_TXN: AtomicU64 = AtomicU64::new(1);

/// The birth of a transaction that begins now.
fn birth() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::from_ms(now.as_millis() as u64)
}

fn root() -> NodeId {
    NodeId::root(TreeId::new(1).unwrap(), ServerId(0))
}

impl Server {
    fn open(path: &Path, options: LogOptions) -> Result<Server, CoreError> {
        Server::open_as(0, path, options)
    }

    fn open_as(number: u16, path: &Path, options: LogOptions) -> Result<Server, CoreError> {
        let (sender, replies) = channel();
        let folder = DataFolder::take(path)?;
        let settings = EngineSettings { server: ServerId(number), ..EngineSettings::default() };
        let core = Core::open(folder, settings, options, WallTime::default(), Replies(sender))?;
        Ok(Server { core, replies, number: 0, last_txn: 0 })
    }

    fn ask(&mut self, request: &Request<'_>) -> Vec<u8> {
        self.number += 1;
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        self.core.handle(Caller { connection: 1, request: self.number }, &bytes).unwrap();
        self.replies.recv().unwrap()
    }

    fn commit(&mut self, writes: &[WriteOperation<'_>]) -> Timestamp {
        self.commit_at(root(), writes)
    }

    fn commit_at(&mut self, node: NodeId, writes: &[WriteOperation<'_>]) -> Timestamp {
        let operations: Vec<NodeOperation<'_>> =
            writes.iter().map(|write| NodeOperation { node, write: write.clone() }).collect();
        let bytes = Operations::encode(&operations);
        let operations = Operations::decode(&bytes).unwrap();
        let txn = TxnId { client: 7, number: NEXT_TXN.fetch_add(1, Relaxed) };
        self.last_txn = txn.number;
        let reply = self.ask(&Request::Commit {
            txn,
            birth: birth(),
            snapshot: None,
            seen: Timestamp::ZERO,
            lease: 0,
            staged: None,
            operations,
        });
        match Reply::decode(&reply).unwrap() {
            Reply::Committed(at) => at,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self) {
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        self.commit(&[WriteOperation::Create(new)]);
    }

    fn put(&mut self, number: u64, value: &[u8]) -> Timestamp {
        let key = number.to_be_bytes();
        self.commit(&[WriteOperation::Put { key: &key, value, expect: Expect::Any, is_large: false }])
    }

    fn get(&mut self, number: u64) -> Option<Vec<u8>> {
        let (mut bytes, key) = (Vec::new(), number.to_be_bytes());
        Question::Lookup { node: root(), key: &key }.write(&mut ByteWriter(&mut bytes));
        let questions = Questions::decode(&bytes).unwrap();
        let reply = self.ask(&Request::Read { snapshot: None, seen: Timestamp::ZERO, questions });
        let Reply::Answers { answers, .. } = Reply::decode(&reply).unwrap() else { panic!() };
        match answers.iter().next() {
            Some(Answer::Value(value)) => Some(value.to_vec()),
            Some(Answer::Absent) => None,
            other => panic!("{other:?}"),
        }
    }
}

/// An hour: the test would hang if the end waited for it.
#[test]
fn a_shutdown_does_not_wait_for_the_sync_interval() {
    let place = tempfile::tempdir().unwrap();
    let options = LogOptions { durability: Durability::Interval(3_600_000), ..LogOptions::default() };
    let mut server = Server::open(place.path(), options).unwrap();
    server.create();
    server.put(1, b"before");
    drop(server);
    let mut server = Server::open(place.path(), options).unwrap();
    assert_eq!(server.get(1).unwrap(), b"before");
}

/// Votes are on disk before they are answered, and decisions within a second, also under durabilities
/// that sync commits of one group later or never.
#[test]
fn votes_and_decisions_are_on_disk_under_every_durability() {
    for durability in [Durability::None, Durability::Interval(3_600_000)] {
        let place = tempfile::tempdir().unwrap();
        let options = LogOptions { durability, ..LogOptions::default() };
        let mut server = Server::open(place.path(), options).unwrap();
        server.create();
        let participants = Participants::encode(&[ServerId(0), ServerId(1)]);
        let participants = Participants::decode(&participants).unwrap();
        for number in 0..3 {
            server.put(number, b"unsynced");
            let key = number.to_be_bytes();
            let write =
                WriteOperation::Put { key: &key, value: b"voted", expect: Expect::Any, is_large: false };
            let operations = Operations::encode(&[NodeOperation { node: root(), write }]);
            let (txn, birth) = (TxnId { client: 8, number: 1 + number }, birth());
            let (waits, snapshot, seen, lease, staged) = (false, None, Timestamp::ZERO, 0, None);
            let operations = Operations::decode(&operations).unwrap();
            let reply = server.ask(&Request::Prepare {
                txn,
                birth,
                waits,
                snapshot,
                seen,
                participants,
                lease,
                staged,
                operations,
            });
            let Ok(Reply::Voted(at)) = Reply::decode(&reply) else { panic!() };
            let is_synced =
                |server: &Server| server.core.synced().0 == server.core.with_engine(|engine| engine.lsn());
            assert!(is_synced(&server), "{durability}");
            let decision = Decision::Commit(at);
            let reply = server.ask(&Request::Decide { txn, birth, participants, decision });
            assert_eq!(Reply::decode(&reply), Ok(Reply::Done));
            assert!(is_synced(&server), "{durability}");
        }
    }
}

/// After a clean stop the clock continues where it was, any number of times.
#[test]
fn clean_restarts_do_not_advance_the_clock() {
    for checkpoint_bytes in [1, u64::MAX] {
        let place = tempfile::tempdir().unwrap();
        let options = LogOptions { checkpoint_bytes, durability: Durability::None };
        let mut server = Server::open(place.path(), options).unwrap();
        server.create();
        let mut last = Timestamp::ZERO;
        for number in 0..100 {
            let at = server.put(number, b"value");
            assert!(at > last);
            last = at;
            drop(server);
            server = Server::open(place.path(), options).unwrap();
            // The status advances the clock: the wall clock is read after it.
            let clock = Timestamp(server.core.status().clock);
            let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            assert!(clock >= last && clock.ms() <= wall.as_millis() as u64 + 1, "{clock}");
        }
    }
}

#[test]
fn acknowledged_writes_survive_a_restart_with_and_without_checkpoints() {
    for (durability, checkpoint_bytes) in [
        (Durability::Sync, u64::MAX),
        (Durability::Sync, 2_000),
        (Durability::Interval(1), 2_000),
        (Durability::None, 2_000),
    ] {
        let place = tempfile::tempdir().unwrap();
        let options = LogOptions { durability, checkpoint_bytes };
        let mut server = Server::open(place.path(), options).unwrap();
        server.create();
        let (mut expected, mut last) = (BTreeMap::new(), Timestamp::ZERO);
        let mut server_txn = TxnId { client: 7, number: 0 };
        for round in 0..4u64 {
            for number in 0..50 {
                let value = format!("{round} {number}").repeat(3);
                let at = server.put(number * (round + 1), value.as_bytes());
                assert!(at > last, "time continues over restarts");
                last = at;
                server_txn.number = server.last_txn;
                expected.insert(number * (round + 1), value);
            }
            drop(server);
            server = Server::open(place.path(), options).unwrap();
            for (number, value) in &expected {
                assert_eq!(server.get(*number).as_deref(), Some(value.as_bytes()));
            }
            assert_eq!(server.get(777), None);
            // Outcomes of transactions are recovered, too.
            let reply = server.ask(&Request::Outcome { txn: server_txn, birth: birth() });
            let ended = Reply::decode(&reply).unwrap();
            assert!(
                matches!(ended, Reply::Outcome(TransactionOutcome::Decided(Decision::Commit(_)))),
                "{ended:?}"
            );
        }
        drop(server);
        let names: Vec<String> = fs::read_dir(place.path().join(GROUP))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        let checkpoints = names.iter().filter(|name| name.starts_with("checkpoint-")).count();
        assert_eq!(checkpoints, usize::from(checkpoint_bytes != u64::MAX), "{names:?}");
    }
}

/// A start reads little more of the log than what follows the checkpoint.
#[test]
fn frequent_checkpoints_keep_the_log_short() {
    let place = tempfile::tempdir().unwrap();
    let options = LogOptions { checkpoint_bytes: 64 << 10, ..LogOptions::default() };
    let mut server = Server::open(place.path(), options).unwrap();
    server.create();
    let value = vec![7; 16 << 10];
    for number in 0..256 {
        server.put(number % 4, &value);
    }
    drop(server);
    let bytes = |prefix: &str| -> u64 {
        let files = fs::read_dir(place.path().join(GROUP)).unwrap().map(|entry| entry.unwrap());
        let meant = files.filter(|file| file.file_name().to_string_lossy().starts_with(prefix));
        meant.map(|file| file.metadata().unwrap().len()).sum()
    };
    // A checkpoint has the versions of the last seconds, which on a fast machine are all. The next one
    // is due when the log has half as many bytes.
    let (log, checkpoint) = (bytes("log-"), bytes("checkpoint-"));
    assert!(log < checkpoint / 2 + (1 << 20), "{log} bytes of four megabytes beside {checkpoint}");
    assert!(log < 3 << 20, "{log} bytes of four megabytes are left");
    let mut server = Server::open(place.path(), options).unwrap();
    (0..4).for_each(|number| assert_eq!(server.get(number).as_ref(), Some(&value)));
}

/// A leaf was emptied before and not removed yet.
#[test]
fn empty_leaves_are_found_after_a_restart() {
    for checkpoint_bytes in [1, u64::MAX] {
        let place = tempfile::tempdir().unwrap();
        let options = LogOptions { checkpoint_bytes, ..LogOptions::default() };
        let mut server = Server::open(place.path(), options).unwrap();
        server.create();
        let leaf = NodeId { local: LocalId(1 << 20), ..root() };
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        server.commit_at(leaf, &[WriteOperation::Create(new)]);
        server.put(1, b"value");
        drop(server);
        let server = Server::open(place.path(), options).unwrap();
        assert_eq!(server.core.wait_for_work(Duration::ZERO).empty, [leaf]);
    }
}

#[test]
fn a_folder_has_one_server_at_a_time() {
    let place = tempfile::tempdir().unwrap();
    let first = Server::open(place.path(), LogOptions::default()).unwrap();
    let error = Server::open(place.path(), LogOptions::default()).err().unwrap();
    let holder = format!("in use by process {}", std::process::id());
    assert!(error.to_string().contains(&holder), "{error}");
    drop(first);
    drop(Server::open(place.path(), LogOptions::default()).unwrap());
    fs::write(place.path().join("letters.txt"), "dear").unwrap();
    let error = DataFolder::take(place.path()).unwrap_err();
    assert!(matches!(error, DataFolderError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("letters.txt"), "{error}");
}

#[test]
fn damage_is_reported_with_file_and_offset_and_nothing_changes() {
    let place = tempfile::tempdir().unwrap();
    let mut server = Server::open(place.path(), LogOptions::default()).unwrap();
    server.create();
    for number in 0..20 {
        server.put(number, b"value");
    }
    drop(server);
    let log = place.path().join(GROUP).join("log-00000000000000000001");
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let error = Server::open(place.path(), LogOptions::default()).err().unwrap().to_string();
    assert!(error.contains("log-00000000000000000001: damaged at byte"), "{error}");
    assert!(error.contains("Restore the folder from a copy"), "{error}");
    assert_eq!(fs::read(&log).unwrap(), bytes);
}

#[test]
fn a_folder_names_its_cluster_and_group() {
    let place = tempfile::tempdir().unwrap();
    drop(Server::open_as(3, place.path(), LogOptions::default()).unwrap());
    let machine = place.path().join("machine");
    let text = || fs::read_to_string(&machine).unwrap();
    let value = |name: &str| {
        let text = text();
        text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap().to_owned()
    };
    let [cluster, nonce] = [value("cluster"), value("nonce")];
    let rest = format!("home-group 3\nmachine 4\nincarnation 1\nnonce {nonce}\n");
    assert_eq!(text(), format!("format 2\ncluster {cluster}\n{rest}"));
    let refused = || Server::open(place.path(), LogOptions::default()).err().unwrap().to_string();
    let error = refused();
    assert!(error.contains("is the folder of server 3, and this is server 0"), "{error}");
    assert!(error.contains("--server 3"), "{error}");
    assert_eq!(value("incarnation"), "1", "a start that is refused does not count");
    drop(Server::open_as(3, place.path(), LogOptions::default()).unwrap());
    assert_eq!((value("cluster"), value("incarnation").as_str()), (cluster, "2"));
    assert_ne!(value("nonce"), nonce);
    // Of another version, or damaged.
    let whole = text();
    for (says, expected) in [
        ("format 4\nmachines of many\n", "the folder has format 4, and this version of Yesquel knows 3"),
        ("format 3\nmachines of many\n", "it does not say of which cluster and group the folder is"),
        ("format 1\n", "it does not say of which cluster and group the folder is"),
        (&whole[..whole.len() - 9], "it does not say of which cluster and group the folder is"),
        ("", "it does not say of which cluster and group the folder is"),
    ] {
        fs::write(&machine, says).unwrap();
        let error = refused();
        assert!(error.contains(expected), "{says:?}: {error}");
        assert_eq!(text(), says);
    }
    fs::remove_file(&machine).unwrap();
    let server = Server::open_as(4, place.path(), LogOptions::default());
    assert!(server.is_ok(), "a start that was interrupted left an empty group");
    drop(server);
    // Which is not the machine's now.
    let mut server = Server::open_as(4, place.path(), LogOptions::default()).unwrap();
    server.create();
    drop(server);
    fs::remove_file(&machine).unwrap();
    assert!(refused().contains("it does not say of which cluster and group the folder is"));
}

/// A folder without the files of its group is not a new one.
#[test]
fn a_missing_group_is_reported() {
    let place = tempfile::tempdir().unwrap();
    Server::open(place.path(), LogOptions::default()).unwrap().create();
    fs::rename(place.path().join(GROUP), place.path().join("group-moved")).unwrap();
    let error = Server::open(place.path(), LogOptions::default()).err().unwrap();
    assert!(matches!(error, CoreError::Folder(DataFolderError::NoGroup { .. })), "{error}");
    assert!(error.to_string().contains("group-00000: there is no such folder"), "{error}");
}

/// A log that was copied from another folder is refused.
#[test]
fn a_log_of_another_cluster_is_refused() {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for place in &places {
        Server::open(place.path(), LogOptions::default()).unwrap().create();
    }
    let name = |place: &tempfile::TempDir| file_of(place.path(), "log-");
    fs::copy(name(&places[0]), name(&places[1])).unwrap();
    let error = Server::open(places[1].path(), LogOptions::default()).err().unwrap().to_string();
    assert!(error.contains("log-00000000000000000001: it belongs to another cluster or group"), "{error}");
}

fn file_of(place: &Path, kind: &str) -> PathBuf {
    let files = fs::read_dir(place.join(GROUP)).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().starts_with(kind);
    files.filter(is_one).max().unwrap()
}

/// The log may reach back beyond a checkpoint: to its beginning, or to the previous checkpoint,
/// which is deleted a moment later.
#[test]
fn a_damaged_unneeded_checkpoint_is_reported_as_unneeded() {
    let place = tempfile::tempdir().unwrap();
    // So little data that the whole log is in one segment.
    let options = LogOptions { checkpoint_bytes: 2_000, ..LogOptions::default() };
    let mut server = Server::open(place.path(), options).unwrap();
    server.create();
    for number in 0..50 {
        server.put(number, b"before");
    }
    drop(server);
    let older = file_of(place.path(), "checkpoint-");
    let before = fs::read(&older).unwrap();
    let mut server = Server::open(place.path(), options).unwrap();
    for number in 50..100 {
        server.put(number, b"after");
    }
    drop(server);
    let newest = file_of(place.path(), "checkpoint-");
    assert_ne!(older, newest);
    let mut bytes = fs::read(&newest).unwrap();
    bytes[100] ^= 1;
    fs::write(&newest, &bytes).unwrap();
    let refused = || Server::open(place.path(), options).err().unwrap().to_string();
    let error = refused();
    assert!(error.contains(&format!("{}: damaged at byte 64", newest.display())), "{error}");
    assert!(error.contains("All of the log is there and has what was in it: move it out"), "{error}");
    fs::write(&older, &before).unwrap();
    let error = refused();
    let expected = format!("The one before it, {}, and all of the log after that are there", older.display());
    assert!(error.contains(&expected), "{error}");
    // The error does not claim this otherwise.
    let log = file_of(place.path(), "log-");
    let whole = fs::read(&log).unwrap();
    for keep in [whole.len() - 1, 0] {
        fs::write(&log, &whole[..keep]).unwrap();
        assert!(refused().contains("Restore the folder from a copy"));
    }
    fs::write(&log, &whole).unwrap();
    fs::write(&older, &before[..before.len() - 1]).unwrap();
    assert!(refused().contains("Restore the folder from a copy"));
    fs::write(&older, &before).unwrap();
    assert_eq!(fs::read(&newest).unwrap(), bytes, "the file changed");
    for checkpoint in [newest, older] {
        fs::remove_file(checkpoint).unwrap();
        let options = LogOptions { checkpoint_bytes: u64::MAX, ..options };
        let mut server = Server::open(place.path(), options).unwrap();
        for number in 0..100 {
            assert_eq!(server.get(number).unwrap(), if number < 50 { &b"before"[..] } else { b"after" });
        }
    }
}

#[test]
fn a_server_reports_its_disk_usage_and_last_checkpoint() {
    let place = tempfile::tempdir().unwrap();
    let bytes = |kind: &str| fs::metadata(file_of(place.path(), kind)).unwrap().len();
    let large = LogOptions { checkpoint_bytes: u64::MAX, ..LogOptions::default() };
    let mut server = Server::open(place.path(), large).unwrap();
    server.create();
    server.put(1, b"value");
    let log = server.core.status().log;
    // Preallocated zeros count, too.
    assert!(log.bytes > 100_000 && log.bytes == bytes("log-"), "{log:?}");
    assert_eq!(log.checkpoint, None);
    drop(server);
    let mut server = Server::open(place.path(), LogOptions { checkpoint_bytes: 1, ..large }).unwrap();
    server.put(2, b"value");
    // The first checkpoint is made at once, as there is no earlier one. It may finish after the
    // reply to the request that started it.
    let first = loop {
        match server.core.status().log.checkpoint {
            Some(first) => break first,
            None => std::thread::yield_now(),
        }
    };
    let lsn = server.core.status().log.lsn;
    assert!(first.lsn > 0 && first.lsn <= lsn && first.bytes > 0 && first.age_ms < 600_000, "{first:?}");
    // More than half of its size.
    server.put(3, &vec![b'v'; 2 * first.bytes as usize]);
    drop(server);
    let hour = Duration::from_secs(3_600);
    let file = fs::File::options().write(true).open(file_of(place.path(), "checkpoint-")).unwrap();
    file.set_modified(std::time::SystemTime::now() - hour).unwrap();
    let server = Server::open(place.path(), large).unwrap();
    let log = server.core.status().log;
    let last = log.checkpoint.unwrap();
    assert_eq!((log.bytes, last.bytes), (bytes("log-"), bytes("checkpoint-")));
    assert!(last.lsn > lsn && last.age_ms >= 3_600_000 && last.age_ms < 4_200_000, "{last:?}");
}
