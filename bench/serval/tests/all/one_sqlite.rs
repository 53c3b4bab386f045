//! Serval contains one SQLite, that of `yesquel-sqlite`.

#[path = "../../../../yesquel/sqlite/tests/symbols/mod.rs"]
mod symbols;

#[test]
fn the_program_contains_one_sqlite() {
    symbols::assert_one_and_ours(env!("CARGO_BIN_EXE_serval").as_ref());
}
