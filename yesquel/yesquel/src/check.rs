//! Check of the trees of a store, beside writers: `docs/yesquel/commands.md` says what it finds.
//!
//! All trees are checked at one snapshot, as long as the servers keep it. A tree whose snapshot was
//! dropped meanwhile is checked anew, at a new one.

mod fault;
mod view;

pub use fault::{CheckObserver, CheckProgress, CheckSummary, FoundFault, StoreFault};

use crate::{
    Error, Store,
    any_transport::AnyTransport,
    catalog::{CatalogEntry, catalog_tree},
};
use std::collections::{BTreeMap, BTreeSet};
use view::CheckView;
use yesquel_client::RequestError;
use yesquel_model::{NodeId, Refusal, ServerId, TreeId};
use yesquel_transport::block_on;
use yesquel_tree::{Tree, TreeCheck, TreeError};

/// Snapshots at which a tree is attempted, before it is reported as not checked.
const SNAPSHOTS_MAX: usize = 5;

/// A tree that is checked, and its name.
#[derive(Debug, Clone)]
struct NamedTree {
    tree: Tree,
    /// Name and number of its database, and name of the map; `None`: a catalog.
    map: Option<(String, u64, String)>,
}

/// How a walk through a tree has ended.
enum Walk {
    Done,
    /// The tree does not exist at the snapshot.
    NoTree,
    /// The servers have dropped the snapshot.
    SnapshotDropped,
}

/// A check that is running.
struct RunningCheck<'s, 'o> {
    store: &'s Store,
    observer: &'o mut dyn CheckObserver,
    view: CheckView<'s>,
    summary: CheckSummary,
    progress: CheckProgress,
    /// Groups that do not answer, and why.
    unanswered: BTreeMap<ServerId, String>,
}

impl Store {
    /// Checks all trees, or those of one database, and the catalog of names. Tells the observer what
    /// is wrong.
    ///
    /// The names of all databases and maps are held in memory, and 16 bytes for each node of the tree
    /// that is being checked.
    pub fn check(
        &self,
        database: Option<&str>,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckSummary, Error> {
        let mut unanswered = BTreeMap::new();
        let view = CheckView::take(self, &mut unanswered)?;
        let (summary, progress) = (CheckSummary::default(), CheckProgress::default());
        let mut check = RunningCheck { store: self, observer, view, summary, progress, unanswered };
        check.run(database)?;
        Ok(check.summary)
    }
}

impl RunningCheck<'_, '_> {
    fn run(&mut self, database: Option<&str>) -> Result<(), Error> {
        for (group, why) in self.unanswered.clone() {
            self.found(None, None, StoreFault::NoAnswer { group, why });
        }
        let home = self.store.home_group();
        let catalogs: BTreeSet<ServerId> = self.view.groups.iter().copied().chain([home]).collect();
        for group in catalogs {
            self.tree(&NamedTree { tree: catalog_tree(group), map: None })?;
        }
        let entries = self.read_again(Self::entries)?;
        let (trees, named) = self.names(&entries);
        let mut databases: BTreeSet<&String> = BTreeSet::new();
        for entry in &entries {
            if let CatalogEntry::Database { name, .. } = entry {
                databases.insert(name);
            }
        }
        if let Some(name) = database {
            if !databases.contains(&name.to_owned()) {
                return Err(Error::NoDatabase(name.to_owned()));
            }
            databases.retain(|known| *known == name);
        }
        self.summary.databases = databases.len() as u64;
        let is_chosen = |named: &&NamedTree| {
            named.map.as_ref().is_some_and(|(name, ..)| database.is_none_or(|chosen| chosen == name))
        };
        let chosen: Vec<&NamedTree> = trees.iter().filter(is_chosen).collect();
        self.progress.trees_all = chosen.len() as u64;
        for named in chosen {
            self.tree(named)?;
            self.progress.trees_done += 1;
        }
        if database.is_none() {
            for (tree, group, nodes) in self.read_again(|check| check.unnamed_trees(&named))? {
                self.found(None, Some(tree), StoreFault::Unnamed { group, nodes });
            }
        }
        Ok(())
    }

