//! What every store that keeps records must do, whatever it is: one suite,
//! run on each store by [`suite!`].
//!
//! A store's test file names an executor and a function that makes a
//! [`Subject`], an empty store with what it does differently:
//!
//! ```ignore
//! mod conformance;
//! use conformance::{Differences, Ready, Subject};
//!
//! fn subject() -> Subject<Memory, Ready> {
//!     let store = Memory::open(&Properties::new()).unwrap();
//!     Subject::new(store, Ready, Differences { insert_existing: Replaced, ..Differences::default() })
//! }
//! conformance::suite!(subject);
//! ```
//!
//! Each case gets a subject of its own and expects it empty. Cases run side
//! by side, as tests do; a store that cannot be had twice (a server) hands
//! out a lock guard in [`Subject::keep`] and empties itself in `subject()`.

#![allow(unreachable_pub, reason = "a module of tests has no outside")]
#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError, TestRunner},
};
use serval_model::{
    Client, FieldSelection, OperationKind, Outcome, Purpose, Record, Reply, Schema, Status, Store,
};
use std::{
    any::Any,
    collections::BTreeMap,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

/// The table that all cases use.
pub const TABLE: &str = "usertable";
/// The fields that records may have; not in order of names, and not in
/// capitals, so that a store that changes either is found out.
pub const FIELDS: [&str; 4] = ["field2", "field0", "field1", "field3"];

/// Runs a client's futures. `Copy` because every thread of a case takes one.
pub trait Executor: Copy + Send + Sync + 'static {
    /// Runs one to its end. For a store on event loops: makes a current-thread
    /// runtime with I/O and timers and blocks on the future; everything that a
    /// case does with a store's clients happens within one call.
    fn run<F: Future>(self, future: F) -> F::Output;
}

/// Runs futures that are ready when first polled: those of stores on threads.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "for stores on threads only")]
pub struct Ready;

impl Executor for Ready {
    fn run<F: Future>(self, future: F) -> F::Output {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("a store on threads must be ready when first polled"),
        }
    }
}

/// What insert does with a key that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "no single store does all of these")]
pub enum InsertExisting {
    /// Fails with ERROR and leaves the record.
    Refused,
    /// Puts the new record in the old one's place.
    Replaced,
    /// Writes the new fields and leaves the others, as an update does.
    Merged,
}

/// What bytes a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "no single store does all of these")]
pub enum Values {
    /// Any.
    Bytes,
    /// UTF-8; others are refused with BAD_REQUEST.
    Text,
    /// UTF-8 without NUL; others are refused with BAD_REQUEST.
    TextWithoutNul,
}

impl Values {
    fn takes(self, value: &[u8]) -> bool {
        let text = self == Values::Bytes || std::str::from_utf8(value).is_ok();
        text && (self != Values::TextWithoutNul || !value.contains(&0))
    }

    fn takes_all(self, fields: &Fields) -> bool {
        fields.values().all(|value| self.takes(value))
    }
}

/// What stores may do differently, each a fact of the store's own that its
/// details tell people. The default is what SQL and YCSB's paper expect.
#[derive(Debug, Clone, Copy)]
pub struct Differences {
    /// A scan begins with the first key that is not before the start key and
    /// goes on in the byte order of keys. Without it (redis, as YCSB lays it
    /// out: by hash) a scan is only held to bring back at most as many
    /// records as asked for, each one that was written, none twice.
    pub ordered_scan: bool,
    /// An update of a key that is not there is NOT_FOUND and writes nothing.
    /// Without it the update makes the record.
    pub update_missing_is_not_found: bool,
    /// A delete of a key that is not there is NOT_FOUND. Without it the delete
    /// may be OK, for the store does not look.
    pub delete_missing_is_not_found: bool,
    /// What insert does with a key that is there.
    pub insert_existing: InsertExisting,
    /// A record without any field can be inserted and is then there. Without
    /// it such an insert may do anything but break the client.
    pub empty_records: bool,
    /// A batch of inserts that fails has written nothing. Without it the
    /// records before the failure may be there, those after it are not. Tried
    /// only where an insert can be made to fail: [`InsertExisting::Refused`].
    pub atomic_batch: bool,
    /// What bytes a value may be.
    pub values: Values,
}

