//! Measured time: a strip for each store and workload, its points end to end,
//! and several runs over each other.

use super::{
    Block, Layout, Section,
    load::Slice,
    view::{CurveView, View, operations},
};
use crate::{
    html::series::HEAT_WORDS,
    plot::{
        Line, Plot, Upright, chunk_of,
        timeline::{Piece, TimePlots, Timeline},
    },
};

/// Height of plots.
const HEIGHT: u32 = 220;

/// Largest number of strips on a page; there are files of all.
const STRIPS_MAX: usize = 8;

/// Largest number of operations with heat maps.
const HEAT_MAPS_MAX: usize = 3;

/// Smallest width of a point in pixels at which its name is shown.
const NAME_MIN: f64 = 64.0;

/// Points laid end to end.
struct Strip<'v> {
    name: String,
    style: usize,
    /// Names and slices.
    segments: Vec<(String, &'v [Slice])>,
    operations: Vec<&'v str>,
    /// The most frequent operation of each segment, if these are not all the same.
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
        blocks.push(Block { on_page: nth < STRIPS_MAX, ..block });
    }
    let mut words =
        format!("Measured time without warm-up; points and their repeats are end to end. {HEAT_WORDS}");
    if left_out > 0 {
        words += &format!(" {left_out} more are left out here; `serval report --plots` writes all.");
    }
    Some(Section { title: "Over time", words, blocks })
}

/// The strips: one for each curve; one for each store if all curves have a single point.
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
                (name, &point.slices[..])
            })
        });
        let segments: Vec<(String, &[Slice])> = segments.collect();
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

/// The timeline of segments one after the other, merged so that lines do not get too long.
fn timeline<'s>(segments: impl Iterator<Item = &'s [Slice]> + Clone) -> Timeline<Slice> {
    let chunk = chunk_of(segments.clone().map(<[Slice]>::len).sum());
    let mut end = 0.0;
    // Slices of different segments are never merged.
    let chunks = segments.enumerate().flat_map(|(segment, slices)| {
        slices.chunks(chunk).map(move |slices| (segment, Slice::together(slices)))
    });
    let pieces = chunks.map(|(segment, measured)| {
        let start = end;
        end += measured.length_s;
        Piece { segment, time: start..end, measured }
    });
    Timeline { pieces: pieces.collect(), stretched: false }
}

fn per_second(number: f64, slice: &Slice) -> Option<f64> {
    (slice.length_s > 0.0).then(|| number / slice.length_s)
}

impl<'v> Strip<'v> {
    fn plots(&self) -> Vec<Plot> {
        let timeline = timeline(self.segments.iter().map(|(_, slices)| *slices));
        let Some(mut axis) = TimePlots::new(timeline.end(), HEIGHT) else { return Vec::new() };
        (axis.uprights, axis.headroom) = (self.uprights(timeline.end()), true);
        let line = |label: &str, style: usize, value: fn(&Slice) -> Option<f64>| {
            timeline.line(label, style, |piece| value(&piece.measured))
        };
        let mut done = vec![line("done", self.style, |slice| per_second(slice.operations, slice))];
        if timeline.pieces.iter().any(|piece| piece.measured.due.is_some()) {
            done.push(line("offered", self.style, |slice| per_second(slice.due?, slice)).dashed());
        }
        let mut plots = Vec::new();
        plots.extend(axis.rates(format!("{}: operations a second", self.name), done));
        let heat = |title: String, operation: &dyn Fn(usize) -> &'v str| {
            let columns = timeline.columns(|piece| {
                let metric = piece.measured.metrics.get(operation(piece.segment));
                metric.map(|(levels, _)| levels.clone()).unwrap_or_default()
            });
            axis.heat(title, columns)
        };
        match &self.leading {
            // Each segment shows its most frequent operation.
            Some(leading) => {
                plots.extend(heat(format!("{}: response time", self.name), &|segment| leading[segment]))
            }
            None => plots.extend(self.operations.iter().take(HEAT_MAPS_MAX).filter_map(|operation| {
                heat(format!("{}: response time, {operation}", self.name), &|_| *operation)
            })),
        }
        if timeline.pieces.iter().any(|piece| piece.measured.failed > 0) {
            let failed = line("failed", 4, |slice| per_second(slice.failed as f64, slice));
            plots.extend(axis.rates(format!("{}: failures a second", self.name), vec![failed]));
        }
        plots
    }

    /// A mark at the start of each segment, with its name if there is room.
    fn uprights(&self, seconds: f64) -> Vec<Upright> {
        let mut end = 0.0;
        let upright = |(name, slices): &(String, &[Slice])| {
            let start = end;
            end += slices.iter().map(|slice| slice.length_s).sum::<f64>();
            let room = (end - start) / seconds * 950.0;
            let fits = self.segments.len() > 1 && room >= NAME_MIN.max(8.0 * name.chars().count() as f64);
            Upright { x: start, style: None, label: if fits { name.clone() } else { String::new() } }
        };
        self.segments.iter().map(upright).collect()
    }
}

/// Plots of several runs over each other, each from its own start.
fn overlaid(view: &View<'_>) -> Vec<Plot> {
    let run = |curve: &CurveView<'_>| {
        let slices = curve.results.points.iter().flat_map(|point| point.slices.iter().cloned());
        timeline([&slices.collect::<Vec<_>>()[..]].into_iter())
    };
    let runs: Vec<(&CurveView<'_>, Timeline<Slice>)> =
        view.curves.iter().map(|curve| (curve, run(curve))).collect();
    let longest = runs.iter().map(|(_, timeline)| timeline.end()).fold(0.0, f64::max);
    let Some(axis) = TimePlots::new(longest, HEIGHT) else { return Vec::new() };
    let lines = |value: &dyn Fn(&Slice) -> Option<f64>| -> Vec<Line> {
        let line = |(run, timeline): &(&CurveView<'_>, Timeline<Slice>)| {
            timeline.line(&run.name, run.style, |piece| value(&piece.measured)).dashed_by_style()
        };
        runs.iter().map(line).collect()
    };
    let done = lines(&|slice| per_second(slice.operations, slice));
    let mut plots: Vec<Plot> = axis.rates("Operations a second", done).into_iter().collect();
    for operation in operations(&view.curves.iter().collect::<Vec<_>>()).into_iter().take(HEAT_MAPS_MAX) {
        let p99 = lines(&|slice| {
            let highest = slice.metrics.get(operation)?.1;
            (highest > 0).then_some(highest as f64)
        });
        plots.extend(axis.times(format!("Response time, {operation}, p99"), p99));
    }
    let failed = lines(&|slice| per_second(slice.failed as f64, slice));
    plots.extend(axis.rates("Failures a second", failed));
    plots
}
