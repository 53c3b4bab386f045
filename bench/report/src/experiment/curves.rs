//! Plots of curves: latency against throughput, against the experiment's axis, or side by side for
//! closed loops.

use super::{
    Block, Layout, Section,
    load::{LoadMetric, LoadTimes, Point, Spread},
    view::{CurveView, STATISTICS, View, keys, operations, two_times},
};
use crate::plot::{Axis, Bar, Dot, Line, Plot, Shape, Upright};

/// Size of plots of which three stand side by side.
const SMALL: (u32, u32) = (344, 250);
/// Size of plots shown side by side.
const LARGE: (u32, u32) = (520, 280);

/// Selects the response or the service times of an operation.
type Which = fn(&LoadMetric) -> Option<&LoadTimes>;

const RESPONSE: Which = |metric| metric.response.as_ref();
const SERVICE: Which = |metric| metric.service.as_ref();

pub(super) fn sections(view: &View<'_>) -> Vec<Section> {
    [sweeps(view), axes(view), closed(view)].into_iter().flatten().collect()
}

/// Explains the marks of these plots.
const MARKS: &str = "Mark: a point, repeats merged. Bars: minimum to maximum of the repeats. Hollow: flagged, see the \
    warnings and the table.";

fn sweeps(view: &View<'_>) -> Option<Section> {
    let mut blocks = Vec::new();
    for (workload, curves) in view.by_workload(CurveView::is_sweep) {
        for operation in operations(&curves) {
            let heading = format!("{}{operation}", view.prefix(workload));
            let plots = sweep(&heading, operation, &curves);
            blocks.push(Block::new(heading, Layout::Small, plots).sharing(keys(&curves, |_| Shape::Dot)));
        }
    }
    let missed = view.points().any(|(_, point)| wanted(point).is_some());
    let mut words = format!("x axis: operations/s done. {MARKS}");
    if missed {
        words += " A dotted horizontal line ends at the offered load that was not reached.";
    }
    if view.curves.iter().any(|curve| curve.saturation.is_some()) {
        words += " Dotted vertical line: the store's saturation.";
    }
    (!blocks.is_empty()).then_some(Section { title: "Latency against throughput", words, blocks })
}

/// The offered load of a point that did not reach it.
fn wanted(point: &Point) -> Option<f64> {
    point
        .target
        .filter(|target| point.target_missed() || (target - point.throughput.value).abs() > 0.03 * target)
}

