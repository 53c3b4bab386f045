//! Why there is no connection, and what is likely the matter.

use super::{Address, SocketOptions};
use std::{fmt, io, time::Duration};
use thiserror::Error;
use yesquel_model::ServerId;
use yesquel_wire::greeting::{CREDENTIAL_BYTES_MAX, Denial, GreetingError};

/// A step on the way to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Finding the address of a host.
    Resolve,
    /// Connecting.
    Connect,
    /// Agreeing on encryption.
    Encrypt,
    /// Greeting.
    Greet,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Resolve => "finding the host's address",
            Step::Connect => "connecting",
            Step::Encrypt => "agreeing on encryption (TLS)",
            Step::Greet => "the server's greeting",
        })
    }
}

impl Step {
    fn advice(self) -> &'static str {
        match self {
            Step::Resolve | Step::Connect => "",
            Step::Encrypt => ": does it speak TLS?",
            Step::Greet => ": is it a Yesquel server, and is it asked with the encryption that it has?",
        }
    }
}

/// Why there is no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The system says so.
    #[error("{address}: {error}")]
    Io {
        /// Where.
        address: Address,
        /// Why.
        error: io::Error,
    },
    /// It took longer than [`SocketOptions::connect_timeout`] lets it.
    #[error("{address}: {step} took longer than {} s{}", limit.as_secs_f64(), step.advice())]
    Late {
        /// Where.
        address: Address,
        /// What.
        step: Step,
        /// How long it may take in all.
        limit: Duration,
    },
    /// It was asked with encryption, and does not answer so.
    #[error(
        "{address}: asked for an encrypted connection (TLS), the server {}: it may speak no TLS, or be another service",
        if error.kind() == io::ErrorKind::InvalidData { "answered with something else" } else { "closed the connection" }
    )]
    NotTls {
        /// Where.
        address: Address,
        /// What came of it.
        error: io::Error,
    },
    /// It was asked without encryption, and answers with it.
    #[error(
        "{address}: the server speaks TLS, and was asked without: is it a Yesquel server, then ask for encryption"
    )]
    WantsTls {
        /// Where.
        address: Address,
    },
    /// Its certificate was not signed by whom one trusts, or is not its own.
    #[error("{address}: the server's certificate is not trusted: {error}")]
    Certificate {
        /// Where.
        address: Address,
        /// Why.
        error: io::Error,
    },
    /// It ended the connection instead of greeting.
    #[error(
        "{address}: the server closed the connection and did not greet ({error}): it may be about to end, {} or be no \
         Yesquel server",
        if *is_encrypted { "" } else { "want encryption (TLS)," }
    )]
    Closed {
        /// Where.
        address: Address,
        /// Whether it was asked with encryption.
        is_encrypted: bool,
        /// What came of it.
        error: io::Error,
    },
    /// Something else is there.
    #[error("{address}: {error}: is it a Yesquel server, and is it asked with the encryption that it has?")]
    Foreign {
        /// Where.
        address: Address,
        /// What is wrong with its greeting.
        error: GreetingError,
    },
    /// The server says no.
    #[error("{address}: {denial}")]
    Denied {
        /// Where.
        address: Address,
        /// Why.
        denial: Denial,
    },
    /// No server takes a credential that is so long.
    #[error("{address}: a credential of {bytes} bytes; the limit is {CREDENTIAL_BYTES_MAX}")]
    LongCredential {
        /// Where.
        address: Address,
        /// How long it is.
        bytes: usize,
    },
    /// Another server than before answers there.
    #[error("{address}: server {} answers there now, it was {}", now.0, before.0)]
    Another {
        /// Where.
        address: Address,
        /// Who was there.
        before: ServerId,
        /// Who is.
        now: ServerId,
    },
}

/// What a record of TLS that tells of a fault begins with.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

impl ConnectError {
    /// What a step has failed with.
    pub(super) fn at(
        address: &Address,
        options: &SocketOptions,
        step: Step,
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
            (Step::Encrypt, _, Some(rustls::Error::InvalidMessage(_)))
            | (Step::Encrypt, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof, _) => {
                ConnectError::NotTls { address, error }
            }
            (Step::Greet, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof, _) => {
                // Sockets at files are never encrypted.
                let is_encrypted = options.tls.is_some() || matches!(address, Address::Unix(_));
                ConnectError::Closed { address, is_encrypted, error }
            }
            _ => ConnectError::Io { address, error },
        }
    }

    /// What has begun with these bytes is no greeting.
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

    /// Whether a server that is about to start anew may be the reason.
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
