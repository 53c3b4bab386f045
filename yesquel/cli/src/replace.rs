//! Files that are there whole, or as they were before.

use crate::failure::Failure;
use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
};
use tempfile::NamedTempFile;

/// As new files are, but for what the user's mask takes away.
const MODE: u32 = 0o666;
/// Links that lead to links.
const LINKS_MAX: usize = 40;

/// Where something is to be put.
#[derive(Debug)]
pub(crate) enum Place {
    /// A file, or nothing yet: behind all links.
    File { path: PathBuf, was: Option<Permissions> },
    /// A pipe, a terminal or another device: what is written there is gone.
    Device(PathBuf),
}

/// The folder that a file is in.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Place {
    /// What a name stands for.
    pub(crate) fn of(name: &Path) -> Result<Place, Failure> {
        let of_file = |error| Failure::File { path: name.into(), error };
        let mut path = name.to_owned();
        for _ in 0..LINKS_MAX {
            match fs::symlink_metadata(&path) {
                Ok(known) if known.is_symlink() => {
                    // Of what a process has open the system knows more than a name.
                    if let Ok(known) = fs::metadata(&path)
                        && is_device(&known.file_type())
                    {
                        return Ok(Place::Device(path));
                    }
                    let to = fs::read_link(&path).map_err(of_file)?;
                    path = folder(&path).join(to);
                }
                Ok(known) if known.is_dir() => {
                    return Err(Failure::Usage(format!("{} is a folder", name.display())));
                }
                Ok(known) if is_device(&known.file_type()) => return Ok(Place::Device(path)),
                Ok(known) => return Ok(Place::File { path, was: Some(known.permissions()) }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // Said now, and of the folder that was named.
                    fs::metadata(folder(&path)).map_err(of_file)?;
                    return Ok(Place::File { path, was: None });
                }
                Err(error) => return Err(of_file(error)),
            }
        }
        Err(of_file(io::Error::from_raw_os_error(libc::ELOOP)))
    }
}

fn is_device(kind: &fs::FileType) -> bool {
    kind.is_fifo() || kind.is_char_device() || kind.is_block_device() || kind.is_socket()
}

/// A file in the making, beside its place.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) file: NamedTempFile,
    path: PathBuf,
    was: Option<Permissions>,
}

impl Beside {
    /// Makes a file that is to be at a path, and takes the place of one of these
    /// permissions.
    pub(crate) fn new(path: PathBuf, was: Option<Permissions>) -> io::Result<Beside> {
        let mode = was.as_ref().map_or(MODE, |was| was.mode() & 0o7777);
        let made = tempfile::Builder::new()
            .prefix(".yesquel-")
            .permissions(Permissions::from_mode(mode & MODE | 0o600))
            .tempfile_in(folder(&path));
        // The name of what is not there yet would puzzle.
        let file = made.map_err(|error| io::Error::from(error.kind()))?;
        Ok(Beside { file, path, was })
    }

    /// Puts it in its place, on disk; whether it may take one that is there.
    pub(crate) fn put(self, replaces: bool) -> io::Result<()> {
        if let Some(was) = self.was {
            self.file.as_file().set_permissions(was)?;
        }
        self.file.as_file().sync_all()?;
        let folder = folder(&self.path).to_owned();
        let put =
            if replaces { self.file.persist(&self.path) } else { self.file.persist_noclobber(&self.path) };
        put.map_err(|error| error.error)?;
        // The name, too, is on disk then.
        File::open(folder)?.sync_all()
    }
}

/// What takes all that is written, and keeps it at the end.
#[derive(Debug)]
pub(crate) enum Sink {
    Beside(Beside),
    Device(File),
}

impl Sink {
    pub(crate) fn new(name: &Path) -> Result<Sink, Failure> {
        let of_file = |error| Failure::File { path: name.into(), error };
        match Place::of(name)? {
            Place::File { path, was } => Beside::new(path, was).map(Sink::Beside).map_err(of_file),
            Place::Device(path) => {
                OpenOptions::new().write(true).open(path).map(Sink::Device).map_err(of_file)
            }
        }
    }

    pub(crate) fn keep(self) -> io::Result<()> {
        match self {
            Sink::Beside(beside) => beside.put(true),
            Sink::Device(_) => Ok(()),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Beside(beside) => beside.file.write(bytes),
            Sink::Device(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Beside(beside) => beside.file.flush(),
            Sink::Device(file) => file.flush(),
        }
    }
}
