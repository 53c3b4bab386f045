//! No acknowledgement, and no read of what was acknowledged, leaves a server
//! before it is on disk, seen from outside: the server's system calls are
//! written down by strace, and in what was written each reply must come after
//! an `fsync` of the log that holds what it depends on.
//!
//! A killed process leaves its files as they were in memory, so that a kill
//! does not show this. With `--durability interval` a reply does not wait, and
//! the same look must find that.
//!
//! `cargo xtask test` says where strace is, in the environment; without it
//! this test says that it is skipped.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

mod support;

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};
use support::Process;
use yesquel::{Address, SocketOptions, Store};
use yesquel_engine::Record;
use yesquel_wire::{
    Answer, CellValue, Cells, Decision, Outcome, Reply, WriteOperation,
    frame::Inbox,
    greeting::{Hello, Welcome},
};

const COMMITS: u64 = 300;
/// Some of the log's files, and checkpoints meanwhile.
const CHECKPOINT_EVERY: &str = "64K";
const CALLS: &str = "openat,read,recvfrom,write,writev,pwrite64,sendto,sendmsg,fsync,fdatasync";

/// A moment of the trace. What has a smaller one was seen first.
type Moment = usize;

/// A system call that has ended.
#[derive(Debug, PartialEq)]
struct Call {
    name: String,
    /// The file, or `socket:[…]`.
    of: String,
    /// What was read or written.
    bytes: Vec<u8>,
    /// Where in the file.
    place: usize,
    /// Whether it made its file.
    creates: bool,
    began: Moment,
    ended: Moment,
}

/// Reads `text` up to a byte that ends it; what is behind.
fn unescape(text: &str, end: char) -> (Vec<u8>, &str) {
    let mut bytes = Vec::new();
    let mut rest = text;
    loop {
        if let Some(hex) = rest.strip_prefix("\\x") {
            bytes.push(u8::from_str_radix(&hex[..2], 16).unwrap());
            rest = &hex[2..];
        } else if let Some(behind) = rest.strip_prefix(end) {
            return (bytes, behind);
        } else {
            let next = rest.chars().next().unwrap();
            bytes.extend(next.to_string().as_bytes());
            rest = &rest[next.len_utf8()..];
        }
    }
}

/// What a descriptor such as `7</data/log-1>` stands for.
fn file(text: &str) -> String {
    let Some((_, path)) = text.split_once('<') else { return String::new() };
    String::from_utf8(unescape(path, '>').0).unwrap()
}

impl Call {
    /// `text` is the call as strace writes one that nothing came between.
    fn parse(text: &str, began: Moment, ended: Moment) -> Option<Call> {
        let (name, arguments) = text.split_once('(')?;
        let (arguments, result) = arguments.rsplit_once(" = ")?;
        let count: usize = result.split(['<', ' ']).next()?.parse().ok()?;
        let opens = name == "openat";
        let of = file(if opens { result } else { arguments });
        let (mut bytes, mut rest) = (Vec::new(), arguments);
        while let Some((_, string)) = rest.split_once('"').filter(|_| !opens) {
            let (some, behind) = unescape(string, '"');
            bytes.extend(some);
            rest = behind;
        }
        // Less than was given may have been taken.
        bytes.truncate(count);
        let creates = opens && arguments.contains("O_CREAT");
        let place = arguments.rsplit_once(", ").filter(|_| name == "pwrite64");
        let place = place.map_or(0, |(_, place)| place.trim_end_matches([')', ' ']).parse().unwrap());
        Some(Call { name: name.to_owned(), of, bytes, place, creates, began, ended })
    }

    fn writes(&self) -> bool {
        matches!(&*self.name, "write" | "writev" | "pwrite64" | "sendto" | "sendmsg")
    }

    fn reads(&self) -> bool {
        matches!(&*self.name, "read" | "recvfrom")
    }

    fn syncs(&self) -> bool {
        matches!(&*self.name, "fsync" | "fdatasync")
    }

    fn is_of_socket(&self) -> bool {
        self.of.starts_with("socket:")
    }
}

