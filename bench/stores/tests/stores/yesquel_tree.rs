//! Yesquel's ordered maps: the suite in memory, on a folder and on a server; the
//! frame of a record; faults of paths, servers and settings.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_conformance::{
    Differences, Executor, FIELDS, Fields, Ready, Subject, TABLE, fields, properties, schema, silent,
};
use serval_model::{Client, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Status, Store};
use serval_stores::yesquel_tree::{YesquelTree, YesquelTreeClient};
use std::{fs, path::Path};
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server};

fn open(settings: &[(&str, &str)]) -> Result<YesquelTree, String> {
    YesquelTree::open(&properties(settings)).map_err(|faults| faults.to_string())
}

fn store(property: &str, value: &Path, settings: &[(&str, &str)]) -> YesquelTree {
    open(&[&[(property, value.to_str().unwrap())], settings].concat()).unwrap()
}

const PATH: &str = "yesquel-tree.path";
const ADDRESS: &str = "yesquel-tree.address";

/// A server on a Unix socket, in memory or on a folder.
fn serve(socket: &Path, folder: Option<&Path>) -> Server {
    let listen =
        ListenOptions { addresses: vec![Address::Unix(socket.to_owned())], ..ListenOptions::default() };
    Server::start(folder, EngineSettings::default(), LogOptions::default(), listen).unwrap()
}

/// A server that requires encryption and a credential, and the settings that its
/// clients need.
struct Encrypted {
    _server: Server,
    address: String,
    certificate: String,
    right: String,
}

