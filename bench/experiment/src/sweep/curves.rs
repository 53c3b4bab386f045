//! The curves of an experiment file: their properties, and the data sets that they share. Checks everything before
//! the first run.

use crate::{
    file::{
        CURVES_MAX, CurveObjective, ExperimentFile, GroupEntry, PropertyLine, StatePolicy, StoreEntry,
        WorkloadEntry, add_workload_file, fault_at, set_lines,
    },
    journal::clean,
};
use serval_coordination::properties::is_of_group;
use serval_group::{Leading, settings, unshared};
use serval_model::properties::{Fault, Faults, Origin, Properties, Property};
use serval_plan::{Plan, embedded::EmbeddedStore, properties as p};
use serval_stores::StoreInfo;
use serval_workload::core::{Phase, properties as core};
use std::collections::BTreeMap;

/// Properties that the experiment sets for each run, and the keys of its file that determine them.
const CONDUCTED: &[(&Property, &str)] = &[
    (&p::THREAD_COUNT, "clients in [run]"),
    (&p::TARGET, "points in [sweep]"),
    (&p::TARGET_SCHEDULE, "points in [sweep]"),
    (&p::TARGET_ARRIVALS, "arrivals in [run]"),
    (&p::OPERATION_COUNT, "time in [run]"),
    (&p::MAX_EXECUTION_TIME, "time in [run]"),
    (&p::WARM_UP, "warmup in [run]"),
    (&p::WARM_UP_MAX, "warmup_max in [run]"),
    (&p::SEED, "seed in [run]"),
    (&p::LOAD_RESUME, "nothing: an experiment loads what it needs"),
];

/// Properties of runs, which do not affect the records that a load inserts.
const RUN_PROPERTIES: &[&Property] = &[
    &core::READ_PROPORTION,
    &core::UPDATE_PROPORTION,
    &core::INSERT_PROPORTION,
    &core::SCAN_PROPORTION,
    &core::READ_MODIFY_WRITE_PROPORTION,
    &core::DELETE_PROPORTION,
    &core::REQUEST_DISTRIBUTION,
    &core::ZIPFIAN_EXPONENT,
    &core::HOTSPOT_DATA_FRACTION,
    &core::HOTSPOT_OPERATION_FRACTION,
    &core::EXPONENTIAL_PERCENTILE,
    &core::EXPONENTIAL_FRACTION,
    &core::MIN_SCAN_LENGTH,
    &core::MAX_SCAN_LENGTH,
    &core::SCAN_LENGTH_DISTRIBUTION,
    &core::READ_ALL_FIELDS,
    &core::READ_ALL_FIELDS_BY_NAME,
    &core::WRITE_ALL_FIELDS,
    &core::EXPECTED_OPERATIONS,
];

/// Stores that keep records in this process only and are empty when opened again.
pub(crate) const IN_PROCESS: [&str; 3] = ["noop", "basic", "memory"];

/// Number of rates around the result of the bisection that a search for the highest rate measures repeatedly.
pub(super) const REPEATED_RATES: usize = 4;

/// Method of restoring a store's records to the state after the load.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Renewal {
    /// Open the store again and load.
    Reopen,
    /// Remove or copy the files, which are in the experiment's folder.
    Files(&'static EmbeddedStore),
    /// Run the `restore` command, or delete each record.
    Server,
}

/// One workload on one store.
#[derive(Debug, Clone)]
pub struct CurvePlan {
    /// Name of the curve.
    pub name: String,
    /// Name of the store in the file.
    pub store: String,
    /// Name of the workload in the file.
    pub workload: String,
    /// Position on the axis.
    pub at: Option<f64>,
    /// The store.
    pub info: &'static StoreInfo,
    /// Properties of the curve, without those that each run sets.
    pub properties: Properties,
    /// Whether runs insert or delete records.
    pub changes_records: bool,
    pub(crate) dataset: usize,
}

/// The records of one load, which curves share.
#[derive(Debug, Clone)]
pub(crate) struct Dataset {
    /// Name of the first curve that uses the data set.
    pub(crate) name: String,
    /// Unique name of the folder of its files.
    pub(crate) folder: String,
    pub(crate) info: &'static StoreInfo,
    /// Properties of the first curve that uses the data set.
    pub(crate) properties: Properties,
    pub(crate) renewal: Renewal,
    pub(crate) save: Option<String>,
    pub(crate) restore: Option<String>,
    /// Number of records that a load inserts.
    pub(crate) records: u64,
    /// Approximate size of their values, bytes.
    pub(crate) bytes: f64,
}

