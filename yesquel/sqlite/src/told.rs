//! What went wrong, in words, until SQLite asks for it.
//!
//! SQLite is told codes. It asks for words in the same thread, before it does
//! anything else.

use crate::session::Code;
use std::{
    cell::RefCell,
    ffi::{CStr, CString},
    fmt::Display,
    ptr,
};

thread_local! {
    static LAST: RefCell<Option<(Code, CString)>> = const { RefCell::new(None) };
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
