//! The shared library: SQLite's C interface, made by `yesquel-sqlite`.
//!
//! `cargo xtask library` puts it, its header and its pkg-config file where
//! others find them.

// What it shows is C's, and what C calls is Rust's.
use yesquel_sqlite as _;
