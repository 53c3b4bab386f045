//! The core workload's properties: YCSB's, and Serval's additions.

use serval_model::properties::{Kind, Property, PropertyTable};

/// Table of all operations.
pub const TABLE: Property =
    Property::ycsb("table", Kind::Text, "Table of all operations.").default("usertable");
/// Number of records in the store.
pub const RECORD_COUNT: Property = Property::ycsb(
    "recordcount",
    Kind::COUNT,
    "Records in the store after the load. 0: a run chooses among 2^31-1 keys, as in YCSB; a load needs a \
     number.",
)
.default("0")
.unit("records");
/// First key to insert.
pub const INSERT_START: Property = Property::ycsb(
    "insertstart",
    Kind::COUNT,
    "Number of the first record that this client loads, and the first that a run chooses from. To load \
     from several clients, give each its own insertstart and insertcount.",
)
.default("0")
.unit("record number");
/// Number of records to insert.
pub const INSERT_COUNT: Property = Property::ycsb(
    "insertcount",
    Kind::COUNT,
    "Records that this client loads; a run chooses among as many. If unset: a load inserts recordcount \
     records, and a run chooses among recordcount - insertstart.",
)
.unit("records");
/// Number of fields of a record.
pub const FIELD_COUNT: Property =
    Property::ycsb("fieldcount", Kind::Count { min: 1, max: 100_000 }, "Fields of a record.").default("10");
/// Prefix of field names.
pub const FIELD_NAME_PREFIX: Property =
    Property::ycsb("fieldnameprefix", Kind::Text, "Prefix of field names; a number from 0 follows.")
        .default("field");
/// Length of a field.
pub const FIELD_LENGTH: Property = Property::ycsb(
    "fieldlength",
    Kind::Size,
    "Length of a field's value: the only length (constant), or the largest.",
)
.default("100")
.unit("bytes");
/// Shortest length of a field.
pub const MIN_FIELD_LENGTH: Property =
    Property::ycsb("minfieldlength", Kind::Size, "Smallest length of a field's value (uniform, zipfian).")
        .default("1")
        .unit("bytes");
/// Distribution of field lengths.
pub const FIELD_LENGTH_DISTRIBUTION: Property = Property::ycsb(
    "fieldlengthdistribution",
    Kind::Choice(&["constant", "uniform", "zipfian", "histogram", "exacthistogram"]),
    "Distribution of the lengths of values: constant; uniform; zipfian (short values often); histogram \
     (from a file, drawn exactly as in YCSB, which is off by one bucket at both ends); exacthistogram \
     (Serval's: bucket b of the file is (b+1)*BlockSize bytes, with the file's frequency).",
)
.default("constant");
/// Histogram file of field lengths.
pub const FIELD_LENGTH_HISTOGRAM: Property = Property::ycsb(
    "fieldlengthhistogram",
    Kind::Path,
    "File of lengths: 'BlockSize<tab>N', then 'bucket<tab>count' lines, in order of buckets from 0.",
)
.default("hist.txt");
/// Whether reads read all fields.
pub const READ_ALL_FIELDS: Property = Property::ycsb(
    "readallfields",
    Kind::Flag,
    "Whether a read or scan reads all fields, or one chosen at random.",
)
.default("true");
/// Whether reads name all fields.
pub const READ_ALL_FIELDS_BY_NAME: Property = Property::ycsb(
    "readallfieldsbyname",
    Kind::Flag,
    "Whether a read of all fields names each field, instead of asking for all.",
)
.default("false");
/// Whether updates write all fields.
pub const WRITE_ALL_FIELDS: Property = Property::ycsb(
    "writeallfields",
    Kind::Flag,
    "Whether an update writes all fields, or one chosen at random.",
)
.default("false");
/// Whether values can be verified.
pub const DATA_INTEGRITY: Property = Property::ycsb(
    "dataintegrity",
    Kind::Flag,
    "Whether values are derived from key and field, and reads verify them (VERIFY in the results). Must \
     be set for the load too, and needs constant lengths.",
)
.default("false");
/// Share of reads.
pub const READ_PROPORTION: Property =
    Property::ycsb("readproportion", Kind::FRACTION, "Share of reads. Shares are divided by their sum.")
        .default("0.95");
/// Share of updates.
pub const UPDATE_PROPORTION: Property =
    Property::ycsb("updateproportion", Kind::FRACTION, "Share of updates.").default("0.05");
/// Share of inserts.
pub const INSERT_PROPORTION: Property =
    Property::ycsb("insertproportion", Kind::FRACTION, "Share of inserts of new records.").default("0");
