//! SQLite's query processor over Yesquel's trees.
//!
//! Linking this crate gives a process the whole C interface of SQLite. Names
//! that begin with `yesquel:` are databases on trees (sections 3 and 5 of the
//! paper); all others are what they always were. `docs/yesquel/sql.md` says how
//! it is made.

mod address;
mod border;
mod code;
mod compare;
mod form;
mod habit;
mod key;
mod record;
mod rows;
mod scan;
mod schema;
mod secrets;
mod seek;
mod sequence;
mod session;
mod side;
mod sorted;
mod stores;
mod told;
mod trees;

pub use address::{Address, AddressError, Mode, Place};
pub use secrets::{Credential, Encryption, Secrets};
pub use told::Trouble;
pub use trees::{Costs, Trees};

/// Whether this process has linked the SQLite with trees in it: call it where
/// nothing else of the crate is used, for what is not called is not linked.
pub fn is_linked() -> bool {
    border::is_linked()
}

/// Whether statements are whole: the text ends with a semicolon that is in no
/// string, comment or trigger. A text with a zero byte in it is as long as what
/// is before it.
pub fn is_complete(sql: &str) -> bool {
    let before = sql.split('\0').next().unwrap_or_default();
    // SQLite waits for more behind a comment whose line has not ended.
    std::ffi::CString::new(format!("{before}\n")).is_ok_and(|sql| border::is_complete(&sql))
}

/// A floating-point number as SQLite makes text of it: the shortest that is no
/// other number.
pub fn text_of_real(number: f64) -> String {
    border::text_of_real(number)
}

/// What went wrong last in this thread, if SQLite has no code for it; it is told
/// once.
pub fn last_trouble() -> Option<Trouble> {
    told::trouble()
}

/// The words of what went wrong last in this thread, if it came to this extended
/// code of SQLite's: for calls such as a step of a backup, which give the code only.
pub fn last_words(code: i32) -> Option<String> {
    told::words(code)
}

/// The address that a name is, or that stands in the small file of that name.
pub fn address_of(name: &str) -> Option<String> {
    address::of_name(name)
}

/// An address as it may be shown: without a credential that stands in it.
pub fn shown_address(address: &str) -> String {
    secrets::shown(address)
}

/// Whether a word is one of SQL's own.
pub fn is_keyword(word: &str) -> bool {
    border::is_keyword(word)
}

/// All words of SQL's own.
pub fn keywords() -> Vec<String> {
    border::keywords()
}

/// The key of a row in a table's tree for people: the row's number.
pub fn shown_row_key(key: &[u8]) -> String {
    key::row_of(key).map_or_else(|| key::shown(key), |row| row.to_string())
}

/// A key in the tree of an index, or of a table without row ids, for people:
/// its fields.
pub fn shown_index_key(key: &[u8]) -> String {
    key::shown(key)
}
