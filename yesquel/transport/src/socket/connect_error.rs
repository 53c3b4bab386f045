//! Why a connection fails, and the likely cause.

use super::{Address, SocketOptions};
use std::{fmt, io, time::Duration};
use thiserror::Error;
use yesquel_model::{ClusterId, ServerId};
use yesquel_wire::greeting::{CREDENTIAL_BYTES_MAX, Denial, GreetingError};

/// A cluster, and how it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCluster {
    /// The cluster.
    pub cluster: ClusterId,
    /// The address of a server that belongs to it, or another name for its origin.
    pub at: String,
}

/// A step of connecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectStep {
    /// Resolving the host.
    Resolve,
    /// Connecting.
    Connect,
    /// Negotiating encryption.
    Encrypt,
    /// Exchanging greetings.
    Greet,
}

impl fmt::Display for ConnectStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectStep::Resolve => "finding the host's address",
            ConnectStep::Connect => "connecting",
            ConnectStep::Encrypt => "agreeing on encryption (TLS)",
            ConnectStep::Greet => "the server's greeting",
        })
    }
}

fn listed(errors: &[ConnectError]) -> String {
    errors.iter().map(ConnectError::to_string).collect::<Vec<_>>().join("; ")
}

impl ConnectStep {
    fn advice(self) -> &'static str {
        match self {
            ConnectStep::Resolve | ConnectStep::Connect => "",
            ConnectStep::Encrypt => ": does it speak TLS?",
            ConnectStep::Greet => {
                ": is it a Yesquel server, and is it asked with the encryption that it has?"
            }
        }
    }
}

/// Why a connection fails.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No server of several answers.
    #[error("none of the servers can be connected to: {}", listed(.0))]
    NoneAnswers(Vec<ConnectError>),
    /// The operating system reports an error.
    #[error("{address}: {error}")]
    Io {
        /// The server.
        address: Address,
        /// The error.
        error: io::Error,
    },
    /// It exceeded [`SocketOptions::connect_timeout`].
    #[error("{address}: {step} took longer than {} s{}", limit.as_secs_f64(), step.advice())]
    Late {
        /// The server.
        address: Address,
        /// The step in progress.
        step: ConnectStep,
        /// The time limit.
        limit: Duration,
    },
    /// The client encrypts, but the server does not.
    #[error(
        "{address}: asked for an encrypted connection (TLS), the server {}: it may speak no TLS, or be another service",
        if error.kind() == io::ErrorKind::InvalidData { "answered with something else" } else { "closed the connection" }
    )]
    NotTls {
        /// The server.
        address: Address,
        /// The error.
        error: io::Error,
    },
    /// The server encrypts, but the client does not.
    #[error(
        "{address}: the server speaks TLS, and was asked without: is it a Yesquel server, then ask for encryption"
    )]
    WantsTls {
        /// The server.
        address: Address,
    },
    /// The certificate is not signed by a trusted authority, or is for another name.
    #[error("{address}: the server's certificate is not trusted: {error}")]
    Certificate {
        /// The server.
        address: Address,
        /// The error.
        error: io::Error,
    },
    /// The server closed the connection instead of greeting.
    #[error(
        "{address}: the server closed the connection and did not greet ({error}): it may be about to end, {} or be no \
         Yesquel server",
        if *is_encrypted { "" } else { "want encryption (TLS)," }
    )]
    Closed {
        /// The server.
        address: Address,
        /// Whether the client encrypts.
        is_encrypted: bool,
        /// The error.
        error: io::Error,
    },
    /// The peer is not a Yesquel server.
    #[error("{address}: {error}: is it a Yesquel server, and is it asked with the encryption that it has?")]
    Foreign {
        /// The server.
        address: Address,
        /// The fault in its greeting.
        error: GreetingError,
    },
    /// The server turns the client away.
    #[error("{address}: {denial}")]
    Denied {
        /// The server.
        address: Address,
        /// The reason.
        denial: Denial,
    },
    /// The credential exceeds the limit of all servers.
    #[error("{address}: a credential of {bytes} bytes; the limit is {CREDENTIAL_BYTES_MAX}")]
    LongCredential {
        /// The server.
        address: Address,
        /// Its length.
        bytes: usize,
    },
    /// The server belongs to another cluster.
    #[error(
        "{address}: belongs to cluster {cluster}, but {} belongs to cluster {}: give addresses of one cluster",
        known.at, known.cluster
    )]
    OtherCluster {
        /// The server.
        address: Address,
        /// Its cluster.
        cluster: ClusterId,
        /// The cluster of the other servers.
        known: KnownCluster,
    },
    /// Another server answers at the address than before.
    #[error("{address}: server {} answers there now, it was {}", now.0, before.0)]
    Another {
        /// The server.
        address: Address,
        /// The server before.
        before: ServerId,
        /// The server now.
        now: ServerId,
    },
}

/// First bytes of a TLS alert record.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

impl ConnectError {
    /// The error for a failed step.
    pub(super) fn at(
        address: &Address,
        options: &SocketOptions,
        step: ConnectStep,
        error: io::Error,
    ) -> ConnectError {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock,
        };
        let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
        let address = address.clone();
        match (step, error.kind(), tls) {
            (_, WouldBlock | TimedOut, _) => {
                ConnectError::Late { address, step, limit: options.connect_timeout }
            }
            (_, _, Some(rustls::Error::InvalidCertificate(_))) => {
                ConnectError::Certificate { address, error }
            }
            (ConnectStep::Encrypt, _, Some(rustls::Error::InvalidMessage(_)))
            | (ConnectStep::Encrypt, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof, _) => {
                ConnectError::NotTls { address, error }
            }
            (ConnectStep::Greet, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof, _) => {
                // Unix sockets are never encrypted.
                let is_encrypted = options.tls.is_some() || matches!(address, Address::Unix(_));
                ConnectError::Closed { address, is_encrypted, error }
            }
            _ => ConnectError::Io { address, error },
        }
    }

    /// The error for a peer whose first bytes are no greeting.
    pub(super) fn foreign(
        address: &Address,
        options: &SocketOptions,
        bytes: &[u8],
        error: GreetingError,
    ) -> ConnectError {
        let address = address.clone();
        if options.tls.is_none() && bytes.starts_with(&TLS_ALERT) {
            ConnectError::WantsTls { address }
        } else {
            ConnectError::Foreign { address, error }
        }
    }

    /// Whether a later attempt fails in the same way, unless the server is started with other options.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            ConnectError::Certificate { .. }
                | ConnectError::LongCredential { .. }
                | ConnectError::Another { .. }
                | ConnectError::OtherCluster { .. }
                | ConnectError::Denied { denial: Denial::Version { .. } | Denial::Credential, .. }
        )
    }

    /// Whether a restarting server may be the cause, so that a retry makes sense.
    pub(super) fn may_pass(&self) -> bool {
        let (ConnectError::Io { error, .. }
        | ConnectError::NotTls { error, .. }
        | ConnectError::Closed { error, .. }) = self
        else {
            return false;
        };
        matches!(
            error.kind(),
            io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::UnexpectedEof
                | io::ErrorKind::NotFound
        )
    }
}
