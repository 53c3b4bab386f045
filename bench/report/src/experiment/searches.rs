//! Results of searches and loads: the highest rate that keeps an SLO with every trial, the saturation
//! with every doubling, and the time of loads.

use super::{Block, Layout, Part, Section, load::flag_text, summary::keeps, view::View};
use crate::{
    html::parts::{Table, explained, heading, small},
    plot::{Axis, Dot, LegendEntry, Line, Plot, Shape, Upright},
    text::{escape, printable},
    units::{count, known, plural, rate, time},
};
use serval_result::experiment::{Curve, Highest, PromiseTrial, PromiseValue, RunEntry, RunKind, Saturation};

/// Title of the section that the table of trials follows.
pub(super) const TITLE: &str = "The highest rate that keeps the SLO";

const SIZE: (u32, u32) = (1040, 300);

/// Styles of trials that kept the SLO, of those that broke it, and of the limit.
const KEPT: usize = 3;
const BROKEN: usize = 4;
const LIMIT: usize = 6;

/// Smallest factor by which doubling the clients must raise throughput to count as a gain
/// (docs/experiments.md).
const GAIN_MIN: f64 = 1.05;

/// The trials of an SLO with their runs.
fn trials<'a>(part: &'a Part, highest: &'a Highest) -> Vec<(&'a RunEntry, &'a PromiseTrial)> {
    let runs = &part.experiment.document.runs;
    let run = |trial: &'a PromiseTrial| Some((runs.iter().find(|run| run.folder == trial.folder)?, trial));
    highest.trials.iter().filter_map(run).collect()
}

/// The curves with a highest rate.
fn found<'a>(view: &View<'a>) -> impl Iterator<Item = (&'a Part, &'a Curve, &'a Highest)> + use<'a> {
    let curves = view.parts.iter().flat_map(|part| {
        let curves = part.experiment.document.curves.iter();
        curves.map(move |curve| (part, curve))
    });
    curves.filter_map(|(part, curve)| Some((part, curve, curve.highest.as_ref()?)))
}

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let mut blocks = Vec::new();
    for (part, curve, highest) in found(view) {
        let trials = trials(part, highest);
        let conditions = trials.iter().map(|(_, trial)| trial.values.len()).max().unwrap_or(0);
        let plots = (0..conditions).filter_map(|nth| plot(curve, highest, &trials, nth)).collect();
        let keys = vec![
            LegendEntry { label: "kept".to_owned(), style: KEPT, shape: Shape::Dot },
            LegendEntry { label: "broken".to_owned(), style: BROKEN, shape: Shape::Dot },
            LegendEntry { label: "limit".to_owned(), style: LIMIT, shape: Shape::Line(Some((6, 4))) },
        ];
        blocks.push(Block::new(printable(&curve.name, 60), Layout::Wide, plots).sharing(keys));
    }
    let words = "x axis: offered operations/s. A mark is a run; hollow: flagged, see the table. Shaded: the confidence \
                 interval of the highest rate that keeps the SLO, with a line at the rate."
        .to_owned();
    Some(Section { title: TITLE, words, blocks })
}

