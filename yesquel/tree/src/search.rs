//! Back-down search (section 4.1, figure 5): the cache says where the leaf
//! should be; a fence that says otherwise sends the search back up, to a node
//! that is fetched anew, and down from there.

use crate::{
    TreeError, Trees,
    cache::{Cache, Goal, Guess, Inner},
    page::{Cells, Page},
    stored::{Looked, Stored},
};
use crossbeam_utils::sync::{ShardedLockReadGuard, ShardedLockWriteGuard};
use std::sync::{Arc, PoisonError};
use yesquel_client::ReadView;
use yesquel_model::{Key, KeyRange, NodeId, Timestamp, limits};
use yesquel_transport::Transport;
use yesquel_wire::{Answer, CellValue, Direction, Followed, MovedTo, NodeKind, Question, Scan};

/// What is looked for, and how much of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) goal: Goal<'a>,
    /// So many cells from the goal on; `u64::MAX`: the whole leaf; 0: only what
    /// keys are its.
    pub(crate) cells_max: u64,
    /// The root of a tree to whose keys the cells refer that is read too.
    pub(crate) follow: Option<NodeId>,
}

impl Wanted<'_> {
    /// The leaf of a goal, whole.
    pub(crate) fn leaf(goal: Goal<'_>) -> Wanted<'_> {
        Wanted { goal, cells_max: u64::MAX, follow: None }
    }
}

/// A node as it was fetched.
pub(crate) enum Fetched {
    Leaf(Page),
    Inner(Arc<Inner>),
    /// It does not hold the key, or was not there.
    Moved(Option<MovedTo>),
}

/// Bytes of a leaf that are fetched at a time. Until it is split a leaf has
/// whatever transactions have put into it, which may be more than a message
/// takes (16 MiB).
const PAGE_BYTES_MAX: u64 = 4 << 20;

/// What cells refer to: their values begin with a key, and its length before
/// it.
fn followed_of(followed: &Followed<'_>) -> Vec<(Key, Option<Stored>)> {
    let told = followed.cells.iter().zip(followed.iter()).filter_map(|((_, cell), answer)| {
        let CellValue::Bytes(value) = cell else { return None };
        let (length, rest) = value.split_first()?;
        let key = rest.get(..usize::from(*length))?.into();
        match Looked::of(answer)? {
            Looked::Absent => Some((key, None)),
            Looked::Stored(stored) => Some((key, Some(stored))),
            Looked::Moved(_) => None,
        }
    });
    told.collect()
}

/// All cells of a node, if it holds the key.
fn all_cells(near: Option<&[u8]>) -> Scan {
    Scan { near: near.map(Into::into), ..Scan::all() }
}

/// Cells of a leaf that is very long.
const LONG_LEAF: usize = 1_000;

/// Nodes that one search fetches at most: on, back, and down again. All are seen as
/// of one snapshot, so that nothing changes between two fetches, and there is nothing
/// to wait for; and no tree is as high as that, for a floor more takes twice as many
/// splits.
const FETCHES_MAX: usize = 100;

/// Steps from node to node by where keys have gone. That is told as of now, and
/// leads nowhere for a snapshot that is older than all of the nodes.
pub(crate) const FORWARD_STEPS_MAX: usize = 4;

/// That a key may be one.
pub(crate) fn check_key(key: &[u8]) -> Result<(), TreeError> {
    let (bytes, bytes_max) = (key.len(), limits::KEY_BYTES_MAX);
    if bytes > bytes_max { Err(TreeError::TooLong { what: "a key", bytes, bytes_max }) } else { Ok(()) }
}

