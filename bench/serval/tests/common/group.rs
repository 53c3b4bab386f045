//! Agents and coordinating commands, started as a user would.

use super::program;
use rustix::process::{Pid, Signal, kill_process};
use serval_coordination::directory::Directory;
use serval_result::{document::ResultDocument, group::GroupResult};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

pub fn zookeeper() -> Option<String> {
    serval_conformance::variable("SERVAL_TEST_ZOOKEEPER")
}

pub fn root() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("serval-group-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A process whose output a test waits for.
pub struct LoggedProcess {
    pub child: Child,
    pub lines: mpsc::Receiver<String>,
    pub heard: Vec<String>,
}

impl LoggedProcess {
    pub fn start(command: &mut Command) -> LoggedProcess {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        LoggedProcess { child, lines, heard: Vec::new() }
    }

    /// Waits for a line that contains these words.
    #[track_caller]
    pub fn wait_for(&mut self, words: &str) {
        for line in &self.lines {
            let found = line.contains(words);
            self.heard.push(line);
            if found {
                return;
            }
        }
        panic!("ended without '{words}': {:#?}", self.heard);
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end. Returns the exit status and all output.
    pub fn end(mut self) -> (i32, Vec<String>) {
        self.heard.extend(self.lines.iter());
        (self.child.wait().unwrap().code().unwrap_or(-1), std::mem::take(&mut self.heard))
    }
}

impl Drop for LoggedProcess {
    /// A failing test leaves no process running.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn agents(cluster: &str, root: &str, count: usize) -> Vec<LoggedProcess> {
    let agent = |_| {
        agent_with(cluster, root, |command| {
            command.arg("--once");
        })
    };
    (0..count).map(agent).collect()
}

pub fn leader(folder: &Path, cluster: &str, root: &str, words: &str) -> Command {
    let mut command = program();
    command.current_dir(folder).args(words.split_whitespace());
    command.args(["--coordination", cluster, "-p", &format!("coordination.root={root}")]);
    command.stdout(Stdio::piped());
    command
}

pub fn document(folder: &Path) -> ResultDocument {
    serde_json::from_slice(&std::fs::read(folder.join("r/result.json")).unwrap()).unwrap()
}

pub fn group(document: &ResultDocument) -> &GroupResult {
    document.group.as_ref().expect("a group made it")
}

/// Waits until a node of the epoch exists (`0/entered`, `1/start`) and a number of clients are
/// registered under it.
pub fn wait_for_registered(cluster: &str, root: &str, place: &str, count: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = Directory::open(cluster, root, Duration::from_secs(6)).await.unwrap();
        let standing = async || {
            let leader = directory.leader("default").await.ok()??;
            directory.epoch("default", leader.epoch).standing(place).await.ok()?
        };
        while standing().await.is_none_or(|clients| clients.len() < count) {}
    });
}

/// Starts an agent with a modified command, and waits until it waits for work.
pub fn agent_with(cluster: &str, root: &str, more: impl FnOnce(&mut Command)) -> LoggedProcess {
    let mut command = program();
    command.args(["agent", "--join", cluster, "--root", root]).stdout(Stdio::null());
    more(&mut command);
    let mut agent = LoggedProcess::start(&mut command);
    agent.wait_for("waiting for work");
    agent
}