/// Share of scans.
pub const SCAN_PROPORTION: Property =
    Property::ycsb("scanproportion", Kind::FRACTION, "Share of scans.").default("0");
/// Share of read-modify-writes.
pub const READ_MODIFY_WRITE_PROPORTION: Property = Property::ycsb(
    "readmodifywriteproportion",
    Kind::FRACTION,
    "Share of reads followed by an update of the same record; timed separately and together.",
)
.default("0");
/// Share of deletes.
pub const DELETE_PROPORTION: Property = Property::ycsb(
    "deleteproportion",
    Kind::FRACTION,
    "Share of deletes (in YCSB only of the time series and REST workloads; in Serval also of the core \
     workload). Later reads of a deleted record count as NOT_FOUND.",
)
.default("0");
/// Distribution of keys.
pub const REQUEST_DISTRIBUTION: Property = Property::ycsb(
    "requestdistribution",
    Kind::Choice(&["uniform", "zipfian", "latest", "hotspot", "sequential", "exponential", "exactzipfian"]),
    "Distribution of keys: uniform; zipfian (YCSB's: 10^10 ranks hashed onto the keys, so the hottest key \
     gets 3.8 % whatever the number of keys); latest (the newest often); hotspot; sequential; exponential \
     (the newest often); exactzipfian (Serval's: Zipf's law over exactly the existing keys, scattered by \
     a bijection).",
)
.default("uniform");
/// Exponent of the exact Zipfian distribution.
pub const ZIPFIAN_EXPONENT: Property = Property::serval(
    "zipfian.exponent",
    Kind::Number { min: 1e-3, max: 100.0 },
    "Exponent s of requestdistribution=exactzipfian: the probability of the key of rank r is proportional \
     to 1/r^s.",
)
.default("0.99");
/// Share of keys that are hot.
pub const HOTSPOT_DATA_FRACTION: Property =
    Property::ycsb("hotspotdatafraction", Kind::FRACTION, "Share of the keys that are hot (hotspot).")
        .default("0.2");
/// Share of operations on hot keys.
pub const HOTSPOT_OPERATION_FRACTION: Property =
    Property::ycsb("hotspotopnfraction", Kind::FRACTION, "Share of the operations on hot keys (hotspot).")
        .default("0.8");
/// Percentile of the exponential distribution.
pub const EXPONENTIAL_PERCENTILE: Property = Property::ycsb(
    "exponential.percentile",
    Kind::Number { min: 0.0, max: 100.0 },
    "Percentage of the operations that go to the newest exponential.frac of the records.",
)
.default("95");
/// Fraction of the exponential distribution.
pub const EXPONENTIAL_FRACTION: Property = Property::ycsb(
    "exponential.frac",
    Kind::Number { min: 0.0, max: f64::INFINITY },
    "Share of the records, the newest, that get exponential.percentile of the operations.",
)
.default("0.8571428571");
/// Shortest scan.
pub const MIN_SCAN_LENGTH: Property =
    Property::ycsb("minscanlength", Kind::POSITIVE, "Smallest number of records of a scan.")
        .default("1")
        .unit("records");
/// Longest scan.
pub const MAX_SCAN_LENGTH: Property =
    Property::ycsb("maxscanlength", Kind::POSITIVE, "Largest number of records of a scan.")
        .default("1000")
        .unit("records");
