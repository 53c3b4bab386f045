//! Servers on sockets: the same behaviour as embedded, and failures of the network.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use yesquel::{
    Address, Credentials, EngineSettings, Error, ListenOptions, LogOptions, PeerOptions, Role, SOCKET_MODE,
    Server, ServerId, SocketOptions, Store,
};
use yesquel_secrets::{PeerSecrets, PresentSecrets, Secrets};
use yesquel_transport::{SocketTransport, Transport, block_on};
use yesquel_wire::{ByteWriter, Request};

fn local() -> Address {
    Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 }
}

fn listen(addresses: Vec<Address>) -> ListenOptions {
    ListenOptions { addresses, ..ListenOptions::default() }
}

fn start(listen: ListenOptions) -> Server {
    Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap()
}

fn connect(server: &Server) -> Store {
    Store::connect(&server.addresses()[0], SocketOptions::default()).unwrap()
}

/// Threads that share a connection write, read and scan.
fn work(store: &Store) {
    let database = store.database_or_create("work").unwrap();
    let map = database.map("map").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let database = &database;
            scope.spawn(move || {
                for number in 0..200u32 {
                    let key = (number * 8 + thread).to_be_bytes();
                    database.put(map, &key, &[number as u8; 100]).unwrap();
                    assert_eq!(database.get(map, &key).unwrap().unwrap()[..], [number as u8; 100]);
                }
            });
        }
    });
    let mut transaction = database.begin();
    let keys: Vec<u32> = transaction
        .range::<&[u8]>(map, ..)
        .map(|entry| u32::from_be_bytes((*entry.unwrap().0).try_into().unwrap()))
        .collect();
    assert_eq!(keys, (0..1600).collect::<Vec<_>>());
}

#[test]
fn threads_share_a_connection_on_tcp_and_unix() {
    let place = tempfile::tempdir().unwrap();
    let file = Address::Unix(place.path().join("socket"));
    let server = start(listen(vec![local(), file.clone()]));
    let shared = SocketOptions { lanes: 0, ..SocketOptions::default() };
    work(&Store::connect(&server.addresses()[0], shared.clone()).unwrap());
    work(&Store::connect(&file, shared).unwrap());
    assert_eq!(server.sockets().accepted.load(Relaxed), 2);
    drop(server);
    assert!(!place.path().join("socket").exists());
}

/// A few threads read and write until a condition holds.
fn work_until(store: &Store, is_so: impl Fn() -> bool + Sync) {
    let database = store.database_or_create("work").unwrap();
    let map = database.map("few").unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    std::thread::scope(|scope| {
        for thread in 0..5u8 {
            let (database, is_so) = (&database, &is_so);
            scope.spawn(move || {
                for number in 0u64.. {
                    database.put(map, &[thread], &number.to_be_bytes()).unwrap();
                    assert_eq!(database.get(map, &[thread]).unwrap().unwrap()[..], number.to_be_bytes());
                    if is_so() {
                        return;
                    }
                    assert!(Instant::now() < end, "it is never so");
                }
            });
        }
    });
}

#[test]
fn a_few_threads_get_a_connection_each() {
    let server = start(listen(vec![local()]));
    let options = SocketOptions { lanes: 4, ..SocketOptions::default() };
    let store = Store::connect(&server.addresses()[0], options).unwrap();
    // One for each thread but the first, up to the limit.
    let counts = server.sockets();
    work_until(&store, || counts.accepted.load(Relaxed) == 1 + 4);
    work(&store);
    // Lanes serve requests, and end with the store.
    let before = counts.accepted.load(Relaxed);
    work(&store);
    assert_eq!(counts.accepted.load(Relaxed), before);
    drop(store);
    let end = Instant::now() + Duration::from_secs(30);
    while counts.open.load(Relaxed) > 0 {
        assert!(Instant::now() < end, "{} are open still", counts.open.load(Relaxed));
        std::thread::yield_now();
    }
}

