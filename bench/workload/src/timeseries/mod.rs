//! Time series: data points in time order, and queries for one timestamp or a
//! span. Compatible with YCSB's `TimeSeriesWorkload`, its data sets and its
//! files.
//!
//! A series is a key with a value for each of some tags. A data point is a
//! record under the series' key. Its fields are the tags, the timestamp
//! (`YCSBTS`) and the value (`YCSBV`), sorted by name; the last two are numbers
//! of 8 bytes, see [`number`]. Each client writes the series of its own keys:
//! all of them for one timestamp, then for the next timestamp. An update writes
//! an older timestamp.
//!
//! Queries are encoded in the field names of a read or scan, and in the key of a
//! delete, so that stores need no further operation:
//!
//! | field | meaning |
//! |---|---|
//! | `AA=AB` | a tag and its value; `AA` alone to group by it |
//! | `YCSBTS=123` or `YCSBTS=123,456` | a timestamp, or the first and last of a span |
//! | `YCSBGB=sum` | grouping |
//! | `YCSBDS=sum60`, in scans `YCSBDS=sum=60` | downsampling |
//!
//! A delete's key is `KEY:AA=AB:AB=AC:YCSBTS=123`.
//!
//! # Faults of YCSB
//!
//! These stop YCSB and are fixed here:
//!
//! 1. `groupbyfunction`: a null pointer when the workload opens; grouping
//!    never worked.
//! 2. An update at a client's first timestamp: there is none older, and Java's
//!    `nextInt(0)` throws. So does every run that starts with an update. Serval
//!    writes the first timestamp again. With random timestamps "older" is
//!    negative half of the time, with the same effect.
//! 3. Fewer data points than series: the range of queries is empty
//!    (`nextInt(0)`, a division by zero). In Serval it is the first timestamp.
//! 4. `queryrandomtimespan` with a span below the interval: `nextInt(0)`. In
//!    Serval the span is empty.
//! 5. `sparsity` below 1/(series per key): `nextInt(0)`. Serval omits no point.
//! 6. `delayedintervals=0`: a division by zero. In Serval there is no delay.
//! 7. Fewer cardinalities than tags: only one of the missing ones is set to 1,
//!    the others to 0, and queries throw. Serval sets all to 1.
//! 8. `tagcount=0`: an index out of bounds. In Serval series are keys.
//! 9. Exhausted random timestamps stop the client. In Serval the next range
//!    follows. YCSB is limited to 2^24 of them; in Serval they take no memory.
//! 10. An insert that the store added to a batch (BATCHED_OK) stops a load. In
//!     Serval it counts as done.
//! 11. `deleteproportion` is not read, so there are no deletes. Serval reads it.
//! 12. `readmodifywriteproportion` ends a client silently. Serval refuses it, a
//!     `timestampinterval` of 0 or below, and duplicate field names, of which
//!     YCSB omits one.
//! 13. 32-bit counts and products. In Serval they have 64 bits.
//!
//! These go wrong silently. Serval keeps them, for compatibility with data that
//! YCSB loaded; `exacttimeseries=true` fixes all but the last two:
//!
//! 1. A tag of one value after one of several makes the write order skip some
//!    series for ever (with `2,1` and two keys, half of them). Serval warns.
//! 2. `sparsity` s omits far more than its share: with V series per key and
//!    n = floor(s V), 2n/(n^2 - n + 2) of the points remain instead of 1 - s.
//!    For V = 64 and s = 0.5 that is 6.4 %.
//! 3. Values of `dataintegrity` depend on the timestamp before it is delayed or
//!    made older: delayed points and updates fail verification. They do not
//!    depend on the key, and a read that returns no record passes.
//! 4. With MINUTES, HOURS or DAYS, delays, updates and query spans are in
//!    seconds.
//! 5. Random timestamps begin one interval before `insertstart`, and queries
//!    count from the timestamp that the client happened to draw first.
//! 6. `queryrandomtimespan` never reaches the whole `querytimespan`.
//! 7. Reads and scans encode downsampling differently.
//! 8. Keys of scans and deletes are uniform for any `requestdistribution`.

mod client;
pub mod number;
pub mod properties;
mod series;
mod timestamps;

