//! Which circles there are, and what they are called.
//!
//! Order by order (data, then sessions, then real time) and kind by kind, the
//! graph of the edges that the kind may have is split into strongly connected
//! components; in each, one circle is looked for. A component that holds a
//! circle found with less is told once.

use crate::anomaly::{Anomaly, Dependency, Edge, Kind};
use crate::dependencies::Dependencies;
use crate::graph::{Components, FREE, Graph, NONE, REAL_TIME, RW, RW_LOST, SESSION, WR, WW};
use crate::index::Index;
use crate::model::{Model, Order};
use crate::words;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;

/// What a circle's edges may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Writes,
    Information,
    Snapshot,
    Serial,
}

impl Level {
    fn mask(self) -> u8 {
        match self {
            Level::Writes => WW,
            Level::Information => WW | WR,
            Level::Snapshot | Level::Serial => WW | WR | RW | RW_LOST,
        }
    }
}

fn mask_of(order: Order) -> u8 {
    match order {
        Order::Data => FREE,
        Order::Session => FREE | SESSION,
        Order::RealTime => FREE | SESSION | REAL_TIME,
    }
}

/// A circle that has been told, or a lost update: those in it, and with what
/// edges it was found.
struct Told {
    level: Level,
    order: Order,
    transactions: Vec<usize>,
}

struct Hunt<'a> {
    told: Vec<Told>,
    found: Vec<Vec<Edge>>,
    graph: Graph<'a>,
}

/// Finds the circles that the model forbids, and says how many steps it took.
pub(crate) fn find(
    index: &Index<'_>,
    dependencies: &Dependencies,
    model: Model,
    anomalies: &mut Vec<Anomaly>,
) -> u64 {
    let real_time = model.orders().contains(&Order::RealTime);
    let graph = |split| Graph::new(index.transactions, dependencies, &index.counted, split, real_time);
    let lost = anomalies.iter().filter(|anomaly| anomaly.kind == Kind::LostUpdate);
    let told = lost.map(|lost| Told {
        level: Level::Snapshot,
        order: Order::Data,
        transactions: lost.transactions.clone(),
    });
    let mut hunt = Hunt { told: told.collect(), found: Vec::new(), graph: graph(true) };
    hunt.hunt(model, &[Level::Writes, Level::Information, Level::Snapshot]);
    if model.serializable() {
        let steps = hunt.graph.steps;
        hunt.graph = graph(false);
        hunt.graph.steps = steps;
        hunt.hunt(model, &[Level::Serial]);
    }
    anomalies.extend(hunt.found.iter().map(|circle| anomaly(index, circle)));
    hunt.graph.steps
}

