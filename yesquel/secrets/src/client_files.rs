//! Files of a client's secrets, which it reads for each new connection.

use crate::{
    ConnectionSecrets, PresentedSecrets, SecretsError,
    credentials::first_line,
    tls::{self, ClientConfig},
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
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

/// Content of a file, and what was made of it.
struct Parsed<T> {
    content: Vec<u8>,
    parsed: T,
}

/// Files of a client's secrets. A file that cannot be read or parsed leaves the former content in
/// force.
pub struct ClientFiles {
    signers: Option<PathBuf>,
    credential: Option<PathBuf>,
    former: Mutex<Former>,
}

/// What the files had when they were read last. An unchanged file keeps its configuration, with which
/// TLS resumes sessions.
struct Former {
    signers: Option<Parsed<Arc<ClientConfig>>>,
    credential: Option<Parsed<Box<[u8]>>>,
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

impl<T> Parsed<T> {
    /// Reads a file, and parses it unless it has not changed.
    fn update(
        former: &mut Option<Parsed<T>>,
        path: &Path,
        parse: impl FnOnce(&[u8]) -> Result<T, SecretsError>,
    ) -> Result<(), SecretsError> {
        let content = fs::read(path).map_err(|error| SecretsError::file(path, error))?;
        if former.as_ref().is_none_or(|former| former.content != content) {
            let parsed = parse(&content)?;
            *former = Some(Parsed { content, parsed });
        }
        Ok(())
    }
}

impl Former {
    fn read(&mut self, signers: Option<&Path>, credential: Option<&Path>) -> Result<(), SecretsError> {
        if let Some(path) = signers {
            Parsed::update(&mut self.signers, path, |content| tls::client_of(path, content))?;
        }
        if let Some(path) = credential {
            Parsed::update(&mut self.credential, path, |content| {
                first_line(content).map(Into::into).map_err(|what| SecretsError::file(path, what))
            })?;
        }
        Ok(())
    }

    fn presented(&self) -> PresentedSecrets {
        let credential = self.credential.as_ref().map(|credential| credential.parsed.clone());
        let tls = self.signers.as_ref().map(|signers| Arc::clone(&signers.parsed));
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
        let mut former = Former { signers: None, credential: None, tls };
        former.read(signers.as_deref(), credential.as_deref())?;
        Ok(ClientFiles { signers, credential, former: Mutex::new(former) })
    }

    /// Sets a credential that is in no file.
    #[must_use]
    pub fn with_credential(self, credential: &[u8]) -> ClientFiles {
        let mut former = self.former.into_inner().unwrap_or_else(PoisonError::into_inner);
        former.credential = Some(Parsed { content: Vec::new(), parsed: credential.into() });
        ClientFiles { credential: None, former: Mutex::new(former), ..self }
    }
}

impl ConnectionSecrets for ClientFiles {
    fn presented(&self) -> PresentedSecrets {
        let mut former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = former.read(self.signers.as_deref(), self.credential.as_deref()) {
            tracing::warn!(%error, "a file cannot be used; its former content stays in force");
        }
        former.presented()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