impl Differences {
    /// Whether this is what a delete of a key that is not there answers.
    fn deletes_nothing(self, outcome: &Outcome) -> bool {
        outcome.status == Status::NotFound || !self.delete_missing_is_not_found && *outcome == Outcome::OK
    }
}

impl Default for Differences {
    fn default() -> Self {
        Differences {
            ordered_scan: true,
            update_missing_is_not_found: true,
            delete_missing_is_not_found: true,
            insert_existing: InsertExisting::Refused,
            empty_records: true,
            atomic_batch: false,
            values: Values::Bytes,
        }
    }
}

/// A store under test.
pub struct Subject<S, E> {
    /// The store, empty; the suite prepares it.
    pub store: S,
    /// What runs its clients.
    pub executor: E,
    /// What it does differently.
    pub differences: Differences,
    /// What must live as long as the store: its folder, its server, a lock.
    /// Dropped after the store.
    #[allow(dead_code, reason = "held, not read")]
    pub keep: Box<dyn Any>,
}

impl<S: Store, E: Executor> Subject<S, E> {
    /// A subject that needs nothing kept.
    pub fn new(store: S, executor: E, differences: Differences) -> Self {
        Subject { store, executor, differences, keep: Box::new(()) }
    }

    /// Whether the store can scan; one that cannot says so in its
    /// capabilities and is then asked for no scan.
    pub fn scans(&self) -> bool {
        self.store.capabilities().contains(OperationKind::Scan)
    }

    /// The same, with something that must live as long.
    #[allow(dead_code, reason = "a store in memory keeps nothing")]
    pub fn keeping(self, keep: impl Any) -> Self {
        Subject { keep: Box::new(keep), ..self }
    }

    /// Prepares the store for a load and runs a case with one client, which
    /// is closed at the end.
    pub fn with_client<T>(&self, case: impl AsyncFnOnce(&mut Handle<S>) -> T) -> T {
        self.store.prepare(&schema(), Purpose::Load).unwrap();
        self.with_another_client(0, case)
    }

    /// Runs a case with one more client of a store that is prepared.
    pub fn with_another_client<T>(&self, number: usize, case: impl AsyncFnOnce(&mut Handle<S>) -> T) -> T {
        with_client_of(&self.store, self.executor, number, case)
    }
}

fn with_client_of<S: Store, E: Executor, T>(
    store: &S,
    executor: E,
    number: usize,
    case: impl AsyncFnOnce(&mut Handle<S>) -> T,
) -> T {
    executor.run(async {
        let local = store.local().unwrap();
        let client = store.connect(&local, number).await.unwrap();
        let mut handle = Handle { client, reply: Reply::new() };
        let result = case(&mut handle).await;
        assert_eq!(handle.client.close().await, Outcome::OK);
        result
    })
}

/// The shape of the suite's records.
pub fn schema() -> Schema {
    Schema { table: TABLE.into(), fields: FIELDS.map(String::from).into() }
}

/// A record as cases write and compare them: fields in any order.
pub type Fields = BTreeMap<String, Vec<u8>>;

/// Fields from pairs.
pub fn fields<const N: usize>(pairs: [(&str, &[u8]); N]) -> Fields {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
}

/// All four fields, with values that tell the key.
pub fn full(key: &str) -> Fields {
    FIELDS.iter().map(|name| ((*name).to_owned(), format!("{name} of {key}").into())).collect()
}

fn record(fields: &Fields) -> Record {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
}

fn selection(names: &[&str]) -> FieldSelection {
    let mut selection = FieldSelection::default();
    for name in names {
        selection.push(name);
    }
    selection
}

/// A client with the buffers that an operation needs.
pub struct Handle<S: Store> {
    /// The client itself.
    pub client: S::Client,
    reply: Reply,
}

impl<S: Store> Handle<S> {
    /// Inserts a record.
    pub async fn insert(&mut self, key: &str, fields: &Fields) -> Outcome {
        self.client.insert(TABLE, key, &record(fields)).await
    }

