//! sqllogictest scripts on stock SQLite, and on trees in memory, in a folder and at a server.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use sqllogictest::Runner;
use std::{fs, path::PathBuf};
use yesquel_differential::{
    engine::SqlEngine,
    logic::{Logic, drawn},
    place::{Places, ScriptTrees},
};

/// Engines and locations.
const ALL: [(SqlEngine, ScriptTrees); 6] = [
    (SqlEngine::Stock, ScriptTrees::Memory),
    (SqlEngine::Ours, ScriptTrees::Plain),
    (SqlEngine::Ours, ScriptTrees::Memory),
    (SqlEngine::Ours, ScriptTrees::Folder),
    (SqlEngine::Ours, ScriptTrees::Served),
    (SqlEngine::Ours, ScriptTrees::Cluster),
];

fn run(name: &str, script: &str, (engine, place): (SqlEngine, ScriptTrees)) {
    let places = Places::new(place);
    let mut runner = Runner::new(|| async { Logic::open(engine, &places) });
    if let Err(error) = runner.run_script_with_name(script, name) {
        panic!("{engine:?}, {place:?}: {}", error.display(false));
    }
}

#[test]
fn scripts_give_the_same_results_on_all_engines() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut count = 0;
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "slt")) {
        let script = fs::read_to_string(file).unwrap();
        for all in ALL {
            run(&file.file_name().unwrap().to_string_lossy(), &script, all);
        }
        count += 1;
    }
    assert!(count > 20, "only {count} scripts were found");
}

/// Long random scripts with the results of stock SQLite. To locate a failure, use the `random`
/// test, which shortens its scripts.
#[test]
fn generated_scripts_give_the_same_results_on_all_engines() {
    yesquel_seeds::check_seeds(10, |seed| {
        // Seeds that `random` does not use.
        let script = drawn((1 << 40) + seed, 500).unwrap();
        for all in ALL {
            run(&format!("drawn {seed}"), &script, all);
        }
    });
}