#[test]
fn extra_connections_of_a_client_leave_room_for_other_clients() {
    let server = start(ListenOptions { clients_max: 4, ..listen(vec![local()]) });
    let store = connect(&server);
    let counts = server.sockets();
    work_until(&store, || counts.refused.load(Relaxed) > 0);
    assert_eq!(counts.open.load(Relaxed), 2);
    let others = [connect(&server), connect(&server)];
    others.iter().for_each(work);
}

#[test]
fn a_map_is_valid_for_all_clients_of_its_server() {
    let place = tempfile::tempdir().unwrap();
    let file = Address::Unix(place.path().join("socket"));
    let (server, other) = (start(listen(vec![local(), file.clone()])), start(listen(vec![local()])));
    let map = connect(&server).create_database("test").unwrap().map("map").unwrap();
    let stores = [
        connect(&server),
        Store::connect(&file, SocketOptions::default()).unwrap(),
        Store::of_host(server.host().clone()),
    ];
    for store in stores {
        store.database("test").unwrap().put(map, b"key", b"value").unwrap();
    }
    let theirs = connect(&other).create_database("test").unwrap();
    assert_eq!(theirs.map("map").unwrap().tree(), map.tree());
    assert!(matches!(theirs.put(map, b"key", b"value"), Err(Error::OtherStore)));
}

#[test]
fn a_long_message_is_sent_in_pieces_between_others() {
    let server = start(listen(vec![local()]));
    let store = connect(&server);
    let database = store.database_or_create("long").unwrap();
    let map = database.map("map").unwrap();
    // Eight megabytes in a transaction, read in one request per leaf.
    database
        .run(|transaction| {
            (0..256u32).try_for_each(|number| transaction.put(map, &number.to_be_bytes(), &[7; 32 << 10]))
        })
        .unwrap();
    let mut transaction = database.begin();
    let bytes: usize = transaction.range::<&[u8]>(map, ..).map(|entry| entry.unwrap().1.len()).sum();
    assert_eq!(bytes, 8 << 20);
}

/// More of them than a connection may hold in pieces.
#[test]
fn threads_send_long_messages_concurrently() {
    const THREADS: u32 = 70;
    let server = start(listen(vec![local()]));
    let store = connect(&server);
    let database = store.database_or_create("long").unwrap();
    let map = database.map("map").unwrap();
    let all = std::sync::Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (all, database) = (&all, &database);
            scope.spawn(move || {
                let mut transaction = database.begin();
                for number in 0..64 {
                    transaction.put(map, &(thread * 64 + number).to_be_bytes(), &[7; 32 << 10]).unwrap();
                }
                all.wait();
                transaction.commit().unwrap();
            });
        }
    });
    assert_eq!(server.status().trees.iter().map(|tree| tree.cells).max(), Some(u64::from(THREADS) * 64));
}

/// A Unix socket is for its owner, unless another mode is requested.
#[test]
fn a_socket_has_the_requested_mode() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("socket");
    for mode in [SOCKET_MODE, 0o660, 0o606] {
        let listen = ListenOptions { socket_mode: mode, ..listen(vec![Address::Unix(path.clone())]) };
        let server = start(listen);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        connect(&server).databases().unwrap();
    }
}

