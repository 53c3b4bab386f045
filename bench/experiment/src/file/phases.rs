//! Files of phases: `[[phases]]` in an experiment file, and `phases=N` with
//! `phaseK.NAME=VALUE` in properties. `docs/phases.md` has both formats.

use super::{
    FORMAT_VERSION, GroupEntry, PropertyLine, StoreEntry, group,
    reader::{Source, Table},
    series::{self, checked_name, origin, unique},
};
use serval_group::program;
use serval_model::{
    properties::{Fault, Faults, Origin, Properties, units},
    share::SHARES_MAX,
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Phases of an experiment at most: the paper's longest has eight.
pub const PHASES_MAX: usize = 1000;

/// Pieces into which a range of keys is divided at most.
pub const PARTITIONS_MAX: u64 = 100_000;

/// How long a condition is waited for if nothing is said.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(600);

/// Pause from one question about a condition to the next if nothing is said.
pub const WAIT_EVERY: Duration = Duration::from_secs(1);

/// Where a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Where the experiment is conducted.
    Coordinator,
    /// By each client of the group that takes part.
    Clients,
}

impl At {
    /// Names in files.
    pub const NAMES: [(&'static str, At); 2] = [("coordinator", At::Coordinator), ("clients", At::Clients)];
}

/// What is done in a phase.
#[derive(Debug, Clone, PartialEq)]
pub enum PhaseWork {
    /// Records are inserted.
    Load,
    /// Operations are run.
    Run,
    /// Nothing, for this long.
    Pause(Duration),
    /// The range of keys is divided before records come.
    Presplit {
        /// Into so many pieces of one size; `None` where the points are given.
        partitions: Option<u64>,
        /// Keys at which it is divided.
        points: Vec<String>,
        /// A program that divides it: it is given the points, a line each.
        command: Option<String>,
        /// The longest that the program may take.
        timeout: Duration,
    },
    /// A program is run.
    Command {
        /// For `sh -c`.
        command: String,
        /// Where.
        at: At,
        /// The longest that it may take.
        timeout: Duration,
    },
    /// A program is run again and again until it succeeds.
    Wait {
        /// For `sh -c`.
        command: String,
        /// From the end of one attempt to the next.
        every: Duration,
        /// The longest that is waited.
        timeout: Duration,
    },
    /// Something that a later version will do; what, in words.
    Later(&'static str),
}

impl PhaseWork {
    /// Its kind, as files have it.
    pub fn kind(&self) -> &'static str {
        match self {
            PhaseWork::Load => "load",
            PhaseWork::Run => "run",
            PhaseWork::Pause(_) => "pause",
            PhaseWork::Presplit { .. } => "presplit",
            PhaseWork::Command { .. } => "command",
            PhaseWork::Wait { .. } => "wait",
            PhaseWork::Later("bulk-format") => "bulk-format",
            PhaseWork::Later(_) => "bulk-import",
        }
    }

    /// Whether operations are measured in it.
    pub fn measures(&self) -> bool {
        matches!(self, PhaseWork::Load | PhaseWork::Run)
    }
}

/// Kinds of phases.
const KINDS: [&str; 8] =
    ["load", "run", "pause", "presplit", "command", "wait", "bulk-format", "bulk-import"];

/// Properties of some clients only.
#[derive(Debug, Clone, PartialEq)]
pub struct Only {
    /// Their numbers, from 1.
    pub clients: Vec<u64>,
    /// What they have.
    pub properties: Vec<PropertyLine>,
}

/// A phase as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseSpec {
    /// What it is called.
    pub name: String,
    /// What is done.
    pub work: PhaseWork,
    /// The clients that take part, by their numbers from 1; `None` for all.
    pub clients: Option<Vec<u64>>,
    /// The workload's file.
    pub workload: Option<PathBuf>,
    /// Its properties, over those of all phases.
    pub properties: Vec<PropertyLine>,
    /// Properties of some clients, over these.
    pub only: Vec<Only>,
    /// Where it stands.
    pub origin: Option<Origin>,
}

/// A file of phases, read but not yet checked against stores and workloads.
#[derive(Debug, Clone, PartialEq)]
pub struct PhasesFile {
    /// What it is called.
    pub title: String,
    /// What it is for.
    pub about: String,
    /// The published figure or table that it stands for.
    pub figure: String,
    /// What the publication saw.
    pub saw: String,
    /// The seed; `None` to draw one.
    pub seed: Option<u64>,
    /// The client processes that do the work of one, if several do.
    pub group: Option<GroupEntry>,
    /// Properties of all phases.
    pub properties: Vec<PropertyLine>,
    /// The store.
    pub store: StoreEntry,
    /// The phases, in order.
    pub phases: Vec<PhaseSpec>,
}

pub(super) fn file(source: &Source<'_>, root: &Table<'_, '_>) -> Option<PhasesFile> {
    let title = root.text("title").filter(|title| !title.trim().is_empty());
    let stem = source.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for series in ["sweep", "max", "run", "workloads", "axis"] {
        if root.value(series).is_some() {
            root.fault(series, "is of sweeps and not of phases: make two files");
        }
    }
    let properties = match root.table("properties", "[properties]") {
        Some(table) => table.properties(),
        None => Vec::new(),
    };
    let group = root.table("group", "[group]").map(group::group);
    let stores = root.tables("stores", "[[stores]]");
    match stores.len() {
        0 => source.fault_overall("no [[stores]]: an experiment of phases needs one"),
        1 => {}
        _ => root.fault(
            "stores",
            "phases are of one store: run the file once for each (--store), or make more files",
        ),
    }
    let store = stores.into_iter().filter_map(|table| series::store(table)).next();
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let tables = root.tables("phases", "[[phases]]");
    if tables.is_empty() || tables.len() > PHASES_MAX {
        root.fault("phases", format!("must be 1 to {PHASES_MAX} tables, each begun by [[phases]]"));
    }
    let count = tables.len();
    let phases: Vec<PhaseSpec> =
        tables.into_iter().enumerate().filter_map(|(nth, table)| phase(table, nth, folder)).collect();
    if phases.len() == count {
        unique(source, "phases", phases.iter().map(|phase| (&phase.name, &phase.origin)));
    }
    let seed = root.count("seed", 0..1 << 53);
    Some(PhasesFile {
        title: title.unwrap_or(stem),
        about: root.text("about").unwrap_or_default(),
        figure: root.text("figure").unwrap_or_default(),
        saw: root.text("saw").unwrap_or_default(),
        seed,
        group,
        properties,
        store: store?,
        phases,
    })
}

fn phase(table: Table<'_, '_>, nth: usize, folder: &Path) -> Option<PhaseSpec> {
    let place = origin(&table, table.source());
    let Some(kind) = table.text("kind") else {
        if table.value("kind").is_none() {
            table.fault("kind", format!("is missing: one of {}", KINDS.join(", ")));
        }
        return None;
    };
    let mut properties =
        table.table("properties", "[phases.properties]").map_or(Vec::new(), |table| table.properties());
    let only = table.tables("only", "[[phases.only]]").into_iter().map(|table| {
        let clients = numbers(&table, "clients");
        let lines = table.table("properties", "[phases.only.properties]");
        let properties = lines.map_or(Vec::new(), |table| table.properties());
        if clients.is_none() {
            table.fault("clients", "is missing: which clients are these properties of?");
        }
        table.finish();
        Only { clients: clients.unwrap_or_default(), properties }
    });
    let only: Vec<Only> = only.collect();
    let clients = numbers(&table, "clients");
    let name = table.text("name").map(|name| checked_name(&table, name));
    let workload = table.path("workload").map(|path| folder.join(path));
    // Keys that stand for properties.
    let time = table.duration("time");
    let count = table.count("operationcount", 1..u64::MAX);
    let warm_up = table.duration("warmup");
    let work = work(&table, &kind, time)?;
    if work.measures() {
        let at = |key: &'static str| table.source().origin(&table.span(key));
        let span = |time: Duration| units::format_duration(time.as_nanos() as u64);
        let mut add = |key: &'static str, property: &str, value: Option<String>| {
            if let Some(value) = value {
                properties.push((property.to_owned(), value, at(key)));
            }
        };
        if kind == "load" {
            for (key, given) in [("operationcount", count.is_some()), ("warmup", warm_up.is_some())] {
                if given {
                    table.fault(key, "a load has none: recordcount or insertcount says how much it does");
                }
            }
        }
        add("time", "maxexecutiontime", time.map(span));
        add("operationcount", "operationcount", count.map(|count| count.to_string()));
        add("warmup", "warmup", warm_up.map(span));
    } else {
        let at_clients = matches!(work, PhaseWork::Command { at: At::Clients, .. });
        let none = [
            ("time", time.is_some() && kind != "pause"),
            ("clients", clients.is_some() && !at_clients),
            ("workload", workload.is_some()),
            ("properties", !properties.is_empty()),
            ("operationcount", count.is_some()),
            ("warmup", warm_up.is_some()),
            ("only", !only.is_empty()),
        ];
        for (key, given) in none {
            // The range that is divided is a property of the keys.
            if given && !(key == "properties" && kind == "presplit") {
                table.fault(key, format!("a phase that is a {kind} has none"));
            }
        }
    }
    table.finish();
    let name = name.unwrap_or_else(|| format!("{} {}", work.kind(), nth + 1));
    Some(PhaseSpec { name, work, clients, workload, properties, only, origin: Some(place) })
}

