//! From properties to a plan: everything that a phase needs, checked before
//! anything starts.

use crate::{
    lag::Lag,
    properties as p,
    workloads::{self, WorkloadInfo},
};
use serval_measure::legacy::LegacyKind;
use serval_model::{
    Share,
    properties::{
        Catalog, Fault, Faults, NameFault, NameKind, Origin, Properties, Reader,
        units::{counted, format_duration},
    },
};
use serval_report::ycsb;
use serval_runner::{
    RunOptions, Steady,
    pacing::{Arrivals, rate::RateSchedule},
};
use serval_scripts::{Script, is_script};
use serval_stores::StoreInfo;
use serval_workload::{
    Workload,
    core::{Circumstances, CoreWorkload, Phase},
};
use serval_wrappers::{WrapperSettings, settings};
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// What a plan is made from.
#[derive(Debug, Clone)]
pub struct Request {
    /// All properties, files and command line.
    pub properties: Properties,
    /// Load or run.
    pub phase: Phase,
    /// The store.
    pub store: &'static StoreInfo,
    /// Whether every unknown property is a fault.
    pub strict: bool,
}

/// What YCSB's output shows.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputOptions {
    /// `measurementtype`.
    pub measurement_type: &'static str,
    /// `measurement.interval`.
    pub interval: ycsb::Interval,
    /// `hdrhistogram.percentiles`, in the order given.
    pub percentiles: Vec<f64>,
    /// Where `.hdr` files go, if asked for.
    pub hdr_files: Option<String>,
    /// Whether every cell is shown.
    pub verbose: bool,
    /// Buckets of the older histogram.
    pub buckets: usize,
    /// Where raw times go; `None` is standard output.
    pub raw_file: Option<PathBuf>,
    /// Whether raw times come without a summary.
    pub raw_no_summary: bool,
    /// Whether failures are shown by status.
    pub each_error: bool,
    /// Statuses of failures shown apart.
    pub tracked_errors: Vec<String>,
    /// `exporter`.
    pub exporter: String,
    /// Where the export goes; `None` is standard output.
    pub export_file: Option<PathBuf>,
}

impl OutputOptions {
    /// What YCSB's output is told.
    pub fn ycsb<'a>(&'a self, custom: &'a [&'a str], paced: bool) -> ycsb::Options<'a> {
        ycsb::Options {
            custom,
            paced,
            interval: self.interval,
            kind: ycsb::Kind::from_name(self.measurement_type).unwrap_or_default(),
            percentiles: &self.percentiles,
            verbose: self.verbose,
            buckets: self.buckets,
            raw_no_summary: self.raw_no_summary,
            report_each_error: self.each_error,
            tracked_errors: &self.tracked_errors,
        }
    }
}

/// One phase, ready to run.
pub struct Plan {
    /// Load or run.
    pub phase: Phase,
    /// The store.
    pub store: &'static StoreInfo,
    /// What kind of workload.
    pub workload_info: &'static WorkloadInfo,
    /// What results call it: its class, or its script's path.
    pub workload_name: String,
    /// The workload.
    pub workload: Arc<dyn Workload>,
    /// The same, if it is the core workload.
    pub core: Option<CoreWorkload>,
    /// How it is run.
    pub options: RunOptions,
    /// What YCSB's output shows.
    pub output: OutputOptions,
    /// Time between status lines, if they are wanted.
    pub status: Option<Duration>,
    /// The label.
    pub label: String,
    /// Processes whose cost is measured, as they are asked for.
    pub watch: Vec<String>,
    /// What is needed to measure read-after-write lag, if it is asked for.
    pub lag: Option<Arc<Lag>>,
    /// Share of failures that is all right.
    pub failures_allowed: f64,
    /// Whether an interrupted load goes on.
    pub resume: bool,
    /// What stands between clients and store.
    pub between: WrapperSettings,
    /// Everything that was set.
    pub properties: Properties,
    /// Things to tell before starting.
    pub warnings: Vec<Fault>,
}

