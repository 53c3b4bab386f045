//! Back-down search (section 4.1, figure 5). The cache names the expected leaf. If the leaf's fence
//! excludes the key, the search backs up to an ancestor, fetches that anew, and goes down from
//! there.

use crate::{
    TreeError, Trees,
    cache::{Cache, Goal, Guess, InnerNode},
    page::{Page, PageCells},
    stored::{LookupAnswer, StoredValue},
};
use crossbeam_utils::sync::{ShardedLockReadGuard, ShardedLockWriteGuard};
use std::sync::{Arc, PoisonError};
use yesquel_client::ReadView;
use yesquel_model::{Key, KeyRange, NodeId, Timestamp, limits};
use yesquel_transport::Transport;
use yesquel_wire::{Answer, CellValue, Direction, Followed, MovedTo, NodeKind, Question, Scan};

/// Goal of a search, and how much of the leaf to fetch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRequest<'a> {
    pub(crate) goal: Goal<'a>,
    /// Number of cells to fetch, from the goal on; `u64::MAX`: the whole leaf; 0: only its range.
    pub(crate) cells_max: u64,
    /// Root of the tree that the cells' values refer to, if its entries are wanted too.
    pub(crate) follow: Option<NodeId>,
}

impl PageRequest<'_> {
    /// Bytes of a leaf that are fetched at a time. Before it is split, a leaf may exceed a message
    /// (16 MiB).
    pub(crate) const BYTES_MAX: u64 = 4 << 20;

    /// Requests the whole leaf of a goal.
    pub(crate) fn leaf(goal: Goal<'_>) -> PageRequest<'_> {
        PageRequest { goal, cells_max: u64::MAX, follow: None }
    }
}

/// Node as fetched.
pub(crate) enum Fetched {
    Leaf(Page),
    Inner(Arc<InnerNode>),
    /// The node does not exist or does not own the key.
    Moved(Option<MovedTo>),
}

/// Returns the key to which a value refers: the value begins with it, preceded by its length.
pub(crate) fn referred_key(value: &[u8]) -> Option<&[u8]> {
    let (length, rest) = value.split_first()?;
    rest.get(..usize::from(*length))
}

/// Decodes the entries that the cells refer to.
fn followed_of(followed: &Followed<'_>) -> Vec<(Key, Option<StoredValue>)> {
    let entries = followed.cells.iter().zip(followed.iter()).filter_map(|((_, cell), answer)| {
        let CellValue::Bytes(value) = cell else { return None };
        let key = referred_key(value)?.into();
        match LookupAnswer::of(answer)? {
            LookupAnswer::Absent => Some((key, None)),
            LookupAnswer::Stored(stored) => Some((key, Some(stored))),
            LookupAnswer::Moved(_) => None,
        }
    });
    entries.collect()
}

/// Scan for all cells of a node, if it owns the key.
fn all_cells(near: Option<&[u8]>) -> Scan {
    Scan { near: near.map(Into::into), ..Scan::all() }
}

/// Number of cells from which a leaf counts as very long.
const LONG_LEAF: usize = 1_000;

/// Maximum number of nodes that one search fetches: forward, back and down again. All are read at
/// one snapshot, so that nothing changes between fetches and there is nothing to wait for. No tree
/// is this high: each level needs twice as many splits as the one below.
const FETCHES_MAX: usize = 100;

/// Maximum number of forward steps. Nodes report their moves as of now, which leads nowhere for a
/// snapshot that is older than all of the nodes.
pub(crate) const FORWARD_STEPS_MAX: usize = 4;

