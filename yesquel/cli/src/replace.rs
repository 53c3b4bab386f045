//! Output files that are replaced atomically.

use crate::failure::CliError;
use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
};
use tempfile::NamedTempFile;

/// Mode of new files, before the umask.
const MODE: u32 = 0o666;
/// Maximum length of a chain of links.
const LINKS_MAX: usize = 40;

/// Destination of an output.
#[derive(Debug)]
pub(crate) enum OutputTarget {
    /// A file, which need not exist yet, with links resolved.
    File { path: PathBuf, was: Option<Permissions> },
    /// A pipe, a terminal or another device, which cannot be replaced.
    Device(PathBuf),
}

/// Returns the folder of a file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl OutputTarget {
    /// Resolves a path.
    pub(crate) fn of(name: &Path) -> Result<OutputTarget, CliError> {
        let of_file = |error| CliError::File { path: name.into(), error };
        let mut path = name.to_owned();
        for _ in 0..LINKS_MAX {
            match fs::symlink_metadata(&path) {
                Ok(known) if known.is_symlink() => {
                    // For open files of a process the system knows more than their name.
                    if let Ok(known) = fs::metadata(&path)
                        && is_device(&known.file_type())
                    {
                        return Ok(OutputTarget::Device(path));
                    }
                    let to = fs::read_link(&path).map_err(of_file)?;
                    path = folder(&path).join(to);
                }
                Ok(known) if known.is_dir() => {
                    return Err(CliError::Usage(format!("{} is a folder", name.display())));
                }
                Ok(known) if is_device(&known.file_type()) => return Ok(OutputTarget::Device(path)),
                Ok(known) => return Ok(OutputTarget::File { path, was: Some(known.permissions()) }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // Fail early, with the folder that the user named.
                    fs::metadata(folder(&path)).map_err(of_file)?;
                    return Ok(OutputTarget::File { path, was: None });
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

/// Temporary file next to its destination.
#[derive(Debug)]
pub(crate) struct TemporaryFile {
    pub(crate) file: NamedTempFile,
    path: PathBuf,
    was: Option<Permissions>,
}

impl TemporaryFile {
    /// Creates a temporary file for a destination, with the permissions of the file that it
    /// replaces.
    pub(crate) fn new(path: PathBuf, was: Option<Permissions>) -> io::Result<TemporaryFile> {
        let mode = was.as_ref().map_or(MODE, |was| was.mode() & 0o7777);
        let made = tempfile::Builder::new()
            .prefix(".yesquel-")
            .permissions(Permissions::from_mode(mode & MODE | 0o600))
            .tempfile_in(folder(&path));
        // Hide the name of the temporary file.
        let file = made.map_err(|error| io::Error::from(error.kind()))?;
        Ok(TemporaryFile { file, path, was })
    }

    /// Moves the file to its destination and syncs it. `replaces`: an existing file may be
    /// replaced.
    pub(crate) fn put(self, replaces: bool) -> io::Result<()> {
        if let Some(was) = self.was {
            self.file.as_file().set_permissions(was)?;
        }
        self.file.as_file().sync_all()?;
        let folder = folder(&self.path).to_owned();
        let put =
            if replaces { self.file.persist(&self.path) } else { self.file.persist_noclobber(&self.path) };
        put.map_err(|error| error.error)?;
        // Sync the name, too.
        File::open(folder)?.sync_all()
    }
}

/// Writer for either destination.
#[derive(Debug)]
pub(crate) enum OutputWriter {
    TemporaryFile(TemporaryFile),
    Device(File),
}

impl OutputWriter {
    pub(crate) fn new(name: &Path) -> Result<OutputWriter, CliError> {
        let of_file = |error| CliError::File { path: name.into(), error };
        match OutputTarget::of(name)? {
            OutputTarget::File { path, was } => {
                TemporaryFile::new(path, was).map(OutputWriter::TemporaryFile).map_err(of_file)
            }
            OutputTarget::Device(path) => {
                OpenOptions::new().write(true).open(path).map(OutputWriter::Device).map_err(of_file)
            }
        }
    }

    pub(crate) fn keep(self) -> io::Result<()> {
        match self {
            OutputWriter::TemporaryFile(beside) => beside.put(true),
            OutputWriter::Device(_) => Ok(()),
        }
    }
}

impl Write for OutputWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            OutputWriter::TemporaryFile(beside) => beside.file.write(bytes),
            OutputWriter::Device(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            OutputWriter::TemporaryFile(beside) => beside.file.flush(),
            OutputWriter::Device(file) => file.flush(),
        }
    }
}
