//! A server as a process of its own.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{Receiver, channel},
    },
    thread,
};

/// A running process, of which everything is gone when this is dropped.
pub(crate) struct Process {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    is_ready: Arc<AtomicBool>,
    /// Hears when it is ready, or has closed its standard error.
    heard: Receiver<()>,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Process {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let (said, is_ready) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let (ready, heard) = channel();
        let errors = child.stderr.take().unwrap();
        let (lines, readiness) = (Arc::clone(&said), Arc::clone(&is_ready));
        thread::spawn(move || {
            listen(errors, &lines, || {
                readiness.store(true, SeqCst);
                // Nobody may wait for it any more.
                let _ = ready.send(());
            });
        });
        Process { child, said, is_ready, heard }
    }

    /// Waits until it says that it is ready.
    #[track_caller]
    pub(crate) fn wait_until_ready(&self) {
        let ended = self.heard.recv().is_err();
        assert!(!ended, "the server ended: {}", self.said());
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(SeqCst)
    }

    /// All that it has said so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().join("\n")
    }

    /// By SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until there is nothing left of it.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
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
        // It may be gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
