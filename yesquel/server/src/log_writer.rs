//! Thread that writes the log, releases the replies that wait for it, and makes checkpoints.

use crate::state::SharedState;
use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};
use yesquel_log::{LogError, disk::Folder};
use yesquel_model::ServerId;
use yesquel_node::{GroupLog, LogFailure, WriteAttempt, WrittenCheckpoint};

/// The longest time that a reply waits for a sync which the durability does not make.
const SYNC_WITHIN: Duration = Duration::from_secs(1);

/// Time from one attempt to write to a full disk to the next.
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// Thread that writes the log.
pub(crate) struct LogWriter {
    shared: Arc<SharedState>,
    group: ServerId,
    log: GroupLog<Folder>,
    /// Receives the result of the checkpoint that is being written.
    checkpoint: Option<Receiver<Result<WrittenCheckpoint, LogError>>>,
    /// When a sync is due that the durability does not make.
    sync_by: Option<Instant>,
    /// Since when the disk is full.
    full_since: Option<Instant>,
}

impl LogWriter {
    pub(crate) fn new(shared: Arc<SharedState>, log: GroupLog<Folder>, group: ServerId) -> LogWriter {
        LogWriter { shared, group, log, checkpoint: None, sync_by: None, full_since: None }
    }

    pub(crate) fn run(mut self) {
        loop {
            let was_full = self.full_since.is_some();
            let ends = self.take();
            // Records that could not be written before come before the last ones.
            let is_last = ends && !was_full;
            if let Err(failure) = self.write(ends) {
                let what = match ends {
                    true => "the server ends, and its last records could not be written",
                    false => {
                        "the disk has failed: reads go on, and nothing is written to this group until the server is started anew"
                    }
                };
                tracing::error!(group = self.group.0, error = %failure.error, "{what}");
                self.shared.with_core(|core, sink| self.log.fail(&failure, core, sink));
                self.shared.released();
                // Finish before the folder is unlocked.
                let _ = self.checkpoint.take().map(|said| said.recv());
                return;
            }
            self.shared.with_core(|core, sink| self.log.release(core, sink));
            self.shared.released();
            match self.checkpoint.as_ref().map(Receiver::try_recv) {
                None | Some(Err(TryRecvError::Empty)) => {}
                Some(written) => self.end_checkpoint(written.ok()),
            }
            if self.log.is_checkpoint_due() {
                self.begin_checkpoint();
            }
            if is_last {
                if let Some(written) = self.checkpoint.take() {
                    self.end_checkpoint(written.recv().ok());
                }
                if let Err(error) = self.log.end() {
                    tracing::error!(group = self.group.0, %error, "the log was not ended in order");
                }
                return;
            }
            match (self.full_since, self.log.pause()) {
                // Replies wait for space for a limited time, also where only requests advance time.
                (Some(_), _) => self.shared.advance(),
                (None, Some(interval)) => self.pause(interval),
                (None, None) => {}
            }
        }
    }

    /// Writes the records and syncs them if the durability or a reply wants that. `ends`: the server
    /// ends.
    fn write(&mut self, ends: bool) -> Result<(), LogFailure> {
        match self.log.append()? {
            WriteAttempt::Written => {
                if let Some(since) = self.full_since.take() {
                    let seconds = since.elapsed().as_secs();
                    tracing::info!(
                        group = self.group.0,
                        seconds,
                        "the disk has space again: writes are accepted"
                    );
                }
            }
            WriteAttempt::DiskFull if ends => return Err(self.log.give_up()),
            WriteAttempt::DiskFull => {
                if self.full_since.is_none() {
                    self.full_since = Some(Instant::now());
                    let what = "the disk is full: reads go on, and writes are refused until there is space";
                    tracing::error!(group = self.group.0, "{what}");
                }
            }
        }
        let is_due = self.sync_by.is_some_and(|by| by <= Instant::now());
        if self.log.must_sync(ends || is_due) {
            self.log.sync()?;
            self.sync_by = None;
        }
        Ok(())
    }

    /// Waits for records, for the end of a checkpoint, or for the next attempt to write to a full
    /// disk. Returns whether the server ends.
    fn take(&mut self) -> bool {
        match (self.full_since, self.sync_by) {
            (Some(_), _) => drop(self.shared.ended.wait_for(RETRY_EVERY)),
            (None, Some(by)) => drop(self.shared.written.wait_until(by)),
            (None, None) => self.shared.written.wait(),
        }
        let mut state = self.shared.lock();
        self.log.take(&mut state.core);
        if self.log.is_sync_wanted() {
            self.sync_by.get_or_insert_with(|| Instant::now() + SYNC_WITHIN);
        }
        state.ending
    }

    /// Lets records accumulate, but not for longer than a reply may wait.
    fn pause(&self, interval: Duration) {
        let end = Instant::now() + interval;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // The next `take` examines why it was woken.
            let is_woken = self.shared.ended.wait_for(left.min(SYNC_WITHIN));
            if is_woken || left <= SYNC_WITHIN || self.shared.lock().core.is_sync_wanted() {
                return;
            }
        }
    }

    /// Starts to write a checkpoint while the log continues.
    fn begin_checkpoint(&mut self) {
        let writer = self.log.begin_checkpoint(&self.shared.lock().core);
        let (say, said) = mpsc::channel();
        let shared = Arc::clone(&self.shared);
        let write = move || {
            let written = writer.write();
            // The receiver exists until the thread ends.
            let _ = say.send(written);
            shared.written.wake();
        };
        // If the thread does not start, the sender is dropped and the channel is closed.
        self.checkpoint = Some(said);
        if let Err(error) = thread::Builder::new().name("yesquel-checkpoint".to_owned()).spawn(write) {
            tracing::error!(group = self.group.0, %error, "no thread for a checkpoint");
        }
    }

    /// Deletes the log that a checkpoint replaces.
    fn end_checkpoint(&mut self, written: Option<Result<WrittenCheckpoint, LogError>>) {
        self.checkpoint = None;
        let mut state = self.shared.lock();
        let now = state.read_clock();
        let ended = self.log.end_checkpoint(written, now, &mut state.core, &*self.shared.reply_sink);
        drop(state);
        if let Err(error) = ended {
            tracing::error!(group = self.group.0, %error, "no checkpoint could be made");
        }
    }
}
