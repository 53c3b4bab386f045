//! Leases of a connection: BEGIN IMMEDIATE takes one, and so does a commit that meets another
//! connection's lease.

use super::SqlSession;
use crate::{code::ResultCode, schema::COOKIES};
use std::time::Duration;
use yesquel::{CancelCheck, Lease, Map};

/// Duration of a lease, after which the lease of a silent process expires.
pub(crate) const LEASE_TIME: Duration = Duration::from_secs(10);

/// Leases of a connection.
#[derive(Debug, Default)]
pub(super) struct SessionLeases {
    /// Keeps others from writing, with the uptime of the store when it was last extended.
    pub(super) held: Option<(Lease, Duration)>,
    /// Whether the application has asked for it, by BEGIN IMMEDIATE.
    pub(super) is_explicit: bool,
    /// A request that keeps its place in the server's queue until the next attempt.
    place: Option<Lease>,
    /// The schemas that the next transaction leases first, and until when it waits for that; `None`:
    /// not at all.
    pub(super) wanted: Option<(Vec<Map>, Option<Duration>)>,
    /// The last commit had waited for its turn and then lost a race.
    lost_turn: Option<(Vec<Map>, Duration)>,
}

impl SessionLeases {
    /// Extends the lease, if there is one and that is due by the uptime of the store.
    fn renew(&mut self, cancel_check: CancelCheck, uptime: impl FnOnce() -> Duration) {
        let Some((lease, since)) = &mut self.held else { return };
        let now = uptime();
        if now.saturating_sub(*since) > LEASE_TIME / 3 {
            let _waits = cancel_check.begin();
            if lease.renew(LEASE_TIME).is_ok() {
                *since = now;
            }
        }
    }
}

impl SqlSession {
    /// Takes a lease for BEGIN IMMEDIATE on the tables of some schemas until the transaction ends,
    /// which must not have begun: earlier reads are invalid. Waits for its turn for `wait` at most.
    pub(crate) fn take_lease(&mut self, cookies: &[Map], wait: Duration) -> Result<(), ResultCode> {
        self.lease_before_transaction(cookies, wait)?;
        self.leases.is_explicit = true;
        Ok(())
    }

    fn lease_before_transaction(&mut self, cookies: &[Map], wait: Duration) -> Result<(), ResultCode> {
        self.shared.check_process()?;
        if self.leases.held.is_some() || self.has_written {
            return Ok(());
        }
        let lease = self.wait_for_lease(cookies, wait)?;
        self.drop_transaction(false);
        self.leases.held = Some((lease, self.shared.uptime()));
        self.leases.is_explicit = false;
        Ok(())
    }

    fn wait_for_lease(&mut self, cookies: &[Map], wait: Duration) -> Result<Lease, ResultCode> {
        let _waits = self.waits();
        // In the order in which a lease has them, so that the place of the last attempt is found.
        let mut cookies = cookies.to_vec();
        cookies.sort_by_key(Map::tree);
        cookies.dedup();
        let lease = match self.leases.place.take().filter(|place| place.maps().eq(cookies.iter().copied())) {
            Some(place) => Ok(place),
            None => self.database.lease_to_take(cookies.iter().map(|cookies| (*cookies, COOKIES..=COOKIES))),
        };
        let mut lease = lease.map_err(|error| self.code_of(&error))?;
        match lease.take(LEASE_TIME, wait) {
            Ok(()) => Ok(lease),
            Err(error) => {
                let code = self.code_of(&error);
                self.leases.place = Some(lease).filter(|_| code == ResultCode::BUSY);
                Err(code)
            }
        }
    }

    /// Takes the lease that an earlier failure suggests, before a transaction begins.
    pub(super) fn take_wanted_lease(&mut self) {
        self.leases.lost_turn = None;
        let Some((cookies, until)) = self.leases.wanted.take() else { return };
        let wait = until.map(|until| until.saturating_sub(self.shared.uptime()));
        // If another one holds it for longer, the transaction goes on without, and may fail again.
        if self.lease_before_transaction(&cookies, wait.unwrap_or_default()).is_err() {
            self.stop_waiting();
        }
    }