#[test]
fn a_leaf_larger_than_a_message_is_read_in_parts() {
    // No leaf is ever split.
    let settings = EngineSettings {
        node_bytes_max: usize::MAX,
        node_cells_max: usize::MAX,
        node_load_max: 0,
        ..EngineSettings::default()
    };
    let server = Server::start(None, settings, LogOptions::default(), listen(vec![local()])).unwrap();
    let store = connect(&server);
    let database = store.database_or_create("long").unwrap();
    let map = database.map("map").unwrap();
    let count = 700u32;
    database
        .run(|transaction| {
            // 22 MB, under the even numbers.
            (0..count).try_for_each(|number| {
                transaction.insert(map, &(2 * number).to_be_bytes(), &[number as u8; 32 << 10])
            })
        })
        .unwrap();
    let tree = store.status().unwrap().trees.into_iter().find(|tree| tree.tree == map.tree()).unwrap();
    assert_eq!((tree.leaves, tree.cells), (1, u64::from(count)));
    let number = |entry: &yesquel::Entry| {
        let number = u32::from_be_bytes((*entry.0).try_into().unwrap());
        assert_eq!(entry.1[0], (number / 2) as u8);
        number
    };
    let mut transaction = database.begin();
    let up: Vec<u32> = transaction.range::<&[u8]>(map, ..).map(|entry| number(&entry.unwrap())).collect();
    assert_eq!(up, (0..count).map(|number| 2 * number).collect::<Vec<_>>());
    let mut cursor = transaction.cursor(map);
    let mut last = cursor.last(&mut transaction).unwrap();
    let mut down = Vec::new();
    while let Some(entry) = last {
        down.push(number(&entry));
        last = cursor.previous(&mut transaction).unwrap();
    }
    down.reverse();
    assert_eq!(down, up);
    for odd in (1..2 * count).step_by(62) {
        let key = odd.to_be_bytes();
        assert_eq!(number(&cursor.seek_back(&mut transaction, &key).unwrap().unwrap()), odd - 1);
        let next = cursor.seek(&mut transaction, &key).unwrap();
        assert_eq!(next.as_ref().map(number), Some(odd + 1).filter(|next| *next < 2 * count));
        assert_eq!(transaction.get(map, &key).unwrap(), None);
        assert!(transaction.get(map, &(odd - 1).to_be_bytes()).unwrap().is_some());
    }
}

/// Returns the answer to arbitrary bytes on a connection.
fn say(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let Address::Tcp { host, port } = &server.addresses()[0] else { unreachable!() };
    let mut stream = TcpStream::connect((host.as_str(), *port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // It is closed, with unread bytes.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn garbage_is_refused_without_harm_to_other_clients() {
    let server = start(listen(vec![local()]));
    let store = connect(&server);
    assert_eq!(say(&server, b"GET / HTTP/1.1\r\n\r\n"), b"");
    assert_eq!(say(&server, &[0xff; 100_000]), b"");
    assert_eq!(say(&server, b"YESQUEL1\xff\xff\xff\xff"), b"");
    // A greeting, and then invalid frames.
    let hello = yesquel_wire::greeting::Hello {
        versions: yesquel_wire::greeting::VERSIONS,
        client: 5,
        credential: b"",
        role: yesquel_wire::greeting::Role::Client,
        cluster: None,
    }
    .encode();
    let answer = say(&server, &[&hello[..], &[0xee; 100]].concat());
    assert!(answer.starts_with(b"YESQUEL1"));
    // An unsupported version gets the supported range.
    let hello = yesquel_wire::greeting::Hello {
        versions: (7, 9),
        client: 5,
        credential: b"",
        role: yesquel_wire::greeting::Role::Client,
        cluster: None,
    }
    .encode();
    let answer = say(&server, &hello);
    let (welcome, _) = yesquel_wire::greeting::Welcome::decode(&answer).unwrap().unwrap();
    let (lowest, highest) = yesquel_wire::greeting::VERSIONS;
    let denial = yesquel_wire::greeting::Denial::Version { lowest, highest };
    assert_eq!(welcome, yesquel_wire::greeting::Welcome::Refused(denial));
    work(&store);
}

#[test]
fn a_peer_that_is_not_a_server_is_reported() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"+OK some other protocol\r\n").unwrap();
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let address = Address::Tcp { host: "127.0.0.1".to_owned(), port };
    let error = Store::connect(&address, SocketOptions::default()).unwrap_err().to_string();
    assert!(
        error.contains("does not speak Yesquel's protocol") && error.contains(&port.to_string()),
        "{error}"
    );
    other.join().unwrap();
    // Now nothing listens there.
    let error = Store::connect(&address, SocketOptions::default()).unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
}

#[test]
fn only_clients_with_the_credential_are_served() {
    let credential = Some(b"secret".into());
    let server = start(ListenOptions { credential, ..listen(vec![local()]) });
    let with = |credential: &[u8]| SocketOptions { credential: credential.into(), ..Default::default() };
    for wrong in [&b""[..], b"secre", b"secret2"] {
        let error = Store::connect(&server.addresses()[0], with(wrong)).unwrap_err().to_string();
        assert!(error.contains("rejects this credential"), "{error}");
    }
    Store::connect(&server.addresses()[0], with(b"secret")).unwrap();
    let error = Store::connect(&server.addresses()[0], with(&[b'x'; 1_025])).unwrap_err().to_string();
    assert!(error.contains("a credential of 1025 bytes; the limit is 1024"), "{error}");
}