impl<T: Transport> Trees<T> {
    fn cache(&self) -> ShardedLockReadGuard<'_, Cache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache_mut(&self) -> ShardedLockWriteGuard<'_, Cache> {
        self.cache.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the cache thinks the leaf of a key. Nothing is allocated for it.
    pub(crate) fn leaf(&self, root: NodeId, key: &[u8]) -> NodeId {
        self.counters.searched();
        let leaf = self.cache().leaf(root, key);
        leaf.unwrap_or_else(|| self.guess_again(root, Goal::At(key)).leaf)
    }

    /// The same with the way to it.
    pub(crate) fn guess(&self, root: NodeId, goal: Goal<'_>) -> Guess {
        self.counters.searched();
        self.guess_again(root, goal)
    }

    /// The same for a search that is counted already.
    pub(crate) fn guess_again(&self, root: NodeId, goal: Goal<'_>) -> Guess {
        let guess = self.cache().guess(root, goal);
        guess.unwrap_or_else(|| {
            self.cache_mut().forget(root.tree);
            Guess { path: Vec::new(), leaf: root, fence: KeyRange::all() }
        })
    }

    /// Fetches a whole node, however long it is: for one who is in the server's
    /// process. An inner one goes into the cache.
    pub(crate) async fn fetch(
        &self,
        snapshot: &mut Option<Timestamp>,
        node: NodeId,
    ) -> Result<Fetched, TreeError> {
        let mut view = ReadView::from(*snapshot);
        let outcome = self.scan(&mut view, node, (all_cells(None), None)).await;
        *snapshot = view.snapshot;
        Ok(outcome?.0)
    }

    /// Fetches a node, if it holds the goal; of a long leaf the part with the
    /// goal, and of any leaf no more than so many cells from the goal on, if
    /// that is less than all.
    async fn fetch_for(
        &self,
        view: &mut ReadView,
        node: NodeId,
        Wanted { goal, cells_max, follow }: Wanted<'_>,
    ) -> Result<Fetched, TreeError> {
        let near = match goal {
            Goal::At(key) => Some(key),
            Goal::Below(_) => None,
        };
        let all = || all_cells(near);
        let part = || {
            if cells_max == 0 {
                // Only whose keys they are: of all of the node, not of a part.
                return Scan { cells_max, ..all() };
            }
            let (range, direction) = match goal {
                Goal::At(key) => (KeyRange { low: key.into(), high: None }, Direction::Up),
                Goal::Below(key) => {
                    (KeyRange { low: Key::default(), high: key.map(Into::into) }, Direction::Down)
                }
            };
            Scan { range, direction, cells_max, bytes_max: PAGE_BYTES_MAX, ..all() }
        };
        let again = if cells_max == u64::MAX {
            match self.scan(view, node, (Scan { bytes_max: PAGE_BYTES_MAX, ..all() }, follow)).await? {
                // A child may be missing for any goal.
                (Fetched::Inner(_), true) => all(),
                (Fetched::Leaf(page), true) if !goal.is_in(&page.fence) => part(),
                (fetched, _) => return Ok(fetched),
            }
        } else {
            match self.scan(view, node, (part(), follow)).await? {
                // Of an inner one all children are wanted.
                (Fetched::Inner(_), _) => all(),
                (fetched, _) => return Ok(fetched),
            }
        };
        Ok(self.scan(view, node, (again, follow)).await?.0)
    }

    /// Scans a node, and says whether there is more of it that way. An inner
    /// one that is whole goes into the cache.
    async fn scan(
        &self,
        view: &mut ReadView,
        node: NodeId,
        (scan, follow): (Scan, Option<NodeId>),
    ) -> Result<(Fetched, bool), TreeError> {
        let scan = Box::new(scan);
        let question = match follow {
            Some(root) if root.server == node.server => Question::Follow { node, scan, root },
            _ => Question::Scan { node, scan },
        };
        let (Question::Follow { scan, .. } | Question::Scan { scan, .. }) = &question else {
            return Err(yesquel_client::Error::Unfit.into());
        };
        let reading = self.client.read_at(view, node.server, std::slice::from_ref(&question)).await?;
        let answer = reading.answers().and_then(|answers| answers.iter().next());
        self.scanned(view.snapshot, node, (&scan.range, scan.direction), answer)
    }

    /// What an answer to a scan tells of a node, and whether there is more.
    pub(crate) fn scanned(
        &self,
        snapshot: Option<Timestamp>,
        node: NodeId,
        (range, direction): (&KeyRange, Direction),
        answer: Option<Answer<'_>>,
    ) -> Result<(Fetched, bool), TreeError> {
        let (cells, followed) = match answer {
            Some(Answer::Cells(cells)) => (cells, None),
            Some(Answer::Followed(followed)) => (followed.cells.clone(), Some(followed)),
            Some(Answer::Moved(to)) => return Ok((Fetched::Moved(to), false)),
            _ => return Err(yesquel_client::Error::Unfit.into()),
        };
        if cells.kind != NodeKind::Inner {
            let mut all = Cells::of(cells.told_bytes(), cells.iter()).ok_or(yesquel_client::Error::Unfit)?;
            let mut fence = cells.fence.intersection(range);
            match (direction, all.last_key()) {
                (Direction::Up, Some(last)) if cells.more => fence.high = KeyRange::single(last).high,
                (Direction::Down, Some(last)) if cells.more => fence.low = last.into(),
                _ => {}
            }
            let followed = followed.map_or_else(Vec::new, |followed| followed_of(&followed));
            if direction == Direction::Down {
                all.reverse();
            }
            return Ok((Fetched::Leaf(Page { node, fence, cells: all, followed }), cells.more));
        }
        self.counters.fetched(node.local == yesquel_model::LocalId::ROOT);
        let child = |value: CellValue<'_>| match value {
            CellValue::Bytes(bytes) => {
                bytes.try_into().map(|bits| NodeId::from_bits(u128::from_le_bytes(bits))).ok()
            }
            CellValue::Length(_) | CellValue::Large(_) => None,
        };
        let children: Option<Vec<(Key, NodeId)>> =
            cells.iter().map(|(key, value)| Some((Key::from(key), child(value)?))).collect();
        let children =
            children.ok_or(TreeError::Damaged(node.tree, "an inner node has a cell that is no child"))?;
        let inner = Arc::new(Inner::new(cells.fence, children, snapshot.unwrap_or_default()));
        if !cells.more && *range == KeyRange::all() {
            self.cache_mut().keep(node, &inner);
        }
        Ok((Fetched::Inner(inner), cells.more))
    }

