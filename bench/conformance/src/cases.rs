//! Cases of the suite, except the random sequences of operations.

pub use crate::sequences::any_sequence_of_operations_agrees_with_a_map;
use crate::{
    Executor, FIELDS, Fields, InsertExisting, Subject, fields, full, schema, subject::with_client_of,
};
use serval_model::{Outcome, Purpose, Status, Store};

/// Difficult values: quotes, NUL, line ends, format characters, text beyond ASCII,
/// invalid UTF-8, an empty value, values of 256 KiB and 1 MiB.
pub fn values_are_returned_byte_for_byte<S: Store, E: Executor>(subject: &Subject<S, E>) {
    let values: Vec<Vec<u8>> = vec![
        b"".into(),
        b"plain".into(),
        b"'single' \"double\" `back` \\ ; -- /* %s %d {} ?1 :a $b".into(),
        b"NUL\0inside\0".into(),
        b"\0".into(),
        b"\r\n*3\r\n$-1\r\n\t ".into(),
        "Grüße, 世界, 🦁, e\u{301}".into(),
        (0..=255).collect(),
        b"\xff\xfe not utf-8 \xc3".into(),
        b"123".into(),
        b"007".into(),
        b"1e3".into(),
        b"NULL".into(),
        vec![b'y'; 1 << 18],
        vec![b'x'; 1 << 20],
        (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect(),
    ];
    subject.with_client(async |client| {
        for (index, value) in values.iter().enumerate() {
            let key = format!("user{index}");
            let written = fields([("field1", value), ("field2", b"next"), ("field0", value)]);
            if !subject.differences.takes(&written) {
                let outcome = client.insert(&key, &written).await;
                assert_eq!(outcome.status, Status::BadRequest, "value {index}: {outcome:?}");
                assert!(outcome.message.is_some_and(|words| words.len() < 1000), "value {index}");
                assert_eq!(client.read(&key, &[]).await, None, "value {index}");
                let batch = [("a", full("a")), (key.as_str(), written)];
                let outcome = client.insert_batch(&batch).await;
                assert_eq!(outcome.status, Status::BadRequest, "value {index}: {outcome:?}");
                client.delete("a").await;
                continue;
            }
            assert_eq!(client.insert(&key, &written).await, Outcome::OK);
            assert!(client.read(&key, &[]).await == Some(written.clone()), "insert of value {index}");
            // Also by updates, over another value and over itself.
            let other = fields([("field1", b"other")]);
            assert_eq!(client.update(&key, &other).await, Outcome::OK);
            let back = fields([("field1", value)]);
            assert_eq!(client.update(&key, &back).await, Outcome::OK);
            assert_eq!(client.update(&key, &back).await, Outcome::OK);
            assert!(client.read(&key, &[]).await == Some(written), "update of value {index}");
        }
    });
}

/// Difficult keys are distinct, or refused if the store does not accept them:
/// see [`crate::Differences::keys`].
pub fn keys_may_be_any_text<S: Store, E: Executor>(subject: &Subject<S, E>) {
    let long = "k".repeat(1000);
    let keys = [
        "user6284781860667377211",
        "'",
        "\"",
        "a'b\"c`d",
        "100%",
        "100%s",
        "_",
        "*",
        "?",
        "a?",
        "[a-z]",
        "{tag}",
        " ",
        " a ",
        "line\r\nend",
        "Ä",
        "ä",
        "ae\u{301}",
        "aé",
        "世界",
        "🦁",
        "a",
        "A",
        "0",
        "00",
        "-1",
        "NULL",
        "back\\slash",
        "semi;colon--",
        &long,
    ];
    subject.with_client(async |client| {
        let takes = subject.differences.keys;
        for key in keys.into_iter().filter(|key| !takes(key)) {
            let outcomes = [
                client.insert(key, &full(key)).await,
                client.update(key, &full(key)).await,
                client.delete(key).await,
            ];
            for outcome in outcomes {
                assert_eq!(outcome.status, Status::BadRequest, "{key:?}: {outcome:?}");
                assert!(outcome.message.is_some_and(|words| words.len() < 1000), "{key:?}");
            }
        }
        let keys = keys.into_iter().filter(|key| takes(key)).collect::<Vec<_>>();
        for &key in &keys {
            assert_eq!(client.insert(key, &full(key)).await, Outcome::OK, "{key:?}");
        }
        for &key in &keys {
            assert_eq!(client.read(key, &[]).await, Some(full(key)), "{key:?}");
            if subject.scans() {
                assert_eq!(client.scan(key, 1, &[]).await.len(), 1, "{key:?}");
            }
        }
        for key in keys {
            assert_eq!(client.update(key, &fields([("field0", b"x")])).await, Outcome::OK);
            assert_eq!(client.delete(key).await, Outcome::OK, "{key:?}");
            assert_eq!(client.read(key, &[]).await, None, "{key:?}");
        }
    });
}

/// Reads of one field, of several in any order, and of all.
pub fn a_read_returns_the_requested_fields<S: Store, E: Executor>(subject: &Subject<S, E>) {
    subject.with_client(async |client| {
        assert_eq!(client.insert("k", &full("k")).await, Outcome::OK);
        assert_eq!(client.read("k", &[]).await, Some(full("k")));
        assert_eq!(client.read("k", &FIELDS).await, Some(full("k")));
        for name in FIELDS {
            let mut expected = full("k");
            expected.retain(|field, _| field == name);
            assert_eq!(client.read("k", &[name]).await, Some(expected));
        }
        let mut expected = full("k");
        expected.remove("field0");
        expected.remove("field2");
        assert_eq!(client.read("k", &["field3", "field1"]).await, Some(expected));
    });
}

/// A field that was not written is missing, and can be written later.
pub fn a_record_may_have_some_fields_only<S: Store, E: Executor>(subject: &Subject<S, E>) {
    subject.with_client(async |client| {
        let part = fields([("field3", b"three")]);
        assert_eq!(client.insert("k", &part).await, Outcome::OK);
        assert_eq!(client.read("k", &[]).await, Some(part.clone()));
        assert_eq!(client.read("k", &["field0", "field3"]).await, Some(part));
        assert_eq!(client.update("k", &fields([("field0", b"zero")])).await, Outcome::OK);
        let both = fields([("field0", b"zero"), ("field3", b"three")]);
        assert_eq!(client.read("k", &[]).await, Some(both));
    });
}

/// Updates of one field, and of several.
pub fn an_update_leaves_the_other_fields<S: Store, E: Executor>(subject: &Subject<S, E>) {
    subject.with_client(async |client| {
        assert_eq!(client.insert("k", &full("k")).await, Outcome::OK);
        assert_eq!(client.insert("l", &full("l")).await, Outcome::OK);
        let mut expected = full("k");
        for change in [
            fields([("field1", b"a longer value than before, or so it is hoped")]),
            fields([("field3", b""), ("field0", b"0")]),
            fields([("field0", b"a"), ("field1", b"b"), ("field2", b"c"), ("field3", b"d")]),
        ] {
            assert_eq!(client.update("k", &change).await, Outcome::OK);
            expected.extend(change);
            assert_eq!(client.read("k", &[]).await, Some(expected.clone()));
        }
        assert_eq!(client.read("l", &[]).await, Some(full("l")));
    });
}

/// Reads and deletes of missing records, in an empty table and next to a
/// neighbour; see [`crate::Differences::delete_missing_is_not_found`].
pub fn missing_records_are_not_found<S: Store, E: Executor>(subject: &Subject<S, E>) {
    let differences = subject.differences;
    subject.with_client(async |client| {
        for _ in 0..2 {
            for missing in ["", "k", "key1", "kez"].into_iter().filter(|key| (differences.keys)(key)) {
                assert_eq!(client.read(missing, &[]).await, None);
                assert_eq!(client.read(missing, &["field1"]).await, None);
                assert!(differences.deletes_nothing(&client.delete(missing).await), "{missing:?}");
            }
            client.insert("key", &full("key")).await;
        }
        assert_eq!(client.read("key", &[]).await, Some(full("key")));
    });
}

/// NOT_FOUND, or an insert: see [`crate::Differences::update_missing_is_not_found`].
pub fn an_update_of_a_missing_record<S: Store, E: Executor>(subject: &Subject<S, E>) {
    let not_found = subject.differences.update_missing_is_not_found;
    subject.with_client(async |client| {
        let change = fields([("field1", b"one")]);
        let outcome = client.update("k", &change).await;
        if not_found {
            assert_eq!(outcome.status, Status::NotFound);
            assert_eq!(client.read("k", &[]).await, None);
        } else {
            assert_eq!(outcome, Outcome::OK);
            assert_eq!(client.read("k", &[]).await, Some(change));
        }
    });
}

/// Refused, replaced or merged: see [`crate::Differences::insert_existing`].
pub fn an_insert_of_an_existing_key<S: Store, E: Executor>(subject: &Subject<S, E>) {
    let existing = subject.differences.insert_existing;
    subject.with_client(async |client| {
        assert_eq!(client.insert("k", &full("k")).await, Outcome::OK);
        let second = fields([("field1", b"second")]);
        let outcome = client.insert("k", &second).await;
        let (status, expected) = existing.after(Some(&full("k")), &second);
        assert_eq!(outcome.status, status);
        assert_eq!(outcome.message.is_some(), !outcome.is_ok(), "a failure has words: {outcome:?}");
        assert_eq!(client.read("k", &[]).await, Some(expected));
    });
}

/// A deleted record is missing from reads and scans, and its key can be reused.
pub fn a_deleted_record_is_missing<S: Store, E: Executor>(subject: &Subject<S, E>) {
    subject.with_client(async |client| {
        for key in ["a", "b", "c"] {
            assert_eq!(client.insert(key, &full(key)).await, Outcome::OK);
        }
        assert_eq!(client.delete("b").await, Outcome::OK);
        assert_eq!(client.read("b", &[]).await, None);
        assert!(subject.differences.deletes_nothing(&client.delete("b").await));
        if subject.scans() {
            let left = client.scan("a", 10, &[]).await;
            assert!(!left.contains(&full("b")));
            if subject.differences.ordered_scan {
                assert_eq!(left, [full("a"), full("c")]);
            }
        }
        // A new record has nothing of the old one.
        let part = fields([("field1", b"again")]);
        assert_eq!(client.insert("b", &part).await, Outcome::OK);
        assert_eq!(client.read("b", &[]).await, Some(part));
    });
}

/// See [`crate::Differences::empty_records`].
pub fn a_record_without_fields<S: Store, E: Executor>(subject: &Subject<S, E>) {
    let empty = subject.differences.empty_records;
    subject.with_client(async |client| {
        let outcome = client.insert("k", &Fields::new()).await;
        if empty {
            assert_eq!(outcome, Outcome::OK);
            assert_eq!(client.read("k", &[]).await, Some(Fields::new()));
            assert_eq!(client.update("k", &Fields::new()).await, Outcome::OK);
            if subject.differences.update_missing_is_not_found {
                let outcome = client.update("l", &Fields::new()).await;
                assert_eq!(outcome.status, Status::NotFound);
            }
            assert_eq!(client.update("k", &full("k")).await, Outcome::OK);
        }
        // The client is still usable.
        assert_eq!(client.insert("m", &full("m")).await, Outcome::OK);
        assert_eq!(client.read("m", &[]).await, Some(full("m")));
    });
}

/// Order and limits; starts at a key, between two keys, before all, after all.
pub fn a_scan_starts_at_its_key_and_stops_at_its_limit<S: Store, E: Executor>(subject: &Subject<S, E>) {
    if !subject.scans() {
        return;
    }
    let mut keys: Vec<String> = (0..50).map(|n| format!("user{:04}", n * 37 % 50)).collect();
    // Byte order: capitals before small letters, text beyond ASCII last.
    keys.extend(["User", "user", "user0010a", "zebra", "Öl", "öl", "日"].map(String::from));
    let mut sorted = keys.clone();
    sorted.sort();
    subject.with_client(async |client| {
        assert!(client.scan("user", 10, &[]).await.is_empty());
        for key in &keys {
            assert_eq!(client.insert(key, &full(key)).await, Outcome::OK);
        }
        let between = ["", "user0010", "user00105", "user0010a", "user0049", "v", "日", "日本"];
        for start in sorted.iter().map(String::as_str).chain(between) {
            for count in [1, 2, 7, 57, 58, u64::MAX] {
                let found = client.scan(start, count, &[]).await;
                let limit = usize::try_from(count).unwrap_or(usize::MAX);
                if subject.differences.ordered_scan {
                    let expected = sorted.iter().filter(|key| key.as_str() >= start).take(limit);
                    let expected: Vec<_> = expected.map(|key| full(key)).collect();
                    assert_eq!(found, expected, "from {start:?}, {count} records");
                } else {
                    assert!(found.len() <= limit, "from {start:?}, {count} records");
                    for (index, fields) in found.iter().enumerate() {
                        assert!(keys.iter().any(|key| *fields == full(key)), "{fields:?}");
                        assert!(!found[..index].contains(fields), "twice: {fields:?}");
                    }
                }
            }
        }
    });
}

/// A scan returns the same fields of every record, and none of records without them.
pub fn a_scan_returns_the_requested_fields<S: Store, E: Executor>(subject: &Subject<S, E>) {
    if !subject.scans() {
        return;
    }
    subject.with_client(async |client| {
        for key in ["a", "b"] {
            assert_eq!(client.insert(key, &full(key)).await, Outcome::OK);
        }
        for start in ["a", "b"] {
            for fields in client.scan(start, 2, &["field3", "field0"]).await {
                let names: Vec<_> = fields.keys().collect();
                assert_eq!(names, ["field0", "field3"]);
                assert!(fields["field3"].starts_with(b"field3 of "));
            }
        }
        if subject.differences.ordered_scan {
            assert_eq!(client.scan("a", 2, &["field1"]).await.len(), 2);
        }
    });
}

/// Batches of several records, one, and none.
pub fn a_batch_is_written<S: Store, E: Executor>(subject: &Subject<S, E>) {
    subject.with_client(async |client| {
        let keys: Vec<String> = (0..100).map(|n| format!("user{n}")).collect();
        let batch: Vec<_> = keys.iter().map(|key| (key.as_str(), full(key))).collect();
        assert!(client.insert_batch(&batch).await.is_ok());
        // Records of different shapes in one batch.
        let mixed = [("x", fields([("field3", b"3")])), ("y", full("y"))];
        assert!(client.insert_batch(&mixed).await.is_ok());
        assert!(client.insert_batch(&[("z", full("z"))]).await.is_ok());
        assert!(client.insert_batch(&[]).await.is_ok());
        for (key, fields) in batch.into_iter().chain(mixed).chain([("z", full("z"))]) {
            assert_eq!(client.read(key, &[]).await, Some(fields), "{key}");
        }
    });
}

/// A batch that fails in the middle, on an existing record: see [`crate::Differences::atomic_batch`].
pub fn a_failed_batch_stops_at_the_failure<S: Store, E: Executor>(subject: &Subject<S, E>) {
    if subject.differences.insert_existing != InsertExisting::Refused {
        return;
    }
    subject.with_client(async |client| {
        assert_eq!(client.insert("b", &full("old")).await, Outcome::OK);
        let batch = [("a", full("a")), ("b", full("new")), ("c", full("c"))];
        let outcome = client.insert_batch(&batch).await;
        assert_eq!(outcome.status, Status::Error);
        assert!(outcome.message.is_some());
        let first = client.read("a", &[]).await;
        assert!(first.is_none() || !subject.differences.atomic_batch && first == Some(full("a")));
        assert_eq!(client.read("b", &[]).await, Some(full("old")));
        assert_eq!(client.read("c", &[]).await, None);
        // The client is still usable.
        assert_eq!(client.insert("d", &full("d")).await, Outcome::OK);
        assert!(client.insert_batch(&[("e", full("e"))]).await.is_ok());
        assert_eq!(client.read("e", &[]).await, Some(full("e")));
    });
}

/// A client that connects after the store was prepared for a run.
pub fn the_next_client_reads_earlier_writes<S: Store, E: Executor>(subject: &Subject<S, E>) {
    subject.with_client(async |client| {
        assert_eq!(client.insert("k", &full("k")).await, Outcome::OK);
    });
    subject.store.prepare(&schema(), Purpose::Run).unwrap();
    subject.with_another_client(1, async |client| {
        assert_eq!(client.read("k", &[]).await, Some(full("k")));
        assert_eq!(client.update("k", &fields([("field1", b"x")])).await, Outcome::OK);
    });
    // Preparing for another load destroys nothing.
    subject.with_client(async |client| {
        assert_eq!(client.read("k", &["field1"]).await, Some(fields([("field1", b"x")])));
    });
    subject.store.finish().unwrap();
}

/// Several clients on threads: inserts of own keys, updates of own fields of
/// shared records, and deletes, each of which succeeds once.
pub fn concurrent_clients_lose_no_writes<S: Store, E: Executor>(subject: &Subject<S, E>) {
    const ROUNDS: usize = 50;
    let shared: Vec<String> = (0..5).map(|n| format!("shared{n}")).collect();
    let doomed: Vec<String> = (0..ROUNDS).map(|n| format!("doomed{n}")).collect();
    subject.with_client(async |client| {
        for key in shared.iter().chain(&doomed) {
            assert_eq!(client.insert(key, &full(key)).await, Outcome::OK);
        }
    });
    let (store, executor, scans) = (&subject.store, subject.executor, subject.scans());
    let deleted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = FIELDS
            .iter()
            .enumerate()
            .map(|(number, field)| {
                let (shared, doomed) = (&shared, &doomed);
                scope.spawn(move || {
                    with_client_of(store, executor, number, async |client| {
                        let mut deleted = 0;
                        for round in 0..ROUNDS {
                            let own = format!("own{number}-{round}");
                            assert_eq!(client.insert(&own, &full(&own)).await, Outcome::OK);
                            assert_eq!(client.read(&own, &[]).await, Some(full(&own)));
                            let key = &shared[round % shared.len()];
                            let value = format!("{field} in round {round}");
                            let change = fields([(field, value.as_bytes())]);
                            assert_eq!(client.update(key, &change).await, Outcome::OK);
                            // No other client writes this field.
                            assert_eq!(client.read(key, &[field]).await, Some(change));
                            assert_eq!(client.read(key, &[]).await.map_or(0, |f| f.len()), 4);
                            if scans {
                                client.scan(key, 20, &[]).await;
                            }
                            match client.delete(&doomed[round]).await.status {
                                Status::Ok => deleted += 1,
                                status => assert_eq!(status, Status::NotFound),
                            }
                        }
                        deleted
                    })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    if subject.differences.delete_missing_is_not_found {
        assert_eq!(deleted, ROUNDS, "each record is deleted by one client only");
    }
    subject.with_another_client(0, async |client| {
        for number in 0..FIELDS.len() {
            for round in 0..ROUNDS {
                let own = format!("own{number}-{round}");
                assert_eq!(client.read(&own, &[]).await, Some(full(&own)));
            }
        }
        for (index, key) in shared.iter().enumerate() {
            let round = ROUNDS - shared.len() + index;
            let last = FIELDS.map(|f| (f.to_owned(), format!("{f} in round {round}").into_bytes()));
            assert_eq!(client.read(key, &[]).await, Some(Fields::from(last)));
        }
    });
}
