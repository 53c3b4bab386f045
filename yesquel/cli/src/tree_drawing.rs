//! Draws trees as text and as pictures: each node with its range, size and load.

use crate::{failure::CliError, show};
use std::{collections::HashMap, io::Write};
use svg::{
    Document,
    node::element::{Group, Line, Rectangle, Text, Title},
};
use yesquel::status::{NodeStatus, TreeNodes};

/// Maximum number of nodes in a picture that stays readable.
const PICTURE_NODES_MAX: usize = 2_000;

/// Formats a key in quotes.
fn key(bytes: &[u8]) -> String {
    format!("'{}'", show::text(bytes))
}

/// Formats the range of a node.
fn fence(node: &NodeStatus) -> String {
    fence_with(node, key)
}

fn fence_with(node: &NodeStatus, shown: fn(&[u8]) -> String) -> String {
    let key = |hex: &String| shown(&show::from_hex(hex).unwrap_or_default());
    let low = if node.low.is_empty() { "...".to_owned() } else { key(&node.low) };
    let high = node.high.as_ref().map_or_else(|| "...".to_owned(), key);
    format!("{low} to {high}")
}

/// Formats the content of a node.
fn holds(node: &NodeStatus) -> String {
    if node.leaf {
        format!("{} keys, {}", show::count(node.cells), show::bytes(node.bytes))
    } else {
        format!("{} children", node.children.len())
    }
}

/// Nodes of a tree by id, and its root.
struct DrawnTree<'a> {
    nodes: HashMap<&'a str, &'a NodeStatus>,
    root: &'a NodeStatus,
}

fn tree(nodes: &TreeNodes) -> Result<DrawnTree<'_>, CliError> {
    let by_id = nodes.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    // The local id of a root is zero.
    let root = nodes.nodes.iter().find(|node| node.id.ends_with("0000000000000000"));
    let root = root.ok_or_else(|| CliError::Absent("the tree has no root here".to_owned()))?;
    Ok(DrawnTree { nodes: by_id, root })
}

impl<'a> DrawnTree<'a> {
    /// Returns a node's children, as far as they are in the report.
    fn children(&self, node: &NodeStatus) -> Vec<&'a NodeStatus> {
        node.children.iter().filter_map(|child| self.nodes.get(child.as_str()).copied()).collect()
    }
}

/// Writes a node and its descendants as indented text.
pub(crate) fn text(nodes: &TreeNodes, out: &mut impl Write) -> Result<(), CliError> {
    text_with(nodes, key, out)
}

