//! The thread that writes the log, lets out the replies that waited for it, and
//! makes checkpoints.

use crate::{
    core::{Gathered, Shared},
    options::{Durability, Options},
};
use std::{
    sync::{Arc, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};
use yesquel_log::{LogError, Writer, checkpoint, disk::Folder};

/// The thread that writes the log.
pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) writer: Writer<Folder>,
    pub(crate) disk: Folder,
    pub(crate) options: Options,
    /// Bytes of log since the last checkpoint.
    pub(crate) grown: u64,
    /// Who writes one.
    pub(crate) checkpoint: Option<JoinHandle<Result<u64, LogError>>>,
}

impl Keeper {
    pub(crate) fn run(mut self) {
        let mut gathered = Gathered::default();
        loop {
            let ending = self.wait(&mut gathered);
            let before = self.writer.next_lsn() - 1;
            let written = self.writer.append(&gathered.log, &gathered.ends);
            let written = written.and_then(|()| match self.options.durability {
                Durability::None if !ending => Ok(()),
                _ => self.writer.sync(),
            });
            if let Err(error) = written {
                tracing::error!(%error, "the disk has failed: reads go on, and nothing is written until the server is started anew");
                // Without syncs what was written counts.
                let reached = match self.options.durability {
                    Durability::None => before,
                    _ => self.writer.synced_lsn(),
                };
                self.shared.fail(error.to_string(), reached, &gathered);
                self.shared.released();
                return;
            }
            self.grown += gathered.log.len() as u64;
            self.shared.release(self.writer.synced_lsn());
            self.shared.released();
            if self.checkpoint.as_ref().is_some_and(JoinHandle::is_finished) {
                self.end_checkpoint();
            }
            if self.grown >= self.options.checkpoint_bytes && self.checkpoint.is_none() {
                self.begin_checkpoint();
            }
            if ending {
                self.end_checkpoint();
                if let Err(error) = self.writer.close() {
                    tracing::error!(%error, "the log was not closed");
                }
                return;
            }
            if let Durability::Interval(ms) = self.options.durability {
                self.pause(Duration::from_millis(ms));
            }
        }
    }

    /// Waits for records; whether these are the last.
    fn wait(&self, gathered: &mut Gathered) -> bool {
        gathered.log.clear();
        gathered.ends.clear();
        let mut inner = self.shared.lock();
        while inner.gathered.ends.is_empty() && !inner.ending {
            inner = self.shared.written.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut inner.gathered, gathered);
        inner.ending
    }

    /// Lets records gather for so long, or until the end.
    fn pause(&self, interval: Duration) {
        let inner = self.shared.lock();
        // What it brings is looked at by the next wait.
        drop(self.shared.ended.wait_timeout_while(inner, interval, |inner| !inner.ending));
    }

    /// Has a checkpoint written while the log goes on.
    fn begin_checkpoint(&mut self) {
        self.grown = 0;
        // Under the lock a look at each node, and no more.
        let mut state = self.shared.lock().engine.checkpoint();
        let (disk, lsn) = (self.disk.clone(), state.lsn());
        let write = move || checkpoint::write(&disk, lsn, |take| state.write(take)).map(|()| lsn);
        match thread::Builder::new().name("yesquel-checkpoint".to_owned()).spawn(write) {
            Ok(thread) => self.checkpoint = Some(thread),
            Err(error) => tracing::error!(%error, "no thread for a checkpoint"),
        }
    }

    /// Lets go of the log that a checkpoint stands for.
    fn end_checkpoint(&mut self) {
        let Some(Ok(written)) = self.checkpoint.take().map(JoinHandle::join) else { return };
        // What is in it may be ahead of the log, which must hold what follows.
        let forgotten = written.and_then(|lsn| self.writer.forget_up_to(lsn.min(self.writer.synced_lsn())));
        // The log is whole without it; the next one may go better.
        if let Err(error) = forgotten {
            tracing::error!(%error, "no checkpoint could be made");
        }
    }
}
