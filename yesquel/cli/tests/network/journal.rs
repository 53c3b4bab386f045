//! Files in which clients record their transactions, before the commit and after it: a client may
//! be killed at any time.

use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::HashMap,
    fmt::Write as _,
    fs::File,
    io::Write as _,
    path::Path,
    sync::{Mutex, PoisonError},
};
use yesquel_histories::{ListOperation, RecordedOutcome, RecordedTransaction};

/// Threads of a client, each of which is a process of the history.
pub(crate) const THREADS: u64 = 5;

/// Nanoseconds of a clock that all processes of the machine share and that is never set.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The file of a client.
pub(crate) struct Journal(Mutex<File>);

/// An open transaction of a journal.
pub(crate) struct JournalEntry {
    process: u64,
    begun: u64,
}

impl Journal {
    pub(crate) fn create(path: &Path) -> std::io::Result<Journal> {
        Ok(Journal(Mutex::new(File::create(path)?)))
    }

    /// Writes a line at once, so that it outlives the process.
    fn write(&self, line: &str) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).unwrap();
    }

    /// Records what a transaction has done, before its commit.
    pub(crate) fn try_commit(&self, process: u64, begun: u64, operations: &[ListOperation]) -> JournalEntry {
        let mut line = format!("try {process} {begun}");
        for operation in operations {
            match operation {
                ListOperation::Append { key, element } => write!(line, " a,{key},{element}").unwrap(),
                ListOperation::Read { key, list } => {
                    write!(line, " r,{key}").unwrap();
                    list.iter().flatten().for_each(|element| write!(line, ",{element}").unwrap());
                }
            }
        }
        line.push('\n');
        self.write(&line);
        JournalEntry { process, begun }
    }

    /// Records the outcome.
    pub(crate) fn end(&self, entry: JournalEntry, outcome: RecordedOutcome) {
        let word = match outcome {
            RecordedOutcome::Committed => "committed",
            RecordedOutcome::Aborted => "aborted",
            RecordedOutcome::Unknown => "unknown",
        };
        self.write(&format!("end {} {} {} {word}\n", entry.process, entry.begun, now()));
    }
}

/// Parses the transactions of a journal. A last line may be incomplete.
pub(crate) fn read(path: &Path) -> Vec<RecordedTransaction> {
    let text = std::fs::read_to_string(path).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut transactions: Vec<RecordedTransaction> = Vec::new();
    let mut open: HashMap<u64, usize> = HashMap::new();
    let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("{}: '{word}'", path.display()));
    for line in whole.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["try", process, begun, ref operations @ ..] => {
                let (process, begun) = (number(process), number(begun));
                let operations: Vec<_> = operations.iter().map(|word| operation(word, number)).collect();
                let transaction = RecordedTransaction::committed(process, begun, now(), operations);
                // Until its end is found.
                open.insert(process, transactions.len());
                transactions.push(transaction.with_outcome(RecordedOutcome::Unknown));
            }
            ["end", process, _, completed, outcome] => {
                let Some(at) = open.remove(&number(process)) else { panic!("{}: {line}", path.display()) };
                transactions[at].completed = number(completed);
                transactions[at].outcome = match outcome {
                    "committed" => RecordedOutcome::Committed,
                    "aborted" => RecordedOutcome::Aborted,
                    _ => RecordedOutcome::Unknown,
                };
            }
            _ => panic!("{}: {line}", path.display()),
        }
    }
    transactions
}

fn operation(word: &str, number: impl Fn(&str) -> u64) -> ListOperation {
    let mut parts = word.split(',');
    let (kind, key) = (parts.next(), number(parts.next().unwrap_or_default()));
    let mut rest = parts.map(number);
    match kind {
        Some("a") => ListOperation::append(key, rest.next().unwrap_or_default()),
        _ => ListOperation::read(key, rest.collect::<Vec<_>>()),
    }
}