use crate::{
    core::{Circumstances, Phase, YCSB_ZIPFIAN, properties as c},
    distribution::{
        Discrete, DistributionError, Hotspot, KeyChooser, LengthChooser, ScrambledZipfian, Sequential,
        Uniform, Zipfian,
    },
    random::Rng,
    workload::{ClientWorkload, Demand, Place, Workload},
};
use client::{FieldSlot, SeriesClient};
use properties as p;
use series::{Cardinality, SERIES_MAX, SeriesNames, names_of, write_name};
use serval_model::{
    OperationKind, Schema,
    properties::{Property, Reader},
};
use std::{sync::Arc, time::Duration};

/// Number of data points of a run without recordcount.
const RECORDS_UNKNOWN: u64 = i32::MAX as u64;

/// Type of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueType {
    Integers,
    Floats,
    Mixed,
}

/// Timestamps of data points.
#[derive(Debug)]
struct SeriesClock {
    /// The first timestamp.
    start: i64,
    /// Step between timestamps.
    step: i64,
    /// Unit of delays, updates and spans: `step`, or as in YCSB the number without its
    /// unit.
    interval: i64,
    /// Number of timestamps that a load writes for all series, at least 1.
    ticks: u64,
    /// Start of random timestamps, and size of a range.
    shuffled: Option<(i64, u64)>,
}

#[derive(Debug)]
struct Grouping {
    field: String,
    tags: Vec<bool>,
}

#[derive(Debug)]
struct Downsampling {
    read: String,
    scan: String,
}

/// Format of queries.
#[derive(Debug)]
struct QueryFormat {
    pair_delimiter: String,
    delete_delimiter: String,
    span_delimiter: String,
    /// Time between first and last timestamp; 0 for one timestamp.
    span: i64,
    /// Number of possible spans: 0, 1, ... intervals.
    random_spans: Option<u64>,
    grouping: Option<Grouping>,
    downsampling: Option<Downsampling>,
}

impl QueryFormat {
    fn grouped(&self, tag: usize) -> bool {
        self.grouping.as_ref().is_some_and(|grouping| grouping.tags[tag])
    }
}

#[derive(Debug)]
struct SeriesShared {
    phase: Phase,
    table: String,
    exact: bool,
    integrity: bool,
    keys: SeriesNames,
    tags: Vec<String>,
    tag_values: SeriesNames,
    cardinality: Cardinality,
    timestamp_key: String,
    value_key: String,
    /// Fields of a record, sorted by name.
    slots: Vec<FieldSlot>,
    value_type: ValueType,
    clock: SeriesClock,
    sparsity: f64,
    delayed_series: f64,
    delayed_intervals: u64,
    query: QueryFormat,
    mix: Discrete,
    actions: Vec<OperationKind>,
    demands: Vec<Demand>,
    chooser: KeyChooser,
    scan_lengths: LengthChooser,
    load_count: u64,
    warnings: Vec<String>,
}

/// The time series workload.
#[derive(Debug, Clone)]
pub struct TimeSeriesWorkload(Arc<SeriesShared>);

fn noted<T>(reader: &mut Reader<'_>, property: &Property, result: Result<T, DistributionError>) -> Option<T> {
    result.map_err(|error| reader.fault(property, error)).ok()
}

/// Reads the operations' shares, whose sum must be above zero.
fn mix(reader: &mut Reader<'_>) -> Option<(Vec<OperationKind>, Discrete, Vec<Demand>)> {
    let shares = [
        (&c::READ_PROPORTION, OperationKind::Read),
        (&c::UPDATE_PROPORTION, OperationKind::Update),
        (&c::INSERT_PROPORTION, OperationKind::Insert),
        (&c::SCAN_PROPORTION, OperationKind::Scan),
        (&c::DELETE_PROPORTION, OperationKind::Delete),
    ];
    if reader.number(&c::READ_MODIFY_WRITE_PROPORTION) > 0.0 {
        reader.fault(&c::READ_MODIFY_WRITE_PROPORTION, "time series have no read-modify-write: set it to 0");
    }
    let (mut actions, mut weights, mut demands) = (Vec::new(), Vec::new(), Vec::new());
    for (property, kind) in shares {
        let share = reader.number(property);
        if share > 0.0 {
            actions.push(kind);
            weights.push(share);
            demands.push(Demand { kind, because: format!("{}={share}", property.name) });
        }
    }
    if actions.is_empty() {
        let names = shares.map(|(property, _)| property.name).join(", ");
        reader.fault_overall(format!("there is nothing to do: all of {names} are 0"));
        return None;
    }
    let mix = Discrete::new(&weights).map_err(|error| reader.fault_overall(error.to_string())).ok()?;
    Some((actions, mix, demands))
}

