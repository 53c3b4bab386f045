//! What went wrong, in words, until SQLite asks for it.
//!
//! SQLite is told codes. It asks for words in the same thread, before it does
//! anything else.

use crate::code::Code;
use std::{
    cell::{Cell, RefCell},
    ffi::{CStr, CString},
    fmt::Display,
    ptr,
};

thread_local! {
    static LAST: RefCell<Option<(Code, CString)>> = const { RefCell::new(None) };
    static TROUBLE: Cell<Option<Trouble>> = const { Cell::new(None) };
}

/// What SQLite has no codes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// A server cannot be reached, or has not answered in time.
    Unreachable,
    /// There is no such database.
    NoDatabase,
    /// The address makes no sense, or the name in it.
    Address,
    /// Whether the transaction was committed is not known.
    OutcomeUnknown,
}

/// Keeps what kind of error it was, for those who want to know more than a code.
pub(crate) fn because(error: &yesquel::Error) {
    TROUBLE.set(match error {
        yesquel::Error::Connect(_) | yesquel::Error::Unavailable(_) | yesquel::Error::Disconnected(_) => {
            Some(Trouble::Unreachable)
        }
        yesquel::Error::NoDatabase(_) => Some(Trouble::NoDatabase),
        yesquel::Error::Name { .. } => Some(Trouble::Address),
        yesquel::Error::OutcomeUnknown(_) => Some(Trouble::OutcomeUnknown),
        _ => None,
    });
}

/// An address was not understood.
pub(crate) fn because_of_address() {
    TROUBLE.set(Some(Trouble::Address));
}

/// What went wrong last in this thread, if it is one of these; asked once.
pub(crate) fn trouble() -> Option<Trouble> {
    TROUBLE.take()
}

/// Keeps the words of an error.
pub(crate) fn say(code: Code, error: impl Display) {
    // Programs look for SQLite's own words, to try again.
    let busy = if matches!(code, Code::BUSY | Code::BUSY_SNAPSHOT) { "database is locked: " } else { "" };
    let words = CString::new(format!("{busy}{error}")).unwrap_or_default();
    LAST.set(Some((code, words)));
}

/// Nothing has gone wrong yet.
pub(crate) fn forget() {
    LAST.set(None);
}

/// The words of the last error, if it had this code. They are good until there
/// are others.
pub(crate) fn of(code: Code) -> *const std::ffi::c_char {
    LAST.with_borrow(|last| match last {
        Some((own, words)) if *own == code => CStr::as_ptr(words),
        _ => ptr::null(),
    })
}

/// The same, to be kept.
pub(crate) fn words(code: i32) -> Option<String> {
    LAST.with_borrow(|last| match last {
        Some((own, words)) if *own == Code(code) => Some(words.to_string_lossy().into_owned()),
        _ => None,
    })
}
