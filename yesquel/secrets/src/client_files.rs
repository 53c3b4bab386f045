//! Files of a client's secrets, which it reads for each new connection.

use crate::{
    ConnectionSecrets, PresentedSecrets, SecretsError,
    credentials::first_line,
    read_file::read_file,
    tls::{self, ClientConfig},
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Encryption of TCP connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum ServerEncryption {
    /// No encryption.
    #[default]
    None,
    /// Trusts the certificates that browsers trust.
    Browsers,
    /// Trusts servers signed by a certificate in this file (PEM).
    SignedBy(PathBuf),
}

/// A file: its content, and what was made of it.
struct ParsedFile<T> {
    path: PathBuf,
    /// `None` before the first read.
    parsed: Option<(Vec<u8>, T)>,
    /// Why the last read has failed.
    fault: Option<SecretsError>,
}

/// Files of a client's secrets. A file that cannot be read or parsed leaves its former content in
/// force, and does not keep the other one from being used.
pub struct ClientFiles {
    signers: Option<PathBuf>,
    credential: Option<PathBuf>,
    former: Mutex<Former>,
}

/// What the files had when they were read last. An unchanged file keeps its configuration, with which
/// TLS resumes sessions.
struct Former {
    signers: Option<ParsedFile<Arc<ClientConfig>>>,
    credential: Option<ParsedFile<Box<[u8]>>>,
    /// A credential that is in no file.
    given: Option<Box<[u8]>>,
    /// Encryption without a file.
    tls: Option<Arc<ClientConfig>>,
}

// Logs and panics must not show the credential.
impl std::fmt::Debug for ClientFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ClientFiles { signers, credential, .. } = self;
        let mut shown = f.debug_struct("ClientFiles");
        shown.field("signers", signers).field("credential", credential).finish_non_exhaustive()
    }
}

/// Content of a file, or why it cannot be read.
type Read = Result<Vec<u8>, SecretsError>;

impl<T: Clone> ParsedFile<T> {
    fn new(path: &Path) -> ParsedFile<T> {
        ParsedFile { path: path.to_owned(), parsed: None, fault: None }
    }

    /// Takes what was read, and parses it unless it has not changed. A fault is returned and logged
    /// once, not for each connection.
    fn update(
        &mut self,
        read: Read,
        parse: impl FnOnce(&Path, &[u8]) -> Result<T, SecretsError>,
    ) -> Result<(), SecretsError> {
        let parsed = read.and_then(|content| match self.parsed.take_if(|(former, _)| *former == content) {
            Some(same) => Ok(same),
            None => parse(&self.path, &content).map(|parsed| (content, parsed)),
        });
        let fault = parsed.map(|parsed| self.parsed = Some(parsed)).err();
        let before = std::mem::replace(&mut self.fault, fault.clone());
        match (&fault, self.parsed.is_some()) {
            (Some(error), true) if fault != before => {
                tracing::warn!(%error, "a file cannot be used; its former content stays in force");
            }
            (None, _) if before.is_some() => {
                tracing::info!(file = %self.path.display(), "a file can be used again");
            }
            _ => {}
        }
        fault.map_or(Ok(()), Err)
    }

    fn parsed(&self) -> Option<T> {
        self.parsed.as_ref().map(|(_, parsed)| parsed.clone())
    }
}

impl Former {
    /// Takes what was read of both files, each for itself. Returns the first fault.
    fn update(&mut self, signers: Option<Read>, credential: Option<Read>) -> Result<(), SecretsError> {
        let signers =
            self.signers.as_mut().zip(signers).map(|(file, read)| file.update(read, tls::client_of));
        let credential = self.credential.as_mut().zip(credential).map(|(file, read)| {
            file.update(read, |path, content| {
                first_line(content).map(Into::into).map_err(|what| SecretsError::file(path, what))
            })
        });
        signers.unwrap_or(Ok(())).and(credential.unwrap_or(Ok(())))
    }

