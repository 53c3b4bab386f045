//! Leases, with blocking calls.

use crate::{Database, Error, Map, Transaction, range::range_of};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::RangeBounds,
    sync::Arc,
    time::Duration,
};
use yesquel_client::{LeaseHolder, LeaseRanges, RequestError};
use yesquel_model::{KeyRange, NodeId, ServerId};
use yesquel_transport::{block_on, check_cancelled};
use yesquel_tree::{Tree, TreeError};

/// Longest wait of one request, far below the time after which a silent server counts as lost. The
/// request keeps its place until the next one.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Lease of a range of a map, or of several ranges. Until it expires, commits and guards of other clients in the range fail
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
    /// In the order of the trees.
    ranges: Vec<(Map, KeyRange)>,
    /// Other groups at which each of the maps may have entries.
    groups: Vec<Arc<[ServerId]>>,
    /// Servers at which the holder has other leases, for what transactions write.
    others: BTreeSet<ServerId>,
    holder: LeaseHolder,
    is_held: bool,
    /// Whether a request was refused, after which the servers are asked one after the other.
    is_refused: bool,
}

/// How the servers of a lease are asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseOrder {
    /// All at once. No request waits in a queue.
    Parallel,
    /// One after the other, in the order of their numbers. Requests queue.
    ByServer,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("ranges", &self.ranges).finish_non_exhaustive()
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
        let outcomes = block_on(self.database.trees().client().lease_at_all(
            &self.holder,
            self.wanted().into_iter().collect(),
            time,
        ));
        Ok(outcomes.into_iter().collect::<Result<(), _>>()?)
    }

    /// The ranges by server.
    fn wanted(&self) -> BTreeMap<ServerId, LeaseRanges> {
        let ranges = self.ranges.iter().map(|(map, range)| (map.tree.root(), range.clone()));
        ranges_by_server(ranges.zip(&self.groups))
    }

    /// Returns whether its maps are at several servers, of which some may have granted it after
    /// [`take`](Self::take) has failed.
    pub fn has_several_servers(&self) -> bool {
        self.servers().len() > 1
    }

    /// Its servers, each once.
    fn servers(&self) -> BTreeSet<ServerId> {
        let roots = self.maps().map(|map| map.tree.root().server);
        let groups = self.groups.iter().flat_map(|groups| groups.iter());
        roots.chain(groups.chain(&self.others).copied()).collect()
    }

    /// Takes the lease, or takes it again, for `time`. Waits for its turn for `timeout` at most, and
    /// keeps its place for a second more, so that it may be called again after [`Error::Leased`].
    pub fn take(&mut self, time: Duration, timeout: Duration) -> Result<(), Error> {
        let order = if self.is_refused { LeaseOrder::ByServer } else { LeaseOrder::Parallel };
        let taken = wait_in_order(&self.database, self.wanted(), &self.holder, (time, timeout), order);
        self.is_refused |= taken.is_err();
        // After a cancellation the server may still grant the lease, which must then be released. Of
        // several servers, some may have granted it.
        self.is_held |= matches!(taken, Ok(()) | Err(Error::Interrupted(_))) || self.servers().len() > 1;
        taken
    }

    /// Leases for its holder everything that a transaction writes or guards, for `time`. Waits for
    /// its turns for `timeout` at most. The release of the lease ends these leases, too.
    pub fn take_for(
        &mut self,
        transaction: &Transaction<'_>,
        time: Duration,
        timeout: Duration,
    ) -> Result<(), Error> {
        let wanted = leases_of(&self.database, transaction.inner.touched())?;
        self.others.extend(wanted.keys());
        wait_in_order(&self.database, wanted, &self.holder, (time, timeout), LeaseOrder::ByServer)
    }

    /// Returns the maps.
    pub fn maps(&self) -> impl Iterator<Item = Map> {
        self.ranges.iter().map(|(map, _)| *map)
    }

    /// Ends the lease after a transaction that [releases](Transaction::releases) it has committed. The
    /// commit has released it at the servers that it was sent to. It is released at the others without
    /// waiting for them: the requests are on their way when this returns.
    pub fn committed(mut self, transaction: &Transaction<'_>) {
        self.is_held = false;
        let released = transaction.inner.committed_at();
        for server in self.servers().iter().filter(|server| !released.contains(server)) {
            self.database.trees().client().release_in_background(*server, &self.holder);
        }
    }

    /// Releases the lease.
    pub fn release(mut self) -> Result<(), Error> {
        self.do_release()
    }

    /// Drops the lease, which a [commit](Transaction::releases) has released.
    pub fn forget(mut self) {
        self.is_held = false;
    }

    fn do_release(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_held) {
            return Ok(());
        }
        Ok(block_on(self.database.trees().client().release_at_all(self.servers(), &self.holder))?)
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
        let mut lease = self.lease_to_take([(map, range)])?;
        lease.groups = vec![block_on(self.trees().groups(map.tree))?];
        lease.take(time, timeout)?;
        Ok(lease)
    }

    /// Returns a lease of ranges that is not held yet: see [`Lease::take`]. All entries of the maps must be
    /// at one group each, as with [`maps_at`](Self::maps_at).
    pub fn lease_to_take<K: AsRef<[u8]>, R: RangeBounds<K>>(
        &self,
        ranges: impl IntoIterator<Item = (Map, R)>,
    ) -> Result<Lease, Error> {
        let range = |(map, range): (Map, R)| {
            self.store().tree_of(map)?;
            Ok((map, range_of(&range).with_short_bounds()))
        };
        let mut ranges = ranges.into_iter().map(range).collect::<Result<Vec<_>, Error>>()?;
        ranges.sort_by_key(|(map, _)| map.tree.root());
        let holder = self.trees().client().new_lease_holder();
        let groups = vec![Arc::default(); ranges.len()];
        Ok(Lease {
            database: self.clone(),
            ranges,
            groups,
            others: BTreeSet::new(),
            holder,
            is_held: false,
            is_refused: false,
        })
    }
}

