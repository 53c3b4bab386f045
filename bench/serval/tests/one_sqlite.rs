//! Serval contains one SQLite, that of `yesquel-sqlite`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "../../../yesquel/sqlite/tests/symbols/mod.rs"]
mod symbols;

#[test]
fn the_program_contains_one_sqlite() {
    symbols::assert_one_and_ours(env!("CARGO_BIN_EXE_serval").as_ref());
}
