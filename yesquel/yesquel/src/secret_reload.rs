//! Reloads of a server's certificates and credentials. `docs/yesquel/commands.md` has the rules.

use crate::{Error, checked_start::stored_credentials};
use std::sync::Arc;
use yesquel_secrets::{Credentials, PresentSecrets, SecretFiles, Secrets, SecretsError, tls};
use yesquel_server::{ClusterFiles, Revocations};

/// Reads the certificates and credentials of a server again. It does not keep the server running, so
/// that a file on a disk that does not answer does not delay the server's end.
#[derive(Debug, Clone)]
pub struct SecretReloader {
    pub(crate) secrets: Arc<PresentSecrets>,
    /// Files of the data folder, if the credentials of servers are there.
    pub(crate) stored: Option<ClusterFiles>,
    pub(crate) revocations: Revocations,
}

/// What is in force after a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReloadSummary {
    /// Connections of removed credentials that were closed; `None`: the thread of the sockets has not
    /// answered, and closes them later.
    pub closed: Option<usize>,
    /// Credentials of clients.
    pub client_credentials: usize,
    /// Credentials of servers.
    pub server_credentials: usize,
    /// Certificates that sign those of other servers.
    pub authorities: usize,
    /// When the server's certificate, or one of its chain, expires, in seconds of Unix time.
    pub certificate_expires_s: Option<u64>,
}

impl SecretReloader {
    /// Reads the files of certificates and credentials again, and puts all of them in force, or none if
    /// one cannot be used. Connections that are open go on, except those of removed credentials: they
    /// are closed when this returns.
    ///
    /// A secret without a file stays, but a machine that has joined reads the credentials of servers in
    /// its data folder.
    pub fn reload(&self, files: &SecretFiles) -> Result<ReloadSummary, Error> {
        let _reloading = self.secrets.begin_reload();
        let replaced = self.secrets.replace(|former| {
            let secrets = files.read_over(former)?;
            match &self.stored {
                Some(stored) if files.peer_credentials.is_none() => with_stored(secrets, stored),
                _ => Ok(secrets),
            }
        });
        let closed = replaced.map(|()| self.revocations.close_revoked());
        self.secrets.count_reload(closed.is_ok());
        let (closed, secrets) = (closed?, self.secrets.get());
        let count = |of: &Option<Credentials>| of.as_ref().map_or(0, Credentials::count);
        Ok(ReloadSummary {
            closed,
            client_credentials: count(&secrets.clients),
            server_credentials: count(&secrets.peers),
            authorities: secrets.peer_signers.as_deref().map_or(0, tls::count_certificates),
            certificate_expires_s: secrets.certificate_expires_s,
        })
    }
}

/// Takes the credentials of servers from the data folder of a machine that has joined.
fn with_stored(secrets: Secrets, files: &ClusterFiles) -> Result<Secrets, SecretsError> {
    let fail = |what| SecretsError { location: "the data folder".to_owned(), what };
    let stored = stored_credentials(files, secrets.peer_tls.is_some());
    let missing = "the file of the credentials of servers is missing (peer-credential, or \
                   peer-credential-encrypted if the cluster encrypts): write it again";
    match stored.map_err(|error| fail(error.to_string()))? {
        Some(peers) => Ok(Secrets { peers: Some(peers), ..secrets }),
        None => Err(fail(missing.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ListenOptions, Server};
    use std::{fs, thread};
    use yesquel_engine::EngineSettings;
    use yesquel_server::LogOptions;

    /// A file may be on a disk that does not answer.
    #[test]
    fn a_reload_that_does_not_end_does_not_delay_the_end_of_the_server() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("clients");
        fs::write(&file, "client\n").unwrap();
        let files = SecretFiles { credentials: Some(file), ..SecretFiles::default() };
        let listen = ListenOptions::default();
        let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
        let reloader = server.reloader().clone();
        thread::scope(|scope| {
            let blocked = reloader.secrets.begin_reload();
            let reload = scope.spawn(|| reloader.reload(&files).unwrap());
            drop(server);
            drop(blocked);
            // The connections have ended with the server.
            let summary = reload.join().unwrap();
            assert_eq!((summary.closed, summary.client_credentials), (Some(0), 1));
        });
        assert_eq!(reloader.secrets.reloads(), 1);
    }
}
