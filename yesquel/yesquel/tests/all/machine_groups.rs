//! Machines that host several groups: one socket, one folder, a log for each group.

use crate::peers::{birth, create, node, prepare_among, read};
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use yesquel::{
    Address, CheckObserver, CheckProgress, Database, EngineSettings, Error, FoundFault, GROUPS_MAX,
    JoinOptions, LeafPlacement, ListenOptions, LogOptions, ManagementRefusal, Map, PeerOptions, Placement,
    Role, Server, ServerId, SocketOptions, Store, TxnId,
    status::{
        DirectoryStatus,
        MachineState::{self, Removed, Serving},
    },
};
use yesquel_transport::SocketTransport;
use yesquel_wire::Reply;

const CREDENTIAL: &[u8] = b"of servers";

/// Folder with the data folders of servers, each of which has a name.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn address(&self, name: &str) -> Address {
        Address::Unix(self.path(&format!("{name}.sock")))
    }

    fn options(&self, name: &str, groups: u16) -> ListenOptions {
        let peers = PeerOptions { credential: Some(CREDENTIAL.into()), ..PeerOptions::default() };
        let addresses = vec![self.address(name)];
        ListenOptions { addresses, has_group_of_folder: true, groups, peers, ..ListenOptions::default() }
    }

    fn start_with(&self, name: &str, listen: ListenOptions) -> Result<Server, Error> {
        let settings = EngineSettings::default();
        Server::start(Some(&self.path(name)), settings, LogOptions::default(), listen)
    }

    /// Starts a server with so many groups at least.
    fn start(&self, name: &str, groups: u16) -> Server {
        self.start_with(name, self.options(name, groups)).unwrap()
    }

    /// Starts a server with a new folder that joins the cluster of another one.
    fn join(&self, name: &str, other: &str, groups: u16) -> Server {
        let token_file = self.path(&format!("{name}.token"));
        let token = self.operator(other).add_machine(Duration::from_secs(3_600)).unwrap();
        fs::write(&token_file, token).unwrap();
        let join = Some(JoinOptions { addresses: vec![self.address(other)], token_file });
        self.start_with(name, ListenOptions { join, ..self.options(name, groups) }).unwrap()
    }

    fn connect(&self, name: &str, role: Role) -> Store {
        let credential = if role == Role::Client { Box::default() } else { CREDENTIAL.into() };
        let options = SocketOptions { credential, role, lanes: 0, ..SocketOptions::default() };
        Store::connect(&self.address(name), options).unwrap()
    }

    fn client(&self, name: &str) -> Store {
        self.connect(name, Role::Client)
    }

    fn operator(&self, name: &str) -> Store {
        self.connect(name, Role::Operator)
    }

    /// Waits until a server knows the machines with these groups and states.
    fn wait_for(&self, name: &str, expected: &[(u32, &[u16], MachineState)]) -> DirectoryStatus {
        let store = self.client(name);
        loop {
            let directory = store.directory().unwrap();
            let found = directory.machines.iter();
            let found: Vec<(u32, Vec<u16>, MachineState)> =
                found.map(|entry| (entry.machine, entry.all_groups().collect(), entry.state)).collect();
            if found
                .iter()
                .map(|(machine, groups, state)| (*machine, &groups[..], *state))
                .eq(expected.iter().copied())
            {
                return directory;
            }
            thread::yield_now();
        }
    }
}

/// The groups that a server hosts.
fn hosted(server: &Server) -> Vec<u16> {
    server.host().groups().iter().map(|group| group.server().0).collect()
}

/// Creates a database with a map at each of these groups, and writes a key of all in one transaction.
fn create_maps(store: &Store, name: &str, groups: &[u16]) -> (Database, Vec<Map>) {
    let at = groups.iter().map(|group| ServerId(*group)).collect();
    let database = store.create_database_at(name, &Placement::Groups(at)).unwrap();
    let maps = (0..groups.len()).map(|number| database.map(&format!("map {number}")).unwrap());
    let maps: Vec<Map> = maps.collect();
    assert_at(&maps, groups);
    put_in_all(&database, &maps, b"first");
    (database, maps)
}

