//! Java artifacts: YCSB's own classes, for the tests that regenerate their goldens with them, and
//! the Java drivers.

use std::path::PathBuf;
use std::process::Command;

use crate::Result;
use crate::children::Children;
use crate::maven::{self, Artifact};

const YCSB: Artifact = Artifact { group: "site.ycsb", name: "core", version: "0.17.0" };

/// Fetches `site.ycsb:core` with its dependencies, and returns their class path.
pub(crate) fn class_path(children: &Children) -> Result<String> {
    maven::class_path(children, &[YCSB])
}

/// The folders of the Java drivers' jars.
pub(crate) struct JavaDrivers {
    /// The driver that hosts YCSB's bindings.
    pub(crate) plain: PathBuf,
    pub(crate) hbase: PathBuf,
}

/// Builds the Java drivers.
pub(crate) fn java_drivers(children: &Children) -> Result<JavaDrivers> {
    let folder = package(children, "drivers")?;
    Ok(JavaDrivers { plain: folder.join("java/target"), hbase: folder.join("java/hbase/target") })
}

/// Builds the plain Java driver, and returns the folder of its jar.
pub(crate) fn java_driver(children: &Children) -> Result<PathBuf> {
    Ok(package(children, "drivers/java")?.join("target"))
}

/// Builds a folder's Maven project, and returns the folder.
fn package(children: &Children, folder: &str) -> Result<PathBuf> {
    let folder = crate::root().join(folder);
    let mut command = Command::new("mvn");
    command
        .args(["--quiet", "--batch-mode", "-Dstyle.color=never", "--file"])
        .arg(folder.join("pom.xml"))
        .arg("package");
    children.check(&mut command)?;
    Ok(folder)
}