fn plot(curve: &Curve, highest: &Highest, trials: &[(&RunEntry, &PromiseTrial)], nth: usize) -> Option<Plot> {
    let values = trials.iter().filter_map(|(run, trial)| Some((*run, trial.values.get(nth)?)));
    let values: Vec<(&RunEntry, &PromiseValue)> = values.collect();
    let (_, first) = values.first()?;
    let (limit, quantity) = (first.limit, printable(&first.quantity, 60));
    let mut most = values.iter().filter_map(|(run, _)| run.target).fold(highest.rate, f64::max);
    if highest.high < f64::MAX {
        most = most.max(highest.high);
    }
    let dots = |kept: bool| {
        let of = values.iter().filter(move |(_, value)| is_kept(value) == kept);
        let dot = |(run, value): &(&RunEntry, &PromiseValue)| {
            let at = (run.target?, value.value?);
            let spread = (at.1, at.1);
            let hollow = !run.flags.is_empty();
            Some(Dot { at, spread, spread_x: (at.0, at.0), hollow, wanted_x: None })
        };
        of.filter_map(dot).collect::<Vec<Dot>>()
    };
    let line = |label: &str, style, dots| Line { label: label.to_owned(), style, dots, ..Line::default() };
    let top = most * 1.08;
    let across = Line::new("limit", LIMIT, [(0.0, Some(limit)), (top, Some(limit))].into_iter()).dashed();
    let lines = vec![across, line("kept", KEPT, dots(true)), line("broken", BROKEN, dots(false))];
    let y = match first.is_time {
        true => Axis::times(lines.iter().flat_map(Line::values)),
        false => Axis::shares(Line::highest(&lines), SIZE.1),
    }?;
    let x = Axis::rates(most, SIZE.0)?.labelled("offered, operations/s");
    let title = format!("{}: {quantity} against offered load", printable(&curve.name, 60));
    let plot = Plot::new(title, SIZE, x, y).with_lines(lines);
    let inside = |x: f64| x.clamp(0.0, top);
    let known = highest.rate.is_finite() && highest.low.is_finite() && highest.rate > 0.0;
    let upright =
        Upright { x: inside(highest.rate), style: None, label: format!("{}/s", rate(highest.rate)) };
    Some(Plot {
        shade: known.then(|| inside(highest.low)..inside(highest.high)),
        uprights: if known { vec![upright] } else { Vec::new() },
        ..plot
    })
}

fn is_kept(value: &PromiseValue) -> bool {
    value.value.is_some_and(|found| found <= value.limit)
}

/// A value of an SLO's quantity in words.
fn shown(value: Option<f64>, is_time: bool) -> String {
    known(value, |value| if is_time { time(value) } else { format!("{:.3} %", value * 100.0) })
}

/// Tables of all trials of all SLOs.
pub(super) fn table(page: &mut String, view: &View<'_>) {
    for (part, curve, highest) in found(view) {
        let trials = trials(part, highest);
        let Some((_, first)) = trials.first() else { continue };
        heading(page, &format!("Trials of {}", printable(&curve.name, 60)));
        explained(page, &trials_in_words(highest, &trials));
        let mut table = Table::numbers("<trial | offered/s | done/s | clients");
        for value in &first.values {
            let limit = small(&format!("limit {}", shown(Some(value.limit), value.is_time)));
            table.head(&(escape(printable(&value.quantity, 60)) + &limit));
        }
        table.heads("<SLO | <flags");
        for (nth, (run, trial)) in trials.iter().enumerate() {
            let what = match run.kind {
                RunKind::Point => format!("repeat {}", run.repeat + 1),
                RunKind::Search | RunKind::Load => "halving".to_owned(),
            };
            let load = [
                format!("{}{}", nth + 1, small(&what)),
                known(run.target, rate),
                rate(run.throughput),
                count(run.clients),
            ];
            let values =
                trial.values.iter().map(|value| shown(value.value, value.is_time).replace(' ', "\u{a0}"));
            let kept = if trial.kept { "kept" } else { "broken" };
            let verdict = [kept.to_owned(), flag_text(&run.flags, ", ")];
            table.row(load.into_iter().chain(values).chain(verdict));
        }
        table.write(page);
    }
}

fn trials_in_words(highest: &Highest, trials: &[(&RunEntry, &PromiseTrial)]) -> String {
    let kept = trials.iter().filter(|(_, trial)| trial.kept).count();
    format!("{} {} of {} kept it.", keeps(highest), count(kept as u64), plural(trials.len() as u64, "trial"))
}

/// The runs of the search for the saturation, in order of time.
fn doublings(part: &Part, curve: usize) -> Vec<&RunEntry> {
    let runs = part.experiment.document.runs.iter();
    runs.filter(|run| run.curve == curve && run.kind == RunKind::Search && run.target.is_none()).collect()
}

