//! The secrets that are in force.

use crate::{
    Credentials, SecretsError,
    tls::{ClientConfig, ServerConfig},
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Certificates and credentials of a server.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    /// Encryption of TCP connections to the server.
    pub tls: Option<Arc<ServerConfig>>,
    /// When the server's certificate, or one of its chain, expires, in seconds of Unix time.
    pub certificate_expires_s: Option<u64>,
    /// Credentials of clients; `None`: they need none.
    pub clients: Option<Credentials>,
    /// Credentials of servers; the first one is presented to others. Without any, but with those of
    /// clients, no server is admitted.
    pub peers: Option<Credentials>,
    /// Encryption of connections to other servers. A reload of an unchanged file keeps it.
    pub peer_tls: Option<Arc<ClientConfig>>,
    /// Content of the file of which `peer_tls` was made, if a reload has read it.
    pub peer_signers: Option<Arc<[u8]>>,
}

impl Secrets {
    /// Checks that no credential is for both roles: a client could send the messages of a server.
    pub fn check(&self) -> Result<(), SecretsError> {
        let (Some(clients), Some(peers)) = (&self.clients, &self.peers) else { return Ok(()) };
        if clients.iter().all(|client| peers.line(client).is_none()) {
            return Ok(());
        }
        Err(SecretsError {
            location: "the credentials of clients and of servers".to_owned(),
            what: "one of them is in both files, so that a client could act as a server: give another one"
                .to_owned(),
        })
    }
}

/// The secrets of a server that are in force, which a reload replaces.
#[derive(Debug, Default)]
pub struct PresentSecrets {
    // Only handshakes and reloads take it.
    present: Mutex<Arc<Secrets>>,
    /// Held during a reload, so that a slow one does not replace what a later one has read.
    reloading: Mutex<()>,
    reloads: AtomicU64,
    failed_reloads: AtomicU64,
}

impl PresentSecrets {
    /// Puts secrets in force.
    pub fn new(secrets: Secrets) -> Result<PresentSecrets, SecretsError> {
        secrets.check()?;
        Ok(PresentSecrets { present: Mutex::new(Arc::new(secrets)), ..PresentSecrets::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Secrets>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the secrets that are in force.
    pub fn get(&self) -> Arc<Secrets> {
        Arc::clone(&self.lock())
    }

    /// Returns a guard with which no other reload reads, replaces, or closes connections.
    pub fn begin_reload(&self) -> MutexGuard<'_, ()> {
        self.reloading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the secrets, all or none. `read` gets the former ones.
    pub fn replace(
        &self,
        read: impl FnOnce(&Secrets) -> Result<Secrets, SecretsError>,
    ) -> Result<(), SecretsError> {
        let secrets = read(&self.get())?;
        secrets.check()?;
        *self.lock() = Arc::new(secrets);
        Ok(())
    }

    /// Counts a reload, when it has taken effect.
    pub fn count_reload(&self, has_succeeded: bool) {
        let counter = if has_succeeded { &self.reloads } else { &self.failed_reloads };
        counter.fetch_add(1, Relaxed);
    }

    /// Returns the number of reloads.
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Relaxed)
    }

    /// Returns the number of reloads that have failed, and left the former secrets in force.
    pub fn failed_reloads(&self) -> u64 {
        self.failed_reloads.load(Relaxed)
    }
}

/// What a new connection presents and trusts.
#[derive(Clone, Default)]
pub struct PresentedSecrets {
    /// The credential; empty: none.
    pub credential: Box<[u8]>,
    /// Encryption, on TCP.
    pub tls: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for PresentedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the credential.
        f.debug_struct("PresentedSecrets").field("is_encrypted", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// Source of the secrets for each new connection.
pub trait ConnectionSecrets: fmt::Debug + Send + Sync {
    /// Returns the secrets of a connection that is made now.
    fn presented(&self) -> PresentedSecrets;

    /// Whether an idle connection made with these secrets should be made again. Those of clients go on.
    fn is_outdated(&self, _made_with: &PresentedSecrets) -> bool {
        false
    }
}

/// What a server presents to other servers.
#[derive(Debug, Clone)]
pub struct PeerSecrets(pub Arc<PresentSecrets>);

impl ConnectionSecrets for PeerSecrets {
    fn presented(&self) -> PresentedSecrets {
        let secrets = self.0.get();
        PresentedSecrets {
            credential: secrets.peers.as_ref().map(|peers| peers.first().into()).unwrap_or_default(),
            tls: secrets.peer_tls.clone(),
        }
    }

    /// The credential may be removed, and the authority distrusted, in the next step of a rotation.
    fn is_outdated(&self, made_with: &PresentedSecrets) -> bool {
        let PresentedSecrets { credential, tls } = self.presented();
        let is_same = match (&tls, &made_with.tls) {
            (Some(now), Some(before)) => Arc::ptr_eq(now, before),
            (now, before) => now.is_none() && before.is_none(),
        };
        !is_same || credential != made_with.credential
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(clients: &str, peers: &str) -> Secrets {
        let of = |text: &str| Credentials::parse(text.as_bytes()).ok();
        Secrets { clients: of(clients), peers: of(peers), ..Secrets::default() }
    }

    #[test]
    fn a_credential_is_for_one_role_after_a_reload_too() {
        let error = PresentSecrets::new(with("a\nb", "c\nb")).unwrap_err();
        assert!(error.to_string().contains("a client could act as a server"), "{error}");
        let present = PresentSecrets::new(with("a", "b")).unwrap();
        present.replace(|_| Ok(with("a\nb", "b"))).unwrap_err();
        assert_eq!(present.get().clients, with("a", "").clients);
        present.replace(|_| Ok(with("a\nb", "c"))).unwrap();
        let peers = PeerSecrets(Arc::new(present));
        let made_with = peers.presented();
        assert_eq!(&*made_with.credential, b"c");
        // A connection is made again when another credential is presented, and only then.
        peers.0.replace(|_| Ok(with("a", "c\nd"))).unwrap();
        assert!(!peers.is_outdated(&made_with));
        peers.0.replace(|_| Ok(with("a", "d\nc"))).unwrap();
        assert!(peers.is_outdated(&made_with));
    }
}
