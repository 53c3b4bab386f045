//! Web services: operations on the URLs of traces, compatible with YCSB's
//! `RestWorkload` and its files.
//!
//! Each operation kind has a trace of its own: a file with one URL per line, of
//! which the first `readrecordcount` are used. The proportions determine the
//! kind of an operation. The kind's distribution chooses a line of its trace, in
//! file order: line 0 is the most popular, and lines are not scattered. A write
//! has one field, `data`, of random text.
//!
//! Example: with `readproportion=0.9`, `updateproportion=0.1`, and `zipfian` with
//! 0.99 over a trace of five URLs, the first URL gets 0.43 of the reads.
//!
//! YCSB has no load for it. Serval's load inserts each URL that reads, updates
//! and deletes may use, once, in the order of their traces, so that a service
//! without data can be measured as well.
//!
//! # Differences from YCSB
//!
//! * YCSB reads all four traces. Serval reads those whose proportion is above 0.
//! * In YCSB `exponential` can draw a line after the last, and then requests a
//!   URL that ends in `null`. Serval draws again.
//! * YCSB silently turns scans and read-modify-writes into reads. Serval refuses
//!   them.
//! * `fieldlengthdistribution=zipfian` ignores `minfieldlength` in both: sizes
//!   start at 1.

pub mod properties;
mod trace;

pub use trace::{TRACE_FILE_MAX, Trace, URL_LENGTH_MAX};

use crate::{
    core::{Circumstances, Phase, field_lengths, properties as c, random_text},
    distribution::{
        Discrete, DistributionError, ExactZipf, Exponential, Hotspot, LengthChooser, Sequential, Uniform,
        Zipfian,
    },
    files::InputFiles,
    random::Rng,
    values::RandomText,
    workload::{ClientWorkload, Demand, End, Last, Place, Step, Workload},
};
use properties as p;
use serval_model::{
    Operation, OperationKind, Record, Schema,
    properties::{Property, Reader},
};
use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Name of a write's field in YCSB.
const DATA: &str = "data";

/// Separates the random stream of a load's values from those of clients.
const LOADED: u64 = 0x5245_5354_4c4f_4144;

/// Smallest share of draws that must fall into the trace; below it, redraws take
/// too long.
const EXPONENTIAL_SHARE_MIN: f64 = 0.01;

/// Distribution of lines of a trace.
#[derive(Debug, Clone)]
enum TraceChooser {
    Uniform(Uniform),
    Zipfian(Zipfian),
    Hotspot(Hotspot),
    Exponential(Exponential, u64),
    Sequential(Sequential),
    ExactZipf(ExactZipf),
}

impl TraceChooser {
    #[inline]
    fn draw(&mut self, rng: &mut Rng) -> u64 {
        match self {
            TraceChooser::Uniform(uniform) => uniform.draw(rng),
            TraceChooser::Zipfian(zipfian) => zipfian.next(rng),
            TraceChooser::Hotspot(hotspot) => hotspot.draw(rng),
            TraceChooser::Sequential(sequential) => sequential.draw(),
            TraceChooser::ExactZipf(zipf) => zipf.draw(rng),
            TraceChooser::Exponential(exponential, lines) => loop {
                // An infinite draw saturates, which is out of range as well.
                let line = exponential.draw(rng) as u64;
                if line < *lines {
                    return line;
                }
            },
        }
    }
}

/// An operation kind of the mix.
#[derive(Debug, Clone)]
struct MixedVerb {
    kind: OperationKind,
    trace: Arc<Trace>,
    chooser: TraceChooser,
}

/// Generator of bodies.
#[derive(Debug, Clone)]
struct Bodies {
    sizes: LengthChooser,
    text: RandomText,
}

impl Bodies {
    fn push(&mut self, record: &mut Record, rng: &mut Rng) {
        let size = self.sizes.draw(rng) as usize;
        record.push_with(DATA, |out| self.text.write(out, size, rng));
    }
}

#[derive(Debug)]
struct RestShared {
    phase: Phase,
    verbs: Vec<MixedVerb>,
    mix: Discrete,
    demands: Vec<Demand>,
    bodies: Bodies,
    // For loads only.
    load: Vec<String>,
    next_load: AtomicU64,
    keep_going: bool,
}

/// The REST workload.
#[derive(Debug, Clone)]
pub struct RestWorkload(Arc<RestShared>);

fn noted<T>(reader: &mut Reader<'_>, property: &Property, result: Result<T, DistributionError>) -> Option<T> {
    result.map_err(|error| reader.fault(property, error)).ok()
}

