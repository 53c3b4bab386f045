//! SQLite's query processor over Yesquel's trees.
//!
//! Linking this crate gives a process the whole C interface of SQLite. Names
//! that begin with `yesquel:` are databases on trees (sections 3 and 5 of the
//! paper); all others are what they always were. `docs/yesquel/sql.md` says how
//! it is made.

mod address;
mod border;
mod key;
mod record;
mod rows;
mod scan;
mod schema;
mod sequence;
mod session;
mod side;
mod sorted;
mod stores;
mod told;

pub use address::{Address, AddressError, Place};

/// Whether this process has linked the SQLite with trees in it: call it where
/// nothing else of the crate is used, for what is not called is not linked.
pub fn is_linked() -> bool {
    border::is_linked()
}
