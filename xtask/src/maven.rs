//! Class paths from Maven.

use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::Result;
use crate::children::Children;

/// Named in full, so that Maven need not ask a repository for the newest.
const CLASSPATH_GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath";

/// An artifact in a Maven repository.
pub(crate) struct Artifact {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

/// Cache of class paths by project: Maven takes seconds to compute one.
static KNOWN: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Fetches artifacts with their runtime dependencies, and returns their class path.
pub(crate) fn class_path(children: &Children, artifacts: &[Artifact]) -> Result<String> {
    let project = pom_text(artifacts);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = known.iter().find(|(other, _)| *other == project) {
        return Ok(found.clone());
    }
    let found = asked(children, &project)?;
    known.push((project, found.clone()));
    Ok(found)
}

fn asked(children: &Children, project: &str) -> Result<String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let pom = folder.path().join("pom.xml");
    let output = folder.path().join("classpath");
    fs::write(&pom, project).map_err(|error| format!("{}: {error}", pom.display()))?;
    let mut command = Command::new("mvn");
    command
        .args(["--quiet", "--batch-mode", "-Dstyle.color=never", "--file"])
        .arg(&pom)
        .arg(CLASSPATH_GOAL)
        .arg("-DincludeScope=runtime")
        .arg(format!("-Dmdep.outputFile={}", output.display()));
    children.check(&mut command)?;
    let text = fs::read_to_string(&output).map_err(|error| format!("{}: {error}", output.display()))?;
    Ok(text.trim().to_owned())
}

fn pom_text(artifacts: &[Artifact]) -> String {
    let dependency = |Artifact { group, name, version }: &Artifact| {
        format!(
            "    <dependency>\n\
                   <groupId>{group}</groupId>\n\
                   <artifactId>{name}</artifactId>\n\
                   <version>{version}</version>\n\
                 </dependency>\n"
        )
    };
    let dependencies: String = artifacts.iter().map(dependency).collect();
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n\
           <modelVersion>4.0.0</modelVersion>\n\
           <groupId>serval</groupId>\n\
           <artifactId>class-path</artifactId>\n\
           <version>1</version>\n\
           <packaging>pom</packaging>\n\
           <dependencies>\n\
             {dependencies}\
           </dependencies>\n\
         </project>\n"
    )
}
