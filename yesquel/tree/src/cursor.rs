//! Cursors: the keys of a tree in order, both ways, as a transaction sees
//! them.

use crate::{
    Transaction, Tree, TreeError,
    cache::Goal,
    gap::{PASSED_MIN, high_of, low_of},
    page::Page,
    search::Wanted,
    write::Write,
};
use std::{borrow::Cow, cmp::Ordering, ops::Bound};
use yesquel_model::{Key, KeyRange, NodeId, short_bound};
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
    fn new(tree: Tree) -> Cursor {
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
        transaction.looks(self.tree, key);
        let found = transaction.from(self.tree, Bound::Included(&short_bound(key)), self.share()).await?;
        Ok(self.arrive(found, Place::After))
    }

    /// Goes to a key, or to the one before it if it is not there, as the
    /// paper's `seek` does (figure 4).
    pub async fn seek_back<T: Transport>(
        &mut self,
        transaction: &mut Transaction<'_, T>,
        key: &[u8],
    ) -> Result<Option<Entry>, TreeError> {
        transaction.looks(self.tree, key);
        let found = transaction.up_to(self.tree, Bound::Included(&short_bound(key)), self.share()).await?;
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

/// What comes first of a page's cells and the transaction's own writes.
enum Nearest {
    Own(Entry),
    /// The place of its cell.
    Stored(usize),
}

/// One look into a page.
struct Step {
    /// The next entry, if the page has it.
    nearest: Option<Nearest>,
    /// Deleted entries that were passed on the way.
    passed: usize,
}

impl Step {
    /// Of a transaction that sees what is stored.
    fn stored(cell: Option<usize>) -> Step {
        Step { nearest: cell.map(Nearest::Stored), passed: 0 }
    }
}

/// The page to read next on the way down.
enum PageGoal<'k> {
    /// The page of a key.
    At(&'k [u8]),
    /// The page of what is below a key, or of the greatest keys.
    Below(Option<Cow<'k, [u8]>>),
}

impl PageGoal<'_> {
    fn goal(&self) -> Goal<'_> {
        match self {
            PageGoal::At(key) => Goal::At(key),
            PageGoal::Below(key) => Goal::Below(key.as_deref()),
        }
    }
}

