//! Laws of nodes and trees that hold while no operation is in progress.

use std::collections::{BTreeMap, BTreeSet};
use yesquel_model::TreeId;
use yesquel_simulation::Cluster;
use yesquel_tree::Tree;
use yesquel_wire::status::NodeStatus;

/// Checks that all nodes of a tree are reachable from its root, and that each child holds the keys
/// between its own key and the next one's.
fn check_links(nodes: &[NodeStatus]) -> Result<(), String> {
    let by_id: BTreeMap<&str, &NodeStatus> = nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let root = nodes.iter().find(|node| node.id.ends_with("0000000000000000")).ok_or("it has no root")?;
    if !root.low.is_empty() || root.high.is_some() {
        return Err("its root does not cover all keys".to_owned());
    }
    let (mut found, mut ahead) = (BTreeSet::from([root.id.as_str()]), vec![root]);
    while let Some(node) = ahead.pop() {
        if node.leaf {
            continue;
        }
        let mut low = node.low.as_str();
        for (number, child) in node.children.iter().enumerate() {
            let child = by_id.get(child.as_str()).ok_or_else(|| format!("child {child} does not exist"))?;
            let is_last = number + 1 == node.children.len();
            if child.low != low || (is_last && child.high != node.high) || (!is_last && child.high.is_none())
            {
                return Err(format!(
                    "{} does not hold the keys that {} assigns to it",
                    child.node, node.node
                ));
            }
            low = child.high.as_deref().unwrap_or_default();
            if !found.insert(&child.id) {
                return Err(format!("{} has two parents", child.node));
            }
            ahead.push(child);
        }
    }
    let lost: Vec<&str> =
        nodes.iter().map(|node| node.id.as_str()).filter(|id| !found.contains(id)).collect();
    if lost.is_empty() { Ok(()) } else { Err(format!("unreachable nodes: {lost:?}")) }
}

/// Checks the trees at all servers. `live` has the trees that exist, with the number of nodes for
/// their long values, which may be at any server.
///
/// # Panics
///
/// If a law does not hold.
pub(crate) fn check_laws(cluster: &mut Cluster, live: &BTreeMap<Tree, u64>, when: &str) {
    let roots: BTreeMap<TreeId, usize> =
        live.keys().map(|tree| (tree.root().tree, usize::from(tree.root().server.0))).collect();
    let mut values: BTreeMap<TreeId, u64> = BTreeMap::new();
    let mut nodes: BTreeMap<TreeId, Vec<NodeStatus>> = BTreeMap::new();
    for server in 0..cluster.server_count() {
        let now = cluster.clock(server);
        let wrong = |what: &str| -> ! { panic!("server {server} {when}: {what}") };
        let Some(engine) = cluster.engine(server) else { wrong("it is down") };
        for tree in roots.keys() {
            nodes.entry(*tree).or_default().extend(engine.nodes_of(*tree, None).nodes);
        }
        for found in engine.status(now).trees {
            let tree = TreeId::new(found.tree).unwrap_or_default();
            *values.entry(tree).or_default() += found.values;
            match roots.get(&tree) {
                None => wrong(&format!("nodes of tree {tree}, which was dropped")),
                Some(root) if *root != server && found.inner > 0 => {
                    wrong(&format!("inner nodes of tree {tree}, which has its root at server {root}"))
                }
                Some(_) => {}
            }
        }
        if engine.pending_values() != [0; 3] {
            wrong(&format!("long values are pending: {:?}", engine.pending_values()));
        }
    }
    for (tree, nodes) in &nodes {
        if let Err(what) = check_links(nodes) {
            panic!("{when}: tree {tree}: {what}");
        }
    }
    for (tree, needed) in live {
        let found = values.get(&tree.root().tree).copied().unwrap_or_default();
        assert_eq!(found, *needed, "{when}: nodes for long values of {tree:?}");
    }
}
