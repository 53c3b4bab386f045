//! Performing a plan: refusals, preparation, the run, its document.

use crate::{
    costs::Costs,
    document::document,
    error::PlanError,
    folder::{FolderError, ResultFolder},
    plan::Plan,
    properties as p,
    recording::{HdrFiles, Recording},
    session::{Ran, RunLost, Session},
};
use serval_lag::properties as lag;
use serval_measure::raw::{RawLog, RawSample};
use serval_model::{
    OperationKind, Purpose, StoreError,
    properties::{Fault, Faults, Reader},
};
use serval_report::{csv, stored::HISTOGRAM_LOG};
use serval_result::{document::ResultDocument, note::Note};
use serval_runner::{Control, Observer, RunRecord};
use serval_workload::core::Phase;
use std::io::Write;

/// Outcome of a plan that was performed.
pub struct Performed {
    /// The result document.
    pub document: ResultDocument,
    /// The run's record, from which the document was made.
    pub record: RunRecord,
    /// Reason why the run ended early; `None` if it did not.
    pub lost: Option<RunLost>,
    /// Time of every operation, if `measurementtype` asks for raw times.
    pub raw: Vec<RawSample>,
    /// Failure to write a file during the run or at its end. The document is complete nevertheless;
    /// callers show it before this error.
    pub unwritten: Option<FolderError>,
}

impl Performed {
    /// Returns the number of records that a load did not store; `None` if it stored all.
    pub fn missing(&self, plan: &Plan) -> Option<u64> {
        let stored = self.document.overall.operations.saturating_sub(self.document.failed());
        let units = plan.workload.units().filter(|_| plan.phase == Phase::Load)?;
        units.checked_sub(stored).filter(|missing| *missing > 0)
    }

    /// Returns a sentence, without its full stop, with the number of failed inserts of a load and the
    /// store's messages; `None` if none failed.
    pub fn load_failure(&self) -> Option<String> {
        let ResultDocument { overall, metrics, .. } = &self.document;
        let failed = self.document.failed();
        if failed == 0 {
            return None;
        }
        let messages = metrics.iter().flat_map(|metric| &metric.messages);
        let words: Vec<String> =
            messages.map(|message| format!("{} × {}", message.count, message.message)).collect();
        let why = if words.is_empty() { "the store gives no reason".to_owned() } else { words.join("; ") };
        Some(format!("{failed} of {} records could not be loaded: {why}", overall.operations))
    }
}

/// Files of a result folder that are written during a run.
#[derive(Debug, Clone, Copy)]
pub struct RunFiles<'a> {
    /// The folder.
    pub folder: &'a ResultFolder,
    /// Prefix of the file names.
    pub prefix: &'a str,
    /// Whether the time of every operation is written.
    pub raw: bool,
}

/// Name of the file of raw times, after the prefix.
const RAW_LOG: &str = "raw.csv";

/// Name of the file of sampled keys with their lags, after the prefix.
const LAG_KEYS: &str = "lag-keys.csv";

/// Refuses a plan whose workload needs an operation that the store does not support. The faults name the
/// settings that ask for it.
pub fn refuse(plan: &Plan, session: &dyn Session) -> Result<(), Faults> {
    let able = session.store().capabilities();
    let refusals = plan.workload.demands().into_iter().filter(|demand| !able.contains(demand.kind));
    let faults: Vec<_> = refusals
        .map(|demand| {
            let (store, verb) = (plan.store.name, demand.kind.name());
            let problem = format!("{}: {store}, as it is set up, has no {verb}", demand.because);
            Fault { origin: None, problem }
        })
        .collect();
    Faults(faults).or(())
}

/// Refuses `lag.consumers.clients` without a group: without this check the run would silently measure no lag.
fn refuse_consumers_alone(plan: &Plan, session: &dyn Session) -> Result<(), Faults> {
    let property = &lag::CONSUMER_CLIENTS;
    if session.is_group() || Reader::new(&plan.properties).count(property) == 0 {
        return Ok(());
    }
    let problem = format!(
        "{}: is for groups of processes (--clients, coordination.clients): alone, lag.role=both measures lag",
        property.name
    );
    Err(Faults(vec![plan.properties.fault_of(property, problem)]))
}

/// Refuses to resume a load on a store that keeps no records.
fn refuse_resume(plan: &Plan) -> Result<(), Faults> {
    if !plan.resume || plan.store.keeps_records {
        return Ok(());
    }
    let problem =
        format!("{}: {} keeps no records, so no load can be resumed", p::LOAD_RESUME.name, plan.store.name);
    Err(Faults(vec![plan.properties.fault_of(&p::LOAD_RESUME, problem)]))
}

/// Looks up sample keys. If none has a record, refuses a run whose operations need records, and returns a
/// note for any other run.
fn check_records(plan: &Plan, session: &dyn Session) -> Result<Option<Note>, StoreError> {
    let keys = plan.workload.sample_keys();
    let table = plan.workload.schema().table;
    let Some(key) = keys.first().filter(|_| plan.store.keeps_records) else { return Ok(None) };
    if session.store().count_records(&table, &keys)? > 0 {
        return Ok(None);
    }
    let needs = |kind| match kind {
        OperationKind::Insert => false,
        OperationKind::Update => !plan.store.updates_insert,
        OperationKind::Read | OperationKind::Scan | OperationKind::Delete => true,
    };
    let (name, keys) = (plan.store.name, keys.len() as u64);
    if plan.workload.demands().iter().any(|demand| needs(demand.kind)) {
        return Err(StoreError::new(
            name,
            format!(
                "{}. Load them with 'serval load {name}' and the same properties, or check recordcount, insertstart, \
                 insertorder and zeropadding",
                serval_report::notes::no_records(keys, key, &table)
            ),
        ));
    }
    Ok(Some(Note::NoRecords { keys, key: key.clone(), table, store: name.to_owned() }))
}