/// Distribution of scan lengths.
pub const SCAN_LENGTH_DISTRIBUTION: Property = Property::ycsb(
    "scanlengthdistribution",
    Kind::Choice(&["uniform", "zipfian"]),
    "Distribution of the lengths of scans: uniform, or zipfian (short scans often).",
)
.default("uniform");
/// Order of keys.
pub const INSERT_ORDER: Property = Property::ycsb(
    "insertorder",
    Kind::Text,
    "Form of keys. hashed: hashes of record numbers, so that sequential inserts scatter. uniform: numbers \
     of insertrange, in an order that looks random. Any other value: the record numbers.",
)
.default("hashed");
/// Range of keys.
pub const INSERT_RANGE: Property = Property::serval(
    "insertrange",
    Kind::Text,
    "Numbers in keys with insertorder=uniform, both ends included: 0..72000000. Loaded keys are distinct \
     and uniform in the range; records beyond its size follow its end. If zeropadding is not given, it is \
     the number of digits of the range's end.",
);
/// Seed of the key order within the range.
pub const INSERT_RANGE_SEED: Property = Property::serval(
    "insertrange.seed",
    Kind::COUNT,
    "Seed of the order in which the numbers of insertrange are used. Loads and runs on the same records \
     need the same seed.",
)
.default("0");
/// Minimum number of digits of a key.
pub const ZERO_PADDING: Property = Property::ycsb(
    "zeropadding",
    Kind::Count { min: 0, max: 1000 },
    "Smallest number of digits of a key's number. With insertorder=ordered and enough digits, keys sort \
     as their numbers.",
)
.default("1")
.unit("digits");
/// Limit of retries of an insert.
pub const INSERT_RETRY_LIMIT: Property = Property::ycsb(
    "core_workload_insertion_retry_limit",
    Kind::COUNT,
    "Number of times that a load retries a failed insert.",
)
.default("0")
.unit("times");
/// Time between retries.
pub const INSERT_RETRY_INTERVAL: Property = Property::ycsb(
    "core_workload_insertion_retry_interval",
    Kind::SECONDS,
    "Time before an insert is retried, multiplied by a random number from 0.8 to 1.2.",
)
.default("3")
.unit("s");
/// Whether a load continues after a failed insert.
pub const INSERT_KEEP_GOING: Property = Property::ycsb(
    "core_workload_insertion_keep_going_on_error",
    Kind::Flag,
    "Whether a load's client continues after an insert that failed for good; otherwise it stops.",
)
.default("false");
/// Kind of random bytes in values.
pub const FIELD_VALUES: Property = Property::serval(
    "fieldvalues",
    Kind::Choice(&["ycsb", "incompressible"]),
    "Bytes of random values. ycsb: as YCSB draws them (zstd leaves 0.79 of the size, xz 0.73). incompressible: all \
     printable characters about equally often (zstd and xz leave 0.83).",
)
.default("ycsb");
/// Compressibility of values.
pub const COMPRESSIBILITY: Property = Property::serval(
    "compressibility",
    Kind::FRACTION,
    "Share of each value that is one repeated character; the rest is random (fieldvalues). 0 compresses \
     to 0.8 of the size, 0.5 to about 0.4.",
)
.default("0");
/// Number of records per batch.
pub const BATCH_SIZE: Property = Property::serval(
    "batchsize",
    Kind::Count { min: 1, max: 1_000_000 },
    "Records that a load sends as one batch, if the store has a faster way than single inserts. Above 1 \
     the times are those of batches (INSERT-BATCH).",
)
.default("1")
.unit("records")
.aliases(&["db.batchsize"]);
/// Expected number of operations of a run without a count.
pub const EXPECTED_OPERATIONS: Property = Property::serval(
    "expectedoperations",
    Kind::COUNT,
    "Expected number of operations of a run that is bounded by time; sets the key range of a Zipfian run \
     that inserts. If unset: target x time, or 1000/s per client. A run that exceeds the range reports \
     it.",
)
.unit("operations");

/// Table of the core workload's properties.
pub const PROPERTIES: PropertyTable = PropertyTable {
    heading: "core workload",
    properties: &[
        &TABLE,
        &RECORD_COUNT,
        &INSERT_START,
        &INSERT_COUNT,
        &FIELD_COUNT,
        &FIELD_NAME_PREFIX,
        &FIELD_LENGTH,
        &MIN_FIELD_LENGTH,
        &FIELD_LENGTH_DISTRIBUTION,
        &FIELD_LENGTH_HISTOGRAM,
        &FIELD_VALUES,
        &COMPRESSIBILITY,
        &READ_ALL_FIELDS,
        &READ_ALL_FIELDS_BY_NAME,
        &WRITE_ALL_FIELDS,
        &DATA_INTEGRITY,
        &READ_PROPORTION,
        &UPDATE_PROPORTION,
        &INSERT_PROPORTION,
        &SCAN_PROPORTION,
        &READ_MODIFY_WRITE_PROPORTION,
        &DELETE_PROPORTION,
        &REQUEST_DISTRIBUTION,
        &ZIPFIAN_EXPONENT,
        &HOTSPOT_DATA_FRACTION,
        &HOTSPOT_OPERATION_FRACTION,
        &EXPONENTIAL_PERCENTILE,
        &EXPONENTIAL_FRACTION,
        &MIN_SCAN_LENGTH,
        &MAX_SCAN_LENGTH,
        &SCAN_LENGTH_DISTRIBUTION,
        &INSERT_ORDER,
        &INSERT_RANGE,
        &INSERT_RANGE_SEED,
        &ZERO_PADDING,
        &INSERT_RETRY_LIMIT,
        &INSERT_RETRY_INTERVAL,
        &INSERT_KEEP_GOING,
        &BATCH_SIZE,
        &EXPECTED_OPERATIONS,
    ],
};
