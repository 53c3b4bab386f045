//! Skips tests that passed and whose inputs have not changed since.
//!
//! An [`InputDigest`] is a digest of a test's inputs: the programs that Cargo built, the data files
//! that tests read, the versions of installed packages. [`Passed`] keeps the digests of passed
//! tests in `target/tests`, so a clean clone runs everything, and `cargo xtask test --all` does so
//! anywhere. A failure removes the digest. A test with an unreadable input always runs.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs::{self, Metadata};
use std::hash::{Hash, Hasher as _};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

/// Environment variables that change tests.
const KNOBS: &[&str] = &[
    "GOLDEN",
    "KILLS",
    "PAIRS",
    "PLACE",
    "PROPTEST_CASES",
    "PROPTEST_RNG_SEED",
    "SEEDS",
    "SERVAL_TEST_TIME",
    "SERVER_GROUPS",
    "TRACE",
    "UPDATE_GOLDEN",
    "YESQUEL_HISTORY",
];

/// Debian's list of installed packages, which changes with each package.
const INSTALLED: &str = "/var/lib/dpkg/status";

/// Files above this size are compared by size and modification time, not by content.
const CONTENT_BYTES_MAX: u64 = 256 << 20;

/// A digest of inputs. Its value is specific to this machine: another compiler may compute another
/// value, and the tests then run once more.
pub(crate) struct InputDigest {
    digest: DefaultHasher,
    /// The first input that could not be read.
    problem: Option<io::Error>,
}

impl InputDigest {
    pub(crate) fn new() -> InputDigest {
        let mut stamp = InputDigest { digest: DefaultHasher::new(), problem: None };
        for knob in KNOBS {
            std::env::var_os(knob).hash(&mut stamp.digest);
        }
        stamp
    }

    pub(crate) fn text(&mut self, text: &str) {
        text.hash(&mut self.digest);
    }

    /// A file that is written only when it changes, as Cargo does with
    /// programs: by size and time of change.
    pub(crate) fn built(&mut self, path: &Path) {
        path.hash(&mut self.digest);
        let outcome = fs::metadata(path).map(|metadata| self.changed(&metadata));
        self.note(outcome);
    }

    /// This program, which sets servers up, and the packages that are installed.
    pub(crate) fn surroundings(&mut self) {
        match std::env::current_exe() {
            Ok(program) => self.built(&program),
            Err(error) => self.note(Err(error)),
        }
        // Not every system has one.
        if Path::new(INSTALLED).exists() {
            self.built(Path::new(INSTALLED));
        }
    }

    /// A file or a folder by its content, without the files that `leave_out` names.
    pub(crate) fn content(&mut self, path: &Path, leave_out: &dyn Fn(&Path) -> bool) {
        let outcome = self.walk(path, leave_out);
        self.note(outcome);
    }

    fn walk(&mut self, path: &Path, leave_out: &dyn Fn(&Path) -> bool) -> io::Result<()> {
        let metadata = fs::symlink_metadata(path)?;
        path.hash(&mut self.digest);
        if metadata.is_symlink() {
            fs::read_link(path)?.hash(&mut self.digest);
        } else if metadata.is_dir() {
            let mut entries =
                fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
            entries.sort();
            for entry in entries.iter().filter(|entry| !leave_out(entry)) {
                self.walk(entry, leave_out)?;
            }
        } else if metadata.len() > CONTENT_BYTES_MAX {
            self.changed(&metadata);
        } else {
            fs::read(path)?.hash(&mut self.digest);
        }
        Ok(())
    }

    fn changed(&mut self, metadata: &Metadata) {
        (metadata.len(), metadata.mtime(), metadata.mtime_nsec()).hash(&mut self.digest);
    }

    fn note(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            self.problem.get_or_insert(error);
        }
    }

    /// The digest, if all inputs could be read.
    pub(crate) fn finish(self) -> Option<String> {
        self.problem.is_none().then(|| format!("{:016x}", self.digest.finish()))
    }
}

/// Passed tests by name, each with the digest of its inputs and its summary.
pub(crate) struct Passed {
    file: PathBuf,
    /// Whether to run everything: no test counts as unchanged.
    all: bool,
    entries: Mutex<BTreeMap<String, Value>>,
}

impl Passed {
    const FILE: &'static str = "passed.json";

    /// Reads the passed tests from a folder, which need not exist.
    pub(crate) fn read(folder: &Path, all: bool) -> Passed {
        let file = folder.join(Self::FILE);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let entries = serde_json::from_str(&text).unwrap_or_default();
        Passed { file, all, entries: Mutex::new(entries) }
    }

    /// Returns the summary of a test that passed, if its inputs have not changed since.
    pub(crate) fn unchanged(&self, name: &str, stamp: Option<&str>) -> Option<Value> {
        if self.all {
            return None;
        }
        let entries = self.entries();
        let entry = entries.get(name)?;
        (entry["stamp"].as_str() == Some(stamp?)).then(|| entry["summary"].clone())
    }

    /// Stores the result of a test. Written at once, so that an interrupted run keeps the tests
    /// that passed.
    pub(crate) fn set(&self, name: &str, passed: bool, stamp: Option<&str>, summary: &Value) {
        let mut entries = self.entries();
        match stamp {
            Some(stamp) if passed => {
                entries.insert(name.to_owned(), json!({"stamp": stamp, "summary": summary}));
            }
            _ => drop(entries.remove(name)),
        }
        // Lost, it costs time only.
        let _ = write(&self.file, &entries);
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts the file in place whole: a half-written one would forget everything.
fn write(file: &Path, entries: &BTreeMap<String, Value>) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = file.with_extension("new");
    fs::write(&new, serde_json::to_vec_pretty(entries)?)?;
    fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(folder: &Path) -> Option<String> {
        let mut stamp = InputDigest::new();
        stamp.content(folder, &|path| path.extension().is_some_and(|extension| extension == "rs"));
        stamp.finish()
    }

    #[test]
    fn a_stamp_changes_with_content_and_names_of_data_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("golden")).unwrap();
        write("golden/a.txt", "1");
        write("lib.rs", "fn a() {}");
        let before = stamp(folder.path());
        assert!(before.is_some());
        write("lib.rs", "fn b() {}");
        assert_eq!(stamp(folder.path()), before);
        write("golden/a.txt", "2");
        let changed = stamp(folder.path());
        assert_ne!(changed, before);
        write("golden/b.txt", "");
        assert_ne!(stamp(folder.path()), changed);
        assert_eq!(stamp(&folder.path().join("absent")), None);
    }

    #[test]
    fn only_what_passed_with_the_same_stamp_is_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let passed = Passed::read(folder.path(), false);
        assert_eq!(passed.unchanged("a", Some("1")), None);
        passed.set("a", true, Some("1"), &json!(7));
        passed.set("b", true, None, &json!(7));
        passed.set("c", false, Some("1"), &json!(7));
        let again = Passed::read(folder.path(), false);
        assert_eq!(again.unchanged("a", Some("1")), Some(json!(7)));
        for (name, stamp) in [("a", Some("2")), ("a", None), ("b", None), ("c", Some("1"))] {
            assert_eq!(again.unchanged(name, stamp), None, "{name}");
        }
        assert_eq!(Passed::read(folder.path(), true).unchanged("a", Some("1")), None);
        again.set("a", false, Some("1"), &json!(7));
        assert_eq!(Passed::read(folder.path(), false).unchanged("a", Some("1")), None);
    }
}
