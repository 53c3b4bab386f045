//! The time series workload's properties: YCSB's, some with other meanings than
//! in the core workload, and Serval's additions.

use crate::core::properties as core;
use serval_model::properties::{Kind, Property, PropertyTable};

/// Number of data points in the store.
pub const RECORD_COUNT: Property = Property::ycsb(
    "recordcount",
    Kind::COUNT,
    "Data points of a load, which also sets the timestamps that a run's queries choose from: recordcount \
     divided by the number of series, rounded down. 0: 2^31-1, as in YCSB; a load needs a number.",
)
.default("0")
.unit("data points");
/// Number of data points to write.
pub const INSERT_COUNT: Property = Property::ycsb(
    "insertcount",
    Kind::COUNT,
    "Data points of a load, if not recordcount. The range of random timestamps and of queries remains \
     that of recordcount.",
)
.unit("data points");
/// First timestamp.
pub const INSERT_START: Property = Property::ycsb(
    "insertstart",
    Kind::Count { min: 0, max: i64::MAX as u64 },
    "First timestamp (not a record number, as in the core workload). If unset: the time of the start less \
     one interval, so that a run's queries do not meet what a load wrote earlier. Set the same value for \
     both.",
)
.unit("since 1970, in ms if timestampunits is MILLISECONDS, otherwise in s");
/// Number of keys.
pub const KEYS: Property = Property::ycsb(
    "fieldcount",
    Kind::POSITIVE,
    "Number of keys of time series (metrics), not of fields as in the core workload. Must be at least the \
     number of clients: each client writes the series of its own keys.",
)
.default("10")
.unit("keys");
/// Length of a key.
pub const KEY_LENGTH: Property =
    Property::ycsb("fieldlength", Kind::Count { min: 1, max: NAME_LENGTH_MAX }, "Letters of a key.")
        .default("100")
        .unit("letters");
/// Name of the timestamp field.
pub const TIMESTAMP_KEY: Property = Property::ycsb(
    "timestampkey",
    Kind::Text,
    "Name of the field that holds the timestamp, and of the timestamp in queries.",
)
.default("YCSBTS");
/// Name of the value field.
pub const VALUE_KEY: Property =
    Property::ycsb("valuekey", Kind::Text, "Name of the field that holds the value.").default("YCSBV");
/// Time between data points.
pub const TIMESTAMP_INTERVAL: Property = Property::ycsb(
    "timestampinterval",
    Kind::Count { min: 1, max: i32::MAX as u64 },
    "Time between two data points of a series.",
)
.default("60")
.unit("timestampunits");
/// Unit of time.
pub const TIMESTAMP_UNITS: Property = Property::ycsb(
    "timestampunits",
    Kind::Choice(&["SECONDS", "MILLISECONDS", "MINUTES", "HOURS", "DAYS"]),
    "Unit of timestampinterval. Timestamps count milliseconds for MILLISECONDS, otherwise seconds; with MINUTES, \
     HOURS or DAYS, querytimespan and delays are in seconds too unless exacttimeseries is set.",
)
.default("SECONDS");
/// Order of timestamps.
pub const RANDOM_TIMESTAMPS: Property = Property::ycsb(
    "randomwritetimestamporder",
    Kind::Flag,
    "Whether timestamps are written in random order, each once, instead of in increasing order.",
)
.default("false");
/// Order of series.
pub const RANDOM_SERIES: Property = Property::ycsb(
    "randomtimeseriesorder",
    Kind::Flag,
    "Whether keys and tag values are shuffled. The order is the same for all runs, so that a run queries \
     series that a load wrote (YCSB's differs from run to run). Not with dataintegrity.",
)
.default("true");
/// Type of values.
pub const VALUE_TYPE: Property = Property::ycsb(
    "valuetype",
    Kind::Choice(&["integers", "floats", "mixednumbers"]),
    "Values: integers (any 32 bits, stored as 64), floats (from 0 to 100000), or mixednumbers (half of each). \
     dataintegrity needs integers.",
)
.default("floats");
/// Number of tags.
pub const TAG_COUNT: Property =
    Property::ycsb("tagcount", Kind::Count { min: 0, max: TAGS_MAX }, "Tags per time series.")
        .default("4")
        .unit("tags");
