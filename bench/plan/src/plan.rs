//! Plans: everything that a phase needs, checked before anything starts.

use crate::{
    lag::LagMeasurement,
    names::names,
    options::Extent,
    output::OutputOptions,
    properties as p,
    workloads::{self, WorkloadInfo},
};
use serval_model::{
    Share,
    properties::{
        Fault, Faults, Origin, Properties, Reader,
        units::{counted, format_span},
    },
};
use serval_runner::RunOptions;
use serval_scripts::{Script, is_script};
use serval_stores::StoreInfo;
use serval_workload::{
    Workload,
    core::{CoreWorkload, Phase},
};
use serval_wrappers::{WrapperSettings, settings};
use std::{sync::Arc, time::Duration};

/// Input of a plan.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// All properties, from files and the command line.
    pub properties: Properties,
    /// Load or run.
    pub phase: Phase,
    /// The store.
    pub store: &'static StoreInfo,
    /// Whether every unknown property is a fault.
    pub strict: bool,
}

/// One phase, ready to run.
pub struct Plan {
    /// Load or run.
    pub phase: Phase,
    /// The store.
    pub store: &'static StoreInfo,
    /// Kind of the workload.
    pub workload_info: &'static WorkloadInfo,
    /// Name of the workload in results: its class, or its script's path.
    pub workload_name: String,
    /// The workload.
    pub workload: Arc<dyn Workload>,
    /// The core workload, if the workload is one or is based on it.
    pub core: Option<CoreWorkload>,
    /// Options of the run.
    pub options: RunOptions,
    /// Options of YCSB's output.
    pub output: OutputOptions,
    /// Time between status lines; `None` for no status lines.
    pub status: Option<Duration>,
    /// The label.
    pub label: String,
    /// Processes whose costs are measured, in the syntax of the property `watch`.
    pub watch: Vec<String>,
    /// The measurement of read-after-write lag, if the properties ask for it.
    pub lag: Option<Arc<LagMeasurement>>,
    /// Share of operations that may fail before the exit status is 1.
    pub failures_allowed: f64,
    /// Whether this is a load that continues an interrupted one.
    pub resume: bool,
    /// Wrappers between clients and store.
    pub between: WrapperSettings,
    /// All properties that were set, given or derived.
    pub properties: Properties,
    /// Warnings to show before the start.
    pub warnings: Vec<Fault>,
}

/// Finds the workload that the properties name. Faults go to the reader.
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

/// Reads the script at this path and applies its defaults; `None` if the class is not a script.
fn script(class: &str, properties: &mut Properties) -> Result<Option<Arc<Script>>, Faults> {
    if !is_script(class) {
        return Ok(None);
    }
    let script = Script::read(class.as_ref(), &p::catalog())?;
    script.apply_defaults(properties);
    Ok(Some(Arc::new(script)))
}

/// Sets the defaults of a script and the properties that the workload derives. Returns the script, the
/// faults of names and derivations, and warnings.
fn prepare(
    properties: &mut Properties,
    store: &StoreInfo,
    strict: bool,
) -> (Option<Arc<Script>>, Faults, Vec<Fault>) {
    let class = Reader::new(properties).text(&p::WORKLOAD);
    // Names are checked after the script is read, because the script may declare some.
    let (script, mut faults, mut warnings) = match script(class.trim(), properties) {
        Ok(script) => {
            let (faults, warnings) = names(properties, store, script.as_deref(), strict);
            (script, Faults(faults), warnings)
        }
        Err(faults) => (None, faults, Vec::new()),
    };
    if let Some(info) = workloads::find(class.trim()) {
        let notes = faults.take(workloads::derive(info, properties)).into_iter().flatten();
        warnings.extend(notes.map(|problem| Fault { origin: None, problem }));
    }
    (script, faults, warnings)
}

/// Returns the workload's name in results: its class, or the path of its script.
fn workload_name(script: Option<&Script>, info: &WorkloadInfo) -> String {
    match (script, info.classes) {
        (Some(script), _) => script.path().display().to_string(),
        (None, [class, ..]) => (*class).to_owned(),
        (None, []) => info.name.to_owned(),
    }
}

/// Returns a warning if a time series runs on a store that does not answer queries over time.
fn time_series_warning(
    properties: &Properties,
    workload: Option<&WorkloadInfo>,
    store: &StoreInfo,
) -> Option<Fault> {
    if workload?.name != workloads::TIME_SERIES.name || store.time_series {
        return None;
    }
    let able = serval_stores::STORES.iter().filter(|store| store.time_series);
    let able: Vec<&str> = able.map(|store| store.name).collect();
    let problem = format!(
        "{} stores the points of a time series as plain records and does not understand queries over time; \
         {} ignore them",
        store.name,
        able.join(" and ")
    );
    Some(properties.fault_of(&p::WORKLOAD, problem))
}