    /// Inserts a batch.
    pub async fn insert_batch(&mut self, records: &[(&str, Fields)]) -> Outcome {
        let records: Vec<_> =
            records.iter().map(|(key, fields)| ((*key).to_owned(), record(fields))).collect();
        self.client.insert_batch(TABLE, &records).await
    }

    /// Updates a record.
    pub async fn update(&mut self, key: &str, fields: &Fields) -> Outcome {
        self.client.update(TABLE, key, &record(fields)).await
    }

    /// Deletes a record.
    pub async fn delete(&mut self, key: &str) -> Outcome {
        self.client.delete(TABLE, key).await
    }

    /// Reads the fields named, or all if none is; `None` if there is no
    /// record. Any other failure fails the test.
    pub async fn read(&mut self, key: &str, names: &[&str]) -> Option<Fields> {
        self.reply.clear();
        let outcome = self.client.read(TABLE, key, &selection(names), &mut self.reply).await;
        let found = self.answer();
        match outcome.status {
            Status::NotFound => {
                assert!(found.is_empty(), "NOT_FOUND, and yet a record");
                None
            }
            _ => {
                assert_eq!(outcome, Outcome::OK, "read of {key:?}");
                assert_eq!(found.len(), 1, "read of {key:?}");
                found.into_iter().next()
            }
        }
    }

    /// Scans. Only for stores that can.
    pub async fn scan(&mut self, start: &str, count: u64, names: &[&str]) -> Vec<Fields> {
        self.reply.clear();
        let selection = selection(names);
        let outcome = self.client.scan(TABLE, start, count, &selection, &mut self.reply).await;
        assert_eq!(outcome, Outcome::OK, "scan from {start:?}");
        self.answer()
    }

    fn answer(&self) -> Vec<Fields> {
        let records = self.reply.records().iter();
        records
            .map(|record| {
                let all: Fields = record.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
                assert_eq!(all.len(), record.len(), "a field twice: {record:?}");
                all
            })
            .collect()
    }
}

/// Makes a test of each case, on the subjects that the function makes.
macro_rules! suite {
    ($subject:path) => {
        $crate::conformance::suite! { $subject:
            values_come_back_byte_for_byte,
            keys_may_be_any_text,
            a_read_brings_back_the_fields_asked_for,
            a_record_may_have_some_fields_only,
            an_update_leaves_the_other_fields,
            what_is_missing_is_not_found,
            an_update_of_a_missing_record,
            an_insert_of_a_key_that_is_there,
            a_deleted_record_is_gone,
            a_record_without_fields,
            a_scan_begins_at_its_key_and_stops_at_its_limit,
            a_scan_brings_back_the_fields_asked_for,
            a_batch_is_written,
            a_batch_that_fails_stops_there,
            what_one_client_wrote_the_next_reads,
            clients_do_not_lose_each_other_s_writes,
            any_sequence_of_operations_agrees_with_a_map,
        }
    };
    ($subject:path: $($case:ident),+ $(,)?) => {
        $(#[test]
        fn $case() {
            // A subject that cannot be had here is `None` and says why.
            let subject: Option<$crate::conformance::Subject<_, _>> = $subject().into();
            if let Some(subject) = subject {
                $crate::conformance::$case(&subject);
            }
        })+
    };
}
pub(crate) use suite;