    /// The leaf of a key and the keys that are its, for one who has no use for
    /// its cells: whoever writes there. From a node on that `path` leads to.
    pub(crate) async fn leaf_from(
        &self,
        root: NodeId,
        key: &[u8],
        path: Vec<NodeId>,
        mut node: NodeId,
    ) -> Result<(NodeId, KeyRange), TreeError> {
        for _ in 0..=FORWARD_STEPS_MAX {
            let scan = Scan { cells_max: 0, ..all_cells(Some(key)) };
            let reading = self
                .client
                .read(&mut None, node.server, &[Question::Scan { node, scan: scan.into() }])
                .await?;
            match reading.answers().and_then(|answers| answers.iter().next()) {
                Some(Answer::Cells(cells)) if cells.kind == NodeKind::Leaf => return Ok((node, cells.fence)),
                Some(Answer::Moved(Some(to))) if node != root => {
                    self.moved(&path, node, &to);
                    node = to.to;
                }
                _ => break,
            }
        }
        let wanted = Wanted { cells_max: 0, ..Wanted::leaf(Goal::At(key)) };
        let page = self.page_from(&mut ReadView::default(), root, wanted, path, node).await?;
        Ok((page.node, page.fence))
    }

    /// The leaf of a goal, or its part of a very long one, from a node on that
    /// `path` leads to. Of a leaf that the path leads to no more than so many
    /// cells are fetched, if that is less than all.
    pub(crate) async fn page_from(
        &self,
        view: &mut ReadView,
        root: NodeId,
        wanted: Wanted<'_>,
        mut path: Vec<NodeId>,
        mut node: NodeId,
    ) -> Result<Page, TreeError> {
        let (mut steps, goal) = (0, wanted.goal);
        for _ in 0..FETCHES_MAX {
            // A root may be an inner node, of which a part is of no use; unless it
            // is a leaf that was filled at once and is not split yet.
            let is_long = node == root && wanted.cells_max != u64::MAX && self.cache().is_long_leaf(root);
            let cells_max = if node == root && !is_long { u64::MAX } else { wanted.cells_max };
            match self.fetch_for(view, node, Wanted { cells_max, ..wanted }).await? {
                Fetched::Leaf(page) if goal.is_in(&page.fence) => {
                    if node == root && !is_long && page.cells.len() > LONG_LEAF {
                        self.cache_mut().note_leaf(root, true);
                    }
                    return Ok(page);
                }
                Fetched::Inner(_) if is_long => self.cache_mut().note_leaf(root, false),
                Fetched::Inner(inner) if goal.is_in(&inner.fence) => {
                    path.push(node);
                    let child = inner.child(goal);
                    (node, _) =
                        child.ok_or(TreeError::Damaged(root.tree, "an inner node has no child for a key"))?;
                }
                Fetched::Moved(Some(to)) if steps < FORWARD_STEPS_MAX && node != root => {
                    steps += 1;
                    self.moved(&path, node, &to);
                    node = to.to;
                }
                _ if node == root => return Err(TreeError::NoTree(root.tree)),
                _ => {
                    self.counters.stepped_back();
                    node = path.pop().unwrap_or(root);
                }
            }
        }
        let lost =
            "there is no leaf after a hundred nodes: they lead in circles, or it has grown without end";
        Err(TreeError::Damaged(root.tree, lost))
    }

    /// A node that a path led to has said where keys have gone.
    pub(crate) fn moved(&self, path: &[NodeId], from: NodeId, to: &MovedTo) {
        self.counters.followed();
        if let Some(parent) = path.last() {
            self.cache_mut().moved(*parent, from, to);
        }
    }
}
