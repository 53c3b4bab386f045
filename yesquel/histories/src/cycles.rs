//! Finds and classifies cycles.
//!
//! For each order (data, then sessions, then real time) and each kind, the graph of the edges that
//! the kind allows is split into strongly connected components, and one cycle is searched in each.
//! A component that contains a cycle already reported with fewer edges is skipped.

use crate::anomaly::{Anomaly, AnomalyKind, Dependency, Edge};
use crate::dependencies::Dependencies;
use crate::graph::{Components, FREE, Graph, NONE, REAL_TIME, RW, RW_LOST, SESSION, WR, WW};
use crate::index::HistoryIndex;
use crate::model::{AnomalyOrder, ConsistencyModel};
use crate::words;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;

/// Edges that a cycle may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CycleLevel {
    Writes,
    Information,
    Snapshot,
    Serial,
}

impl CycleLevel {
    fn mask(self) -> u8 {
        match self {
            CycleLevel::Writes => WW,
            CycleLevel::Information => WW | WR,
            CycleLevel::Snapshot | CycleLevel::Serial => WW | WR | RW | RW_LOST,
        }
    }
}

fn mask_of(order: AnomalyOrder) -> u8 {
    match order {
        AnomalyOrder::Data => FREE,
        AnomalyOrder::Session => FREE | SESSION,
        AnomalyOrder::RealTime => FREE | SESSION | REAL_TIME,
    }
}

/// Cycle or lost update already reported: its transactions, and the edges with which it was found.
struct ReportedCycle {
    level: CycleLevel,
    order: AnomalyOrder,
    transactions: Vec<usize>,
}

struct Hunt<'a> {
    reported: Vec<ReportedCycle>,
    found: Vec<Vec<Edge>>,
    graph: Graph<'a>,
}

/// Finds the cycles that the model forbids. Returns the number of steps.
pub(crate) fn find(
    index: &HistoryIndex<'_>,
    dependencies: &Dependencies,
    model: ConsistencyModel,
    anomalies: &mut Vec<Anomaly>,
) -> u64 {
    let real_time = model.orders().contains(&AnomalyOrder::RealTime);
    let graph = |split| Graph::new(index.transactions, dependencies, &index.counted, split, real_time);
    let lost = anomalies.iter().filter(|anomaly| anomaly.kind == AnomalyKind::LostUpdate);
    let reported = lost.map(|lost| ReportedCycle {
        level: CycleLevel::Snapshot,
        order: AnomalyOrder::Data,
        transactions: lost.transactions.clone(),
    });
    let mut hunt = Hunt { reported: reported.collect(), found: Vec::new(), graph: graph(true) };
    hunt.hunt(model, &[CycleLevel::Writes, CycleLevel::Information, CycleLevel::Snapshot]);
    if model.serializable() {
        let steps = hunt.graph.steps;
        hunt.graph = graph(false);
        hunt.graph.steps = steps;
        hunt.hunt(model, &[CycleLevel::Serial]);
    }
    anomalies.extend(hunt.found.iter().map(|cycle| anomaly(index, cycle)));
    hunt.graph.steps
}

