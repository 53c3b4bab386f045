//! The sources of SQLite's tests, from Debian's source package of SQLite.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::children::Children;
use crate::debian;
use crate::setup::Missing;
use crate::tcl::failed;

/// The version nearest to the bundled SQLite.
const VERSION: &str = "3.53.4";
const SUITE: &str = "sid";
const SHA256: &str = "05366adc8ee80c6b1faa71285b49d133c2121238ca58934b077fdeb95934abd4";

/// Returns SQLite's source tree below `folder`; fetches it if it is missing.
pub(crate) fn provide(children: &Children, folder: &Path, missing: Missing) -> Result<PathBuf> {
    let tree = folder.join(format!("sqlite3-{VERSION}"));
    if tree.join("main.mk").is_file() {
        return Ok(tree);
    }
    let archive = folder.join(format!("sqlite3_{VERSION}.orig.tar.xz"));
    if !archive.is_file() {
        if missing == Missing::Report {
            return Err(format!("no {}", archive.display()));
        }
        debian::archive(children, folder, ("sqlite3", VERSION), Some(SUITE))?;
    }
    let sum = output(children, Command::new("sha256sum").arg(&archive))?;
    if sum.split_whitespace().next() != Some(SHA256) {
        return Err(format!("{}: its SHA-256 is not {SHA256}", archive.display()));
    }
    // Under another name until it is complete.
    let whole = folder.join("unpacked");
    let _ = fs::remove_dir_all(&whole);
    fs::create_dir_all(&whole).map_err(failed(&whole))?;
    children.check(Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(&whole))?;
    fs::rename(whole.join(format!("sqlite3-{VERSION}")), &tree).map_err(failed(&tree))?;
    Ok(tree)
}

/// Returns the output of a command.
fn output(children: &Children, command: &mut Command) -> Result<String> {
    crate::tcl::printed(children, command.stdout(Stdio::piped()))
}