impl<T: Transport> Transaction<'_, T> {
    /// A cursor over a tree, which sees what the transaction writes too.
    pub fn cursor(&self, tree: Tree) -> Cursor {
        Cursor::new(tree)
    }

    /// What of cells and own writes, both in the order in which one goes, comes
    /// first and is there. What is behind it is not looked at: it may be any number.
    fn nearest<'w>(
        &self,
        tree: Tree,
        page: &Page,
        cells: impl Iterator<Item = usize>,
        own: impl Iterator<Item = (&'w Key, &'w Write)>,
        order: impl Fn(&[u8], &[u8]) -> Ordering,
    ) -> Step {
        let (mut cells, mut own, mut passed) = (cells.peekable(), own.peekable(), 0);
        loop {
            let stored = cells.peek().map(|at| (*at, page.cells.key(*at)));
            let first = match (own.peek(), stored) {
                (None, None) => return Step { nearest: None, passed },
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((own, _)), Some((_, stored))) => order(own, stored),
            };
            if first.is_le()
                && let Some((key, write)) = own.next()
            {
                if let Some(value) = &write.value {
                    return Step { nearest: Some(Nearest::Own((key.clone(), value.clone()))), passed };
                }
            } else if let Some((at, key)) = stored
                && !self.is_deleted(tree, key)
            {
                return Step { nearest: Some(Nearest::Stored(at)), passed };
            }
            if first.is_ge() {
                cells.next();
            }
            passed += 1;
        }
    }

    /// Whether all that is stored in a tree is seen, and nothing else: a transaction
    /// that only reads steps from cell to cell.
    fn is_as_stored(&self, tree: Tree) -> bool {
        self.own_writes(tree).is_none() && self.deletes_nothing_whole()
    }

    /// Own writes of a tree within bounds.
    fn own_between<'s>(
        &'s self,
        tree: Tree,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&'s Key, &'s Write)> + use<'s, T> {
        let own = self.own_writes(tree).filter(|_| !is_empty(start, end));
        own.map(|own| own.range::<[u8], _>((start, end))).into_iter().flatten()
    }

    /// The first entry from a bound on, of as many that are wanted.
    async fn from(
        &mut self,
        tree: Tree,
        bound: Bound<&[u8]>,
        mut share: Share,
    ) -> Result<Option<Entry>, TreeError> {
        let gap = self.gaps.above(tree.root, bound).cloned();
        let bound = match gap.as_ref().map(|gap| gap.high.as_deref()) {
            None => bound,
            Some(Some(high)) => Bound::Included(high),
            Some(None) => return Ok(None),
        };
        let (mut next, mut passed): (Option<Key>, usize) = (None, 0);
        loop {
            let goal = next.as_deref().or(key_of(bound)).unwrap_or_default();
            let page = self.page(tree, share.for_goal(Goal::At(goal))).await?;
            // From where the page before has ended: another may go over some of the same.
            let from = next.as_deref().map_or(bound, Bound::Included);
            let start = match from {
                Bound::Excluded(key) => page.cells.partition_point(|own| own <= key),
                Bound::Included(key) => page.cells.partition_point(|own| own < key),
                Bound::Unbounded => 0,
            };
            let end = page.fence.high.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut cells = start..page.cells.len();
            let step = if self.is_as_stored(tree) {
                Step::stored(cells.next())
            } else {
                self.nearest(tree, &page, cells, self.own_between(tree, from, end), |a, b| a.cmp(b))
            };
            passed += step.passed;
            self.trees.counters.passed(step.passed);
            if step.nearest.is_none() && page.fence.high.is_some() {
                next.clone_from(&page.fence.high);
                share.grow();
                continue;
            }
            let found = self.entry(tree, &page, step.nearest).await?;
            if passed >= if gap.is_some() { 1 } else { PASSED_MIN } {
                let low = gap.as_ref().map_or_else(|| low_of(bound), |gap| gap.low.clone());
                self.gaps.put(tree.root, KeyRange { low, high: found.as_ref().map(|(key, _)| key.clone()) });
            }
            return Ok(found);
        }
    }

    /// An entry with its value.
    async fn entry(
        &mut self,
        tree: Tree,
        page: &Page,
        nearest: Option<Nearest>,
    ) -> Result<Option<Entry>, TreeError> {
        match nearest {
            Some(Nearest::Stored(at)) => {
                let value = self.value(tree, page.cells.value(at)).await?;
                Ok(Some((page.cells.key(at).into(), value)))
            }
            Some(Nearest::Own(entry)) => Ok(Some(entry)),
            None => Ok(None),
        }
    }

    /// The last entry up to a bound, of as many that are wanted.
    async fn up_to(
        &mut self,
        tree: Tree,
        bound: Bound<&[u8]>,
        mut share: Share,
    ) -> Result<Option<Entry>, TreeError> {
        let gap = self.gaps.below(tree.root, bound).cloned();
        let bound = gap.as_ref().map_or(bound, |gap| Bound::Excluded(&*gap.low));
        // The leaf of the key itself first: it may be there.
        let mut next = match bound {
            Bound::Included(key) if share.cells_max == u64::MAX => PageGoal::At(key),
            // Cells from the key on would be the wrong ones.
            Bound::Included(key) => {
                PageGoal::Below(KeyRange::single(key).high.map(|high| high.into_vec().into()))
            }
            Bound::Excluded([]) => return Ok(None),
            bound => PageGoal::Below(key_of(bound).map(Cow::Borrowed)),
        };
        // The least key that was passed by, with its page.
        let (mut low, mut passed): (Option<Key>, usize) = (None, 0);
        loop {
            let page = self.page(tree, share.for_goal(next.goal())).await?;
            let to = low.as_deref().map_or(bound, Bound::Excluded);
            let end = match to {
                Bound::Excluded(key) => page.cells.partition_point(|own| own < key),
                Bound::Included(key) => page.cells.partition_point(|own| own <= key),
                Bound::Unbounded => page.cells.len(),
            };
            let mut cells = (0..end).rev();
            let step = if self.is_as_stored(tree) {
                Step::stored(cells.next())
            } else {
                let own = self.own_between(tree, Bound::Included(&page.fence.low), to).rev();
                self.nearest(tree, &page, cells, own, |a, b| b.cmp(a))
            };
            passed += step.passed;
            self.trees.counters.passed(step.passed);
            if step.nearest.is_none() && !page.fence.low.is_empty() {
                next = PageGoal::Below(Some(page.fence.low.to_vec().into()));
                low = Some(page.fence.low.clone());
                share.grow();
                continue;
            }
            let found = self.entry(tree, &page, step.nearest).await?;
            if passed >= if gap.is_some() { 1 } else { PASSED_MIN } {
                let high = gap.as_ref().map_or_else(|| high_of(bound), |gap| gap.high.clone());
                let low = found.as_ref().map_or_else(Key::default, |(key, _)| low_of(Bound::Excluded(key)));
                self.gaps.put(tree.root, KeyRange { low, high });
            }
            return Ok(found);
        }
    }
}