/// Opens the plan's store a second time, for consumers, if one open store cannot have two runs, as with a
/// driver process.
fn open_another(plan: &Plan) -> Result<Box<dyn Session + Send>, String> {
    let delay = serval_wrappers::settings::DELAY.name;
    if plan.properties.get(delay).is_some() {
        return Err(format!("{delay} delays writes for the clients of one open store only"));
    }
    let session = crate::session::open_to_send(plan.store.name, &plan.properties);
    let session = session.map_err(|faults| faults.to_string())?;
    let prepared = session.store().prepare(&plan.workload.schema(), Purpose::Run);
    prepared.map_err(|error| error.to_string())?;
    Ok(session)
}

/// Performs a plan on an open store.
pub fn perform(
    plan: &Plan,
    session: &dyn Session,
    control: &Control,
    show: &mut dyn Observer,
    files: Option<RunFiles<'_>>,
    command_line: Vec<String>,
) -> Result<Performed, PlanError> {
    refuse(plan, session)?;
    refuse_consumers_alone(plan, session)?;
    refuse_resume(plan)?;
    let costs = Costs::find(plan)?;
    let purpose = if plan.phase == Phase::Load { Purpose::Load } else { Purpose::Run };
    session.store().prepare(&plan.workload.schema(), purpose)?;
    let warning = check_records(plan, session)?;
    warning.iter().for_each(|warning| show.warn(&serval_report::notes::line(warning)));
    let facts = session.store().describe();
    let mut options = plan.options.clone();
    let custom = plan.workload.metrics();
    let file_name = |files: &RunFiles<'_>, name: &str| format!("{}{name}", files.prefix);
    let (mut in_memory, mut to_file) = (None, None);
    if matches!(plan.output.measurement_type, "raw" | "hdrhistogram+raw") {
        let (log, thread) = RawLog::to_memory();
        options.recorder.raw = Some(log);
        in_memory = Some(thread);
    } else if let Some(files) = files.filter(|files| files.raw) {
        let file = files.folder.create(&file_name(&files, RAW_LOG))?;
        let (log, thread) = RawLog::to_csv(file, custom.clone());
        options.recorder.raw = Some(log);
        to_file = Some((thread, files));
    }
    let log_file: Option<Box<dyn Write>> = match &files {
        Some(files) => Some(Box::new(files.folder.create(&file_name(files, HISTOGRAM_LOG))?)),
        None => None,
    };
    let hdr_files = plan.output.hdr_files.clone();
    let hdr_files = hdr_files.map(|prefix| HdrFiles::new(prefix, plan.status, plan.output.interval));
    let mut recording = Recording::new(custom, costs, log_file, hdr_files, show);
    let ran = match plan.lag.as_ref().filter(|_| !session.is_group()) {
        None => session.run(&plan.workload, &options, control, &mut recording),
        Some(lag) => {
            let another = || open_another(plan);
            lag.run(&plan.workload, session, &another, &options, control, &mut recording)
        }
    };
    // The threads that collect raw times end when the last handle of their log is dropped.
    drop(options);
    let ran = ran?;
    let (series, costs, mut unwritten) = recording.finish(|error| match &files {
        Some(files) => files.folder.failed(&file_name(files, HISTOGRAM_LOG), error),
        None => FolderError::System { path: HISTOGRAM_LOG.into(), what: "write", error },
    });
    // A client that hangs keeps its handle, and then joining would wait for it. The raw times are dropped.
    let hangs = !ran.record.in_flight.is_empty();
    let raw = match in_memory {
        Some(thread) if !hangs => thread.join().unwrap_or_default(),
        _ => Vec::new(),
    };
    if let Some((thread, files)) = to_file.filter(|_| !hangs)
        && let Ok(Err(error)) = thread.join()
    {
        unwritten.get_or_insert(files.folder.failed(&file_name(&files, RAW_LOG), error));
    }
    if let (Some(files), Some(lag)) = (files, &ran.lag) {
        let name = file_name(&files, LAG_KEYS);
        let written = files.folder.create(&name).and_then(|file| {
            let written = csv::write_lag(&lag.keys, file);
            written.map_err(|error| files.folder.failed(&name, error.into()))
        });
        if let Err(error) = written {
            unwritten.get_or_insert(error);
        }
    }
    let mut document = document(plan, &ran, facts, costs, series, command_line);
    if let Some(warning) = warning {
        document.notes.insert(0, warning);
        document.warnings = serval_report::notes::lines(&document.notes);
    }
    if hangs && plan.output.measurement_type.contains("raw") {
        document.notes.push(Note::RawTimesMissing);
        document.warnings = serval_report::notes::lines(&document.notes);
    }
    let Ran { record, lost, .. } = ran;
    Ok(Performed { document, record, lost, raw, unwritten })
}