/// An experiment that is checked and ready.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The file, with the properties of workload files inlined.
    pub file: ExperimentFile,
    /// Settings of the group that performs the runs, if several processes do.
    pub group: Option<Leading>,
    /// The curves.
    pub curves: Vec<CurvePlan>,
    /// Warnings to show before the start.
    pub warnings: Vec<Fault>,
    pub(crate) datasets: Vec<Dataset>,
}

/// Inlines the properties of workload files, so that the file is self-contained. `[properties]` overrides them.
fn inlined(mut file: ExperimentFile) -> Result<ExperimentFile, Faults> {
    let mut faults = Faults::default();
    let common: Vec<String> = file.properties.iter().map(|(name, _, _)| name.clone()).collect();
    // The operation count, clients and rates of a workload file are for a single run.
    let overridden = |name: &str| {
        CONDUCTED.iter().any(|(property, _)| property.name == name) || common.iter().any(|set| set == name)
    };
    for workload in &mut file.workloads {
        let Some(path) = workload.file.take() else { continue };
        faults.take(add_workload_file(&mut workload.properties, path, &workload.origin, &overridden));
    }
    faults.or(file)
}

/// Returns the properties of a workload on a store. Properties that the experiment sets itself are faults.
fn properties(
    file: &ExperimentFile,
    store: &StoreEntry,
    workload: &WorkloadEntry,
) -> Result<Properties, Faults> {
    let mut all = Properties::new();
    set_lines(&mut all, &file.properties);
    set_lines(&mut all, &workload.properties);
    set_lines(&mut all, &store.properties);
    let mut faults = Vec::new();
    for (property, place) in CONDUCTED {
        if let Some(setting) = all.get(property.name) {
            let problem =
                format!("{}: an experiment sets it for each run; the file has it as {place}", property.name);
            faults.push(Fault { origin: Some(setting.origin.clone()), problem });
        }
    }
    if !store.watch.is_empty() {
        let origin = store.origin.clone().unwrap_or(Origin::Program("the experiment"));
        all.set(p::WATCH.name, store.watch.join(","), origin);
    }
    Faults(faults).or(all)
}

/// Returns the settings of the group that `[group]` or `[properties]` ask for.
fn group(file: &ExperimentFile) -> Result<Option<Leading>, Faults> {
    let mut faults = Faults::default();
    for (name, _, origin) in file
        .stores
        .iter()
        .flat_map(|store| &store.properties)
        .chain(file.workloads.iter().flat_map(|workload| &workload.properties))
        .filter(|(name, _, _)| is_of_group(name))
    {
        let problem = format!("{name}: one group makes all runs: set it in [group], or in [properties]");
        faults.0.push(Fault { origin: Some(origin.clone()), problem });
    }
    let mut all = Properties::new();
    let lines: Vec<PropertyLine> =
        file.properties.iter().filter(|(name, _, _)| is_of_group(name)).cloned().collect();
    set_lines(&mut all, &lines);
    set_lines(&mut all, &file.group.as_ref().map_or(Vec::new(), GroupEntry::properties));
    if faults.take(settings::meeting(&all, "run")).flatten().is_some() {
        faults.push(
            "barrier-status: each process would search for itself. Set [group] (--agents, --coordination) instead",
        );
    }
    let leading = faults.take(settings::leading(&all, settings::ProcessesFlag::Agents)).flatten();
    faults.or(leading)
}

/// Returns the identity of a data set: the store, and all properties except those of runs.
fn identity(info: &StoreInfo, properties: &Properties) -> BTreeMap<String, String> {
    let mut identity = BTreeMap::from([(String::new(), info.name.to_owned())]);
    let of_runs = |name: &str| {
        RUN_PROPERTIES.iter().any(|property| property.name == name)
            || p::CLIENT.properties.iter().any(|property| property.name == name && name != p::WORKLOAD.name)
            || p::MEASUREMENT.properties.iter().any(|property| property.name == name)
    };
    for (name, setting) in properties.iter().filter(|(name, _)| !of_runs(name)) {
        identity.insert(name.to_owned(), setting.value.clone());
    }
    identity
}

