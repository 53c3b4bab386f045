//! The program as a user runs it, and SQLite's own shell.

#![allow(dead_code, reason = "each test file uses another part of it")]

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_yesquel");

/// Working folder of the program.
pub(crate) struct Place(tempfile::TempDir);

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) printed: String,
    pub(crate) said: String,
}

impl Ended {
    fn new(output: Output) -> Ended {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let status = output.status.code().unwrap_or(-1);
        Ended { status, printed: text(&output.stdout), said: text(&output.stderr) }
    }
}

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    /// Writes a certificate of this machine, `ca.pem`, and its key, `key.pem`.
    pub(crate) fn certify(&self) {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        fs::write(self.path("ca.pem"), made.cert.pem()).unwrap();
        fs::write(self.path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Names of the files in the folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.0.path());
        command
    }

    /// Runs the program with this standard input.
    pub(crate) fn runs_with(&self, arguments: &[&str], input: &str) -> Ended {
        fed(&mut self.program(arguments), input)
    }

    pub(crate) fn runs(&self, arguments: &[&str]) -> Ended {
        self.runs_with(arguments, "")
    }

    /// Returns the output of a successful run.
    #[track_caller]
    pub(crate) fn prints(&self, arguments: &[&str]) -> String {
        let ended = self.runs(arguments);
        assert_eq!((ended.status, ended.said.as_str()), (0, ""), "{arguments:?}");
        ended.printed
    }

    /// Returns the status and message of a failed run.
    #[track_caller]
    pub(crate) fn fails(&self, arguments: &[&str]) -> (i32, String) {
        let ended = self.runs(arguments);
        assert!(ended.status != 0 && !ended.said.is_empty(), "{arguments:?}: {ended:?}");
        (ended.status, ended.said)
    }

    /// Returns the result of SQLite's own shell for the same input; `None` if it is not installed.
    pub(crate) fn sqlite3(&self, arguments: &[&str], input: &str) -> Option<Ended> {
        let mut command = Command::new("sqlite3");
        if command.arg("--version").output().is_err() {
            eprintln!("SKIPPED: there is no sqlite3 to compare with");
            return None;
        }
        Some(fed(Command::new("sqlite3").args(arguments).current_dir(self.0.path()), input))
    }
}

fn fed(command: &mut Command, input: &str) -> Ended {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // The program may end before it has read everything.
        scope.spawn(move || drop(to.write_all(input.as_bytes())));
        Ended::new(child.wait_with_output().unwrap())
    })
}
