//! Databases of a cluster: every server leads to all of them, and each is at one group.

use std::{path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;
use yesquel::{
    Address, ConnectError, EngineSettings, Error, ListenOptions, LogOptions, Map, NodeId, PeerOptions,
    Placement, Server, ServerId, SocketOptions, Store, TreeId,
};
use yesquel_client::Client;
use yesquel_transport::{SocketTransport, block_on};
use yesquel_tree::{Tree, Trees};

const SERVERS: u16 = 3;

/// Three servers that know each other. The first one has the home group.
pub(crate) struct Cluster {
    servers: Vec<Option<Server>>,
    folder: TempDir,
}

fn address(folder: &Path, server: u16) -> Address {
    Address::Unix(folder.join(format!("server-{server}.sock")))
}

fn start(folder: &Path, server: u16) -> Server {
    let others = (0..SERVERS).filter(|other| *other != server);
    let servers = others.map(|other| (ServerId(other), address(folder, other))).collect();
    let listen = ListenOptions {
        addresses: vec![address(folder, server)],
        peers: PeerOptions { servers, ..PeerOptions::default() },
        ..ListenOptions::default()
    };
    let settings = EngineSettings { server: ServerId(server), ..EngineSettings::default() };
    let data = folder.join(format!("data-{server}"));
    Server::start(Some(&data), settings, LogOptions::default(), listen).unwrap()
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let servers = (0..SERVERS).map(|server| Some(start(folder.path(), server))).collect();
        Cluster { servers, folder }
    }

    pub(crate) fn addresses(&self, servers: &[u16]) -> Vec<Address> {
        servers.iter().map(|server| address(self.folder.path(), *server)).collect()
    }

    /// A client that knows the addresses of these servers.
    pub(crate) fn connect(&self, servers: &[u16]) -> Result<Store, Error> {
        Store::connect_any(&self.addresses(servers), SocketOptions::default())
    }

    pub(crate) fn stop(&mut self, server: u16) {
        self.servers[usize::from(server)] = None;
    }

    pub(crate) fn restart(&mut self, server: u16) {
        self.servers[usize::from(server)] = Some(start(self.folder.path(), server));
    }

    /// Number of trees at a server, without that of its catalog.
    fn trees(&self, server: u16) -> usize {
        let server = self.servers[usize::from(server)].as_ref().unwrap();
        server.status().trees.iter().filter(|tree| tree.tree != 0).count()
    }
}

