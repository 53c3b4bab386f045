//! Experiment files: `docs/experiments.md` has the format.

mod group;
mod phases;
mod points;
mod reader;
mod write;

pub use group::{GroupEntry, LOST};
pub use phases::{
    At, COMMAND_TIMEOUT, Only, PARTITIONS_MAX, PHASES_MAX, PhaseSpec, PhaseWork, PhasesFile, WAIT_EVERY,
    WAIT_TIMEOUT, asks_for_phases, of_properties,
};
pub use points::{POINTS, POINTS_MAX, Point, parse_points};
pub(crate) use write::SECRET;

use crate::promise::Promise;
use reader::{Source, Table};
use serval_model::properties::{Fault, Faults, Origin};
use serval_runner::pacing::Arrivals;
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};
use toml::de::DeTable;

/// Version of the format.
pub const FORMAT_VERSION: u64 = 1;

/// Largest file that is read; the longest of the ready-made ones has a few KiB.
const FILE_MAX: u64 = 1 << 20;

/// Stores or workloads at most.
pub const CURVES_MAX: usize = 64;

/// Repeats of a point at most.
pub const REPEATS_MAX: u64 = 1000;

/// Longest name of a store or workload: it becomes part of folders' names.
const NAME_MAX: usize = 60;

/// What is done with the records between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatePolicy {
    /// What was inserted stays; inserts go on after the last key.
    Continue,
    /// They are removed and loaded again.
    Reload,
    /// The loaded state is put back.
    Snapshot,
}

impl StatePolicy {
    /// Names in files and on the command line.
    pub const NAMES: [(&'static str, StatePolicy); 3] = [
        ("continue", StatePolicy::Continue),
        ("reload", StatePolicy::Reload),
        ("snapshot", StatePolicy::Snapshot),
    ];
}

/// In which order points are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointOrder {
    /// Anew in every repeat.
    Shuffled,
    /// As the file has them.
    Rising,
}

impl PointOrder {
    /// Names in files and on the command line.
    pub const NAMES: [(&'static str, PointOrder); 2] =
        [("shuffled", PointOrder::Shuffled), ("rising", PointOrder::Rising)];
}

/// Names of arrivals in files and on the command line.
pub const ARRIVALS: [(&str, Arrivals); 3] =
    [("poisson", Arrivals::Poisson), ("uniform", Arrivals::Uniform), ("client", Arrivals::Client)];

/// The name of a value in a list of names.
pub fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    names.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
}

/// How every run is made.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// Clients; `None` to find out how many saturate the store.
    pub clients: Option<u64>,
    /// How intended starts are spaced.
    pub arrivals: Arrivals,
    /// Measured time of a run.
    pub time: Duration,
    /// Warm-up at least.
    pub warm_up: Duration,
    /// Warm-up at most, until steady; zero for exactly `warm_up`.
    pub warm_up_max: Duration,
    /// Runs of each point.
    pub repeats: u64,
    /// The records between runs.
    pub state: StatePolicy,
    /// The order of points.
    pub order: PointOrder,
    /// The seed; `None` to draw one.
    pub seed: Option<u64>,
    /// Whether the records must be loaded; else they are there.
    pub load: bool,
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            clients: None,
            arrivals: Arrivals::Poisson,
            time: Duration::from_secs(30),
            warm_up: Duration::from_secs(2),
            warm_up_max: Duration::from_secs(60),
            repeats: 3,
            state: StatePolicy::Continue,
            order: PointOrder::Shuffled,
            seed: None,
            load: true,
        }
    }
}

/// What is asked of each curve.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// Times at these offered loads.
    Sweep(Vec<Point>),
    /// The highest rate that keeps a promise.
    Max(Promise),
}

/// A property with who set it.
pub type PropertyLine = (String, String, Origin);

/// A store of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreEntry {
    /// What it is called.
    pub name: String,
    /// The store's name or YCSB class.
    pub binding: String,
    /// Processes whose costs are wanted.
    pub watch: Vec<String>,
    /// A command that is run once the records are loaded.
    pub save: Option<String>,
    /// A command that brings them back.
    pub restore: Option<String>,
    /// Its properties.
    pub properties: Vec<PropertyLine>,
    /// Where it stands.
    pub origin: Option<Origin>,
}

/// A workload of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadEntry {
    /// What it is called; empty for the only one.
    pub name: String,
    /// Its file, as it is found from here.
    pub file: Option<PathBuf>,
    /// Its place on the axis.
    pub at: Option<f64>,
    /// Its properties.
    pub properties: Vec<PropertyLine>,
    /// Where it stands.
    pub origin: Option<Origin>,
}

