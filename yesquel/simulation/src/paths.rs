//! Paths of the commit protocol and of clocks, counted: a test must not pass because it does not
//! reach what it should check. `docs/yesquel/cluster/commit.md` and `time.md` describe them.

use std::fmt;
use yesquel_engine::LogRecord;
use yesquel_model::{Conflict, Refusal};
use yesquel_wire::{Decision, Reply, Request, TransactionOutcome, ValueUse, Vote};

macro_rules! paths {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// A path of a protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ProtocolPath { $($(#[$meta])* $name,)* }

        impl ProtocolPath {
            /// All paths.
            pub const ALL: &[ProtocolPath] = &[$(ProtocolPath::$name,)*];
        }
    };
}

paths! {
    /// One group: a commit and its reply.
    CommittedAtOne,
    /// One group: a commit that met a prepared or queued transaction, and waited.
    CommitWaited,
    /// A read that met a prepared transaction, and waited.
    ReadWaited,
    /// One group: `Outcome` of a transaction that had not arrived, which gives it up.
    GivenUp,
    /// One group: `Outcome` of a transaction that has committed.
    OutcomeKnown,
    /// One group: `Outcome` of what is forgotten.
    OutcomeForgotten,
    /// A vote for yes, of a parallel `Prepare`.
    VotedInParallel,
    /// A vote for yes, in group order.
    VotedInOrder,
    /// A parallel `Prepare` refused because of a prepared transaction.
    RefusedBecauseOfPrepared,
    /// A `Prepare` in group order that was queued.
    PrepareQueued,
    /// A `Prepare` or `Commit` answered with `Forgotten`.
    AnsweredForgotten,
    /// A late `Prepare` answered with the end.
    AnsweredWithEnd,
    /// A copy of a request that was refused, refused again.
    RefusedAgain,
    /// A request whose timestamp or birth is too far ahead.
    TooFarAhead,
    /// A decision to commit.
    DecidedCommit,
    /// A decision to abort.
    DecidedAbort,
    /// An abort of an unknown transaction, which is recorded.
    DecidedUnknownAbort,
    /// A decision answered `Done`.
    DecisionDone,
    /// Recovery: asked for a vote, which was yes.
    RecoveryYes,
    /// Recovery: asked for a vote, and refused.
    RecoveryNo,
    /// Recovery: a forced no, which is recorded.
    RecoveryForcedNo,
    /// Recovery: the end was known.
    RecoveryEnd,
    /// Recovery: the transaction waits in a queue.
    RecoveryWaiting,
    /// Recovery: a client asks for what is forgotten.
    RecoveryForgotten,
    /// Forgetting: a client's report was taken into the log.
    Settled,
    /// Forgetting: the horizon was raised.
    Horizon,
    /// Forgetting: an end below the horizon that no other participant can be in doubt about.
    Forgotten,
    /// A part of a large transaction.
    Staged,
    /// Staged parts that were dropped.
    Unstaged,
    /// Long values: a group has noted when one of its values was superseded elsewhere.
    ValueDropNoted,
    /// Long values: the group of the cell has learned that.
    ValueDropConfirmed,
    /// Long values: after a restart a version refers to the value.
    ValueUsed,
    /// A ceiling was logged.
    Ceiling,
    /// The low-water mark was raised.
    LowWater,
    /// A snapshot that is not readable any more.
    SnapshotTooOld,
    /// A server whose clock differs from the others' refused a request.
    ClockDiffers,
    /// A server whose disk is full refused a request.
    DiskFull,
    /// Records that did not fit on a full disk were written when it had space.
    WrittenAfterFull,
    /// A server whose disk has failed refused a request.
    DiskFailed,
    /// A reply whose records were lost with the disk.
    DiskLost,
    /// Watches: one was granted.
    WatchGranted,
    /// Watches: one was refused, because a transaction is prepared on the node.
    WatchRefused,
    /// Watches: a watched leaf was used without a round trip.
    WatchUsed,
    /// Watches: notices were taken before a read.
    NoticesTaken,
    /// Watches: a server was asked again at the snapshot before the change of a leaf that was used.
    AskedBeforeChange,
    /// Watches: a client found the end of its connection for notices.
    WatchesLost,
    /// Watches: a server closed a connection that had no room for a notice.
    NoticesBlocked,
}

/// How often each path was taken.
#[derive(Clone, Copy)]
pub struct PathCounts([u64; ProtocolPath::ALL.len()]);

impl Default for PathCounts {
    fn default() -> PathCounts {
        PathCounts([0; ProtocolPath::ALL.len()])
    }
}

impl fmt::Debug for PathCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.each()).finish()
    }
}

impl PathCounts {
    pub(crate) fn add(&mut self, path: ProtocolPath) {
        self.0[path as usize] += 1;
    }