/// The calls that have succeeded, in the order in which they ended. A line is
/// a call, or its beginning, or its end: what another thread did stands
/// between.
fn calls(trace: &str) -> Vec<Call> {
    let mut begun: HashMap<&str, (String, Moment)> = HashMap::new();
    let mut calls = Vec::new();
    for (number, line) in trace.lines().enumerate() {
        let (thread, text) = line.split_once(' ').unwrap();
        let (text, now) = (text.trim_start(), 2 * number);
        if let Some(text) = text.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, (text.to_owned(), now));
        } else if let Some(end) = text.strip_prefix("<... ") {
            let (_, end) = end.split_once(" resumed>").unwrap();
            if let Some((text, began)) = begun.remove(thread) {
                calls.extend(Call::parse(&(text + end), began, now + 1));
            }
        } else {
            calls.extend(Call::parse(text, now, now + 1));
        }
    }
    calls
}

/// When what the log holds came to be on disk.
#[derive(Debug, Default)]
struct Log {
    /// By the time of the commit, which is one of its own.
    commits: HashMap<u64, Option<Moment>>,
    /// By value; no two transactions write the same.
    values: HashMap<Vec<u8>, Option<Moment>>,
    files: usize,
}

impl Log {
    fn of(calls: &[Call]) -> Log {
        let mut log = Log::default();
        let is_log = |call: &&Call| call.of.rsplit('/').next().unwrap().starts_with("log-");
        let mut files: Vec<&str> = calls.iter().filter(is_log).map(|call| &*call.of).collect();
        files.sort_unstable();
        files.dedup();
        for file in files {
            log.read(calls, file);
        }
        log
    }