    fn found(&mut self, named: Option<&NamedTree>, tree: Option<TreeId>, fault: StoreFault) {
        let map = named.and_then(|named| named.map.as_ref());
        let tree = tree.or(named.map(|named| named.tree.root().tree));
        self.summary.faults += 1;
        self.observer.fault(&FoundFault {
            database: map.map(|(database, ..)| database.clone()),
            map: map.map(|(.., map)| map.clone()),
            tree: tree.map(TreeId::number),
            fault,
        });
    }

    /// Returns the trees that the catalog names, and the numbers of all of them, with those that are
    /// being bulk loaded.
    fn names(&mut self, entries: &[CatalogEntry]) -> (Vec<NamedTree>, BTreeSet<TreeId>) {
        let mut databases = BTreeMap::new();
        for entry in entries {
            if let CatalogEntry::Database { name, number } = entry
                && let Some(other) = databases.insert(*number, name.clone())
            {
                let fault = StoreFault::SameDatabase { name: name.clone(), other };
                self.found(None, None, fault);
            }
        }
        let (mut trees, mut named, mut loads) = (Vec::<NamedTree>::new(), BTreeSet::new(), Vec::new());
        for entry in entries {
            match entry {
                CatalogEntry::Database { .. } | CatalogEntry::Directory => {}
                CatalogEntry::Unreadable(key) => {
                    let key = key.escape_ascii().to_string();
                    self.found(None, None, StoreFault::Entry { key });
                }
                CatalogEntry::Load { tree } => loads.push(tree.root().tree),
                CatalogEntry::Map { database, name, tree } => {
                    let number = tree.root().tree;
                    let Some(of) = databases.get(database) else {
                        named.insert(number);
                        let fault = StoreFault::NoDatabase { database: *database, map: name.clone() };
                        self.found(None, Some(number), fault);
                        continue;
                    };
                    let own = NamedTree { tree: *tree, map: Some((of.clone(), *database, name.clone())) };
                    if number == TreeId::default() || !named.insert(number) {
                        self.found(Some(&own), None, StoreFault::SameTree);
                    } else {
                        trees.push(own);
                    }
                }
            }
        }
        named.extend(loads);
        (trees, named)
    }

    /// Checks a tree, at a new snapshot if the servers drop the present one.
    fn tree(&mut self, named: &NamedTree) -> Result<(), Error> {
        let group = named.tree.root().server;
        if let Some(why) = self.unanswered.get(&group).cloned() {
            if named.map.is_some() {
                self.found(Some(named), None, StoreFault::Unchecked { why });
            }
            return Ok(());
        }
        for _ in 0..SNAPSHOTS_MAX {
            match self.walk(named) {
                Ok(Walk::Done) => return Ok(()),
                Ok(Walk::NoTree) => {
                    // A catalog is created when its group has its first name.
                    if named.map.is_some() {
                        self.found(Some(named), None, StoreFault::NoTree);
                    }
                    return Ok(());
                }
                Ok(Walk::SnapshotDropped) => {
                    self.renew_view()?;
                    if !self.is_named(named)? {
                        return Ok(());
                    }
                }
                Err(error @ Error::Interrupted(_)) => return Err(error),
                Err(error) => {
                    let why = error.to_string();
                    if matches!(error, Error::Unavailable(_) | Error::Disconnected(_)) {
                        self.unanswered.insert(group, why.clone());
                    }
                    self.found(Some(named), None, StoreFault::Unchecked { why });
                    return Ok(());
                }
            }
        }
        let why = format!("the servers have dropped {SNAPSHOTS_MAX} snapshots while it was read");
        self.found(Some(named), None, StoreFault::Unchecked { why });
        Ok(())
    }

    /// Takes a new snapshot in place of one that the servers have dropped.
    fn renew_view(&mut self) -> Result<(), Error> {
        self.view = CheckView::take(self.store, &mut self.unanswered)?;
        self.summary.snapshots += 1;
        Ok(())
    }

    /// Reads something at the present snapshot, and again at a new one if the servers drop it.
    fn read_again<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        for _ in 1..SNAPSHOTS_MAX {
            match read(self) {
                Err(Error::SnapshotTooOld(_)) => self.renew_view()?,
                outcome => return outcome,
            }
        }
        read(self)
    }

    fn entries(&mut self) -> Result<Vec<CatalogEntry>, Error> {
        block_on(self.store.catalog().entries(&mut self.view.transaction))
    }