#[test]
fn unencrypted_clients_are_refused() {
    for (credential, missing) in
        [(None, "a certificate with its key and a credential"), (Some(1), "a certificate")]
    {
        let credential = credential.map(|byte: u8| (&[byte]).into());
        let everywhere = Address::Tcp { host: "0.0.0.0".to_owned(), port: 0 };
        let listen = ListenOptions { credential, ..listen(vec![everywhere]) };
        let error =
            Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap_err();
        assert!(matches!(&error, Error::Location { what, .. } if what.contains(missing)), "{error}");
    }
}

#[test]
fn the_limit_of_clients_is_enforced() {
    let server = start(ListenOptions { clients_max: 3, ..listen(vec![local()]) });
    let stores: Vec<Store> = (0..3).map(|_| connect(&server)).collect();
    let error = Store::connect(&server.addresses()[0], SocketOptions::default()).unwrap_err().to_string();
    assert!(error.contains("maximum of 3 connections"), "{error}");
    work(&stores[2]);
    drop(stores);
    // There is room again, as soon as the server has noticed.
    let store = std::iter::repeat_with(|| Store::connect(&server.addresses()[0], SocketOptions::default()))
        .take(1_000)
        .find_map(Result::ok);
    work(&store.unwrap());
}

fn certificate(place: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (place.join("certificate.pem"), place.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

#[test]
fn encrypted_connections_behave_alike() {
    let place = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(place.path());
    let tls = Some(yesquel::tls::server(&certificate, &key).unwrap());
    let server = start(ListenOptions { tls, ..listen(vec![local()]) });
    let with = |signers| SocketOptions {
        tls: Some(yesquel::tls::client(signers).unwrap()),
        connect_timeout: Duration::from_secs(2),
        ..Default::default()
    };
    work(&Store::connect(&server.addresses()[0], with(Some(&certificate))).unwrap());
    // Signed by no authority that browsers trust.
    let error = Store::connect(&server.addresses()[0], with(None)).unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
    // One side without encryption.
    let plain = SocketOptions { connect_timeout: Duration::from_secs(2), ..Default::default() };
    let error = Store::connect(&server.addresses()[0], plain).unwrap_err().to_string();
    assert!(error.contains("Yesquel server"), "{error}");
    let server = start(listen(vec![local()]));
    Store::connect(&server.addresses()[0], with(Some(&certificate))).unwrap_err();
}

#[test]
fn threads_share_one_attempt_to_reconnect() {
    const THREADS: usize = 16;
    let place = tempfile::tempdir().unwrap();
    let socket = Address::Unix(place.path().join("socket"));
    let server = start(listen(vec![socket.clone()]));
    let options = SocketOptions { connect_timeout: Duration::from_millis(300), ..Default::default() };
    let store = Store::connect(&socket, options).unwrap();
    drop(server);
    // The call that finds the connection broken does not try another one.
    assert!(store.databases().is_err());
    // Accepts connections and sends nothing, so that each attempt takes as long as allowed.
    let silent = std::os::unix::net::UnixListener::bind(place.path().join("socket")).unwrap();
    let all = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                all.wait();
                for _ in 0..3 {
                    assert!(store.databases().is_err());
                }
            });
        }
    });
    silent.set_nonblocking(true).unwrap();
    let tries = silent.incoming().map_while(Result::ok).count();
    assert!((1..THREADS).contains(&tries), "{tries} tries, one after the other");
}

