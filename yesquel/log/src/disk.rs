//! What the log asks of a disk, so that a test can be one.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// A folder of files.
pub trait Disk {
    /// A file that is open for writing.
    type File: DiskFile;

    /// The folder's name, for messages.
    fn path(&self) -> &Path;

    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;

    /// All of a file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// All of a file, bit by bit. One that is larger than memory likes is read
    /// so.
    fn reader(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(io::Cursor::new(self.read(name)?)))
    }

    /// The length of a file.
    fn size(&self, name: &str) -> io::Result<u64> {
        Ok(self.read(name)?.len() as u64)
    }

    /// Makes a file, which must not be there, and sees to it that its name is
    /// durable.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file to write to it, cut to a length first, durably.
    fn open_cut(&self, name: &str, length: u64) -> io::Result<Self::File>;

    /// Gives a file another name, durably; a file that has it is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Deletes a file.
    fn delete(&self, name: &str) -> io::Result<()>;
}

/// A file of a [`Disk`].
pub trait DiskFile: Send {
    /// Writes bytes from a place on, which is not behind the file's end.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file to a length, durably.
    fn cut(&mut self, length: u64) -> io::Result<()>;

    /// Sees to it that all that was written is durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder of the file system.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

impl Folder {
    /// A folder that is there.
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

    fn open_cut(&self, name: &str, length: u64) -> io::Result<File> {
        let mut file = OpenOptions::new().write(true).open(self.0.join(name))?;
        if file.metadata()?.len() > length {
            file.cut(length)?;
        }
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))?;
        self.sync_names()
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))?;
        self.sync_names()
    }
}

impl DiskFile for File {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.sync_all()
    }

    fn sync(&mut self) -> io::Result<()> {
        // Its length is needed to read it, and fdatasync keeps that.
        self.sync_data()
    }
}
