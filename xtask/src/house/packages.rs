//! The workspace's packages, as `cargo metadata` lists them.

use std::path::PathBuf;

use serde_json::Value;

use crate::Result;

/// A package of the workspace.
pub(super) struct Package {
    pub(super) name: String,
    /// The folder of its manifest.
    pub(super) folder: PathBuf,
    pub(super) targets: Vec<PackageTarget>,
    /// Names of the packages that it depends on, also for tests and builds only.
    pub(super) dependencies: Vec<String>,
}

/// A crate of a package.
pub(super) struct PackageTarget {
    /// The crate's name as source code spells it.
    pub(super) name: String,
    pub(super) kind: TargetKind,
    /// Its first source file.
    pub(super) source: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetKind {
    Library,
    Program,
    /// An example or a build script.
    Other,
    /// A test or a benchmark.
    Test,
}

/// The workspace's packages in order of their names, and its root folder.
pub(super) fn packages() -> Result<(PathBuf, Vec<Package>)> {
    let mut command = crate::cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let output = command.output().map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let document: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cannot read the output of cargo metadata: {error}"))?;
    parse(&document).ok_or_else(|| "the output of cargo metadata lacks a field".to_owned())
}

fn parse(document: &Value) -> Option<(PathBuf, Vec<Package>)> {
    let root = PathBuf::from(document["workspace_root"].as_str()?);
    let packages = document["packages"].as_array()?.iter().map(package);
    let mut packages = packages.collect::<Option<Vec<_>>>()?;
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Some((root, packages))
}

fn package(package: &Value) -> Option<Package> {
    let dependencies = package["dependencies"].as_array()?.iter();
    Some(Package {
        name: package["name"].as_str()?.to_owned(),
        folder: PathBuf::from(package["manifest_path"].as_str()?).parent()?.to_owned(),
        targets: package["targets"].as_array()?.iter().map(target).collect::<Option<_>>()?,
        dependencies: dependencies
            .map(|one| Some(one["name"].as_str()?.to_owned()))
            .collect::<Option<_>>()?,
    })
}

fn target(target: &Value) -> Option<PackageTarget> {
    let kind = match target["kind"][0].as_str()? {
        "bin" => TargetKind::Program,
        "example" | "custom-build" => TargetKind::Other,
        "test" | "bench" => TargetKind::Test,
        _ => TargetKind::Library,
    };
    Some(PackageTarget {
        name: target["name"].as_str()?.replace('-', "_"),
        kind,
        source: PathBuf::from(target["src_path"].as_str()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_targets_are_told_apart() {
        let document = serde_json::json!({
            "workspace_root": "/w",
            "packages": [{
                "name": "some-package",
                "manifest_path": "/w/some/Cargo.toml",
                "dependencies": [{"name": "serde"}],
                "targets": [
                    {"name": "some-package", "kind": ["cdylib"], "src_path": "/w/some/src/lib.rs"},
                    {"name": "program", "kind": ["bin"], "src_path": "/w/some/src/main.rs"},
                    {"name": "all", "kind": ["test"], "src_path": "/w/some/tests/all.rs"},
                    {"name": "build-script-build", "kind": ["custom-build"], "src_path": "/w/some/build.rs"},
                ],
            }],
        });
        let (root, packages) = parse(&document).expect("all fields");
        assert_eq!(root, PathBuf::from("/w"));
        assert_eq!(packages[0].folder, PathBuf::from("/w/some"));
        assert_eq!(packages[0].dependencies, ["serde"]);
        assert_eq!(packages[0].targets[0].name, "some_package");
        let kinds: Vec<TargetKind> = packages[0].targets.iter().map(|target| target.kind).collect();
        assert_eq!(kinds, [TargetKind::Library, TargetKind::Program, TargetKind::Test, TargetKind::Other]);
    }
}
