//! Classes of errors, and what they say about a transaction.

use rusqlite::{Error, ffi};
use yesquel_histories::RecordedOutcome;

/// Class of an error that a program on a cluster must expect. All but
/// [`OutcomeUnknown`](SqlErrorClass::OutcomeUnknown) mean that nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlErrorClass {
    /// `SQLITE_BUSY`: another transaction was first, or holds a lease.
    Busy,
    /// `SQLITE_IOERR`: a server does not answer, or cannot serve.
    Io,
    /// `SQLITE_CANTOPEN`: no server can be reached.
    CannotOpen,
    /// `SQLITE_FULL`: a server's disk or memory is full.
    Full,
    /// `SQLITE_IOERR_COMMIT_ATOMIC`: the transaction has committed or not.
    OutcomeUnknown,
}

/// Returns the class of an error; `None` if no fault of a cluster explains it.
pub fn class_of(error: &Error) -> Option<SqlErrorClass> {
    let code = error.sqlite_error()?.extended_code;
    match (code, code & 0xff) {
        (ffi::SQLITE_IOERR_COMMIT_ATOMIC, _) => Some(SqlErrorClass::OutcomeUnknown),
        (_, ffi::SQLITE_BUSY) => Some(SqlErrorClass::Busy),
        (_, ffi::SQLITE_IOERR) => Some(SqlErrorClass::Io),
        (_, ffi::SQLITE_CANTOPEN) => Some(SqlErrorClass::CannotOpen),
        (_, ffi::SQLITE_FULL) => Some(SqlErrorClass::Full),
        _ => None,
    }
}

/// Returns the outcome of a transaction whose last statement has ended like this.
pub fn outcome_of(done: &Result<(), Error>) -> RecordedOutcome {
    match done {
        Ok(()) => RecordedOutcome::Committed,
        Err(error) if class_of(error) == Some(SqlErrorClass::OutcomeUnknown) => RecordedOutcome::Unknown,
        Err(_) => RecordedOutcome::Aborted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> Error {
        Error::SqliteFailure(ffi::Error::new(code), Some("a reason".to_owned()))
    }

    #[test]
    fn only_one_code_leaves_the_outcome_open() {
        let outcome = |code| outcome_of(&Err(failure(code)));
        assert_eq!(outcome(ffi::SQLITE_IOERR_COMMIT_ATOMIC), RecordedOutcome::Unknown);
        assert_eq!(outcome(ffi::SQLITE_IOERR), RecordedOutcome::Aborted);
        assert_eq!(outcome(ffi::SQLITE_BUSY_SNAPSHOT), RecordedOutcome::Aborted);
        assert_eq!(outcome_of(&Ok(())), RecordedOutcome::Committed);
    }

    #[test]
    fn errors_that_no_fault_explains_have_no_class() {
        let codes = [ffi::SQLITE_ERROR, ffi::SQLITE_INTERNAL, ffi::SQLITE_CORRUPT, ffi::SQLITE_CONSTRAINT];
        for code in codes {
            assert_eq!(class_of(&failure(code)), None);
        }
        assert_eq!(class_of(&Error::QueryReturnedNoRows), None);
        assert_eq!(class_of(&failure(ffi::SQLITE_BUSY_SNAPSHOT)), Some(SqlErrorClass::Busy));
    }
}