/// Checks that one map is at each of these groups.
fn assert_at(maps: &[Map], groups: &[u16]) {
    let [mut found, mut expected] =
        [maps.iter().map(|map| map.group().0).collect::<Vec<_>>(), groups.to_vec()];
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

fn put_in_all(database: &Database, maps: &[Map], value: &[u8]) {
    let write = |transaction: &mut yesquel::Transaction| {
        maps.iter().try_for_each(|map| transaction.put(*map, b"key", value).map(drop))
    };
    database.run(write).unwrap();
}

fn assert_in_all(store: &Store, name: &str, groups: &[u16], value: &[u8]) {
    let database = store.database(name).unwrap();
    let maps = (0..groups.len()).map(|number| database.map(&format!("map {number}")).unwrap());
    let maps: Vec<Map> = maps.collect();
    assert_at(&maps, groups);
    for map in maps {
        assert_eq!(database.get(map, b"key").unwrap().as_deref(), Some(value), "{map:?}");
    }
}

/// Fails on a fault.
struct NoFaults;

impl CheckObserver for NoFaults {
    fn fault(&mut self, fault: &FoundFault) {
        panic!("{fault:?}");
    }

    fn progress(&mut self, _: &CheckProgress) -> bool {
        true
    }
}

fn check(store: &Store) {
    assert_eq!(store.check(None, &mut NoFaults).unwrap().faults, 0);
}

#[test]
fn a_client_has_one_connection_to_a_machine_with_several_groups() {
    let listen = ListenOptions {
        addresses: vec!["127.0.0.1:0".parse().unwrap()],
        groups: 3,
        ..ListenOptions::default()
    };
    let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
    assert_eq!(hosted(&server), [0, 1, 2]);
    let options = SocketOptions { lanes: 0, ..SocketOptions::default() };
    let store = Store::connect(&server.addresses()[0], options).unwrap();
    let (database, maps) = create_maps(&store, "wide", &[0, 1, 2]);
    put_in_all(&database, &maps, b"second");
    assert_in_all(&store, "wide", &[0, 1, 2], b"second");
    for status in server.statuses() {
        assert!(status.requests.prepares > 0 && status.requests.reads > 0, "group {}", status.server);
        // The greeting tells the epochs.
        assert_eq!(status.requests.wrong_group, 0, "group {}", status.server);
        assert_eq!(status.connections.accepted, 1);
    }
    assert_eq!(store.directory().unwrap().groups.len(), 3);
    check(&store);
}

#[test]
fn numbers_of_groups_outside_the_limits_are_refused() {
    for (server, groups) in [(0, 0), (0, GROUPS_MAX + 1), (u16::MAX, 2)] {
        let listen = ListenOptions { groups, ..ListenOptions::default() };
        let settings = EngineSettings { server: ServerId(server), ..EngineSettings::default() };
        let started = Server::start(None, settings, LogOptions::default(), listen);
        assert!(matches!(started, Err(Error::GroupCount(count)) if count == groups), "{started:?}");
    }
}

#[test]
fn a_new_server_has_no_number_of_a_group_of_another_machine() {
    let place = Place::new();
    let _first = place.start("a", 3);
    let start = |number| {
        let peers = PeerOptions {
            servers: vec![(ServerId(0), place.address("a"))],
            credential: Some(CREDENTIAL.into()),
            ..PeerOptions::default()
        };
        let addresses = vec![place.address("b")];
        let listen = ListenOptions { addresses, peers, ..ListenOptions::default() };
        let settings = EngineSettings { server: ServerId(number), ..EngineSettings::default() };
        Server::start(Some(&place.path("b")), settings, LogOptions::default(), listen)
    };
    let taken = start(2);
    assert!(matches!(taken, Err(Error::GroupTaken { group: 2, .. })), "{taken:?}");
    assert_eq!(hosted(&start(3).unwrap()), [3]);
}

#[test]
fn the_groups_of_a_folder_start_again_and_more_of_them() {
    let place = Place::new();
    let server = place.start("a", 1);
    assert_eq!(hosted(&server), [0]);
    create_maps(&place.client("a"), "old", &[0]);
    drop(server);
    let server = place.start("a", 3);
    assert_eq!(hosted(&server), [0, 1, 2]);
    let store = place.client("a");
    assert_in_all(&store, "old", &[0], b"first");
    create_maps(&store, "wide", &[2, 0, 1]);
    drop((store, server));
    // None leaves the machine.
    let server = place.start("a", 1);
    assert_eq!(hosted(&server), [0, 1, 2]);
    let store = place.client("a");
    assert_in_all(&store, "wide", &[0, 1, 2], b"first");
    check(&store);
    let memory = server.statuses().iter().map(|status| status.log.lsn).collect::<Vec<_>>();
    assert!(memory.iter().all(|records| *records > 0), "{memory:?}");
    drop(store);
    drop(server);
    let server = place.start("a", 4);
    assert_eq!(hosted(&server), [0, 1, 2, 3]);
}

/// A start took a number and was interrupted before the folder of the group was the machine's.
#[test]
fn a_folder_of_a_group_that_is_not_the_machines_is_left_alone() {
    let place = Place::new();
    drop(place.start("a", 2));
    fs::create_dir(place.path("a").join("group-00002")).unwrap();
    let server = place.start("a", 2);
    assert_eq!(hosted(&server), [0, 1]);
    drop(server);
    fs::remove_dir_all(place.path("a").join("group-00001")).unwrap();
    let refused = place.start_with("a", place.options("a", 2)).unwrap_err().to_string();
    assert!(refused.contains("group-00001"), "{refused}");
}

#[test]
fn the_memory_budget_is_divided_by_the_groups() {
    let place = Place::new();
    let settings = EngineSettings { memory_bytes_max: 64 << 20, ..EngineSettings::default() };
    for (start, groups) in [(2, 2), (4, 4), (1, 4)] {
        let listen = place.options("a", start);
        let server = Server::start(Some(&place.path("a")), settings, LogOptions::default(), listen).unwrap();
        let budgets: Vec<u64> =
            server.statuses().iter().filter_map(|status| status.memory.bytes_max).collect();
        assert_eq!(budgets, vec![(64 << 20) / groups; groups as usize]);
    }
}

#[test]
fn machines_with_several_groups_join_grow_and_leave() {
    let place = Place::new();
    let founder = place.start("a", 2);
    let server = place.join("b", "a", 2);
    assert_eq!(hosted(&server), [2, 3]);
    let both: [(u32, &[u16], MachineState); 2] = [(1, &[0, 1], Serving), (2, &[2, 3], Serving)];
    for name in ["a", "b"] {
        let directory = place.wait_for(name, &both);
        assert_eq!(directory.groups.iter().map(|group| group.group).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
    // A client of either machine reaches all groups.
    create_maps(&place.client("b"), "wide", &[0, 1, 2, 3]);
    assert_in_all(&place.client("a"), "wide", &[0, 1, 2, 3], b"first");
    // The clocks of machines are compared, not those of groups.
    for status in founder.statuses() {
        assert_eq!(status.peers.clocks.iter().map(|clock| clock.server).collect::<Vec<_>>(), [2]);
    }
    drop(server);
    let server = place.start("b", 3);
    assert_eq!(hosted(&server), [2, 3, 4]);
    let grown: [(u32, &[u16], MachineState); 2] = [(1, &[0, 1], Serving), (2, &[2, 3, 4], Serving)];
    place.wait_for("a", &grown);
    create_maps(&place.client("a"), "new", &[4, 1]);
    // The machine of the home group, which has peers by now.
    drop(founder);
    let founder = place.start("a", 3);
    assert_eq!(hosted(&founder), [0, 1, 5]);
    let grown: [(u32, &[u16], MachineState); 2] = [(1, &[0, 1, 5], Serving), (2, &[2, 3, 4], Serving)];
    for name in ["a", "b"] {
        place.wait_for(name, &grown);
    }
    create_maps(&place.client("b"), "last", &[5, 2]);
    check(&place.client("a"));
    let operator = place.operator("a");
    let refused = operator.remove_machine(2).unwrap_err();
    assert!(
        matches!(&refused, Error::Management(ManagementRefusal::HoldsDatabases { machine: 2, .. })),
        "{refused}"
    );
    for name in ["wide", "new", "last"] {
        operator.drop_database(name).unwrap();
    }
    operator.remove_machine(2).unwrap();
    let directory = place.wait_for("a", &[(1, &[0, 1, 5], Serving), (2, &[2, 3, 4], Removed)]);
    assert_eq!(directory.groups.iter().map(|group| group.group).collect::<Vec<_>>(), [0, 1, 5]);
    let refused = place.client("a").create_database_at("x", &Placement::Group(ServerId(3))).unwrap_err();
    assert!(matches!(refused, Error::NoGroup(3)), "{refused}");
    drop(server);
    // Its numbers never come again.
    assert_eq!(hosted(&place.join("c", "a", 1)), [6]);
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else if entry.file_name() != "lock" {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The second group of the copy lacks what the machine had on disk.
#[test]
fn an_older_copy_of_one_group_is_refused() {
    let place = Place::new();
    let _founder = place.start("a", 1);
    let server = place.join("b", "a", 2);
    assert_eq!(hosted(&server), [1, 2]);
    let (database, maps) = create_maps(&place.client("b"), "wide", &[1, 2]);
    drop(server);
    copy_folder(&place.path("b"), &place.path("older"));
    let server = place.start("b", 2);
    for value in [&b"1"[..], b"2", b"3"] {
        put_in_all(&database, &maps, value);
    }
    drop(server);
    // A start notes the ends of the logs.
    drop(place.start("b", 2));
    let group = place.path("b").join("group-00002");
    fs::rename(&group, place.path("newer")).unwrap();
    copy_folder(&place.path("older").join("group-00002"), &group);
    let refused = place.start_with("b", place.options("b", 2)).unwrap_err();
    let Error::OlderCopy { machine: 2, group: 2, log_end, known, .. } = refused else { panic!("{refused}") };
    assert!(log_end < known, "{log_end} {known}");
    fs::remove_dir_all(&group).unwrap();
    fs::rename(place.path("newer"), &group).unwrap();
    let _server = place.start("b", 2);
    assert_in_all(&place.client("b"), "wide", &[1, 2], b"3");
}

/// The folder is from before the machine had its second group.
#[test]
fn a_copy_without_a_group_is_refused() {
    let place = Place::new();
    let _founder = place.start("a", 1);
    drop(place.join("b", "a", 1));
    copy_folder(&place.path("b"), &place.path("older"));
    drop(place.start("b", 2));
    // Otherwise the start itself is refused.
    let text = fs::read_to_string(place.path("b").join("machine")).unwrap();
    let without = text.replace("format 3", "format 2").replace("groups 1 2\n", "");
    assert_ne!(text, without);
    fs::write(place.path("older").join("machine"), without).unwrap();
    let refused = place.start_with("older", place.options("older", 1)).unwrap_err();
    assert!(matches!(refused, Error::LostGroup { group: 2, .. }), "{refused}");
}

/// The groups of a machine ask each other for votes.
#[test]
fn a_transaction_in_doubt_among_the_groups_of_a_machine_ends() {
    let place = Place::new();
    let server = place.start("a", 3);
    let groups = [1, 2].map(ServerId);
    let client = |number| {
        let options = SocketOptions { lanes: 0, ..SocketOptions::default() };
        SocketTransport::connect(&[place.address("a")], number, options).unwrap()
    };
    let writer = client(1);
    for group in groups {
        create(&writer, group, TxnId { client: 1, number: u64::from(group.0) });
    }
    let txn = TxnId { client: 1, number: 3 };
    for group in groups {
        let voted = prepare_among(&writer, (group, &groups), (txn, birth()), b"both");
        assert!(matches!(Reply::decode(&voted), Ok(Reply::Voted(_))));
    }
    drop(writer);
    let reader = client(2);
    assert_eq!(groups.map(|group| read(&reader, group).unwrap()), [b"both", b"both"]);
    // One has voted: it is rolled back.
    let writer = client(3);
    let txn = TxnId { client: 3, number: 1 };
    let voted = prepare_among(&writer, (groups[1], &groups), (txn, birth()), b"half");
    assert!(matches!(Reply::decode(&voted), Ok(Reply::Voted(_))));
    drop(writer);
    assert_eq!(groups.map(|group| read(&reader, group).unwrap()), [b"both", b"both"]);
    let undecided = server.statuses().into_iter().map(|status| status.transactions.undecided);
    assert_eq!(undecided.sum::<u64>(), 0);
    assert_eq!(node(groups[0]).server, groups[0]);
}

/// A client tells its snapshots to the machine, which keeps them at all of its groups.
#[test]
fn snapshots_are_held_at_all_groups_of_a_machine() {
    let place = Place::new();
    let server = place.start("a", 2);
    let store = place.client("a");
    let (database, maps) = create_maps(&store, "wide", &[0, 1]);
    let mut reader = database.begin();
    assert_eq!(reader.get(maps[0], b"key").unwrap().as_deref(), Some(&b"first"[..]));
    // Until both groups know of the snapshot.
    while server.statuses().iter().any(|status| status.snapshots.holders == 0) {
        thread::yield_now();
    }
    put_in_all(&database, &maps, b"second");
    assert_eq!(reader.get(maps[1], b"key").unwrap().as_deref(), Some(&b"first"[..]));
    drop(reader);
    while server.statuses().iter().any(|status| status.snapshots.holders > 0) {
        thread::yield_now();
    }
}

/// The home group splits its leaves over the other groups of its machine and those of other machines.
#[test]
fn leaves_of_the_home_group_go_to_all_groups() {
    let place = Place::new();
    let settings = EngineSettings { node_cells_max: 8, ..EngineSettings::default() };
    let listen = ListenOptions { placement: LeafPlacement::Spread, ..place.options("a", 2) };
    let first = Server::start(Some(&place.path("a")), settings, LogOptions::default(), listen).unwrap();
    let second = place.join("b", "a", 1);
    place.wait_for("a", &[(1, &[0, 1], Serving), (2, &[2], Serving)]);
    let store = place.client("a");
    let (database, maps) = create_maps(&store, "wide", &[0, 1, 2]);
    let map = *maps.iter().find(|map| map.group() == ServerId(0)).unwrap();
    let leaves = |server: &Server| {
        let trees = server.statuses().into_iter().map(|status| {
            let tree = status.trees.into_iter().find(|tree| tree.tree == map.tree());
            tree.map_or(0, |tree| tree.leaves)
        });
        trees.collect::<Vec<_>>()
    };
    // Scattered, so that leaves of all groups grow.
    let key = |number: u32| number.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let mut keys = 0;
    while [leaves(&first), leaves(&second)].concat().contains(&0) {
        // A split that finds a group busy is tried again when the leaf has grown.
        database.put(map, &key(keys), b"value").unwrap();
        keys += 1;
    }
    for number in 0..keys {
        assert!(database.get(map, &key(number)).unwrap().is_some(), "{number}");
    }
    check(&store);
}

/// A client tells the machine which of its transactions are settled, so that no group keeps their ends.
#[test]
fn ends_are_forgotten_at_all_groups_of_a_machine() {
    let place = Place::new();
    let server = place.start("a", 2);
    let store = place.client("a");
    let (database, maps) = create_maps(&store, "wide", &[0, 1]);
    for number in 0..40u8 {
        put_in_all(&database, &maps, &[number]);
    }
    assert!(server.statuses().iter().all(|status| status.transactions.ends > 2));
    // What the client has reported goes into the log with its next record.
    while server.statuses().iter().any(|status| status.transactions.ends > 2) {
        put_in_all(&database, &maps, b"more");
    }
}