/// Successful operations/s, which searches compare.
fn succeeded(run: &RunEntry) -> f64 {
    run.throughput - run.failed_per_s
}

/// Explains why a search for the saturation ended.
fn why_it_ended(saturation: Option<&Saturation>, runs: &[&RunEntry]) -> String {
    let most = runs.iter().map(|run| run.clients).max().unwrap_or(0);
    match (saturation, runs.len()) {
        (None, _) => "It has not ended yet.".to_owned(),
        (Some(found), _) if found.found => format!(
            "It ended because doubling the clients twice in turn gained less than 5 %. The saturation is the highest \
             throughput, {} operations/s; {} came within 2 % of it.",
            rate(found.throughput),
            plural(found.clients, "client")
        ),
        (Some(found), 1) => format!(
            "The plan gives the number of clients, and so others were not tried: {} operations/s with {}.",
            rate(found.throughput),
            plural(found.clients, "client")
        ),
        (Some(found), _) => format!(
            "It ended at {}, the most that are tried, while more clients still got more done: the saturation may be \
             above {} operations/s.",
            plural(most, "client"),
            rate(found.throughput)
        ),
    }
}

/// The section of loads and of searches for the saturation.
pub(super) fn others(page: &mut String, view: &View<'_>) {
    let mut text = String::new();
    loads(&mut text, view);
    for part in view.parts {
        for (nth, curve) in part.experiment.document.curves.iter().enumerate() {
            let runs = doublings(part, nth);
            if !runs.is_empty() {
                saturation(&mut text, curve, &runs);
            }
        }
    }
    if !text.is_empty() {
        page.push_str("<h2>Loads and searches</h2>\n");
        page.push_str(&text);
    }
}

fn loads(page: &mut String, view: &View<'_>) {
    let runs = view.parts.iter().flat_map(|part| {
        let runs = part.experiment.document.runs.iter().filter(|run| run.kind == RunKind::Load);
        runs.map(move |run| (part, run))
    });
    let runs: Vec<_> = runs.collect();
    if runs.is_empty() {
        return;
    }
    heading(page, "Loads");
    let mut table = Table::numbers("<of | records | time | records/s | clients | <flags");
    for (part, run) in runs {
        let curve = part.experiment.document.curves.get(run.curve).map_or("", |curve| &curve.name);
        table.row([
            escape(printable(curve, 60)),
            count((run.throughput * run.duration_s).round() as u64),
            time(run.duration_s * 1e9),
            rate(run.throughput),
            count(run.clients),
            flag_text(&run.flags, ", "),
        ]);
    }
    table.write(page);
}

fn saturation(page: &mut String, curve: &Curve, runs: &[&RunEntry]) {
    heading(page, &format!("Search for the saturation of {}", printable(&curve.name, 60)));
    explained(page, &why_it_ended(curve.saturation.as_ref(), runs));
    let mut table =
        Table::numbers("clients | done/s | gain over the best before | measured | warm-up | <flags");
    let mut best = 0.0f64;
    for run in runs {
        let now = succeeded(run);
        let gain = known((best > 0.0).then_some(now / best - 1.0), |gain| {
            let few = if now >= best * GAIN_MIN { "" } else { ", less than 5 %" };
            format!("{:+.1} %{few}", gain * 100.0)
        });
        best = best.max(now);
        table.row([
            count(run.clients),
            rate(now),
            gain,
            time(run.duration_s * 1e9),
            time(run.warm_up_s * 1e9),
            flag_text(&run.flags, ", "),
        ]);
    }
    table.write(page);
}

/// The columns of trials. Later versions add columns at the end only.
pub const COLUMNS: &str = "\
    experiment,curve,store,binding,workload,search,trial,repeat,offered_per_s,clients,done_per_s,\
    failed_per_s,duration_s,flags,quantity,value,limit,kept,folder";

