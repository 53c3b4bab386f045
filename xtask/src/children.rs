//! Processes that never outlive the task that started them.
//!
//! Each child leads a process group of its own and is known to [`Children`]
//! until it is reaped. Whatever ends the task ends the group:
//!
//! | end | by |
//! |---|---|
//! | success, failure, panic | dropping [`Running`] |
//! | first Ctrl-C, SIGTERM, SIGHUP | the signal thread: SIGTERM to all groups; the task then unwinds as after a failure |
//! | further signals | the signal thread: SIGKILL to all groups |
//!
//! No signal ends this process directly: one interruption often arrives as two signals (`timeout`
//! signals its child and then the group), and the task has files to remove. The task ends soon, as
//! all its children are dead.
//!
//! The system may reuse a process id once its owner is reaped. So a group is signalled only under
//! the lock, and a child is reaped only after it has been taken off the list under the same lock.

use std::io::Read;
use std::iter;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use wait4::{ResUse, Wait4};

use crate::Result;

/// The running children, shared by their starters and the signal thread.
#[derive(Clone, Default)]
pub(crate) struct Children {
    state: Arc<Mutex<ChildGroups>>,
}

#[derive(Default)]
struct ChildGroups {
    /// Groups whose leader is not reaped yet.
    groups: Vec<Pid>,
    /// The first signal that asked this process to end.
    interrupted: Option<i32>,
}

