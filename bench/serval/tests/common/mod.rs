//! Runs the program as a user does.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses a part; a failed unwrap fails the test"
)]

pub mod group;
pub mod late;
pub mod process;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran {
            status: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Asserts the exit status; a failure shows the whole output.
    #[track_caller]
    pub fn expect(self, status: i32) -> Ran {
        assert_eq!(self.status, status, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Returns the value of a `[METRIC], name, value` line.
    #[track_caller]
    pub fn value(&self, start: &str) -> f64 {
        let line = self.stdout.lines().find_map(|line| line.strip_prefix(start));
        line.unwrap_or_else(|| panic!("no '{start}' in\n{}", self.stdout)).trim().parse().unwrap()
    }
}

/// Returns how often a metric ended with a status, by the result folder, which also has Serval's own
/// metrics.
#[track_caller]
pub fn counted(result: &Path, metric: &str, status: &str) -> u64 {
    let document = serval_report::json::read_file(&result.join("result.json")).unwrap();
    let found = document.metrics.iter().find(|line| line.name == metric);
    found.and_then(|line| line.statuses.get(status).copied()).unwrap_or(0)
}

pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serval"));
    command.env_remove("NO_COLOR");
    command
}

/// Runs the program in a folder, with arguments separated by spaces.
pub fn serval(folder: &Path, words: &str) -> Ran {
    let mut command = program();
    command.current_dir(folder).args(words.split_whitespace());
    Ran::of(command.output().unwrap())
}

/// Returns the path of a ready-made workload file.
pub fn workload(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads").join(name);
    path.canonicalize().unwrap().display().to_string()
}

pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Returns the names in a folder, hidden ones included.
pub fn entries(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

pub fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}
