//! Features of the workspace: the stores of a build.

use crate::setup;

/// All stores, also those that the default build leaves out.
pub(crate) const FULL: &str = "serval/full";

/// The program without which one store cannot be built, and the store.
pub(crate) const PROTOC: (&str, &str) = ("protoc", "etcd");

/// Returns the features of all stores that can be built here, and the one that cannot.
pub(crate) fn features() -> (String, Option<&'static str>) {
    let (program, without) = PROTOC;
    if setup::find(program).is_some() {
        return (FULL.to_owned(), None);
    }
    (all_but(without, SERVAL), Some(without))
}

/// The manifest of `serval`.
const SERVAL: &str = include_str!("../../bench/serval/Cargo.toml");

/// The features that `full` turns on.
pub(crate) fn features_of_full() -> Vec<&'static str> {
    full(SERVAL).collect()
}

fn full(manifest: &str) -> impl Iterator<Item = &str> {
    let full = manifest.lines().find_map(|line| line.strip_prefix("full = ["));
    full.unwrap_or_default().trim_end_matches(']').split(", ").map(|name| name.trim_matches('"'))
}

/// Returns cargo's arguments for the shared and the static library. They are those of the tests'
/// build, since another profile or set of features would compile all dependencies again.
pub(crate) fn libraries(features: &str) -> [&str; 4] {
    ["--workspace", "--features", features, "--lib"]
}

/// The features of `full` in a manifest but one.
fn all_but(without: &str, manifest: &str) -> String {
    full(manifest)
        .filter(|name| *name != without)
        .map(|name| format!("serval/{name}"))
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_stores_but_one() {
        let manifest = "fjall = []\nfull = [\"cassandra\", \"etcd\", \"fjall\"]\n";
        assert_eq!(all_but("etcd", manifest), "serval/cassandra,serval/fjall");
        let ours = all_but(PROTOC.1, SERVAL);
        assert!(ours.contains("serval/cassandra,") && !ours.contains("etcd"), "{ours}");
    }
}
