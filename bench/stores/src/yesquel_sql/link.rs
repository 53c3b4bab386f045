//! Links Yesquel's SQLite, the only one of the process.

/// Returns whether the SQLite of this program is Yesquel's, which also opens
/// plain files. Each store that uses SQLite calls this: the linker leaves out
/// what nothing calls, and would take the SQLite of `libsqlite3-sys` instead.
pub(crate) fn is_linked() -> bool {
    yesquel_sqlite::is_linked()
}