/// Reads whole numbers separated by commas, at most one per tag.
fn numbers(reader: &mut Reader<'_>, property: &Property, most: usize) -> Option<Vec<u64>> {
    let text = reader.text(property);
    let parsed: Result<Vec<u64>, &str> =
        text.split(',').map(str::trim).take(most).map(|part| part.parse().map_err(|_| part)).collect();
    parsed.map_err(|part| reader.fault(property, format!("'{part}' is not a whole number"))).ok()
}

/// Reads a non-empty text.
fn some_text(reader: &Reader<'_>, property: &Property) -> Option<String> {
    reader.optional_text(property).filter(|text| !text.is_empty())
}

/// Reads keys, tags and their values; returns warnings too.
fn names(
    reader: &mut Reader<'_>,
    facts: &Circumstances,
    exact: bool,
    warnings: &mut Vec<String>,
) -> Option<(SeriesNames, Vec<String>, SeriesNames, Cardinality)> {
    let shuffled = reader.flag(&p::RANDOM_SERIES);
    let keys = reader.count(&p::KEYS).max(1);
    if keys < facts.clients as u64 {
        let clients = facts.clients;
        let problem =
            format!("must be at least the number of clients, {clients}: each writes keys of its own");
        reader.fault(&p::KEYS, problem);
    }
    let tag_count = reader.count(&p::TAG_COUNT) as usize;
    let [key_length, tag_length, value_length] =
        [&p::KEY_LENGTH, &p::TAG_KEY_LENGTH, &p::TAG_VALUE_LENGTH].map(|length| reader.count(length).max(1));
    if let Some(names) = names_of(tag_length).filter(|names| *names < tag_count as u64) {
        let problem =
            format!("{tag_count} tags need as many names, and there are only {names} of this length");
        reader.fault(&p::TAG_KEY_LENGTH, problem);
    }
    let mut counts = numbers(reader, &p::TAG_CARDINALITY, tag_count)?;
    if counts.contains(&0) {
        reader.fault(&p::TAG_CARDINALITY, "every tag needs at least 1 value");
        return None;
    }
    counts.resize(tag_count, 1);
    let Some(cardinality) = Cardinality::new(keys, &counts, exact) else {
        let problem = format!("times fieldcount={keys} makes more than {SERIES_MAX} series");
        reader.fault(&p::TAG_CARDINALITY, problem);
        return None;
    };
    if cardinality.is_broken() {
        warnings.push(
            "tagcardinality has a 1 after a larger number: as in YCSB, some series are never written. Put the 1s \
             first, or set exacttimeseries=true"
                .into(),
        );
    }
    let most_values = counts.iter().copied().max().unwrap_or(1);
    for (property, count, length) in
        [(&p::KEY_LENGTH, keys, key_length), (&p::TAG_VALUE_LENGTH, most_values, value_length)]
    {
        if let Some(names) = names_of(length).filter(|names| *names < count) {
            let name = property.name;
            warnings.push(format!(
                "{name}={length} has only {names} different names for {count}: some series are the same"
            ));
        }
    }
    let tags = (0..tag_count as u64)
        .map(|tag| {
            let mut name = String::new();
            write_name(&mut name, tag, tag_length as usize);
            name
        })
        .collect();
    let keys = SeriesNames::new(keys, key_length as usize, shuffled);
    let values = SeriesNames::new(most_values, value_length as usize, shuffled);
    let keys = noted(reader, &p::KEYS, keys);
    Some((keys?, tags, noted(reader, &p::TAG_CARDINALITY, values)?, cardinality))
}