    /// Notes that a wait for a lease has failed, and no attempt follows at once. A request at one
    /// server keeps its place for a moment. One at several servers may have leases of some, which
    /// would lock out others, and even this connection.
    pub(crate) fn stop_waiting(&mut self) {
        if let Some(place) = self.leases.place.take_if(|place| place.has_several_servers()) {
            let _waits = self.waits();
            drop(place);
        }
    }

    /// Notes that the statement runs again whose commit has lost a race. It takes its lease first if
    /// it had to wait for its turn: it would wait again, and lose again.
    pub(crate) fn wants_turn(&mut self) {
        if let Some((cookies, until)) = self.leases.lost_turn.take() {
            self.leases.wanted = Some((cookies, Some(until)));
        }
    }

    /// Extends the lease, if there is one.
    pub(crate) fn renew(&mut self) {
        self.leases.renew(self.cancel_check, || self.shared.uptime());
    }

    /// Ends the lease of a transaction that ends.
    pub(super) fn end_lease(&mut self) {
        if let Some(held) = self.leases.held.take() {
            let _waits = self.waits();
            drop(held);
        }
    }

    /// Notes a commit, which has released the lease at the servers that it was sent to. A
    /// transaction whose writes were rolled back to a savepoint sends none.
    pub(super) fn lease_committed(&mut self) {
        let Some(open) = &mut self.open else { return };
        let held = &mut self.leases.held;
        open.with_dependent_mut(|_, running| {
            let sent = running.as_ref().filter(|transaction| transaction.has_sent_commit());
            if let Some(transaction) = sent
                && let Some((lease, _)) = held.take()
            {
                lease.committed(transaction);
            }
        });
    }

    /// Commits. Waits for leases of others for `wait` at most.
    pub(crate) fn commit(&mut self, wait: Duration) -> Result<(), ResultCode> {
        match self.try_commit() {
            Err(ResultCode::BUSY) if !wait.is_zero() => self.commit_in_turn(wait),
            outcome => outcome,
        }
    }

    /// Queues for a lease of its own, and commits under it.
    fn commit_in_turn(&mut self, wait: Duration) -> Result<(), ResultCode> {
        let (until, held_before) = (self.shared.uptime().saturating_add(wait), self.leases.held.is_some());
        loop {
            match self.schemas.copies_of(&self.written) {
                cookies if !cookies.is_empty() && self.leases.held.is_none() => {
                    let rest = until.saturating_sub(self.shared.uptime());
                    let lease = self.wait_for_lease(&cookies, rest)?;
                    if let Some(open) = &mut self.open {
                        open.with_dependent_mut(|_, running| {
                            running.as_mut().map(|transaction| transaction.releases(&lease))
                        });
                    }
                    self.leases.held = Some((lease, self.shared.uptime()));
                    self.leases.is_explicit = false;
                    self.leases.lost_turn = Some((cookies, until));
                }
                // The other lease is of rows, taken without SQL.
                _ => self.lease_written(until.saturating_sub(self.shared.uptime()), held_before)?,
            }
            match self.try_commit() {
                Err(ResultCode::BUSY) if self.shared.uptime() < until => {}
                outcome => {
                    // The application may take its time to roll back.
                    if outcome.is_err() && !held_before {
                        self.end_lease();
                    }
                    return outcome;
                }
            }
        }
    }

    /// Waits for leases of everything that the transaction writes or guards.
    fn lease_written(&mut self, wait: Duration, held_before: bool) -> Result<(), ResultCode> {
        let _waits = self.waits();
        let SqlSession { open, leases, .. } = self;
        let (Some(open), Some((lease, _))) = (open, &mut leases.held) else { return Err(ResultCode::BUSY) };
        let taken = open.with_dependent_mut(|_, running| {
            let running = running.as_ref();
            running.map_or(Ok(()), |transaction| lease.take_for(transaction, LEASE_TIME, wait))
        });
        taken.map_err(|error| {
            if !held_before {
                self.end_lease();
            }
            self.code_of(&error)
        })
    }
}