/// The workload that properties name.
fn workload_info(reader: &mut Reader<'_>) -> Option<&'static WorkloadInfo> {
    let class = reader.text(&p::WORKLOAD);
    let info = workloads::find(class.trim());
    if info.is_some_and(|info| info.name == workloads::SCRIPT.name) && !is_script(class.trim()) {
        reader.fault(&p::WORKLOAD, "which script? Give its path: workload=path/to/file.lua");
    }
    if info.is_none() {
        let known: Vec<&str> = workloads::WORKLOADS.iter().map(|info| info.name).collect();
        reader.fault(
            &p::WORKLOAD,
            format!(
                "no such workload. This build has {}; 'serval workloads' lists them with their YCSB classes",
                known.join(", ")
            ),
        );
    }
    info
}

fn arrivals(reader: &mut Reader<'_>) -> Arrivals {
    match reader.choice(&p::TARGET_ARRIVALS) {
        "uniform" => Arrivals::Uniform,
        "poisson" => Arrivals::Poisson,
        _ => Arrivals::Client,
    }
}

fn rate(reader: &mut Reader<'_>) -> Option<RateSchedule> {
    let target = reader.number(&p::TARGET);
    let schedule = reader.optional_text(&p::TARGET_SCHEDULE).filter(|text| !text.trim().is_empty());
    if let Some(text) = schedule {
        if target > 0.0 {
            reader.fault(&p::TARGET_SCHEDULE, "and target cannot both be set: choose one");
        }
        return RateSchedule::parse(&text).map_err(|problem| reader.fault(&p::TARGET_SCHEDULE, problem)).ok();
    }
    let paced = target > 0.0;
    if !paced && (reader.given(&p::TARGET_ARRIVALS) || reader.given(&p::PACING_SLACK)) {
        let property = if reader.given(&p::TARGET_ARRIVALS) { &p::TARGET_ARRIVALS } else { &p::PACING_SLACK };
        reader.fault(property, "has no effect without a target: set target or target.schedule");
    }
    paced.then(|| RateSchedule::constant(target))
}

/// The part of the work that is this process's.
fn share(reader: &mut Reader<'_>, workload: Option<&WorkloadInfo>) -> Share {
    let share = reader.text(&p::SHARE).parse().map_err(|problem: String| reader.fault(&p::SHARE, problem));
    let share: Share = share.unwrap_or_default();
    let whole = [workloads::TIME_SERIES.name, workloads::REST.name];
    if let Some(info) = workload.filter(|info| whole.contains(&info.name) && share != Share::WHOLE) {
        reader.fault(&p::SHARE, format!("the workload {} cannot be divided", info.name));
    }
    share
}

/// Whether the warm-up lasts until steady, and how long at most.
fn steady(reader: &mut Reader<'_>, warm_up: Duration, rate: Option<&RateSchedule>) -> Option<Steady> {
    let max = reader.duration(&p::WARM_UP_MAX);
    if max.is_zero() {
        return None;
    }
    if max < warm_up {
        let warm_up = format_duration(warm_up.as_nanos() as u64);
        reader
            .fault(&p::WARM_UP_MAX, format!("is less than the shortest warm-up, warmup, which is {warm_up}"));
    }
    if rate.is_some_and(|rate| !rate.is_constant()) {
        reader.fault(
            &p::WARM_UP_MAX,
            "needs a constant target: whether a run is steady cannot be told from a load that changes. \
             With target.schedule, set warmup alone",
        );
    }
    Some(Steady { max, tolerance: Steady::TOLERANCE })
}

fn output(reader: &mut Reader<'_>) -> OutputOptions {
    let percentiles = reader.numbers(&p::PERCENTILES);
    if percentiles.iter().any(|p| !(0.0..=100.0).contains(p)) {
        reader.fault(&p::PERCENTILES, "percentiles are from 0 to 100");
    }
    let interval = ycsb::Interval::from_name(reader.choice(&p::MEASUREMENT_INTERVAL)).unwrap_or_default();
    let exporter = reader.text(&p::EXPORTER);
    if exporter != "json" && ycsb::Exporter::from_name(&exporter).is_none() {
        reader.fault(&p::EXPORTER, "no such exporter. Use YCSB's class names, 'ycsb' or 'json'");
    }
    OutputOptions {
        measurement_type: reader.choice(&p::MEASUREMENT_TYPE),
        interval,
        percentiles,
        hdr_files: reader.flag(&p::HDR_FILE_OUTPUT).then(|| reader.text(&p::HDR_OUTPUT_PATH)),
        verbose: reader.flag(&p::HISTOGRAM_VERBOSE),
        buckets: reader.count(&p::HISTOGRAM_BUCKETS) as usize,
        raw_file: reader.path(&p::RAW_OUTPUT_FILE),
        raw_no_summary: reader.flag(&p::RAW_NO_SUMMARY),
        each_error: reader.flag(&p::REPORT_EACH_ERROR),
        tracked_errors: reader.names(&p::TRACKED_ERRORS),
        exporter,
        export_file: reader.path(&p::EXPORT_FILE),
    }
}

fn legacy(reader: &mut Reader<'_>) -> Option<LegacyKind> {
    let granularity_ms = reader.duration(&p::TIME_SERIES_GRANULARITY).as_millis() as u64;
    match reader.choice(&p::MEASUREMENT_TYPE) {
        "histogram" | "hdrhistogram+histogram" => {
            Some(LegacyKind::Buckets(reader.count(&p::HISTOGRAM_BUCKETS) as usize))
        }
        "timeseries" => {
            if granularity_ms == 0 {
                reader.fault(&p::TIME_SERIES_GRANULARITY, "must be 1 ms or more");
            }
            Some(LegacyKind::TimeSeries { granularity_ms: granularity_ms.max(1) })
        }
        _ => None,
    }
}

/// A seed that is hardly the last one's.
pub(crate) fn fresh_seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut state = since_epoch.as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
    // 53 bits, so that every JSON reader gets it back exactly.
    serval_workload::random::split_mix(&mut state) >> 11
}

