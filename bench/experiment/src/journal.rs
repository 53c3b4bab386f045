//! An experiment's folder: the document and the state of records, rewritten after each run, so that an
//! interrupted experiment can be resumed.

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

/// Name of the file with the state of records.
const STATE: &str = "state.json";

/// Name of the folder of runs.
const RUNS: &str = "runs";

/// Name of the folder of embedded stores.
const STORES: &str = "stores";

/// Largest state file that is read, bytes; a data set needs about 100.
const STATE_MAX: u64 = 1 << 20;

/// Number of attempts to lock a folder, and the pause between them.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Longest part of a folder's name that is taken from a name, in characters.
const NAME_MAX: usize = 60;

/// Reason why an experiment's folder cannot be created or resumed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The folder or a file in it cannot be written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The stored experiment cannot be read.
    #[error(transparent)]
    Stored(#[from] stored::StoredError),
    /// The folder has an experiment with another plan.
    #[error(
        "{path}: the experiment there has another plan{differences}. 'serval experiment resume {path}' resumes it; for \
         the plan given choose another folder"
    )]
    OtherPlan {
        /// The folder.
        path: PathBuf,
        /// The differences, with both values.
        differences: PlanDifferences,
    },
    /// The experiment is complete.
    #[error("{0}: the experiment there is complete; 'serval report {0}' shows it")]
    Complete(PathBuf),
    /// The plan has secrets, which are not stored.
    #[error(
        "{0}: the plan stored there has secrets in it, which are not stored: give the command that began it once more, \
         with --resume"
    )]
    Secrets(PathBuf),
    /// Another process conducts the experiment.
    #[error("{0}: another process conducts the experiment there. Wait for its end, or choose another folder")]
    InUse(PathBuf),
    /// A stored file is not valid.
    #[error("{path}: {problem}. Remove the folder and begin again")]
    State {
        /// The file.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
}

/// State of a data set's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct RecordsState {
    /// Whether the load is complete.
    pub(crate) loaded: bool,
    /// Number of the next record to insert.
    pub(crate) next: u64,
    /// Whether a run that inserts was in progress when the state was written: records beyond `next` may exist.
    /// If not yet `loaded`, whether a load was in progress: some of its records may exist.
    pub(crate) running: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredState {
    datasets: BTreeMap<String, RecordsState>,
}

/// The folder of an experiment in progress.
#[derive(Debug)]
pub struct ExperimentJournal {
    path: PathBuf,
    /// The document so far.
    pub document: ExperimentDocument,
    state: StoredState,
    /// Lock on the folder, held for the life of the journal; `None` if the file system has no locks.
    _lock: Option<fs::File>,
}

fn system(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |error| FolderError::System { path, what, error }
}

/// Locks an experiment's folder: two processes would remove each other's runs.
fn lock(path: &Path) -> Result<Option<fs::File>, JournalError> {
    // If the folder does not exist, reading it fails later with a better message.
    let Ok(folder) = fs::File::open(path) else { return Ok(None) };
    for _ in 0..LOCK_ATTEMPTS {
        match folder.try_lock() {
            Ok(()) => return Ok(Some(folder)),
            // A child process inherits the lock and holds it between fork and exec.
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(fs::TryLockError::Error(_)) => return Ok(None),
        }
    }
    Err(JournalError::InUse(path.to_owned()))
}

/// Converts a name into a part of a folder's name.
pub(crate) fn clean(name: &str) -> String {
    let clean = |c: char| if c.is_alphanumeric() || "-_.%".contains(c) { c } else { '-' };
    let text: String = name.chars().take(NAME_MAX).map(clean).collect();
    // A leading dot would hide the folder, or lead out of its parent.
    text.trim_start_matches('.').to_owned()
}

impl ExperimentJournal {
    /// Begins an experiment in a new folder.
    pub fn begin(path: &Path, document: ExperimentDocument) -> Result<ExperimentJournal, JournalError> {
        if path.symlink_metadata().is_ok() {
            return Err(FolderError::Exists(path.to_owned()).into());
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(system(parent, "make this folder"))?;
        }
        // Another process may have created the folder since the check.
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

    /// Resumes the experiment in a folder. If `plan` is given, it must equal the stored plan.
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

    /// Returns the seed of the experiment in a folder.
    ///
    /// # Errors
    ///
    /// The folder has no experiment, or it cannot be read.
    pub fn stored_seed(path: &Path) -> Result<u64, JournalError> {
        Ok(stored::read_experiment(&path.join(EXPERIMENT))?.document.seed)
    }

    /// Removes folders of runs that the document does not list: an interrupted process left them, and the runs are
    /// performed again under the same names.
    fn remove_unfinished(&self) {
        let Ok(entries) = fs::read_dir(self.path.join(RUNS)) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = format!("{RUNS}/{}", name.to_string_lossy());
            let document = &self.document;
            let phase = || document.phases.iter().any(|phase| phase.folder.as_deref() == Some(&name));
            if !document.runs.iter().any(|run| run.folder == name) && !phase() {
                // A folder that remains is harmless.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Removes incomplete phases and their results, so that they are performed again.
    pub(crate) fn forget_incomplete(&mut self) -> Result<(), FolderError> {
        let before = self.document.phases.len();
        self.document.phases.retain(|phase| phase.incomplete.is_none());
        if self.document.phases.len() < before {
            self.write()?;
            self.remove_unfinished();
        }
        Ok(())
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn records(&self, dataset: &str) -> RecordsState {
        self.state.datasets.get(dataset).copied().unwrap_or_default()
    }

    /// Writes the state of a data set's records.
    pub(crate) fn set_records(&mut self, dataset: &str, records: RecordsState) -> Result<(), FolderError> {
        if self.state.datasets.insert(dataset.to_owned(), records) == Some(records) {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(&self.state).unwrap_or_default();
        self.replace(STATE, &text)
    }

    /// Creates and returns the folder of an embedded store's files.
    pub(crate) fn store_folder(&self, name: &str) -> Result<PathBuf, FolderError> {
        let path = self.path.join(STORES).join(name);
        fs::create_dir_all(&path).map_err(system(&path, "make this folder"))?;
        Ok(path)
    }

    /// Removes the files of embedded stores.
    pub(crate) fn remove_stores(&self) {
        // Files that cannot be removed only waste space.
        let _ = fs::remove_dir_all(self.path.join(STORES));
    }

    /// Begins the folder of the next run. Returns its name and the folder.
    pub(crate) fn run_folder(&self, what: &str) -> Result<(String, ResultFolder), FolderError> {
        // A run that is not in the document does not use up a number.
        let number = self.document.runs.len() + self.document.phases.len() + 1;
        let name = format!("{RUNS}/{number:04}-{}", clean(what));
        let folder = ResultFolder::begin(&self.path.join(&name))?;
        Ok((name, folder))
    }

    /// Adds a run that has ended to the document.
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

    /// Replaces a file atomically.
    pub fn replace(&self, name: &str, contents: &[u8]) -> Result<(), FolderError> {
        let path = self.path.join(name);
        let write = || -> io::Result<()> {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut file = tempfile::NamedTempFile::new_in(&self.path)?;
            file.write_all(contents)?;
            file.as_file().sync_data()?;
            // A temporary file is readable by its owner only; a result is readable by all.
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
        // The experiment was interrupted before it loaded anything.
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