impl Experiment {
    /// Checks a file against the stores and workloads of this build. Returns all faults at once.
    pub fn new(file: ExperimentFile) -> Result<Experiment, Faults> {
        let mut draft = Draft::default();
        let original = file.clone();
        let file = inlined(file).unwrap_or_else(|more| {
            draft.note(more);
            original
        });
        if let Err((key, problem)) = file.run.check() {
            draft.note(Faults::one(format!("{key}: {problem}")));
        }
        let group = group(&file).unwrap_or_else(|more| {
            draft.note(more);
            None
        });
        for workload in &file.workloads {
            for store in &file.stores {
                if let Err(more) = draft.add(&file, store, workload) {
                    draft.note(more);
                }
            }
        }
        if file.workloads.len() * file.stores.len() > CURVES_MAX {
            draft.note(Faults::one(format!("more than {CURVES_MAX} curves")));
        }
        if group.is_some() {
            for dataset in draft.datasets.clone() {
                let Some(more) = unshared(dataset.info, &dataset.properties) else { continue };
                draft.note(
                    more.map(|fault| Fault {
                        problem: format!("{}: {}", dataset.name, fault.problem),
                        ..fault
                    }),
                );
            }
        }
        let Draft { curves, datasets, warnings, faults, .. } = draft;
        faults.or(Experiment { file, group, curves, warnings, datasets })
    }
}

/// An experiment under construction, and its faults so far.
#[derive(Default)]
struct Draft {
    curves: Vec<CurvePlan>,
    datasets: Vec<Dataset>,
    /// The [`identity`] of each data set.
    identities: Vec<BTreeMap<String, String>>,
    warnings: Vec<Fault>,
    faults: Faults,
}

impl Draft {
    /// Notes faults, each once: those of a workload recur with every store.
    fn note(&mut self, more: Faults) {
        self.faults.add_new(more);
    }

    /// Adds the curve of a workload on a store. Returns faults that make the curve impossible; notes others.
    fn add(
        &mut self,
        file: &ExperimentFile,
        store: &StoreEntry,
        workload: &WorkloadEntry,
    ) -> Result<(), Faults> {
        let (info, properties) = resolved(file, store, workload)?;
        let name = curve_name(file, store, workload);
        if self.curves.iter().any(|curve| curve.name == name) {
            let problem = format!("two curves would be called '{name}': give the workload another name");
            self.note(Faults(vec![fault_at(&workload.origin, problem)]));
        }
        let checked = check(info, &properties)?;
        if let CurveObjective::Max(promise) = &file.question {
            let does = &checked.operations;
            for operation in promise.operations().filter(|name| !does.iter().any(|o| o == name)) {
                let operation = operation.to_lowercase();
                let done: Vec<String> = does.iter().map(|name| name.to_lowercase()).collect();
                let near = done.iter().find(|known| strsim::levenshtein(known, &operation) <= 2);
                let hint = near.map_or(String::new(), |near| format!("; did you mean '{near}'?"));
                let problem = format!(
                    "the SLO names '{operation}', which is no operation of {}; its operations are {}{hint}",
                    workload.name,
                    done.join(", ")
                );
                self.note(Faults(vec![fault_at(&workload.origin, problem)]));
            }
        }
        for warning in checked.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        let identity = identity(info, &properties);
        let known = self.identities.iter().position(|known| *known == identity);
        let dataset = known.unwrap_or(self.datasets.len());
        if known.is_none() {
            let renewal = match EmbeddedStore::of(info, &properties) {
                Some(embedded) => Renewal::Files(embedded),
                None if IN_PROCESS.contains(&info.name) => Renewal::Reopen,
                None => Renewal::Server,
            };
            let set = Dataset {
                name: name.clone(),
                folder: folder_name(&name, &self.datasets),
                info,
                properties: properties.clone(),
                renewal,
                save: store.save.clone(),
                restore: store.restore.clone(),
                records: checked.records,
                bytes: checked.bytes,
            };
            if let Some(problem) = unrenewable(file.run.state, &set) {
                self.note(Faults(vec![fault_at(&store.origin, problem)]));
            }
            if let Some(other) = same_table(&self.datasets, &set) {
                let problem = format!(
                    "'{name}' and '{}' load different records into one table of one store: give one of the \
                     workloads a table of its own (table = \"...\")",
                    other.name
                );
                self.note(Faults(vec![fault_at(&workload.origin, problem)]));
            }
            self.identities.push(identity);
            self.datasets.push(set);
        }
        self.curves.push(CurvePlan {
            name,
            store: store.name.clone(),
            workload: workload.name.clone(),
            at: workload.at,
            info,
            properties,
            changes_records: checked.changes,
            dataset,
        });
        Ok(())
    }
}

/// Resolves the store of an entry, and returns it with the properties of a workload on it.
fn resolved(
    file: &ExperimentFile,
    store: &StoreEntry,
    workload: &WorkloadEntry,
) -> Result<(&'static StoreInfo, Properties), Faults> {
    let info = |properties: &mut Properties| {
        let info = serval_stores::resolve(&store.binding, properties);
        // A fault without an origin belongs to the store's entry.
        let place = |fault: Fault| Fault { origin: fault.origin.or_else(|| store.origin.clone()), ..fault };
        info.map_err(|faults| faults.map(place))
    };
    let made =
        properties(file, store, workload).and_then(|mut properties| Ok((info(&mut properties)?, properties)));
    made.map_err(|mut faults| {
        // A wrong name is reported together with wrong properties.
        faults.take(info(&mut Properties::new()));
        faults
    })
}

