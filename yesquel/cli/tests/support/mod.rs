//! A server in a process of its own.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    thread::{self, JoinHandle},
};

/// A running process; dropping this kills its whole group.
pub(crate) struct Process {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    /// Signalled when it is ready, or has closed its standard error.
    heard: Receiver<()>,
    listener: Option<JoinHandle<()>>,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Process {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let (said, (ready, heard)) = (Arc::<Mutex<Vec<String>>>::default(), channel());
        let errors = child.stderr.take().unwrap();
        let lines = Arc::clone(&said);
        let listener = thread::spawn(move || {
            listen(errors, &lines, || {
                // The receiver may be dropped.
                let _ = ready.send(());
            });
        });
        Process { child, said, heard, listener: Some(listener) }
    }

    /// Waits until the process reports that it is ready.
    #[track_caller]
    pub(crate) fn wait_until_ready(&self) {
        let ended = self.heard.recv().is_err();
        assert!(!ended, "the server ended: {}", self.said());
    }

    /// Returns its standard error so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().join("\n")
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let process = self.id();
        kill_process(process, signal).unwrap();
        if signal == Signal::STOP {
            // Until all its threads have stopped.
            waitpid(Some(process), WaitOptions::UNTRACED).unwrap();
        }
    }

    /// Waits until it and its children have exited.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        if let Some(listener) = self.listener.take() {
            listener.join().unwrap();
        }
        status
    }

    /// Shuts it down cleanly.
    #[track_caller]
    pub(crate) fn terminate(&mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.said());
    }
}

fn listen(errors: ChildStderr, said: &Mutex<Vec<String>>, mut ready: impl FnMut()) {
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        let is_ready = line.contains(" ready ");
        said.lock().unwrap().push(line);
        if is_ready {
            ready();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
