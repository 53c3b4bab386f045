//! Message of the last failure, kept until SQLite requests it.
//!
//! SQLite receives codes. It requests the message on the same thread before anything else.

use crate::code::ResultCode;
use std::{
    cell::{Cell, RefCell},
    ffi::{CStr, CString},
    fmt::Display,
    ptr,
};

thread_local! {
    static LAST: RefCell<Option<(ResultCode, CString)>> = const { RefCell::new(None) };
    static KIND: Cell<Option<SqlErrorKind>> = const { Cell::new(None) };
}

/// Failures for which SQLite has no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SqlErrorKind {
    /// A server cannot be reached, or has not answered in time.
    Unreachable,
    /// The database does not exist.
    NoDatabase,
    /// The address or the name in it is invalid.
    Address,
    /// It is unknown whether the transaction committed.
    OutcomeUnknown,
}

/// Records the kind of an error, for callers that need more than a code.
pub(crate) fn record_kind(error: &yesquel::Error) {
    KIND.set(match error {
        yesquel::Error::Connect(_)
        | yesquel::Error::Unavailable(_)
        | yesquel::Error::HomeGroupUnreachable(_)
        | yesquel::Error::Disconnected(_) => Some(SqlErrorKind::Unreachable),
        yesquel::Error::NoDatabase(_) => Some(SqlErrorKind::NoDatabase),
        yesquel::Error::Name { .. } => Some(SqlErrorKind::Address),
        yesquel::Error::OutcomeUnknown(_) => Some(SqlErrorKind::OutcomeUnknown),
        _ => None,
    });
}

/// Records an invalid address.
pub(crate) fn record_address_error() {
    KIND.set(Some(SqlErrorKind::Address));
}

/// Takes the kind of the last failure.
pub(crate) fn take_kind() -> Option<SqlErrorKind> {
    KIND.take()
}

/// Stores the message of an error.
pub(crate) fn set(code: ResultCode, error: impl Display) {
    // Programs search for SQLite's own text to decide about a retry.
    let busy = if matches!(code, ResultCode::BUSY | ResultCode::BUSY_SNAPSHOT) {
        "database is locked: "
    } else {
        ""
    };
    let words = CString::new(format!("{busy}{error}")).unwrap_or_default();
    LAST.set(Some((code, words)));
}

/// Clears the last failure.
pub(crate) fn forget() {
    LAST.set(None);
}

/// Returns the last message if it has this code. It is valid until the next failure.
pub(crate) fn of(code: ResultCode) -> *const std::ffi::c_char {
    LAST.with_borrow(|last| match last {
        Some((own, words)) if *own == code => CStr::as_ptr(words),
        _ => ptr::null(),
    })
}

/// Returns a copy of the last message if it has this code.
pub(crate) fn message(code: i32) -> Option<String> {
    LAST.with_borrow(|last| match last {
        Some((own, words)) if *own == ResultCode(code) => Some(words.to_string_lossy().into_owned()),
        _ => None,
    })
}