/// Number of values of each tag.
pub const TAG_CARDINALITY: Property = Property::ycsb(
    "tagcardinality",
    Kind::Numbers,
    "Number of values of each tag, separated by commas. Tags without a number have 1 value; numbers \
     without a tag are ignored. The product is the number of series per key. Put 1s first: YCSB's order \
     of writing leaves out the series after them.",
)
.default("1, 2, 4, 8")
.unit("values");
/// Length of a tag's name.
pub const TAG_KEY_LENGTH: Property =
    Property::ycsb("tagkeylength", Kind::Count { min: 1, max: NAME_LENGTH_MAX }, "Letters of a tag's name.")
        .default("8")
        .unit("letters");
/// Length of a tag's value.
pub const TAG_VALUE_LENGTH: Property = Property::ycsb(
    "tagvaluelength",
    Kind::Count { min: 1, max: NAME_LENGTH_MAX },
    "Letters of a tag's value.",
)
.default("8")
.unit("letters");
/// Delimiter of name and value.
pub const PAIR_DELIMITER: Property = Property::ycsb(
    "tagpairdelimiter",
    Kind::Text,
    "Delimiter between a name and its value in queries: AA=AB, YCSBTS=1483228800.",
)
.default("=");
/// Delimiter of the parts of a delete.
pub const DELETE_DELIMITER: Property = Property::ycsb(
    "deletedelimiter",
    Kind::Text,
    "Delimiter between key, tags and timestamp in the key of a delete: AA:AA=AB:YCSBTS=1483228800.",
)
.default(":");
/// Sparsity of the series.
pub const SPARSITY: Property = Property::ycsb(
    "sparsity",
    Kind::FRACTION,
    "Sparsity of the series. YCSB's rule: each write advances by max(1, uniform below floor(sparsity x \
     series per key)) series, so that far fewer points are written than the number says. With \
     exacttimeseries: the share of points left out.",
)
.default("0.00");
/// Share of series that are delayed.
pub const DELAYED_SERIES: Property = Property::ycsb(
    "delayedseries",
    Kind::FRACTION,
    "Share of the series (the first ones) whose inserts carry earlier timestamps: series i lags by i mod \
     delayedintervals intervals.",
)
.default("0.10");
/// One more than the longest delay, in intervals.
pub const DELAYED_INTERVALS: Property = Property::ycsb(
    "delayedintervals",
    Kind::Count { min: 0, max: i32::MAX as u64 },
    "One more than the largest lag of a delayed series, in intervals. 0 and 1: no delay.",
)
.default("5")
.unit("timestampinterval");
/// Time span of a query.
pub const QUERY_TIMESPAN: Property = Property::ycsb(
    "querytimespan",
    Kind::Count { min: 0, max: i32::MAX as u64 },
    "Time from the first to the last timestamp of a query. 0: a single timestamp. Not with dataintegrity.",
)
.default("0")
.unit("as timestamps; with exacttimeseries timestampunits");
/// Whether the span is random.
pub const QUERY_RANDOM_TIMESPAN: Property = Property::ycsb(
    "queryrandomtimespan",
    Kind::Flag,
    "Whether each query spans a random number of intervals, from 0 to below querytimespan (with exacttimeseries: up \
     to it).",
)
.default("false");
/// Delimiter of the two timestamps of a query.
pub const QUERY_TIMESPAN_DELIMITER: Property = Property::ycsb(
    "querytimespandelimiter",
    Kind::Text,
    "Delimiter between the first and the last timestamp of a query: YCSBTS=123,456.",
)
.default(",");
/// Name of the grouping field.
pub const GROUP_BY_KEY: Property =
    Property::ycsb("groupbykey", Kind::Text, "Name of the grouping function in reads and scans.")
        .default("YCSBGB");
/// Grouping function.
pub const GROUP_BY_FUNCTION: Property = Property::ycsb(
    "groupbyfunction",
    Kind::Text,
    "Function by which queries group series, such as sum: YCSBGB=sum. Needs groupbykeys. Empty: no grouping.",
);
/// Tags to group by.
pub const GROUP_BY_KEYS: Property = Property::ycsb(
    "groupbykeys",
    Kind::Numbers,
    "For each tag, separated by commas: 1 if queries group by it and name it without a value, else 0.",
);
/// Name of the downsampling field.
pub const DOWNSAMPLING_KEY: Property =
    Property::ycsb("downsamplingkey", Kind::Text, "Name of the downsampling function in reads and scans.")
        .default("YCSBDS");
