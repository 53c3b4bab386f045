//! Why a command failed, and with which status it ends.

use std::{io, path::PathBuf};
use thiserror::Error;
use yesquel::{ConnectError, Denial};

#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("{error}{}", advice(.0), error = .0)]
    Yesquel(#[from] yesquel::Error),
    #[error(transparent)]
    Address(#[from] yesquel::AddressError),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    /// What was asked for is not there.
    #[error("{0}")]
    Absent(String),
    #[error("{0}")]
    Usage(String),
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// The options that may help, of which the library knows nothing.
fn advice(error: &yesquel::Error) -> &'static str {
    let yesquel::Error::Connect(error) = error else { return "" };
    match error {
        ConnectError::NotTls { .. } => {
            ". Leave --tls and --tls-ca out if it is a server without a certificate"
        }
        ConnectError::WantsTls { .. } => ". Give --tls-ca FILE, or --tls if browsers trust its certificate",
        ConnectError::Certificate { .. } => ". Give the certificate of whoever signed it: --tls-ca FILE",
        ConnectError::Closed { is_encrypted: false, .. } => {
            ". Encryption is asked for with --tls-ca FILE or --tls"
        }
        ConnectError::Late { .. } => " (--connect-timeout lets it take longer)",
        ConnectError::Denied { denial: Denial::Credential, .. } => " (--credential-file FILE)",
        _ => "",
    }
}

impl Failure {
    /// 1: it was not done; 2: it was asked for wrongly; 3: there is no such
    /// database, map or key; 4: the server cannot be reached.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::Address(_) | Failure::Usage(_) | Failure::Yesquel(yesquel::Error::Name { .. }) => 2,
            Failure::Absent(_) | Failure::Yesquel(yesquel::Error::NoDatabase(_)) => 3,
            Failure::Yesquel(yesquel::Error::Connect(_) | yesquel::Error::Unavailable(_)) => 4,
            Failure::Yesquel(_) | Failure::File { .. } | Failure::Output(_) => 1,
        }
    }
}
