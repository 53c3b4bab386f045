//! The core workload of the YCSB paper (section 4): a mix of reads, updates, inserts,
//! scans, deletes and read-modify-writes of records with several fields. A
//! distribution chooses the keys.

mod erase;
mod load;
pub mod properties;
mod range;
mod run;
mod tools;

pub use erase::Eraser;
pub use load::{LoadRecords, Loader};
pub use tools::Tools;

use crate::{
    distribution::{
        AcknowledgedCounter, Discrete, DistributionError, KeyChooser, LengthChooser, LengthHistogram,
        Uniform, Zipfian,
    },
    files::{self, InputFiles},
    keys::{KeyFormat, KeyNumbers, KeyOrder},
    random::{Random, Rng},
    values::{self, RandomBytes, RandomText},
    workload::{ClientWorkload, Demand, Place, Workload},
};
use properties as p;
use range::RecordRange;
use serval_model::{
    OperationKind, Record, Reply, Schema, Share, Status,
    properties::{Properties, Property, Reader, units::counted},
};
use std::{
    io::Read,
    ops::Range,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

/// YCSB's Zipfian constant, the exponent of its skewed distributions.
pub const YCSB_ZIPFIAN: f64 = 0.99;

/// Number of records of a run without recordcount.
const RECORDS_UNKNOWN: u64 = i32::MAX as u64;

/// Longest value, bytes. Each client keeps several records in memory.
pub(crate) const FIELD_LENGTH_MAX: u64 = 1 << 30;

/// Maximum size of a histogram file, bytes.
const HISTOGRAM_FILE_MAX: u64 = 16 << 20;

/// Number of records that are looked up to check that a store was loaded.
const SAMPLE_KEYS: u64 = 16;

/// Expected operations/s of a client without other information: 1 ms per
/// operation.
const EXPECTED_RATE: f64 = 1000.0;

/// Limits of the estimated number of inserts: at most this multiple of the records, and
/// at least this number.
const GUESSED_GROWTH: u64 = 8;
const GUESSED_INSERTS: u64 = 20_000;

/// Load or run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Insert the records.
    Load,
    /// Execute the mix of operations.
    Run,
}

/// Facts about the run that the workload depends on.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// Load or run.
    pub phase: Phase,
    /// Number of clients.
    pub clients: usize,
    /// Number of operations, if bounded.
    pub operations: Option<u64>,
    /// Duration including warm-up, if bounded.
    pub time: Option<Duration>,
    /// Offered load in operations/s, if there is one.
    pub target: Option<f64>,
    /// Whether a load resumes: records may exist.
    pub resume: bool,
    /// Whether the store has batches of inserts; otherwise a load inserts records one by one.
    pub batches: bool,
    /// This process's share of the records that are loaded or inserted. `operations`
    /// and `target` are for this process alone.
    pub share: Share,
}

/// Kind of a unit of the mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitKind {
    Operation(OperationKind),
    ReadModifyWrite,
}

/// Returns the generator of random values: `fieldvalues` and `compressibility`.
pub(crate) fn random_text(reader: &mut Reader<'_>) -> RandomText {
    let bytes = match reader.choice(&p::FIELD_VALUES) {
        "incompressible" => RandomBytes::Incompressible,
        _ => RandomBytes::Ycsb,
    };
    RandomText { bytes, compressibility: reader.number(&p::COMPRESSIBILITY) }
}

/// Generator of values.
#[derive(Debug, Clone)]
struct ValueSource {
    lengths: LengthChooser,
    integrity: bool,
    text: RandomText,
}

impl ValueSource {
    fn push(&mut self, record: &mut Record, key: &str, field: &str, rng: &mut Rng) {
        let length = self.lengths.draw(rng) as usize;
        record.push_with(field, |out| {
            if self.integrity {
                values::write_integrity(out, key, field, length);
            } else {
                self.text.write(out, length, rng);
            }
        });
    }

    fn push_all(&mut self, record: &mut Record, key: &str, fields: &[String], rng: &mut Rng) {
        for field in fields {
            self.push(record, key, field, rng);
        }
    }

