//! What Maven brings: YCSB's own classes, for the tests that regenerate their
//! goldens with them, and the Java driver.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::Result;
use crate::children::Children;

const YCSB_VERSION: &str = "0.17.0";

/// Named in full, so that Maven need not ask a repository for the newest.
const CLASSPATH_GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath";

/// Fetches `site.ycsb:core` and what it needs, and returns their class path.
pub(crate) fn class_path(children: &Children) -> Result<String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let pom = folder.path().join("pom.xml");
    let output = folder.path().join("classpath");
    fs::write(&pom, pom_text()).map_err(|error| format!("{}: {error}", pom.display()))?;
    let mut command = Command::new("mvn");
    command
        .args(["--quiet", "--batch-mode", "-Dstyle.color=never", "--file"])
        .arg(&pom)
        .arg(CLASSPATH_GOAL)
        .arg(format!("-Dmdep.outputFile={}", output.display()));
    children.check(&mut command)?;
    let text = fs::read_to_string(&output).map_err(|error| format!("{}: {error}", output.display()))?;
    Ok(text.trim().to_owned())
}

/// Builds the Java driver, and returns the folder of its jar.
pub(crate) fn java_driver(children: &Children) -> Result<PathBuf> {
    let folder = crate::root().join("drivers/java");
    let mut command = Command::new("mvn");
    command
        .args(["--quiet", "--batch-mode", "-Dstyle.color=never", "--file"])
        .arg(folder.join("pom.xml"))
        .arg("package");
    children.check(&mut command)?;
    Ok(folder.join("target"))
}

fn pom_text() -> String {
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n\
           <modelVersion>4.0.0</modelVersion>\n\
           <groupId>serval</groupId>\n\
           <artifactId>goldens</artifactId>\n\
           <version>1</version>\n\
           <packaging>pom</packaging>\n\
           <dependencies>\n\
             <dependency>\n\
               <groupId>site.ycsb</groupId>\n\
               <artifactId>core</artifactId>\n\
               <version>{YCSB_VERSION}</version>\n\
             </dependency>\n\
           </dependencies>\n\
         </project>\n"
    )
}
