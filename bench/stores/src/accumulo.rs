//! Accumulo by its Java client, in the driver process of `drivers/java/accumulo`.
//!
//! YCSB's layout: the key is the row, a field is a qualifier of one column
//! family.
//!
//! | verb | Accumulo |
//! |---|---|
//! | read | Scanner over the row, of the family or the columns asked for |
//! | insert, update | a Mutation into the client's BatchWriter; flushed at once without `accumulo.clientbuffering` |
//! | scan | Scanner from the row on, rows gathered by the server (WholeRowIterator), fields chosen here |
//! | delete | flush, Scanner over the row, then a Mutation that deletes each of its columns |
//!
//! This module validates the properties and fills in their defaults; the driver applies
//! them.

use crate::{
    StoreInfo,
    java::{ARGUMENTS, CLASS_PATH, Jars, JvmOptions, PROGRAM},
};
use serval_driver::{CONNECTIONS, Driver, GRACE, TIMEOUT};
use serval_model::properties::{Faults, Kind, Origin, Properties, Property, PropertyTable, Reader};
use serval_wrappers::settings;

const INSTANCE: Property =
    Property::ycsb("accumulo.instanceName", Kind::Text, "Name of the Accumulo instance.");
const ZOOKEEPERS: Property = Property::ycsb(
    "accumulo.zooKeepers",
    Kind::Text,
    "Hosts of the instance's ZooKeeper, host:port separated by commas.",
);
const USERNAME: Property = Property::ycsb("accumulo.username", Kind::Text, "User to log in as.");
const PASSWORD: Property = Property::ycsb("accumulo.password", Kind::Text, "The user's password.");
const CLIENT_PROPERTIES: Property = Property::serval(
    "accumulo.clientProperties",
    Kind::Path,
    "Accumulo's own accumulo-client.properties. It may set all of the above, which override it, and holds \
     the settings of TLS (ssl.*) and Kerberos (sasl.*, auth.type).",
);
const FAMILY: Property =
    Property::ycsb("accumulo.columnFamily", Kind::Text, "Column family of the fields. YCSB has no default.")
        .default("family");
const BUFFERING: Property = Property::serval(
    "accumulo.clientbuffering",
    Kind::Flag,
    "Whether inserts, updates and deletes are buffered in the client, as YCSB's binding always does. They \
     are BATCHED_OK once buffered; the rest is sent when the client closes. false: each write is sent and \
     waited for.",
)
.default("true");
const BUFFER_SIZE: Property = Property::ycsb(
    "accumulo.batchWriterSize",
    Kind::Size,
    "Size of a client's buffer; sending begins when it is half full.",
)
.default("100000")
.unit("bytes");
const BUFFER_LATENCY: Property = Property::ycsb(
    "accumulo.batchWriterMaxLatency",
    Kind::MILLISECONDS,
    "Longest time for which a write stays in the buffer: 4 ms or more, or 0 for until the buffer is full \
     or closed.",
)
.default("30000")
.unit("ms");
const WRITER_THREADS: Property = Property::ycsb(
    "accumulo.batchWriterThreads",
    Kind::Count { min: 0, max: 10_000 },
    "Threads that send each client's buffer. 0: half of the processors, as in YCSB.",
)
.default("0");
const DURABILITY: Property = Property::serval(
    "accumulo.durability",
    Kind::Choice(&["default", "none", "log", "flush", "sync"]),
    "Use of the write-ahead log by writes; the default is the table's setting.",
)
.default("default");
const CREATE: Property =
    Property::serval("accumulo.create", Kind::Flag, "Whether a load creates the table if it is missing.")
        .default("true");
const TABLETS: Property = Property::serval(
    "accumulo.tablets",
    Kind::Count { min: 1, max: 9000 },
    "Tablets of a table that a load creates, split between user1000 and user9999. With one, all writes of \
     a load go to one server at first.",
)
.default("1");
const OPERATION_TIMEOUT: Property = Property::serval(
    "accumulo.timeout",
    Kind::MILLISECONDS,
    "Timeout of an operation, including the retries of Accumulo's client; then the operation is \
     SERVICE_UNAVAILABLE. If all of Accumulo is unreachable, its client waits for ZooKeeper without a \
     limit: driver.timeout then ends the run.",
)
.default("30000")
.unit("ms");
const CONNECT_TIMEOUT: Property = Property::serval(
    "accumulo.connecttimeout",
    Kind::MILLISECONDS,
    "Time limit for reaching Accumulo at the start.",
)
.default("20000")
.unit("ms");
const PC_FLAG: Property =
    Property::ignored("accumulo.pcFlag", "Producers and consumers, which YCSB's binding no longer has.");
