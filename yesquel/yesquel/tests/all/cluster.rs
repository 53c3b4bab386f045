//! Databases of a cluster: every server leads to all of them, and each is at one group.

use std::{path::Path, sync::Arc};
use tempfile::TempDir;
use yesquel::{
    Address, ConnectError, EngineSettings, Error, ListenOptions, LogOptions, NodeId, PeerOptions, Placement,
    Server, ServerId, SocketOptions, Store, TreeId,
};
use yesquel_client::Client;
use yesquel_transport::{SocketTransport, block_on};
use yesquel_tree::{Tree, Trees};

const SERVERS: u16 = 3;

/// Three servers that know each other. The first one has the home group.
struct Cluster {
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
    fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let servers = (0..SERVERS).map(|server| Some(start(folder.path(), server))).collect();
        Cluster { servers, folder }
    }

    fn addresses(&self, servers: &[u16]) -> Vec<Address> {
        servers.iter().map(|server| address(self.folder.path(), *server)).collect()
    }

    /// A client that knows the addresses of these servers.
    fn connect(&self, servers: &[u16]) -> Result<Store, Error> {
        Store::connect_any(&self.addresses(servers), SocketOptions::default())
    }

    fn stop(&mut self, server: u16) {
        self.servers[usize::from(server)] = None;
    }

    fn restart(&mut self, server: u16) {
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
