//! Files of a server's secrets.

use crate::{Credentials, Secrets, SecretsError, read_file::read_file, tls};
use std::path::PathBuf;

/// PEM files of a certificate with its chain, and of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and its chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Files of a server's secrets. A secret without a file does not change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecretFiles {
    /// Certificate of the server.
    pub certificate: Option<CertificateFiles>,
    /// Credentials of clients, one a line.
    pub credentials: Option<PathBuf>,
    /// Credentials of servers, one a line.
    pub peer_credentials: Option<PathBuf>,
    /// PEM file of the certificates that sign those of other servers.
    pub peer_signers: Option<PathBuf>,
}

impl SecretFiles {
    /// Reads the files.
    pub fn read(&self) -> Result<Secrets, SecretsError> {
        self.read_over(&Secrets::default())
    }

    /// Reads the files; secrets without a file are those of `former`.
    pub fn read_over(&self, former: &Secrets) -> Result<Secrets, SecretsError> {
        let mut secrets = former.clone();
        if let Some(CertificateFiles { certificate, key }) = &self.certificate {
            let (config, expires_s) = tls::server_with_expiry(certificate, key)?;
            (secrets.tls, secrets.certificate_expires_s) = (Some(config), expires_s);
        }
        if let Some(path) = &self.credentials {
            secrets.clients = Some(Credentials::read(path)?);
        }
        if let Some(path) = &self.peer_credentials {
            secrets.peers = Some(Credentials::read(path)?);
        }
        if let Some(path) = &self.peer_signers {
            let content = read_file(path)?;
            if secrets.peer_signers.as_deref() != Some(&content) {
                secrets.peer_tls = Some(tls::client_of(path, &content)?);
                secrets.peer_signers = Some(content.into());
            }
        }
        secrets.check()?;
        Ok(secrets)
    }
}