/// Values of every awkward kind: quotes, NUL, line ends, format characters,
/// text beyond ASCII, bytes that are no text, nothing at all, and a MiB.
pub fn values_come_back_byte_for_byte<S: Store, E: Executor>(subject: &Subject<S, E>) {
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
        vec![b'x'; 1 << 20],
        (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect(),
    ];
    subject.with_client(async |client| {
        for (index, value) in values.iter().enumerate() {
            let key = format!("user{index}");
            let written = fields([("field1", value), ("field2", b"next"), ("field0", value)]);
            if !subject.differences.values.takes(value) {
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
            // And by update, over something else and over itself.
            let other = fields([("field1", b"other")]);
            assert_eq!(client.update(&key, &other).await, Outcome::OK);
            let back = fields([("field1", value)]);
            assert_eq!(client.update(&key, &back).await, Outcome::OK);
            assert_eq!(client.update(&key, &back).await, Outcome::OK);
            assert!(client.read(&key, &[]).await == Some(written), "update of value {index}");
        }
    });
}

/// Keys of every awkward kind are kept apart.
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
        for key in keys {
            assert_eq!(client.insert(key, &full(key)).await, Outcome::OK, "{key:?}");
        }
        for key in keys {
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

/// One field, several in any order, or all.
pub fn a_read_brings_back_the_fields_asked_for<S: Store, E: Executor>(subject: &Subject<S, E>) {
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

/// A field that was not written is not there, and can be written later.
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

/// Of one field, and of several.
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

/// Reads and deletes of keys that are not there, in an empty table and
/// beside a neighbour; deletes by [`Differences::delete_missing_is_not_found`].
pub fn what_is_missing_is_not_found<S: Store, E: Executor>(subject: &Subject<S, E>) {
    let differences = subject.differences;
    subject.with_client(async |client| {
        for _ in 0..2 {
            for missing in ["", "k", "key1", "kez"] {
                assert_eq!(client.read(missing, &[]).await, None);
                assert_eq!(client.read(missing, &["field1"]).await, None);
                assert!(differences.deletes_nothing(&client.delete(missing).await), "{missing:?}");
            }
            client.insert("key", &full("key")).await;
        }
        assert_eq!(client.read("key", &[]).await, Some(full("key")));
    });
}

/// Not found, or made, by [`Differences::update_missing_is_not_found`].
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

/// Refused, replaced or merged, by [`Differences::insert_existing`].
pub fn an_insert_of_a_key_that_is_there<S: Store, E: Executor>(subject: &Subject<S, E>) {
    let existing = subject.differences.insert_existing;
    subject.with_client(async |client| {
        assert_eq!(client.insert("k", &full("k")).await, Outcome::OK);
        let second = fields([("field1", b"second")]);
        let outcome = client.insert("k", &second).await;
        let (status, expected) = after_insert(existing, Some(&full("k")), &second);
        assert_eq!(outcome.status, status);
        assert_eq!(outcome.message.is_some(), !outcome.is_ok(), "a failure has words: {outcome:?}");
        assert_eq!(client.read("k", &[]).await, Some(expected));
    });
}

/// What an insert answers and leaves.
fn after_insert(existing: InsertExisting, old: Option<&Fields>, new: &Fields) -> (Status, Fields) {
    match (old, existing) {
        (None, _) | (_, InsertExisting::Replaced) => (Status::Ok, new.clone()),
        (Some(old), InsertExisting::Refused) => (Status::Error, old.clone()),
        (Some(old), InsertExisting::Merged) => {
            let mut both = old.clone();
            both.extend(new.clone());
            (Status::Ok, both)
        }
    }
}

/// Gone from reads and scans, and its key free again.
pub fn a_deleted_record_is_gone<S: Store, E: Executor>(subject: &Subject<S, E>) {
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
        // Nothing of the old record shows in a new one.
        let part = fields([("field1", b"again")]);
        assert_eq!(client.insert("b", &part).await, Outcome::OK);
        assert_eq!(client.read("b", &[]).await, Some(part));
    });
}

/// There, with no field, by [`Differences::empty_records`].
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
        // The client is none the worse for it.
        assert_eq!(client.insert("m", &full("m")).await, Outcome::OK);
        assert_eq!(client.read("m", &[]).await, Some(full("m")));
    });
}

/// Order, limits, and starts at a key, between two, before all, beyond all.
pub fn a_scan_begins_at_its_key_and_stops_at_its_limit<S: Store, E: Executor>(subject: &Subject<S, E>) {
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

/// Of every record alike, and nothing of records that lack them.
pub fn a_scan_brings_back_the_fields_asked_for<S: Store, E: Executor>(subject: &Subject<S, E>) {
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

/// Several records, one, and none.
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

/// In the middle, on a key that is there; see [`Differences::atomic_batch`].
pub fn a_batch_that_fails_stops_there<S: Store, E: Executor>(subject: &Subject<S, E>) {
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
        // The client is none the worse for it.
        assert_eq!(client.insert("d", &full("d")).await, Outcome::OK);
        assert!(client.insert_batch(&[("e", full("e"))]).await.is_ok());
        assert_eq!(client.read("e", &[]).await, Some(full("e")));
    });
}

