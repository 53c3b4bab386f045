//! YCSB's BasicDB: prints each operation and stores nothing, to show what a workload
//! does.

use crate::StoreInfo;
use serval_model::{
    Client, Execution, FieldSelection, OperationKind, Outcome, Record, Reply, Store, StoreError,
    properties::{Faults, Kind, Properties, Property, PropertyTable, Reader},
};
use serval_wrappers::delay::{Delay, SplitMix};
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    sync::{Arc, Mutex, PoisonError},
};

const VERBOSE: Property = Property::ycsb(
    "basicdb.verbose",
    Kind::Flag,
    "Whether every operation is printed on standard output, and the properties at the start.",
)
.default("true");
const DELAY: Property = Property::ycsb(
    "basicdb.simulatedelay",
    Kind::MILLISECONDS,
    "Simulated duration of an operation: a sleep before it.",
)
.default("0")
.unit("ms");
const RANDOMIZE: Property = Property::ycsb(
    "basicdb.randomizedelay",
    Kind::Flag,
    "Whether the delay is uniform from 0 to basicdb.simulatedelay, instead of constant.",
)
.default("true");
const COUNT: Property = Property::ycsb(
    "basicdb.count",
    Kind::Flag,
    "Whether distinct operations are counted and the counts printed at the end: for example, how many \
     different records a workload reads. Needs at least 8 bytes of memory per distinct operation.",
)
.default("false");

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "basic",
    aliases: &[
        "basicts",
        "site.ycsb.BasicDB",
        "com.yahoo.ycsb.BasicDB",
        "site.ycsb.BasicTSDB",
        "com.yahoo.ycsb.BasicTSDB",
    ],
    summary: "Does nothing and prints its operations, as YCSB's BasicDB",
    details: "Every verb prints its arguments and returns OK; reads and scans return no record. A client \
              is a thread. To measure the client itself use noop.",
    time_series: true,
    keeps_records: false,
    batches: false,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable { heading: "basic", properties: &[&VERBOSE, &DELAY, &RANDOMIZE, &COUNT] },
};

/// Verbs that are counted, in the order of YCSB's output.
const COUNTED: [(OperationKind, &str); 5] = [
    (OperationKind::Read, "READS"),
    (OperationKind::Scan, "SCANS"),
    (OperationKind::Update, "UPDATES"),
    (OperationKind::Insert, "INSERTS"),
    (OperationKind::Delete, "DELETES"),
];

/// Hashes of the distinct operations, by verb.
type DistinctOperations = Arc<[Mutex<HashSet<u64>>; 5]>;

/// The store.
#[derive(Debug)]
pub struct Basic {
    verbose: bool,
    delay: Delay,
    seen: Option<DistinctOperations>,
    settings: Vec<String>,
}

impl Basic {
    /// Reads the properties.
    pub fn open(properties: &Properties) -> Result<Basic, Faults> {
        let mut reader = Reader::new(properties);
        let (verbose, longest) = (reader.flag(&VERBOSE), reader.duration(&DELAY));
        let random = reader.flag(&RANDOMIZE);
        let count = reader.flag(&COUNT);
        reader.finish()?;
        let delay = if random {
            Delay { mean: longest / 2, spread: "uniform" }
        } else {
            Delay { mean: longest, spread: "constant" }
        };
        let settings = properties.iter().map(|(name, setting)| format!("{name:?}={:?}", setting.value));
        Ok(Basic { verbose, delay, seen: count.then(Arc::default), settings: settings.collect() })
    }
}

/// Prints whole lines under a lock.
fn print(lines: &str) -> Outcome {
    match std::io::stdout().lock().write_all(lines.as_bytes()) {
        Ok(()) => Outcome::OK,
        Err(error) => Outcome::error(format!("standard output: {error}")),
    }
}

impl Store for Basic {
    type Local = ();
    type Client = BasicClient;

    fn execution(&self) -> Execution {
        Execution::Threads
    }

    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), client: usize) -> Result<BasicClient, StoreError> {
        if self.verbose {
            let settings: String = self.settings.iter().map(|line| format!("{line}\n")).collect();
            print(&format!(
                "***************** properties *****************\n{settings}\
                 **********************************************\n"
            ));
        }
        Ok(BasicClient {
            verbose: self.verbose,
            delay: self.delay,
            random: SplitMix(client as u64),
            seen: self.seen.clone(),
            line: String::new(),
        })
    }

    fn finish(&self) -> Result<(), StoreError> {
        let Some(seen) = &self.seen else { return Ok(()) };
        let mut lines = String::new();
        for (kind, name) in COUNTED {
            let count = seen[kind as usize].lock().unwrap_or_else(PoisonError::into_inner).len();
            lines += &format!("[{name}], Uniques, {count}\n");
        }
        print(&lines);
        Ok(())
    }
}

/// A client.
#[derive(Debug)]
pub struct BasicClient {
    verbose: bool,
    delay: Delay,
    random: SplitMix,
    seen: Option<DistinctOperations>,
    /// Buffer of the current line.
    line: String,
}

impl BasicClient {
    /// Starts an operation's line.
    fn begin(&mut self, kind: OperationKind, table: &str, key: &str) {
        self.delay.sleep(&mut self.random);
        self.line.clear();
        for word in [kind.name(), " ", table, " ", key] {
            self.line.push_str(word);
        }
    }

    fn fields(&mut self, fields: &FieldSelection) {
        self.line.push_str(" [ ");
        if fields.is_all() {
            self.line.push_str("<all fields>");
        }
        for field in fields.iter() {
            self.line.push_str(field);
            self.line.push(' ');
        }
        self.line.push(']');
    }

    fn values(&mut self, record: &Record) {
        self.line.push_str(" [ ");
        for (name, value) in record.iter() {
            self.line.push_str(name);
            self.line.push('=');
            self.line.push_str(&String::from_utf8_lossy(value));
            self.line.push(' ');
        }
        self.line.push(']');
    }

    /// Counts the line if it is a new one.
    fn count(&mut self, kind: OperationKind) {
        if let Some(seen) = &self.seen {
            let mut hasher = DefaultHasher::new();
            self.line.hash(&mut hasher);
            seen[kind as usize].lock().unwrap_or_else(PoisonError::into_inner).insert(hasher.finish());
        }
    }

    /// Prints the line.
    fn show(&mut self) -> Outcome {
        if !self.verbose {
            return Outcome::OK;
        }
        self.line.push('\n');
        print(&self.line)
    }

    fn end(&mut self, kind: OperationKind) -> Outcome {
        self.count(kind);
        self.show()
    }
}

impl Client for BasicClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, _: &mut Reply) -> Outcome {
        self.begin(OperationKind::Read, table, key);
        self.fields(fields);
        self.end(OperationKind::Read)
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        self.begin(OperationKind::Update, table, key);
        self.values(fields);
        self.end(OperationKind::Update)
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        self.begin(OperationKind::Insert, table, key);
        self.values(record);
        self.end(OperationKind::Insert)
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        _: &mut Reply,
    ) -> Outcome {
        self.begin(OperationKind::Scan, table, start_key);
        // YCSB counts scans from one key once, whatever their lengths.
        self.count(OperationKind::Scan);
        self.line.push(' ');
        self.line.push_str(&count.to_string());
        self.fields(fields);
        self.show()
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        self.begin(OperationKind::Delete, table, key);
        self.end(OperationKind::Delete)
    }
}