fn sweep(title: &str, operation: &str, curves: &[&CurveView<'_>]) -> Vec<Plot> {
    let rows: &[(&str, Which)] = match two_times(curves, operation) {
        true => &[("response time", RESPONSE), ("service time", SERVICE)],
        false => &[("response time", RESPONSE)],
    };
    let mut most: f64 = 0.0;
    for curve in curves {
        most = curve
            .results
            .points
            .iter()
            .fold(most, |most, point| most.max(point.throughput.high).max(wanted(point).unwrap_or(0.0)));
        most = curve.saturation.map_or(most, |saturation| most.max(saturation.throughput));
    }
    let (mut drawn, mut values) = (Vec::new(), Vec::new());
    for (kind, which) in rows {
        for (name, statistic) in STATISTICS {
            let lines: Vec<Line> =
                curves.iter().map(|curve| sweep_line(curve, operation, *which, statistic)).collect();
            values.extend(lines.iter().flat_map(Line::values));
            drawn.push((format!("{title}, {kind}, {name}"), lines));
        }
    }
    // A common scale makes the plots comparable.
    let Some(y) = Axis::times(values.into_iter()) else { return Vec::new() };
    let uprights = curves.iter().filter_map(|curve| {
        let x = curve.saturation.map(|s| s.throughput).or(curve.highest.map(|h| h.rate))?;
        x.is_finite().then(|| Upright { x, style: Some(curve.style), label: String::new() })
    });
    let uprights: Vec<Upright> = uprights.collect();
    let plot = |(title, lines): (String, Vec<Line>)| {
        let x = Axis::rates(most, SMALL.0)?.labelled("operations/s");
        let plot = Plot::new(title, SMALL, x, y.clone()).with_lines(lines);
        Some(Plot { uprights: uprights.clone(), ..plot })
    };
    drawn.into_iter().filter_map(plot).collect()
}

fn dot(x: Spread, y: Spread, point: &Point) -> Dot {
    Dot {
        at: (x.value, y.value),
        spread: (y.low, y.high),
        spread_x: (x.low, x.high),
        hollow: point.flagged(),
        wanted_x: None,
    }
}

fn sweep_line(
    curve: &CurveView<'_>,
    operation: &str,
    which: Which,
    statistic: fn(&LoadTimes) -> Spread,
) -> Line {
    let at = |point: &Point| Some((point.throughput, statistic(which(point.metric(operation)?)?)));
    // A closed loop is not part of the sweep's line.
    let paced = curve.results.points.iter().filter(|point| point.target.is_some());
    let line = paced.filter_map(at).map(|(x, y)| (x.value, Some(y.value)));
    let dots = curve.results.points.iter().filter_map(|point| {
        let (x, y) = at(point)?;
        Some(Dot { wanted_x: wanted(point), ..dot(x, y, point) })
    });
    Line { dots: dots.collect(), ..Line::new(&curve.store, curve.style, line) }
}

fn axes(view: &View<'_>) -> Option<Section> {
    let mut names: Vec<&str> = view.curves.iter().filter_map(|curve| Some(curve.at?.1)).collect();
    names.dedup();
    let mut blocks = Vec::new();
    for axis in names {
        let on = |curve: &&CurveView<'_>| curve.at.is_some_and(|(_, name)| name == axis);
        let curves: Vec<&CurveView<'_>> = view.curves.iter().filter(on).collect();
        let keys = keys(&curves, |_| Shape::Dot);
        let rate = |point: &Point| Some(point.throughput);
        let throughput = axis_plot(axis, "Throughput, operations/s", &curves, rate, true);
        let throughput = throughput.map(|plot| Plot { size: LARGE, ..plot });
        let block = Block::new(String::new(), Layout::Small, throughput.into_iter().collect());
        blocks.push(block.sharing(keys.clone()));
        for operation in operations(&curves) {
            let plots = STATISTICS.into_iter().filter_map(|(name, statistic)| {
                let title = format!("{operation}, response time, {name}");
                axis_plot(
                    axis,
                    &title,
                    &curves,
                    |point| Some(statistic(RESPONSE(point.metric(operation)?)?)),
                    false,
                )
            });
            blocks
                .push(Block::new(operation.to_owned(), Layout::Small, plots.collect()).sharing(keys.clone()));
        }
    }
    let words = format!("x axis: the value in which the curves differ. {MARKS}");
    (!blocks.is_empty()).then_some(Section { title: "Latency and throughput", words, blocks })
}

fn axis_plot(
    axis: &str,
    title: &str,
    curves: &[&CurveView<'_>],
    value: impl Fn(&Point) -> Option<Spread>,
    is_rate: bool,
) -> Option<Plot> {
    // The curves of a store are joined: a line for each point of a curve.
    let mut stores: Vec<(&str, usize)> = curves.iter().map(|c| (c.store.as_str(), c.style)).collect();
    stores.dedup();
    let places = curves.iter().map(|curve| curve.results.points.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (store, style) in stores {
        for nth in 0..places {
            let mut dots: Vec<Dot> = Vec::new();
            for curve in curves.iter().filter(|curve| curve.store == store) {
                let Some(((at, _), point)) = curve.at.zip(curve.results.points.get(nth)) else { continue };
                let Some(y) = value(point) else { continue };
                dots.push(dot(Spread { value: at, low: at, high: at }, y, point));
            }
            dots.sort_by(|a, b| a.at.0.total_cmp(&b.at.0));
            let line: Vec<_> = dots.iter().map(|dot| (dot.at.0, Some(dot.at.1))).collect();
            lines.push(Line { dots, ..Line::new(store, style, line.into_iter()) });
        }
    }
    let mut at: Vec<f64> = curves.iter().filter_map(|curve| Some(curve.at?.0)).collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    let x = Axis::places(&at)?.labelled(axis);
    let y = match is_rate {
        true => Axis::rates(Line::highest(&lines), 360)?,
        false => Axis::times(lines.iter().flat_map(Line::values))?,
    };
    Some(Plot::new(title, SMALL, x, y).with_lines(lines))
}

fn closed(view: &View<'_>) -> Option<Section> {
    let groups = view.by_workload(CurveView::is_closed);
    let curves: Vec<&CurveView<'_>> = groups.iter().flat_map(|(_, curves)| curves).copied().collect();
    let mut stores: Vec<(&str, usize)> = Vec::new();
    for curve in &curves {
        if !stores.contains(&(&curve.store, curve.style)) {
            stores.push((&curve.store, curve.style));
        }
    }
    let workloads: Vec<String> = groups.iter().map(|(workload, _)| (*workload).to_owned()).collect();
    let find = |workload: usize, store: &str| groups[workload].1.iter().find(|curve| curve.store == store);
    let place = |store: usize| (store as f64 - (stores.len() as f64 - 1.0) / 2.0) * 0.8 / stores.len() as f64;
    let half = 0.36 / stores.len() as f64;
    let mut bars = Vec::new();
    for workload in 0..workloads.len() {
        for (nth, (store, style)) in stores.iter().enumerate() {
            let Some(point) = find(workload, store).and_then(|curve| curve.highest_sound()) else { continue };
            let middle = workload as f64 + place(nth);
            let Spread { value, low, high } = point.throughput;
            let x = middle - half..middle + half;
            bars.push(Bar { x, y: (0.0, value), spread: (low, high), style: *style });
        }
    }
    let mut blocks = Vec::new();
    let width = if workloads.len() > 3 { 1040 } else { LARGE.0 };
    if let Some(y) = Axis::rates(bars.iter().map(|bar| bar.spread.1).fold(0.0, f64::max), 4 * 90) {
        let plot = Plot::new("Throughput, operations/s", (width, LARGE.1), Axis::things(&workloads), y);
        let keys = keys(&curves, |_| Shape::Bar);
        let plot = Plot { bars, legend: keys.clone(), ..plot };
        blocks.push(Block::new(String::new(), Layout::Small, vec![plot]).sharing(keys));
    }
    // Each operation of each workload has its own place.
    let mut places: Vec<(usize, &str)> = Vec::new();
    for (workload, (_, curves)) in groups.iter().enumerate() {
        places.extend(operations(curves).into_iter().map(|operation| (workload, operation)));
    }
    let several = |workload: usize| places.iter().filter(|(w, _)| *w == workload).count() > 1;
    let names = places.iter().map(|&(workload, operation)| {
        let name = &workloads[workload];
        if several(workload) && workloads.len() > 1 {
            format!("{name} {operation}")
        } else if workloads.len() > 1 {
            name.clone()
        } else {
            operation.to_owned()
        }
    });
    let names: Vec<String> = names.collect();
    let mut drawn = Vec::new();
    for (name, statistic) in STATISTICS {
        let lines = stores.iter().enumerate().map(|(nth, (store, style))| {
            let dots = places.iter().enumerate().filter_map(|(at, &(workload, operation))| {
                let point = find(workload, store)?.highest_sound()?;
                let x = at as f64 + place(nth);
                let y = statistic(RESPONSE(point.metric(operation)?)?);
                Some(dot(Spread { value: x, low: x, high: x }, y, point))
            });
            Line { label: (*store).to_owned(), style: *style, dots: dots.collect(), ..Line::default() }
        });
        drawn.push((format!("Response time, {name}"), lines.collect::<Vec<Line>>()));
    }
    let values: Vec<f64> = drawn.iter().flat_map(|(_, lines)| lines).flat_map(Line::values).collect();
    if let Some(y) = Axis::times(values.into_iter()) {
        let size = if names.len() > 4 { (1040, 250) } else { SMALL };
        let plot = |(title, lines)| Plot::new(title, size, Axis::things(&names), y.clone()).with_lines(lines);
        let layout = if names.len() > 4 { Layout::Wide } else { Layout::Small };
        let block = Block::new(String::new(), layout, drawn.into_iter().map(plot).collect());
        blocks.push(block.sharing(keys(&curves, |_| Shape::Dot)));
    }
    let paced = curves.iter().flat_map(|curve| &curve.results.points).any(|point| point.target.is_some());
    let load = if paced { "Each store at its offered load" } else { "Closed loops" };
    let words = format!("{load}. {MARKS}");
    (!blocks.is_empty()).then_some(Section { title: "Throughput and latency", words, blocks })
}