/// Returns CSV with a line for each trial of a saturation, and for each condition of each trial of an
/// SLO. Times are in µs, shares from 0 to 1. `None` if there was no search.
pub(super) fn csv(view: &View<'_>) -> Result<Option<Vec<u8>>, ::csv::Error> {
    let mut records: Vec<[String; 19]> = Vec::new();
    for part in view.parts {
        for (place, curve) in part.experiment.document.curves.iter().enumerate() {
            for (nth, run) in doublings(part, place).into_iter().enumerate() {
                records.push(record(part, curve, "saturation", nth, run, Default::default()));
            }
            let Some(highest) = &curve.highest else { continue };
            for (nth, (run, trial)) in trials(part, highest).into_iter().enumerate() {
                for value in &trial.values {
                    let (name, number): (&str, fn(f64) -> String) = match value.is_time {
                        true => ("_us", |ns| format!("{:.3}", ns / 1000.0)),
                        false => ("", |share| format!("{share:.6}")),
                    };
                    let more = [
                        format!("{}{name}", value.quantity),
                        value.value.map_or(String::new(), number),
                        number(value.limit),
                        is_kept(value).to_string(),
                    ];
                    records.push(record(part, curve, "promise", nth, run, more));
                }
            }
        }
    }
    if records.is_empty() {
        return Ok(None);
    }
    let mut text = Vec::new();
    crate::csv::table(&mut text, COLUMNS, records)?;
    Ok(Some(text))
}

fn record(
    part: &Part,
    curve: &Curve,
    search: &str,
    nth: usize,
    run: &RunEntry,
    [quantity, value, limit, kept]: [String; 4],
) -> [String; 19] {
    [
        part.experiment.document.title.clone(),
        curve.name.clone(),
        curve.store.clone(),
        curve.binding.clone(),
        curve.workload.clone(),
        search.to_owned(),
        nth.to_string(),
        if run.kind == RunKind::Point { run.repeat.to_string() } else { String::new() },
        run.target.map_or(String::new(), |target| format!("{target:.1}")),
        run.clients.to_string(),
        format!("{:.1}", run.throughput),
        format!("{:.1}", run.failed_per_s),
        format!("{:.3}", run.duration_s),
        flag_text(&run.flags, "; "),
        quantity,
        value,
        limit,
        kept,
        run.folder.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(clients: u64, throughput: f64) -> RunEntry {
        RunEntry {
            curve: 0,
            kind: RunKind::Search,
            point: 0,
            repeat: 0,
            target: None,
            share: None,
            clients,
            folder: String::new(),
            started: String::new(),
            throughput,
            failed_per_s: 0.0,
            duration_s: 1.0,
            warm_up_s: 1.0,
            whole_s: 2.0,
            records_before: None,
            flags: Vec::new(),
        }
    }

    #[test]
    fn the_reason_why_a_search_ended_is_shown() {
        let runs = [run(1, 100.0), run(2, 101.0), run(4, 102.0)];
        let runs: Vec<&RunEntry> = runs.iter().collect();
        let found = |found| Saturation { throughput: 102.0, clients: 1, found };
        assert!(why_it_ended(Some(&found(true)), &runs).contains("twice in turn gained less than 5 %"));
        assert!(why_it_ended(Some(&found(false)), &runs).starts_with("It ended at 4 clients, the most"));
        assert!(why_it_ended(Some(&found(false)), &runs[..1]).starts_with("The plan gives the number"));
        assert_eq!(why_it_ended(None, &runs), "It has not ended yet.");
    }

    #[test]
    fn an_slo_is_kept_up_to_its_limit() {
        let value = |value| PromiseValue { quantity: "p99".to_owned(), value, limit: 1e7, is_time: true };
        assert!(is_kept(&value(Some(1e7))) && !is_kept(&value(Some(1.1e7))) && !is_kept(&value(None)));
    }
}