    fn presented(&self) -> PresentedSecrets {
        let credential = self.credential.as_ref().and_then(ParsedFile::parsed).or_else(|| self.given.clone());
        let tls = self.signers.as_ref().and_then(ParsedFile::parsed);
        PresentedSecrets { credential: credential.unwrap_or_default(), tls: tls.or_else(|| self.tls.clone()) }
    }
}

/// The process may change its working folder later.
fn absolute(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

impl ClientFiles {
    /// Reads the files for the first time.
    pub fn open(
        encryption: &ServerEncryption,
        credential: Option<&Path>,
    ) -> Result<ClientFiles, SecretsError> {
        let (signers, tls) = match encryption {
            ServerEncryption::None => (None, None),
            ServerEncryption::Browsers => (None, Some(tls::client(None)?)),
            ServerEncryption::SignedBy(path) => (Some(absolute(path)), None),
        };
        let credential = credential.map(absolute);
        let former = Former {
            signers: signers.as_deref().map(ParsedFile::new),
            credential: credential.as_deref().map(ParsedFile::new),
            given: None,
            tls,
        };
        let files = ClientFiles { signers, credential, former: Mutex::new(former) };
        files.update()?;
        Ok(files)
    }

    /// Sets a credential that is in no file.
    #[must_use]
    pub fn with_credential(self, credential: &[u8]) -> ClientFiles {
        let mut former = self.former.into_inner().unwrap_or_else(PoisonError::into_inner);
        (former.credential, former.given) = (None, Some(credential.into()));
        ClientFiles { credential: None, former: Mutex::new(former), ..self }
    }

    fn former(&self) -> MutexGuard<'_, Former> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files. Not with the lock: a file may be on a slow disk, and other connections begin.
    fn update(&self) -> Result<(), SecretsError> {
        let [signers, credential] =
            [&self.signers, &self.credential].map(|path| path.as_deref().map(read_file));
        self.former().update(signers, credential)
    }
}

impl ConnectionSecrets for ClientFiles {
    fn presented(&self) -> PresentedSecrets {
        // A fault is logged, and leaves the former content in force.
        let _ = self.update();
        self.former().presented()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_are_read_again_and_a_broken_one_leaves_the_former_content() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let certify = || rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap().cert.pem();
        fs::write(path("ca.pem"), certify()).unwrap();
        let encryption = ServerEncryption::SignedBy(path("ca.pem"));
        assert!(ClientFiles::open(&encryption, Some(&path("secret"))).is_err());
        fs::write(path("secret"), "old\n").unwrap();
        let files = ClientFiles::open(&encryption, Some(&path("secret"))).unwrap();
        let is_same = |first: &PresentedSecrets, second: &PresentedSecrets| {
            Arc::ptr_eq(first.tls.as_ref().unwrap(), second.tls.as_ref().unwrap())
        };
        let first = files.presented();
        assert_eq!(&*first.credential, b"old");
        // The first line of several.
        fs::write(path("secret"), "new\nold\n").unwrap();
        let second = files.presented();
        assert_eq!(&*second.credential, b"new");
        assert!(is_same(&first, &second));
        fs::write(path("ca.pem"), certify()).unwrap();
        assert!(!is_same(&second, &files.presented()));
        for broken in ["", "\n"] {
            fs::write(path("secret"), broken).unwrap();
            assert_eq!(&*files.presented().credential, b"new");
        }
        fs::remove_file(path("ca.pem")).unwrap();
        assert!(files.presented().tls.is_some());
        // A broken file does not keep the other one from being used.
        fs::write(path("secret"), "newer\n").unwrap();
        assert_eq!(&*files.presented().credential, b"newer");
        let fault = |files: &ClientFiles| files.former().signers.as_ref().unwrap().fault.clone();
        assert!(fault(&files).is_some());
        fs::write(path("ca.pem"), certify()).unwrap();
        files.presented();
        assert_eq!(fault(&files), None);
    }
}
