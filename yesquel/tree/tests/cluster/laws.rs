//! What is so of nodes and trees whenever nobody is in the midst of something.

use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use yesquel_engine::Engine;
use yesquel_model::TreeId;
use yesquel_tree::Tree;
use yesquel_wire::status::NodeStatus;

/// Children lead to all nodes of a tree, and each to the keys between its own
/// and the next one's.
fn leads_everywhere(engine: &Engine, tree: TreeId) -> Result<(), String> {
    let nodes = engine.nodes_of(tree, None).nodes;
    let by_id: BTreeMap<&str, &NodeStatus> = nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let root = nodes.iter().find(|node| node.id.ends_with("0000000000000000")).ok_or("it has no root")?;
    if !root.low.is_empty() || root.high.is_some() {
        return Err("its root has not all keys".to_owned());
    }
    let (mut found, mut ahead) = (BTreeSet::from([root.id.as_str()]), vec![root]);
    while let Some(node) = ahead.pop() {
        if node.leaf {
            continue;
        }
        let mut low = node.low.as_str();
        for (number, child) in node.children.iter().enumerate() {
            let child = by_id.get(child.as_str()).ok_or_else(|| format!("{child}, a child, is not there"))?;
            let is_last = number + 1 == node.children.len();
            if child.low != low || (is_last && child.high != node.high) || (!is_last && child.high.is_none())
            {
                return Err(format!("{} has not the keys that {} gives it", child.node, node.node));
            }
            low = child.high.as_deref().unwrap_or_default();
            if !found.insert(&child.id) {
                return Err(format!("two lead to {}", child.node));
            }
            ahead.push(child);
        }
    }
    let lost: Vec<&str> =
        nodes.iter().map(|node| node.id.as_str()).filter(|id| !found.contains(id)).collect();
    if lost.is_empty() { Ok(()) } else { Err(format!("nothing leads to {lost:?}")) }
}

impl World {
    /// Panics where a law does not hold. `live` are the trees that there are,
    /// and how many nodes the long values of each take.
    pub(crate) fn check_laws(&mut self, live: &BTreeMap<Tree, u64>, after: &str) {
        for server in 0..self.servers.len() {
            let now = self.clock(server);
            let wrong = |what: &str| -> ! { panic!("server {server} {after}: {what}") };
            let Some(running) = &mut self.servers[server].running else { wrong("it is not up") };
            let engine = &mut running.engine;
            if let Err(what) = engine.audit() {
                wrong(&what);
            }
            if engine.undecided().next().is_some() {
                wrong("not all is decided");
            }
            let here = live.iter().filter(|(tree, _)| usize::from(tree.root().server.0) == server);
            let here: BTreeMap<TreeId, u64> =
                here.map(|(tree, values)| (tree.root().tree, *values)).collect();
            for tree in here.keys() {
                if let Err(what) = leads_everywhere(engine, *tree) {
                    wrong(&format!("tree {tree}: {what}"));
                }
            }
            for told in engine.status(now).trees {
                let tree = TreeId::new(told.tree).unwrap_or_default();
                match here.get(&tree) {
                    None => wrong(&format!("there are nodes of tree {tree}, which was dropped")),
                    Some(values) if *values != told.values => wrong(&format!(
                        "tree {tree} has {} nodes of long values, and needs {values}",
                        told.values
                    )),
                    Some(_) => {}
                }
            }
        }
    }
}
