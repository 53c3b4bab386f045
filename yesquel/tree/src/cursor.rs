//! Cursors: iterate over a tree in key order, in both directions, as a transaction sees it.

use crate::{
    Tree, TreeError, TreeTransaction,
    cache::Goal,
    gap::{PASSED_MIN, high_of, low_of},
    page::Page,
    search::PageRequest,
    write::BufferedWrite,
};
use std::{borrow::Cow, cmp::Ordering, ops::Bound};
use yesquel_model::{Key, KeyRange, NodeId, short_bound};
use yesquel_transport::Transport;

/// Growth factor of the fetch size when a fetch returned nothing visible, since more of the
/// transaction's deleted keys may follow.
const MORE: u64 = 16;

/// Key and value.
type CursorEntry = (Key, Box<[u8]>);

/// Position in a tree: on a key, before the first or after the last. If the key is deleted
/// meanwhile, the next step continues from its place.
#[derive(Debug, Clone)]
pub struct TreeCursor {
    tree: Tree,
    position: CursorPosition,
    /// Number of further entries that the caller wants.
    wanted: u64,
    /// Root of the tree that the entries' values refer to.
    follow: Option<NodeId>,
}

/// Limit on how much of a leaf is fetched.
#[derive(Debug, Clone, Copy)]
struct FetchLimit {
    cells_max: u64,
    follow: Option<NodeId>,
}

impl FetchLimit {
    fn for_goal(self, goal: Goal<'_>) -> PageRequest<'_> {
        PageRequest { goal, cells_max: self.cells_max, follow: self.follow }
    }

    /// Enlarges the limit after a fetch that returned too little.
    fn grow(&mut self) {
        self.cells_max = self.cells_max.saturating_mul(MORE);
    }
}

#[derive(Debug, Clone, PartialEq)]
enum CursorPosition {
    Before,
    On(Key),
    After,
}

impl TreeCursor {
    fn new(tree: Tree) -> TreeCursor {
        TreeCursor { tree, position: CursorPosition::Before, wanted: u64::MAX, follow: None }
    }

    /// Returns the key at the cursor.
    pub fn key(&self) -> Option<&[u8]> {
        match &self.position {
            CursorPosition::On(key) => Some(key),
            CursorPosition::Before | CursorPosition::After => None,
        }
    }

    /// Announces that at most `entries` further entries are wanted, so that only so many cells of a
    /// leaf are fetched. The cursor may still move further, at the cost of another fetch.
    pub fn limit(&mut self, entries: u64) {
        self.wanted = entries;
    }

    /// Also reads the entries of another tree that this tree's values refer to: a value begins with
    /// a key of the other tree, preceded by the key's length in one byte. If both are at one
    /// server, this costs no further request, otherwise one to each server, in parallel. Then
    /// [`get`](TreeTransaction::get) of such a key costs none.
    pub fn follow(&mut self, tree: Option<Tree>) {
        self.follow = tree.map(|tree| tree.root);
    }

    fn fetch_limit(&self) -> FetchLimit {
        FetchLimit { cells_max: self.wanted.max(1), follow: self.follow }
    }

    fn arrive(&mut self, found: Option<CursorEntry>, end: CursorPosition) -> Option<CursorEntry> {
        if self.wanted != u64::MAX {
            self.wanted = self.wanted.saturating_sub(1);
        }
        match (&found, &mut self.position) {
            // Keys mostly have the same length: reuse the buffer.
            (Some((key, _)), CursorPosition::On(own)) if own.len() == key.len() => own.copy_from_slice(key),
            (Some((key, _)), place) => *place = CursorPosition::On(key.clone()),
            (None, place) => *place = end,
        }
        found
    }

    /// Positions the cursor on a key, present or not, without fetching anything.
    pub fn place(&mut self, key: &[u8]) {
        self.position = CursorPosition::On(key.into());
    }

    /// Moves to a key, or to the next one if it is absent.
    pub async fn seek<T: Transport>(
        &mut self,
        transaction: &mut TreeTransaction<'_, T>,
        key: &[u8],
    ) -> Result<Option<CursorEntry>, TreeError> {
        transaction.count_lookup(self.tree, key);
        let found =
            transaction.from(self.tree, Bound::Included(&short_bound(key)), self.fetch_limit()).await?;
        Ok(self.arrive(found, CursorPosition::After))
    }

    /// Moves to a key, or to the previous one if it is absent, like the paper's `seek` (figure 4).
    pub async fn seek_back<T: Transport>(
        &mut self,
        transaction: &mut TreeTransaction<'_, T>,
        key: &[u8],
    ) -> Result<Option<CursorEntry>, TreeError> {
        transaction.count_lookup(self.tree, key);
        let found =
            transaction.up_to(self.tree, Bound::Included(&short_bound(key)), self.fetch_limit()).await?;
        Ok(self.arrive(found, CursorPosition::Before))
    }

    /// Moves to the least key.
    pub async fn first<T: Transport>(
        &mut self,
        transaction: &mut TreeTransaction<'_, T>,
    ) -> Result<Option<CursorEntry>, TreeError> {
        self.position = CursorPosition::Before;
        self.next(transaction).await
    }

