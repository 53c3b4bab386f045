//! Accumulo by its own Java client, in the driver process of
//! `drivers/java/accumulo`.
//!
//! Laid out as YCSB does it: the key is the row, a field a qualifier of one
//! column family.
//!
//! | verb | Accumulo |
//! |---|---|
//! | read | Scanner over the row, of the family or the columns asked for |
//! | insert, update | a Mutation into the client's BatchWriter; flushed at once without `accumulo.clientbuffering` |
//! | scan | Scanner from the row on, rows gathered by the server (WholeRowIterator), fields chosen here |
//! | delete | flush, Scanner over the row, then a Mutation that deletes each of its columns |
//!
//! This module checks the properties and fills in their defaults; what they
//! do is done in Java.

use crate::{
    StoreInfo,
    java::{ARGUMENTS, CLASS_PATH, Jars, Machine, PROGRAM},
};
use serval_driver::{CONNECTIONS, Driver, GRACE, TIMEOUT};
use serval_model::properties::{Faults, Kind, Origin, Properties, Property, Reader, Table};
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
    "An accumulo-client.properties of Accumulo's own. It may say all of the above, which win if set too, and holds what \
     TLS (ssl.*) and Kerberos (sasl.*, auth.type) want.",
);
const FAMILY: Property =
    Property::ycsb("accumulo.columnFamily", Kind::Text, "Column family of the fields. YCSB has no default.")
        .default("family");
const BUFFERING: Property = Property::serval(
    "accumulo.clientbuffering",
    Kind::Flag,
    "Whether inserts, updates and deletes are buffered in the client, as YCSB's binding always does. They are BATCHED_OK \
     once buffered; what is left is sent when the client closes. Without it each is sent and waited for.",
)
.default("true");
const BUFFER_SIZE: Property = Property::ycsb(
    "accumulo.batchWriterSize",
    Kind::Size,
    "Bytes that a client buffers at most; from half of it on they are sent.",
)
.default("100000")
.unit("bytes");
const BUFFER_LATENCY: Property = Property::ycsb(
    "accumulo.batchWriterMaxLatency",
    Kind::MILLISECONDS,
    "How long a write stays in the buffer at most: 4 ms or more, or 0 until the buffer is full or closed.",
)
.default("30000")
.unit("ms");
const WRITER_THREADS: Property = Property::ycsb(
    "accumulo.batchWriterThreads",
    Kind::Count { min: 0, max: 10_000 },
    "Threads by which each client's buffer is sent; 0 for half of the processors, as YCSB.",
)
.default("0");
const DURABILITY: Property = Property::serval(
    "accumulo.durability",
    Kind::Choice(&["default", "none", "log", "flush", "sync"]),
    "What a write does with the write-ahead log; by default what the table says.",
)
.default("default");
const CREATE: Property =
    Property::serval("accumulo.create", Kind::Flag, "Whether a load makes the table if it is missing.")
        .default("true");
const TABLETS: Property = Property::serval(
    "accumulo.tablets",
    Kind::Count { min: 1, max: 9000 },
    "Tablets of a table that a load makes, split between user1000 and user9999. With one, all writes of a load first \
     meet on one server.",
)
.default("1");
const OPERATION_TIMEOUT: Property = Property::serval(
    "accumulo.timeout",
    Kind::MILLISECONDS,
    "How long an operation may take, with all that Accumulo's client tries again; then it is SERVICE_UNAVAILABLE. Where \
     the whole of Accumulo is away its client waits for ZooKeeper without end: driver.timeout then ends the run.",
)
.default("30000")
.unit("ms");
const CONNECT_TIMEOUT: Property = Property::serval(
    "accumulo.connecttimeout",
    Kind::MILLISECONDS,
    "How long Accumulo is waited for at the start.",
)
.default("20000")
.unit("ms");
const PC_FLAG: Property =
    Property::ignored("accumulo.pcFlag", "Producers and consumers, which YCSB's binding has no more.");
const FOLDER: Property = Property::serval(
    "accumulo.driver",
    Kind::Path,
    "Folder of serval-accumulo-driver.jar and its lib. Without it, drivers/java/accumulo/target is looked for beside and \
     above the program and the working directory.",
);

/// What help shows of this store.
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
    details: "The key is the row, a field a qualifier of one column family, as YCSB has it. An insert of a key that is there \
              adds to it, an update of one that is not makes it; a record without fields cannot be. Clients are threads of \
              one Java process and share Accumulo's connection; each has a BatchWriter of its own. With \
              accumulo.clientbuffering, the default as in YCSB, BATCHED_OK means buffered: reads do not look into the \
              buffer. Its writer sends in the background and does not say when: FLUSH are the flushes that a client waits \
              for, before a delete and at its end, and writes that Accumulo has refused are failures of FLUSH, or of the \
              operation that learns of them. A delete sends the buffer first, for it must know the row's fields. A \
              scan brings all fields over, also where some are asked for. \
              A \
              load makes the table with logical time: in one that goes by the clock, Accumulo's own default, a write may be \
              hidden by a delete of the same millisecond. Accumulo's client tries again by itself, for accumulo.timeout. Service time is measured in the Java process \
              around the call; DRIVER-HOP is the way there and back. Needs Java 17 and the driver, built once by 'mvn -f \
              drivers package'.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: true,
    behind_driver: true,
    properties: Table {
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

/// What Accumulo's client logs is for its own people; its errors come as
/// messages.
const QUIET: &str = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off";

/// Opens the store.
#[derive(Debug)]
pub struct Accumulo;

impl Accumulo {
    /// From its properties; starts nothing.
    pub fn open(properties: &Properties) -> Result<Driver, Faults> {
        let mut reader = Reader::new(properties);
        // The driver is given every setting as it holds, in its plainest form.
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
        // Accumulo's client looks four times in this time, by a timer of whole
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
                        "nothing says where Accumulo is and who asks: set {}, or accumulo.clientProperties",
                        missing.join(", ")
                    ));
                }
            }
        }
        let machine = Machine::of(&mut reader, &JARS);
        let command = move || machine.command(&[QUIET], &["serval.driver.accumulo.Main"]);
        Driver::program(command, "accumulo".to_owned(), &settled, reader)
    }
}