    /// Reads a file of the log from what was written to it.
    fn read(&mut self, calls: &[Call], file: &str) {
        self.files += 1;
        let (folder, _) = file.rsplit_once('/').unwrap();
        let synced = |of: &str, after: Moment| {
            let syncs = calls.iter().filter(|call| call.syncs() && call.of == of && call.began > after);
            syncs.map(|call| call.ended).min()
        };
        // A file that nobody finds is not on disk.
        let made = calls.iter().find(|call| call.creates && call.of == file).unwrap();
        let named = synced(folder, made.ended);
        let (mut bytes, mut at) = (Vec::new(), 24);
        for call in calls.iter().filter(|call| call.writes() && call.of == file) {
            // Zeros that were written ahead are written over.
            bytes.truncate(call.place);
            assert_eq!(bytes.len(), call.place);
            bytes.extend(&call.bytes);
            let durable = synced(file, call.ended).and_then(|synced| Some(synced.max(named?)));
            let is_batch = |rest: &&[u8]| rest.len() >= 32 && rest[..4] != [0; 4];
            while let Some(batch) = bytes.get(at..).filter(is_batch) {
                assert_eq!(batch[..4], *b"YQLB");
                let length = u32::from_le_bytes(batch[8..12].try_into().unwrap()) as usize;
                let Some(mut records) = batch.get(32..32 + length) else { break };
                while let Some((length, rest)) = records.split_first_chunk() {
                    let (record, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
                    self.note(&Record::decode(record).unwrap(), durable);
                    records = rest;
                }
                at += 32 + length;
            }
        }
        assert!(bytes[at..].iter().all(|byte| *byte == 0), "{file} ends in the midst of a batch");
    }

    fn note(&mut self, record: &Record<'_>, durable: Option<Moment>) {
        let Record::Commit { at, operations, .. } = record else { return };
        assert_eq!(self.commits.insert(at.0, durable), None);
        for operation in operations.iter() {
            if let WriteOperation::Put { value, .. } = operation.write {
                self.values.insert(value.to_vec(), durable);
            }
        }
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Stream {
    inbox: Inbox,
    is_greeted: bool,
    /// When the first byte came that no message was made of yet.
    since: Option<Moment>,
}

impl Stream {
    /// The messages that these bytes end, and when their first byte was about
    /// to go.
    fn take(
        &mut self,
        call: &Call,
        greeting: impl Fn(&[u8]) -> Option<usize>,
    ) -> (Moment, Vec<(u64, Vec<u8>)>) {
        let since = *self.since.get_or_insert(call.began);
        self.inbox.feed(&call.bytes);
        if !self.is_greeted
            && let Some(length) = greeting(self.inbox.unread())
        {
            self.inbox.skip(length);
            self.is_greeted = true;
        }
        let mut messages = Vec::new();
        if self.is_greeted {
            self.inbox.take(|number, bytes| messages.push((number, bytes.to_vec()))).unwrap();
        }
        if self.inbox.held() == 0 {
            self.since = None;
        }
        (since, messages)
    }
}

/// What a look through a trace has found.
#[derive(Debug, Default)]
struct Found {
    /// Replies that acknowledge a commit, and those of them that left too early.
    acknowledged: usize,
    acknowledged_early: usize,
    /// Values in replies, and those of them that left too early.
    read: usize,
    read_early: usize,
    /// Values that had been asked for before they were on disk: their replies
    /// had to wait.
    waited: usize,
    files: usize,
}

fn look(trace: &str) -> Found {
    let calls = calls(trace);
    let log = Log::of(&calls);
    let mut found = Found { files: log.files, ..Found::default() };
    let (mut sent, mut received) = (HashMap::<&str, Stream>::new(), HashMap::<&str, Stream>::new());
    let mut asked: HashMap<(&str, u64), Moment> = HashMap::new();
    for call in calls.iter().filter(|call| call.is_of_socket()) {
        if call.reads() && (received.contains_key(&*call.of) || call.bytes.starts_with(b"YESQUEL")) {
            let stream = received.entry(&call.of).or_default();
            let (_, requests) =
                stream.take(call, |bytes| Hello::decode(bytes).unwrap().map(|(_, length)| length));
            asked.extend(requests.into_iter().map(|(number, _)| ((&*call.of, number), call.ended)));
        }
        // Signals come by a socket, too.
        if !call.writes() || !received.contains_key(&*call.of) {
            continue;
        }
        let stream = sent.entry(&call.of).or_default();
        let (began, replies) =
            stream.take(call, |bytes| Welcome::decode(bytes).unwrap().map(|(_, length)| length));
        for (number, reply) in replies {
            let is_early = |durable: Option<Moment>| durable.is_none_or(|durable| durable > began);
            match Reply::decode(&reply).unwrap() {
                Reply::Committed(at) | Reply::Outcome(Outcome::Decided(Decision::Commit(at))) => {
                    found.acknowledged += 1;
                    found.acknowledged_early +=
                        usize::from(is_early(log.commits.get(&at.0).copied().flatten()));
                }
                Reply::Answers { answers, .. } => {
                    for value in answers.iter().flat_map(values).filter(|value| value.starts_with(VALUE)) {
                        let durable = log.values.get(&value).copied().flatten();
                        found.read += 1;
                        found.read_early += usize::from(is_early(durable));
                        let asked = asked[&(&*call.of, number)];
                        found.waited += usize::from(durable.is_some_and(|durable| durable > asked));
                    }
                }
                _ => {}
            }
        }
    }
    found
}

fn values(answer: Answer<'_>) -> Vec<Vec<u8>> {
    let of = |cells: &Cells<'_>| -> Vec<Vec<u8>> {
        let values = cells.iter().filter_map(|(_, value)| match value {
            CellValue::Bytes(bytes) => Some(bytes.to_vec()),
            CellValue::Length(_) | CellValue::Large(_) => None,
        });
        values.collect()
    };
    match answer {
        Answer::Value(value) => vec![value.to_vec()],
        Answer::Cells(cells) => of(&cells),
        Answer::Followed(followed) => {
            let mut all = of(&followed.cells);
            all.extend(followed.iter().flat_map(values));
            all
        }
        Answer::Differs(value, cells) => {
            let mut all = cells.iter().flat_map(of).collect::<Vec<_>>();
            all.push(value.to_vec());
            all
        }
        Answer::Absent | Answer::Same | Answer::Moved(_) | Answer::Large(_) => Vec::new(),
    }
}

const VALUE: &[u8] = b"value ";

/// One client commits, another one reads what it writes, as fast as they can.
fn work(socket: &Path) {
    let connect = || Store::connect(&Address::Unix(socket.to_owned()), SocketOptions::default()).unwrap();
    let database = connect().create_database("traced").unwrap();
    let map = database.map("map").unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let database = connect().database("traced").unwrap();
            while !is_over.load(SeqCst) {
                database.get(map, b"key").unwrap();
            }
        });
        for number in 0..COMMITS {
            let value = [VALUE, number.to_string().as_bytes(), &[b'.'; 500]].concat();
            database.put(map, b"key", &value).unwrap();
        }
        is_over.store(true, SeqCst);
    });
}