const FOLDER: Property = Property::serval(
    "accumulo.driver",
    Kind::Path,
    "Folder of serval-accumulo-driver.jar and its lib. If unset: drivers/java/accumulo/target, beside or \
     above the program or the working directory.",
);

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "accumulo",
    aliases: &[
        "accumulo1.6",
        "accumulo1.7",
        "accumulo1.8",
        "accumulo1.9",
        "site.ycsb.db.accumulo.AccumuloClient",
        "com.yahoo.ycsb.db.accumulo.AccumuloClient",
    ],
    summary: "Accumulo, by its own Java client in a driver process",
    details: "The key is the row and a field is a qualifier of one column family, as in YCSB. An insert \
              of an existing key adds to it, an update of a missing one creates it; a record without \
              fields cannot exist. A delete sends the buffer first, because it must know the row's \
              fields. A scan transfers all fields, even if only some are asked for. A load creates the \
              table with logical time: with clock time, Accumulo's default, a delete may hide a write of \
              the same millisecond.\n\
              Clients are threads of one Java process and share Accumulo's connection; each has a \
              BatchWriter of its own. With accumulo.clientbuffering, the default as in YCSB, BATCHED_OK \
              means buffered: reads do not look into the buffer. The writer sends in the background \
              without a notification: FLUSH is a flush that a client waits for, before a delete and at \
              its end. Writes that Accumulo refuses are failures of FLUSH, or of the operation that \
              learns of them. Accumulo's client retries by itself, for accumulo.timeout. Service time is \
              measured in the Java process around the call; DRIVER-HOP is the way there and back. Needs \
              Java 17 and the driver, built once by 'mvn -f drivers package'.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: true,
    behind_driver: true,
    properties: PropertyTable {
        heading: "accumulo",
        properties: &[
            &INSTANCE,
            &ZOOKEEPERS,
            &USERNAME,
            &PASSWORD,
            &CLIENT_PROPERTIES,
            &FAMILY,
            &BUFFERING,
            &BUFFER_SIZE,
            &BUFFER_LATENCY,
            &settings::SIZE,
            &settings::LATENCY,
            &WRITER_THREADS,
            &DURABILITY,
            &CREATE,
            &TABLETS,
            &OPERATION_TIMEOUT,
            &CONNECT_TIMEOUT,
            &PC_FLAG,
            &FOLDER,
            &CLASS_PATH,
            &ARGUMENTS,
            &PROGRAM,
            &CONNECTIONS,
            &TIMEOUT,
            &GRACE,
        ],
    },
};

const JARS: Jars = Jars {
    property: &FOLDER,
    jar: "serval-accumulo-driver.jar",
    built: "drivers/java/accumulo/target",
    build: "mvn -f drivers package",
};

/// The client's log is for its developers; its errors are in the
/// messages.
const QUIET: &str = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off";

/// Opens the store.
#[derive(Debug)]
pub struct Accumulo;

impl Accumulo {
    /// Reads the properties. Does not start the driver.
    pub fn open(properties: &Properties) -> Result<Driver, Faults> {
        let mut reader = Reader::new(properties);
        // The driver gets every effective setting in its simplest form.
        let own = settings::OwnBuffer { size: &BUFFER_SIZE, latency: &BUFFER_LATENCY, switch: &BUFFERING };
        let properties = &own.of(&mut reader);
        let mut reader = reader.over(properties);
        let mut settled = properties.clone();
        let mut settle = |property: &Property, value: String| {
            settled.set(property.name, value, Origin::Program("the store's properties"));
        };
        for property in [&BUFFERING, &CREATE] {
            settle(property, reader.flag(property).to_string());
        }
        for property in [&BUFFER_LATENCY, &OPERATION_TIMEOUT, &CONNECT_TIMEOUT] {
            let time = reader.duration(property);
            if !time.subsec_nanos().is_multiple_of(1_000_000) {
                reader.fault(property, "must be whole milliseconds");
            }
            settle(property, time.as_millis().to_string());
        }
        // Accumulo's client checks four times in this time, with a timer of whole
        // milliseconds.
        if matches!(reader.duration(&BUFFER_LATENCY).as_millis(), 1..4) {
            reader.fault(&BUFFER_LATENCY, "must be 0, or 4 ms or more");
        }
        let driver = reader.duration(&TIMEOUT);
        for property in [&OPERATION_TIMEOUT, &CONNECT_TIMEOUT] {
            let time = reader.duration(property);
            if time.is_zero() || time >= driver {
                reader
                    .fault(property, "must be above 0 and less than driver.timeout, which would end the run");
            }
        }
        let size = reader.size(&BUFFER_SIZE);
        if size == 0 || size > i64::MAX as u64 {
            reader.fault(&BUFFER_SIZE, "must be 1 byte or more");
        }
        settle(&BUFFER_SIZE, size.to_string());
        settle(&DURABILITY, reader.choice(&DURABILITY).to_owned());
        for property in [&WRITER_THREADS, &TABLETS] {
            settle(property, reader.count(property).to_string());
        }
        settle(&FAMILY, reader.text(&FAMILY));
        match reader.path(&CLIENT_PROPERTIES) {
            Some(path) if !path.is_file() => reader.fault(&CLIENT_PROPERTIES, "there is no such file"),
            Some(_) => {}
            None => {
                let needed = [&INSTANCE, &ZOOKEEPERS, &USERNAME, &PASSWORD];
                let missing: Vec<&str> =
                    needed.iter().filter(|name| !reader.given(name)).map(|name| name.name).collect();
                if !missing.is_empty() {
                    reader.fault_overall(format!(
                        "Accumulo's instance and user are not set: set {}, or accumulo.clientProperties",
                        missing.join(", ")
                    ));
                }
            }
        }
        let machine = JvmOptions::of(&mut reader, &JARS);
        let command = move || machine.command(&[QUIET], &["serval.driver.accumulo.Main"]);
        Driver::program(command, "accumulo".to_owned(), &settled, reader)
    }
}