    /// Whether the catalog still gives a tree its name.
    fn is_named(&mut self, named: &NamedTree) -> Result<bool, Error> {
        let Some((_, number, map)) = &named.map else { return Ok(true) };
        block_on(self.store.catalog().is_tree_of(&mut self.view.transaction, (*number, map), named.tree))
    }

    /// Walks through a tree at the present snapshot.
    fn walk(&mut self, named: &NamedTree) -> Result<Walk, Error> {
        let mut check = TreeCheck::new(&self.store.inner.trees, named.tree, self.view.snapshot);
        loop {
            let has_more = match block_on(check.step()) {
                Ok(has_more) => has_more,
                Err(TreeError::NoTree(_)) => return Ok(Walk::NoTree),
                Err(error) if is_dropped(&error) => return Ok(Walk::SnapshotDropped),
                Err(error) => return Err(error.into()),
            };
            for fault in check.take_faults() {
                self.found(Some(named), None, StoreFault::Tree(fault));
            }
            self.progress.keys = self.summary.counts.keys + check.counts().keys;
            self.progress.nodes = self.summary.counts.nodes() + check.counts().nodes();
            if !self.observer.progress(&self.progress) {
                return Err(Error::Interrupted("the check was stopped".to_owned()));
            }
            if !has_more {
                break;
            }
        }
        let NodeId { tree, server, .. } = named.tree.root();
        // Each group has a catalog of its own, and all have one number.
        let groups = if named.map.is_some() { self.view.groups_of(tree) } else { vec![server] };
        for group in groups {
            if self.view.may_have_more(tree, group, check.nodes_at(group)) {
                match self.unreached(&check, group, tree) {
                    Ok(unreached) => {
                        for node in unreached {
                            let fault = yesquel_tree::TreeFault::Unreached { node };
                            self.found(Some(named), None, StoreFault::Tree(fault));
                        }
                    }
                    Err(Error::SnapshotTooOld(_)) => return Ok(Walk::SnapshotDropped),
                    Err(error) => return Err(error),
                }
            }
        }
        self.summary.trees += 1;
        self.summary.counts += check.counts();
        Ok(Walk::Done)
    }

    /// Returns the nodes of a tree at a group that exist at the snapshot, and that the tree does not
    /// lead to.
    fn unreached(
        &self,
        check: &TreeCheck<'_, AnyTransport>,
        group: ServerId,
        tree: TreeId,
    ) -> Result<Vec<NodeId>, Error> {
        let mut unreached = Vec::new();
        self.store.node_pages(group, tree, |page| {
            let ids = page.nodes.iter().filter_map(|node| u128::from_str_radix(&node.id, 16).ok());
            unreached.extend(block_on(check.unreached(ids.map(NodeId::from_bits)))?);
            Ok(())
        })?;
        Ok(unreached)
    }

    /// Returns the trees that no map has, with the groups and numbers of their nodes.
    fn unnamed_trees(&mut self, named: &BTreeSet<TreeId>) -> Result<Vec<(TreeId, ServerId, u64)>, Error> {
        // If the snapshot is another one by now, other trees have names.
        let now = self.entries()?;
        let named_now = now.iter().filter_map(|entry| match entry {
            CatalogEntry::Map { tree, .. } | CatalogEntry::Load { tree } => Some(tree.root().tree),
            CatalogEntry::Database { .. } | CatalogEntry::Directory | CatalogEntry::Unreadable(_) => None,
        });
        let known: BTreeSet<TreeId> =
            named.iter().copied().chain(named_now).chain([TreeId::default()]).collect();
        let mut unnamed = Vec::new();
        for (tree, group) in self.view.trees() {
            if known.contains(&tree) || self.unanswered.contains_key(&group) {
                continue;
            }
            // It may have been dropped, and its group may not know of it yet.
            let check = TreeCheck::new(
                &self.store.inner.trees,
                Tree::at(NodeId::root(tree, group)),
                self.view.snapshot,
            );
            let nodes = self.unreached(&check, group, tree)?.len() as u64;
            if nodes > 0 {
                unnamed.push((tree, group, nodes));
            }
        }
        Ok(unnamed)
    }
}

/// Whether servers have dropped the snapshot.
fn is_dropped(error: &TreeError) -> bool {
    matches!(error, TreeError::Client(RequestError::Refused(Refusal::SnapshotTooOld { .. })))
}
