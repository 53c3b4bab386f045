//! HBase by its Java client, in the driver process of `drivers/java/hbase`.
//!
//! YCSB's layout: the key is the row, a field is a qualifier of one column
//! family.
//!
//! | verb | HBase |
//! |---|---|
//! | read | Get of the family, or of the columns asked for |
//! | insert, update | Put; with `clientbuffering` into the client's BufferedMutator |
//! | scan | Scan from the row on, a limit and a PageFilter |
//! | delete | Delete of the row, buffered as puts are |
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

const QUORUM: Property = Property::serval(
    "hbase.zookeeper.quorum",
    Kind::Names,
    "Hosts of HBase's ZooKeeper, through which its client finds it. If unset: as in hbase.site or an \
     hbase-site.xml on the class path, or 127.0.0.1. Any other property that begins with hbase., \
     zookeeper. or hadoop. is a setting of HBase's client too.",
);
const QUORUM_PORT: Property = Property::serval(
    "hbase.zookeeper.property.clientPort",
    Kind::Count { min: 1, max: 65535 },
    "Port of HBase's ZooKeeper. If unset: as for the quorum, or 2181.",
);
const SITE: Property = Property::serval(
    "hbase.site",
    Kind::Path,
    "An hbase-site.xml with settings of HBase's client. YCSB takes it from the class path (-cp CONF), which works too.",
);
const NAMESPACE: Property =
    Property::serval("hbase.namespace", Kind::Text, "Namespace of the table, if its name (table) has none.");
const FAMILY: Property =
    Property::ycsb("columnfamily", Kind::Text, "Column family of the fields. YCSB has no default.")
        .default("family");
const BUFFERING: Property = Property::ycsb(
    "clientbuffering",
    Kind::Flag,
    "Whether inserts, updates and deletes are buffered in the client. They are OK once buffered; the rest \
     is sent when the client closes.",
)
.default("false");
const BUFFER_SIZE: Property = Property::ycsb("writebuffersize", Kind::Size, "Size of a client's buffer.")
    .default("12582912")
    .unit("bytes");
const BUFFER_LATENCY: Property = Property::serval(
    "hbase.writebufferlatency",
    Kind::MILLISECONDS,
    "Longest time for which a write stays in the buffer. 0: until the buffer is full or closed.",
)
.default("0")
.unit("ms");
const DURABILITY: Property = Property::ycsb(
    "durability",
    Kind::Choice(&["USE_DEFAULT", "SKIP_WAL", "ASYNC_WAL", "SYNC_WAL", "FSYNC_WAL"]),
    "Use of the write-ahead log by writes; the default is the table's setting.",
)
.default("USE_DEFAULT");
const CREATE: Property = Property::serval(
    "hbase.create",
    Kind::Flag,
    "Whether a load creates the table and its namespace if missing.",
)
.default("true");
const REGIONS: Property = Property::serval(
    "hbase.regions",
    Kind::Count { min: 1, max: 9000 },
    "Regions of a table that a load creates, split between user1000 and user9999 as in YCSB's \
     documentation. HBase recommends ten per region server; with one, all writes of a load go to one \
     server at first.",
)
.default("1");
const ORDERED: Property = Property::serval(
    "hbase.newversionbehavior",
    Kind::Flag,
    "Whether a table that a load creates keeps the order of writes within a millisecond (HBase's \
     NEW_VERSION_BEHAVIOR, which YCSB's tables lack).",
)
.default("false");
const PAGE_FILTER: Property = Property::ycsb(
    "hbase.usepagefilter",
    Kind::Flag,
    "Whether a PageFilter also limits a scan to its number of records.",
)
.default("true");
const VALUE_FILTER: Property = Property::ycsb(
    "hbase.usescanvaluefiltering",
    Kind::Flag,
    "Whether scans return only the fields whose value passes a comparison (hbase.scanfilteroperator, \
     hbase.scanfiltervalue).",
)
.default("false");
const FILTER_OPERATOR: Property = Property::ycsb(
    "hbase.scanfilteroperator",
    Kind::Choice(&["less_or_equal", "greater_or_equal", "greater", "less", "not_equal", "equal"]),
    "Comparison of values with hbase.scanfiltervalue.",
)
.default("less_or_equal");
const FILTER_VALUE: Property =
    Property::ycsb("hbase.scanfiltervalue", Kind::Text, 
        "Value of the comparison, in hexadecimal digits.")
        .default(
            "7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF\
             FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
        );
const OPERATION_TIMEOUT: Property = Property::serval(
    "hbase.timeout",
    Kind::MILLISECONDS,
    "Timeout of an operation, including the retries of HBase's client; then the operation is \
     SERVICE_UNAVAILABLE. If all of HBase is unreachable, its client also waits for ZooKeeper, about 10 s \
     at a time, which this does not shorten. Applies to hbase.rpc.timeout, \
     hbase.client.operation.timeout, hbase.client.meta.operation.timeout and \
     hbase.client.scanner.timeout.period unless they are set. hbase.client.retries.number=0 disables \
     retries.",
)
.default("30000")
.unit("ms");
const CONNECT_TIMEOUT: Property = Property::serval(
    "hbase.connecttimeout",
    Kind::MILLISECONDS,
    "Time limit for reaching HBase at the start.",
)
.default("20000")
.unit("ms");
const PRINCIPAL: Property =
    Property::ycsb("principal", Kind::Text, "Kerberos principal for the login; needs keytab.");
