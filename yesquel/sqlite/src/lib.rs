//! SQLite's query processor over Yesquel's trees.
//!
//! Linking this crate gives a process SQLite's whole C interface. Names that begin with `yesquel:`
//! are databases on trees (sections 3 and 5 of the paper); all others are SQLite's.
//! `docs/yesquel/sql.md` describes the design.

mod access_pattern;
mod add_groups;
mod address;
mod address_file;
mod attached_database;
mod border;
mod code;
mod compare;
mod copies;
mod form;
mod key;
mod last_error;
mod long_keys;
mod record;
mod row_numbers;
mod scan;
mod schema;
mod secrets;
mod seek;
mod sequence;
mod session;
mod size;
mod sorted;
mod stores;
mod trees;

pub use add_groups::add_groups;
pub use address::{
    AccessMode, ConsistencyLevel, DatabaseAddress, DatabaseAddressError, DatabaseLocation, IsolationLevel,
};
pub use copies::{CopyFault, copy_faults, has_schema};
pub use last_error::SqlErrorKind;
pub use secrets::{Credential, Secrets};
pub use stores::{Connector, set_connector};
pub use trees::{DatabaseTrees, TreeCosts};
pub use yesquel::ServerEncryption;

/// Returns whether this process has linked SQLite with trees. Call it in programs that use nothing
/// else of this crate, for the linker drops what is not called.
pub fn is_linked() -> bool {
    border::is_linked()
}

/// Returns whether a text is complete: it ends with a semicolon outside of strings, comments and
/// triggers. A text with a zero byte ends before it.
pub fn is_complete(sql: &str) -> bool {
    let before = sql.split('\0').next().unwrap_or_default();
    // SQLite considers a comment without a line end incomplete.
    std::ffi::CString::new(format!("{before}\n")).is_ok_and(|sql| border::is_complete(&sql))
}

/// Formats a floating-point number as SQLite does: the shortest text that reads back as the same
/// number.
pub fn text_of_real(number: f64) -> String {
    border::text_of_real(number)
}

/// Takes the last failure of this thread for which SQLite has no code.
pub fn last_error_kind() -> Option<SqlErrorKind> {
    last_error::take_kind()
}

/// Returns the message of this thread's last failure if it had this extended code of SQLite: for
/// calls that return the code only, such as a step of a backup.
pub fn last_message(code: i32) -> Option<String> {
    last_error::message(code)
}

/// Returns the address that a name is, or that the small file of this name contains.
pub fn address_of(name: &str) -> Option<String> {
    address_file::of_name(name)
}

/// Returns the content of a file that holds an address, and that SQLite without this library refuses
/// with a message that says so; `None` if the address is too long.
pub fn address_file(address: &str) -> Option<Vec<u8>> {
    address_file::content(address)
}

/// Returns an address without its credential, to be shown.
pub fn shown_address(address: &str) -> String {
    secrets::shown(address)
}

/// Returns whether a word is a keyword of SQL.
pub fn is_keyword(word: &str) -> bool {
    border::is_keyword(word)
}

/// Returns all keywords of SQL.
pub fn keywords() -> Vec<String> {
    border::keywords()
}

/// Formats the key of a row in a table's tree: the row's number.
pub fn shown_row_key(key: &[u8]) -> String {
    key::row_of(key).map_or_else(|| key::shown(key), |row| row.to_string())
}

/// Formats a key in the tree of an index or of a table without row ids: its fields.
pub fn shown_index_key(key: &[u8]) -> String {
    key::shown(key)
}