/// Returns a unique name for a data set's folder: different names may become equal when they are cleaned.
fn folder_name(name: &str, others: &[Dataset]) -> String {
    let clean = Some(clean(name)).filter(|clean| !clean.is_empty()).unwrap_or_else(|| "store".to_owned());
    let numbered = (2..).map(|number| format!("{clean}-{number}"));
    let mut names = std::iter::once(clean.clone()).chain(numbered);
    let free = |candidate: &String| !others.iter().any(|other| other.folder == *candidate);
    names.find(free).unwrap_or_default()
}

/// Returns the name of a curve: `redis`, or with several workloads `redis, A`.
fn curve_name(file: &ExperimentFile, store: &StoreEntry, workload: &WorkloadEntry) -> String {
    match file.workloads.len() {
        1 => store.name.clone(),
        _ => format!("{}, {}", store.name, workload.name),
    }
}

struct Checked {
    records: u64,
    bytes: f64,
    changes: bool,
    /// Names of the operations and metrics that its results may have.
    operations: Vec<String>,
    warnings: Vec<Fault>,
}

/// Checks a curve by making the plans of a load and a run.
fn check(info: &'static StoreInfo, properties: &Properties) -> Result<Checked, Faults> {
    let plan = |phase| Plan::strict(properties.clone(), phase, info);
    let mut faults = Faults::default();
    let plans = (faults.take(plan(Phase::Load)), faults.take(plan(Phase::Run)));
    let (Some(load), Some(run)) = plans else { return Err(faults) };
    let records = load.core.as_ref().map_or(0, |core| {
        let (first, end) = core.load_range();
        end.saturating_sub(first)
    });
    let mut reader = serval_model::properties::Reader::new(properties);
    let bytes =
        records as f64 * reader.count(&core::FIELD_COUNT) as f64 * reader.size(&core::FIELD_LENGTH) as f64;
    let changes = run.workload.demands().iter().any(|demand| {
        matches!(demand.kind, serval_model::OperationKind::Insert | serval_model::OperationKind::Delete)
    });
    // A read-modify-write is a read and an update, and a metric of its own.
    let modifies = reader.number(&core::READ_MODIFY_WRITE_PROPORTION) > 0.0;
    let kinds = run.workload.demands().into_iter().map(|demand| demand.kind.name().to_owned());
    let own = run.workload.metrics().into_iter().chain(modifies.then(|| "READ-MODIFY-WRITE".to_owned()));
    let mut operations: Vec<String> = kinds.chain(own).collect();
    operations.sort();
    operations.dedup();
    Ok(Checked { records, bytes, changes, operations, warnings: run.warnings })
}

/// Returns the reason if a store does not support the state policy.
fn unrenewable(policy: StatePolicy, set: &Dataset) -> Option<String> {
    let what = |missing: &str| {
        format!(
            "state = \"snapshot\": Serval cannot restore the records of {} by itself; give the store {missing}, or \
             use state = \"reload\" or \"continue\"",
            set.info.name
        )
    };
    match (policy, set.renewal) {
        (StatePolicy::Snapshot, Renewal::Server) => match (&set.save, &set.restore) {
            (Some(_), Some(_)) => None,
            (None, Some(_)) => Some(what("a 'save' command")),
            (Some(_), None) => Some(what("a 'restore' command")),
            (None, None) => Some(what("'save' and 'restore' commands")),
        },
        // Records in memory cannot be copied.
        (StatePolicy::Snapshot, Renewal::Reopen) => Some(what("files (an embedded store on disk)")),
        _ => None,
    }
}

/// Finds another data set in the same table of the same store.
fn same_table<'a>(datasets: &'a [Dataset], set: &Dataset) -> Option<&'a Dataset> {
    let place = |set: &Dataset| {
        let own = set.properties.iter().filter(|(name, _)| {
            *name == core::TABLE.name || set.info.properties.properties.iter().any(|p| p.name == *name)
        });
        own.map(|(name, setting)| (name.to_owned(), setting.value.clone())).collect::<Vec<_>>()
    };
    if !matches!(set.renewal, Renewal::Server) {
        return None;
    }
    datasets.iter().find(|other| other.info.name == set.info.name && place(other) == place(set))
}