fn encrypted(place: &Path) -> Encrypted {
    let file = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let (certificate, key, right) = (file("certificate.pem"), file("key.pem"), file("right"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    fs::write(&right, "secret\nanything\n").unwrap();
    let listen = ListenOptions {
        addresses: vec!["127.0.0.1:0".parse().unwrap()],
        tls: Some(yesquel::tls::server(certificate.as_ref(), key.as_ref()).unwrap()),
        credential: Some((*b"secret").into()),
        ..ListenOptions::default()
    };
    let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
    let Address::Tcp { port, .. } = server.addresses()[0] else { unreachable!() };
    Encrypted { _server: server, address: format!("localhost:{port}"), certificate, right }
}

fn subject(store: YesquelTree) -> Subject<YesquelTree, Ready> {
    let differences =
        Differences { delete_missing_is_not_found: false, atomic_batch: true, ..Differences::default() };
    Subject::new(store, Ready, differences)
}

mod in_memory {
    use super::*;
    fn subject() -> Subject<YesquelTree, Ready> {
        super::subject(open(&[]).unwrap())
    }
    serval_conformance::suite!(subject);
}

mod on_a_folder {
    use super::*;
    fn subject() -> Subject<YesquelTree, Ready> {
        let folder = tempfile::tempdir().unwrap();
        super::subject(store(PATH, folder.path(), &[])).keeping(folder)
    }
    serval_conformance::suite!(subject);
}

mod at_a_server {
    use super::*;
    fn subject() -> Subject<YesquelTree, Ready> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let server = serve(&socket, None);
        super::subject(store(ADDRESS, &socket, &[("yesquel-tree.database", "other")]))
            .keeping((server, folder))
    }
    serval_conformance::suite!(subject);
}

mod at_a_server_that_encrypts {
    use super::*;
    fn subject() -> Subject<YesquelTree, Ready> {
        let folder = tempfile::tempdir().unwrap();
        let server = encrypted(folder.path());
        let settings = [
            (ADDRESS, &*server.address),
            ("yesquel-tree.tls", "true"),
            ("yesquel-tree.tls.roots", &*server.certificate),
            ("yesquel-tree.credential_file", &*server.right),
        ];
        super::subject(open(&settings).unwrap()).keeping((server, folder))
    }
    serval_conformance::suite!(subject);
}

fn record(pairs: &[(&str, &[u8])]) -> Record {
    pairs.iter().copied().collect()
}

fn client(store: &YesquelTree) -> YesquelTreeClient {
    Ready.run(store.connect(&(), 0)).unwrap()
}

fn read(client: &mut YesquelTreeClient, key: &str) -> (Outcome, Vec<Fields>) {
    let mut reply = Reply::new();
    let outcome = Ready.run(client.read(TABLE, key, &FieldSelection::default(), &mut reply));
    let records = reply.records().iter();
    let found = records.map(|record| record.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect());
    (outcome, found.collect())
}

fn refusal(store: &YesquelTree, purpose: Purpose) -> String {
    store.prepare(&schema(), purpose).unwrap_err().to_string()
}

fn facts_of(store: &YesquelTree, name: &str) -> Option<String> {
    store.describe().into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

#[test]
fn records_have_the_documented_frame_and_survive_a_restart() {
    let place = tempfile::tempdir().unwrap();
    for (durability, shown) in [("sync", "sync"), ("interval", "interval 20"), ("none", "none")] {
        let path = place.path().join(durability);
        let settings = [("yesquel-tree.durability", durability), ("yesquel-tree.sync_interval", "20")];
        let first = store(PATH, &path, &settings);
        first.prepare(&schema(), Purpose::Load).unwrap();
        assert_eq!(facts_of(&first, "durability").as_deref(), Some(shown));
        let mut writer = client(&first);
        let one = record(&[("field1", b"xy"), ("field0", b"\0\xff")]);
        assert_eq!(Ready.run(writer.insert(TABLE, "user1", &one)), Outcome::OK);
        assert_eq!(Ready.run(writer.update(TABLE, "user1", &record(&[("field1", b"z")]))), Outcome::OK);
        assert_eq!(Ready.run(writer.close()), Outcome::OK);
        first.finish().unwrap();
        {
            // By the library alone, while the store is still open.
            let database = yesquel::Store::open(&path).unwrap().database("ycsb").unwrap();
            let map = database.existing_map(TABLE).unwrap().unwrap();
            let value = database.get(map, b"user1").unwrap().unwrap();
            assert_eq!(&*value, b"\0\0\0\x06field1\0\0\0\x01z\0\0\0\x06field0\0\0\0\x02\0\xff");
            database.put(map, b"user2", b"\0\0\0\x06field3\0\0\0\x00").unwrap();
            database.put(map, b"user3", b"something else").unwrap();
        }
        let second = store(PATH, &path, &[]);
        second.prepare(&schema(), Purpose::Run).unwrap();
        let mut reader = client(&second);
        let found = read(&mut reader, "user1");
        assert_eq!(found, (Outcome::OK, vec![fields([("field1", b"z"), ("field0", b"\0\xff")])]));
        assert_eq!(read(&mut reader, "user2"), (Outcome::OK, vec![fields([("field3", b"")])]));
        let strange = [
            read(&mut reader, "user3").0,
            Ready.run(reader.update(TABLE, "user3", &record(&[("field0", b"x")]))),
            Ready.run(reader.scan(TABLE, "user1", 9, &FieldSelection::default(), &mut Reply::new())),
        ];
        for outcome in strange {
            assert_eq!(outcome.status, Status::UnexpectedState, "{outcome:?}");
            assert!(outcome.message.unwrap().contains("'user3' is not framed"));
        }
        assert!(reader.lost().is_none());
    }
}

#[test]
fn keys_that_are_too_long_and_unknown_tables_are_refused() {
    let store = open(&[]).unwrap();
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut client = client(&store);
    assert_eq!(Ready.run(client.insert(TABLE, "k", &record(&[]))), Outcome::OK);
    let key = "k".repeat((1 << 20) + 1);
    let keyed = Ready.run(client.insert(TABLE, &key, &record(&[])));
    let elsewhere = Ready.run(client.insert("other", "k", &record(&[])));
    for (outcome, words) in [
        (keyed, "a key of 1048577 bytes is longer than the 1048576"),
        (elsewhere, "there is no table 'other'"),
    ] {
        assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
        assert!(outcome.message.as_ref().unwrap().contains(words), "{outcome:?}");
    }
    let again = Ready.run(client.insert(TABLE, "k", &record(&[])));
    assert!(again.message.unwrap().contains("exists already"));
}

#[test]
fn a_table_that_was_dropped_and_created_again_is_found() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let server = serve(&socket, None);
    let store = store(ADDRESS, &socket, &[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut client = client(&store);
    let one = record(&[("field0", b"1")]);
    assert_eq!(Ready.run(client.insert(TABLE, "k", &one)), Outcome::OK);
    let database = yesquel::Store::of_host(server.host().clone()).database("ycsb").unwrap();
    database.drop_map(TABLE).unwrap();
    let outcome = Ready.run(client.insert(TABLE, "k", &one));
    assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
    database.map(TABLE).unwrap();
    assert_eq!(Ready.run(client.insert(TABLE, "k", &one)), Outcome::OK);
}

#[test]
fn long_batches_are_split_into_transactions_for_any_number_of_clients() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let _server = serve(&socket, None);
    let store = store(ADDRESS, &socket, &[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    let batch = |number: u32| -> Vec<(String, Record)> {
        // Spread over all keys: 10 MB per client.
        let key = |n: u32| format!("user{:08x}{number}", n.wrapping_mul(2_654_435_761));
        (0..2_500).map(|n| (key(n), record(&[("field0", &[n as u8; 4_000])]))).collect()
    };
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (store, batch) = (&store, &batch);
            scope.spawn(move || {
                let mut client = client(store);
                assert_eq!(Ready.run(client.insert_batch(TABLE, &batch(number))), Outcome::OK);
            });
        }
    });
    let (mut client, mut reply) = (client(&store), Reply::new());
    assert_eq!(
        Ready.run(client.scan(TABLE, "", u64::MAX, &FieldSelection::default(), &mut reply)),
        Outcome::OK
    );
    assert_eq!(reply.records().len(), 5_000);
}

#[test]
fn clients_updating_one_record_lose_no_writes() {
    let store = open(&[]).unwrap();
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut reader = client(&store);
    assert_eq!(Ready.run(reader.insert(TABLE, "k", &record(&[]))), Outcome::OK);
    std::thread::scope(|scope| {
        for field in FIELDS {
            let store = &store;
            scope.spawn(move || {
                let mut client = client(store);
                for round in 0..500 {
                    let change = record(&[(field, format!("{round}").as_bytes())]);
                    // Four clients that only write sometimes exceed the number of attempts.
                    loop {
                        let outcome = Ready.run(client.update(TABLE, "k", &change));
                        if outcome == Outcome::OK {
                            break;
                        }
                        assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
                        assert!(outcome.message.unwrap().contains("another client has changed"));
                    }
                }
            });
        }
    });
    let last: Fields = FIELDS.map(|field| (field.to_owned(), b"499".to_vec())).into();
    assert_eq!(read(&mut reader, "k"), (Outcome::OK, vec![last]));
}

#[test]
fn an_unusable_folder_is_reported_with_the_remedy() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data");
    let here = store(PATH, &path, &[]);
    let problem = refusal(&here, Purpose::Run);
    assert!(problem.contains("serval load yesquel-tree") && problem.contains("data): there is"), "{problem}");
    assert!(!path.exists(), "a run creates no file");
    here.prepare(&schema(), Purpose::Load).unwrap();
    let problem = refusal(&store(PATH, &path, &[]), Purpose::Run);
    assert!(problem.contains("in use by process") && problem.contains(PATH), "{problem}");
    let other = Schema { table: "other".into(), ..schema() };
    let problem = here.prepare(&other, Purpose::Run).unwrap_err().to_string();
    assert!(problem.contains("has no table 'other': load it first"), "{problem}");
    for table in ["", "a\nb"] {
        let table = Schema { table: table.into(), ..schema() };
        let problem = here.prepare(&table, Purpose::Load).unwrap_err().to_string();
        assert!(problem.contains("table: ") && problem.contains("cannot be a name"), "{problem}");
    }
    here.finish().unwrap();
    let other = store(PATH, &path, &[("yesquel-tree.database", "other")]);
    let problem = refusal(&other, Purpose::Run);
    assert!(problem.contains("no database 'other': load it first"), "{problem}");
    fs::write(place.path().join("file"), "x").unwrap();
    let problem = refusal(&store(PATH, place.path(), &[]), Purpose::Load);
    assert!(problem.contains("files that are not Yesquel's"), "{problem}");
    assert!(store(PATH, &place.path().join("file"), &[]).prepare(&schema(), Purpose::Load).is_err());
}