impl Hunt<'_> {
    fn hunt(&mut self, model: ConsistencyModel, levels: &[CycleLevel]) {
        let (Some(order), Some(level)) = (model.orders().last(), levels.last()) else { return };
        // First with all edges: where there is no cycle, there is none of any kind. This completes
        // the check of a correct history.
        let suspect = self.graph.components(level.mask() | mask_of(*order), None);
        if suspect.nodes.is_empty() {
            return;
        }
        for order in model.orders() {
            for level in levels {
                let components = self.graph.components(level.mask() | mask_of(*order), Some(&suspect));
                let in_reported = self.reported_in(&components, *level, *order);
                for number in 0..components.nodes.len() as u32 {
                    self.component(&components, number, (*level, *order), in_reported.contains(&number));
                }
            }
        }
    }

    /// Returns the components that contain something already reported.
    fn reported_in(&self, components: &Components, level: CycleLevel, order: AnomalyOrder) -> FxHashSet<u32> {
        let mut reported_in = FxHashSet::default();
        for cycle in &self.reported {
            // Without sessions and real time, write cycles, information flow and skew are reported
            // independently, since they consist of different edges.
            let side_by_side =
                order == AnomalyOrder::Data && cycle.level < level && level != CycleLevel::Serial;
            if cycle.level > level || cycle.order > order || side_by_side {
                continue;
            }
            let of = |transaction: &usize| self.graph.components_of(components, *transaction);
            let Some((first, others)) = cycle.transactions.split_first() else { continue };
            for number in of(first) {
                if number != NONE && others.iter().all(|other| of(other).contains(&number)) {
                    reported_in.insert(number);
                }
            }
        }
        reported_in
    }

    fn component(
        &mut self,
        components: &Components,
        number: u32,
        kind: (CycleLevel, AnomalyOrder),
        is_reported: bool,
    ) {
        let (level, order) = kind;
        let ordered = mask_of(order);
        let graph = &mut self.graph;
        let cycle = match level {
            _ if is_reported && (order > AnomalyOrder::Data || level == CycleLevel::Serial) => None,
            CycleLevel::Writes => graph.cycle(components, number, WW, WW | ordered).cycle,
            CycleLevel::Information => graph.cycle(components, number, WR, WW | WR | ordered).cycle,
            CycleLevel::Snapshot => {
                // One `rw` edge. A lost update is such a cycle and already reported.
                let mut single = graph.cycle(components, number, RW, WW | WR | ordered);
                if single.cycle.is_none() && !single.gave_up {
                    single = graph.cycle(components, number, RW_LOST, WR | ordered);
                }
                if single.cycle.is_none() && !is_reported {
                    single = graph.cycle(components, number, RW | RW_LOST, level.mask() | ordered);
                }
                single.cycle
            }
            CycleLevel::Serial => graph.cycle(components, number, RW | RW_LOST, level.mask() | ordered).cycle,
        };
        if let Some(cycle) = cycle {
            let cycle = simple(cycle);
            // The rest may be a cycle of information flow, which is already reported.
            if level == CycleLevel::Snapshot && !cycle.iter().any(|edge| edge.dependency.is_rw()) {
                return;
            }
            let transactions = cycle.iter().map(|edge| edge.from).collect();
            self.reported.push(ReportedCycle { level, order, transactions });
            self.found.push(cycle);
        }
    }
}

/// Returns whether two `rw` edges are adjacent.
fn adjacent(cycle: &[Edge]) -> bool {
    let after = cycle.iter().cycle().skip(1);
    cycle.iter().zip(after).any(|(edge, next)| edge.dependency.is_rw() && next.dependency.is_rw())
}

/// Returns a cycle that visits no transaction twice.
///
/// Otherwise it consists of two cycles. If it has no two adjacent `rw` edges, neither has one of
/// the two: else all four edges at the common transaction would be `rw`.
fn simple(mut cycle: Vec<Edge>) -> Vec<Edge> {
    let mut places: FxHashMap<usize, usize> = FxHashMap::default();
    let mut at = 0;
    while at < cycle.len() {
        if let Some(first) = places.insert(cycle[at].from, at) {
            let inner: Vec<Edge> = cycle.drain(first..at).collect();
            if !adjacent(&inner) {
                cycle = inner;
            }
            places.clear();
            at = 0;
        } else {
            at += 1;
        }
    }
    cycle
}

fn kind_of(cycle: &[Edge]) -> AnomalyKind {
    let has_wr = cycle.iter().any(|edge| matches!(edge.dependency, Dependency::WriteRead { .. }));
    match cycle.iter().filter(|edge| edge.dependency.is_rw()).count() {
        0 if has_wr => AnomalyKind::G1c,
        0 => AnomalyKind::G0,
        1 => AnomalyKind::GSingle,
        _ if adjacent(cycle) => AnomalyKind::G2Item,
        _ => AnomalyKind::GNonadjacent,
    }
}

/// Number of edges of a long cycle that are printed.
const TOLD_MAX: usize = 20;

fn anomaly(index: &HistoryIndex<'_>, cycle: &[Edge]) -> Anomaly {
    let order = cycle.iter().map(|edge| edge.dependency.order()).max().unwrap_or(AnomalyOrder::Data);
    let transactions: Vec<usize> = cycle.iter().map(|edge| edge.from).collect();
    let shown = transactions.len().min(TOLD_MAX);
    let mut explanation = words::transactions(index.transactions, &transactions[..shown]);
    // Writing to a string cannot fail.
    for edge in &cycle[..shown.min(cycle.len() - 1)] {
        let _ = writeln!(explanation, "{edge}");
    }
    if cycle.len() - 1 > shown {
        let _ = writeln!(explanation, "... and {} more", cycle.len() - 1 - shown);
    }
    let _ = cycle.last().map(|edge| write!(explanation, "but {edge}"));
    Anomaly { kind: kind_of(cycle), order, transactions, edges: cycle.to_vec(), explanation }
}