/// A client that connects later, after the store was prepared for a run.
pub fn what_one_client_wrote_the_next_reads<S: Store, E: Executor>(subject: &Subject<S, E>) {
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

/// Several clients on threads of their own: inserts of own keys, updates of
/// own fields of shared records, deletes of which each succeeds once.
pub fn clients_do_not_lose_each_other_s_writes<S: Store, E: Executor>(subject: &Subject<S, E>) {
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
                            // No one else writes this field.
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

#[derive(Debug, Clone)]
enum Step {
    Read(String, Vec<&'static str>),
    Update(String, Fields),
    Insert(String, Fields),
    Batch(Vec<(String, Fields)>),
    Scan(String, u64, Vec<&'static str>),
    Delete(String),
}

/// Sequences of operations on few keys, so that they meet.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || prop::sample::select(&["a", "ab", "b", "'", "é", "日"][..]).prop_map(String::from);
    let names = || prop::sample::subsequence(&FIELDS[..], 0..=4);
    let value = || {
        prop_oneof![
            Just(Vec::new()),
            ".{0,12}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..12),
        ]
    };
    let some = move || {
        (prop::sample::subsequence(&FIELDS[..], 1..=4), prop::collection::vec(value(), 4))
            .prop_map(|(names, values)| names.into_iter().map(String::from).zip(values).collect::<Fields>())
    };
    let step = prop_oneof![
        (key(), names()).prop_map(|(k, n)| Step::Read(k, n)),
        (key(), some()).prop_map(|(k, f)| Step::Update(k, f)),
        (key(), some()).prop_map(|(k, f)| Step::Insert(k, f)),
        prop::collection::vec((key(), some()), 0..4).prop_map(Step::Batch),
        (key(), 0..8u64, names()).prop_map(|(k, c, n)| Step::Scan(k, c, n)),
        key().prop_map(Step::Delete),
    ];
    prop::collection::vec(step, 0..40)
}

/// Random sequences of all verbs, each answer compared with a `BTreeMap`'s.
pub fn any_sequence_of_operations_agrees_with_a_map<S: Store, E: Executor>(subject: &Subject<S, E>) {
    subject.store.prepare(&schema(), Purpose::Load).unwrap();
    // No file of failures: the sequences come anew each time and are shrunk.
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&steps(), |steps| {
        subject.with_another_client(0, async |client| {
            for key in ["a", "ab", "b", "'", "é", "日"] {
                client.delete(key).await;
            }
            let mut model = BTreeMap::new();
            for step in steps {
                if matches!(step, Step::Scan(..)) && !subject.scans() {
                    continue;
                }
                agree(client, &mut model, &step, subject.differences).await?;
            }
            Ok(())
        })
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

fn selected(fields: &Fields, names: &[&str]) -> Fields {
    let wanted = fields.iter().filter(|(n, _)| names.is_empty() || names.contains(&n.as_str()));
    wanted.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A step with a value that the store does not take changes nothing, but for
/// the records of a batch before it.
async fn refuse<S: Store>(
    client: &mut Handle<S>,
    model: &mut BTreeMap<String, Fields>,
    step: &Step,
    differences: Differences,
) -> Result<(), TestCaseError> {
    let outcome = match step {
        Step::Update(key, fields) => {
            let outcome = client.update(key, fields).await;
            // A store may look for the record first.
            if outcome.status == Status::NotFound && !model.contains_key(key) {
                return Ok(());
            }
            outcome
        }
        Step::Insert(key, fields) => {
            let outcome = client.insert(key, fields).await;
            // Or see that its key is taken.
            if outcome.status == Status::Error && model.contains_key(key) {
                return Ok(());
            }
            outcome
        }
        Step::Batch(records) => {
            let batch: Vec<_> = records.iter().map(|(k, f)| (k.as_str(), f.clone())).collect();
            let outcome = client.insert_batch(&batch).await;
            prop_assert!(!outcome.is_ok(), "{:?}", step);
            for (key, fields) in records {
                if differences.atomic_batch || !differences.values.takes_all(fields) {
                    break;
                }
                let (status, after) = after_insert(differences.insert_existing, model.get(key), fields);
                model.insert(key.clone(), after);
                if status != Status::Ok {
                    break;
                }
            }
            return Ok(());
        }
        Step::Read(..) | Step::Scan(..) | Step::Delete(_) => return Ok(()),
    };
    prop_assert_eq!(outcome.status, Status::BadRequest, "{:?}", step);
    Ok(())
}

async fn agree<S: Store>(
    client: &mut Handle<S>,
    model: &mut BTreeMap<String, Fields>,
    step: &Step,
    differences: Differences,
) -> Result<(), TestCaseError> {
    let refused = match step {
        Step::Update(_, fields) | Step::Insert(_, fields) => !differences.values.takes_all(fields),
        Step::Batch(records) => records.iter().any(|(_, fields)| !differences.values.takes_all(fields)),
        Step::Read(..) | Step::Scan(..) | Step::Delete(_) => false,
    };
    if refused {
        return refuse(client, model, step, differences).await;
    }
    match step {
        Step::Read(key, names) => {
            // A store may not tell a record without the fields asked for from none.
            let expected = model.get(key).map(|fields| selected(fields, names));
            let found = client.read(key, names).await;
            if expected.as_ref().is_some_and(Fields::is_empty) && !differences.empty_records {
                prop_assert!(found.is_none_or(|fields| fields.is_empty()));
            } else {
                prop_assert_eq!(found, expected, "{:?}", step);
            }
        }
        Step::Update(key, change) => {
            let outcome = client.update(key, change).await;
            if !model.contains_key(key) && differences.update_missing_is_not_found {
                prop_assert_eq!(outcome.status, Status::NotFound, "{:?}", step);
            } else {
                prop_assert_eq!(outcome, Outcome::OK, "{:?}", step);
                model.entry(key.clone()).or_default().extend(change.clone());
            }
        }
        Step::Insert(key, fields) => {
            let outcome = client.insert(key, fields).await;
            let (status, after) = after_insert(differences.insert_existing, model.get(key), fields);
            prop_assert_eq!(outcome.status, status, "{:?}", step);
            model.insert(key.clone(), after);
        }
        Step::Batch(records) => {
            let mut after = model.clone();
            let mut expected = Status::Ok;
            for (key, fields) in records {
                let (status, fields) = after_insert(differences.insert_existing, after.get(key), fields);
                after.insert(key.clone(), fields);
                expected = status;
                if expected != Status::Ok {
                    break;
                }
            }
            let batch: Vec<_> = records.iter().map(|(k, f)| (k.as_str(), f.clone())).collect();
            let outcome = client.insert_batch(&batch).await;
            prop_assert_eq!(outcome.is_ok(), expected.is_ok(), "{:?}", step);
            if expected.is_ok() || !differences.atomic_batch {
                *model = after;
            }
        }
        Step::Scan(start, count, names) => {
            let found = client.scan(start, *count, names).await;
            let limit = *count as usize;
            if differences.ordered_scan {
                let expected: Vec<_> = model
                    .range(start.clone()..)
                    .take(limit)
                    .map(|(_, fields)| selected(fields, names))
                    .collect();
                prop_assert_eq!(found, expected, "{:?}", step);
            } else {
                prop_assert!(found.len() <= limit.min(model.len()), "{:?}", step);
                for fields in found {
                    let known = model.values().any(|other| selected(other, names) == fields);
                    prop_assert!(known, "{:?} found {:?}", step, fields);
                }
            }
        }
        Step::Delete(key) => {
            let outcome = client.delete(key).await;
            match model.remove(key) {
                Some(_) => prop_assert_eq!(outcome, Outcome::OK, "{:?}", step),
                None => prop_assert!(differences.deletes_nothing(&outcome), "{:?}: {:?}", step, outcome),
            }
        }
    }
    Ok(())
}