/// Numbers of clients, from 1.
fn numbers(table: &Table<'_, '_>, key: &'static str) -> Option<Vec<u64>> {
    table.value(key)?;
    let parsed: Option<Vec<u64>> = table.texts(key).iter().map(|text| text.parse().ok()).collect();
    let found = parsed.filter(|all| !all.is_empty() && all.iter().all(|n| (1..=SHARES_MAX).contains(n)));
    if found.is_none() {
        table.fault(key, "must be a list of clients' numbers, from 1: [1, 2]");
    }
    found
}

fn work(table: &Table<'_, '_>, kind: &str, time: Option<Duration>) -> Option<PhaseWork> {
    let command = || {
        let command = table.text("command").filter(|text| !text.trim().is_empty());
        if command.is_none() {
            table.fault("command", format!("is missing: the program that a phase of kind '{kind}' runs"));
        }
        command
    };
    let timeout = |default| table.duration("timeout").unwrap_or(default);
    Some(match kind {
        "load" => PhaseWork::Load,
        "run" => PhaseWork::Run,
        "pause" => {
            if time.is_none() && table.value("time").is_none() {
                table.fault("time", "is missing: how long is the pause?");
            }
            PhaseWork::Pause(time.unwrap_or_default())
        }
        "presplit" => {
            let partitions = table.count("partitions", 2..PARTITIONS_MAX + 1);
            let points = table.texts("points");
            if (table.value("partitions").is_some()) == (table.value("points").is_some()) {
                table.fault(
                    "partitions",
                    "either partitions (how many pieces) or points (a list of keys) is needed",
                );
            }
            let command = table.text("command");
            PhaseWork::Presplit { partitions, points, command, timeout: timeout(program::TIMEOUT) }
        }
        "command" => PhaseWork::Command {
            command: command()?,
            at: table.choice("at", &At::NAMES).unwrap_or(At::Coordinator),
            timeout: timeout(program::TIMEOUT),
        },
        "wait" => PhaseWork::Wait {
            command: command()?,
            every: table.duration("every").unwrap_or(WAIT_EVERY),
            timeout: timeout(WAIT_TIMEOUT),
        },
        "bulk-format" => PhaseWork::Later("bulk-format"),
        "bulk-import" => PhaseWork::Later("bulk-import"),
        other => {
            table.fault("kind", format!("'{other}' is not one of {}", KINDS.join(", ")));
            return None;
        }
    })
}