/// Returns the seconds, or milliseconds, of a unit.
fn unit_factor(reader: &mut Reader<'_>) -> (i64, bool) {
    match reader.choice(&p::TIMESTAMP_UNITS) {
        "MILLISECONDS" => (1, true),
        "MINUTES" => (60, false),
        "HOURS" => (60 * 60, false),
        "DAYS" => (24 * 60 * 60, false),
        _ => (1, false),
    }
}

fn clock(reader: &mut Reader<'_>, series: u64, exact: bool, now: Duration) -> Option<SeriesClock> {
    let (factor, milliseconds) = unit_factor(reader);
    let bare = reader.count(&p::TIMESTAMP_INTERVAL).max(1) as i64;
    let step = bare * factor;
    let now = if milliseconds { now.as_millis() as i64 } else { now.as_secs() as i64 };
    // As in YCSB, an empty text is no start.
    let given = some_text(reader, &p::INSERT_START).and_then(|_| reader.optional_count(&p::INSERT_START));
    let start = given.map_or(now - step, |start| start as i64);
    let records = Some(reader.count(&p::RECORD_COUNT)).filter(|count| *count > 0).unwrap_or(RECORDS_UNKNOWN);
    let ticks = (records / series).max(1);
    let last = i128::from(start) + i128::from(ticks) * i128::from(step);
    if last > i128::from(i64::MAX) {
        let problem = format!("{ticks} timestamps of {step} from {start} on go beyond 2^63");
        reader.fault(&p::RECORD_COUNT, problem);
        return None;
    }
    let shuffled = if reader.flag(&p::RANDOM_TIMESTAMPS) {
        let (base, range) = match (exact, given.is_some()) {
            (true, _) => (start, records.div_ceil(series)),
            (false, true) => (start - step, records / series + 1),
            (false, false) => (start, records / series + 1),
        };
        // Checks that it can be created.
        let order = crate::distribution::Bijection::new(range, 0);
        noted(reader, &p::RECORD_COUNT, order)?;
        Some((base, range))
    } else {
        None
    };
    Some(SeriesClock { start, step, interval: if exact { step } else { bare }, ticks, shuffled })
}

fn query(reader: &mut Reader<'_>, tags: usize, exact: bool, clock: &SeriesClock) -> Option<QueryFormat> {
    let pair_delimiter = reader.text(&p::PAIR_DELIMITER);
    let mut span = reader.count(&p::QUERY_TIMESPAN) as i64;
    if exact {
        span *= unit_factor(reader).0;
    }
    let intervals = (span / clock.interval) as u64;
    let spans = if exact { intervals + 1 } else { intervals };
    let grouping = match some_text(reader, &p::GROUP_BY_FUNCTION) {
        None => None,
        Some(function) => {
            if some_text(reader, &p::GROUP_BY_KEYS).is_none() {
                reader.fault(&p::GROUP_BY_KEYS, "groupbyfunction needs it: for each tag 1 or 0");
                return None;
            }
            let flags = numbers(reader, &p::GROUP_BY_KEYS, usize::MAX)?;
            if flags.len() != tags {
                let problem = format!("has {} numbers, and there are {tags} tags (tagcount)", flags.len());
                reader.fault(&p::GROUP_BY_KEYS, problem);
                return None;
            }
            let field = format!("{}{pair_delimiter}{function}", reader.text(&p::GROUP_BY_KEY));
            Some(Grouping { field, tags: flags.into_iter().map(|flag| flag != 0).collect() })
        }
    };
    let downsampling = match some_text(reader, &p::DOWNSAMPLING_FUNCTION) {
        None => None,
        Some(function) => {
            if some_text(reader, &p::DOWNSAMPLING_INTERVAL).is_none() {
                reader.fault(&p::DOWNSAMPLING_INTERVAL, "downsamplingfunction needs it");
                return None;
            }
            let interval = reader.count(&p::DOWNSAMPLING_INTERVAL);
            let begin = format!("{}{pair_delimiter}{function}", reader.text(&p::DOWNSAMPLING_KEY));
            let (read, scan) = (format!("{begin}{interval}"), format!("{begin}{pair_delimiter}{interval}"));
            Some(Downsampling { read, scan })
        }
    };
    let random_spans = reader.flag(&p::QUERY_RANDOM_TIMESPAN).then_some(spans.max(1));
    Some(QueryFormat {
        pair_delimiter,
        delete_delimiter: reader.text(&p::DELETE_DELIMITER),
        span_delimiter: reader.text(&p::QUERY_TIMESPAN_DELIMITER),
        span,
        random_spans,
        grouping,
        downsampling,
    })
}