#[test]
fn every_server_leads_to_all_databases() {
    let cluster = Cluster::start();
    let stores = [0, 1, 2].map(|server| cluster.connect(&[server]).unwrap());
    for (server, store) in stores.iter().enumerate() {
        let database = store.create_database(&format!("of {server}")).unwrap();
        database.put(database.map("map").unwrap(), b"key", b"value").unwrap();
        // A client's own server has what it creates.
        assert_eq!(database.map("map").unwrap().group(), ServerId(server as u16));
        assert_eq!(cluster.trees(server as u16), 1);
    }
    let within = Store::of_host(Arc::clone(cluster.servers[2].as_ref().unwrap().host()));
    for store in stores.iter().chain([&within]) {
        assert_eq!(store.databases().unwrap(), ["of 0", "of 1", "of 2"]);
        assert!(matches!(store.create_database("of 1"), Err(Error::DatabaseExists(_))));
        let databases = [0, 1, 2].map(|server| store.database(&format!("of {server}")).unwrap());
        let maps = databases.each_ref().map(|database| database.map("map").unwrap());
        assert_eq!(maps.map(|map| map.group()), [0, 1, 2].map(ServerId));
        // One transaction over all three.
        databases[0]
            .run(|transaction| {
                for map in maps {
                    assert_eq!(transaction.get(map, b"key")?.as_deref(), Some(&b"value"[..]));
                    transaction.put(map, b"more", b"value")?;
                }
                Ok(())
            })
            .unwrap();
        // A handle is valid at all servers of the cluster.
        assert_eq!(
            databases[0]
                .get(stores[0].database("of 2").unwrap().map("map").unwrap(), b"more")
                .unwrap()
                .as_deref(),
            Some(&b"value"[..])
        );
    }
    stores[0].drop_database("of 2").unwrap();
    assert_eq!(stores[1].databases().unwrap(), ["of 0", "of 1"]);
    assert!(matches!(stores[2].database("of 2"), Err(Error::NoDatabase(_))));
    // Its group takes the decision a moment after the client has returned.
    while cluster.trees(2) > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_placement_chooses_the_group() {
    let cluster = Cluster::start();
    let store = cluster.connect(&[1]).unwrap();
    let groups: Vec<_> = store.directory().unwrap().groups;
    assert_eq!(groups.iter().map(|group| group.group).collect::<Vec<_>>(), [0, 1, 2]);
    for (group, at) in groups.iter().zip(cluster.addresses(&[0, 1, 2])) {
        assert_eq!(group.address, at.to_string());
    }
    let placed = |name: &str, placement| {
        let database = store.create_database_at(name, &placement)?;
        Ok::<_, Error>(database.map("map")?.group().0)
    };
    assert_eq!(placed("local", Placement::Local).unwrap(), 1);
    let spread = ["a", "b", "c", "d", "e"].map(|name| placed(name, Placement::Spread).unwrap());
    assert_eq!(spread, [2, 0, 2, 0, 1]);
    assert_eq!(placed("given", Placement::Group(ServerId(2))).unwrap(), 2);
    assert!(matches!(placed("unknown", Placement::Group(ServerId(9))), Err(Error::NoGroup(9))));
    let counts = store.databases_by_group().unwrap();
    assert_eq!(
        counts.into_iter().map(|(group, count)| (group.0, count)).collect::<Vec<_>>(),
        [(0, 2), (1, 2), (2, 3)]
    );
    // Groups 0 and 1 get much data.
    for name in ["b", "e"] {
        let database = store.database(name).unwrap();
        database.put(database.map("map").unwrap(), b"key", &[0; 200_000]).unwrap();
    }
    assert_eq!(placed("light", Placement::Load).unwrap(), 2);
}

#[test]
fn a_database_may_have_several_groups() {
    let cluster = Cluster::start();
    let store = cluster.connect(&[1]).unwrap();
    let database = store.create_database_at("wide", &Placement::Tables).unwrap();
    // The own group comes first.
    assert_eq!(database.groups(), [1, 0, 2].map(ServerId));
    let at = |map: Map| map.group().0;
    // Maps that the caller places count, too.
    let placed = database.maps_at(&[("a", ServerId(2)), ("b", ServerId(2)), ("c", ServerId(1))]).unwrap();
    assert_eq!(placed.iter().map(|map| at(*map)).collect::<Vec<_>>(), [2, 2, 1]);
    assert_eq!(at(database.map("d").unwrap()), 0);
    let mut transaction = database.begin();
    let created =
        [1, 2, 3].map(|_| transaction.create_map(&database, |number| format!("n{number}")).unwrap());
    let beside = transaction.create_map_beside(&database, Some(placed[0]), |_| "beside".to_owned()).unwrap();
    for map in created {
        transaction.put(map, b"key", b"value").unwrap();
    }
    transaction.commit().unwrap();
    // Of groups with equally many the first after the first group.
    assert_eq!((created.map(at), at(beside)), ([0, 1, 2], 2));
    // Another client finds all of them, and places the next ones likewise.
    let other = cluster.connect(&[0]).unwrap();
    let (found, [a, none]) = other.database_with_maps("wide", ["a", "none"]).unwrap();
    assert_eq!((found.groups(), a.map(at), none), (database.groups(), Some(2), None));
    assert_eq!(found.cached_map("beside"), Some(beside));
    assert_eq!(found.maps().unwrap().len(), 8);
    assert_eq!(at(found.map("e").unwrap()), 0);
    for map in created {
        assert_eq!(found.get(map, b"key").unwrap().as_deref(), Some(&b"value"[..]));
    }
    let counts = store.databases_by_group().unwrap();
    assert!(counts.values().all(|count| *count == 1) && counts.len() == 3, "{counts:?}");
    let unknown = store.create_database_at("no", &Placement::Groups([1, 9].map(ServerId).to_vec()));
    assert!(matches!(unknown, Err(Error::NoGroup(9))));

    // A handle does not place maps of a database that has other groups now.
    store.drop_database("wide").unwrap();
    // A group takes decisions a moment after the client has returned.
    while [0, 1, 2].map(|server| cluster.trees(server)) != [0; 3] {
        std::thread::yield_now();
    }
    other.create_database_at("wide", &Placement::Groups([2, 1].map(ServerId).to_vec())).unwrap();
    let stale = database.maps_at(&[("a", ServerId(0))]);
    assert!(matches!(stale, Err(Error::NoDatabase(_))), "{stale:?}");
}

#[test]
fn leases_of_several_groups_are_taken_at_once_or_in_turns() {
    let cluster = Cluster::start();
    let store = cluster.connect(&[0]).unwrap();
    let database = store.create_database_at("wide", &Placement::Tables).unwrap();
    let maps = database.maps_at(&[("a", ServerId(0)), ("b", ServerId(1)), ("c", ServerId(2))]).unwrap();
    let second = Duration::from_secs(10);
    let all = || maps.iter().map(|map| (*map, &b"k"[..]..=&b"k"[..]));
    let sent = || {
        let sent = store.sent();
        (sent.requests - sent.overlapping, sent.requests)
    };
    let mut lease = database.lease_to_take(all()).unwrap();
    let before = sent();
    lease.take(second, Duration::ZERO).unwrap();
    lease.renew(second).unwrap();
    assert_eq!((sent().0 - before.0, sent().1 - before.1), (2, 6));
    // Another client gets some of them at most, and gives these back.
    let other = cluster.connect(&[1]).unwrap();
    let theirs = other.database("wide").unwrap();
    let mut waiting = theirs.lease_to_take(all()).unwrap();
    assert!(matches!(waiting.take(second, Duration::ZERO), Err(Error::Leased(_))));
    // Only this one range.
    let single = database.lease(maps[2], &b"x"[..]..=&b"x"[..], second, Duration::ZERO).unwrap();
    single.release().unwrap();
    // The commit releases it at the group that it writes, and the rest follows.
    let mut transaction = database.begin();
    transaction.releases(&lease);
    transaction.put(maps[1], b"k", b"v").unwrap();
    let before = sent();
    transaction.try_commit().unwrap();
    lease.committed(&transaction);
    assert_eq!((sent().0 - before.0, sent().1 - before.1), (1, 3));
    waiting.take(second, second).unwrap();
    let mut transaction = database.begin();
    transaction.put(maps[0], b"k", b"v").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Leased(_))));
    waiting.release().unwrap();
    database.put(maps[0], b"k", b"v").unwrap();
}

