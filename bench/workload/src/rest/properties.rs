//! The REST workload's properties: YCSB's, and Serval's additions.

use crate::core::properties as core;
use serval_model::properties::{Kind, Property, PropertyTable};

/// Distributions of URLs.
const DISTRIBUTIONS: Kind =
    Kind::Choice(&["uniform", "zipfian", "hotspot", "exponential", "sequential", "exactzipfian"]);

const SAME: &str = "Distribution of the URLs of this verb. If unset: requestdistribution.";

/// Exponent of Zipf's law.
const EXPONENT: Kind = Kind::Number { min: 0.0, max: 100.0 };

const EXPONENT_MEANING: &str = "Exponent of Zipf's law for this verb, with requestdistribution zipfian (below 1) or exactzipfian (above 0).";

const TOP: &str =
    "Number of URLs used, from the start of the trace. If unset, or if the trace has fewer: all.";

/// The properties of one operation kind.
#[derive(Debug, Clone, Copy)]
pub struct Verb {
    /// Share of the operations.
    pub proportion: &'static Property,
    /// File of its URLs.
    pub trace: &'static Property,
    /// Number of URLs that are used.
    pub count: &'static Property,
    /// Distribution of URLs.
    pub distribution: &'static Property,
    /// Exponent of Zipf's law.
    pub exponent: &'static Property,
}

macro_rules! verb {
    ($verb:ident, $word:literal, $http:literal, $proportion:ident,
     $trace:ident, $count:ident, $distribution:ident, $exponent:ident) => {
        #[doc = concat!("Trace of ", $word, "s.")]
        pub const $trace: Property = Property::ycsb(
            concat!("url.trace.", $word),
            Kind::Path,
            concat!(
                "File of the URLs for HTTP ",
                $http,
                ", one per line; the store prepends its prefix. Read only if ",
                $word,
                "proportion is above 0."
            ),
        )
        .default(concat!($word, "trace.txt"));
        #[doc = concat!("Number of URLs of ", $word, "s that are used.")]
        pub const $count: Property =
            Property::ycsb(concat!($word, "recordcount"), Kind::POSITIVE, TOP).unit("URLs");
        #[doc = concat!("Distribution of the URLs of ", $word, "s.")]
        pub const $distribution: Property =
            Property::serval(concat!($word, "requestdistribution"), DISTRIBUTIONS, SAME);
        #[doc = concat!("Exponent of Zipf's law for ", $word, "s.")]
        pub const $exponent: Property =
            Property::ycsb(concat!($word, "zipfconstant"), EXPONENT, EXPONENT_MEANING).default("0.99");
        #[doc = concat!("Properties of ", $word, "s.")]
        pub const $verb: Verb = Verb {
            proportion: &core::$proportion,
            trace: &$trace,
            count: &$count,
            distribution: &$distribution,
            exponent: &$exponent,
        };
    };
}

verb!(READ, "read", "GET", READ_PROPORTION, READ_TRACE, READ_COUNT, READ_DISTRIBUTION, READ_EXPONENT);
verb!(
    INSERT,
    "insert",
    "POST",
    INSERT_PROPORTION,
    INSERT_TRACE,
    INSERT_COUNT,
    INSERT_DISTRIBUTION,
    INSERT_EXPONENT
);
verb!(
    UPDATE,
    "update",
    "PUT",
    UPDATE_PROPORTION,
    UPDATE_TRACE,
    UPDATE_COUNT,
    UPDATE_DISTRIBUTION,
    UPDATE_EXPONENT
);
verb!(
    DELETE,
    "delete",
    "DELETE",
    DELETE_PROPORTION,
    DELETE_TRACE,
    DELETE_COUNT,
    DELETE_DISTRIBUTION,
    DELETE_EXPONENT
);

/// Distribution of URLs of all operation kinds.
pub const REQUEST_DISTRIBUTION: Property = Property::ycsb(
    "requestdistribution",
    DISTRIBUTIONS,
    "Distribution of the URLs of a trace: uniform; zipfian (YCSB's formula, the first line the most \
     popular, not scattered); hotspot (the first lines); exponential (the first lines); sequential (line \
     by line over all clients, then again from the start: the trace as recorded); exactzipfian (Serval's: \
     Zipf's law itself).",
)
.default("uniform");
/// Zipf's exponent of sizes.
pub const SIZE_EXPONENT: Property = Property::ycsb(
    "insertsizezipfconstant",
    EXPONENT,
    "Exponent of Zipf's law for the sizes of bodies, from 1 to fieldlength, with \
     fieldlengthdistribution=zipfian; below 1.",
)
.default("0.99");
/// A file property that YCSB does not read.
pub const SIZE_FILE: Property = Property::ignored(
    "fieldlengthdistfile",
    "YCSB defines it and does not read it; with fieldlengthdistribution=histogram the file is \
     fieldlengthhistogram.",
);

/// Table of the REST workload's properties.
pub const PROPERTIES: PropertyTable = PropertyTable {
    heading: "REST workload",
    properties: &[
        &core::READ_PROPORTION,
        &core::INSERT_PROPORTION,
        &core::UPDATE_PROPORTION,
        &core::DELETE_PROPORTION,
        &READ_TRACE,
        &INSERT_TRACE,
        &UPDATE_TRACE,
        &DELETE_TRACE,
        &READ_COUNT,
        &INSERT_COUNT,
        &UPDATE_COUNT,
        &DELETE_COUNT,
        &REQUEST_DISTRIBUTION,
        &READ_DISTRIBUTION,
        &INSERT_DISTRIBUTION,
        &UPDATE_DISTRIBUTION,
        &DELETE_DISTRIBUTION,
        &READ_EXPONENT,
        &INSERT_EXPONENT,
        &UPDATE_EXPONENT,
        &DELETE_EXPONENT,
        &core::HOTSPOT_DATA_FRACTION,
        &core::HOTSPOT_OPERATION_FRACTION,
        &core::EXPONENTIAL_PERCENTILE,
        &core::EXPONENTIAL_FRACTION,
        &core::FIELD_LENGTH,
        &core::MIN_FIELD_LENGTH,
        &core::FIELD_LENGTH_DISTRIBUTION,
        &core::FIELD_LENGTH_HISTOGRAM,
        &SIZE_EXPONENT,
        &SIZE_FILE,
        &core::FIELD_VALUES,
        &core::COMPRESSIBILITY,
        &core::INSERT_KEEP_GOING,
    ],
};