#[test]
fn a_run_without_a_load_in_memory_is_refused_with_the_reason() {
    let store = open(&[]).unwrap();
    let problem = refusal(&store, Purpose::Run);
    assert!(problem.contains("one command") && problem.contains(PATH), "{problem}");
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut writer = client(&store);
    assert_eq!(Ready.run(writer.insert(TABLE, "k", &record(&[]))), Outcome::OK);
    Ready.run(writer.close());
    store.finish().unwrap();
    // The loaded records exist for the run.
    store.prepare(&schema(), Purpose::Run).unwrap();
    assert_eq!(read(&mut client(&store), "k").0, Outcome::OK);
}

#[test]
fn unreachable_servers_are_reported_with_the_remedy() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let problem = refusal(&store(ADDRESS, &socket, &[]), Purpose::Load);
    assert!(problem.contains("socket): cannot connect: No such file"), "{problem}");
    assert!(problem.contains("Is a Yesquel server running"), "{problem}");
    let (listener, address) = silent();
    let patient = [("yesquel-tree.connect_timeout", "200ms"), (ADDRESS, &address)];
    let problem = refusal(&open(&patient).unwrap(), Purpose::Load);
    assert!(problem.contains("the encryption that it has? Is a Yesquel server running"), "{problem}");
    assert!(problem.contains(&address), "{problem}");
    // It has given up after one time limit.
    listener.set_nonblocking(true).unwrap();
    let attempts = std::iter::from_fn(|| listener.accept().ok()).count();
    assert_eq!(attempts, 1);
    let _server = serve(&socket, None);
    let here = store(ADDRESS, &socket, &[]);
    let problem = refusal(&here, Purpose::Run);
    assert!(problem.contains("no database 'ycsb': load it first"), "{problem}");
    here.prepare(&schema(), Purpose::Load).unwrap();
    assert_eq!(facts_of(&here, "durability").as_deref(), Some("memory"));
    assert_eq!(facts_of(&here, "tls").as_deref(), Some("false"));
}