    /// Verifies the data that was read.
    fn verify(&self, key: &str, reply: &Reply, scratch: &mut Vec<u8>) -> Option<Status> {
        if !self.integrity {
            return None;
        }
        let mut cells = reply.records().iter().flat_map(|record| record.iter()).peekable();
        if cells.peek().is_none() {
            return Some(Status::Error);
        }
        let length = match self.lengths {
            LengthChooser::Constant(length) => length as usize,
            // Integrity requires constant lengths, which opening has checked.
            _ => return None,
        };
        for (field, value) in cells {
            scratch.clear();
            values::write_integrity(scratch, key, field, length);
            if *scratch != value {
                return Some(Status::UnexpectedState);
            }
        }
        Some(Status::Ok)
    }
}

/// Retries of a load's failed inserts.
#[derive(Debug, Clone, Copy)]
struct Retries {
    limit: u64,
    interval: Duration,
    keep_going: bool,
}

#[derive(Debug)]
struct CoreShared {
    phase: Phase,
    table: String,
    fields: Vec<String>,
    keys: KeyFormat,
    /// Share by which processes take the numbers of new records.
    new_records: Share,
    values: ValueSource,
    mix: Discrete,
    actions: Vec<UnitKind>,
    demands: Vec<Demand>,
    chooser: KeyChooser,
    scan_lengths: LengthChooser,
    read_all: bool,
    read_by_name: bool,
    write_all: bool,
    inserts: AcknowledgedCounter,
    range: RecordRange,
    // For loads only.
    next_load: AtomicU64,
    load_count: u64,
    batch: u64,
    retries: Retries,
    resume: bool,
}

impl CoreShared {
    /// Converts this process's number of a record to the data set's: processes insert
    /// new records in round-robin order.
    #[inline]
    fn number(&self, number: u64) -> u64 {
        match number.checked_sub(self.range.records) {
            Some(own) if self.new_records != Share::WHOLE => {
                self.range.records.saturating_add(self.new_records.dealt(own))
            }
            _ => number,
        }
    }
}

/// The core workload.
#[derive(Debug, Clone)]
pub struct CoreWorkload(Arc<CoreShared>);

fn noted<T>(reader: &mut Reader<'_>, property: &Property, result: Result<T, DistributionError>) -> Option<T> {
    result.map_err(|error| reader.fault(property, error)).ok()
}

/// Reads the distribution of field lengths.
pub(crate) fn field_lengths(reader: &mut Reader<'_>, files: &dyn InputFiles) -> Option<LengthChooser> {
    let length = reader.size(&p::FIELD_LENGTH);
    let shortest = reader.size(&p::MIN_FIELD_LENGTH);
    if length > FIELD_LENGTH_MAX {
        reader.fault(&p::FIELD_LENGTH, format!("a field may have at most {FIELD_LENGTH_MAX} bytes"));
        return None;
    }
    match reader.choice(&p::FIELD_LENGTH_DISTRIBUTION) {
        "uniform" => {
            let uniform = Uniform::new(shortest, length);
            noted(reader, &p::FIELD_LENGTH, uniform).map(LengthChooser::Uniform)
        }
        "zipfian" => {
            let zipfian = Zipfian::new(shortest, length, YCSB_ZIPFIAN);
            noted(reader, &p::FIELD_LENGTH, zipfian).map(LengthChooser::Zipfian)
        }
        kind @ ("histogram" | "exacthistogram") => {
            let path = reader.path(&p::FIELD_LENGTH_HISTOGRAM).unwrap_or_default();
            match read_histogram(files, &path) {
                Ok(histogram) if kind == "histogram" => Some(LengthChooser::Histogram(histogram)),
                Ok(histogram) => Some(LengthChooser::ExactHistogram(histogram)),
                Err(problem) => {
                    reader.fault(&p::FIELD_LENGTH_HISTOGRAM, problem);
                    None
                }
            }
        }
        _ => Some(LengthChooser::Constant(length)),
    }
}