/// Keys of a phase in properties that are no properties of its work.
const OF_PHASE: [&str; 11] =
    ["kind", "load", "name", "time", "command", "at", "every", "timeout", "partitions", "points", "clients"];

/// Whether properties ask for phases.
pub fn asks_for_phases(properties: &Properties) -> bool {
    properties.get("phases").is_some()
}

/// The phases that properties ask for, as in YCSB++: `phases=N`, `phaseK.NAME=VALUE` for phase K
/// alone, `load=yes` or `no`. What is left is of all phases. `default` is the kind of phases
/// that do not say theirs.
///
/// # Errors
///
/// All faults at once.
pub fn of_properties(
    properties: &Properties,
    default: &'static str,
    store: &StoreEntry,
    title: &str,
) -> Result<PhasesFile, Faults> {
    let mut faults = Vec::new();
    let count = properties.get("phases").map_or("", |setting| setting.value.trim());
    let count = count.parse().ok().filter(|count| (1..=PHASES_MAX).contains(count)).unwrap_or_else(|| {
        let origin = properties.get("phases").map(|setting| setting.origin.clone());
        faults.push(Fault { origin, problem: format!("phases: must be a number from 1 to {PHASES_MAX}") });
        0
    });
    let mut of: Vec<Vec<PropertyLine>> = vec![Vec::new(); count];
    let mut all: Vec<PropertyLine> = Vec::new();
    for (name, setting) in properties.iter().filter(|(name, _)| *name != "phases") {
        let line = |name: &str| (name.to_owned(), setting.value.clone(), setting.origin.clone());
        let numbered = name.strip_prefix("phase").and_then(|rest| rest.split_once('.'));
        match numbered.and_then(|(number, rest)| Some((number.parse::<usize>().ok()?, rest))) {
            None => all.push(line(name)),
            Some((number, rest)) if (1..=count).contains(&number) => of[number - 1].push(line(rest)),
            // Without a number of phases this would be told for each.
            Some(_) if count == 0 => {}
            Some((number, _)) => faults.push(Fault {
                origin: Some(setting.origin.clone()),
                problem: format!("{name}: there is no phase {number}, for phases={count}"),
            }),
        }
    }
    // The kind of all phases that do not say theirs.
    let whole = all.iter().position(|(name, _, _)| name == "load").map(|at| all.remove(at));
    let mut phases = Vec::new();
    for (nth, mut lines) in of.into_iter().enumerate() {
        if let Some(whole) = whole.as_ref().filter(|_| !lines.iter().any(|(name, _, _)| name == "load")) {
            lines.push(whole.clone());
        }
        match of_lines(nth, lines, default) {
            Ok(phase) => phases.push(phase),
            Err(fault) => faults.push(fault),
        }
    }
    if !faults.is_empty() {
        return Err(Faults(faults));
    }
    Ok(PhasesFile {
        title: title.to_owned(),
        about: String::new(),
        figure: String::new(),
        saw: String::new(),
        seed: None,
        group: None,
        properties: all,
        store: store.clone(),
        phases,
    })
}