/// An experiment file, read but not yet checked against stores and workloads.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentFile {
    /// What it is called.
    pub title: String,
    /// What it is for.
    pub about: String,
    /// The published figure that it stands for.
    pub figure: String,
    /// What the publication saw.
    pub saw: String,
    /// What workloads' places stand for.
    pub axis: Option<String>,
    /// How every run is made.
    pub run: RunSettings,
    /// What is asked.
    pub question: Question,
    /// The client processes that make every run together, if several do.
    pub group: Option<GroupEntry>,
    /// Properties of all curves.
    pub properties: Vec<PropertyLine>,
    /// The stores.
    pub stores: Vec<StoreEntry>,
    /// The workloads.
    pub workloads: Vec<WorkloadEntry>,
}

/// What a file asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyFile {
    /// A sweep, or a search for the highest rate.
    Series(Box<ExperimentFile>),
    /// Phases, one after the other.
    Phases(Box<PhasesFile>),
}

/// Reads an experiment file of any kind. All faults come at once.
///
/// # Errors
///
/// All faults, with their lines.
pub fn read_file(path: &Path) -> Result<AnyFile, Faults> {
    let fault = |problem: String| Faults::one(format!("{}: {problem}", path.display()));
    if path.is_dir() {
        return Err(fault("is a folder, not an experiment file".into()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| fault(format!("cannot be read: {e}. Is the path right?")))?;
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(|e| fault(format!("cannot be read: {e}")))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(fault(format!("is longer than {} MiB, which is the most that is read", FILE_MAX >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|_| fault("is not UTF-8".into()))?;
    read_any(&text, path)
}

/// Reads the text of a sweep or search, which came from `path`; workload files are
/// looked for beside it.
///
/// # Errors
///
/// All faults, with their lines; that it is of phases.
pub fn read(text: &str, path: &Path) -> Result<ExperimentFile, Faults> {
    match read_any(text, path)? {
        AnyFile::Series(file) => Ok(*file),
        AnyFile::Phases(_) => Err(Faults::one(format!("{}: is a file of phases", path.display()))),
    }
}

/// Reads the text of a file of any kind, which came from `path`; workload files are
/// looked for beside it.
///
/// # Errors
///
/// All faults, with their lines.
pub fn read_any(text: &str, path: &Path) -> Result<AnyFile, Faults> {
    let source = Source::new(text, path);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What follows from a broken table would only confuse.
        for error in errors.iter().take(20) {
            source.fault(&error.span().unwrap_or(0..0), error.message().to_owned());
        }
        return Err(Faults(source.into_faults()));
    }
    let root = Table::new(&source, document.get_ref(), 0..0, "the file");
    let file = version(&source, &root).and_then(|()| {
        if root.value("phases").is_some() {
            return phases::file(&source, &root).map(|file| AnyFile::Phases(Box::new(file)));
        }
        file(&source, &root).map(|file| AnyFile::Series(Box::new(file)))
    });
    root.finish();
    let faults = source.into_faults();
    match file {
        Some(file) if faults.is_empty() => Ok(file),
        _ => Err(Faults(faults)),
    }
}

/// Checks the version; `None` where nothing that follows can be judged.
fn version(source: &Source<'_>, root: &Table<'_, '_>) -> Option<()> {
    match root.count("version", 0..u64::MAX) {
        Some(FORMAT_VERSION) => {}
        Some(other) => {
            let problem = format!("this Serval reads version {FORMAT_VERSION}, the file has {other}");
            root.fault("version", problem);
            return None;
        }
        None => {
            if root.value("version").is_none() {
                source.fault_overall(format!("no version: write 'version = {FORMAT_VERSION}' at its top"));
            }
        }
    }
    Some(())
}

fn file(source: &Source<'_>, root: &Table<'_, '_>) -> Option<ExperimentFile> {
    let title = root.text("title").filter(|title| !title.trim().is_empty());
    let stem = source.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let axis = root.text("axis");
    let properties = match root.table("properties", "[properties]") {
        Some(table) => table.properties(),
        None => Vec::new(),
    };
    let run = root.table("run", "[run]").map_or_else(RunSettings::default, |table| settings(table));
    let question = question(source, root);
    let group = root.table("group", "[group]").map(group::group);
    let stores: Vec<StoreEntry> =
        root.tables("stores", "[[stores]]").into_iter().filter_map(|table| store(table)).collect();
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
    Some(ExperimentFile {
        title: title.unwrap_or(stem),
        about: root.text("about").unwrap_or_default(),
        figure: root.text("figure").unwrap_or_default(),
        saw: root.text("saw").unwrap_or_default(),
        axis,
        run,
        question,
        group,
        properties,
        stores,
        workloads,
    })
}

fn unique<'a>(
    source: &Source<'_>,
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

fn settings(table: Table<'_, '_>) -> RunSettings {
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

impl RunSettings {
    /// What is wrong with settings that are each right alone: the key, and
    /// the problem.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.time < Duration::from_millis(10) {
            return Err(("time", "must be 10 ms or more".into()));
        }
        if !self.warm_up_max.is_zero() && self.warm_up_max < self.warm_up {
            return Err(("warmup_max", "is less than warmup".into()));
        }
        Ok(())
    }
}

fn question(source: &Source<'_>, root: &Table<'_, '_>) -> Question {
    let sweep = root.table("sweep", "[sweep]");
    let max = root.table("max", "[max]");
    if sweep.is_some() && max.is_some() {
        root.fault("max", "[sweep] and [max] cannot both be asked: make two files");
    }
    let mut question = Question::Sweep(Point::even(POINTS));
    if let Some(table) = sweep {
        if let Some(value) = table.value("points") {
            question = Question::Sweep(points::read(source, value));
        }
        table.finish();
    }
    if let Some(table) = max {
        match table.text("promise").map(|text| Promise::parse(&text)) {
            Some(Ok(promise)) => question = Question::Max(promise),
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

fn origin(table: &Table<'_, '_>, source: &Source<'_>) -> Origin {
    source.origin(&table.span(""))
}

fn checked_name(table: &Table<'_, '_>, name: String) -> String {
    if name.trim().is_empty() || name.chars().count() > NAME_MAX || name.chars().any(char::is_control) {
        table.fault("name", format!("must have 1 to {NAME_MAX} characters"));
    }
    name
}

fn store(table: Table<'_, '_>) -> Option<StoreEntry> {
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
        properties: table
            .table("properties", "[stores.properties]")
            .map_or(Vec::new(), |table| table.properties()),
        origin: Some(place),
    };
    table.finish();
    (!entry.name.is_empty()).then_some(entry)
}

fn workload(table: Table<'_, '_>, folder: &Path, several: bool, on_axis: bool) -> Option<WorkloadEntry> {
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
    let properties =
        table.table("properties", "[workloads.properties]").map_or(Vec::new(), |table| table.properties());
    table.finish();
    Some(WorkloadEntry { name, file, at, properties, origin: Some(place) })
}

/// A fault of an entry.
pub(crate) fn fault_at(origin: &Option<Origin>, problem: impl Into<String>) -> Fault {
    Fault { origin: origin.clone(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHOLE: &str = r#"
version = 1
title = "t"
axis = "records a range"
[run]
clients = 16
arrivals = "uniform"
time = 5
warmup = "1s"
warmup_max = "20s"
repeats = 2
state = "reload"
order = "rising"
seed = 7
[sweep]
points = ["50%", 2000, "max"]
[group]
clients = 4
zookeeper = "zoo:2181"
lost = "continue"
wait = "1.5s"
[properties]
recordcount = 1_000
core.flag = true
[[stores]]
binding = "redis"
watch = "redis-server"
[stores.properties]
redis.port = 6379
[[stores]]
name = "mine"
binding = "memory"
watch = [1, "x y"]
[[workloads]]
at = 25
file = "w/a"
[[workloads]]
name = "b"
at = 50.5
[workloads.properties]
"a.b" = "c"
"#;

    fn words(text: &str) -> String {
        read(text, Path::new("dir/x.toml")).unwrap_err().to_string()
    }

    #[test]
    fn a_whole_file_is_read() {
        let file = read(WHOLE, Path::new("dir/x.toml")).unwrap();
        assert_eq!(file.run.clients, Some(16));
        assert_eq!((file.run.time, file.run.repeats), (Duration::from_secs(5), 2));
        assert_eq!(file.question, Question::Sweep(vec![Point::Share(0.5), Point::Rate(2000.0), Point::Max]));
        let text = |lines: &[PropertyLine]| {
            lines.iter().map(|(name, value, _)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text(&file.properties), "core.flag=true recordcount=1000");
        assert_eq!(text(&file.stores[0].properties), "redis.port=6379");
        assert_eq!(file.stores[0].watch, ["redis-server"]);
        assert_eq!(file.stores[1].watch, ["1", "x y"]);
        assert_eq!((file.stores[0].name.as_str(), file.stores[1].name.as_str()), ("redis", "mine"));
        assert_eq!(file.workloads[0].file.as_deref(), Some(Path::new("dir/w/a")));
        assert_eq!((file.workloads[0].name.as_str(), file.workloads[0].at), ("25", Some(25.0)));
        assert_eq!(text(&file.workloads[1].properties), "a.b=c");
        let line = |lines: &[PropertyLine]| lines[0].2.to_string();
        assert_eq!(line(&file.stores[0].properties), "dir/x.toml:29");
    }

    #[test]
    fn a_group_is_what_its_properties_are() {
        let group = read(WHOLE, Path::new("dir/x.toml")).unwrap().group.unwrap();
        assert_eq!((group.clients, group.lost, group.root.as_deref()), (Some(4), Some(LOST[1].1), None));
        let lines: Vec<String> = group
            .properties()
            .iter()
            .map(|(name, value, origin)| format!("{origin}: {name}={value}"))
            .collect();
        assert_eq!(
            lines,
            [
                "dir/x.toml:17: coordination.clients=4",
                "dir/x.toml:17: coordination.zookeeper=zoo:2181",
                "dir/x.toml:17: coordination.lost=continue",
                "dir/x.toml:17: coordination.wait=1500ms",
            ]
        );
        let words = words("version = 1\n[group]\nclients = 0\nlost = \"no\"\nzoo = 1\n");
        for part in [
            "clients: must be a whole number from 1",
            "lost: 'no' is not one of end, continue",
            "unknown key 'zoo'",
        ] {
            assert!(words.contains(part), "'{part}' is not in\n{words}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let file = read(WHOLE, Path::new("dir/x.toml")).unwrap();
        let again = read(&file.to_toml(), Path::new("y.toml")).unwrap();
        assert_eq!(again.to_toml(), file.to_toml());
        let group =
            |file: &ExperimentFile| file.group.clone().map(|group| GroupEntry { origin: None, ..group });
        assert!(group(&file).is_some());
        assert_eq!(group(&again), group(&file));
        assert_eq!((again.run, again.question), (file.run, file.question));
    }

    #[test]
    fn all_faults_come_at_once_with_their_lines() {
        let text = "version = 1\ntitel = \"x\"\n[run]\ntime = \"5 parsecs\"\nrepeats = 0\nstate = \"fresh\"\n\
                    [sweep]\npoints = [\"50\", -1]\n[[stores]]\nwatch = 3.5\n[[workloads]]\nat = 1\n";
        let words = words(text);
        for part in [
            "x.toml:2: unknown key 'titel' in the file: did you mean 'title'?",
            "x.toml:4: time: unknown unit 'parsecs'",
            "x.toml:5: repeats: must be a whole number from 1 to 1000",
            "x.toml:6: state: 'fresh' is not one of continue, reload, snapshot",
            "x.toml:8: points: ",
            "binding: is missing",
            "watch: must be a list of texts",
            "at: has no axis to be on",
        ] {
            assert!(words.contains(part), "'{part}' is not in\n{words}");
        }
    }

    #[test]
    fn other_versions_and_broken_files_are_refused() {
        let none = words("version = 1\nstores = []\n[[workloads]]\n");
        assert!(none.contains("no [[stores]]: an experiment needs at least one"), "{none}");
        assert!(words("version = 2\n").contains("reads version 1, the file has 2"));
        assert!(words("").contains("no version"));
        assert!(words("version = 1\n[[stores]\n").contains("x.toml:2: "));
        let twice = "version = 1\n[[stores]]\nname=\"a\"\n[[stores]]\nname=\"a\"\n[[workloads]]\n";
        assert!(words(twice).contains("line 4: two stores are called 'a'"), "{}", words(twice));
        let both =
            "version = 1\n[sweep]\n[max]\npromise = \"p99 < 1ms\"\n[[stores]]\nname=\"a\"\n[[workloads]]\n";
        assert!(words(both).contains("cannot both be asked"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z\\[\\]=\"0-9\n.,%_ {}-]{0,200}") {
            let _ = read(&text, Path::new("x"));
        }

        #[test]
        fn no_value_panics(key in "(clients|time|repeats|seed|state|order|arrivals|warmup)",
                           value in "(-?[0-9]{1,25}|\"[a-z0-9%.]{0,8}\"|[0-9]\\.[0-9]e[0-9]{1,4}|true|nan|-inf|\\[\\]|1979-05-27)") {
            let text = format!("version = 1\n[run]\n{key} = {value}\n[sweep]\npoints = {value}\n[[stores]]\nname = \"a\"\n[[workloads]]\n");
            let _ = read(&text, Path::new("x"));
        }
    }
}
