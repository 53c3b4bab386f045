//! Why a command failed, and with which status it ends.

use std::{io, path::PathBuf};
use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
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
