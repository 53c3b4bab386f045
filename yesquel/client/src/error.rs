//! Why a request or a commit failed.

use thiserror::Error;
use yesquel_model::{Refusal, ServerId};
use yesquel_transport::Lost;
use yesquel_wire::Malformed;

/// Why a server was asked in vain.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// It says no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It did not answer.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// It does not speak the protocol.
    #[error("the server's answer is no answer: {0}")]
    Malformed(#[from] Malformed),
    /// Its answer is to another question.
    #[error("the server answered another question than was asked")]
    Unfit,
}

/// Why a transaction did not commit, or may not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommitError {
    /// A server refused; nothing was done.
    #[error("{refusal}")]
    Refused {
        /// The server.
        server: ServerId,
        /// Which of its operations, counted from zero, if it was one.
        operation: Option<u64>,
        /// Why.
        refusal: Refusal,
    },
    /// Something failed before the end was sure; nothing was done, or nothing
    /// will be.
    #[error("{0}; the transaction was rolled back")]
    Failed(Error),
    /// It is not known, and cannot be found out, whether it was done.
    #[error("{0}; whether the transaction was done is not known")]
    Unknown(Error),
}
