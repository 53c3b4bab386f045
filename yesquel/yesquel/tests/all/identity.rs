//! Clusters and groups that clients and servers know by the greetings and by corrections.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};
use tempfile::TempDir;
use yesquel::{
    Address, ConnectError, EngineSettings, ListenOptions, LogOptions, PeerOptions, Server, ServerId,
    SocketOptions, Store,
};
use yesquel_client::{Client, RequestError};
use yesquel_model::{GroupEpoch, Timestamp};
use yesquel_transport::{SocketTransport, Transport, block_on};
use yesquel_wire::{HorizonReport, PeerReport, greeting::Role};

fn socket(folder: &TempDir, name: &str) -> Address {
    Address::Unix(folder.path().join(name))
}

/// Starts a server, in memory without a data folder.
fn serve(
    data: Option<&Path>,
    server: u16,
    address: &Address,
    peers: &[(u16, &Address)],
) -> Result<Server, yesquel::Error> {
    let servers = peers.iter().map(|(server, address)| (ServerId(*server), (*address).clone())).collect();
    let listen = ListenOptions {
        addresses: vec![address.clone()],
        peers: PeerOptions { servers, ..PeerOptions::default() },
        ..ListenOptions::default()
    };
    let settings = EngineSettings { server: ServerId(server), ..EngineSettings::default() };
    Server::start(data, settings, LogOptions::default(), listen)
}

fn connect(addresses: &[&Address], role: Role) -> Result<SocketTransport, ConnectError> {
    let addresses: Vec<Address> = addresses.iter().map(|address| (*address).clone()).collect();
    // A second connection of a client ends the first one.
    static CLIENTS: AtomicU64 = AtomicU64::new(1);
    let options = SocketOptions { role, lanes: 0, ..SocketOptions::default() };
    SocketTransport::connect(&addresses, CLIENTS.fetch_add(1, Relaxed), options)
}

/// Asks a group for its status. Returns the number of repeated requests.
fn inspect(client: &Client<&SocketTransport>, group: u16) -> Result<u64, RequestError> {
    block_on(client.inspect(ServerId(group), None)).map(|_| client.counters().counts().repeated)
}

#[test]
fn servers_of_two_clusters_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = ["one", "two"].map(|name| socket(&folder, name));
    let servers = [0, 1].map(|at| serve(None, at as u16, &addresses[at], &[]).unwrap());
    let clusters = servers.each_ref().map(|server| server.host().transport().core().membership().cluster);
    let [first, second] = clusters;
    let error = connect(&[&addresses[0], &addresses[1]], Role::Client).unwrap_err();
    let message = error.to_string();
    assert!(matches!(&error, ConnectError::OtherCluster { address, cluster, known }
        if *address == addresses[1] && *cluster == second && known.cluster == first));
    for part in [addresses[0].to_string(), addresses[1].to_string(), first.to_string(), second.to_string()] {
        assert!(message.contains(&part), "{message}");
    }
}

#[test]
fn another_cluster_at_the_same_address_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let address = socket(&folder, "server");
    let server = serve(None, 0, &address, &[]).unwrap();
    let store = Store::connect(&address, SocketOptions::default()).unwrap();
    store.create_database("shop").unwrap();
    drop(server);
    let server = serve(None, 0, &address, &[]).unwrap();
    let error = store.create_database("other").unwrap_err().to_string();
    let now = server.host().transport().core().membership().cluster.to_string();
    assert!(error.contains(&now) && error.contains("belongs to cluster"), "{error}");
    assert!(Store::connect(&address, SocketOptions::default()).unwrap().databases().unwrap().is_empty());
}

/// The one with the lowest number founds the cluster.
#[test]
fn new_servers_that_know_each_other_form_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let data = ["data-2", "data-5"].map(|name| folder.path().join(name));
    let [two, five] = ["two", "five"].map(|name| socket(&folder, name));
    let started = || {
        let first = serve(Some(&data[0]), 2, &two, &[(5, &five)]).unwrap();
        let second = serve(Some(&data[1]), 5, &five, &[(2, &two)]).unwrap();
        let memberships = [&first, &second].map(|server| server.host().transport().core().membership());
        assert_eq!(memberships[0], memberships[1]);
        assert_eq!(memberships[0].home_group, ServerId(2));
        memberships[0].cluster
    };
    let cluster = started();
    assert_eq!(started(), cluster);
    // A folder stays with its server.
    let error = serve(Some(&data[1]), 2, &two, &[]).unwrap_err().to_string();
    assert!(error.contains("is the folder of server 5"), "{error}");
    // Its cluster need not be reached again.
    drop(serve(Some(&data[1]), 5, &five, &[]).unwrap());
}

#[test]
fn a_client_finds_a_group_by_a_server_that_knows_it() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = ["zero", "one"].map(|name| socket(&folder, name));
    let _zero = serve(None, 0, &addresses[0], &[(1, &addresses[1])]).unwrap();
    let one = serve(None, 1, &addresses[1], &[(0, &addresses[0])]).unwrap();
    let transport = connect(&[&addresses[1]], Role::Client).unwrap();
    let client = Client::new(&transport, 77);
    assert_eq!(transport.home_group(), ServerId(0));
    assert_eq!(inspect(&client, 0), Ok(1));
    // From then on it knows.
    assert_eq!(inspect(&client, 0), Ok(1));
    assert_eq!(inspect(&client, 1), Ok(1));
    assert_eq!(one.status().requests.wrong_group, 1);
}