/// What is found in the trace of a server of this durability.
fn traced(strace: &OsString, durability: &[&str]) -> Found {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let mut command = Command::new(strace);
    // -D: the server is our child, and not strace, which ends with it.
    command
        .args(["-D", "-f", "-y", "-xx", "-s", "1000000", "-e", "signal=none", "-e"])
        .arg(format!("trace={CALLS}"));
    command.arg("-o").arg(path("trace")).arg(env!("CARGO_BIN_EXE_yesquel")).arg("serve");
    command.arg("--data").arg(path("data")).arg("--listen").arg(path("socket"));
    command.args(["--checkpoint-every", CHECKPOINT_EVERY]).args(durability);
    let mut server = Process::spawn(&mut command);
    server.wait_until_ready();
    work(&path("socket"));
    server.terminate();
    let found = look(&fs::read_to_string(path("trace")).unwrap());
    println!("{durability:?}: {found:?}");
    assert!(found.acknowledged as u64 >= COMMITS && found.read > 0);
    found
}

#[test]
#[ignore = "needs YESQUEL_TEST_STRACE"]
fn nothing_is_said_before_it_is_on_disk() {
    let Some(strace) = std::env::var_os("YESQUEL_TEST_STRACE") else {
        panic!("YESQUEL_TEST_STRACE is not set: 'cargo xtask test' installs strace and sets it");
    };
    let found = traced(&strace, &["--durability", "sync"]);
    assert_eq!((found.acknowledged_early, found.read_early), (0, 0));
    // What is written at intervals may all be written at once, into one file.
    assert!(found.files > 1);
    // There was something to wait for.
    assert!(found.waited > 0);
    let found = traced(&strace, &["--durability", "interval", "--sync-interval", "50"]);
    assert!(found.acknowledged_early > 0 && found.read_early > 0);
}

#[test]
fn a_trace_is_read_as_it_is_written() {
    let trace = "\
        10 openat(AT_FDCWD<\\x2f>, \"\\x64\", O_WRONLY|O_CREAT|O_CLOEXEC, 0666) = 7<\\x2f\\x64>\n\
        11 write(7<\\x2f\\x64>, \"\\x61\\x22\\x62\", 3 <unfinished ...>\n\
        10 fdatasync(7<\\x2f\\x64> <unfinished ...>\n\
        11 <... write resumed>)              = 2\n\
        11 writev(8<\\x65>, [{iov_base=\"\\x61\", iov_len=1}, {iov_base=\"\\x62\", iov_len=1}], 2) = 2\n\
        10 <... fdatasync resumed>)          = 0\n\
        10 recvfrom(3<\\x65>, 0x7ffc, 1024, MSG_DONTWAIT, NULL, NULL) = -1 EAGAIN (Not now)\n\
        11 +++ exited with 0 +++\n";
    let call = |name: &str, of: &str, bytes: &[u8], moments: (Moment, Moment)| Call {
        name: name.to_owned(),
        of: of.to_owned(),
        bytes: bytes.to_vec(),
        place: 0,
        creates: name == "openat",
        began: moments.0,
        ended: moments.1,
    };
    let expected = [
        call("openat", "/d", b"", (0, 1)),
        call("write", "/d", b"a\"", (2, 7)),
        call("writev", "e", b"ab", (8, 9)),
        // It began before the write had ended, and says nothing of it.
        call("fdatasync", "/d", b"", (4, 11)),
    ];
    assert_eq!(calls(trace), expected);
}
