//! What Maven brings: YCSB's own classes, for the tests that regenerate their
//! goldens with them, and the Java driver.

use std::path::PathBuf;
use std::process::Command;

use crate::Result;
use crate::children::Children;
use crate::maven::{self, Artifact};

const YCSB: Artifact = Artifact { group: "site.ycsb", name: "core", version: "0.17.0" };

/// Fetches `site.ycsb:core` and what it needs, and returns their class path.
pub(crate) fn class_path(children: &Children) -> Result<String> {
    maven::class_path(children, &YCSB)
}

/// Builds the Java drivers, and returns the folder of the plain one's jar.
pub(crate) fn java_driver(children: &Children) -> Result<PathBuf> {
    let folder = crate::root().join("drivers");
    let mut command = Command::new("mvn");
    command
        .args(["--quiet", "--batch-mode", "-Dstyle.color=never", "--file"])
        .arg(folder.join("pom.xml"))
        .arg("package");
    children.check(&mut command)?;
    Ok(folder.join("java/target"))
}
