//! No acknowledgement, and no read of acknowledged data, leaves the server before the data is on
//! disk. The test records the server's system calls with strace: each reply must follow an `fsync`
//! of the log records that it depends on.
//!
//! A kill cannot show this, because the page cache survives it. With `--durability interval`
//! replies do not wait, and the same analysis must detect that.
//!
//! `cargo xtask test` sets the path of strace in the environment; without it the test is ignored.

use crate::support::Process;
use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};
use yesquel::{Address, SocketOptions, Store};
use yesquel_engine::LogRecord;
use yesquel_wire::{
    Answer, CellValue, Cells, Decision, Reply, TransactionOutcome, WriteOperation,
    frame::Inbox,
    greeting::{Hello, Welcome},
};

const COMMITS: u64 = 300;
/// Enough for several log files and checkpoints.
const CHECKPOINT_EVERY: &str = "64K";
const CALLS: &str = "openat,read,recvfrom,write,writev,pwrite64,sendto,sendmsg,fsync,fdatasync";

/// An instant of the trace, in order.
type Moment = usize;

/// A completed system call.
#[derive(Debug, PartialEq)]
struct Call {
    name: String,
    /// The file, or `socket:[…]`.
    of: String,
    /// Bytes read or written.
    bytes: Vec<u8>,
    /// Offset in the file.
    place: usize,
    /// Whether it created its file.
    creates: bool,
    began: Moment,
    ended: Moment,
}

/// Reads `text` up to a terminator; returns the rest too.
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

/// Returns the file of a descriptor such as `7</data/log-1>`.
fn file(text: &str) -> String {
    let Some((_, path)) = text.split_once('<') else { return String::new() };
    String::from_utf8(unescape(path, '>').0).unwrap()
}

impl Call {
    /// Parses a call; `text` is its form in strace without interruptions.
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
        // The call may have transferred less than requested.
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

/// Returns the successful calls in the order of their ends. A line is a call, its beginning or its
/// end, with calls of other threads in between.
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

/// Instants at which log records became durable.
#[derive(Debug, Default)]
struct Log {
    /// By commit timestamp, which is unique.
    commits: HashMap<u64, Option<Moment>>,
    /// By value, unique per transaction.
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

    /// Parses a log file from the bytes written to it.
    fn read(&mut self, calls: &[Call], file: &str) {
        self.files += 1;
        let (folder, _) = file.rsplit_once('/').unwrap();
        let synced = |of: &str, after: Moment| {
            let syncs = calls.iter().filter(|call| call.syncs() && call.of == of && call.began > after);
            syncs.map(|call| call.ended).min()
        };
        // A file is durable only once its directory entry is.
        let made = calls.iter().find(|call| call.creates && call.of == file).unwrap();
        let named = synced(folder, made.ended);
        let (mut bytes, mut at) = (Vec::new(), 64);
        for call in calls.iter().filter(|call| call.writes() && call.of == file) {
            // Preallocated zeros are overwritten.
            bytes.truncate(call.place);
            assert_eq!(bytes.len(), call.place);
            bytes.extend(&call.bytes);
            let durable = synced(file, call.ended).and_then(|synced| Some(synced.max(named?)));
            let is_batch = |rest: &&[u8]| rest.len() >= 48 && rest[..4] != [0; 4];
            while let Some(batch) = bytes.get(at..).filter(is_batch) {
                assert_eq!(batch[..4], *b"YQLC");
                let length = u32::from_le_bytes(batch[8..12].try_into().unwrap()) as usize;
                let Some(mut records) = batch.get(48..48 + length) else { break };
                while let Some((length, rest)) = records.split_first_chunk() {
                    let (record, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
                    self.note(&LogRecord::decode(record).unwrap(), durable);
                    records = rest;
                }
                at += 48 + length;
            }
        }
        assert!(bytes[at..].iter().all(|byte| *byte == 0), "{file} ends in the midst of a batch");
    }

    fn note(&mut self, record: &LogRecord<'_>, durable: Option<Moment>) {
        let LogRecord::Commit { at, operations, .. } = record else { return };
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
    /// Instant of the first byte of the incomplete message.
    since: Option<Moment>,
}

impl Stream {
    /// Returns the messages that these bytes complete, with the instants of their first bytes.
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

/// Findings of a trace.
#[derive(Debug, Default)]
struct Found {
    /// Replies that acknowledge a commit, and how many left too early.
    acknowledged: usize,
    acknowledged_early: usize,
    /// Values in replies, and how many left too early.
    read: usize,
    read_early: usize,
    /// Values requested before they were durable: their replies had to wait.
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
        // Signals arrive on a socket too.
        if !call.writes() || !received.contains_key(&*call.of) {
            continue;
        }
        let stream = sent.entry(&call.of).or_default();
        let (began, replies) =
            stream.take(call, |bytes| Welcome::decode(bytes).unwrap().map(|(_, length)| length));
        for (number, reply) in replies {
            let is_early = |durable: Option<Moment>| durable.is_none_or(|durable| durable > began);
            match Reply::decode(&reply).unwrap() {
                Reply::Committed(at) | Reply::Outcome(TransactionOutcome::Decided(Decision::Commit(at))) => {
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

/// One client commits and another reads its writes, as fast as possible.
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

/// Analyses the trace of a server with this durability.
fn traced(strace: &OsString, durability: &[&str]) -> Found {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let mut command = Command::new(strace);
    // -D: the server is our child; strace is detached and ends with it.
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
fn no_reply_precedes_the_fsync_of_its_data() {
    let Some(strace) = std::env::var_os("YESQUEL_TEST_STRACE") else {
        panic!("YESQUEL_TEST_STRACE is not set: 'cargo xtask test' installs strace and sets it");
    };
    let found = traced(&strace, &["--durability", "sync"]);
    assert_eq!((found.acknowledged_early, found.read_early), (0, 0));
    // With an interval, all records may be written at once and into one file.
    assert!(found.files > 1);
    // Some replies had to wait.
    assert!(found.waited > 0);
    let found = traced(&strace, &["--durability", "interval", "--sync-interval", "50"]);
    assert!(found.acknowledged_early > 0 && found.read_early > 0);
}

#[test]
fn traces_are_parsed() {
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
        // It started before the write ended, so it may not cover it.
        call("fdatasync", "/d", b"", (4, 11)),
    ];
    assert_eq!(calls(trace), expected);
}