impl Hunt<'_> {
    fn hunt(&mut self, model: Model, levels: &[Level]) {
        let (Some(order), Some(level)) = (model.orders().last(), levels.last()) else { return };
        // With all edges at once: where there is no circle there is none of any
        // kind, and a history that is well is done with here.
        let suspect = self.graph.components(level.mask() | mask_of(*order), None);
        if suspect.nodes.is_empty() {
            return;
        }
        for order in model.orders() {
            for level in levels {
                let components = self.graph.components(level.mask() | mask_of(*order), Some(&suspect));
                let told = self.told_in(&components, *level, *order);
                for number in 0..components.nodes.len() as u32 {
                    self.component(&components, number, (*level, *order), told.contains(&number));
                }
            }
        }
    }

    /// Which components hold what has been told.
    fn told_in(&self, components: &Components, level: Level, order: Order) -> FxHashSet<u32> {
        let mut told_in = FxHashSet::default();
        for told in &self.told {
            // Without sessions and real time, write cycles, information flow and
            // skew are told side by side: each is what it is by other edges.
            let side_by_side = order == Order::Data && told.level < level && level != Level::Serial;
            if told.level > level || told.order > order || side_by_side {
                continue;
            }
            let of = |transaction: &usize| self.graph.components_of(components, *transaction);
            let Some((first, others)) = told.transactions.split_first() else { continue };
            for number in of(first) {
                if number != NONE && others.iter().all(|other| of(other).contains(&number)) {
                    told_in.insert(number);
                }
            }
        }
        told_in
    }

    fn component(&mut self, components: &Components, number: u32, kind: (Level, Order), told: bool) {
        let (level, order) = kind;
        let ordered = mask_of(order);
        let graph = &mut self.graph;
        let circle = match level {
            _ if told && (order > Order::Data || level == Level::Serial) => None,
            Level::Writes => graph.circle(components, number, WW, WW | ordered).circle,
            Level::Information => graph.circle(components, number, WR, WW | WR | ordered).circle,
            Level::Snapshot => {
                // With one `rw` edge; a lost update is one, and has been told.
                let mut single = graph.circle(components, number, RW, WW | WR | ordered);
                if single.circle.is_none() && !single.gave_up {
                    single = graph.circle(components, number, RW_LOST, WR | ordered);
                }
                if single.circle.is_none() && !told {
                    single = graph.circle(components, number, RW | RW_LOST, level.mask() | ordered);
                }
                single.circle
            }
            Level::Serial => graph.circle(components, number, RW | RW_LOST, level.mask() | ordered).circle,
        };
        if let Some(circle) = circle {
            let circle = simple(circle);
            // What is left may be one of information flow, which has been told.
            if level == Level::Snapshot && !circle.iter().any(|edge| edge.dependency.is_rw()) {
                return;
            }
            let transactions = circle.iter().map(|edge| edge.from).collect();
            self.told.push(Told { level, order, transactions });
            self.found.push(circle);
        }
    }
}

/// Whether two `rw` edges follow each other.
fn adjacent(circle: &[Edge]) -> bool {
    let after = circle.iter().cycle().skip(1);
    circle.iter().zip(after).any(|(edge, next)| edge.dependency.is_rw() && next.dependency.is_rw())
}

/// A circle that comes through no transaction twice.
///
/// One that does is two circles. If it has no two `rw` edges in a row, one of
/// the two has none either: else all four edges at that transaction were `rw`.
fn simple(mut circle: Vec<Edge>) -> Vec<Edge> {
    let mut places: FxHashMap<usize, usize> = FxHashMap::default();
    let mut at = 0;
    while at < circle.len() {
        if let Some(first) = places.insert(circle[at].from, at) {
            let inner: Vec<Edge> = circle.drain(first..at).collect();
            if !adjacent(&inner) {
                circle = inner;
            }
            places.clear();
            at = 0;
        } else {
            at += 1;
        }
    }
    circle
}

fn kind_of(circle: &[Edge]) -> Kind {
    let has_wr = circle.iter().any(|edge| matches!(edge.dependency, Dependency::WriteRead { .. }));
    match circle.iter().filter(|edge| edge.dependency.is_rw()).count() {
        0 if has_wr => Kind::G1c,
        0 => Kind::G0,
        1 => Kind::GSingle,
        _ if adjacent(circle) => Kind::G2Item,
        _ => Kind::GNonadjacent,
    }
}

/// So much of a long circle is told in words.
const TOLD_MAX: usize = 20;

fn anomaly(index: &Index<'_>, circle: &[Edge]) -> Anomaly {
    let order = circle.iter().map(|edge| edge.dependency.order()).max().unwrap_or(Order::Data);
    let transactions: Vec<usize> = circle.iter().map(|edge| edge.from).collect();
    let shown = transactions.len().min(TOLD_MAX);
    let mut explanation = words::transactions(index.transactions, &transactions[..shown]);
    // Writing to a string cannot fail.
    for edge in &circle[..shown.min(circle.len() - 1)] {
        let _ = writeln!(explanation, "{edge}");
    }
    if circle.len() - 1 > shown {
        let _ = writeln!(explanation, "... and {} more", circle.len() - 1 - shown);
    }
    let _ = circle.last().map(|edge| write!(explanation, "but {edge}"));
    Anomaly { kind: kind_of(circle), order, transactions, edges: circle.to_vec(), explanation }
}