/// Reports all settings that YCSB refuses with `dataintegrity`.
fn check_integrity(reader: &mut Reader<'_>) {
    let mut wrong = Vec::new();
    if reader.choice(&p::VALUE_TYPE) != "integers" {
        wrong.push("valuetype=integers");
    }
    if some_text(reader, &p::GROUP_BY_FUNCTION).is_some() {
        wrong.push("no groupbyfunction");
    }
    if some_text(reader, &p::DOWNSAMPLING_FUNCTION).is_some() {
        wrong.push("no downsamplingfunction");
    }
    if reader.count(&p::QUERY_TIMESPAN) > 0 {
        wrong.push("querytimespan=0");
    }
    if reader.flag(&p::RANDOM_SERIES) {
        wrong.push("randomtimeseriesorder=false");
    }
    if some_text(reader, &p::INSERT_START).is_none() {
        wrong.push("insertstart, the first timestamp");
    }
    if !wrong.is_empty() {
        reader.fault(&p::DATA_INTEGRITY, format!("needs {}", wrong.join(", ")));
    }
}

fn chooser(reader: &mut Reader<'_>) -> Option<KeyChooser> {
    let last = reader.count(&p::KEYS).max(1) - 1;
    let result = match reader.choice(&p::REQUEST_DISTRIBUTION) {
        "sequential" => Sequential::new(0, last).map(KeyChooser::Sequential),
        "zipfian" => ScrambledZipfian::new(0, last, YCSB_ZIPFIAN).map(KeyChooser::Zipfian),
        "hotspot" => {
            let hot = reader.number(&c::HOTSPOT_DATA_FRACTION);
            let share = reader.number(&c::HOTSPOT_OPERATION_FRACTION);
            Hotspot::new(0, last, hot, share).map(KeyChooser::Hotspot)
        }
        _ => Uniform::new(0, last).map(KeyChooser::Uniform),
    };
    noted(reader, &p::REQUEST_DISTRIBUTION, result)
}

fn scan_lengths(reader: &mut Reader<'_>) -> Option<LengthChooser> {
    let most = reader.count(&c::MAX_SCAN_LENGTH);
    let lengths = match reader.choice(&c::SCAN_LENGTH_DISTRIBUTION) {
        "zipfian" => Zipfian::new(1, most, YCSB_ZIPFIAN).map(LengthChooser::Zipfian),
        _ => Uniform::new(1, most).map(LengthChooser::Uniform),
    };
    noted(reader, &c::MAX_SCAN_LENGTH, lengths)
}

/// Returns the fields of a record in the order of Java's `TreeMap`.
fn slots(tags: &[String], timestamp_key: &str, value_key: &str) -> Vec<FieldSlot> {
    let mut slots: Vec<(&str, FieldSlot)> =
        tags.iter().enumerate().map(|(tag, name)| (name.as_str(), FieldSlot::Tag(tag))).collect();
    slots.push((timestamp_key, FieldSlot::Timestamp));
    slots.push((value_key, FieldSlot::Value));
    slots.sort_by_key(|(name, _)| *name);
    slots.into_iter().map(|(_, slot)| slot).collect()
}

