//! Result folders: complete or absent.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A result that cannot be written: what, where, why.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Something is there already.
    #[error("{0}: exists already; results are never overwritten. Choose another folder or remove it")]
    Exists(PathBuf),
    /// The system refuses.
    #[error("{path}: cannot {what}: {error}. Nothing was left behind")]
    System {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// A file outside of any result folder cannot be written.
    #[error("{path}: cannot be written: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

/// The path, or the first with a number after it that is not taken.
fn free(path: &Path) -> PathBuf {
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

/// A result folder in the making. Files go to a hidden folder beside the
/// final one, which takes the final name when all is written; until then a
/// failure or an interruption leaves nothing.
#[derive(Debug)]
pub struct ResultFolder {
    partial: TempDir,
    path: PathBuf,
    /// Whether another name will do when this one is taken.
    any_name: bool,
}

impl ResultFolder {
    /// Begins the folder that will be at `path`, or beside it with a number
    /// after the name if that is taken.
    pub fn begin_near(path: &Path) -> Result<ResultFolder, FolderError> {
        Ok(ResultFolder { any_name: true, ..Self::begin(&free(path))? })
    }

    /// Begins the folder that will be at `path`. Its parents are made.
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

    /// Where files are while the folder is in the making.
    pub fn partial_path(&self) -> &Path {
        self.partial.path()
    }

    /// Where the folder will be.
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

    /// An error while writing a file of the folder.
    pub fn failed(&self, name: &str, error: io::Error) -> FolderError {
        failed(&self.path.join(name), "write")(error)
    }

    /// Gives the folder its name.
    pub fn finish(mut self) -> Result<PathBuf, FolderError> {
        if self.any_name {
            self.path = free(&self.path);
        }
        // Renaming onto an empty folder would succeed, so look once more.
        if self.path.symlink_metadata().is_ok() {
            return Err(FolderError::Exists(self.path));
        }
        fs::rename(self.partial.path(), &self.path).map_err(failed(&self.path, "name this folder"))?;
        // Its old name is gone; there is nothing left to remove.
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
