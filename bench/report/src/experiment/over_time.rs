//! The course of measured time: a strip a store and workload, its points laid
//! end to end, and several runs over each other.

use super::{
    Block, Figure, Layout, Section,
    load::{RunSlices, Slice},
    view::{CurveView, View, operations},
};
use crate::{
    html::series::HEAT_WORDS,
    plot::{Axis, Column, Heat, Line, POINTS_MAX, Plot, Upright},
};

const WIDE: (u32, u32) = (1040, 220);

/// Strips that a page has; the plots as files are of all.
const STRIPS_MAX: usize = 8;

/// Operations that have heat maps.
const HEAT_MAPS_MAX: usize = 3;

/// Pixels that a point needs so that its name stands at it.
const NAME_MIN: f64 = 64.0;

/// Points laid end to end.
struct Strip<'v> {
    name: String,
    style: usize,
    /// Names and slices.
    segments: Vec<(String, Vec<Slice>)>,
    operations: Vec<&'v str>,
    /// The operation that there are most of in each segment, if these are not
    /// all the same.
    leading: Option<Vec<&'v str>>,
}

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let mut blocks = Vec::new();
    if view.only_runs && view.curves.len() > 1 {
        blocks.push(Block::new(String::new(), Layout::Wide, overlaid(view)));
    }
    let strips = strips(view);
    let left_out = strips.len().saturating_sub(STRIPS_MAX);
    for (nth, strip) in strips.iter().enumerate() {
        let block = Block::new(strip.name.clone(), Layout::Wide, strip.plots());
        let figures = block.figures.into_iter();
        let figures = figures.map(|figure| Figure { on_page: nth < STRIPS_MAX, ..figure }).collect();
        blocks.push(Block { figures, ..block });
    }
    let mut words =
        format!("Measured time without warm-up, the points and their repeats end to end. {HEAT_WORDS}");
    if left_out > 0 {
        words += &format!(" {left_out} more are left out here; `serval report --plots` writes all.");
    }
    Some(Section { title: "Over time", words, blocks })
}

/// Where curves have one point each, those of a store are one strip.
fn strips<'v>(view: &'v View<'_>) -> Vec<Strip<'v>> {
    let single = !view.only_runs && view.curves.iter().all(|curve| curve.results.points.len() == 1);
    let mut groups: Vec<Vec<&CurveView<'_>>> = Vec::new();
    for curve in &view.curves {
        match groups.iter_mut().find(|group| single && group[0].store == curve.store) {
            Some(group) => group.push(curve),
            None => groups.push(vec![curve]),
        }
    }
    let strip = |group: Vec<&'v CurveView<'v>>| {
        let is_one = group.len() == 1;
        let segments = group.iter().flat_map(|curve| {
            curve.results.points.iter().map(move |point| {
                let name = match (is_one, curve.at) {
                    (true, _) => point.load(),
                    (false, Some((at, _))) => at.to_string(),
                    (false, None) => curve.workload.clone(),
                };
                let slices = point.courses.iter().flat_map(|course| course.slices.iter().cloned());
                (name, slices.collect::<Vec<Slice>>())
            })
        });
        let segments: Vec<(String, Vec<Slice>)> = segments.collect();
        let leading: Vec<&str> = group
            .iter()
            .flat_map(|curve| {
                let first = operations(&[*curve]).first().copied().unwrap_or_default();
                std::iter::repeat_n(first, curve.results.points.len())
            })
            .collect();
        let leading = leading.iter().any(|first| *first != leading[0]).then_some(leading);
        let name = if is_one { group[0].name.clone() } else { group[0].store.clone() };
        Strip { name, style: group[0].style, segments, operations: operations(&group), leading }
    };
    groups.into_iter().map(strip).collect()
}

/// No more slices than a line has points.
fn fewer(slices: &[Slice]) -> Vec<Slice> {
    let chunk = slices.len().div_ceil(POINTS_MAX).max(1);
    slices.chunks(chunk).map(|chunk| Slice::together(&chunk.iter().collect::<Vec<_>>())).collect()
}

/// A line of values of slices, each in its middle.
fn line(label: &str, style: usize, slices: &[Slice], value: impl Fn(&Slice) -> Option<f64>) -> Line {
    broken_line(label, style, slices, &[], value)
}

/// The same, interrupted before some of the slices.
fn broken_line(
    label: &str,
    style: usize,
    slices: &[Slice],
    breaks: &[usize],
    value: impl Fn(&Slice) -> Option<f64>,
) -> Line {
    let mut start = 0.0;
    let points = slices.iter().enumerate().flat_map(|(nth, slice)| {
        let interruption = breaks.contains(&nth).then_some((start, None));
        let middle = start + slice.length_s / 2.0;
        start += slice.length_s;
        interruption.into_iter().chain([(middle, value(slice))])
    });
    Line::new(label, style, points)
}

fn rate(number: f64, slice: &Slice) -> Option<f64> {
    (slice.length_s > 0.0).then(|| number / slice.length_s)
}