#[test]
fn mismatched_encryption_and_credentials_are_reported() {
    let place = tempfile::tempdir().unwrap();
    let Encrypted { _server, address, certificate, right } = encrypted(place.path());
    let wrong = place.path().join("wrong").to_str().unwrap().to_owned();
    fs::write(&wrong, "secret2").unwrap();
    let with = |settings: &[(&str, &str)]| {
        let basis = [(ADDRESS, &*address), ("yesquel-tree.connect_timeout", "3s")];
        open(&[&basis, settings].concat()).unwrap()
    };
    let (tls, roots) = (("yesquel-tree.tls", "true"), ("yesquel-tree.tls.roots", &*certificate));
    let credential = |file| ("yesquel-tree.credential_file", file);
    let here = with(&[tls, roots, credential(&*right)]);
    here.prepare(&schema(), Purpose::Load).unwrap();
    assert_eq!(facts_of(&here, "tls").as_deref(), Some("true"));
    for (settings, words) in [
        (&[tls, roots, credential(&*wrong)][..], "Check yesquel-tree.credential_file"),
        (&[tls, roots], "Check yesquel-tree.credential_file"),
        (&[tls, credential(&*right)], "Do yesquel-tree.tls.roots and the host"),
        (&[credential(&*right)], "yesquel-tree.tls as the server wants it"),
    ] {
        let problem = refusal(&with(settings), Purpose::Load);
        assert!(problem.contains(words) && problem.contains(&address), "{problem}");
    }
}