fn chooser(reader: &mut Reader<'_>, verb: &p::Verb, lines: u64) -> Option<TraceChooser> {
    let property = if reader.given(verb.distribution) { verb.distribution } else { &p::REQUEST_DISTRIBUTION };
    if reader.text(property).eq_ignore_ascii_case("latest") {
        reader.fault(property, "a trace has no latest URL: use hotspot, zipfian or exponential");
        return None;
    }
    match reader.choice(property) {
        "zipfian" => {
            let zipfian = Zipfian::of(lines, reader.number(verb.exponent));
            noted(reader, verb.exponent, zipfian).map(TraceChooser::Zipfian)
        }
        "exactzipfian" => {
            let zipf = ExactZipf::new(lines, reader.number(verb.exponent));
            noted(reader, verb.exponent, zipf).map(TraceChooser::ExactZipf)
        }
        "hotspot" => {
            let hot = reader.number(&c::HOTSPOT_DATA_FRACTION);
            let share = reader.number(&c::HOTSPOT_OPERATION_FRACTION);
            noted(reader, property, Hotspot::new(0, lines - 1, hot, share)).map(TraceChooser::Hotspot)
        }
        "exponential" => {
            let percentile = reader.number(&c::EXPONENTIAL_PERCENTILE);
            let width = lines as f64 * reader.number(&c::EXPONENTIAL_FRACTION);
            let exponential = noted(reader, property, Exponential::new(percentile, width))?;
            if 1.0 - libm::exp(-exponential.gamma() * lines as f64) < EXPONENTIAL_SHARE_MIN {
                let problem = "is so large that hardly a draw falls into the trace: take a smaller one";
                reader.fault(&c::EXPONENTIAL_FRACTION, problem);
                return None;
            }
            Some(TraceChooser::Exponential(exponential, lines))
        }
        "sequential" => noted(reader, property, Sequential::new(0, lines - 1)).map(TraceChooser::Sequential),
        _ => noted(reader, property, Uniform::new(0, lines - 1)).map(TraceChooser::Uniform),
    }
}

/// Reads the operation kinds with their traces. Reports the faults of all of them.
fn verbs(reader: &mut Reader<'_>, files: &dyn InputFiles) -> Option<(Vec<MixedVerb>, Vec<f64>, Vec<Demand>)> {
    // In YCSB's order of the shares.
    let all = [
        (&p::READ, OperationKind::Read),
        (&p::UPDATE, OperationKind::Update),
        (&p::INSERT, OperationKind::Insert),
        (&p::DELETE, OperationKind::Delete),
    ];
    for property in [&c::SCAN_PROPORTION, &c::READ_MODIFY_WRITE_PROPORTION] {
        if reader.number(property) > 0.0 {
            reader.fault(
                property,
                "the REST workload has reads, updates, inserts and deletes only: set it to 0",
            );
        }
    }
    let (mut verbs, mut weights, mut demands) = (Vec::new(), Vec::new(), Vec::new());
    let mut known: Vec<(PathBuf, u64, Arc<Trace>)> = Vec::new();
    let mut complete = true;
    for (verb, kind) in all {
        let share = reader.number(verb.proportion);
        if share <= 0.0 {
            continue;
        }
        weights.push(share);
        demands.push(Demand { kind, because: format!("{}={share}", verb.proportion.name) });
        let path = reader.path(verb.trace).unwrap_or_default();
        let count = reader.optional_count(verb.count).unwrap_or(u64::MAX);
        let same = known.iter().find(|(other, most, _)| *other == path && *most == count);
        let trace = match same {
            Some((_, _, trace)) => Some(Arc::clone(trace)),
            None => match Trace::read(files, &path, count) {
                Ok(trace) => {
                    let trace = Arc::new(trace);
                    known.push((path, count, Arc::clone(&trace)));
                    Some(trace)
                }
                Err(problem) => {
                    reader.fault(verb.trace, problem);
                    None
                }
            },
        };
        // Reports faults of the distribution even without the trace.
        let chooser = chooser(reader, verb, trace.as_ref().map_or(1, |trace| trace.len()));
        match (trace, chooser) {
            (Some(trace), Some(chooser)) => verbs.push(MixedVerb { kind, trace, chooser }),
            _ => complete = false,
        }
    }
    if weights.is_empty() {
        let names = all.map(|(verb, _)| verb.proportion.name).join(", ");
        reader.fault_overall(format!("there is nothing to do: all of {names} are 0"));
        return None;
    }
    complete.then_some((verbs, weights, demands))
}