    /// Adds the counts of another run.
    pub fn add_all(&mut self, other: &PathCounts) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    /// All paths with their counts.
    pub fn each(&self) -> impl Iterator<Item = (ProtocolPath, u64)> {
        ProtocolPath::ALL.iter().copied().zip(self.0)
    }

    /// Paths that were taken less often than this.
    pub fn below(&self, count: u64) -> Vec<(ProtocolPath, u64)> {
        self.each().filter(|(_, taken)| *taken < count).collect()
    }

    pub(crate) fn on_record(&mut self, record: &LogRecord<'_>, is_prepared: bool) {
        self.add(match record {
            LogRecord::Commit { .. } => ProtocolPath::CommittedAtOne,
            LogRecord::Prepare { waits: false, .. } => ProtocolPath::VotedInParallel,
            LogRecord::Prepare { waits: true, .. } => ProtocolPath::VotedInOrder,
            LogRecord::Decide { decision: Decision::Commit(_), .. } => ProtocolPath::DecidedCommit,
            LogRecord::Decide { .. } if is_prepared => ProtocolPath::DecidedAbort,
            LogRecord::Decide { .. } => ProtocolPath::DecidedUnknownAbort,
            LogRecord::Refuse { .. } => ProtocolPath::RecoveryForcedNo,
            LogRecord::GiveUp { .. } => ProtocolPath::GivenUp,
            LogRecord::Settled { .. } => ProtocolPath::Settled,
            LogRecord::Horizon(_) => ProtocolPath::Horizon,
            LogRecord::Forget { .. } => ProtocolPath::Forgotten,
            LogRecord::Stage { .. } => ProtocolPath::Staged,
            LogRecord::Unstage { .. } => ProtocolPath::Unstaged,
            LogRecord::DropValue { .. } => ProtocolPath::ValueDropNoted,
            LogRecord::ValueDropped { .. } => ProtocolPath::ValueDropConfirmed,
            LogRecord::Ceiling(_) => ProtocolPath::Ceiling,
            LogRecord::LowWater { .. } => ProtocolPath::LowWater,
            _ => return,
        });
    }

    /// Counts a reply. `in_order` says that it is to a `Prepare` in group order, and none that it
    /// is to no request for a vote or commit; `was_refused`, that the transaction was refused before.
    pub(crate) fn on_reply(&mut self, reply: &[u8], in_order: Option<bool>, was_refused: bool) {
        let Ok(reply) = Reply::decode(reply) else { return };
        self.add(match reply {
            Reply::Refused { .. } if was_refused => ProtocolPath::RefusedAgain,
            Reply::Refused { refusal: Refusal::Conflict(Conflict::Prepared { .. }), .. }
                if in_order == Some(false) =>
            {
                ProtocolPath::RefusedBecauseOfPrepared
            }
            Reply::Refused { refusal, .. } => match refusal {
                Refusal::TooFarAhead(_) => ProtocolPath::TooFarAhead,
                Refusal::SnapshotTooOld { .. } => ProtocolPath::SnapshotTooOld,
                Refusal::ClockDiffers { .. } => ProtocolPath::ClockDiffers,
                Refusal::DiskFull => ProtocolPath::DiskFull,
                Refusal::DiskFailed => ProtocolPath::DiskFailed,
                Refusal::DiskLost => ProtocolPath::DiskLost,
                _ => return,
            },
            Reply::Done => ProtocolPath::DecisionDone,
            Reply::Forgotten(_) => ProtocolPath::AnsweredForgotten,
            Reply::Outcome(TransactionOutcome::Forgotten) => ProtocolPath::OutcomeForgotten,
            Reply::Outcome(TransactionOutcome::Decided(Decision::Commit(_))) => ProtocolPath::OutcomeKnown,
            Reply::ValueUse(ValueUse::Used) => ProtocolPath::ValueUsed,
            Reply::Vote(Vote::Decided(_)) if in_order.is_some() => ProtocolPath::AnsweredWithEnd,
            Reply::Vote(vote) => match vote {
                Vote::Yes { .. } => ProtocolPath::RecoveryYes,
                Vote::No => ProtocolPath::RecoveryNo,
                Vote::Decided(_) => ProtocolPath::RecoveryEnd,
                Vote::Waiting => ProtocolPath::RecoveryWaiting,
                Vote::Forgotten => ProtocolPath::RecoveryForgotten,
            },
            _ => return,
        });
    }

    /// Counts a request that waits, or is queued.
    pub(crate) fn on_wait(&mut self, request: &[u8], is_queued: bool) {
        let Ok(request) = Request::decode(request) else { return };
        match request {
            Request::Commit { .. } => self.add(ProtocolPath::CommitWaited),
            Request::Read { .. } => self.add(ProtocolPath::ReadWaited),
            Request::Prepare { .. } if is_queued => self.add(ProtocolPath::PrepareQueued),
            _ => {}
        }
    }
}
