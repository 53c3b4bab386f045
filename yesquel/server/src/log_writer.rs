//! The thread that writes the log, lets out the replies that waited for it, and
//! makes checkpoints.

use crate::{
    options::{Durability, Options},
    state::{PendingRecords, SharedState},
};
use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, TryRecvError},
    },
    thread,
    time::Duration,
};
use yesquel_log::{LogError, Writer, checkpoint, disk::Folder};

/// The thread that writes the log.
pub(crate) struct LogWriter {
    pub(crate) shared: Arc<SharedState>,
    pub(crate) writer: Writer<Folder>,
    pub(crate) disk: Folder,
    pub(crate) options: Options,
    /// Bytes of log since the last checkpoint.
    pub(crate) bytes_since_checkpoint: u64,
    /// Bytes of the last checkpoint, if there is one.
    pub(crate) last_checkpoint_bytes: u64,
    /// Where it is said how the one went that is being written.
    pub(crate) checkpoint: Option<Receiver<WrittenCheckpoint>>,
}

/// The last record of a checkpoint and its bytes, or why there is none.
type WrittenCheckpoint = Result<(u64, u64), LogError>;

impl LogWriter {
    pub(crate) fn run(mut self) {
        let mut pending_records = PendingRecords::default();
        loop {
            let ending = self.wait(&mut pending_records);
            let before = self.writer.next_lsn() - 1;
            let written = self.writer.append(&pending_records.log, &pending_records.ends);
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
                self.shared.fail(error.to_string(), reached, &pending_records);
                self.shared.released();
                // The folder is somebody else's then.
                let _ = self.checkpoint.take().map(|said| said.recv());
                return;
            }
            self.bytes_since_checkpoint += pending_records.log.len() as u64;
            self.shared.release(self.writer.synced_lsn(), self.writer.bytes());
            self.shared.released();
            match self.checkpoint.as_ref().map(Receiver::try_recv) {
                None | Some(Err(TryRecvError::Empty)) => {}
                Some(written) => self.end_checkpoint(written.ok()),
            }
            if self.bytes_since_checkpoint >= self.checkpoint_after() && self.checkpoint.is_none() {
                self.begin_checkpoint();
            }
            if ending {
                let written = self.checkpoint.as_ref().map(Receiver::recv);
                self.end_checkpoint(written.and_then(Result::ok));
                if let Err(error) = self.writer.end() {
                    tracing::error!(%error, "the log was not ended in order");
                }
                return;
            }
            if let Durability::Interval(ms) = self.options.durability {
                self.pause(Duration::from_millis(ms));
            }
        }
    }

    /// Waits for records, or for a checkpoint's end; whether these are the last.
    fn wait(&self, pending_records: &mut PendingRecords) -> bool {
        pending_records.log.clear();
        pending_records.ends.clear();
        self.shared.written.wait();
        let mut state = self.shared.lock();
        std::mem::swap(&mut state.pending_records, pending_records);
        state.ending
    }

    /// Lets records gather for so long, or until the end.
    fn pause(&self, interval: Duration) {
        // What it brings is looked at by the next wait.
        self.shared.ended.wait_for(interval);
    }

    /// Bytes of log after which a checkpoint is made: it has all that there is, and
    /// of much that should not be written anew for each bit that is added. So
    /// checkpoints are at most twice what the log is, and what a restart reads of the
    /// log at most half of what it reads anyway.
    fn checkpoint_after(&self) -> u64 {
        self.options.checkpoint_bytes.max(self.last_checkpoint_bytes / 2)
    }

    /// Has a checkpoint written while the log goes on.
    fn begin_checkpoint(&mut self) {
        self.bytes_since_checkpoint = 0;
        // Under the lock a look at each node, and no more.
        let mut state = self.shared.lock().engine.checkpoint();
        let (disk, lsn) = (self.disk.clone(), state.lsn());
        let (say, said) = mpsc::channel();
        let shared = Arc::clone(&self.shared);
        let write = move || {
            let written = checkpoint::write(&disk, lsn, |take| state.write(take)).map(|bytes| (lsn, bytes));
            // What only it had is let go of before anybody hears of it.
            drop(state);
            // Somebody hears it: he is waited for at the end.
            let _ = say.send(written);
            shared.written.wake();
        };
        match thread::Builder::new().name("yesquel-checkpoint".to_owned()).spawn(write) {
            Ok(_) => self.checkpoint = Some(said),
            Err(error) => tracing::error!(%error, "no thread for a checkpoint"),
        }
    }

    /// Lets go of the log that a checkpoint stands for.
    fn end_checkpoint(&mut self, written: Option<WrittenCheckpoint>) {
        self.checkpoint = None;
        let Some(written) = written else { return };
        if let Ok((lsn, bytes)) = written {
            self.last_checkpoint_bytes = bytes;
            self.shared.tell_checkpoint(lsn, bytes);
        }
        // What is in it may be ahead of the log, which must hold what follows.
        let forgotten =
            written.and_then(|(lsn, _)| self.writer.forget_up_to(lsn.min(self.writer.synced_lsn())));
        self.shared.release(self.writer.synced_lsn(), self.writer.bytes());
        // The log is whole without it; the next one may go better.
        if let Err(error) = forgotten {
            tracing::error!(%error, "no checkpoint could be made");
        }
    }
}