/// Downsampling function.
pub const DOWNSAMPLING_FUNCTION: Property = Property::ycsb(
    "downsamplingfunction",
    Kind::Text,
    "Function by which queries reduce the resolution: with sum and an interval of 60, reads carry YCSBDS=sum60 and \
     scans YCSBDS=sum=60. Needs downsamplinginterval. Empty: no downsampling.",
);
/// Downsampling interval.
pub const DOWNSAMPLING_INTERVAL: Property = Property::ycsb(
    "downsamplinginterval",
    Kind::Count { min: 0, max: i32::MAX as u64 },
    "Time that downsampling combines into one point; passed to the store unchanged.",
)
.unit("the store's");
/// Distribution of keys.
pub const REQUEST_DISTRIBUTION: Property = Property::ycsb(
    "requestdistribution",
    Kind::Choice(&["uniform", "sequential", "zipfian", "hotspot"]),
    "Distribution of the keys of reads; scans and deletes choose uniformly. zipfian is YCSB's, as in the \
     core workload.",
)
.default("uniform");
/// Whether values can be verified.
pub const DATA_INTEGRITY: Property = Property::ycsb(
    "dataintegrity",
    Kind::Flag,
    "Whether values are derived from tags and timestamp, and reads verify them (VERIFY in the results). \
     Must be set for the load too. Needs valuetype=integers, randomtimeseriesorder=false and insertstart; \
     not with grouping, downsampling or querytimespan.",
)
.default("false");
/// Whether YCSB's faults are fixed.
pub const EXACT: Property = Property::serval(
    "exacttimeseries",
    Kind::Flag,
    "Whether to correct YCSB's deviations from its own description: sparsity is a share; every series is \
     written, whatever tagcardinality is; delays, updates and query spans count in timestampunits; random \
     timestamps begin at insertstart; dataintegrity derives values also from the key, and from the stored \
     timestamp; an empty read is an error. Set it for load and run alike.",
)
.default("false");
/// A misspelled property of YCSB's files.
pub const DELAYED_SERIES_SLIP: Property = Property::ignored(
    "delayedSeries",
    "YCSB's own time series files use this spelling, but YCSB, as Serval, reads delayedseries.",
);
/// A misspelled property of YCSB's files.
pub const DELAYED_INTERVALS_SLIP: Property = Property::ignored(
    "delayedIntervals",
    "YCSB's own time series files use this spelling, but YCSB, as Serval, reads delayedintervals.",
);

/// Longest name. A client holds several in memory.
pub const NAME_LENGTH_MAX: u64 = 1 << 20;

/// Most tags. Each is a field of every record.
pub const TAGS_MAX: u64 = 10_000;

/// Table of the time series workload's properties.
pub const PROPERTIES: PropertyTable = PropertyTable {
    heading: "time series workload",
    properties: &[
        &core::TABLE,
        &RECORD_COUNT,
        &INSERT_START,
        &INSERT_COUNT,
        &KEYS,
        &KEY_LENGTH,
        &TAG_COUNT,
        &TAG_CARDINALITY,
        &TAG_KEY_LENGTH,
        &TAG_VALUE_LENGTH,
        &TIMESTAMP_INTERVAL,
        &TIMESTAMP_UNITS,
        &TIMESTAMP_KEY,
        &VALUE_KEY,
        &VALUE_TYPE,
        &RANDOM_TIMESTAMPS,
        &RANDOM_SERIES,
        &SPARSITY,
        &DELAYED_SERIES,
        &DELAYED_INTERVALS,
        &DELAYED_SERIES_SLIP,
        &DELAYED_INTERVALS_SLIP,
        &PAIR_DELIMITER,
        &DELETE_DELIMITER,
        &QUERY_TIMESPAN,
        &QUERY_RANDOM_TIMESPAN,
        &QUERY_TIMESPAN_DELIMITER,
        &GROUP_BY_KEY,
        &GROUP_BY_FUNCTION,
        &GROUP_BY_KEYS,
        &DOWNSAMPLING_KEY,
        &DOWNSAMPLING_FUNCTION,
        &DOWNSAMPLING_INTERVAL,
        &DATA_INTEGRITY,
        &EXACT,
        &core::READ_PROPORTION,
        &core::UPDATE_PROPORTION,
        &core::INSERT_PROPORTION,
        &core::SCAN_PROPORTION,
        &core::DELETE_PROPORTION,
        &REQUEST_DISTRIBUTION,
        &core::HOTSPOT_DATA_FRACTION,
        &core::HOTSPOT_OPERATION_FRACTION,
        &core::MAX_SCAN_LENGTH,
        &core::SCAN_LENGTH_DISTRIBUTION,
    ],
};
