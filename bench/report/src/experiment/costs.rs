//! Costs of an operation (CPU time, bytes on the network, memory), as in figure 16 of the
//! Yesquel paper.

use super::{
    Block, Layout, Section,
    load::{Point, Used},
    view::{CurveView, View, keys},
};
use crate::{
    html::parts::{Table, explained},
    plot::{Axis, Bar, Plot, Shape},
    text::escape,
    units::{self, bytes, time},
};

/// A cost of a point: its name, its value, and the value in words.
type Cost = (&'static str, fn(&Point) -> Option<f64>, fn(f64) -> String);

const COSTS: [Cost; 5] = [
    ("client CPU", |point| cpu_ns(point.client.as_ref()), time),
    ("store CPU", |point| cpu_ns(point.store.as_ref()), time),
    ("network", network, in_bytes),
    ("client memory", |point| memory(point.client.as_ref()), in_bytes),
    ("store memory", |point| memory(point.store.as_ref()), in_bytes),
];

fn in_bytes(number: f64) -> String {
    bytes(number.round() as u64)
}

/// CPU time of an operation, ns.
pub(super) fn cpu_ns(used: Option<&Used>) -> Option<f64> {
    used.filter(|used| used.operations > 0).map(|used| used.cpu_s * 1e9 / used.operations as f64)
}

/// Bytes sent and received for an operation: as the client measured them, else as the store's
/// processes did.
pub(super) fn network(point: &Point) -> Option<f64> {
    let of =
        |used: &Used| Some(used.network_bytes? as f64 / used.operations as f64).filter(|b| b.is_finite());
    point.client.as_ref().and_then(of).or_else(|| point.store.as_ref().and_then(of))
}

/// Memory in bytes, the maximum over the repeats.
pub(super) fn memory(used: Option<&Used>) -> Option<f64> {
    used.and_then(|used| used.memory_bytes).map(|bytes| bytes as f64)
}

/// Whether costs of any point are known.
fn is_known(view: &View<'_>) -> bool {
    view.points().any(|(_, point)| point.client.is_some() || point.store.is_some())
}

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    if !is_known(view) {
        return None;
    }
    let blocks = view.by_workload(|_| true).into_iter().flat_map(|(workload, curves)| {
        let name = view.prefix(workload);
        // Each place on the experiment's axis has a comparison of its own.
        let mut places: Vec<Option<f64>> = curves.iter().map(|curve| curve.at.map(|(at, _)| at)).collect();
        places.dedup();
        places
            .into_iter()
            .filter_map(move |place| {
                let curves: Vec<&CurveView<'_>> =
                    curves.iter().copied().filter(|curve| curve.at.map(|(at, _)| at) == place).collect();
                compared(&name, &curves)
            })
            .collect::<Vec<_>>()
    });
    let words = "Usage per operation in the measured time, of each store at its highest load that is not overloaded, \
                 relative to the first store, on a logarithmic scale. Memory is that of the process at the end. An \
                 embedded store is part of the client; processes of a store are included if they are watched."
        .to_owned();
    Some(Section { title: "Costs", words, blocks: blocks.collect() })
}

/// Bars of the costs of all other curves relative to those of the first.
fn compared(name: &str, curves: &[&CurveView<'_>]) -> Option<Block> {
    let (first, others) = curves.split_first().filter(|(_, others)| !others.is_empty())?;
    let base = first.highest_sound()?;
    let known: Vec<&Cost> =
        COSTS.iter().filter(|(_, value, _)| value(base).is_some_and(|v| v > 0.0)).collect();
    let half = 0.36 / others.len() as f64;
    let mut bars = Vec::new();
    for (place, (_, value, _)) in known.iter().enumerate() {
        let one = value(base)?;
        for (nth, curve) in others.iter().enumerate() {
            let Some(other) = curve.highest_sound().and_then(value).filter(|v| *v > 0.0) else { continue };
            let off = (nth as f64 - (others.len() as f64 - 1.0) / 2.0) * 0.8 / others.len() as f64;
            let (middle, ratio) = (place as f64 + off, other / one);
            let x = middle - half..middle + half;
            bars.push(Bar { x, y: (1.0, ratio), spread: (ratio, ratio), style: curve.style });
        }
    }
    if bars.is_empty() {
        return None;
    }
    // As in the paper, labels have the absolute numbers of the first store.
    let names: Vec<String> = known
        .iter()
        .filter_map(|(name, value, words)| Some(format!("{name}, {}", words(value(base)?))))
        .collect();
    let y = Axis::ratios(bars.iter().map(|bar| bar.y.1))?;
    let title = format!("{name}Costs over those of {}", first.store);
    let keys = keys(others, |_| Shape::Bar);
    let x =
        Axis::things(&names).labelled(&format!("× 1 is {}; labels have its numbers", first.name_of(base)));
    let plot = Plot::new(title, (1040, 260), x, y);
    let plot = Plot { bars, legend: keys.clone(), ..plot };
    Some(Block::new(String::new(), Layout::Wide, vec![plot]).sharing(keys))
}

/// The table of costs of all points.
pub(super) fn table(page: &mut String, view: &View<'_>) {
    if !is_known(view) {
        return;
    }
    let is_known = |(_, value, _): &&Cost| view.points().any(|(_, point)| value(point).is_some());
    let known: Vec<&Cost> = COSTS.iter().filter(is_known).collect();
    let mut table = Table::numbers("<an operation of");
    known.iter().for_each(|(name, ..)| table.head(name));
    for (curve, point) in view.points() {
        let costs = known.iter().map(|(_, value, words)| units::known(value(point), words));
        table.row(std::iter::once(escape(curve.name_of(point))).chain(costs));
    }
    table.write(page);
    let mut watched: Vec<String> =
        view.points().flat_map(|(_, point)| point.processes.iter().cloned()).collect();
    watched.sort();
    watched.dedup();
    if !watched.is_empty() {
        explained(page, &format!("Watched processes of stores: {}.", watched.join(", ")));
    }
}
