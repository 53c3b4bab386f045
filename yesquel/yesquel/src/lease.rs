//! Leases, with blocking calls.

use crate::{Database, Error, Map, Transaction, range::range_of};
use std::{
    fmt,
    ops::RangeBounds,
    thread,
    time::{Duration, Instant},
};
use yesquel_model::{KeyRange, Refusal};
use yesquel_transport::{block_on, check_cancelled};

/// Time that [`Database::run`] and [`Database::put`] wait for leases of others.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which they retry.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Lease of a range of a map. Until it expires, commits and guards of other clients in the range fail
/// with [`Error::Leased`], and transactions that [`begin`](Lease::begin) here never conflict there.
/// Reads are not affected. Dropping it releases it.
///
/// Use it for work that must not be repeated: work that takes long or has effects outside the
/// database.
///
/// ```
/// # fn main() -> Result<(), yesquel::Error> {
/// use std::time::Duration;
/// let database = yesquel::Store::in_memory()?.create_database("shop")?;
/// let stock = database.map("stock")?;
/// let second = Duration::from_secs(1);
/// let lease = database.lease(stock, &b"apples"[..]..=&b"apples"[..], second, second)?;
/// let mut transaction = lease.begin();
/// let count = transaction.get(stock, b"apples")?.map_or(0, |count| count[0]);
/// transaction.put(stock, b"apples", &[count + 1])?;
/// transaction.commit()?;
/// lease.release()
/// # }
/// ```
pub struct Lease {
    database: Database,
    map: Map,
    range: KeyRange,
    holder: yesquel_client::LeaseHolder,
    is_held: bool,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("map", &self.map).field("range", &self.range).finish_non_exhaustive()
    }
}

impl Lease {
    /// Begins a transaction that may write within the lease, and elsewhere as any other.
    pub fn begin(&self) -> Transaction<'_> {
        let mut transaction = self.database.begin();
        transaction.within_lease(self);
        transaction
    }

    /// Extends the lease for `time` from now, a minute at most. Fails if it has expired and another
    /// client holds one there.
    pub fn renew(&self, time: Duration) -> Result<(), Error> {
        let (root, range) = (self.map.tree.root(), self.range.clone());
        let client = self.database.trees().client();
        Ok(block_on(client.lease(root.server, &self.holder, (root.tree, range), time))?)
    }

    /// Releases the lease.
    pub fn release(mut self) -> Result<(), Error> {
        self.do_release()
    }

    fn do_release(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_held) {
            return Ok(());
        }
        let server = self.map.tree.root().server;
        Ok(block_on(self.database.trees().client().release(server, &self.holder))?)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // If the server misses this, the lease expires.
        let _ = self.do_release();
    }
}

impl Database {
    /// Leases a range of keys of a map for `time`, a minute at most. Waits, for `timeout` at most,
    /// until other leases and prepared transactions in the range have ended.
    pub fn lease<K: AsRef<[u8]>>(
        &self,
        map: Map,
        range: impl RangeBounds<K>,
        time: Duration,
        timeout: Duration,
    ) -> Result<Lease, Error> {
        self.store().tree_of(map)?;
        let holder = self.trees().client().new_lease_holder();
        let range = range_of(&range).with_short_bounds();
        let mut lease = Lease { database: self.clone(), map, range, holder, is_held: false };
        let leased = retry_while_leased(timeout, || lease.renew(time));
        // After a cancellation the server may still grant the lease, which must then be released.
        lease.is_held = matches!(leased, Ok(()) | Err(Error::Interrupted(_)));
        leased.map(|()| lease)
    }
}

impl Transaction<'_> {
    /// Declares that the transaction writes within a lease; elsewhere it writes as any other.
    pub fn within_lease(&mut self, lease: &Lease) {
        self.inner.within_lease(&lease.holder);
    }
}

/// Retries while others hold leases, until a timeout.
pub(crate) fn retry_while_leased<T>(
    timeout: Duration,
    mut act: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let until = Instant::now() + timeout;
    loop {
        match act() {
            Err(Error::Leased(Refusal::Leased { ms })) if Instant::now() < until => {
                let rest = until.saturating_duration_since(Instant::now());
                thread::sleep(Duration::from_millis(ms).min(RETRY_INTERVAL).min(rest));
                if check_cancelled() {
                    return Err(Error::Interrupted("interrupted while others hold a lease".to_owned()));
                }
            }
            outcome => return outcome,
        }
    }
}

/// Retries with the timeout of a write.
pub(crate) fn retry_write<T>(act: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    retry_while_leased(LEASE_TIMEOUT, act)
}