impl Transaction<'_> {
    /// Declares that the transaction writes within a lease; elsewhere it writes as any other.
    pub fn within_lease(&mut self, lease: &Lease) {
        self.inner.within_lease(&lease.holder);
    }

    /// Like [`within_lease`](Self::within_lease), and the commit also releases the lease, in the
    /// same message, at the servers that it is sent to: then call [`Lease::committed`].
    pub fn releases(&mut self, lease: &Lease) {
        self.inner.within_lease(&lease.holder.ending());
    }
}

/// Takes leases, and waits for the turn for `timeout` at most. A server grants all of its ranges at
/// once. All clients ask the servers in the same order, which prevents deadlocks.
pub(crate) fn wait_for_leases(
    database: &Database,
    leases: BTreeMap<ServerId, LeaseRanges>,
    holder: &LeaseHolder,
    time: Duration,
    timeout: Duration,
) -> Result<(), Error> {
    wait_in_order(database, leases, holder, (time, timeout), LeaseOrder::ByServer)
}

/// Returns what to lease at each server for ranges of trees.
pub(crate) fn leases_of(
    database: &Database,
    ranges: impl IntoIterator<Item = (NodeId, KeyRange)>,
) -> Result<BTreeMap<ServerId, LeaseRanges>, Error> {
    let ranges = ranges.into_iter().map(|(root, range)| {
        if database.groups().len() == 1 {
            return Ok(((root, range), Arc::default()));
        }
        match block_on(database.trees().groups(Tree::at(root))) {
            Ok(groups) => Ok(((root, range), groups)),
            // A tree that does not exist yet has no leaves at other groups.
            Err(TreeError::NoTree(_)) => Ok(((root, range), Arc::default())),
            Err(error) => Err(error.into()),
        }
    });
    Ok(ranges_by_server(ranges.collect::<Result<Vec<_>, Error>>()?))
}

/// Groups ranges of trees by the servers at which the trees have nodes.
fn ranges_by_server<G: AsRef<[ServerId]>>(
    ranges: impl IntoIterator<Item = ((NodeId, KeyRange), G)>,
) -> BTreeMap<ServerId, LeaseRanges> {
    let mut by_server = BTreeMap::<ServerId, LeaseRanges>::new();
    for ((root, range), groups) in ranges {
        let others = groups.as_ref().iter().filter(|group| **group != root.server);
        for server in std::iter::once(&root.server).chain(others) {
            by_server.entry(*server).or_default().push((root.tree, range.clone()));
        }
    }
    by_server
}

/// Asks several servers for leases in parallel. Returns whether all have granted them; otherwise
/// gives back those that it got.
fn take_in_parallel(
    database: &Database,
    by_server: &BTreeMap<ServerId, LeaseRanges>,
    holder: &LeaseHolder,
    time: Duration,
) -> Result<bool, Error> {
    let client = database.trees().client();
    let asked = by_server.iter().map(|(server, ranges)| (*server, ranges.clone())).collect();
    let outcomes = block_on(client.lease_at_all(holder, asked, time));
    if outcomes.iter().all(Result::is_ok) {
        return Ok(true);
    }
    for (server, outcome) in by_server.keys().zip(&outcomes) {
        // A server whose answer was lost may have granted it.
        if !matches!(outcome, Err(RequestError::Refused(_))) {
            client.release_in_background(*server, holder);
        }
    }
    match outcomes.into_iter().find_map(|outcome| match outcome.map_err(Error::from) {
        Ok(()) | Err(Error::Leased(_)) => None,
        Err(error) => Some(error),
    }) {
        Some(error) => Err(error),
        None => Ok(false),
    }
}

/// Takes leases, and waits for the turn. In parallel, two clients may each get some: both give them
/// back and go on in the order of the servers.
fn wait_in_order(
    database: &Database,
    by_server: BTreeMap<ServerId, LeaseRanges>,
    holder: &LeaseHolder,
    (time, timeout): (Duration, Duration),
    order: LeaseOrder,
) -> Result<(), Error> {
    let client = database.trees().client();
    let until = client.uptime().saturating_add(timeout);
    if order == LeaseOrder::Parallel
        && by_server.len() > 1
        && take_in_parallel(database, &by_server, holder, time)?
    {
        return Ok(());
    }
    for (server, ranges) in by_server {
        loop {
            let wait = until.saturating_sub(client.uptime()).min(WAIT_MAX);
            match block_on(client.lease(server, holder, ranges.clone(), time, wait)).map_err(Error::from) {
                Ok(()) => break,
                Err(Error::Leased(_)) if !wait.is_zero() => {
                    if check_cancelled() {
                        return Err(Error::Interrupted("interrupted while others hold a lease".to_owned()));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
