//! An experiment's folder: the document and the state of records, written
//! anew after each run, so that an interrupted experiment can go on.

use crate::plan_differences::PlanDifferences;
use serde::{Deserialize, Serialize};
use serval_plan::{
    folder::{FolderError, ResultFolder},
    secrets::HIDDEN,
};
use serval_report::stored::{self, EXPERIMENT};
use serval_result::experiment::{ExperimentDocument, RunEntry};
use std::{
    collections::BTreeMap,
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

/// The file of the records' state.
const STATE: &str = "state.json";

/// The folder of runs.
const RUNS: &str = "runs";

/// The folder of embedded stores.
const STORES: &str = "stores";

/// Bytes of a state that are read at most: some 100 a data set.
const STATE_MAX: u64 = 1 << 20;

/// Attempts to lock a folder, and the pause from one to the next.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Characters of a run's folder that come from names.
const NAME_MAX: usize = 60;

/// Why an experiment's folder cannot be created or resumed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The folder or a file in it.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The stored experiment cannot be read.
    #[error(transparent)]
    Stored(#[from] stored::StoredError),
    /// It is another experiment's.
    #[error(
        "{path}: the experiment there has another plan{differences}. 'serval experiment resume {path}' resumes it; for \
         the plan given choose another folder"
    )]
    OtherPlan {
        /// The folder.
        path: PathBuf,
        /// What differs, with both values.
        differences: PlanDifferences,
    },
    /// It is done.
    #[error("{0}: the experiment there is complete; 'serval report {0}' shows it")]
    Complete(PathBuf),
    /// Its secrets are not stored.
    #[error(
        "{0}: the plan stored there has secrets in it, which are not stored: give the command that began it once more, \
         with --resume"
    )]
    Secrets(PathBuf),
    /// Another process carries it out.
    #[error(
        "{0}: another process is at work on the experiment there. Wait for its end, or choose another folder"
    )]
    InUse(PathBuf),
    /// A state that is none.
    #[error("{path}: {problem}. Remove the folder and begin again")]
    State {
        /// The file.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
}

/// Where a data set's records stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct RecordsState {
    /// Whether the load was done.
    pub(crate) loaded: bool,
    /// The number of the next record to insert.
    pub(crate) next: u64,
    /// Whether a run that inserts had begun and not ended when this was
    /// written: there may be records beyond `next`. Before `loaded`, whether a
    /// load had: some of its records may be there.
    pub(crate) running: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredState {
    datasets: BTreeMap<String, RecordsState>,
}

/// The folder of an experiment that is carried out.
#[derive(Debug)]
pub struct ExperimentJournal {
    path: PathBuf,
    /// The document so far.
    pub document: ExperimentDocument,
    state: StoredState,
    /// Held as long as this is; `None` where the file system has no locks.
    _lock: Option<fs::File>,
}

fn system(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |error| FolderError::System { path, what, error }
}

/// Locks an experiment's folder: two processes would remove each other's runs.
fn lock(path: &Path) -> Result<Option<fs::File>, JournalError> {
    // If there is no folder, reading it fails with a better message.
    let Ok(folder) = fs::File::open(path) else { return Ok(None) };
    for _ in 0..LOCK_ATTEMPTS {
        match folder.try_lock() {
            Ok(()) => return Ok(Some(folder)),
            // A program that this process starts holds it too, until it has become that program.
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(fs::TryLockError::Error(_)) => return Ok(None),
        }
    }
    Err(JournalError::InUse(path.to_owned()))
}

/// A name as part of a folder's name.
pub(crate) fn clean(name: &str) -> String {
    let clean = |c: char| if c.is_alphanumeric() || "-_.%".contains(c) { c } else { '-' };
    let text: String = name.chars().take(NAME_MAX).map(clean).collect();
    // A dot at its start would hide it, or lead out of the folder.
    text.trim_start_matches('.').to_owned()
}

