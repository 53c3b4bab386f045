//! Leases, for threads that wait.

use crate::{Database, Error, Map, Transaction, range::range_of};
use std::{
    fmt,
    ops::RangeBounds,
    thread,
    time::{Duration, Instant},
};
use yesquel_model::{KeyRange, Refusal};
use yesquel_transport::{block_on, gives_up};

/// How long [`Database::run`] and [`Database::put`] wait for leases of others.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often those look again who wait for a lease.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A range of a map in which for a while nobody else writes: whoever else
/// commits there, or guards something there, is told [`Error::Leased`].
/// Transactions that [`begin`](Lease::begin) here write there and lose to
/// nobody. Dropping it releases it.
///
/// It is for work that must not be done again: one that takes long, or one that
/// cannot be undone outside. It keeps nobody from reading.
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
    name: yesquel_client::Lease,
    is_held: bool,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("map", &self.map).field("range", &self.range).finish_non_exhaustive()
    }
}

impl Lease {
    /// Begins a transaction that writes within the lease, and anywhere else as
    /// any other does.
    pub fn begin(&self) -> Transaction<'_> {
        let mut transaction = self.database.begin();
        transaction.under(self);
        transaction
    }

    /// Has it last for some time from now on, a minute at most. Fails if it was
    /// over and another one has it now.
    pub fn renew(&self, time: Duration) -> Result<(), Error> {
        let (root, range) = (self.map.tree.root(), self.range.clone());
        let client = self.database.trees().client();
        Ok(block_on(client.lease(root.server, &self.name, (root.tree, range), time))?)
    }

    /// Lets it go.
    pub fn release(mut self) -> Result<(), Error> {
        self.let_go()
    }

    fn let_go(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_held) {
            return Ok(());
        }
        let server = self.map.tree.root().server;
        Ok(block_on(self.database.trees().client().release(server, &self.name))?)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // If nobody hears it, time lets it go.
        let _ = self.let_go();
    }
}

impl Database {
    /// Leases the keys of a range of a map for some time, a minute at most, and
    /// waits for others who hold some of it, but no longer than `patience`.
    /// Those who have prepared something there are waited for, too.
    pub fn lease<K: AsRef<[u8]>>(
        &self,
        map: Map,
        range: impl RangeBounds<K>,
        time: Duration,
        patience: Duration,
    ) -> Result<Lease, Error> {
        self.store().tree_of(map)?;
        let name = self.trees().client().new_lease();
        let range = range_of(&range).with_short_bounds();
        let mut lease = Lease { database: self.clone(), map, range, name, is_held: false };
        let leased = patiently(patience, || lease.renew(time));
        // Who has given up may have it yet, and must let it go.
        lease.is_held = matches!(leased, Ok(()) | Err(Error::Interrupted(_)));
        leased.map(|()| lease)
    }
}

impl Transaction<'_> {
    /// What it writes is within a lease, where nobody else writes now, and
    /// anywhere else as any other does.
    pub fn under(&mut self, lease: &Lease) {
        self.inner.under(&lease.name);
    }
}

/// Does something again while others hold leases, but not for ever.
pub(crate) fn patiently<T>(
    patience: Duration,
    mut act: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let until = Instant::now() + patience;
    loop {
        match act() {
            Err(Error::Leased(Refusal::Leased { ms })) if Instant::now() < until => {
                let rest = until.saturating_duration_since(Instant::now());
                thread::sleep(Duration::from_millis(ms).min(LOOK_EVERY).min(rest));
                if gives_up() {
                    return Err(Error::Interrupted("interrupted while others hold a lease".to_owned()));
                }
            }
            outcome => return outcome,
        }
    }
}

/// Does it again as a writer does that nobody else waits for.
pub(crate) fn writing<T>(act: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    patiently(PATIENCE, act)
}
