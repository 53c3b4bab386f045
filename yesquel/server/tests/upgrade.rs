//! Folders of format 1 are refused, and upgraded.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::{
    fs,
    ops::ControlFlow,
    path::Path,
    sync::{
        Mutex,
        mpsc::{Sender, channel},
    },
};
use yesquel_engine::{Caller, EngineSettings};
use yesquel_model::{LocalId, NodeId, ServerId, TreeId, TxnId};
use yesquel_server::{
    Core, CoreError, DataFolder, DataFolderError, LogOptions, ReplySink, UpgradeError, UpgradeOutcome,
    WallTime, upgrade,
};
use yesquel_wire::{ByteWriter, Reply, Request};

struct NoReplies;

impl ReplySink for NoReplies {
    fn deliver(&self, _: Caller, _: &[u8]) {}
}

/// A copy of a folder that the last version with format 1 wrote.
/// Tree of the prepared transaction; its number is not from the counter.
const GIVEN_TREE: u64 = 1 << 40;

fn old_folder(name: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/format-1").join(name);
    for entry in fs::read_dir(old).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), place.path().join(entry.file_name())).unwrap();
    }
    place
}

fn open(place: &Path, server: u16) -> Result<Core, CoreError> {
    let settings = EngineSettings { server: ServerId(server), ..EngineSettings::default() };
    Core::open(DataFolder::take(place)?, settings, LogOptions::default(), WallTime::default(), NoReplies)
}

fn run(place: &Path) -> Result<UpgradeOutcome, UpgradeError> {
    upgrade(place, &mut |_, _| ControlFlow::Continue(()))
}

#[test]
fn an_old_folder_is_refused_and_upgraded() {
    for (name, server) in [("server-0", 0), ("server-3", 3)] {
        let place = old_folder(name);
        let files = |place: &Path| {
            let mut names: Vec<String> = fs::read_dir(place)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let before = files(place.path());
        let error = open(place.path(), server).unwrap_err();
        let is_it =
            matches!(error, CoreError::Folder(DataFolderError::OldFormat { is_interrupted: false, .. }));
        assert!(is_it, "{error}");
        let command = format!("yesquel upgrade --data {}", place.path().display());
        assert!(error.to_string().contains(&command), "{error}");
        fs::remove_file(place.path().join("lock")).unwrap();
        assert_eq!(files(place.path()), before, "nothing else changes");

        let done = run(place.path()).unwrap();
        let UpgradeOutcome::Upgraded { cluster, group, records, nodes, bytes } = done else {
            panic!("{done:?}")
        };
        assert!(group == ServerId(server) && records > 0 && nodes > 0 && bytes > 0, "{done:?}");
        let folder = format!("group-{server:05}");
        assert_eq!(files(place.path()), [&folder, "lock", "machine"]);
        let machine = fs::read_to_string(place.path().join("machine")).unwrap();
        assert!(machine.contains(&format!("cluster {cluster}\nhome-group {server}\n")), "{machine}");

        let core = open(place.path(), server).unwrap();
        let status = core.status();
        assert!(status.log.lsn > records, "{status:?}");
        core.with_engine(|engine| {
            engine.audit().unwrap();
            let undecided: Vec<TxnId> = engine.undecided().collect();
            assert_eq!(undecided, [TxnId { client: 7, number: 2 }]);
        });
        drop(core);
        assert_eq!(run(place.path()).unwrap(), UpgradeOutcome::Current { deleted: 0 });
        drop(open(place.path(), server).unwrap());
    }
}

/// Passes replies on.
struct Replies(Mutex<Sender<Vec<u8>>>);

impl ReplySink for Replies {
    fn deliver(&self, _: Caller, reply: &[u8]) {
        self.0.lock().unwrap().send(reply.to_vec()).unwrap();
    }
}

/// The counters of the old server become those of the cluster.
#[test]
fn numbers_begin_above_those_of_the_old_folder() {
    let place = old_folder("server-0");
    run(place.path()).unwrap();
    let (sender, replies) = channel();
    let folder = DataFolder::take(place.path()).unwrap();
    let (settings, options) = (EngineSettings::default(), LogOptions::default());
    let core =
        Core::open(folder, settings, options, WallTime::default(), Replies(Mutex::new(sender))).unwrap();
    let mut used = [0, 0];
    for tree in core.status().trees.iter().filter(|tree| tree.tree != GIVEN_TREE) {
        used[0] = used[0].max(tree.tree);
        let tree = TreeId::new(tree.tree).unwrap();
        for node in core.with_engine(|engine| engine.nodes_of(tree, None)).nodes {
            let node = NodeId::from_bits(u128::from_str_radix(&node.id, 16).unwrap());
            used[1] = used[1].max(node.local.0 >> 16);
        }
    }
    assert!(used.iter().all(|number| *number > 0), "{used:?}");
    for (counter, used) in [1, 2].into_iter().zip(used) {
        let node = NodeId { tree: TreeId::default(), server: ServerId(0), local: LocalId(counter) };
        let mut request = Vec::new();
        Request::Take { node, count: 64, above: 0 }.write(&mut ByteWriter(&mut request));
        core.handle(Caller { connection: 1, request: counter }, &request).unwrap();
        let reply = replies.recv().unwrap();
        let Ok(Reply::Taken(first)) = Reply::decode(&reply) else { panic!("{:?}", Reply::decode(&reply)) };
        assert!(first > used, "counter {counter} goes on at {first}, and {used} is used");
    }
}

/// After step 4 neither the old release nor this one opens the folder.
#[test]
fn an_upgrade_that_was_interrupted_is_named() {
    let place = old_folder("server-0");
    let owner = place.path().join("server");
    fs::write(&owner, "format 2\n").unwrap();
    let error = open(place.path(), 0).unwrap_err();
    assert!(error.to_string().contains("the upgrade of the folder has not finished"), "{error}");
    // No upgrade leaves a folder that does not name its server.
    let error = run(place.path()).unwrap_err();
    assert!(matches!(error, UpgradeError::Folder(DataFolderError::NoOwner { .. })), "{error}");
    fs::remove_file(&owner).unwrap();
    assert!(matches!(run(place.path()).unwrap(), UpgradeOutcome::Upgraded { .. }));
    drop(open(place.path(), 0).unwrap());
}

#[test]
fn there_may_be_nothing_to_upgrade() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(run(place.path()).unwrap(), UpgradeOutcome::Empty);
    // A server that was started and stopped at once.
    fs::write(place.path().join("server"), "format 1\nserver 3\n").unwrap();
    let done = run(place.path()).unwrap();
    assert!(matches!(done, UpgradeOutcome::Upgraded { group: ServerId(3), records: 0, .. }), "{done:?}");
    drop(open(place.path(), 3).unwrap());
    let missing = place.path().join("missing");
    assert!(matches!(run(&missing), Err(UpgradeError::Folder(DataFolderError::Io { .. }))));
    assert!(!missing.exists(), "no folder is created");
    let core = open(place.path(), 3).unwrap();
    assert!(matches!(run(place.path()), Err(UpgradeError::Folder(DataFolderError::InUse { .. }))));
    drop(core);
}