/// A phase of its lines. Those that are no properties of a load or run are read as the keys
/// of a file, so that both forms have one meaning.
fn of_lines(nth: usize, lines: Vec<PropertyLine>, default: &'static str) -> Result<PhaseSpec, Fault> {
    let (keys, properties): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|(name, _, _)| OF_PHASE.contains(&name.as_str()));
    let place = keys.iter().chain(&properties).next().map(|(_, _, origin)| origin.clone());
    let fault = |problem: String| Fault { origin: place.clone(), problem };
    let find = |key: &str| keys.iter().find(|(name, _, _)| name == key).map(|(_, value, _)| value.trim());
    let kind = match (find("kind"), find("load").map(str::to_lowercase).as_deref()) {
        (Some(kind), _) => kind.to_owned(),
        (None, None) => default.to_owned(),
        (None, Some("yes" | "true")) => "load".to_owned(),
        (None, Some("no" | "false")) => "run".to_owned(),
        (None, Some(other)) => {
            return Err(fault(format!("phase{}.load: '{other}' is neither yes nor no", nth + 1)));
        }
    };
    let mut text = format!("kind = {}\n", super::write::quoted(&kind));
    for (key, value, _) in keys.iter().filter(|(key, _, _)| !matches!(key.as_str(), "kind" | "load")) {
        let list: Vec<String> = value.split(',').map(|item| super::write::quoted(item.trim())).collect();
        let value = match key.as_str() {
            "points" | "clients" => format!("[{}]", list.join(", ")),
            "partitions" => {
                value.trim().parse::<u64>().map_or_else(|_| super::write::quoted(value), |n| n.to_string())
            }
            _ => super::write::quoted(value),
        };
        text.push_str(&format!("{key} = {value}\n"));
    }
    let path = PathBuf::from(format!("phase{}", nth + 1));
    let source = Source::new(&text, &path);
    let (document, errors) = toml::de::DeTable::parse_recoverable(&text);
    if let Some(error) = errors.first() {
        return Err(fault(format!("phase{}: {}", nth + 1, error.message())));
    }
    let spec = phase(Table::new(&source, document.get_ref(), 0..0, "the phase"), nth, Path::new(""));
    let faults = source.into_faults();
    if let Some(first) = faults.first() {
        return Err(fault(format!("phase{}: {}", nth + 1, first.problem)));
    }
    let mut spec = spec.ok_or_else(|| fault(format!("phase{} has a fault", nth + 1)))?;
    if !spec.work.measures() && !properties.is_empty() && spec.work.kind() != "presplit" {
        return Err(fault(format!(
            "phase{}.{}: a phase that is a {} has none",
            nth + 1,
            properties[0].0,
            spec.work.kind()
        )));
    }
    spec.properties.extend(properties);
    spec.origin = place;
    Ok(spec)
}