/// Like [`text`], with a function that formats keys.
pub(crate) fn text_with(
    nodes: &TreeNodes,
    shown: fn(&[u8]) -> String,
    out: &mut impl Write,
) -> Result<(), CliError> {
    let tree = tree(nodes)?;
    // A node, the prefix of its line, and the prefix of its children's lines.
    let mut open = vec![(tree.root, String::new(), String::new())];
    while let Some((node, own, below)) = open.pop() {
        let load =
            if node.load > 0 { format!(", {} accesses/s", show::count(node.load)) } else { String::new() };
        let name = node.node.split_once('.').map_or("", |(_, name)| name);
        writeln!(out, "{own}{} [{name}] {}{load}", fence_with(node, shown), holds(node))?;
        let children = tree.children(node);
        let count = children.len();
        for (at, child) in children.into_iter().enumerate().rev() {
            let (branch, line) = if at + 1 == count { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            open.push((child, format!("{below}{branch}"), format!("{below}{line}")));
        }
    }
    if nodes.more {
        writeln!(out, "... and more nodes, which are not drawn")?;
    }
    Ok(())
}

const WIDTH: f64 = 150.0;
const HEIGHT: f64 = 58.0;
const GAP_X: f64 = 14.0;
const GAP_Y: f64 = 60.0;
const MARGIN: f64 = 24.0;
const HEAD: f64 = 46.0;
/// Vertical gap between rows, and inside a frame.
const GAP_ROWS: f64 = 14.0;
/// Maximum width of a row that is not wrapped.
const ROW: f64 = 8.0 * (WIDTH + GAP_X);
/// Target ratio of width to height of wrapped children.
const SHAPE: f64 = 1.6;

/// Node with its descendants, and the area that they take.
struct TreeBlock<'a> {
    node: &'a NodeStatus,
    width: f64,
    height: f64,
    /// Blocks with their positions in this one.
    below: Vec<(f64, f64, TreeBlock<'a>)>,
    /// Set if the children form several rows, which a frame encloses.
    is_wrapped: bool,
}

impl<'a> TreeBlock<'a> {
    /// Places the children side by side below their node, and many children in several rows, so
    /// that the picture does not become too wide.
    fn new(tree: &DrawnTree<'a>, node: &'a NodeStatus, floor: usize) -> TreeBlock<'a> {
        // No tree is this high: this ends cycles.
        let children = if floor < 32 { tree.children(node) } else { Vec::new() };
        let blocks: Vec<TreeBlock<'a>> =
            children.into_iter().map(|child| TreeBlock::new(tree, child, floor + 1)).collect();
        if blocks.is_empty() {
            return TreeBlock { node, width: WIDTH, height: HEIGHT, below: Vec::new(), is_wrapped: false };
        }
        let area: f64 = blocks.iter().map(|block| (block.width + GAP_X) * (block.height + GAP_ROWS)).sum();
        let widest = (area * SHAPE).sqrt().max(ROW);
        let (mut rows, mut row, mut filled) = (Vec::new(), Vec::new(), 0.0);
        for block in blocks {
            if !row.is_empty() && filled + block.width > widest {
                rows.push(std::mem::take(&mut row));
                filled = 0.0;
            }
            filled += block.width + GAP_X;
            row.push(block);
        }
        rows.push(row);
        let is_wrapped = rows.len() > 1;
        let edge = if is_wrapped { GAP_ROWS } else { 0.0 };
        let (mut below, mut width, mut y) = (Vec::new(), 0.0_f64, HEIGHT + GAP_Y + edge);
        for row in rows {
            let (mut x, mut height) = (edge, 0.0_f64);
            for block in row {
                height = height.max(block.height);
                let at = x;
                x += block.width + GAP_X;
                width = width.max(x - GAP_X + edge);
                below.push((at, y, block));
            }
            y += height + GAP_ROWS;
        }
        TreeBlock { node, width, height: y - GAP_ROWS + edge, below, is_wrapped }
    }

    fn draw(&self, (x, y): (f64, f64), load_max: u64, mut lines: Group, mut boxes: Group) -> (Group, Group) {
        let middle = x + self.width / 2.0;
        let line = |to_x: f64, to_y: f64| {
            Line::new().set("x1", middle).set("y1", y + HEIGHT).set("x2", to_x).set("y2", to_y)
        };
        if self.is_wrapped {
            let top = y + HEIGHT + GAP_Y;
            let frame = Rectangle::new()
                .set("x", x)
                .set("y", top)
                .set("width", self.width)
                .set("height", y + self.height - top)
                .set("rx", 8)
                .set("class", "frame");
            lines = lines.add(frame).add(line(middle, top));
        }
        boxes = boxes.add(self.shape((middle - WIDTH / 2.0, y), load_max));
        for (dx, dy, block) in &self.below {
            if !self.is_wrapped {
                lines = lines.add(line(x + dx + block.width / 2.0, y + dy));
            }
            (lines, boxes) = block.draw((x + dx, y + dy), load_max, lines, boxes);
        }
        (lines, boxes)
    }

    /// Draws the node itself; its color shows its load.
    fn shape(&self, (x, y): (f64, f64), load_max: u64) -> Group {
        let heat = if load_max == 0 { 0.0 } else { self.node.load as f64 / load_max as f64 };
        let mix = |cold: f64, hot: f64| (cold + (hot - cold) * heat).round();
        let fill = format!("rgb({},{},{})", mix(236.0, 244.0), mix(242.0, 120.0), mix(248.0, 66.0));
        let line = |dy: f64, class: &str, text: String| {
            Text::new(text).set("x", x + WIDTH / 2.0).set("y", y + dy).set("class", class)
        };
        let cut = |text: String| {
            if text.chars().count() > 24 { text.chars().take(23).chain(['…']).collect() } else { text }
        };
        let frame = Rectangle::new()
            .set("x", x)
            .set("y", y)
            .set("width", WIDTH)
            .set("height", HEIGHT)
            .set("rx", if self.node.leaf { 4 } else { 14 })
            .set("fill", fill);
        let whole = format!("{} · {} · {} accesses/s", fence(self.node), holds(self.node), self.node.load);
        Group::new()
            .add(Title::new(whole))
            .add(frame)
            .add(line(18.0, "fence", cut(fence(self.node))))
            .add(line(34.0, "holds", holds(self.node)))
            .add(line(49.0, "load", format!("{} accesses/s", show::count(self.node.load))))
    }
}

