//! Result folders: complete or absent.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// Reason why a result cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The path exists already.
    #[error("{0}: exists already; results are never overwritten. Choose another folder or remove it")]
    Exists(PathBuf),
    /// The operating system refuses a step.
    #[error("{path}: cannot {what}: {error}. Nothing was left behind")]
    System {
        /// The file or folder.
        path: PathBuf,
        /// Step that failed, as an infinitive.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// A file outside of any result folder cannot be written.
    #[error("{path}: cannot be written: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Returns the path if it does not exist, otherwise the first free path of `path-2`, `path-3`, ...
fn free_path(path: &Path) -> PathBuf {
    let numbered = (2..).map(|number| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("-{number}"));
        PathBuf::from(name)
    });
    let mut names = std::iter::once(path.to_owned()).chain(numbered);
    names.find(|path| path.symlink_metadata().is_err()).unwrap_or_else(|| path.to_owned())
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |error| FolderError::System { path, what, error }
}

/// A result folder under construction. Files are written to a hidden folder beside the final path, which
/// [`finish`](ResultFolder::finish) renames. A failure or an interruption before that leaves nothing behind.
#[derive(Debug)]
pub struct ResultFolder {
    partial: TempDir,
    path: PathBuf,
    /// Whether the folder may get a number after its name if the path exists.
    any_name: bool,
}

impl ResultFolder {
    /// Begins a folder that will be at `path`, or at `path-2`, `path-3`, ... if that exists.
    pub fn begin_near(path: &Path) -> Result<ResultFolder, FolderError> {
        Ok(ResultFolder { any_name: true, ..Self::begin(&free_path(path))? })
    }

    /// Begins a folder that will be at `path`. Missing parents are created.
    pub fn begin(path: &Path) -> Result<ResultFolder, FolderError> {
        if path.symlink_metadata().is_ok() {
            return Err(FolderError::Exists(path.to_owned()));
        }
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(failed(parent, "make this folder"))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let partial = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".partial")
            .tempdir_in(parent)
            .map_err(failed(parent, "write here"))?;
        Ok(ResultFolder { partial, path: path.to_owned(), any_name: false })
    }

    /// Returns the path of the hidden folder that holds the files until [`finish`](ResultFolder::finish).
    pub fn partial_path(&self) -> &Path {
        self.partial.path()
    }

    /// Returns the final path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file of the folder for writing.
    pub fn create(&self, name: &str) -> Result<io::BufWriter<fs::File>, FolderError> {
        let file = fs::File::create_new(self.partial.path().join(name));
        file.map(io::BufWriter::new).map_err(failed(&self.path.join(name), "write"))
    }

    /// Writes a file of the folder.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<(), FolderError> {
        let mut file = self.create(name)?;
        file.write_all(contents).and_then(|()| file.flush()).map_err(failed(&self.path.join(name), "write"))
    }

    /// Makes the error of a failed write of a file of the folder.
    pub fn failed(&self, name: &str, error: io::Error) -> FolderError {
        failed(&self.path.join(name), "write")(error)
    }

    /// Renames the folder to its final path, and returns that.
    pub fn finish(mut self) -> Result<PathBuf, FolderError> {
        if self.any_name {
            self.path = free_path(&self.path);
        }
        // Renaming onto an empty folder would succeed, so check again.
        if self.path.symlink_metadata().is_ok() {
            return Err(FolderError::Exists(self.path));
        }
        fs::rename(self.partial.path(), &self.path).map_err(failed(&self.path, "name this folder"))?;
        // The hidden folder was renamed; nothing is left to remove.
        let _ = self.partial.keep();
        Ok(self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(path: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_finished_folder_is_complete_without_leftovers() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("a/b/result");
        let folder = ResultFolder::begin(&path).unwrap();
        folder.write("x", b"1").unwrap();
        assert!(!path.exists());
        assert_eq!(folder.finish().unwrap(), path);
        assert_eq!(entries(&root.path().join("a/b")), ["result"]);
        assert_eq!(fs::read(path.join("x")).unwrap(), b"1");
    }

    #[test]
    fn an_unfinished_folder_leaves_nothing() {
        let root = TempDir::new().unwrap();
        let folder = ResultFolder::begin(&root.path().join("result")).unwrap();
        folder.write("x", b"1").unwrap();
        drop(folder);
        assert!(entries(root.path()).is_empty());
    }

    #[test]
    fn folders_with_equal_default_names_are_both_kept() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("result");
        let (first, second) =
            (ResultFolder::begin_near(&path).unwrap(), ResultFolder::begin_near(&path).unwrap());
        first.finish().unwrap();
        second.finish().unwrap();
        assert_eq!(entries(root.path()), ["result", "result-2"]);
    }

    #[test]
    fn nothing_is_overwritten() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("result");
        let folder = ResultFolder::begin(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(ResultFolder::begin(&path), Err(FolderError::Exists(_))));
        assert!(matches!(folder.finish(), Err(FolderError::Exists(_))));
        assert_eq!(entries(root.path()), ["result"]);
    }

    #[test]
    fn an_impossible_path_is_reported() {
        let root = TempDir::new().unwrap();
        fs::write(root.path().join("file"), b"").unwrap();
        let error = ResultFolder::begin(&root.path().join("file/result")).unwrap_err().to_string();
        assert!(error.contains("file") && error.contains("cannot"), "{error}");
    }
}