impl PhasesFile {
    /// The same, `by` times smaller: numbers of records and operations, ranges of keys, and times
    /// of runs and pauses are divided; rounded down, so that ranges beside each other do not overlap, to
    /// one record or a second at least.
    #[must_use]
    pub fn scaled(mut self, by: f64) -> PhasesFile {
        let span = |time: Duration| time.div_f64(by).max(Duration::from_secs(1).min(time));
        scale_lines(&mut self.properties, by);
        scale_lines(&mut self.store.properties, by);
        for phase in &mut self.phases {
            scale_lines(&mut phase.properties, by);
            phase.only.iter_mut().for_each(|only| scale_lines(&mut only.properties, by));
            if let PhaseWork::Pause(time) = &mut phase.work {
                *time = span(*time);
            }
        }
        self
    }

    /// The file as text, with everything in it that was elsewhere. Values of secrets are left
    /// out.
    pub fn to_toml(&self) -> String {
        super::write::phases(self, FORMAT_VERSION)
    }
}

/// Counts that a scale divides.
const COUNTS: [&str; 4] = ["recordcount", "insertcount", "insertstart", "operationcount"];

/// Times that a scale divides: those of runs.
const TIMES: [&str; 2] = ["maxexecutiontime", "warmup"];

fn scale_lines(lines: &mut [PropertyLine], by: f64) {
    let bound = |text: &str| Some((text.trim().parse::<u64>().ok()? as f64 / by) as u64);
    let count = |text: &str| bound(text).map(|scaled| scaled.max(u64::from(text.trim() != "0")));
    for (name, value, _) in lines {
        let name = name.as_str();
        if COUNTS.contains(&name)
            && let Some(scaled) = if name == "insertstart" { bound(value) } else { count(value) }
        {
            *value = scaled.to_string();
        } else if TIMES.contains(&name)
            && let Ok(ns) = units::parse_duration(value, 1_000_000_000)
        {
            let scaled = (ns as f64 / by).max(1e9_f64.min(ns as f64));
            *value = units::format_duration(scaled as u64);
        } else if name == "insertrange"
            && let Some((low, high)) = value.split_once("..")
            && let (Some(low), Some(high)) = (bound(low), count(high))
        {
            *value = format!("{low}..{high}");
        }
    }
}