#[test]
fn one_address_that_answers_is_enough() {
    let mut cluster = Cluster::start();
    cluster.stop(0);
    // The home group does not answer; the client has found the cluster by another server.
    let store = cluster.connect(&[0, 1]).unwrap();
    assert_eq!(store.directory().unwrap().groups.len(), 3);
    cluster.restart(0);
    let database = store.create_database_at("shop", &Placement::Group(ServerId(2))).unwrap();
    let map = database.map("map").unwrap();
    database.put(map, b"key", b"value").unwrap();
    // All connections are lost, and the server that was found first does not come back.
    (0..SERVERS).for_each(|server| cluster.stop(server));
    cluster.restart(0);
    cluster.restart(2);
    // A server ends the former connection of a client, so that one thread must connect for all.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert_eq!(database.get(map, b"key").unwrap().as_deref(), Some(&b"value"[..]));
            });
        }
    });
    assert_eq!(store.databases().unwrap(), ["shop"]);
    cluster.stop(0);
    cluster.stop(2);
    match cluster.connect(&[0, 1, 2]) {
        Err(Error::Connect(ConnectError::NoneAnswers(errors))) => {
            let message = ConnectError::NoneAnswers(errors).to_string();
            for address in cluster.addresses(&[0, 1, 2]) {
                assert!(message.contains(&address.to_string()), "{message}");
            }
        }
        other => panic!("{other:?}"),
    }
}

/// Earlier releases had a catalog at each server.
#[test]
fn databases_of_a_servers_own_catalog_get_into_that_of_the_cluster() {
    let mut cluster = Cluster::start();
    let store = cluster.connect(&[1]).unwrap();
    let map = |name: &str| store.create_database(name).unwrap().map("map").unwrap();
    let (first, second) = (map("first"), map("second"));
    for (map, value) in [(first, b"1"), (second, b"2")] {
        store.database("first").unwrap().put(map, b"key", value).unwrap();
    }
    // The catalogs as they were: `first` was at both servers, `second` at this one.
    let transport = SocketTransport::connect(&cluster.addresses(&[0, 1]), 77, SocketOptions::default());
    let trees = Trees::new(Client::new(transport.unwrap(), 77));
    let [home, own] = [0, 1].map(|server| Tree::at(NodeId::root(TreeId::default(), ServerId(server))));
    let mut transaction = trees.begin();
    transaction.delete(home, b"dsecond").unwrap();
    for (number, name, map) in [(1u64, "first", first), (2, "second", second)] {
        transaction.put(own, &[b"d", name.as_bytes()].concat(), &number.to_be_bytes()).unwrap();
        let root = NodeId::root(TreeId::new(map.tree()).unwrap(), ServerId(1));
        let key = [b"m", &number.to_be_bytes()[..], b"map"].concat();
        transaction.put(own, &key, &root.to_bits().to_be_bytes()).unwrap();
    }
    block_on(transaction.commit()).unwrap();
    cluster.stop(1);
    cluster.restart(1);
    let store = cluster.connect(&[2]).unwrap();
    while store.databases().unwrap() != ["first", "first@1", "second"] {
        std::thread::yield_now();
    }
    for (name, value) in [("first", b"1"), ("first@1", b"1"), ("second", b"2")] {
        let database = store.database(name).unwrap();
        let map = database.existing_map("map").unwrap().unwrap();
        assert_eq!(map.group(), ServerId(1));
        assert_eq!(database.get(map, b"key").unwrap().as_deref(), Some(&value[..]));
    }
    assert!(block_on(trees.begin().get(own, b"dfirst")).unwrap().is_none());
}