const KEYTAB: Property = Property::ycsb("keytab", Kind::Path, "File of the principal's keys.");
const DEBUG: Property = Property::ignored("debug", "Prints every operation in YCSB's binding.");
const FOLDER: Property = Property::serval(
    "hbase.driver",
    Kind::Path,
    "Folder of serval-hbase-driver.jar and its lib. If unset: drivers/java/hbase/target, beside or above \
     the program or the working directory.",
);

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "hbase",
    aliases: &[
        "asynchbase",
        "hbase1",
        "hbase2",
        "hbase094",
        "hbase098",
        "hbase10",
        "hbase12",
        "hbase14",
        "hbase20",
        "site.ycsb.db.hbase1.HBaseClient1",
        "site.ycsb.db.hbase2.HBaseClient2",
        "site.ycsb.db.hbase12.HBaseClient12",
        "site.ycsb.db.hbase14.HBaseClient14",
        "site.ycsb.db.hbase20.HBaseClient20",
        "com.yahoo.ycsb.db.HBaseClient",
        "com.yahoo.ycsb.db.HBaseClient10",
        "com.yahoo.ycsb.db.hbase12.HBaseClient12",
    ],
    summary: "HBase, by its own Java client in a driver process",
    details: "The key is the row and a field is a qualifier of one column family, as in YCSB. An insert \
              of an existing key adds to it, an update of a missing one creates it, and a delete does not \
              check that the record exists; a record without fields cannot exist. HBase orders the writes \
              of one millisecond by kind: a delete may hide a write to the same key right after it, \
              unless the table has hbase.newversionbehavior.\n\
              Clients are threads of one Java process and share HBase's connection. With clientbuffering \
              (or writebuffer.size) each client has a buffer, which its reads do not look into; FLUSH is \
              the sending of it, and writes that HBase then refuses are failures of FLUSH. HBase's client \
              retries by itself, for hbase.timeout. Service time is measured in the Java process around \
              the call; DRIVER-HOP is the way there and back. TLS and Kerberos are settings of HBase's \
              client (hbase.client.netty.tls.enabled, hbase.security.authentication) with principal and \
              keytab. Needs Java 17 and the driver, built once by 'mvn -f drivers package'.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: true,
    behind_driver: true,
    properties: PropertyTable {
        heading: "hbase",
        properties: &[
            &QUORUM,
            &QUORUM_PORT,
            &SITE,
            &NAMESPACE,
            &FAMILY,
            &BUFFERING,
            &BUFFER_SIZE,
            &BUFFER_LATENCY,
            &settings::SIZE,
            &settings::LATENCY,
            &DURABILITY,
            &CREATE,
            &REGIONS,
            &ORDERED,
            &PAGE_FILTER,
            &VALUE_FILTER,
            &FILTER_OPERATOR,
            &FILTER_VALUE,
            &OPERATION_TIMEOUT,
            &CONNECT_TIMEOUT,
            &PRINCIPAL,
            &KEYTAB,
            &DEBUG,
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
    jar: "serval-hbase-driver.jar",
    built: "drivers/java/hbase/target",
    build: "mvn -f drivers package",
};

/// The client's log is for its developers; its errors are in the
/// messages.
const QUIET: &str = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off";

/// Opens the store.
#[derive(Debug)]
pub struct Hbase;

impl Hbase {
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
        for property in [&BUFFERING, &CREATE, &ORDERED, &PAGE_FILTER, &VALUE_FILTER] {
            settle(property, reader.flag(property).to_string());
        }
        for property in [&BUFFER_LATENCY, &OPERATION_TIMEOUT, &CONNECT_TIMEOUT] {
            let time = reader.duration(property);
            if !time.subsec_nanos().is_multiple_of(1_000_000) {
                reader.fault(property, "must be whole milliseconds");
            }
            settle(property, time.as_millis().to_string());
        }
        let driver = reader.duration(&TIMEOUT);
        for property in [&OPERATION_TIMEOUT, &CONNECT_TIMEOUT] {
            let time = reader.duration(property);
            if time.is_zero() || time >= driver || time.as_millis() > i32::MAX as u128 {
                reader
                    .fault(property, "must be above 0 and less than driver.timeout, which would end the run");
            }
        }
        for property in [&DURABILITY, &FILTER_OPERATOR] {
            settle(property, reader.choice(property).to_owned());
        }
        settle(&BUFFER_SIZE, reader.size(&BUFFER_SIZE).to_string());
        settle(&REGIONS, reader.count(&REGIONS).to_string());
        if let Some(port) = reader.optional_count(&QUORUM_PORT) {
            settle(&QUORUM_PORT, port.to_string());
        }
        let family = reader.text(&FAMILY);
        if family.is_empty() || family.contains(':') {
            reader.fault(&FAMILY, "must be a name without a colon");
        }
        settle(&FAMILY, family);
        let value = reader.text(&FILTER_VALUE);
        if !value.len().is_multiple_of(2) || !value.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            reader.fault(&FILTER_VALUE, "must be hexadecimal digits, two a byte");
        }
        settle(&FILTER_VALUE, value);
        for property in [&SITE, &KEYTAB] {
            if reader.path(property).is_some_and(|path| !path.is_file()) {
                reader.fault(property, "there is no such file");
            }
        }
        if reader.given(&PRINCIPAL) != reader.given(&KEYTAB) {
            reader.fault_overall("principal and keytab go together: set both or neither");
        }
        let machine = JvmOptions::of(&mut reader, &JARS);
        let command = move || machine.command(&[QUIET], &["serval.driver.hbase.Main"]);
        Driver::program(command, "hbase".to_owned(), &settled, reader)
    }
}
