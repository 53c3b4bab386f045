//! Reads stored results of runs and stored experiments.

use crate::json::{self, ReadError};
use serval_result::{
    document::ResultDocument,
    experiment::{EXPERIMENT_VERSION, ExperimentDocument, RunEntry},
};
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

/// Name of an experiment's document in its folder.
pub const EXPERIMENT: &str = "experiment.json";
/// Name of a result in its folder.
pub const RESULT: &str = "result.json";
/// Name of the histogram log in a result's folder.
pub const HISTOGRAM_LOG: &str = "histograms.hlog";

/// Largest size of an experiment's document, in bytes: about 100,000 runs of 500 bytes.
const EXPERIMENT_MAX: u64 = 64 << 20;

/// An error of reading a result or an experiment.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// The folder has neither a result nor an experiment.
    #[error("{0}: there is no {RESULT} and no {EXPERIMENT} in it")]
    Nothing(PathBuf),
    /// A result cannot be read.
    #[error("{path}: {error}")]
    Result {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: ReadError,
    },
    /// An experiment's document cannot be read.
    #[error("{path}: {problem}")]
    Experiment {
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
}

/// An experiment and its folder.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredExperiment {
    /// Its folder.
    pub folder: PathBuf,
    /// Its document.
    pub document: ExperimentDocument,
}

impl StoredExperiment {
    /// Returns the folder of a run; `None` if its name leads out of the experiment's folder: documents
    /// are not trusted.
    pub fn run_folder(&self, entry: &RunEntry) -> Option<PathBuf> {
        self.is_inside(&entry.folder).then(|| self.folder.join(&entry.folder))
    }

    /// Whether a relative name stays inside the experiment's folder.
    pub(crate) fn is_inside(&self, folder: &str) -> bool {
        let mut parts = Path::new(folder).components();
        parts.all(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir))
    }

    /// Reads the result of a run.
    pub fn result(&self, entry: &RunEntry) -> Result<ResultDocument, StoredError> {
        self.result_in(&entry.folder)
    }

    /// Reads the result in a folder of the experiment.
    pub fn result_in(&self, folder: &str) -> Result<ResultDocument, StoredError> {
        if !self.is_inside(folder) {
            return Err(StoredError::Experiment {
                path: self.folder.join(EXPERIMENT),
                problem: format!("the folder '{folder}' of a run is not inside the experiment's"),
            });
        }
        read_result(&self.folder.join(folder).join(RESULT))
    }
}

/// A stored result or experiment.
#[derive(Debug, Clone, PartialEq)]
pub enum Stored {
    /// A run's result and its file.
    Result(PathBuf, Box<ResultDocument>),
    /// An experiment.
    Experiment(Box<StoredExperiment>),
}

/// Reads a result or an experiment, given by its folder or its file.
pub fn read(path: &Path) -> Result<Stored, StoredError> {
    if path.is_dir() {
        let (experiment, result) = (path.join(EXPERIMENT), path.join(RESULT));
        return match (experiment.exists(), result.exists()) {
            (true, _) => read_experiment(&experiment).map(|e| Stored::Experiment(Box::new(e))),
            (false, true) => read_result(&result).map(|document| Stored::Result(result, Box::new(document))),
            (false, false) => Err(StoredError::Nothing(path.to_owned())),
        };
    }
    if path.file_name().is_some_and(|name| name == EXPERIMENT) {
        return read_experiment(path).map(|e| Stored::Experiment(Box::new(e)));
    }
    read_result(path).map(|document| Stored::Result(path.to_owned(), Box::new(document)))
}

fn read_result(path: &Path) -> Result<ResultDocument, StoredError> {
    json::read_file(path).map_err(|error| StoredError::Result { path: path.to_owned(), error })
}

/// Reads an experiment's document by its file.
pub fn read_experiment(path: &Path) -> Result<StoredExperiment, StoredError> {
    let fault = |problem: String| StoredError::Experiment { path: path.to_owned(), problem };
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(EXPERIMENT_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| fault(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > EXPERIMENT_MAX {
        return Err(fault(format!(
            "is longer than {} MiB, which is the most that is read",
            EXPERIMENT_MAX >> 20
        )));
    }
    /// The version alone: documents of later versions may have other fields.
    #[derive(serde::Deserialize)]
    struct ExperimentVersion {
        experiment_version: u32,
    }
    let version: ExperimentVersion = serde_json::from_slice(&bytes)
        .map_err(|error| fault(format!("no experiment of Serval's: {error}")))?;
    if version.experiment_version > EXPERIMENT_VERSION {
        return Err(fault(format!(
            "has version {}, this Serval reads up to {EXPERIMENT_VERSION}: use a newer Serval",
            version.experiment_version
        )));
    }
    let document: ExperimentDocument =
        serde_json::from_slice(&bytes).map_err(|error| fault(format!("has a fault: {error}")))?;
    if let Some(entry) = document.runs.iter().find(|run| run.curve >= document.curves.len()) {
        return Err(fault(format!("run {} is of curve {}, which is not there", entry.folder, entry.curve)));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok(StoredExperiment { folder: folder.unwrap_or(Path::new(".")).to_owned(), document })
}