fn sizes(reader: &mut Reader<'_>, files: &dyn InputFiles) -> Option<LengthChooser> {
    if reader.choice(&c::FIELD_LENGTH_DISTRIBUTION) != "zipfian" {
        return field_lengths(reader, files);
    }
    let (longest, exponent) = (reader.size(&c::FIELD_LENGTH), reader.number(&p::SIZE_EXPONENT));
    if longest > crate::core::FIELD_LENGTH_MAX {
        let most = crate::core::FIELD_LENGTH_MAX;
        reader.fault(&c::FIELD_LENGTH, format!("a body may have at most {most} bytes"));
        return None;
    }
    let property = if longest == 0 { &c::FIELD_LENGTH } else { &p::SIZE_EXPONENT };
    noted(reader, property, Zipfian::new(1, longest, exponent)).map(LengthChooser::Zipfian)
}

impl RestWorkload {
    /// Reads the properties and the files that they name. Reports faults to the reader;
    /// returns `None` if nothing can be built.
    pub fn open(
        reader: &mut Reader<'_>,
        facts: &Circumstances,
        files: &dyn InputFiles,
    ) -> Option<RestWorkload> {
        let verbs = verbs(reader, files);
        let sizes = sizes(reader, files);
        let text = random_text(reader);
        let keep_going = reader.flag(&c::INSERT_KEEP_GOING);
        let (verbs, weights, demands) = verbs?;
        let mix = Discrete::new(&weights).map_err(|error| reader.fault_overall(error.to_string())).ok();
        let mut load = Vec::new();
        if facts.phase == Phase::Load {
            let mut seen = HashSet::new();
            let needed = verbs.iter().filter(|verb| verb.kind != OperationKind::Insert);
            load.extend(
                needed.flat_map(|verb| verb.trace.iter()).filter(|url| seen.insert(*url)).map(str::to_owned),
            );
            if load.is_empty() {
                reader.fault_overall(
                    "there is nothing to load: a load inserts the URLs of reads, updates and deletes, and all of their \
                     proportions are 0",
                );
            }
        }
        Some(RestWorkload(Arc::new(RestShared {
            phase: facts.phase,
            verbs,
            mix: mix?,
            demands,
            bodies: Bodies { sizes: sizes?, text },
            load,
            next_load: AtomicU64::new(0),
            keep_going,
        })))
    }
}

impl Workload for RestWorkload {
    fn schema(&self) -> Schema {
        Schema { table: "usertable".into(), fields: vec![DATA.into()] }
    }

    fn demands(&self) -> Vec<Demand> {
        match self.0.phase {
            Phase::Load => vec![Demand { kind: OperationKind::Insert, because: "a load".into() }],
            Phase::Run => self.0.demands.clone(),
        }
    }

    fn units(&self) -> Option<u64> {
        (self.0.phase == Phase::Load).then_some(self.0.load.len() as u64)
    }

    fn client(&self, place: Place, rng: Rng) -> Box<dyn ClientWorkload> {
        let (shared, bodies) = (Arc::clone(&self.0), self.0.bodies.clone());
        match self.0.phase {
            Phase::Load => Box::new(RestLoader { shared, bodies, seed: place.seed }),
            Phase::Run => Box::new(RestMixer { verbs: shared.verbs.clone(), shared, bodies, rng }),
        }
    }
}

/// A client of a run.
struct RestMixer {
    shared: Arc<RestShared>,
    verbs: Vec<MixedVerb>,
    bodies: Bodies,
    rng: Rng,
}

impl ClientWorkload for RestMixer {
    fn step(&mut self, _: Last<'_>, operation: &mut Operation) -> Step {
        let verb = &mut self.verbs[self.shared.mix.draw(&mut self.rng)];
        operation.begin(verb.kind);
        operation.key.push_str(verb.trace.url(verb.chooser.draw(&mut self.rng)));
        if matches!(verb.kind, OperationKind::Insert | OperationKind::Update) {
            self.bodies.push(&mut operation.record, &mut self.rng);
        }
        Step::Issue { more: false }
    }
}

/// A client of a load.
struct RestLoader {
    shared: Arc<RestShared>,
    bodies: Bodies,
    /// Seed of the bodies. A body depends on the seed and its number, not on the client
    /// that happens to send it.
    seed: u64,
}

impl ClientWorkload for RestLoader {
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step {
        if let Last::Outcome(outcome, _) = last {
            return Step::End(End { stop: !outcome.is_ok() && !self.shared.keep_going, ..End::of(outcome) });
        }
        let number = self.shared.next_load.fetch_add(1, Relaxed);
        let Some(url) = self.shared.load.get(number as usize) else { return Step::Stop };
        operation.begin(OperationKind::Insert);
        operation.key.push_str(url);
        self.bodies.push(&mut operation.record, &mut Rng::stream(self.seed ^ LOADED, number));
        Step::Issue { more: true }
    }
}