fn read_histogram(files: &dyn InputFiles, path: &Path) -> Result<LengthHistogram, String> {
    let mut bytes = Vec::new();
    let read = files::open(files, path, HISTOGRAM_FILE_MAX)?.read_to_end(&mut bytes);
    read.map_err(|error| files::unreadable(path, &error))?;
    LengthHistogram::parse(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads the operations' shares, whose sum must be above zero.
fn mix(reader: &mut Reader<'_>) -> (Vec<UnitKind>, Vec<f64>, Vec<Demand>) {
    use OperationKind::{Delete, Insert, Read, Scan, Update};
    let shares: [(&Property, UnitKind); 6] = [
        (&p::READ_PROPORTION, UnitKind::Operation(Read)),
        (&p::UPDATE_PROPORTION, UnitKind::Operation(Update)),
        (&p::INSERT_PROPORTION, UnitKind::Operation(Insert)),
        (&p::SCAN_PROPORTION, UnitKind::Operation(Scan)),
        (&p::DELETE_PROPORTION, UnitKind::Operation(Delete)),
        // Last, as in YCSB: the order affects the draws.
        (&p::READ_MODIFY_WRITE_PROPORTION, UnitKind::ReadModifyWrite),
    ];
    let (mut actions, mut weights, mut demands) = (Vec::new(), Vec::new(), Vec::new());
    for (property, action) in shares {
        let share = reader.number(property);
        if share <= 0.0 {
            continue;
        }
        actions.push(action);
        weights.push(share);
        let because = format!("{}={share}", property.name);
        let kinds: &[OperationKind] = match action {
            UnitKind::Operation(Read) => &[Read],
            UnitKind::Operation(Update) => &[Update],
            UnitKind::Operation(Insert) => &[Insert],
            UnitKind::Operation(Scan) => &[Scan],
            UnitKind::Operation(Delete) => &[Delete],
            UnitKind::ReadModifyWrite => &[Read, Update],
        };
        demands.extend(kinds.iter().map(|&kind| Demand { kind, because: because.clone() }));
    }
    if actions.is_empty() {
        let names: Vec<&str> = shares.iter().map(|(property, _)| property.name).collect();
        reader.fault_overall(format!("there is nothing to do: all of {} are 0", names.join(", ")));
        // Any valid mix: the fault above is reported with those found after it.
        return (vec![UnitKind::Operation(Read)], vec![1.0], Vec::new());
    }
    (actions, weights, demands)
}

/// Returns the expected inserts of a run: twice their share of the operations, as in
/// YCSB, so that chance does not exhaust the keys.
fn expected_inserts(reader: &mut Reader<'_>, facts: &Circumstances, records: u64) -> u64 {
    let share = reader.number(&p::INSERT_PROPORTION);
    if share <= 0.0 {
        return 0;
    }
    let given = reader.optional_count(&p::EXPECTED_OPERATIONS);
    if let Some(operations) = facts.operations.or(given) {
        return (operations as f64 * share * 2.0) as u64;
    }
    let rate = facts.target.unwrap_or(EXPECTED_RATE * facts.clients as f64);
    // An unbounded run is assumed to last a day.
    let operations = rate * facts.time.map_or(86_400.0, |time| time.as_secs_f64());
    // Keys that do not exist yet are redrawn, so the expected number of draws is the
    // ratio of the range to the records: an estimate must not slow the
    // client down.
    ((operations * share * 2.0) as u64).min(records.saturating_mul(GUESSED_GROWTH).max(GUESSED_INSERTS))
}

/// Returns the format of keys; a fault if `insertrange` is invalid.
fn key_format(reader: &mut Reader<'_>) -> Option<KeyFormat> {
    let digits = reader.count(&p::ZERO_PADDING) as usize;
    let range = reader.optional_text(&p::INSERT_RANGE);
    let seed = reader.count(&p::INSERT_RANGE_SEED);
    let order = match (reader.text(&p::INSERT_ORDER).as_str(), range) {
        ("uniform", None) => {
            reader
                .fault(&p::INSERT_ORDER, "needs the range that keys are uniform in: insertrange=0..72000000");
            return None;
        }
        ("uniform", Some(text)) => {
            let ends = text.split_once("..").and_then(|(low, high)| {
                Some((low.trim().parse::<u64>().ok()?, high.trim().parse::<u64>().ok()?))
            });
            let Some((low, high)) = ends else {
                reader.fault(
                    &p::INSERT_RANGE,
                    format!("'{text}' is no range of whole numbers such as 0..72000000"),
                );
                return None;
            };
            KeyOrder::Uniform(Box::new(noted(reader, &p::INSERT_RANGE, KeyNumbers::new(low, high, seed))?))
        }
        (order, range) => {
            if range.is_some() {
                reader.fault(
                    &p::INSERT_RANGE,
                    format!("has no effect with insertorder={order}: set insertorder=uniform"),
                );
            }
            if order == "hashed" { KeyOrder::Hashed } else { KeyOrder::Ordered }
        }
    };
    let digits = match &order {
        // Pads keys so that they sort by number.
        KeyOrder::Uniform(numbers) if !reader.given(&p::ZERO_PADDING) => numbers.high().to_string().len(),
        _ => digits,
    };
    Some(KeyFormat { order, digits })
}

impl CoreWorkload {
    /// Reads the properties and the files that they name. Reports faults to the reader; returns
    /// `None` if nothing can be built.
    pub fn open(
        reader: &mut Reader<'_>,
        facts: &Circumstances,
        files: &dyn InputFiles,
    ) -> Option<CoreWorkload> {
        let prefix = reader.text(&p::FIELD_NAME_PREFIX);
        let fields: Vec<String> =
            (0..reader.count(&p::FIELD_COUNT).max(1)).map(|i| format!("{prefix}{i}")).collect();
        let lengths = field_lengths(reader, files);
        let integrity = reader.flag(&p::DATA_INTEGRITY);
        if integrity && reader.choice(&p::FIELD_LENGTH_DISTRIBUTION) != "constant" {
            reader.fault(
                &p::DATA_INTEGRITY,
                "needs fieldlengthdistribution=constant, for a reader must know the length",
            );
        }
        let given_records = reader.count(&p::RECORD_COUNT);
        let records = if given_records == 0 { RECORDS_UNKNOWN } else { given_records };
        let first_key = reader.count(&p::INSERT_START);
        let given_inserts = reader.optional_count(&p::INSERT_COUNT);
        let loaded = given_inserts.unwrap_or(given_records);
        if facts.phase == Phase::Load && loaded == 0 {
            reader.fault_overall("nothing says how many records to load: set recordcount or insertcount");
        }
        let count = given_inserts.unwrap_or_else(|| records.saturating_sub(first_key));
        // YCSB's rule. A load of all records from insertstart on may exceed it.
        let bounded = facts.phase == Phase::Run || given_inserts.is_some();
        if bounded && first_key.saturating_add(count.max(1)) > records {
            let property = if reader.given(&p::INSERT_START) { &p::INSERT_START } else { &p::INSERT_COUNT };
            reader.fault(
                property,
                format!(
                    "insertstart + insertcount = {first_key} + {count} goes beyond recordcount = {records}"
                ),
            );
        }
        let (actions, weights, demands) = mix(reader);
        let count = count.max(1);
        let part = facts.share.range(loaded);
        if facts.phase == Phase::Load && loaded > 0 && part.is_empty() {
            reader.fault_overall(format!(
                "{loaded} records cannot be divided among {} processes",
                facts.share.count()
            ));
        }
        let (first_key, load_count, count) = match facts.phase {
            Phase::Load => {
                (first_key.saturating_add(part.start), part.end - part.start, (part.end - part.start).max(1))
            }
            Phase::Run => (first_key, loaded, count),
        };
        let new = if facts.phase == Phase::Run { expected_inserts(reader, facts, records) } else { 0 };
        let last_key = first_key.saturating_add(count - 1);
        let range_end = first_key.saturating_add(count).saturating_add(new);
        let range = RecordRange::read(reader, records, first_key, last_key, range_end);
        let chooser = Self::chooser(reader, &range);
        let scan_lengths = Self::scan_lengths(reader);
        let mix = Discrete::new(&weights).map_err(|error| reader.fault_overall(error.to_string())).ok();
        let keys = key_format(reader);
        let text = random_text(reader);
        let shared = CoreShared {
            phase: facts.phase,
            table: reader.text(&p::TABLE),
            fields,
            keys: keys?,
            new_records: if facts.phase == Phase::Run { facts.share } else { Share::WHOLE },
            values: ValueSource { lengths: lengths?, integrity, text },
            mix: mix?,
            actions,
            demands,
            chooser: chooser?,
            scan_lengths: scan_lengths?,
            read_all: reader.flag(&p::READ_ALL_FIELDS),
            read_by_name: reader.flag(&p::READ_ALL_FIELDS_BY_NAME),
            write_all: reader.flag(&p::WRITE_ALL_FIELDS),
            inserts: AcknowledgedCounter::new(records, facts.clients),
            range,
            next_load: AtomicU64::new(first_key),
            load_count,
            batch: Some(reader.count(&p::BATCH_SIZE)).filter(|_| facts.batches).unwrap_or(1).max(1),
            retries: Retries {
                limit: reader.count(&p::INSERT_RETRY_LIMIT),
                interval: reader.duration(&p::INSERT_RETRY_INTERVAL),
                keep_going: reader.flag(&p::INSERT_KEEP_GOING),
            },
            resume: facts.resume,
        };
        Some(CoreWorkload(Arc::new(shared)))
    }

    fn chooser(reader: &mut Reader<'_>, range: &RecordRange) -> Option<KeyChooser> {
        let kind = reader.choice(&p::REQUEST_DISTRIBUTION);
        if reader.given(&p::ZIPFIAN_EXPONENT) && kind != "exactzipfian" {
            reader.fault(
                &p::ZIPFIAN_EXPONENT,
                format!(
                    "has no effect with requestdistribution={kind}: set requestdistribution=exactzipfian"
                ),
            );
        }
        noted(reader, &p::REQUEST_DISTRIBUTION, range.chooser(kind))
    }

    fn scan_lengths(reader: &mut Reader<'_>) -> Option<LengthChooser> {
        let (min, max) = (reader.count(&p::MIN_SCAN_LENGTH), reader.count(&p::MAX_SCAN_LENGTH));
        let chooser = match reader.choice(&p::SCAN_LENGTH_DISTRIBUTION) {
            "zipfian" => Zipfian::new(min, max, YCSB_ZIPFIAN).map(LengthChooser::Zipfian),
            _ => Uniform::new(min, max).map(LengthChooser::Uniform),
        };
        noted(reader, &p::MIN_SCAN_LENGTH, chooser)
    }

    /// Returns the key of a record.
    pub fn key(&self, number: u64) -> String {
        let mut key = String::new();
        self.0.keys.write(&mut key, self.0.number(number));
        key
    }

    /// Returns the keys that split the records of a load into parts of equal size: see
    /// [`KeyFormat::split_points`].
    pub fn split_points(&self, partitions: u64) -> Option<Vec<String>> {
        self.0.keys.split_points(self.0.range.first, self.0.load_count, partitions)
    }

    /// Returns one client's tools for making operations.
    pub fn tools(&self, place: Place) -> Tools {
        Tools::new(Arc::clone(&self.0), place.index)
    }

    /// Returns a client that loads the records that `records` makes.
    pub fn loader<R: LoadRecords>(&self, records: R, place: Place, rng: Rng) -> Loader<R> {
        Loader::new(Arc::clone(&self.0), records, place, rng)
    }

    /// Returns a sample of the records' numbers.
    pub fn sample_numbers(&self) -> Vec<u64> {
        let RecordRange { first, records, .. } = self.0.range;
        let count = records.saturating_sub(first).max(1);
        (0..SAMPLE_KEYS.min(count)).map(|i| first + (count - 1) / SAMPLE_KEYS * i).collect()
    }

    /// Returns the phase that the workload was opened for.
    pub fn phase(&self) -> Phase {
        self.0.phase
    }

    /// Returns the range of this process's records whose insert may still be in flight: the first,
    /// and one past the last that was started. With several processes, all inserts before the
    /// smallest first have ended, and none from the largest end on has started.
    pub fn unended_inserts(&self) -> Range<u64> {
        let (end, next, records) = (self.0.inserts.end(), self.0.inserts.next(), self.0.range.records);
        let last = next.checked_sub(1).filter(|_| next > records);
        self.0.number(end)..last.map_or(records, |last| self.0.number(last).saturating_add(1))
    }

    /// Returns the range of records that a load inserts: the first, and one past
    /// the last.
    pub fn load_range(&self) -> (u64, u64) {
        let first = self.0.range.first;
        (first, first.saturating_add(self.0.load_count))
    }
}

impl Workload for CoreWorkload {
    fn schema(&self) -> Schema {
        Schema { table: self.0.table.clone(), fields: self.0.fields.clone() }
    }

    fn demands(&self) -> Vec<Demand> {
        match self.0.phase {
            Phase::Load => vec![Demand { kind: OperationKind::Insert, because: "a load".into() }],
            Phase::Run => self.0.demands.clone(),
        }
    }

    fn units(&self) -> Option<u64> {
        let (first, end) = self.load_range();
        (self.0.phase == Phase::Load).then(|| end.saturating_sub(first))
    }

    fn verifies(&self) -> bool {
        self.0.values.integrity && self.0.phase == Phase::Run
    }

    fn sample_keys(&self) -> Vec<String> {
        let needs = |demand: &Demand| {
            matches!(demand.kind, OperationKind::Read | OperationKind::Update | OperationKind::Scan)
        };
        if self.0.phase == Phase::Load || !self.0.demands.iter().any(needs) {
            return Vec::new();
        }
        self.sample_numbers().into_iter().map(|number| self.key(number)).collect()
    }

    fn client(&self, place: Place, rng: Rng) -> Box<dyn ClientWorkload> {
        match self.0.phase {
            Phase::Load => Box::new(self.loader(self.tools(place), place, rng)),
            Phase::Run => Box::new(run::Mixer::new(self.tools(place), rng)),
        }
    }

    fn warnings(&self) -> Vec<String> {
        let ranged = matches!(self.0.chooser, KeyChooser::Zipfian(_) | KeyChooser::ScatteredZipf(_));
        let (end, range) = (self.0.inserts.end(), &self.0.range);
        if self.0.phase == Phase::Run && ranged && end > range.end {
            let unused = match end - range.end {
                1 => "the last record was".to_owned(),
                n => format!("the last {n} records were"),
            };
            return vec![format!(
                "the key range ran out: it was laid out for {} and there were {}; {unused} \
                 never chosen. Set expectedoperations to more, or operationcount to what is done; proportions that \
                 do not sum to 1 make the last of them larger than it says",
                counted(range.end.saturating_sub(range.records), "insert"),
                end - range.records,
            )];
        }
        Vec::new()
    }
}

/// Returns a random time around an interval: a factor in [0.8, 1.2), as in YCSB.
fn around(interval: Duration, rng: &mut Rng) -> Duration {
    interval.mul_f64(0.8 + 0.4 * rng.next_f64())
}

/// Properties that derived workloads override.
pub(crate) fn override_counts(properties: &mut Properties, records: u64, operations: u64) {
    use serval_model::properties::Origin;
    let origin = || Origin::Program("computed by ConstantOccupancyWorkload");
    properties.set(p::RECORD_COUNT.name, records.to_string(), origin());
    properties.set(p::INSERT_COUNT.name, records.to_string(), origin());
    properties.set("operationcount", operations.to_string(), origin());
}
