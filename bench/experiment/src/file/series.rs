//! Reading files of sweeps and searches.

use super::{
    CURVES_MAX, REPEATS_MAX,
    entries::{
        ARRIVALS, CurveObjective, ExperimentFile, PointOrder, RunSettings, StatePolicy, StoreEntry,
        WorkloadEntry,
    },
    group,
    heading::Heading,
    points::{self, LoadPoint, POINTS},
    reader::{TomlSource, TomlTable},
};
use crate::promise::Promise;
use serval_model::properties::Origin;
use std::path::Path;

/// Longest name of a store or workload; names become parts of folders' names.
const NAME_MAX: usize = 60;

pub(super) fn file(source: &TomlSource<'_>, root: &TomlTable<'_, '_>) -> Option<ExperimentFile> {
    let heading = Heading::read(source, root);
    let axis = root.text("axis");
    let properties = root.properties_in("[properties]");
    let run = root.table("run", "[run]").map_or_else(RunSettings::default, settings);
    let question = question(source, root);
    let group = root.table("group", "[group]").map(group::group);
    let stores: Vec<StoreEntry> = root.tables("stores", "[[stores]]").into_iter().filter_map(store).collect();
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let tables = root.tables("workloads", "[[workloads]]");
    let several = tables.len() > 1;
    let workloads: Vec<WorkloadEntry> =
        tables.into_iter().filter_map(|table| workload(table, folder, several, axis.is_some())).collect();
    for (key, count) in [("stores", stores.len()), ("workloads", workloads.len())] {
        let listed = root.value(key).and_then(|value| value.get_ref().as_array().map(|list| list.is_empty()));
        if root.value(key).is_none() || listed == Some(true) {
            source.fault_overall(format!("no [[{key}]]: an experiment needs at least one"));
        } else if count > CURVES_MAX {
            root.fault(key, format!("more than {CURVES_MAX}"));
        }
    }
    unique(source, "stores", stores.iter().map(|store| (&store.name, &store.origin)));
    unique(source, "workloads", workloads.iter().map(|workload| (&workload.name, &workload.origin)));
    Some(ExperimentFile { heading, axis, run, question, group, properties, stores, workloads })
}

pub(super) fn unique<'a>(
    source: &TomlSource<'_>,
    what: &str,
    names: impl Iterator<Item = (&'a String, &'a Option<Origin>)>,
) {
    let mut seen = std::collections::BTreeSet::new();
    for (name, origin) in names {
        if !seen.insert(name) {
            let line = match origin {
                Some(Origin::File { line, .. }) => format!("line {line}: "),
                _ => String::new(),
            };
            source
                .fault_overall(format!("{line}two {what} are called '{name}': give each a name of its own"));
        }
    }
}

fn settings(table: TomlTable<'_, '_>) -> RunSettings {
    let default = RunSettings::default();
    let auto = table.value("clients").is_some_and(|value| value.get_ref().as_str() == Some("auto"));
    let clients = if auto { None } else { table.count("clients", 1..1_000_001) };
    let warm_up = table.duration("warmup").unwrap_or(default.warm_up);
    let settings = RunSettings {
        clients,
        arrivals: table.choice("arrivals", &ARRIVALS).unwrap_or(default.arrivals),
        time: table.duration("time").unwrap_or(default.time),
        warm_up,
        warm_up_max: table.duration("warmup_max").unwrap_or(default.warm_up_max),
        repeats: table.count("repeats", 1..REPEATS_MAX + 1).unwrap_or(default.repeats),
        state: table.choice("state", &StatePolicy::NAMES).unwrap_or(default.state),
        order: table.choice("order", &PointOrder::NAMES).unwrap_or(default.order),
        seed: table.count("seed", 0..1 << 53),
        load: table.flag("load").unwrap_or(default.load),
    };
    if let Err((key, problem)) = settings.check() {
        table.fault(key, problem);
    }
    table.finish();
    settings
}

fn question(source: &TomlSource<'_>, root: &TomlTable<'_, '_>) -> CurveObjective {
    let sweep = root.table("sweep", "[sweep]");
    let max = root.table("max", "[max]");
    if sweep.is_some() && max.is_some() {
        root.fault("max", "[sweep] and [max] cannot both be asked: make two files");
    }
    let mut question = CurveObjective::Sweep(LoadPoint::even(POINTS));
    if let Some(table) = sweep {
        if let Some(value) = table.value("points") {
            question = CurveObjective::Sweep(points::read(source, value));
        }
        table.finish();
    }
    if let Some(table) = max {
        match table.text("promise").map(|text| Promise::parse(&text)) {
            Some(Ok(promise)) => question = CurveObjective::Max(promise),
            Some(Err(problem)) => table.fault("promise", problem),
            None if table.value("promise").is_none() => {
                table.fault("promise", "is missing: for example \"read.p99 < 10ms\"");
            }
            None => {}
        }
        table.finish();
    }
    question
}

pub(super) fn origin(table: &TomlTable<'_, '_>, source: &TomlSource<'_>) -> Origin {
    source.origin(&table.span(""))
}

pub(super) fn checked_name(table: &TomlTable<'_, '_>, name: String) -> String {
    if name.trim().is_empty() || name.chars().count() > NAME_MAX || name.chars().any(char::is_control) {
        table.fault("name", format!("must have 1 to {NAME_MAX} characters"));
    }
    name
}

pub(super) fn store(table: TomlTable<'_, '_>) -> Option<StoreEntry> {
    let place = origin(&table, table.source());
    let binding = table.text("binding");
    let name = table.text("name").or_else(|| binding.clone());
    if name.is_none() {
        table.fault("binding", "is missing: which store is it? 'serval stores' lists them");
    }
    let name = name.map(|name| checked_name(&table, name));
    let entry = StoreEntry {
        binding: binding.or_else(|| name.clone()).unwrap_or_default(),
        name: name.unwrap_or_default(),
        watch: table.texts("watch"),
        save: table.text("save"),
        restore: table.text("restore"),
        properties: table.properties_in("[stores.properties]"),
        origin: Some(place),
    };
    table.finish();
    (!entry.name.is_empty()).then_some(entry)
}

fn workload(table: TomlTable<'_, '_>, folder: &Path, several: bool, on_axis: bool) -> Option<WorkloadEntry> {
    let place = origin(&table, table.source());
    let file = table.path("file").map(|path| folder.join(path));
    let stem =
        file.as_ref().and_then(|file| file.file_name()).map(|name| name.to_string_lossy().into_owned());
    let at = table.number("at");
    if on_axis && at.is_none() {
        table.fault("at", "is missing: the file has an axis, so each workload has its place on it");
    } else if !on_axis && at.is_some() {
        table.fault("at", "has no axis to be on: set 'axis' at the top of the file");
    }
    let named = table.text("name").or_else(|| at.map(|at| at.to_string())).or(stem);
    let name = match named {
        Some(name) => checked_name(&table, name),
        None if several => {
            table.fault("name", "is missing: of several workloads each needs one");
            String::new()
        }
        None => String::new(),
    };
    let properties = table.properties_in("[workloads.properties]");
    table.finish();
    Some(WorkloadEntry { name, file, at, properties, origin: Some(place) })
}