/// The script that properties name, if they name one. What it sets by default
/// is set.
fn script(properties: &mut Properties) -> Result<Option<Arc<Script>>, Faults> {
    let class = Reader::new(properties).text(&p::WORKLOAD);
    if !is_script(class.trim()) {
        return Ok(None);
    }
    let script = Script::read(class.trim().as_ref(), &p::catalog())?;
    script.apply_defaults(properties);
    Ok(Some(Arc::new(script)))
}

/// Names that Serval does not know: faults, and warnings. Those of a script
/// are known too.
pub fn names(
    properties: &Properties,
    store: &StoreInfo,
    script: Option<&Script>,
    strict: bool,
) -> (Vec<Fault>, Vec<Fault>) {
    let tables = p::catalog();
    let tables = tables.tables().iter().copied().chain(script.map(|script| script.table));
    let found = properties.check_names(&Catalog::new(tables), crate::foreign::PROPERTIES);
    if !store.passes_on() {
        let is_fault = |kind| kind == NameKind::Slip || (strict && kind == NameKind::Unknown);
        let (faults, warnings): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| is_fault(found.kind));
        let faults_of = |found: Vec<NameFault>| found.into_iter().map(|found| found.fault).collect();
        return (faults_of(faults), faults_of(warnings));
    }
    // The driver may know them; what looks like a slip is worth a word.
    let slips =
        found.iter().filter(|found| found.kind == NameKind::Slip).map(|NameFault { fault, .. }| Fault {
            problem: format!("{} It is passed to the driver", fault.problem),
            ..fault.clone()
        });
    // What a store of Serval's own makes nothing of may be what the driver's needs.
    let stores = || serval_stores::STORES.iter().flat_map(|info| info.properties.properties);
    let of_a_store = |name: &str| stores().any(|own| own.name == name);
    let own = found.iter().filter(|found| match found.kind {
        NameKind::Ignored => !of_a_store(&found.name),
        NameKind::ReadAsFalse => true,
        NameKind::Slip | NameKind::Unknown => false,
    });
    (Vec::new(), slips.chain(own.map(|found| found.fault.clone())).collect())
}

