//! Reading and writing experiment files. `docs/experiments.md` has the format.

mod entries;
mod group;
mod heading;
mod lines;
mod numbered_phases;
mod phase_entries;
mod phases;
mod points;
mod reader;
mod scale;
mod series;
mod write;

pub use entries::{
    ARRIVALS, CurveObjective, ExperimentFile, PointOrder, RunSettings, StatePolicy, StoreEntry, WorkloadEntry,
};
pub use group::{GroupEntry, LOST};
pub use heading::Heading;
pub use lines::{PropertyLine, name_of, value_of};
pub(crate) use lines::{add_workload_file, set_lines};
pub use numbered_phases::{asks_for_phases, of_properties};
pub use phase_entries::{
    At, Only, PARTITIONS_MAX, PHASES_MAX, PhaseSpec, PhaseWork, PhasesFile, WAIT_EVERY, WAIT_TIMEOUT,
};
pub use points::{LoadPoint, POINTS, POINTS_MAX, parse_points};

use reader::{TomlSource, TomlTable};
use serval_model::properties::{Fault, Faults, Origin};
use std::{fs::File, io::Read, path::Path};
use toml::de::DeTable;

/// Version of the format.
pub const FORMAT_VERSION: u64 = 1;

/// Largest file that is read; those in `experiments/` have a few KiB.
const FILE_MAX: u64 = 1 << 20;

/// Most stores, workloads or curves of an experiment.
pub const CURVES_MAX: usize = 64;

/// Most repeats of a point.
pub const REPEATS_MAX: u64 = 1000;

/// Content of an experiment file of any kind.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyFile {
    /// A sweep, or a search for the highest rate.
    Series(Box<ExperimentFile>),
    /// A sequence of phases.
    Phases(Box<PhasesFile>),
}

/// Reads an experiment file of any kind.
///
/// # Errors
///
/// All faults at once, with their lines.
pub fn read_file(path: &Path) -> Result<AnyFile, Faults> {
    let fault = |problem: String| Faults::one(format!("{}: {problem}", path.display()));
    if path.is_dir() {
        return Err(fault("is a folder, not an experiment file".into()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| fault(format!("cannot be read: {e}. Is the path right?")))?;
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(|e| fault(format!("cannot be read: {e}")))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(fault(format!("is longer than {} MiB, the limit of an experiment file", FILE_MAX >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|_| fault("is not UTF-8".into()))?;
    read_any(&text, path)
}

/// Reads the text of a sweep or search. `path` is its file: workload files are relative to its folder.
///
/// # Errors
///
/// All faults with their lines, or a fault if the text has phases.
pub fn read(text: &str, path: &Path) -> Result<ExperimentFile, Faults> {
    match read_any(text, path)? {
        AnyFile::Series(file) => Ok(*file),
        AnyFile::Phases(_) => Err(Faults::one(format!("{}: is a file of phases", path.display()))),
    }
}

/// Reads the text of a file of any kind. `path` is its file: workload files are relative to its folder.
///
/// # Errors
///
/// All faults, with their lines.
pub fn read_any(text: &str, path: &Path) -> Result<AnyFile, Faults> {
    let source = TomlSource::new(text, path);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // Faults that follow from a syntax error would only confuse.
        for error in errors.iter().take(20) {
            source.fault(&error.span().unwrap_or(0..0), error.message().to_owned());
        }
        return Err(Faults(source.into_faults()));
    }
    let root = TomlTable::new(&source, document.get_ref(), 0..0, "the file");
    let file = version(&source, &root).and_then(|()| {
        if root.value("phases").is_some() {
            return phases::file(&source, &root).map(|file| AnyFile::Phases(Box::new(file)));
        }
        series::file(&source, &root).map(|file| AnyFile::Series(Box::new(file)))
    });
    root.finish();
    let faults = source.into_faults();
    match file {
        Some(file) if faults.is_empty() => Ok(file),
        _ => Err(Faults(faults)),
    }
}

/// Checks the version. Returns `None` if it is another one, because then the rest cannot be checked.
fn version(source: &TomlSource<'_>, root: &TomlTable<'_, '_>) -> Option<()> {
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

/// Makes a fault of an entry.
pub(crate) fn fault_at(origin: &Option<Origin>, problem: impl Into<String>) -> Fault {
    Fault { origin: origin.clone(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

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
    fn a_file_with_all_settings_is_read() {
        let file = read(WHOLE, Path::new("dir/x.toml")).unwrap();
        assert_eq!(file.run.clients, Some(16));
        assert_eq!((file.run.time, file.run.repeats), (Duration::from_secs(5), 2));
        assert_eq!(
            file.question,
            CurveObjective::Sweep(vec![LoadPoint::Share(0.5), LoadPoint::Rate(2000.0), LoadPoint::Max])
        );
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
    fn a_group_takes_the_values_of_its_properties() {
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
    fn written_files_are_read_back() {
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
    fn all_faults_are_reported_together_with_their_lines() {
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
    fn other_versions_and_malformed_files_are_refused() {
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
        fn arbitrary_text_does_not_panic(text in "[a-z\\[\\]=\"0-9\n.,%_ {}-]{0,200}") {
            let _ = read(&text, Path::new("x"));
        }

        #[test]
        fn arbitrary_values_do_not_panic(key in "(clients|time|repeats|seed|state|order|arrivals|warmup)",
                           value in "(-?[0-9]{1,25}|\"[a-z0-9%.]{0,8}\"|[0-9]\\.[0-9]e[0-9]{1,4}|true|nan|-inf|\\[\\]|1979-05-27)") {
            let text = format!("version = 1\n[run]\n{key} = {value}\n[sweep]\npoints = {value}\n[[stores]]\nname = \"a\"\n[[workloads]]\n");
            let _ = read(&text, Path::new("x"));
        }
    }
}
