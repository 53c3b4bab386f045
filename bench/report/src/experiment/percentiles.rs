//! Response times by percentile at selected points, with a line for each store.

use super::{
    Block, Layout, Section,
    load::Point,
    view::{CurveView, View, operations},
};
use crate::plot::{Line, Plot, by_percentile};

const SMALL: (u32, u32) = (344, 260);
/// Size of plots with many lines.
const LARGE: (u32, u32) = (520, 320);
/// Largest number of lines with their legend in a small plot.
const SMALL_LINES_MAX: usize = 6;

/// Selects a point of a curve.
type Pick = for<'c> fn(&'c CurveView<'_>) -> Option<&'c Point>;

/// The points that are selected of each curve.
const PICKS: [(&str, Pick); 3] = [
    ("lowest load", |curve| curve.lowest()),
    ("about half of the most", |curve| curve.half()),
    ("highest load not overloaded", |curve| curve.highest_sound()),
];

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let mut blocks = Vec::new();
    for (workload, curves) in view.by_workload(CurveView::is_sweep) {
        for operation in operations(&curves) {
            let mut plots: Vec<Plot> = Vec::new();
            let mut shown: Vec<Vec<Option<usize>>> = Vec::new();
            for (name, pick) in PICKS {
                // With few points, two selections may be the same.
                let points: Vec<_> =
                    curves.iter().map(|curve| pick(curve).map(|point| point.place)).collect();
                if shown.contains(&points) {
                    continue;
                }
                shown.push(points);
                let title = format!("{}{operation}, {name}", view.prefix(workload));
                plots.extend(plot(title, operation, &curves, pick, SMALL));
            }
            blocks.push(Block::new(String::new(), Layout::Small, plots));
        }
    }
    let mut plots = Vec::new();
    for (workload, curves) in view.by_workload(CurveView::is_closed) {
        plots.extend(operations(&curves).into_iter().filter_map(|operation| {
            plot(
                format!("{}{operation}", view.prefix(workload)),
                operation,
                &curves,
                |c| c.highest_sound(),
                SMALL,
            )
        }));
    }
    blocks.push(Block::new(String::new(), Layout::Small, plots));
    let mut at: Vec<(f64, &str)> = view.curves.iter().filter_map(|curve| curve.at).collect();
    at.sort_by(|a, b| a.0.total_cmp(&b.0));
    at.dedup();
    // The first, the middle and the last.
    let mut chosen: Vec<usize> = vec![0, at.len() / 2, at.len().saturating_sub(1)];
    chosen.dedup();
    let mut plots = Vec::new();
    for (place, axis) in chosen.into_iter().filter_map(|nth| at.get(nth)) {
        let curves: Vec<&CurveView<'_>> =
            view.curves.iter().filter(|curve| curve.at == Some((*place, *axis))).collect();
        for operation in operations(&curves).into_iter().take(2) {
            let title = format!("{operation}, {place} {axis}");
            plots.extend(plot(title, operation, &curves, |c| c.highest_sound(), SMALL));
        }
    }
    blocks.push(Block::new(String::new(), Layout::Small, plots));
    let words = "Times of all repeats of a point, merged. A percentile is the time that this share of operations did not \
                 exceed; the axis has equal room for each further nine."
        .to_owned();
    Some(Section { title: "Response times by percentile", words, blocks })
}

fn plot(
    title: String,
    operation: &str,
    curves: &[&CurveView<'_>],
    pick: Pick,
    size: (u32, u32),
) -> Option<Plot> {
    let lines = curves.iter().filter_map(|curve| {
        let point = pick(curve)?;
        let times = point.metric(operation)?.response.as_ref()?;
        let label = format!("{}, {}", curve.store, point.load());
        let points = times.distribution.iter().map(|(x, y)| (*x, Some(*y)));
        Some(Line::new(&label, curve.style, points).dashed_by_style())
    });
    let lines: Vec<Line> = lines.collect();
    let size = if lines.len() > SMALL_LINES_MAX { LARGE } else { size };
    by_percentile(title, lines, size)
}
