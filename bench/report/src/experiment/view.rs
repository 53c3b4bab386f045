//! The curves of one or several experiments, prepared for reports.

use super::{
    Part,
    load::{CurveResults, LoadMetric, LoadTimes, Point},
};
use crate::{
    plot::{LegendEntry, Shape},
    sums::sums,
    text::printable,
};
use serval_result::{
    experiment::{Highest, Saturation},
    metric::is_beside,
};
use std::collections::BTreeMap;

/// Largest number of operations with plots of their own.
const PLOTTED_MAX: usize = 6;

/// All parts of a report.
pub(super) struct View<'a> {
    pub(super) parts: &'a [Part],
    /// The curves that have points.
    pub(super) curves: Vec<CurveView<'a>>,
    /// Whether all parts are single runs.
    pub(super) only_runs: bool,
}

/// A curve with its results.
pub(super) struct CurveView<'a> {
    pub(super) name: String,
    /// Name of the store; its curves have the same style.
    pub(super) store: String,
    pub(super) style: usize,
    pub(super) binding: String,
    pub(super) workload: String,
    /// Its place on the experiment's axis, and the axis' name.
    pub(super) at: Option<(f64, &'a str)>,
    pub(super) saturation: Option<&'a Saturation>,
    pub(super) highest: Option<&'a Highest>,
    pub(super) results: &'a CurveResults,
}

impl<'a> View<'a> {
    pub(super) fn new(parts: &'a [Part]) -> View<'a> {
        let mut styles: BTreeMap<String, usize> = BTreeMap::new();
        let mut curves = Vec::new();
        for part in parts {
            let document = &part.experiment.document;
            let apart = |name: &str| {
                let name = printable(name, 60);
                if parts.len() > 1 && !part.is_run { format!("{name} ({})", part.name) } else { name }
            };
            for (curve, results) in document.curves.iter().zip(&part.loaded.curves) {
                let store = apart(&curve.store);
                let next = styles.len() + 1;
                let style = *styles.entry(store.clone()).or_insert(next);
                if results.points.is_empty() {
                    continue;
                }
                curves.push(CurveView {
                    name: apart(&curve.name),
                    store,
                    style,
                    binding: printable(&curve.binding, 60),
                    workload: printable(&curve.workload, 60),
                    at: curve.at.filter(|at| at.is_finite()).zip(document.axis.as_deref()),
                    saturation: curve.saturation.as_ref(),
                    highest: curve.highest.as_ref(),
                    results,
                });
            }
        }
        View { parts, curves, only_runs: parts.iter().all(|part| part.is_run) }
    }

    /// The curves for which `holds` is true, by workload, in the order of the plan.
    pub(super) fn by_workload(
        &self,
        holds: impl Fn(&CurveView<'a>) -> bool,
    ) -> Vec<(&str, Vec<&CurveView<'a>>)> {
        let mut groups: Vec<(&str, Vec<&CurveView<'a>>)> = Vec::new();
        for curve in self.curves.iter().filter(|curve| holds(curve)) {
            match groups.iter_mut().find(|(workload, _)| *workload == curve.workload) {
                Some((_, group)) => group.push(curve),
                None => groups.push((&curve.workload, vec![curve])),
            }
        }
        groups
    }

    /// Prefix of headings: the workload, if there are several.
    pub(super) fn prefix(&self, workload: &str) -> String {
        let several = self.curves.iter().any(|curve| curve.workload != self.curves[0].workload);
        if several { format!("{workload}: ") } else { String::new() }
    }

    /// Every point with its curve.
    pub(super) fn points(&self) -> impl Iterator<Item = (&CurveView<'a>, &'a Point)> {
        self.curves.iter().flat_map(|curve| curve.results.points.iter().map(move |point| (curve, point)))
    }
}

impl CurveView<'_> {
    /// Whether it has several offered loads, and no place on an axis.
    pub(super) fn is_sweep(&self) -> bool {
        let points = &self.results.points;
        self.at.is_none() && points.len() > 1 && points.iter().any(|point| point.target.is_some())
    }

    /// Whether it has a single point, or closed loops only.
    pub(super) fn is_closed(&self) -> bool {
        self.at.is_none() && !self.is_sweep()
    }

    /// A point's name.
    pub(super) fn name_of(&self, point: &Point) -> String {
        format!("{} at {}", self.name, point.load())
    }

    /// The point of the lowest load.
    pub(super) fn lowest(&self) -> Option<&Point> {
        self.results.points.iter().min_by(|a, b| a.throughput.value.total_cmp(&b.throughput.value))
    }

    /// The point of the highest load that is not overloaded; if all are, the highest.
    pub(super) fn highest_sound(&self) -> Option<&Point> {
        let points = || self.results.points.iter();
        let most = |a: &&Point, b: &&Point| a.throughput.value.total_cmp(&b.throughput.value);
        points().filter(|point| !point.overloaded()).max_by(most).or_else(|| points().max_by(most))
    }

    /// The point nearest to half of the saturation, or to half of the highest load.
    pub(super) fn half(&self) -> Option<&Point> {
        let most = self.saturation.map(|saturation| saturation.throughput);
        let half = most.or_else(|| Some(self.highest_sound()?.throughput.value))? / 2.0;
        let off = |point: &Point| (point.throughput.value - half).abs();
        let points = || self.results.points.iter();
        // An overloaded point may reach half of the throughput, but is no point of half the load.
        let sound = points().filter(|point| !point.overloaded());
        let nearest = |a: &&Point, b: &&Point| off(a).total_cmp(&off(b));
        sound.min_by(nearest).or_else(|| points().min_by(nearest))
    }
}

/// The most frequent operations of curves; metrics beside the workload do not count.
pub(super) fn operations<'c>(curves: &[&'c CurveView<'_>]) -> Vec<&'c str> {
    let points = curves.iter().flat_map(|curve| &curve.results.points);
    let metrics = points.flat_map(|point| &point.metrics).filter(|metric| is_operation(metric));
    most_frequent(metrics.map(|metric| (metric.name.as_str(), metric.count)))
}

/// The names with the highest sums of counts, highest first.
pub(super) fn most_frequent<'n>(counts: impl Iterator<Item = (&'n str, u64)>) -> Vec<&'n str> {
    let mut names: Vec<(&str, u64)> = sums(counts).into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    names.into_iter().map(|(name, _)| name).take(PLOTTED_MAX).collect()
}

/// Whether a metric is an operation of the workload.
pub(super) fn is_operation(metric: &LoadMetric) -> bool {
    !is_beside(&metric.name)
}

/// Whether response and service times of an operation differ at any point.
pub(super) fn two_times(curves: &[&CurveView<'_>], name: &str) -> bool {
    let points = curves.iter().flat_map(|curve| &curve.results.points);
    points.filter_map(|point| point.metric(name)).any(|metric| metric.response != metric.service)
}

/// A statistic of times, and its name.
pub(super) type Statistic = (&'static str, fn(&LoadTimes) -> super::load::Spread);

/// The statistics that plots of curves show.
pub(super) const STATISTICS: [Statistic; 3] =
    [("mean", |times| times.mean), ("p95", |times| times.p95), ("p99", |times| times.p99)];

/// The legend of the stores.
pub(super) fn keys(curves: &[&CurveView<'_>], shape: fn(usize) -> Shape) -> Vec<LegendEntry> {
    let mut keys: Vec<LegendEntry> = Vec::new();
    for curve in curves {
        let key = LegendEntry { label: curve.store.clone(), style: curve.style, shape: shape(curve.style) };
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}
