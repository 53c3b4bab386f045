//! Shared library with SQLite's C interface, which `yesquel-sqlite` implements.
//!
//! `cargo xtask library` installs it with its header and its pkg-config file.

// The exported symbols are C's, and C calls this crate.
use yesquel_sqlite as _;