    /// Moves to the greatest key.
    pub async fn last<T: Transport>(
        &mut self,
        transaction: &mut TreeTransaction<'_, T>,
    ) -> Result<Option<CursorEntry>, TreeError> {
        self.position = CursorPosition::After;
        self.previous(transaction).await
    }

    /// Moves to the next key.
    pub async fn next<T: Transport>(
        &mut self,
        transaction: &mut TreeTransaction<'_, T>,
    ) -> Result<Option<CursorEntry>, TreeError> {
        let found = match &self.position {
            CursorPosition::Before => {
                transaction.from(self.tree, Bound::Unbounded, self.fetch_limit()).await?
            }
            CursorPosition::On(key) => {
                transaction.from(self.tree, Bound::Excluded(key), self.fetch_limit()).await?
            }
            CursorPosition::After => None,
        };
        Ok(self.arrive(found, CursorPosition::After))
    }

    /// Moves to the previous key.
    pub async fn previous<T: Transport>(
        &mut self,
        transaction: &mut TreeTransaction<'_, T>,
    ) -> Result<Option<CursorEntry>, TreeError> {
        let found = match &self.position {
            CursorPosition::Before => None,
            CursorPosition::On(key) => {
                transaction.up_to(self.tree, Bound::Excluded(key), self.fetch_limit()).await?
            }
            CursorPosition::After => {
                transaction.up_to(self.tree, Bound::Unbounded, self.fetch_limit()).await?
            }
        };
        Ok(self.arrive(found, CursorPosition::Before))
    }
}

/// Returns the key of a bound.
fn key_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// Returns whether the range is empty. `BTreeMap::range` panics on some of these.
fn is_empty(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (start, end) => key_of(start) >= key_of(end),
    }
}

/// Next visible entry: a stored cell or an own write.
enum Nearest {
    Own(CursorEntry),
    /// Index of the cell.
    Stored(usize),
}

/// Result of searching one page.
struct PageStep {
    /// Next entry, if the page has one.
    nearest: Option<Nearest>,
    /// Number of deleted entries skipped.
    passed: usize,
}

impl PageStep {
    /// Step of a transaction that sees exactly what is stored.
    fn stored(cell: Option<usize>) -> PageStep {
        PageStep { nearest: cell.map(Nearest::Stored), passed: 0 }
    }
}