impl TimeSeriesWorkload {
    /// Reads the properties. `now` is the time since 1970, at which timestamps start
    /// without `insertstart`. Reports faults to the reader; returns `None` if nothing
    /// can be built.
    pub fn open(reader: &mut Reader<'_>, facts: &Circumstances, now: Duration) -> Option<TimeSeriesWorkload> {
        let mut warnings = Vec::new();
        let exact = reader.flag(&p::EXACT);
        let integrity = reader.flag(&p::DATA_INTEGRITY);
        if integrity {
            check_integrity(reader);
        }
        let names = names(reader, facts, exact, &mut warnings);
        let clock = clock(reader, names.as_ref().map_or(1, |names| names.3.total), exact, now);
        let tag_count = reader.count(&p::TAG_COUNT) as usize;
        let query = clock.as_ref().and_then(|clock| query(reader, tag_count, exact, clock));
        let sparsity = reader.number(&p::SPARSITY);
        if exact && sparsity >= 1.0 {
            reader
                .fault(&p::SPARSITY, "must be below 1: with exacttimeseries, 1 would leave out every point");
        }
        let (timestamp_key, value_key) = (reader.text(&p::TIMESTAMP_KEY), reader.text(&p::VALUE_KEY));
        if timestamp_key == value_key {
            reader.fault(&p::VALUE_KEY, "must differ from timestampkey: both are fields of a record");
        }
        let given_records = reader.count(&p::RECORD_COUNT);
        let load_count = reader.optional_count(&p::INSERT_COUNT).unwrap_or(given_records);
        if facts.phase == Phase::Load && load_count == 0 {
            reader.fault_overall("nothing says how many data points to load: set recordcount or insertcount");
        }
        let mix = mix(reader);
        let scan_lengths = scan_lengths(reader);
        let value_type = match reader.choice(&p::VALUE_TYPE) {
            "integers" => ValueType::Integers,
            "mixednumbers" => ValueType::Mixed,
            _ => ValueType::Floats,
        };
        let (delayed_series, delayed_intervals) =
            (reader.number(&p::DELAYED_SERIES), reader.count(&p::DELAYED_INTERVALS));
        let chooser = chooser(reader);
        let (keys, tags, tag_values, cardinality) = names?;
        for (property, name) in [(&p::TIMESTAMP_KEY, &timestamp_key), (&p::VALUE_KEY, &value_key)] {
            if tags.contains(name) {
                reader.fault(property, "is the name of a tag too: both are fields of a record");
            }
        }
        let (actions, mix, demands) = mix?;
        let asks = demands.iter().any(|d| !matches!(d.kind, OperationKind::Insert | OperationKind::Update));
        if facts.phase == Phase::Run && asks && some_text(reader, &p::INSERT_START).is_none() {
            warnings.push(
                "insertstart is not set, so timestamps began at the start of this run: queries did not meet what an \
                 earlier load wrote. Set it to the same first timestamp for load and run"
                    .into(),
            );
        }
        Some(TimeSeriesWorkload(Arc::new(SeriesShared {
            phase: facts.phase,
            table: reader.text(&c::TABLE),
            exact,
            integrity,
            keys,
            slots: slots(&tags, &timestamp_key, &value_key),
            tags,
            tag_values,
            cardinality,
            timestamp_key,
            value_key,
            value_type,
            clock: clock?,
            sparsity,
            delayed_series,
            delayed_intervals,
            query: query?,
            mix,
            actions,
            demands,
            chooser: chooser?,
            scan_lengths: scan_lengths?,
            load_count,
            warnings,
        })))
    }

    /// Returns the number of time series.
    pub fn series(&self) -> u64 {
        self.0.cardinality.total
    }
}

impl Workload for TimeSeriesWorkload {
    fn schema(&self) -> Schema {
        let name = |slot: &FieldSlot| match *slot {
            FieldSlot::Tag(tag) => self.0.tags[tag].clone(),
            FieldSlot::Timestamp => self.0.timestamp_key.clone(),
            FieldSlot::Value => self.0.value_key.clone(),
        };
        Schema { table: self.0.table.clone(), fields: self.0.slots.iter().map(name).collect() }
    }

    fn demands(&self) -> Vec<Demand> {
        match self.0.phase {
            Phase::Load => vec![Demand { kind: OperationKind::Insert, because: "a load".into() }],
            Phase::Run => self.0.demands.clone(),
        }
    }

    fn units(&self) -> Option<u64> {
        (self.0.phase == Phase::Load).then_some(self.0.load_count)
    }

    fn verifies(&self) -> bool {
        self.0.integrity && self.0.phase == Phase::Run
    }

    fn client(&self, place: Place, rng: Rng) -> Box<dyn ClientWorkload> {
        Box::new(SeriesClient::new(Arc::clone(&self.0), place, rng))
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings.clone()
    }
}
