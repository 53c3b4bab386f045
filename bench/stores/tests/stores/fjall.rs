//! fjall: the suite, in memory and with synced writes; the frame of a record;
//! faults of a folder.

#![cfg(feature = "fjall")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use fjall::{Database, KeyspaceCreateOptions};
use serval_conformance::{
    Differences, Executor, InsertExisting, Ready, Subject, TABLE, fields, properties, schema,
};
use serval_model::{Client, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Status, Store};
use serval_stores::fjall::{Fjall, FjallClient};
use std::{fs, path::Path};

fn open(settings: &[(&str, &str)]) -> Result<Fjall, String> {
    Fjall::open(&properties(settings)).map_err(|faults| faults.to_string())
}

fn store(path: &Path, settings: &[(&str, &str)]) -> Fjall {
    open(&[&[("fjall.path", path.to_str().unwrap())], settings].concat()).unwrap()
}

fn subject(settings: &[(&str, &str)]) -> Subject<Fjall, Ready> {
    let folder = tempfile::tempdir().unwrap();
    let differences = Differences {
        insert_existing: InsertExisting::Replaced,
        delete_missing_is_not_found: false,
        atomic_batch: true,
        ..Differences::default()
    };
    Subject::new(store(folder.path(), settings), Ready, differences).keeping(folder)
}

mod buffered {
    use super::*;
    fn subject() -> Subject<Fjall, Ready> {
        super::subject(&[])
    }
    serval_conformance::suite!(subject);
}

/// With all other settings changed, which must not affect the results.
mod synchronous {
    use super::*;
    fn subject() -> Subject<Fjall, Ready> {
        super::subject(&[
            ("fjall.durability", "sync-data"),
            ("fjall.compression", "none"),
            ("fjall.cache_size", "1MiB"),
            ("fjall.memtable_size", "1MiB"),
            ("fjall.workers", "1"),
        ])
    }
    serval_conformance::suite!(subject);
}

fn record(pairs: &[(&str, &[u8])]) -> Record {
    pairs.iter().copied().collect()
}

fn client(store: &Fjall) -> FjallClient {
    Ready.run(store.connect(&(), 0)).unwrap()
}

fn read(client: &mut FjallClient, key: &str) -> (Outcome, Vec<serval_conformance::Fields>) {
    let mut reply = Reply::new();
    let outcome = Ready.run(client.read(TABLE, key, &FieldSelection::default(), &mut reply));
    let records = reply.records().iter();
    let found = records.map(|record| record.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect());
    (outcome, found.collect())
}

fn refusal(store: &Fjall, purpose: Purpose) -> String {
    store.prepare(&schema(), purpose).unwrap_err().to_string()
}

#[test]
fn records_have_the_documented_frame_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    for durability in ["buffer", "sync-data", "sync-all"] {
        let path = folder.path().join(durability);
        let first = store(&path, &[("fjall.durability", durability)]);
        first.prepare(&schema(), Purpose::Load).unwrap();
        let mut writer = client(&first);
        let one = record(&[("field1", b"xy"), ("field0", b"\0\xff")]);
        assert_eq!(Ready.run(writer.insert(TABLE, "user1", &one)), Outcome::OK);
        assert_eq!(Ready.run(writer.update(TABLE, "user1", &record(&[("field1", b"z")]))), Outcome::OK);
        assert_eq!(Ready.run(writer.close()), Outcome::OK);
        drop(writer);
        first.finish().unwrap();
        {
            // By the engine alone, while the store is still open.
            let database = Database::builder(&path).open().unwrap();
            let keyspace = database.keyspace(TABLE, KeyspaceCreateOptions::default).unwrap();
            let value = keyspace.get("user1").unwrap().unwrap();
            assert_eq!(&*value, b"\0\0\0\x06field1\0\0\0\x01z\0\0\0\x06field0\0\0\0\x02\0\xff");
            keyspace.insert("user2", b"\0\0\0\x06field3\0\0\0\x00").unwrap();
            keyspace.insert("user3", b"something else").unwrap();
        }
        let second = store(&path, &[]);
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
fn invalid_keys_are_refused_and_never_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut client = client(&store);
    let one = record(&[("field0", b"x")]);
    let (longest, long) = ("k".repeat(65_535), "k".repeat(65_536));
    assert_eq!(Ready.run(client.insert(TABLE, &longest, &one)), Outcome::OK);
    assert_eq!(read(&mut client, &longest).0, Outcome::OK);
    for key in ["", &long] {
        let batch = [("fine".to_owned(), one.clone()), (key.to_owned(), one.clone())];
        for outcome in
            [Ready.run(client.insert(TABLE, key, &one)), Ready.run(client.insert_batch(TABLE, &batch))]
        {
            assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
        }
        assert_eq!(read(&mut client, key).0, Outcome::NOT_FOUND);
        assert_eq!(Ready.run(client.update(TABLE, key, &one)), Outcome::NOT_FOUND);
        assert_eq!(Ready.run(client.delete(TABLE, key)), Outcome::OK);
    }
    assert_eq!(read(&mut client, "fine").0, Outcome::NOT_FOUND);
    let outcome = Ready.run(client.insert("other", "k", &one));
    assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
}

#[test]
fn an_unusable_folder_is_reported_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database");
    let here = store(&path, &[]);
    let problem = refusal(&here, Purpose::Run);
    assert!(problem.contains("no such database") && problem.contains("serval load fjall"), "{problem}");
    assert!(!path.exists(), "a run creates no file");
    here.prepare(&schema(), Purpose::Load).unwrap();
    let problem = refusal(&store(&path, &[]), Purpose::Run);
    assert!(problem.contains("another process, or another run of this one, has it open"), "{problem}");
    let other = Schema { table: "other".into(), ..schema() };
    let problem = here.prepare(&other, Purpose::Run).unwrap_err().to_string();
    assert!(problem.contains("no table 'other': load it first"), "{problem}");
    for table in [String::new(), "t".repeat(256)] {
        let problem = here.prepare(&Schema { table, ..schema() }, Purpose::Load).unwrap_err().to_string();
        assert!(problem.contains("1 to 255 bytes"), "{problem}");
    }
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    for purpose in [Purpose::Load, Purpose::Run] {
        assert!(store(&file, &[]).prepare(&schema(), purpose).is_err());
    }
    let problem = refusal(&store(folder.path(), &[]), Purpose::Load);
    assert!(problem.contains("files that are not fjall's"), "{problem}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is made there");
}

#[test]
fn impossible_settings_are_refused_together() {
    let problem = open(&[
        ("fjall.path", ""),
        ("fjall.durability", "full"),
        ("fjall.cache_size", "much"),
        ("fjall.memtable_size", "1KiB"),
        ("fjall.compression", "zip"),
        ("fjall.workers", "0"),
    ])
    .unwrap_err();
    for name in ["path", "durability", "cache_size", "memtable_size", "compression", "workers"] {
        assert!(problem.contains(&format!("fjall.{name}")), "{problem}");
    }
    let facts = open(&[("fjall.durability", "sync-all"), ("fjall.workers", "2")]).unwrap().describe();
    assert!(facts.contains(&("durability".into(), "sync-all".into())), "{facts:?}");
    assert!(facts.contains(&("workers".into(), "2".into())), "{facts:?}");
}
