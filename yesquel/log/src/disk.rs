//! The disk as the log uses it, so that tests can replace it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// A folder of files.
pub trait Disk {
    /// A file open for writing.
    type File: DiskFile;

    /// The folder's path, for messages.
    fn path(&self) -> &Path;

    /// Lists the names of all files and folders in it.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Reads a whole file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Reads a file as a stream, for files larger than memory should hold.
    fn reader(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(io::Cursor::new(self.read(name)?)))
    }

    /// Length of a file.
    fn size(&self, name: &str) -> io::Result<u64> {
        Ok(self.read(name)?.len() as u64)
    }

    /// Creates a file, which must not exist, and makes its name durable.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Like [`create`](Self::create), for a file that only its owner may read.
    fn create_private(&self, name: &str) -> io::Result<Self::File> {
        self.create(name)
    }

    /// Opens a file for writing after truncating it to a length, durably.
    fn open_cut(&self, name: &str, length: u64) -> io::Result<Self::File>;

    /// Renames a file durably, replacing an existing one; or a folder. It may be in a subfolder, as
    /// in `folder/name`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Deletes a file.
    fn delete(&self, name: &str) -> io::Result<()>;
}

/// A folder that contains folders.
pub trait DiskTree: Disk + Sized {
    /// Returns the folder of this name in this one; it need not exist.
    fn subfolder(&self, name: &str) -> Self;

    /// Creates a folder durably; it may exist.
    fn create_folder(&self, name: &str) -> io::Result<()>;

    /// Deletes an empty folder durably.
    fn delete_folder(&self, name: &str) -> io::Result<()>;
}

/// A file of a [`Disk`].
pub trait DiskFile: Send {
    /// Writes bytes at an offset, which is at most the file's length.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns the file's length.
    fn length(&self) -> io::Result<u64>;

    /// Truncates the file to a length, durably.
    fn cut(&mut self, length: u64) -> io::Result<()>;

    /// Makes everything written durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// Whether a write has failed for lack of space: the disk, a quota or a limit of file sizes. The same
/// write succeeds once there is space.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// A folder of the file system.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

impl Folder {
    /// An existing folder.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

impl Disk for Folder {
    type File = File;

    fn path(&self) -> &Path {
        &self.0
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.0.join(name))
    }

    fn reader(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.0.join(name))?))
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.0.join(name))?.len())
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let file = OpenOptions::new().write(true).create_new(true).open(self.0.join(name))?;
        self.sync_names()?;
        Ok(file)
    }

    fn create_private(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(self.0.join(name))?;
        self.sync_names()?;
        Ok(file)
    }

    fn open_cut(&self, name: &str, length: u64) -> io::Result<File> {
        let mut file = OpenOptions::new().write(true).open(self.0.join(name))?;
        if file.metadata()?.len() > length {
            file.cut(length)?;
        }
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))?;
        self.sync_names()?;
        match from.rsplit_once('/') {
            Some((folder, _)) => Folder::new(self.0.join(folder)).sync_names(),
            None => Ok(()),
        }
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))?;
        self.sync_names()
    }
}

impl DiskTree for Folder {
    fn subfolder(&self, name: &str) -> Folder {
        Folder(self.0.join(name))
    }

    fn create_folder(&self, name: &str) -> io::Result<()> {
        fs::create_dir_all(self.0.join(name))?;
        self.sync_names()
    }

    fn delete_folder(&self, name: &str) -> io::Result<()> {
        fs::remove_dir(self.0.join(name))?;
        self.sync_names()
    }
}

impl DiskFile for File {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.sync_all()
    }

    fn sync(&mut self) -> io::Result<()> {
        // Reading needs the length, which fdatasync keeps.
        self.sync_data()
    }
}