#[test]
fn a_client_continues_after_a_server_restart() {
    let place = tempfile::tempdir().unwrap();
    let socket = Address::Unix(place.path().join("socket"));
    let begin = || {
        let folder = place.path().join("data");
        let listen = listen(vec![socket.clone()]);
        Server::start(Some(&folder), EngineSettings::default(), LogOptions::default(), listen).unwrap()
    };
    let server = begin();
    let store = Store::connect(&socket, SocketOptions::default()).unwrap();
    let database = store.database_or_create("kept").unwrap();
    let map = database.map("map").unwrap();
    database.put(map, b"before", b"1").unwrap();
    let mut open = database.begin();
    open.get(map, b"before").unwrap();
    drop(server);
    let _server = begin();
    // A request in flight, or one that finds the connection broken, may fail once; nothing is done
    // twice.
    let found = (0..10).find_map(|_| database.get(map, b"before").ok());
    assert_eq!(found.unwrap().as_deref(), Some(&b"1"[..]));
    database.put(map, b"after", b"2").unwrap();
    // A transaction's old snapshot is not readable any more.
    assert!(matches!(open.get(map, b"after"), Err(Error::SnapshotTooOld(_))));
}

/// The nodes of a tree with ten million keys would exceed a message.
#[test]
fn nodes_are_reported_in_pages() {
    let settings = EngineSettings { node_cells_max: 8, report_bytes_max: 2_000, ..EngineSettings::default() };
    let server = Server::start(None, settings, LogOptions::default(), listen(vec![local()])).unwrap();
    let store = connect(&server);
    let database = store.database_or_create("pages").unwrap();
    let map = database.map("map").unwrap();
    for number in 0..1_000u32 {
        database.put(map, &number.to_be_bytes(), b"value").unwrap();
    }
    // Splits may continue, so that pages are of different times; in the end they agree.
    for tries in 0.. {
        assert!(tries < 3_000, "some are missing");
        let nodes = store.nodes(map).unwrap();
        assert!(!nodes.more && nodes.nodes.windows(2).all(|pair| pair[0].id < pair[1].id), "each once");
        let mut leaves: Vec<_> = nodes.nodes.iter().filter(|node| node.leaf).collect();
        leaves.sort_by_key(|leaf| &leaf.low);
        let cells = leaves.iter().map(|leaf| leaf.cells).sum::<u64>();
        let is_whole = leaves[0].low.is_empty() && leaves[leaves.len() - 1].high.is_none();
        let is_next = |pair: &[&yesquel::status::NodeStatus]| pair[0].high.as_ref() == Some(&pair[1].low);
        if cells == 1_000 && leaves.len() > 50 && is_whole && leaves.windows(2).all(is_next) {
            break;
        }
        std::thread::yield_now();
    }
    // Each answer of the server is bounded.
    let tree = yesquel_model::TreeId::new(map.tree()).unwrap();
    let page = server.host().transport().core().with_engine(|engine| engine.nodes_of(tree, None));
    assert!(page.more && page.nodes.len() < 16, "{}", page.nodes.len());
}

/// A server must present the new credential before the old one is removed.
#[test]
fn a_connection_of_a_server_is_made_again_when_its_secrets_are_replaced() {
    let [old, both] = [&b"old"[..], b"new\nold"].map(|lines| Credentials::parse(lines).unwrap());
    let peers = PeerOptions { credential: Some(both.clone()), ..PeerOptions::default() };
    let server = start(ListenOptions { peers, ..listen(vec![local()]) });
    let secrets = PresentSecrets::new(Secrets { peers: Some(old), ..Secrets::default() }).unwrap();
    let secrets = Arc::new(secrets);
    let options = SocketOptions {
        secrets: Some(Arc::new(PeerSecrets(Arc::clone(&secrets)))),
        role: Role::Peer,
        lanes: 0,
        ..SocketOptions::default()
    };
    let transport = SocketTransport::connect(server.addresses(), 7, options).unwrap();
    let mut request = Vec::new();
    Request::Directory.write(&mut ByteWriter(&mut request));
    // Closes the connection if it is outdated, and returns the number of connections until now.
    let renew_and_call = || {
        transport.renew();
        block_on(transport.call(ServerId(0), &request)).unwrap();
        server.status().connections.accepted
    };
    assert_eq!(renew_and_call(), 1);
    secrets.replace(|former| Ok(Secrets { peers: Some(both), ..former.clone() })).unwrap();
    // The transport's own thread may use the connection for a moment, which is kept then.
    assert!((0..1_000).any(|_| renew_and_call() == 2));
    assert_eq!(renew_and_call(), 2);
}