impl<'v> Strip<'v> {
    fn plots(&self) -> Vec<Plot> {
        let whole: usize = self.segments.iter().map(|(_, slices)| slices.len()).sum();
        let chunk = whole.div_ceil(POINTS_MAX).max(1);
        let mut slices: Vec<Slice> = Vec::new();
        let mut marks: Vec<(f64, &str)> = Vec::new();
        let mut seconds = 0.0;
        let mut breaks = Vec::new();
        // A slice of two points would be of neither.
        for (name, segment) in &self.segments {
            marks.push((seconds, name));
            breaks.push(slices.len());
            for chunk in segment.chunks(chunk) {
                let slice = Slice::together(&chunk.iter().collect::<Vec<_>>());
                seconds += slice.length_s;
                slices.push(slice);
            }
        }
        let Some(x) = Axis::seconds(seconds, WIDE.0) else { return Vec::new() };
        let uprights: Vec<Upright> = marks
            .iter()
            .enumerate()
            .map(|(nth, (start, name))| {
                let end = marks.get(nth + 1).map_or(seconds, |(next, _)| *next);
                let room = (end - start) / seconds * f64::from(WIDE.0 - 90);
                let needed = NAME_MIN.max(8.0 * name.chars().count() as f64);
                let label =
                    if marks.len() > 1 && room >= needed { (*name).to_owned() } else { String::new() };
                Upright { x: *start, style: None, label }
            })
            .collect();
        let base = |title: String, y: Axis| Plot {
            uprights: uprights.clone(),
            ..Plot::new(title, WIDE, x.clone(), y)
        };
        let rates = |label: &str, style: usize, value: &dyn Fn(&Slice) -> Option<f64>| {
            broken_line(label, style, &slices, &breaks, value)
        };
        let mut plots = Vec::new();
        let mut done = vec![rates("done", self.style, &|slice| rate(slice.operations, slice))];
        if slices.iter().any(|slice| slice.due.is_some()) {
            done.push(rates("offered", self.style, &|slice| rate(slice.due?, slice)).dashed());
        }
        // Room for the points' names.
        let top = |lines: &[Line]| lines.iter().flat_map(Line::values).fold(0.0, f64::max) * 1.12;
        if let Some(y) = Axis::rates(top(&done), 6 * 90) {
            plots.push(base(format!("{}: operations a second", self.name), y).with_lines(done));
        }
        let mut heat = |title: String, operation: &dyn Fn(usize) -> &'v str| {
            let mut start = 0.0;
            let columns = slices.iter().enumerate().map(|(nth, slice)| {
                let x = start..start + slice.length_s;
                start = x.end;
                // The segment that the slice is of.
                let segment = breaks.partition_point(|first| *first <= nth).saturating_sub(1);
                let levels = slice.metrics.get(operation(segment)).map(|(levels, _)| levels.clone());
                Column { x, levels: levels.unwrap_or_default() }
            });
            let heat = Heat { columns: columns.collect() };
            if let Some(times) = heat.times() {
                // Room for the points' names.
                let y = Axis::times_between(times.start..times.end * (times.end / times.start).powf(0.1));
                plots.push(base(title, y).with_heat(heat));
            }
        };
        match &self.leading {
            // Each in its own segment.
            Some(leading) => heat(format!("{}: response time", self.name), &|segment| {
                leading.get(segment).copied().unwrap_or_default()
            }),
            None => {
                for operation in self.operations.iter().take(HEAT_MAPS_MAX) {
                    heat(format!("{}: response time, {operation}", self.name), &|_| operation);
                }
            }
        }
        if slices.iter().any(|slice| slice.failed > 0) {
            let failed = vec![rates("failed", 4, &|slice| rate(slice.failed as f64, slice))];
            if let Some(y) = Axis::rates(top(&failed), 6 * 90) {
                plots.push(base(format!("{}: failures a second", self.name), y).with_lines(failed));
            }
        }
        plots
    }
}

/// Several runs, each from its own start.
fn overlaid(view: &View<'_>) -> Vec<Plot> {
    let runs: Vec<(&CurveView<'_>, Vec<Slice>)> = view
        .curves
        .iter()
        .map(|curve| {
            let courses = curve.results.points.iter().flat_map(|point| &point.courses);
            (curve, fewer(&courses.flat_map(|course| course.slices.iter().cloned()).collect::<Vec<_>>()))
        })
        .collect();
    let courses = view.points().flat_map(|(_, point)| &point.courses);
    let Some(x) = Axis::seconds(courses.map(RunSlices::seconds).fold(0.0, f64::max), WIDE.0) else {
        return Vec::new();
    };
    let lines = |value: &dyn Fn(&Slice) -> Option<f64>| -> Vec<Line> {
        runs.iter().map(|(run, slices)| line(&run.name, run.style, slices, value).dashed_by_style()).collect()
    };
    let mut plots = Vec::new();
    let done = lines(&|slice| rate(slice.operations, slice));
    if let Some(y) = Axis::rates(done.iter().flat_map(Line::values).fold(0.0, f64::max), 6 * 90) {
        plots.push(Plot::new("Operations a second", WIDE, x.clone(), y).with_lines(done));
    }
    for operation in operations(&view.curves.iter().collect::<Vec<_>>()).into_iter().take(HEAT_MAPS_MAX) {
        let p99 = lines(&|slice| {
            let highest = slice.metrics.get(operation)?.1;
            (highest > 0).then_some(highest as f64)
        });
        if let Some(y) = Axis::times(p99.iter().flat_map(Line::values)) {
            plots.push(
                Plot::new(format!("Response time, {operation}, p99"), WIDE, x.clone(), y).with_lines(p99),
            );
        }
    }
    let failed = lines(&|slice| rate(slice.failed as f64, slice));
    if let Some(y) = Axis::rates(failed.iter().flat_map(Line::values).fold(0.0, f64::max), 6 * 90) {
        plots.push(Plot::new("Failures a second", WIDE, x, y).with_lines(failed));
    }
    plots
}
