//! Files that are read while a server runs: nothing in their place may block it.

use crate::SecretsError;
use rustix::fs::OFlags;
use std::{
    fs::OpenOptions,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Maximum size of a file of certificates or credentials. A bundle of all public authorities has a
/// quarter of it.
pub const SECRET_FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a regular file within the limit of its size.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, SecretsError> {
    let wrong = |error: io::Error| SecretsError::file(path, error);
    // Without the flag the call would wait for a process that writes to a pipe.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    let file = file.map_err(wrong)?;
    if !file.metadata().map_err(wrong)?.is_file() {
        return Err(SecretsError::file(path, "it is not a regular file: write its content to one"));
    }
    let mut content = Vec::new();
    file.take(SECRET_FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(wrong)?;
    if content.len() as u64 > SECRET_FILE_BYTES_MAX {
        let what = "it has more than 1 MiB: remove what is neither a certificate nor a credential";
        return Err(SecretsError::file(path, what));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::{fs, thread};

    #[test]
    fn only_regular_files_of_limited_size_are_read() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let refusal = |name: &str| read_file(&path(name)).unwrap_err().to_string();
        fs::write(path("largest"), vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(read_file(&path("largest")).unwrap().len(), 1 << 20);
        fs::write(path("larger"), vec![b'x'; (1 << 20) + 1]).unwrap();
        assert!(refusal("larger").contains("more than 1 MiB"));
        assert!(refusal("").contains("not a regular file"));
        assert!(refusal("missing").contains("missing: "));
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let pipe = path("pipe");
        // A reader that waits gets a credential, and the test ends all the same.
        let writer = thread::spawn(move || {
            let written = OpenOptions::new().write(true).open(pipe);
            // The reader may be gone.
            let _ = written.and_then(|mut pipe| io::Write::write_all(&mut pipe, b"secret"));
        });
        assert!(refusal("pipe").contains("not a regular file"));
        // The writer may still wait for a reader.
        let reader =
            OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path("pipe"));
        writer.join().unwrap();
        drop(reader);
    }
}