const STYLE: &str = "text { font: 11px sans-serif; text-anchor: middle; fill: #1c2733 } \
    .fence { font-weight: bold } .load { fill: #5b6b7b } .head { font: bold 16px sans-serif; text-anchor: start } \
    .note { font: 12px sans-serif; text-anchor: start; fill: #5b6b7b } \
    line { stroke: #9fb0c0 } rect { stroke: #6d8296 } .frame { fill: none; stroke: #9fb0c0 }";

/// Draws the tree as a picture.
pub(crate) fn svg(nodes: &TreeNodes, name: &str) -> Result<Document, CliError> {
    if nodes.more || nodes.nodes.len() > PICTURE_NODES_MAX {
        return Err(CliError::Usage(format!(
            "the tree has more than {PICTURE_NODES_MAX} nodes, too many for a picture: draw it as text"
        )));
    }
    let tree = tree(nodes)?;
    let root = TreeBlock::new(&tree, tree.root, 0);
    let load_max = nodes.nodes.iter().map(|node| node.load).max().unwrap_or_default();
    let (width, height) = ((root.width + 2.0 * MARGIN).max(420.0), HEAD + root.height + 2.0 * MARGIN);
    let (lines, boxes) = root.draw((MARGIN, HEAD + MARGIN), load_max, Group::new(), Group::new());
    let leaves = nodes.nodes.iter().filter(|node| node.leaf);
    let (count, keys) = (leaves.clone().count(), leaves.map(|node| node.cells).sum());
    let note = format!("{} leaves, {} keys; the busier a node, the warmer", count, show::count(keys));
    Ok(Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .add(svg::node::element::Style::new(STYLE))
        .add(
            Rectangle::new()
                .set("width", width)
                .set("height", height)
                .set("fill", "white")
                .set("stroke", "none"),
        )
        .add(Text::new(name).set("x", MARGIN).set("y", 28).set("class", "head"))
        .add(Text::new(note).set("x", MARGIN).set("y", 48).set("class", "note"))
        .add(lines)
        .add(boxes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a tree with this number of leaves, and `fan` children for each inner node.
    fn example(leaves: usize, fan: usize) -> TreeNodes {
        let mut nodes: Vec<NodeStatus> = Vec::new();
        let mut next = 1;
        let mut floor: Vec<String> = Vec::new();
        let id = |number: u64| format!("{number:032x}");
        for leaf in 0..leaves {
            let low = show::to_hex(format!("user{:06}", leaf * 38).as_bytes());
            let (cells, load) = (38, (leaf % 7) as u64 * 100);
            nodes.push(NodeStatus { id: id(next), leaf: true, low, cells, load, ..Default::default() });
            floor.push(id(next));
            next += 1;
        }
        while floor.len() > 1 {
            let is_top = floor.len() <= fan;
            let mut above = Vec::new();
            for children in floor.chunks(fan) {
                // The root's local id, the last 64 bits, is zero.
                let id = if is_top { id(0) } else { id(next) };
                next += 1;
                above.push(id.clone());
                nodes.push(NodeStatus { id, children: children.to_vec(), ..Default::default() });
            }
            floor = above;
        }
        TreeNodes { nodes, more: false }
    }

    /// Collects the positions of all nodes of a block.
    fn places(block: &TreeBlock<'_>, (x, y): (f64, f64), all: &mut Vec<(f64, f64)>) {
        all.push((x + (block.width - WIDTH) / 2.0, y));
        for (dx, dy, below) in &block.below {
            assert!(*dx >= 0.0 && dx + below.width <= block.width && dy + below.height <= block.height);
            places(below, (x + dx, y + dy), all);
        }
    }

    #[test]
    fn wide_trees_wrap_into_rows_without_overlap() {
        for (leaves, fan, width_max) in
            [(3, 8, ROW), (521, 600, 4_000.0), (521, 60, 5_000.0), (1_900, 60, 9_000.0)]
        {
            let nodes = example(leaves, fan);
            let tree = tree(&nodes).unwrap();
            let block = TreeBlock::new(&tree, tree.root, 0);
            assert!(
                block.width <= width_max && block.height < block.width * 2.0,
                "{} {}",
                block.width,
                block.height
            );
            let mut all = Vec::new();
            places(&block, (0.0, 0.0), &mut all);
            assert_eq!(all.len(), nodes.nodes.len());
            for (at, (x, y)) in all.iter().enumerate() {
                let apart = |(other_x, other_y): &(f64, f64)| {
                    (x - other_x).abs() >= WIDTH || (y - other_y).abs() >= HEIGHT
                };
                assert!(all[..at].iter().all(apart), "a node of {leaves} at {x}, {y}");
            }
        }
    }
}
