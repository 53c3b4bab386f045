//! Time of the next attempt to find the outcome of a prepared transaction.

use yesquel_model::TxnId;

/// Pause after the first attempt, in milliseconds; it doubles with each attempt.
const PAUSE_MS: u64 = 500;
/// Pause after the answer that the transaction is queued, in milliseconds: it may have its turn at
/// any time, and requests wait here.
const QUEUED_PAUSE_MS: u64 = 100;
/// Number of doublings of the pause.
const DOUBLINGS_MAX: u32 = 3;
/// Pause in milliseconds while the server that has not answered can be reached.
const REACHABLE_PAUSE_MS: u64 = 400;

/// Why recovery begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecoveryCause {
    /// A request waits for the transaction.
    Waiter,
    /// The connection of its client has ended.
    Connection,
    /// Another transaction of its client was recovered.
    Client,
    /// The vote is old.
    Age,
}

/// When a prepared transaction is recovered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecoveryTimer {
    /// Connection of the client; unknown after a restart.
    pub(crate) connection: Option<u64>,
    /// Uptime in milliseconds of the vote; zero after a restart.
    pub(crate) since_ms: u64,
    /// Uptime in milliseconds of the next attempt.
    pub(crate) due_ms: u64,
    /// Uptime in milliseconds of the last attempt.
    attempted_ms: u64,
    attempts: u32,
    is_started: bool,
    /// A participant has forgotten the transaction, and will not answer otherwise.
    is_forgotten: bool,
    /// Cause of the first attempt.
    cause: RecoveryCause,
}

impl RecoveryTimer {
    pub(crate) fn new(since_ms: u64, age_ms: u64) -> RecoveryTimer {
        RecoveryTimer {
            connection: None,
            since_ms,
            due_ms: since_ms + age_ms,
            attempted_ms: 0,
            attempts: 0,
            is_started: false,
            is_forgotten: false,
            cause: RecoveryCause::Age,
        }
    }

    /// Moves the first attempt forward. Later ones keep their pauses.
    pub(crate) fn hasten(&mut self, due_ms: u64, cause: RecoveryCause) {
        if !self.is_started && due_ms < self.due_ms {
            (self.due_ms, self.cause) = (due_ms, cause);
        }
    }

    /// Cause of the first attempt, if it was made.
    pub(crate) fn started(&self) -> Option<RecoveryCause> {
        self.is_started.then_some(self.cause)
    }

    /// The transaction is queued elsewhere. The attempt does not count.
    pub(crate) fn is_queued_elsewhere(&mut self, now_ms: u64) {
        self.attempts = self.attempts.saturating_sub(1);
        self.due_ms = self.due_ms.min(now_ms + QUEUED_PAUSE_MS);
    }

    /// A participant has forgotten the transaction.
    pub(crate) fn is_forgotten_elsewhere(&mut self) {
        self.is_forgotten = true;
    }

    /// A server whose vote is not known can be reached: it has returned, or the question was lost.
    /// The pauses are for servers that cannot be reached.
    pub(crate) fn is_reachable(&mut self) {
        if self.is_started && !self.is_forgotten {
            self.due_ms = self.due_ms.min(self.attempted_ms + REACHABLE_PAUSE_MS);
        }
    }

    /// Counts an attempt and sets the time of the next one. Pauses vary by a quarter, so that
    /// participants which restarted together do not ask together for ever. Returns the cause of the
    /// first attempt.
    pub(crate) fn attempted(&mut self, now_ms: u64, txn: TxnId) -> Option<RecoveryCause> {
        let cause = (!self.is_started).then_some(self.cause);
        (self.is_started, self.attempted_ms) = (true, now_ms);
        let pause = PAUSE_MS << self.attempts.min(DOUBLINGS_MAX);
        self.attempts += 1;
        let mixed = (txn.client ^ txn.number.rotate_left(32) ^ u64::from(self.attempts))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let quarter = pause / 4;
        self.due_ms = now_ms + pause - quarter + (mixed >> 32) % (2 * quarter);
        cause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_four_seconds_and_vary_by_a_quarter() {
        let txn = TxnId { client: 3, number: 4 };
        let mut timer = RecoveryTimer::new(0, 2_000);
        assert_eq!((timer.cause, timer.started()), (RecoveryCause::Age, None));
        timer.hasten(500, RecoveryCause::Waiter);
        timer.hasten(900, RecoveryCause::Connection);
        assert_eq!((timer.due_ms, timer.cause), (500, RecoveryCause::Waiter));
        let mut now_ms = 500;
        for pause in [500, 1_000, 2_000, 4_000, 4_000, 4_000] {
            assert_eq!(timer.attempted(now_ms, txn).is_some(), timer.attempts == 1);
            let waits = timer.due_ms - now_ms;
            assert!((pause * 3 / 4..pause * 5 / 4).contains(&waits), "{waits} ms instead of {pause}");
            now_ms = timer.due_ms;
            // Requests that come now do not add attempts.
            timer.hasten(0, RecoveryCause::Connection);
            assert_eq!((timer.due_ms, timer.started()), (now_ms, Some(RecoveryCause::Waiter)));
        }
    }

    #[test]
    fn a_server_that_returns_is_asked_soon() {
        let txn = TxnId { client: 3, number: 4 };
        let mut timer = RecoveryTimer::new(0, 2_000);
        timer.is_reachable();
        assert_eq!(timer.due_ms, 2_000, "before the first attempt there is nothing to repeat");
        for now_ms in [2_000, 4_000, 8_000] {
            timer.attempted(now_ms, txn);
        }
        assert!(timer.due_ms >= 9_500);
        timer.is_reachable();
        assert_eq!(timer.due_ms, 8_400);
        timer.attempted(8_400, txn);
        let due_ms = timer.due_ms;
        timer.is_forgotten_elsewhere();
        timer.is_reachable();
        assert_eq!(timer.due_ms, due_ms, "it would not answer otherwise");
    }
}
