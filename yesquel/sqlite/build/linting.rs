//! Whether Cargo runs Clippy, which links nothing.

use std::{env, path::PathBuf};

/// Returns whether Cargo runs Clippy. Its wrapper counts as another compiler, so that Cargo then runs
/// the build scripts of the workspace once more; to compile SQLite takes more time than all lints.
pub(crate) fn is_linting() -> bool {
    let wrapper = env::var_os("RUSTC_WORKSPACE_WRAPPER").map(PathBuf::from);
    wrapper.is_some_and(|wrapper| wrapper.file_stem().is_some_and(|name| name == "clippy-driver"))
}
