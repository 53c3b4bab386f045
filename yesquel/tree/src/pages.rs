//! Leaves that a transaction has read, for its next reads (the per-transaction cache of section 5).
//! They are valid as long as its snapshot.

use crate::{cache::Goal, page::Page, stored::StoredValue};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use yesquel_model::{Key, NodeId};

/// Default limit on cached bytes: a scan of a large tree must not cache all of it.
const BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Default)]
pub(crate) struct Pages {
    by_node: FxHashMap<NodeId, Arc<Page>>,
    /// Page used last, with the root of its tree: the next cursor step is mostly within it.
    last: Option<(NodeId, Arc<Page>)>,
    /// Single entries of trees, which came along with entries that refer to them.
    single: FxHashMap<NodeId, FxHashMap<Key, Option<StoredValue>>>,
    bytes: usize,
    /// Additional bytes that may be cached.
    more: usize,
}

impl Pages {
    /// Raises the limit on cached bytes; it never falls below the default.
    pub(crate) fn keep_up_to(&mut self, bytes: usize) {
        self.more = bytes.saturating_sub(BYTES_MAX);
    }

    /// Returns the page used last, if a goal is in it.
    pub(crate) fn last(&self, root: NodeId, goal: Goal<'_>) -> Option<Arc<Page>> {
        let (own, page) = self.last.as_ref()?;
        (*own == root && goal.is_in(&page.fence)).then(|| Arc::clone(page))
    }

    /// Returns the page of a node, if a goal is in it.
    pub(crate) fn get(&self, node: NodeId, goal: Goal<'_>) -> Option<&Arc<Page>> {
        self.by_node.get(&node).filter(|page| goal.is_in(&page.fence))
    }

    /// Notes that a page of the tree with this root was used.
    pub(crate) fn used(&mut self, root: NodeId, page: &Arc<Page>) {
        self.last = Some((root, Arc::clone(page)));
    }

    /// Returns what is stored under a key of the tree with this root, if known.
    pub(crate) fn single(&self, root: NodeId, key: &[u8]) -> Option<&Option<StoredValue>> {
        // Mostly there are none.
        if self.single.is_empty() { None } else { self.single.get(&root)?.get(key) }
    }

    /// Caches single entries of the tree with this root.
    pub(crate) fn keep_singles(&mut self, root: NodeId, singles: Vec<(Key, Option<StoredValue>)>) {
        if singles.is_empty() {
            return;
        }
        let weigh = |(key, stored): &(Key, Option<StoredValue>)| {
            size_of::<(Key, Option<StoredValue>)>() + key.len() + stored.as_ref().map_or(0, value_weight)
        };
        self.make_room(singles.iter().map(weigh).sum());
        self.single.entry(root).or_default().extend(singles);
    }

    fn make_room(&mut self, more: usize) {
        if self.bytes + more > BYTES_MAX + self.more {
            self.by_node.clear();
            self.single.clear();
            self.bytes = 0;
        }
        self.bytes += more;
    }

    /// Drops everything of a tree, which will be read at another snapshot.
    pub(crate) fn forget(&mut self, root: NodeId) {
        self.last = self.last.take().filter(|(own, _)| *own != root);
        self.single.remove(&root);
        let bytes = &mut self.bytes;
        self.by_node.retain(|node, page| {
            let is_kept = node.tree != root.tree;
            *bytes -= if is_kept { 0 } else { weight(page) };
            is_kept
        });
    }

    /// Caches a page in place of the node's old one. When the limit is exceeded all others are
    /// dropped.
    pub(crate) fn keep(&mut self, root: NodeId, page: Page) -> Arc<Page> {
        self.keep_shared(root, Arc::new(page))
    }

    /// Like [`keep`](Self::keep), for a page that other transactions use too.
    pub(crate) fn keep_shared(&mut self, root: NodeId, page: Arc<Page>) -> Arc<Page> {
        self.make_room(weight(&page));
        let old = self.by_node.insert(page.node, Arc::clone(&page));
        self.bytes -= old.map_or(0, |old| weight(&old));
        self.used(root, &page);
        page
    }
}

fn value_weight(stored: &StoredValue) -> usize {
    match stored {
        StoredValue::Whole(value) => value.len(),
        StoredValue::Large(_) => 0,
    }
}

fn weight(page: &Page) -> usize {
    page.cells.weight()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageCells;
    use yesquel_model::{KeyRange, LocalId, ServerId, TreeId};
    use yesquel_wire::CellValue;

    fn page(local: u64, bytes: usize) -> Page {
        let node = NodeId { local: LocalId(local), ..root(0) };
        let (low, high) = ([local as u8], [local as u8 + 1]);
        let value = vec![0; bytes];
        let cells = PageCells::of(0, [(&low[..], CellValue::Bytes(&value))].into_iter()).unwrap();
        Page { node, fence: KeyRange::new(low, high), cells, followed: Vec::new() }
    }

    fn root(server: u16) -> NodeId {
        NodeId::root(TreeId::default(), ServerId(server))
    }

    #[test]
    fn pages_are_kept_up_to_the_limit() {
        let mut pages = Pages::default();
        for local in 1..=100 {
            let kept = pages.keep(root(0), page(local, 1 << 20));
            assert!(pages.get(kept.node, Goal::At(&[local as u8])).is_some());
            assert!(pages.get(kept.node, Goal::At(&[0])).is_none());
            assert!(pages.bytes <= BYTES_MAX && pages.by_node.len() < 16, "{}", pages.bytes);
        }
        assert!(pages.by_node.len() > 1);
        pages.keep_up_to(32 << 20);
        let most = (1..=100).map(|local| {
            pages.keep(root(0), page(local, 1 << 20));
            pages.bytes
        });
        assert!((31 << 20..=32 << 20).contains(&most.max().unwrap()));
        pages.keep_up_to(1);
        // A page that alone exceeds the limit is kept, without any other.
        pages.keep(root(0), page(1, BYTES_MAX));
        assert_eq!(pages.by_node.len(), 1);
        // A smaller replacement frees memory.
        pages.keep(root(0), page(1, 0));
        assert!(pages.bytes < 1_000);
    }

    #[test]
    fn the_last_page_is_found_for_its_tree_only() {
        let mut pages = Pages::default();
        let (first, _) = (pages.keep(root(0), page(1, 1)), pages.keep(root(0), page(2, 1)));
        assert!(pages.last(root(0), Goal::At(&[2])).is_some_and(|page| page.node.local == LocalId(2)));
        assert!(pages.last(root(1), Goal::At(&[2])).is_none());
        assert!(pages.last(root(0), Goal::At(&[1])).is_none());
        pages.used(root(0), &first);
        assert!(pages.last(root(0), Goal::At(&[1])).is_some());
    }
}