/// Checks the length of a key.
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

    /// Returns the expected leaf of a key, without allocating.
    pub(crate) fn leaf(&self, root: NodeId, key: &[u8]) -> NodeId {
        self.counters.searched();
        let leaf = self.cache().leaf(root, key);
        leaf.unwrap_or_else(|| self.guess_again(root, Goal::At(key)).leaf)
    }

    /// Returns the expected leaf of a goal and the path to it.
    pub(crate) fn guess(&self, root: NodeId, goal: Goal<'_>) -> Guess {
        self.counters.searched();
        self.guess_again(root, goal)
    }

    /// Like [`guess`](Self::guess), without counting a search.
    pub(crate) fn guess_again(&self, root: NodeId, goal: Goal<'_>) -> Guess {
        let guess = self.cache().guess(root, goal);
        guess.unwrap_or_else(|| {
            self.cache_mut().forget(root.tree);
            Guess { path: Vec::new(), leaf: root, fence: KeyRange::all() }
        })
    }

    /// Fetches a whole node of any length: for a client inside the server's process. Caches an
    /// inner node.
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

    /// Fetches a node if it owns the goal: of a long leaf the part around the goal, and of any leaf
    /// at most `cells_max` cells from the goal on.
    async fn fetch_for(
        &self,
        view: &mut ReadView,
        node: NodeId,
        PageRequest { goal, cells_max, follow }: PageRequest<'_>,
    ) -> Result<Fetched, TreeError> {
        let near = match goal {
            Goal::At(key) => Some(key),
            Goal::Below(_) => None,
        };
        let all = || all_cells(near);
        let part = || {
            if cells_max == 0 {
                // Only the range, which must be that of the whole node.
                return Scan { cells_max, ..all() };
            }
            let (range, direction) = match goal {
                Goal::At(key) => (KeyRange { low: key.into(), high: None }, Direction::Up),
                Goal::Below(key) => {
                    (KeyRange { low: Key::default(), high: key.map(Into::into) }, Direction::Down)
                }
            };
            Scan { range, direction, cells_max, bytes_max: PageRequest::BYTES_MAX, ..all() }
        };
        let again = if cells_max == u64::MAX {
            match self.scan(view, node, (Scan { bytes_max: PageRequest::BYTES_MAX, ..all() }, follow)).await?
            {
                // Any child may be the one that is needed.
                (Fetched::Inner(_), true) => all(),
                (Fetched::Leaf(page), true) if !goal.is_in(&page.fence) => part(),
                (fetched, _) => return Ok(fetched),
            }
        } else {
            match self.scan(view, node, (part(), follow)).await? {
                // All children of an inner node are needed.
                (Fetched::Inner(_), _) => all(),
                (fetched, _) => return Ok(fetched),
            }
        };
        Ok(self.scan(view, node, (again, follow)).await?.0)
    }

    /// Scans a node; returns it and whether there is more in that direction. Caches a complete
    /// inner node.
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
            return Err(yesquel_client::RequestError::UnexpectedAnswer.into());
        };
        let reading = self.client.read_at(view, node.server, std::slice::from_ref(&question)).await?;
        let answer = reading.answers().and_then(|answers| answers.iter().next());
        self.scanned(view.snapshot, node, (&scan.range, scan.direction), answer)
    }

    /// Decodes the answer to a scan, and whether there is more.
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
            _ => return Err(yesquel_client::RequestError::UnexpectedAnswer.into()),
        };
        if cells.kind != NodeKind::Inner {
            let mut all = PageCells::of(cells.told_bytes(), cells.iter())
                .ok_or(yesquel_client::RequestError::UnexpectedAnswer)?;
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
        let inner = Arc::new(InnerNode::new(cells.fence, children, snapshot.unwrap_or_default()));
        if !cells.more && *range == KeyRange::all() && self.caches_inner_nodes() {
            self.cache_mut().keep(node, &inner);
        }
        Ok((Fetched::Inner(inner), cells.more))
    }

    /// Finds the leaf of a key and its range, without cells, for a writer. Starts at the last node
    /// of `path`.
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
        let wanted = PageRequest { cells_max: 0, ..PageRequest::leaf(Goal::At(key)) };
        let page = self.page_from(&mut ReadView::default(), root, wanted, path, node).await?;
        Ok((page.node, page.fence))
    }

    /// Finds the leaf of a goal, or its part of a very long leaf, starting at the last node of
    /// `path`. Of that leaf at most `cells_max` cells are fetched.
    pub(crate) async fn page_from(
        &self,
        view: &mut ReadView,
        root: NodeId,
        wanted: PageRequest<'_>,
        mut path: Vec<NodeId>,
        mut node: NodeId,
    ) -> Result<Page, TreeError> {
        let (mut steps, goal) = (0, wanted.goal);
        for _ in 0..FETCHES_MAX {
            // Part of a root is useless if it is an inner node, unless it is known as a leaf
            // that was bulk loaded and not split yet.
            let is_long = node == root && wanted.cells_max != u64::MAX && self.cache().is_long_leaf(root);
            let cells_max = if node == root && !is_long { u64::MAX } else { wanted.cells_max };
            match self.fetch_for(view, node, PageRequest { cells_max, ..wanted }).await? {
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

    /// Updates the cache: a node that `path` led to has reported where keys have moved.
    pub(crate) fn moved(&self, path: &[NodeId], from: NodeId, to: &MovedTo) {
        self.counters.followed();
        if let Some(parent) = path.last() {
            self.cache_mut().moved(*parent, from, to);
        }
    }
}