impl ChildGroups {
    fn signal_all(&self, signal: Signal) {
        for &group in &self.groups {
            // Ignore the error: the group may have ended just now, and children of another user
            // (sudo) must end by themselves.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Children {
    /// A list of children whose groups end when a signal asks this process to.
    pub(crate) fn stopped_by_signals() -> Result<Self> {
        let children = Self::default();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| format!("cannot watch for signals: {error}"))?;
        let watched = children.clone();
        thread::spawn(move || {
            for signal in signals.forever() {
                let mut state = watched.lock();
                let first = state.interrupted.is_none();
                state.interrupted.get_or_insert(signal);
                state.signal_all(if first { Signal::TERM } else { Signal::KILL });
            }
        });
        Ok(children)
    }

    /// The signal that asked this process to end, if any. No child can be started after it.
    pub(crate) fn interrupted(&self) -> Option<i32> {
        self.lock().interrupted
    }

    /// Starts a command as a group of its own, without standard input.
    ///
    /// No input because a group in the background is stopped by the terminal
    /// when it reads from it.
    pub(crate) fn start(&self, command: &mut Command) -> Result<Running> {
        command.process_group(0).stdin(Stdio::null());
        // Hold the lock during the start, so that no signal arrives before the child is in the
        // list.
        let mut state = self.lock();
        if state.interrupted.is_some() {
            return Err("interrupted".to_owned());
        }
        let child = command.spawn().map_err(|error| format!("cannot start `{}`: {error}", line(command)))?;
        let group = Pid::from_child(&child);
        state.groups.push(group);
        Ok(Running { child: Some(child), group, children: self.clone() })
    }

    /// Runs a command to its end with inherited output.
    pub(crate) fn run(&self, command: &mut Command) -> Result<ExitStatus> {
        Ok(self.start(command)?.wait()?.status)
    }

    /// Runs a command to its end; anything but success is an error.
    pub(crate) fn check(&self, command: &mut Command) -> Result<()> {
        let status = self.run(command)?;
        if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", line(command))) }
    }

    /// Returns the output of a command; anything but success is an error.
    pub(crate) fn printed(&self, command: &mut Command) -> Result<String> {
        let mut running = self.start(command.stdout(Stdio::piped()))?;
        let mut printed = String::new();
        if let Some(mut stdout) = running.child().and_then(|child| child.stdout.take()) {
            stdout
                .read_to_string(&mut printed)
                .map_err(|error| format!("cannot hear `{}`: {error}", line(command)))?;
        }
        let status = running.wait()?.status;
        if status.success() { Ok(printed) } else { Err(format!("`{}` failed: {status}", line(command))) }
    }

    fn lock(&self) -> MutexGuard<'_, ChildGroups> {
        // The list is consistent between any two statements, so a poisoned lock is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running child; dropping it kills its whole group.
pub(crate) struct Running {
    /// `None` once reaped.
    child: Option<Child>,
    group: Pid,
    children: Children,
}

impl Running {
    /// The id of the child's process and of its group.
    pub(crate) fn pid(&self) -> u32 {
        self.group.as_raw_pid().unsigned_abs()
    }

    /// The child itself, for its pipes.
    pub(crate) fn child(&mut self) -> Option<&mut Child> {
        self.child.as_mut()
    }

    /// Whether a signal has asked this process to end.
    pub(crate) fn interrupted(&self) -> bool {
        self.children.interrupted().is_some()
    }

    /// Whether the child has ended; does not reap it.
    pub(crate) fn ended(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        self.wait_id(options)
    }

    /// Waits until the child has ended; does not reap it.
    pub(crate) fn wait_for_end(&self) -> Result<()> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        self.wait_id(options).map(|_ended| ())
    }

    /// Waits for the child's end, kills the rest of its group, and reaps it.
    pub(crate) fn wait(mut self) -> Result<ResUse> {
        self.wait_for_end()?;
        let Some(child) = self.unlist() else {
            return Err(format!("process {} was reaped before", self.pid()));
        };
        child.wait4().map_err(|error| format!("cannot wait for process {}: {error}", self.pid()))
    }

    fn wait_id(&self, options: WaitIdOptions) -> Result<bool> {
        loop {
            match waitid(WaitId::Pid(self.group), options) {
                Ok(status) => return Ok(status.is_some()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(format!("cannot wait for process {}: {error}", self.pid()));
                }
            }
        }
    }

    /// Kills the group and takes it off the list; the caller reaps the child.
    fn unlist(&mut self) -> Option<Child> {
        let child = self.child.take()?;
        let mut state = self.children.lock();
        let _ = kill_process_group(self.group, Signal::KILL);
        state.groups.retain(|&group| group != self.group);
        Some(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.unlist() {
            let _ = child.wait();
        }
    }
}

/// A command as a user would type it, for messages: the program without its folder.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    iter::once(name)
        .chain(command.get_args())
        .map(|word| crate::shell_quoted(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    /// A shell with a child that prints both process ids.
    fn shell_with_child(children: &Children) -> (Running, Vec<String>) {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $$ $!; wait"]);
        let mut running = children.start(command.stdout(Stdio::piped())).unwrap();
        let stdout = running.child().unwrap().stdout.take().unwrap();
        let mut ids = String::new();
        BufReader::new(stdout).read_line(&mut ids).unwrap();
        (running, ids.split_whitespace().map(str::to_owned).collect())
    }

    /// Whether the process has ended, reaped or not.
    fn has_ended(id: &str) -> bool {
        match std::fs::read_to_string(format!("/proc/{id}/stat")) {
            Ok(stat) => stat.rsplit(") ").next().unwrap().starts_with(['Z', 'X']),
            Err(_gone) => true,
        }
    }

    fn await_end(id: &str) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !has_ended(id) {
            assert!(std::time::Instant::now() < deadline, "process {id} lives on");
            thread::yield_now();
        }
    }

    #[test]
    fn dropping_ends_the_whole_group() {
        let children = Children::default();
        let (running, ids) = shell_with_child(&children);
        drop(running);
        ids.iter().for_each(|id| await_end(id));
        assert!(children.lock().groups.is_empty());
    }

    #[test]
    fn a_panic_ends_the_whole_group() {
        let children = Children::default();
        let (running, ids) = shell_with_child(&children);
        let panicked = thread::spawn(move || {
            let _running = running;
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        ids.iter().for_each(|id| await_end(id));
    }

    #[test]
    fn what_a_child_leaves_behind_ends_with_it() {
        let children = Children::default();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 >&- & echo $!"]);
        let mut running = children.start(command.stdout(Stdio::piped())).unwrap();
        let stdout = running.child().unwrap().stdout.take().unwrap();
        let mut id = String::new();
        BufReader::new(stdout).read_line(&mut id).unwrap();
        assert!(running.wait().unwrap().status.success());
        await_end(id.trim());
    }

    #[test]
    fn nothing_starts_after_an_interrupt() {
        let children = Children::default();
        children.lock().interrupted = Some(SIGINT);
        assert_eq!(children.run(&mut Command::new("true")), Err("interrupted".to_owned()));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Children::default().check(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.starts_with("cannot start `no-such-program`:"), "{error}");
    }
}