impl Plan {
    /// Checks everything and makes the plan. All faults come at once.
    pub fn new(request: Request) -> Result<Plan, Faults> {
        let Request { mut properties, phase, store, strict } = request;
        // Names cannot be judged without the script that may know them.
        let (script, (mut faults, mut warnings)) = match script(&mut properties) {
            Ok(script) => {
                let judged = names(&properties, store, script.as_deref(), strict);
                (script, judged)
            }
            Err(faults) => (None, (faults.0, Vec::new())),
        };
        if let Some(info) = workload_info(&mut Reader::new(&properties)) {
            match workloads::derive(info, &mut properties) {
                Ok(notes) => {
                    warnings.extend(notes.into_iter().map(|problem| Fault { origin: None, problem }))
                }
                Err(more) => faults.extend(more.0),
            }
        }
        let mut reader = Reader::new(&properties);
        let workload_info = workload_info(&mut reader);
        let rate = rate(&mut reader);
        let share = share(&mut reader, workload_info);
        if reader.given(&p::PHASES) {
            reader.fault(&p::PHASES, "only serval load, serval run and experiment files go through phases");
        }
        let clients = reader.count(&p::THREAD_COUNT).max(1) as usize;
        let operations = Some(reader.count(&p::OPERATION_COUNT)).filter(|count| *count > 0);
        let operations = operations.map(|count| {
            // None at all would mean any number.
            if share.of(count) == 0 {
                let problem =
                    format!("{count} operations cannot be divided among {} processes", share.count());
                reader.fault(&p::OPERATION_COUNT, problem);
            }
            share.of(count).max(1)
        });
        let time = Some(reader.duration(&p::MAX_EXECUTION_TIME)).filter(|time| !time.is_zero());
        let warm_up = if phase == Phase::Run { reader.duration(&p::WARM_UP) } else { Duration::ZERO };
        let steady = match phase {
            Phase::Run => steady(&mut reader, warm_up, rate.as_ref()),
            Phase::Load => None,
        };
        let warm_up_max = steady.map_or(warm_up, |steady| steady.max.max(warm_up));
        let seed = reader.optional_count(&p::SEED).unwrap_or_else(fresh_seed);
        // The values of a record follow from the seed and its number, whoever
        // loads it.
        let seed = if phase == Phase::Load { seed } else { share.seed(seed) };
        // A schedule that ends says how many operations there will be.
        let scheduled = rate.as_ref().and_then(|rate| Some(share.of_rate(rate.due(rate.length_s()?)) as u64));
        let warm =
            rate.as_ref().map_or(0.0, |rate| share.of_rate(rate.rate_max()) * warm_up_max.as_secs_f64())
                as u64;
        let facts = Circumstances {
            phase,
            clients,
            operations: operations.or(scheduled.map(|due| due + warm)),
            time: time.map(|time| time + warm_up_max),
            target: rate.as_ref().map(|rate| share.of_rate(rate.rate_max())),
            share,
            batches: store.batches,
            resume: phase == Phase::Load && reader.flag(&p::LOAD_RESUME),
        };
        // An unknown workload's properties are looked at as the core's, so that
        // all faults come at once.
        let opened =
            workloads::open(workload_info.unwrap_or(&workloads::CORE), script.as_ref(), &mut reader, &facts);
        let lag = Lag::read(&mut reader, workload_info, opened.as_ref(), phase, share);
        let arrivals = arrivals(&mut reader);
        let slack = reader.given(&p::PACING_SLACK).then(|| reader.duration(&p::PACING_SLACK));
        let interval = reader.duration(&p::SERIES_INTERVAL);
        if interval < Duration::from_millis(10) {
            reader.fault(&p::SERIES_INTERVAL, "must be 10 ms or more");
        }
        let status_interval = reader.duration(&p::STATUS_INTERVAL);
        let status = reader.flag(&p::STATUS).then_some(status_interval);
        if status.is_some_and(|interval| interval.is_zero()) {
            reader.fault(&p::STATUS_INTERVAL, "must be above zero");
        }
        let mut options = RunOptions {
            clients,
            event_loops: reader.optional_count(&p::EVENT_LOOPS).map(|loops| loops as usize),
            warm_up,
            steady,
            time,
            units: if phase == Phase::Run { operations } else { None },
            rate,
            arrivals,
            slack,
            grace: reader.duration(&p::SHUTDOWN_GRACE),
            interval,
            share,
            seed,
            gate: None,
            judge: None,
            finishes: true,
            recorder: serval_measure::recorder::RecorderOptions {
                legacy: legacy(&mut reader),
                ..Default::default()
            },
        };
        if let Some(lag) = &lag {
            lag.adjust(&mut options);
        }
        let output = output(&mut reader);
        let between = WrapperSettings::read(&mut reader, store);
        if between.warning().is_some() && share != Share::WHOLE {
            reader
                .fault_overall("visibility.delay holds within one process, and cannot be shared by several");
        }
        let label = reader.text(&p::LABEL);
        let watch = reader.names(&p::WATCH);
        let failures_allowed = reader.number(&p::FAILURES_ALLOWED);
        let resume = reader.flag(&p::LOAD_RESUME);
        if resume && phase == Phase::Load && opened.as_ref().is_some_and(|opened| opened.core.is_none()) {
            reader.fault(&p::LOAD_RESUME, "only loads of the core workload can be resumed");
        }
        if let Err(more) = reader.finish() {
            // One more look at the same properties may repeat a fault.
            more.0.into_iter().for_each(|fault| {
                if !faults.contains(&fault) {
                    faults.push(fault);
                }
            });
        }
        if workload_info.is_some_and(|info| info.name == workloads::TIME_SERIES.name) && !store.time_series {
            let able = serval_stores::STORES.iter().filter(|store| store.time_series);
            let able: Vec<&str> = able.map(|store| store.name).collect();
            let problem = format!(
                "{} takes the points of a time series for plain records and does not understand queries over time; \
                 {} do not mind",
                store.name,
                able.join(" and ")
            );
            let origin = properties.setting(&p::WORKLOAD).map(|(_, setting)| setting.origin.clone());
            warnings.push(Fault { origin, problem });
        }
        if let Some(problem) = between.warning() {
            let origin = properties.setting(&settings::DELAY).map(|(_, setting)| setting.origin.clone());
            warnings.push(Fault { origin, problem });
        }
        let (Some(workload_info), Some(opened), true) = (workload_info, opened, faults.is_empty()) else {
            return Err(Faults(faults));
        };
        Ok(Plan {
            phase,
            store,
            workload_info,
            workload_name: match (&script, workload_info.classes) {
                (Some(script), _) => script.path().display().to_string(),
                (None, [class, ..]) => (*class).to_owned(),
                (None, []) => workload_info.name.to_owned(),
            },
            workload: lag.as_ref().map_or(opened.workload.clone(), |lag| lag.workload(opened.workload)),
            core: opened.core,
            options,
            output,
            status,
            label,
            watch,
            lag: lag.map(Arc::new),
            failures_allowed,
            resume,
            between,
            properties,
            warnings,
        })
    }