/// Page to read next in a backward scan.
enum PageGoal<'k> {
    /// The page of a key.
    At(&'k [u8]),
    /// The page of the keys below a key, or of the greatest keys.
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

impl<T: Transport> TreeTransaction<'_, T> {
    /// Returns a cursor over a tree, which also sees the transaction's own writes.
    pub fn cursor(&self, tree: Tree) -> TreeCursor {
        TreeCursor::new(tree)
    }

    /// Merges cells and own writes, both in scan order, and returns the first visible entry. It
    /// stops there, for any number may follow.
    fn nearest<'w>(
        &self,
        tree: Tree,
        page: &Page,
        cells: impl Iterator<Item = usize>,
        own: impl Iterator<Item = (&'w Key, &'w BufferedWrite)>,
        order: impl Fn(&[u8], &[u8]) -> Ordering,
    ) -> PageStep {
        let (mut cells, mut own, mut passed) = (cells.peekable(), own.peekable(), 0);
        loop {
            let stored = cells.peek().map(|at| (*at, page.cells.key(*at)));
            let first = match (own.peek(), stored) {
                (None, None) => return PageStep { nearest: None, passed },
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((own, _)), Some((_, stored))) => order(own, stored),
            };
            if first.is_le()
                && let Some((key, write)) = own.next()
            {
                if let Some(value) = &write.value {
                    return PageStep { nearest: Some(Nearest::Own((key.clone(), value.clone()))), passed };
                }
            } else if let Some((at, key)) = stored
                && !self.is_deleted(tree, key)
            {
                return PageStep { nearest: Some(Nearest::Stored(at)), passed };
            }
            if first.is_ge() {
                cells.next();
            }
            passed += 1;
        }
    }

    /// Returns whether the transaction sees exactly what is stored in a tree. A read-only
    /// transaction then steps from cell to cell.
    fn is_as_stored(&self, tree: Tree) -> bool {
        self.own_writes(tree).is_none() && self.deletes_nothing_whole()
    }

    /// Own writes to a tree within bounds.
    fn own_between<'s>(
        &'s self,
        tree: Tree,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&'s Key, &'s BufferedWrite)> + use<'s, T> {
        let own = self.own_writes(tree).filter(|_| !is_empty(start, end));
        own.map(|own| own.range::<[u8], _>((start, end))).into_iter().flatten()
    }

    /// Returns the first entry at or above a bound.
    async fn from(
        &mut self,
        tree: Tree,
        bound: Bound<&[u8]>,
        mut limit: FetchLimit,
    ) -> Result<Option<CursorEntry>, TreeError> {
        let gap = self.gaps.above(tree.root, bound).cloned();
        let begin = bound;
        let bound = match gap.as_ref().map(|gap| gap.high.as_deref()) {
            None => bound,
            Some(Some(high)) => Bound::Included(high),
            Some(None) => {
                self.note_step_up(tree, begin, None);
                return Ok(None);
            }
        };
        let (mut next, mut passed): (Option<Key>, usize) = (None, 0);
        loop {
            let goal = next.as_deref().or(key_of(bound)).unwrap_or_default();
            let page = self.page(tree, limit.for_goal(Goal::At(goal))).await?;
            // Start where the previous page ended: pages may overlap.
            let from = next.as_deref().map_or(bound, Bound::Included);
            let start = match from {
                Bound::Excluded(key) => page.cells.partition_point(|own| own <= key),
                Bound::Included(key) => page.cells.partition_point(|own| own < key),
                Bound::Unbounded => 0,
            };
            let end = page.fence.high.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut cells = start..page.cells.len();
            let step = if self.is_as_stored(tree) {
                PageStep::stored(cells.next())
            } else {
                self.nearest(tree, &page, cells, self.own_between(tree, from, end), |a, b| a.cmp(b))
            };
            passed += step.passed;
            self.trees.counters.passed(step.passed);
            if step.nearest.is_none() && page.fence.high.is_some() {
                next.clone_from(&page.fence.high);
                limit.grow();
                continue;
            }
            let found = self.entry(tree, &page, step.nearest).await?;
            if passed >= if gap.is_some() { 1 } else { PASSED_MIN } {
                let low = gap.as_ref().map_or_else(|| low_of(bound), |gap| gap.low.clone());
                self.gaps.put(tree.root, KeyRange { low, high: found.as_ref().map(|(key, _)| key.clone()) });
            }
            self.note_step_up(tree, begin, found.as_ref().map(|(key, _)| key));
            return Ok(found);
        }
    }

    /// Loads the value of an entry.
    async fn entry(
        &mut self,
        tree: Tree,
        page: &Page,
        nearest: Option<Nearest>,
    ) -> Result<Option<CursorEntry>, TreeError> {
        match nearest {
            Some(Nearest::Stored(at)) => {
                let value = self.value(tree, page.cells.value(at)).await?;
                Ok(Some((page.cells.key(at).into(), value)))
            }
            Some(Nearest::Own(entry)) => Ok(Some(entry)),
            None => Ok(None),
        }
    }

    /// Returns the last entry up to a bound.
    async fn up_to(
        &mut self,
        tree: Tree,
        bound: Bound<&[u8]>,
        mut limit: FetchLimit,
    ) -> Result<Option<CursorEntry>, TreeError> {
        let gap = self.gaps.below(tree.root, bound).cloned();
        let begin = bound;
        let bound = gap.as_ref().map_or(bound, |gap| Bound::Excluded(&*gap.low));
        // Start with the leaf of the key itself, which may hold it.
        let mut next = match bound {
            Bound::Included(key) if limit.cells_max == u64::MAX => PageGoal::At(key),
            // A partial fetch starts at the key, and this scan needs the cells before it.
            Bound::Included(key) => {
                PageGoal::Below(KeyRange::single(key).high.map(|high| high.into_vec().into()))
            }
            Bound::Excluded([]) => {
                self.note_step_down(tree, begin, None);
                return Ok(None);
            }
            bound => PageGoal::Below(key_of(bound).map(Cow::Borrowed)),
        };
        // Least key that was skipped, and the number skipped.
        let (mut low, mut passed): (Option<Key>, usize) = (None, 0);
        loop {
            let page = self.page(tree, limit.for_goal(next.goal())).await?;
            let to = low.as_deref().map_or(bound, Bound::Excluded);
            let end = match to {
                Bound::Excluded(key) => page.cells.partition_point(|own| own < key),
                Bound::Included(key) => page.cells.partition_point(|own| own <= key),
                Bound::Unbounded => page.cells.len(),
            };
            let mut cells = (0..end).rev();
            let step = if self.is_as_stored(tree) {
                PageStep::stored(cells.next())
            } else {
                let own = self.own_between(tree, Bound::Included(&page.fence.low), to).rev();
                self.nearest(tree, &page, cells, own, |a, b| b.cmp(a))
            };
            passed += step.passed;
            self.trees.counters.passed(step.passed);
            if step.nearest.is_none() && !page.fence.low.is_empty() {
                next = PageGoal::Below(Some(page.fence.low.to_vec().into()));
                low = Some(page.fence.low.clone());
                limit.grow();
                continue;
            }
            let found = self.entry(tree, &page, step.nearest).await?;
            if passed >= if gap.is_some() { 1 } else { PASSED_MIN } {
                let high = gap.as_ref().map_or_else(|| high_of(bound), |gap| gap.high.clone());
                let low = found.as_ref().map_or_else(Key::default, |(key, _)| low_of(Bound::Excluded(key)));
                self.gaps.put(tree.root, KeyRange { low, high });
            }
            self.note_step_down(tree, begin, found.as_ref().map(|(key, _)| key));
            return Ok(found);
        }
    }
}