#[test]
fn a_client_follows_the_epoch_of_a_group() {
    let folder = tempfile::tempdir().unwrap();
    let address = socket(&folder, "server");
    let server = serve(Some(&folder.path().join("data")), 0, &address, &[]).unwrap();
    let transport = connect(&[&address], Role::Client).unwrap();
    let client = Client::new(&transport, 77);
    assert_eq!(inspect(&client, 0), Ok(0));
    server.host().transport().core().raise_epoch(GroupEpoch { era: 0, index: 40 });
    assert_eq!(inspect(&client, 0), Ok(1));
    assert_eq!(inspect(&client, 0), Ok(1));
    // The epoch is on disk: the greeting of the next start tells it.
    drop(server);
    let server = serve(Some(&folder.path().join("data")), 0, &address, &[]).unwrap();
    assert_eq!(inspect(&client, 0), Ok(1));
    assert_eq!(server.status().requests.wrong_group, 0);
    let other = connect(&[&address], Role::Client).unwrap();
    assert_eq!(inspect(&Client::new(&other, 77), 0), Ok(0));
}

/// Clients that know its old address find it by another server, to which it has reported.
#[test]
fn a_server_that_restarts_at_another_address_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let [old, new, one_address] = ["old", "new", "one"].map(|name| socket(&folder, name));
    let zero = serve(Some(&data), 0, &old, &[(1, &one_address)]).unwrap();
    let one = serve(None, 1, &one_address, &[(0, &old)]).unwrap();
    let transport = connect(&[&old, &one_address], Role::Client).unwrap();
    let client = Client::new(&transport, 77);
    assert_eq!(inspect(&client, 0), Ok(0));
    drop(zero);
    let _zero = serve(Some(&data), 0, &new, &[(1, &one_address)]).unwrap();
    let core = one.host().transport().core();
    while core.address_of(ServerId(0)) != new.to_string() {
        thread::yield_now();
    }
    assert!(inspect(&client, 0).unwrap() >= 1);
}

/// A peer tells the largest epoch of another group: the group serves on, and a client that has heard
/// of it finds back.
#[test]
fn a_wrong_epoch_of_a_peer_harms_no_group() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = ["zero", "one"].map(|name| socket(&folder, name));
    let zero = serve(None, 0, &addresses[0], &[(1, &addresses[1])]).unwrap();
    let one = serve(None, 1, &addresses[1], &[(0, &addresses[0])]).unwrap();
    let own = zero.host().transport().core().with_engine(|engine| engine.epoch());
    let liar = connect(&[&addresses[1]], Role::Peer).unwrap();
    let report = PeerReport {
        server: ServerId(0),
        wall_ms: 0,
        oldest: [None; 2],
        more: false,
        horizon: HorizonReport { horizon: Timestamp::ZERO, prepared: Vec::new() },
        epoch: GroupEpoch { era: u32::MAX, index: u64::MAX },
        address: addresses[0].to_string().into(),
        directory: 0,
        load: None,
    };
    let transport = connect(&[&addresses[1]], Role::Client).unwrap();
    let client = Client::new(&transport, 77);
    block_on(liar.call(ServerId(1), &report.encode())).unwrap();
    assert!(inspect(&client, 0).unwrap() >= 1);
    // Requests with that epoch are refused alone.
    let other = connect(&[&addresses[0]], Role::Client).unwrap();
    assert_eq!(inspect(&Client::new(&other, 78), 0), Ok(0));
    assert_eq!(zero.host().transport().core().with_engine(|engine| engine.epoch()), own);
    drop(one);
}

/// The home group counts for all servers, also for those that split nodes.
#[test]
fn numbers_are_unique_in_the_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = ["zero", "one"].map(|name| socket(&folder, name));
    let _zero = serve(None, 0, &addresses[0], &[(1, &addresses[1])]).unwrap();
    let one = serve(None, 1, &addresses[1], &[(0, &addresses[0])]).unwrap();
    let [first, second] =
        addresses.each_ref().map(|address| Store::connect(address, SocketOptions::default()).unwrap());
    let within = Store::of_host(Arc::clone(one.host()));
    let mut trees = BTreeSet::new();
    for (name, store) in [("a", &first), ("b", &second), ("c", &within)] {
        let database = store.create_database(name).unwrap();
        for number in 0..70 {
            let map = database.map(&number.to_string()).unwrap();
            assert!(trees.insert(map.tree()), "tree {} twice", map.tree());
        }
    }
    // It splits its nodes with numbers of the home group.
    let database = second.database("b").unwrap();
    let map = database.map("0").unwrap();
    database
        .run(|transaction| (0..500u16).try_for_each(|key| transaction.put(map, &key.to_be_bytes(), b"v")))
        .unwrap();
    let leaves =
        || one.status().trees.iter().find(|tree| tree.tree == map.tree()).map_or(0, |tree| tree.leaves);
    while leaves() < 4 {
        thread::yield_now();
    }
}
