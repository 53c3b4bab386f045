//! Reasons for which a request or a commit fails.

use thiserror::Error;
use yesquel_model::{Refusal, ServerId};
use yesquel_transport::LostCall;
use yesquel_wire::Malformed;

/// Reason for which a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The server refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server did not answer.
    #[error(transparent)]
    Lost(#[from] LostCall),
    /// The server's answer is not a message of the protocol.
    #[error("the server's answer is not a message of the protocol: {0}")]
    Malformed(#[from] Malformed),
    /// The server's answer does not belong to this request.
    #[error("the server's answer does not belong to the request")]
    UnexpectedAnswer,
}

/// Reason for which a transaction did not commit, or may not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommitError {
    /// A server refused. The transaction is rolled back.
    #[error("{refusal}")]
    Refused {
        /// Server that refused.
        server: ServerId,
        /// Zero-based index of the refused operation, if one operation was refused.
        operation: Option<u64>,
        /// Reason of the refusal.
        refusal: Refusal,
    },
    /// The commit failed before it was decided. The transaction is rolled back.
    #[error("{0}; the transaction was rolled back")]
    Failed(RequestError),
    /// It cannot be determined whether the transaction committed.
    #[error("{0}; it is not known whether the transaction committed")]
    Unknown(RequestError),
}