impl Plan {
    /// Makes the plan of a phase in which every unknown property is a fault.
    pub fn strict(properties: Properties, phase: Phase, store: &'static StoreInfo) -> Result<Plan, Faults> {
        Plan::new(PlanRequest { properties, phase, store, strict: true })
    }

    /// Checks all properties and makes the plan. Reports all faults at once.
    pub fn new(request: PlanRequest) -> Result<Plan, Faults> {
        let PlanRequest { mut properties, phase, store, strict } = request;
        let (script, mut faults, mut warnings) = prepare(&mut properties, store, strict);
        let mut reader = Reader::new(&properties);
        let workload_info = workload_info(&mut reader);
        let extent = Extent::read(&mut reader, phase, workload_info);
        let resume = reader.flag(&p::LOAD_RESUME) && phase == Phase::Load;
        let circumstances = extent.circumstances(phase, store, resume);
        // An unknown workload's properties are read as the core's, so that all faults are reported at once.
        let read_as = workload_info.unwrap_or(&workloads::CORE);
        let opened = workloads::open(read_as, script.as_ref(), &mut reader, &circumstances);
        let lag = LagMeasurement::read(&mut reader, workload_info, opened.as_ref(), phase, extent.share);
        let share = extent.share;
        let (mut options, status) = extent.options(&mut reader, phase);
        if let Some(lag) = &lag {
            lag.adjust(&mut options);
        }
        let output = OutputOptions::read(&mut reader);
        let between = WrapperSettings::read(&mut reader, store);
        if between.warning().is_some() && share != Share::WHOLE {
            reader
                .fault_overall("visibility.delay holds within one process, and cannot be shared by several");
        }
        let label = reader.text(&p::LABEL);
        let watch = reader.names(&p::WATCH);
        let failures_allowed = reader.number(&p::FAILURES_ALLOWED);
        if resume && opened.as_ref().is_some_and(|opened| opened.core.is_none()) {
            reader.fault(&p::LOAD_RESUME, "only loads of the core workload can be resumed");
        }
        if let Err(more) = reader.finish() {
            faults.add_new(more);
        }
        warnings.extend(time_series_warning(&properties, workload_info, store));
        warnings.extend(between.warning().map(|problem| properties.fault_of(&settings::DELAY, problem)));
        let (Some(workload_info), Some(opened)) = (workload_info, opened) else { return Err(faults) };
        faults.or(())?;
        Ok(Plan {
            phase,
            store,
            workload_info,
            workload_name: workload_name(script.as_deref(), workload_info),
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

    /// Returns the phase's name in results.
    pub fn phase_name(&self) -> &'static str {
        match self.phase {
            Phase::Load => "load",
            Phase::Run => "run",
        }
    }

    /// Describes the plan in one line. `processes` is the number of processes that perform it together.
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
            (None, Some(time)) => format_span(time),
            (Some(units), Some(time)) => {
                let units = counted(units, "operation");
                format!("{units}, at most {}", format_span(time))
            }
            (None, None) => match &options.rate {
                Some(rate) if rate.length_s().is_some() => serval_runner::pacing::rate::length_in_words(rate),
                _ => "until interrupted".to_owned(),
            },
        };
        let rate = match &options.rate {
            None => "as fast as possible".to_owned(),
            Some(rate) => format!("offered load {rate}, arrivals {}", options.arrivals.name()),
        };
        let least = format_span(options.warm_up);
        let most = format_span(options.warm_up_max());
        let warm_up = match (options.warm_up.is_zero(), options.steady) {
            (true, None) => String::new(),
            (false, None) => format!(" after {least} of warm-up"),
            (true, Some(_)) => format!(" after a warm-up until steady (at most {most})"),
            (false, Some(_)) => format!(" after a warm-up until steady ({least} to {most})"),
        };
        format!("{} {}: {clients}, {bound}{warm_up}, {rate}", self.phase_name(), self.store.name)
    }

    /// Returns whether a number of operations, a time or a schedule ends the run.
    pub fn is_bounded(&self) -> bool {
        let options = &self.options;
        self.workload.units().or(options.units).is_some()
            || options.time.is_some()
            || options.rate.as_ref().is_some_and(|rate| rate.length_s().is_some())
    }
}

/// Sets a property that was not given. `why` is shown as its origin.
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