impl ExperimentJournal {
    /// Begins an experiment in a folder that is not there.
    pub fn begin(path: &Path, document: ExperimentDocument) -> Result<ExperimentJournal, JournalError> {
        if path.symlink_metadata().is_ok() {
            return Err(FolderError::Exists(path.to_owned()).into());
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(system(parent, "make this folder"))?;
        }
        // Of two that begin at the same time one is too late.
        fs::create_dir(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => FolderError::Exists(path.to_owned()),
            _ => system(path, "make this folder")(error),
        })?;
        let lock = lock(path)?;
        let runs = path.join(RUNS);
        fs::create_dir(&runs).map_err(system(&runs, "make this folder"))?;
        let journal =
            ExperimentJournal { path: path.to_owned(), document, state: StoredState::default(), _lock: lock };
        journal.write()?;
        Ok(journal)
    }

    /// Goes on with the experiment in a folder. With a document it must be the
    /// same plan; the folder's is used.
    pub fn resume(path: &Path, plan: Option<&str>) -> Result<ExperimentJournal, JournalError> {
        let lock = lock(path)?;
        let document = stored::read_experiment(&path.join(EXPERIMENT))?.document;
        if let Some(plan) = plan.filter(|plan| *plan != document.plan) {
            let differences = PlanDifferences::of(&document.plan, plan);
            return Err(JournalError::OtherPlan { path: path.to_owned(), differences });
        }
        if plan.is_none() && document.plan.contains(HIDDEN) {
            return Err(JournalError::Secrets(path.to_owned()));
        }
        if document.complete {
            return Err(JournalError::Complete(path.to_owned()));
        }
        let state = read_state(&path.join(STATE))?;
        let journal = ExperimentJournal { path: path.to_owned(), document, state, _lock: lock };
        journal.remove_unfinished();
        Ok(journal)
    }

    /// The seed of the experiment in a folder.
    ///
    /// # Errors
    ///
    /// That there is none, or it cannot be read.
    pub fn stored_seed(path: &Path) -> Result<u64, JournalError> {
        Ok(stored::read_experiment(&path.join(EXPERIMENT))?.document.seed)
    }

    /// Runs that were cut off left folders in the making, or whole ones that the
    /// document does not know; they are made again, under the same names.
    fn remove_unfinished(&self) {
        let Ok(entries) = fs::read_dir(self.path.join(RUNS)) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = format!("{RUNS}/{}", name.to_string_lossy());
            let document = &self.document;
            let phase = || document.phases.iter().any(|phase| phase.folder.as_deref() == Some(&name));
            if !document.runs.iter().any(|run| run.folder == name) && !phase() {
                // A folder that stays is harmless.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Forgets phases that ended before their time, with their results: they are made again.
    pub(crate) fn forget_incomplete(&mut self) -> Result<(), FolderError> {
        let before = self.document.phases.len();
        self.document.phases.retain(|phase| phase.incomplete.is_none());
        if self.document.phases.len() < before {
            self.write()?;
            self.remove_unfinished();
        }
        Ok(())
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn records(&self, dataset: &str) -> RecordsState {
        self.state.datasets.get(dataset).copied().unwrap_or_default()
    }

    /// Writes down where a data set's records stand.
    pub(crate) fn set_records(&mut self, dataset: &str, records: RecordsState) -> Result<(), FolderError> {
        if self.state.datasets.insert(dataset.to_owned(), records) == Some(records) {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(&self.state).unwrap_or_default();
        self.replace(STATE, &text)
    }

    /// The folder of an embedded store's files.
    pub(crate) fn store_folder(&self, name: &str) -> Result<PathBuf, FolderError> {
        let path = self.path.join(STORES).join(name);
        fs::create_dir_all(&path).map_err(system(&path, "make this folder"))?;
        Ok(path)
    }

    /// Removes the files of embedded stores.
    pub(crate) fn remove_stores(&self) {
        // What cannot be removed wastes room and no more.
        let _ = fs::remove_dir_all(self.path.join(STORES));
    }

    /// Begins the folder of the next run; its name, and the folder.
    pub(crate) fn run_folder(&self, what: &str) -> Result<(String, ResultFolder), FolderError> {
        // Names of earlier runs that were given up are free again.
        let number = self.document.runs.len() + self.document.phases.len() + 1;
        let name = format!("{RUNS}/{number:04}-{}", clean(what));
        let folder = ResultFolder::begin(&self.path.join(&name))?;
        Ok((name, folder))
    }

    /// Writes down a run that has ended.
    pub(crate) fn push(&mut self, entry: RunEntry) -> Result<(), FolderError> {
        self.document.runs.push(entry);
        self.write()
    }

    /// Writes the document.
    pub(crate) fn write(&self) -> Result<(), FolderError> {
        let mut text = serde_json::to_vec_pretty(&self.document).unwrap_or_default();
        text.push(b'\n');
        self.replace(EXPERIMENT, &text)
    }

    /// Puts a file in place of the one that is there, whole or not at all.
    pub fn replace(&self, name: &str, contents: &[u8]) -> Result<(), FolderError> {
        let path = self.path.join(name);
        let write = || -> io::Result<()> {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut file = tempfile::NamedTempFile::new_in(&self.path)?;
            file.write_all(contents)?;
            file.as_file().sync_data()?;
            // A temporary file is its maker's alone; a result is for others too.
            use std::os::unix::fs::PermissionsExt;
            file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
            file.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|error| FolderError::File { path: path.clone(), error })
    }
}

fn read_state(path: &Path) -> Result<StoredState, JournalError> {
    let fault = |problem: String| JournalError::State { path: path.to_owned(), problem };
    match fs::metadata(path) {
        // Interrupted before anything was loaded.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StoredState::default()),
        Ok(facts) if facts.len() > STATE_MAX => return Err(fault("is too long".into())),
        _ => {}
    }
    let bytes = fs::read(path).map_err(|error| fault(format!("cannot be read: {error}")))?;
    serde_json::from_slice(&bytes).map_err(|error| fault(format!("is no state of an experiment: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_escape_the_folder() {
        assert_eq!(clean("redis, A 60%"), "redis--A-60%");
        assert_eq!(clean("../../x"), "-..-x");
        assert_eq!(clean("..."), "");
    }
}
