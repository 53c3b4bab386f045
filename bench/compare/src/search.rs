//! Finds stored results and experiments below folders.

use crate::error::CompareError;
use serval_report::stored::{EXPERIMENT, RESULT};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Largest depth of folders below a given one: an experiment's runs have three, some room above that.
const DEPTH_MAX: usize = 6;
/// Most folders that one search visits.
const FOLDERS_MAX: usize = 20_000;

/// A search for results and experiments below folders.
#[derive(Default)]
pub(crate) struct ResultSearch {
    folders: usize,
    /// Files found so far, by their canonical paths.
    seen: BTreeSet<PathBuf>,
    found: Vec<PathBuf>,
}

impl ResultSearch {
    /// Returns the files in and below a path that no earlier path led to, in order. An error if the path leads to none
    /// at all.
    pub(crate) fn below(&mut self, path: &Path) -> Result<Vec<PathBuf>, CompareError> {
        self.look(path, path, 0)?;
        let found = std::mem::take(&mut self.found);
        let seen_before = || {
            let whole = path.canonicalize();
            whole.is_ok_and(|whole| self.seen.iter().any(|seen| seen.starts_with(&whole)))
        };
        if found.is_empty() && !seen_before() {
            return Err(CompareError::Empty(path.to_owned()));
        }
        Ok(found)
    }

    fn look(&mut self, path: &Path, root: &Path, depth: usize) -> Result<(), CompareError> {
        let failed = |error| CompareError::Folder { path: path.to_owned(), error };
        self.folders += 1;
        if self.folders > FOLDERS_MAX {
            return Err(CompareError::TooMany { path: root.to_owned(), max: FOLDERS_MAX, what: "folders" });
        }
        let (experiment, result) = (path.join(EXPERIMENT), path.join(RESULT));
        let file = match path {
            path if !path.is_dir() => Some(path),
            _ if experiment.exists() => Some(experiment.as_path()),
            _ if result.exists() => Some(result.as_path()),
            _ => None,
        };
        if let Some(file) = file {
            // A file that several paths lead to counts once.
            if self.seen.insert(file.canonicalize().map_err(failed)?) {
                self.found.push(file.to_owned());
            }
            return Ok(());
        }
        if depth == DEPTH_MAX {
            return Ok(());
        }
        let mut below = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // A hidden folder is a result being written. Links could form a cycle.
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if !hidden && entry.file_type().map_err(failed)?.is_dir() {
                below.push(entry.path());
            }
        }
        below.sort();
        below.iter().try_for_each(|path| self.look(path, root, depth + 1))
    }
}