    /// The phase's name in results.
    pub fn phase_name(&self) -> &'static str {
        match self.phase {
            Phase::Load => "load",
            Phase::Run => "run",
        }
    }

    /// What is going to happen, in a line, where so many processes do this plan together.
    pub fn describe(&self, processes: usize) -> String {
        let options = &self.options;
        let of_each = counted(options.clients as u64, "client");
        let clients = match processes {
            0 | 1 => of_each,
            n => format!("{n} processes of {of_each} each"),
        };
        let units = self.workload.units().or(options.units);
        let bound = match (units, options.time) {
            (Some(units), None) => counted(units, "operation"),
            (None, Some(time)) => format_duration(time.as_nanos() as u64),
            (Some(units), Some(time)) => {
                let units = counted(units, "operation");
                format!("{units}, at most {}", format_duration(time.as_nanos() as u64))
            }
            (None, None) => match &options.rate {
                Some(rate) if rate.length_s().is_some() => serval_runner::pacing::rate::length_in_words(rate),
                _ => "until interrupted".to_owned(),
            },
        };
        let rate = match &options.rate {
            None => "as fast as it goes".to_owned(),
            Some(rate) => format!("offered load {rate}, arrivals {}", options.arrivals.name()),
        };
        let least = format_duration(options.warm_up.as_nanos() as u64);
        let most = format_duration(options.warm_up_max().as_nanos() as u64);
        let warm_up = match (options.warm_up.is_zero(), options.steady) {
            (true, None) => String::new(),
            (false, None) => format!(" after {least} of warm-up"),
            (true, Some(_)) => format!(" after a warm-up until steady (at most {most})"),
            (false, Some(_)) => format!(" after a warm-up until steady ({least} to {most})"),
        };
        format!("{} {}: {clients}, {bound}{warm_up}, {rate}", self.phase_name(), self.store.name)
    }

    /// Whether the run ends by itself.
    pub fn is_bounded(&self) -> bool {
        let options = &self.options;
        self.workload.units().or(options.units).is_some()
            || options.time.is_some()
            || options.rate.as_ref().is_some_and(|rate| rate.length_s().is_some())
    }
}

/// Sets a property for a reason of the program's own, unless it was given.
pub fn default_to(
    properties: &mut Properties,
    property: &serval_model::properties::Property,
    value: &str,
    why: &'static str,
) {
    if !properties.has(property) {
        properties.set(property.name, value, Origin::Program(why));
    }
}
