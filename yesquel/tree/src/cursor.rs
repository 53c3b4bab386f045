//! Cursors: the keys of a tree in order, both ways, as a transaction sees
//! them.

use crate::{Transaction, Tree, TreeError, cache::Goal, search::Wanted, transaction::Write};
use std::ops::Bound;
use yesquel_model::{Key, KeyRange, NodeId, bound_of};
use yesquel_transport::Transport;

/// What was fetched held nothing that the transaction sees: so many times as
/// much is fetched next, as there may be more of what it deleted.
const MORE: u64 = 16;

/// A key and its value.
type Entry = (Key, Box<[u8]>);

/// A place in a tree. It stands on a key, or before the first, or after the
/// last; what it stands on may be deleted under it, and the next step then
/// goes on from there.
#[derive(Debug, Clone)]
pub struct Cursor {
    tree: Tree,
    place: Place,
    /// Entries that are still wanted.
    wanted: u64,
    /// The root of a tree to whose keys the entries refer.
    follow: Option<NodeId>,
}

/// How much of a tree is fetched.
#[derive(Debug, Clone, Copy)]
struct Share {
    cells_max: u64,
    follow: Option<NodeId>,
}

impl Share {
    fn for_goal(self, goal: Goal<'_>) -> Wanted<'_> {
        Wanted { goal, cells_max: self.cells_max, follow: self.follow }
    }

    /// There was not enough.
    fn grow(&mut self) {
        self.cells_max = self.cells_max.saturating_mul(MORE);
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Place {
    Before,
    On(Key),
    After,
}

impl Cursor {
    pub(crate) fn new(tree: Tree) -> Cursor {
        Cursor { tree, place: Place::Before, wanted: u64::MAX, follow: None }
    }

    /// The key that it stands on.
    pub fn key(&self) -> Option<&[u8]> {
        match &self.place {
            Place::On(key) => Some(key),
            Place::Before | Place::After => None,
        }
    }

    /// Says that from now on no more than so many entries are wanted: a leaf is
    /// not fetched whole then, but so many cells of it. It may be moved further,
    /// by a fetch more.
    pub fn limit(&mut self, entries: u64) {
        self.wanted = entries;
    }

    /// Says that what its entries refer to in another tree is wanted too: their
    /// values begin with the length of a key, one byte, and the key. Where the
    /// same server has both it costs no more requests, and
    /// [`get`](Transaction::get) none at all.
    pub fn follow(&mut self, tree: Option<Tree>) {
        self.follow = tree.map(|tree| tree.root);
    }

    fn share(&self) -> Share {
        Share { cells_max: self.wanted.max(1), follow: self.follow }
    }

    fn arrive(&mut self, found: Option<Entry>, end: Place) -> Option<Entry> {
        if self.wanted != u64::MAX {
            self.wanted = self.wanted.saturating_sub(1);
        }
        match (&found, &mut self.place) {
            // Mostly keys are as long as those before them: in their place.
            (Some((key, _)), Place::On(own)) if own.len() == key.len() => own.copy_from_slice(key),
            (Some((key, _)), place) => *place = Place::On(key.clone()),
            (None, place) => *place = end,
        }
        found
    }

    /// Stands on a key from now on, whether it is there or not. Nothing is
    /// fetched.
    pub fn place(&mut self, key: &[u8]) {
        self.place = Place::On(key.into());
    }

    /// Goes to a key, or to the next one if it is not there.
    pub async fn seek<T: Transport>(
        &mut self,
        transaction: &mut Transaction<'_, T>,
        key: &[u8],
    ) -> Result<Option<Entry>, TreeError> {
        let found = transaction.from(self.tree, Bound::Included(&bound_of(key)), self.share()).await?;
        Ok(self.arrive(found, Place::After))
    }

    /// Goes to a key, or to the one before it if it is not there, as the
    /// paper's `seek` does (figure 4).
    pub async fn seek_back<T: Transport>(
        &mut self,
        transaction: &mut Transaction<'_, T>,
        key: &[u8],
    ) -> Result<Option<Entry>, TreeError> {
        let found = transaction.up_to(self.tree, Bound::Included(&bound_of(key)), self.share()).await?;
        Ok(self.arrive(found, Place::Before))
    }

    /// Goes to the least key.
    pub async fn first<T: Transport>(
        &mut self,
        transaction: &mut Transaction<'_, T>,
    ) -> Result<Option<Entry>, TreeError> {
        self.place = Place::Before;
        self.next(transaction).await
    }

    /// Goes to the greatest key.
    pub async fn last<T: Transport>(
        &mut self,
        transaction: &mut Transaction<'_, T>,
    ) -> Result<Option<Entry>, TreeError> {
        self.place = Place::After;
        self.previous(transaction).await
    }

    /// Goes to the next key.
    pub async fn next<T: Transport>(
        &mut self,
        transaction: &mut Transaction<'_, T>,
    ) -> Result<Option<Entry>, TreeError> {
        let found = match &self.place {
            Place::Before => transaction.from(self.tree, Bound::Unbounded, self.share()).await?,
            Place::On(key) => transaction.from(self.tree, Bound::Excluded(key), self.share()).await?,
            Place::After => None,
        };
        Ok(self.arrive(found, Place::After))
    }

    /// Goes to the key before.
    pub async fn previous<T: Transport>(
        &mut self,
        transaction: &mut Transaction<'_, T>,
    ) -> Result<Option<Entry>, TreeError> {
        let found = match &self.place {
            Place::Before => None,
            Place::On(key) => transaction.up_to(self.tree, Bound::Excluded(key), self.share()).await?,
            Place::After => transaction.up_to(self.tree, Bound::Unbounded, self.share()).await?,
        };
        Ok(self.arrive(found, Place::Before))
    }
}

/// The key of a bound.
fn key_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// Whether no key lies between: a map takes no such range.
fn is_empty(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (start, end) => key_of(start) >= key_of(end),
    }
}

fn entry(key: &Key, write: &Write) -> Option<Entry> {
    write.value.clone().map(|value| (key.clone(), value))
}

impl<T: Transport> Transaction<'_, T> {
    /// The first entry from a bound on, of as many that are wanted.
    async fn from(
        &mut self,
        tree: Tree,
        bound: Bound<&[u8]>,
        mut share: Share,
    ) -> Result<Option<Entry>, TreeError> {
        // Only up to there: behind may be any number of own deletes.
        let own = |transaction: &Self, end: Bound<&[u8]>| {
            if is_empty(bound, end) {
                return None;
            }
            let after = transaction.own_writes(tree)?.range::<[u8], _>((bound, end));
            after.filter_map(|(key, write)| entry(key, write)).next()
        };
        let mut next: Option<Key> = None;
        loop {
            let goal = next.as_deref().or(key_of(bound)).unwrap_or_default();
            let page = self.page(tree, share.for_goal(Goal::At(goal))).await?;
            let start = match bound {
                Bound::Excluded(key) => page.cells.partition_point(|own| own <= key),
                Bound::Included(key) => page.cells.partition_point(|own| own < key),
                Bound::Unbounded => 0,
            };
            let stored = (start..page.cells.len()).find(|at| !self.hides(tree, page.cells.key(*at)));
            // An own one may come before, or in a leaf without any.
            let end = match (stored, &page.fence.high) {
                (Some(stored), _) => Bound::Excluded(page.cells.key(stored)),
                (None, Some(high)) => Bound::Excluded(&**high),
                (None, None) => Bound::Unbounded,
            };
            match (stored, own(self, end)) {
                (_, Some(own)) => return Ok(Some(own)),
                (Some(stored), None) => {
                    let value = self.value(tree, page.cells.value(stored)).await?;
                    return Ok(Some((page.cells.key(stored).into(), value)));
                }
                (None, None) => match &page.fence.high {
                    Some(high) => next = Some(high.clone()),
                    None => return Ok(None),
                },
            }
            share.grow();
        }
    }

    /// The last entry up to a bound, of as many that are wanted.
    async fn up_to(
        &mut self,
        tree: Tree,
        bound: Bound<&[u8]>,
        mut share: Share,
    ) -> Result<Option<Entry>, TreeError> {
        let own = |transaction: &Self, start: Bound<&[u8]>| {
            if is_empty(start, bound) {
                return None;
            }
            let before = transaction.own_writes(tree)?.range::<[u8], _>((start, bound));
            before.rev().filter_map(|(key, write)| entry(key, write)).next()
        };
        // The leaf of the key itself first: it may be there.
        let mut next: Option<Option<Key>> = match bound {
            Bound::Included(_) if share.cells_max == u64::MAX => None,
            // Cells from the key on would be the wrong ones.
            Bound::Included(key) => Some(KeyRange::only(key).high),
            Bound::Excluded([]) => return Ok(None),
            bound => Some(key_of(bound).map(Into::into)),
        };
        loop {
            let page = match (&next, key_of(bound)) {
                (Some(below), _) => self.page(tree, share.for_goal(Goal::Below(below.as_deref()))).await?,
                (None, key) => self.page(tree, share.for_goal(Goal::At(key.unwrap_or_default()))).await?,
            };
            let end = match bound {
                Bound::Excluded(key) => page.cells.partition_point(|own| own < key),
                Bound::Included(key) => page.cells.partition_point(|own| own <= key),
                Bound::Unbounded => page.cells.len(),
            };
            let stored = (0..end).rev().find(|at| !self.hides(tree, page.cells.key(*at)));
            let start = match stored {
                Some(stored) => Bound::Excluded(page.cells.key(stored)),
                None => Bound::Included(&*page.fence.low),
            };
            match (stored, own(self, start)) {
                (_, Some(own)) => return Ok(Some(own)),
                (Some(stored), None) => {
                    let value = self.value(tree, page.cells.value(stored)).await?;
                    return Ok(Some((page.cells.key(stored).into(), value)));
                }
                (None, None) if page.fence.low.is_empty() => return Ok(None),
                (None, None) => next = Some(Some(page.fence.low.clone())),
            }
            share.grow();
        }
    }

    /// Whether the transaction has written or deleted a stored key.
    fn hides(&self, tree: Tree, key: &[u8]) -> bool {
        self.own_writes(tree).is_some_and(|writes| writes.contains_key(key)) || self.is_deleted(tree, key)
    }
}
