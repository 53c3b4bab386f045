//! Thread that writes the log, releases the replies that wait for it, and makes checkpoints.

use crate::{
    options::{Durability, LogOptions},
    state::{PendingRecords, SharedState, SyncWanted},
};
use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};
use yesquel_log::{LogError, SegmentWriter, checkpoint, disk::Folder};

/// The longest time that a decision waits for a sync, under every durability.
const SYNC_WITHIN: Duration = Duration::from_secs(1);

/// Thread that writes the log.
pub(crate) struct LogWriter {
    pub(crate) shared: Arc<SharedState>,
    pub(crate) writer: SegmentWriter<Folder>,
    pub(crate) disk: Folder,
    pub(crate) options: LogOptions,
    /// When the log must be synced, although the durability does not need it.
    pub(crate) sync_by: Option<Instant>,
    /// Bytes of log since the last checkpoint.
    pub(crate) bytes_since_checkpoint: u64,
    /// Bytes of the last checkpoint; 0 if there is none.
    pub(crate) last_checkpoint_bytes: u64,
    /// Receives the result of the checkpoint that is being written.
    pub(crate) checkpoint: Option<Receiver<WrittenCheckpoint>>,
}

/// Last record of a checkpoint, and its bytes.
type WrittenCheckpoint = Result<(u64, u64), LogError>;

impl LogWriter {
    pub(crate) fn run(mut self) {
        let mut pending_records = PendingRecords::default();
        loop {
            let ending = self.wait(&mut pending_records);
            let before = self.writer.next_lsn() - 1;
            let written = self.writer.append(&pending_records.log, &pending_records.ends);
            let written = written.and_then(|()| match self.options.durability {
                Durability::None if !ending && !self.is_sync_due() => Ok(()),
                _ => {
                    self.sync_by = None;
                    self.writer.sync()
                }
            });
            if let Err(error) = written {
                tracing::error!(%error, "the disk has failed: reads go on, and nothing is written until the server is started anew");
                // Without syncs, written records count as durable.
                let reached = match self.options.durability {
                    Durability::None => before,
                    _ => self.writer.synced_lsn(),
                };
                self.shared.fail(error.to_string(), reached, &pending_records);
                self.shared.released();
                // Finish before the folder is unlocked.
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

    /// Waits for records or the end of a checkpoint. Returns whether these are the last records.
    fn wait(&mut self, pending_records: &mut PendingRecords) -> bool {
        pending_records.log.clear();
        pending_records.ends.clear();
        match self.sync_by {
            Some(end) => drop(self.shared.written.wait_until(end)),
            None => self.shared.written.wait(),
        }
        let mut state = self.shared.lock();
        std::mem::swap(&mut state.pending_records, pending_records);
        match state.sync_wanted.take() {
            Some(SyncWanted::Now) => self.sync_by = Some(Instant::now()),
            Some(SyncWanted::WithinASecond) => {
                self.sync_by.get_or_insert_with(|| Instant::now() + SYNC_WITHIN);
            }
            None => {}
        }
        state.ending
    }

    /// Whether a reply waits for a sync that must not wait any longer.
    fn is_sync_due(&self) -> bool {
        self.sync_by.is_some_and(|by| by <= Instant::now())
    }

    /// Lets records accumulate for `interval`, or until the server stops or a reply wants a sync.
    fn pause(&self, interval: Duration) {
        let end = Instant::now() + interval;
        // The next `wait` examines why it was woken.
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let is_woken = self.shared.ended.wait_for(left.min(SYNC_WITHIN));
            if is_woken || left <= SYNC_WITHIN || self.shared.lock().sync_wanted.is_some() {
                return;
            }
        }
    }

    /// Bytes of log after which a checkpoint is due. A checkpoint contains all data, so that the
    /// interval grows with its size: checkpoints write at most twice as much as the log, and a
    /// restart reads at most half as much log as checkpoint.
    fn checkpoint_after(&self) -> u64 {
        self.options.checkpoint_bytes.max(self.last_checkpoint_bytes / 2)
    }

    /// Starts to write a checkpoint while the log continues.
    fn begin_checkpoint(&mut self) {
        self.bytes_since_checkpoint = 0;
        // Under the lock the engine only collects references to its nodes.
        let mut state = self.shared.lock().engine.checkpoint();
        let (disk, lsn) = (self.disk.clone(), state.lsn());
        let (say, said) = mpsc::channel();
        let shared = Arc::clone(&self.shared);
        let write = move || {
            let written = checkpoint::write(&disk, lsn, |take| state.write(take)).map(|bytes| (lsn, bytes));
            // Free the copies before the result is sent.
            drop(state);
            // The receiver exists until the thread ends.
            let _ = say.send(written);
            shared.written.wake();
        };
        match thread::Builder::new().name("yesquel-checkpoint".to_owned()).spawn(write) {
            Ok(_) => self.checkpoint = Some(said),
            Err(error) => tracing::error!(%error, "no thread for a checkpoint"),
        }
    }

    /// Deletes the log that a checkpoint replaces.
    fn end_checkpoint(&mut self, written: Option<WrittenCheckpoint>) {
        self.checkpoint = None;
        let Some(written) = written else { return };
        if let Ok((lsn, bytes)) = written {
            self.last_checkpoint_bytes = bytes;
            self.shared.note_checkpoint(lsn, bytes);
        }
        // The checkpoint may be ahead of the log, which must contain what follows it.
        let forgotten =
            written.and_then(|(lsn, _)| self.writer.delete_up_to(lsn.min(self.writer.synced_lsn())));
        self.shared.release(self.writer.synced_lsn(), self.writer.bytes());
        // The log is complete without the checkpoint; a later one may succeed.
        if let Err(error) = forgotten {
            tracing::error!(%error, "no checkpoint could be made");
        }
    }
}
