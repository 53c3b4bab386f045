//! Files that a workload's properties name. The caller opens them: a workload accesses no file system, so it depends
//! only on its properties, the files' contents and its seed.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Cursor, Read},
    path::{Path, PathBuf},
};

/// A file that is open for reading.
pub struct InputFile {
    /// Size in bytes that the file system reports; a file that is not regular may have more.
    pub size: u64,
    /// The content, from the start.
    pub content: Box<dyn Read>,
}

impl fmt::Debug for InputFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputFile").field("size", &self.size).finish_non_exhaustive()
    }
}

/// Opens files by their paths.
pub trait InputFiles {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// Fails if the file does not exist or cannot be opened.
    fn open(&self, path: &Path) -> io::Result<InputFile>;
}

/// Files in memory, for tests.
impl InputFiles for BTreeMap<PathBuf, Vec<u8>> {
    fn open(&self, path: &Path) -> io::Result<InputFile> {
        let content = self.get(path).ok_or(io::ErrorKind::NotFound)?.clone();
        Ok(InputFile { size: content.len() as u64, content: Box::new(Cursor::new(content)) })
    }
}

/// Opens a file of at most `size_max` bytes. The content ends there even if the file has grown.
pub(crate) fn open(files: &dyn InputFiles, path: &Path, size_max: u64) -> Result<impl Read + use<>, String> {
    let InputFile { size, content } = files.open(path).map_err(|error| unreadable(path, &error))?;
    if size > size_max {
        return Err(format!("{}: has {size} bytes, at most {size_max} are read", path.display()));
    }
    Ok(content.take(size_max))
}

pub(crate) fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("{}: cannot be read: {error}", path.display())
}