#[test]
fn a_server_restart_fails_only_operations_in_flight() {
    let place = tempfile::tempdir().unwrap();
    let (socket, folder) = (place.path().join("socket"), place.path().join("data"));
    let server = serve(&socket, Some(&folder));
    let store = store(ADDRESS, &socket, &[("yesquel-tree.connect_timeout", "200ms")]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut client = client(&store);
    assert_eq!(Ready.run(client.insert(TABLE, "k", &record(&[("field0", b"1")]))), Outcome::OK);
    drop(server);
    let outcomes = [
        read(&mut client, "k").0,
        Ready.run(client.update(TABLE, "k", &record(&[("field0", b"2")]))),
        Ready.run(client.insert(TABLE, "l", &record(&[]))),
        Ready.run(client.delete(TABLE, "l")),
    ];
    for outcome in outcomes {
        assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
    }
    assert!(client.lost().is_none(), "the server may recover");
    let _server = serve(&socket, Some(&folder));
    let found = read(&mut client, "k");
    assert_eq!(found, (Outcome::OK, vec![fields([("field0", b"1")])]));
    assert_eq!(Ready.run(client.update(TABLE, "k", &record(&[("field0", b"2")]))), Outcome::OK);
}

#[test]
fn impossible_settings_are_refused_together() {
    let problem = open(&[
        (ADDRESS, "host:port"),
        ("yesquel-tree.database", ""),
        ("yesquel-tree.durability", "full"),
        ("yesquel-tree.sync_interval", "0"),
        ("yesquel-tree.connect_timeout", "0"),
        ("yesquel-tree.timeout", "never"),
        ("yesquel-tree.credential_file", "/nowhere/credential"),
        ("yesquel-tree.tls", "maybe"),
        ("yesquel-tree.tls.roots", "/nowhere/roots"),
    ])
    .unwrap_err();
    for name in ["address", "database", "durability", "sync_interval", "connect_timeout", "timeout", "tls"] {
        assert!(problem.contains(&format!("yesquel-tree.{name}=")), "{problem}");
    }
    assert!(problem.contains("a port is a number") && problem.contains("/nowhere/credential: "), "{problem}");
    for (settings, words) in [
        (&[(ADDRESS, "localhost"), (PATH, "x")][..], "cannot stand together"),
        (&[(ADDRESS, "localhost:0")], "port 0"),
        (&[(PATH, "")], "must name a folder"),
        (&[("yesquel-tree.durability", "none")], "which is not set"),
        (&[("yesquel-tree.tls", "true")], "with a host"),
        (&[("yesquel-tree.tls", "true"), (ADDRESS, "/socket")], "with a host"),
        (&[(PATH, "x"), ("yesquel-tree.credential_file", "/nowhere")], "needs yesquel-tree.address"),
        (&[(ADDRESS, "h"), ("yesquel-tree.tls.ca", "/nowhere")], "needs yesquel-tree.tls=true"),
        (
            &[(ADDRESS, "h"), ("yesquel-tree.tls", "true"), ("yesquel-tree.tls.roots", "/nowhere")],
            "yesquel-tree.tls.roots=/nowhere: ",
        ),
    ] {
        let problem = open(settings).unwrap_err();
        assert!(problem.contains(words), "{problem}");
    }
    let shown = open(&[(ADDRESS, "localhost"), ("yesquel-tree.database", "d")]).unwrap().describe();
    assert!(shown.contains(&("address".into(), "localhost:7411".into())), "{shown:?}");
    assert!(shown.contains(&("database".into(), "d".into())), "{shown:?}");
}
