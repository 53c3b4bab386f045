//! Experiments of phases: a table of the phases, and their series on one axis of time
//! (YCSB++, SoCC 2011, figures 9 and 10).

use super::{
    Block, Layout, Part, Section,
    alike::{cut, together},
    view::most_frequent,
};
use crate::{
    csv,
    html::{
        parts::{Table, explained, facts, heading, preformatted},
        series::{Chunk, HEIGHT, without_end},
    },
    notes::{Warning, notes, stored},
    plot::{
        Line, Plot, Upright,
        timeline::{TimePlots, Timeline},
    },
    terminal::{Styles, line, wrapped},
    text::{escape, printable},
    times::quantile,
    units::{count, known, rate, time},
};
use serval_result::{
    document::{IntervalSummary, MetricResult, ResultDocument},
    experiment::{ExperimentKind, PhaseEntry},
    lag::LagResult,
    metric::is_beside,
    note::Note,
};
use std::io::Write;

/// Largest number of processes with lines of their own.
const PROCESSES_MAX: usize = 12;

/// Suffix of the name of a phase that did not complete.
const INCOMPLETE: &str = " (incomplete)";

/// Smallest distance in pixels between names of phases.
const NAME_MIN: f64 = 64.0;

/// The columns of `phases.csv`, separated by commas. Later versions add columns at the end only.
pub const COLUMNS: &str = "\
    phase,name,kind,time_s,length_s,warm_up,metric,ok,failed,response_mean_us,response_p50_us,\
    response_p95_us,response_p99_us,response_max_us,incomplete";

/// A phase and its result.
struct StoredPhase<'a> {
    number: usize,
    entry: &'a PhaseEntry,
    result: Option<&'a ResultDocument>,
}

impl<'a> StoredPhase<'a> {
    fn name(&self) -> String {
        printable(&self.entry.name, 60)
    }

    fn series(&self) -> &'a [IntervalSummary] {
        self.result.map_or(&[], |result| without_end(&result.series))
    }

    /// Start of the series on the axis, s.
    fn zero(&self) -> f64 {
        let at = self.entry.series_start_s.unwrap_or(self.entry.start_s);
        if at.is_finite() { at } else { 0.0 }
    }

    /// The notes of its result, and its own.
    fn notes(&self) -> Vec<Note> {
        let result = self.result.map_or_else(Vec::new, notes);
        let of_result = self.result.map_or_else(Vec::new, stored);
        let text = |text: &String| Note::Text { text: printable(text, 300) };
        let own = match self.entry.notes.is_empty() {
            // Documents of older versions have warnings only.
            true => self.entry.warnings.iter().map(text).collect(),
            false => self.entry.notes.clone(),
        };
        let own = own.into_iter().filter(|note| !of_result.contains(note));
        result.into_iter().chain(own).collect()
    }

    /// Names of its operations, cut to `name_max`, with p50, p95 and p99; a single empty entry if there
    /// are none.
    fn times(&self, name_max: usize) -> Vec<(String, [String; 3])> {
        let times = self.operations().map(|metric| {
            let response = metric.ok.as_ref().map(|times| &times.response);
            (printable(&metric.name, name_max), [50.0, 95.0, 99.0].map(|p| quantile(response, p)))
        });
        let times: Vec<_> = times.collect();
        if times.is_empty() { vec![Default::default()] } else { times }
    }

    fn operations(&self) -> impl Iterator<Item = &'a MetricResult> {
        self.result.into_iter().flat_map(|result| &result.metrics).filter(|metric| !is_beside(&metric.name))
    }
}

fn stored_phases(part: &Part) -> Vec<StoredPhase<'_>> {
    let results = part.loaded.phases.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    let phases = part.experiment.document.phases.iter().zip(results).enumerate();
    phases.map(|(nth, (entry, result))| StoredPhase { number: nth + 1, entry, result }).collect()
}

/// Whether it is an experiment of phases.
pub(super) fn has(part: &Part) -> bool {
    part.experiment.document.kind == ExperimentKind::Phases
}

/// The warnings about phases.
pub(super) fn warnings(part: &Part) -> Vec<Warning> {
    let mut all = Vec::new();
    let document = &part.experiment.document;
    if has(part) && !document.complete {
        let text = format!(
            "{} of {} phases are done: the experiment was ended before its time, or is still under way.",
            document.phases.iter().filter(|phase| phase.incomplete.is_none()).count(),
            document.runs_planned
        );
        all.push(Warning { text, details: Vec::new() });
    }
    let mut said: Vec<(String, Warning)> = Vec::new();
    for phase in stored_phases(part) {
        let name = phase.name();
        all.extend(phase.entry.incomplete.iter().map(|why| Warning {
            text: format!(
                "{name} is incomplete: {}. Its numbers are of the part that was done; resuming the experiment \
                 makes it again.",
                printable(why, 500).trim_end_matches('.')
            ),
            details: Vec::new(),
        }));
        said.extend(phase.notes().iter().map(|note| (name.clone(), Warning::from(note))));
    }
    // Merge the warnings that several phases share.
    let texts = said.iter().enumerate().map(|(nth, (_, warning))| (nth, warning.text.clone()));
    for (text, of) in together(texts) {
        let (mut names, mut details): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
        for (name, warning) in of.into_iter().map(|nth| &said[nth]) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
            let more = warning.details.iter().filter(|line| !details.contains(line));
            details.extend(more.cloned().collect::<Vec<_>>());
        }
        let end = if text.ends_with('.') { "" } else { "." };
        all.push(Warning { text: format!("{}: {text}{end}", names.join(", ")), details: cut(details) });
    }
    all
}

fn cells(phase: &StoredPhase<'_>) -> [String; 4] {
    // The first phase begins after microseconds: show 0 s.
    let seconds = |s: f64| if s < 1e-3 { "0 s".to_owned() } else { time(s * 1e9) };
    let entry = phase.entry;
    [
        seconds(entry.start_s),
        seconds(entry.end_s - entry.start_s),
        known(entry.operations, count),
        known(entry.throughput, rate),
    ]
}

/// The table of phases on a page.
pub(super) fn table(page: &mut String, part: &Part) {
    page.push_str("<h2>Phases</h2>\n");
    let mut table = Table::numbers(
        "no. | <phase | <kind | start | took | operations | /s | failed | <operation | p50 | p95 | p99",
    );
    for phase in stored_phases(part) {
        let entry = phase.entry;
        let name = match &entry.folder {
            // The page lies in the experiment's folder, so that the link is relative.
            Some(folder) if part.experiment.is_inside(folder) => {
                format!("<a href=\"{}/report.html\">{}</a>", escape(folder), escape(phase.name()))
            }
            _ => escape(phase.name()),
        };
        let name = if entry.incomplete.is_some() { name + INCOMPLETE } else { name };
        let [start, took, operations, per_s] = cells(&phase);
        let (kind, failed) = (escape(printable(&entry.kind, 20)), known(entry.failed, count));
        let mut first = [phase.number.to_string(), name, kind, start, took, operations, per_s, failed];
        for (operation, times) in phase.times(40) {
            table.row(std::mem::take(&mut first).into_iter().chain([escape(operation)]).chain(times));
        }
    }
    table.write(page);
    explained(
        page,
        "Times of operations are response times. Start: since the start of the first phase. The time of a load or run \
         includes the opening of connections.",
    );
    let lags = lags(&stored_phases(part)).into_iter().map(|(name, lag)| (name, crate::lag::in_short(lag)));
    facts(page, "Read-after-write lag", lags);
    programs(page, part);
}

/// The output of programs.
fn programs(page: &mut String, part: &Part) {
    for phase in stored_phases(part).iter().filter(|phase| !phase.entry.output.is_empty()) {
        heading(page, &phase.name());
        explained(page, &printable(phase.entry.command.as_deref().unwrap_or_default(), 500));
        preformatted(page, &phase.entry.output.join("\n"));
    }
}

/// The table of phases in a summary.
pub(super) fn summary(text: &mut String, part: &Part, styles: &Styles) {
    text.push('\n');
    let head = format!(
        "{:<24} {:>8} {:>8} {:>9} {:>9}  {:<7} {:>7} {:>7} {:>7}",
        "PHASE", "at", "took", "count", "/s", "", "p50", "p95", "p99"
    );
    line(text, &head, styles.heading);
    for phase in stored_phases(part) {
        let [start, took, operations, per_s] = cells(&phase);
        let mark = if phase.entry.incomplete.is_some() { INCOMPLETE } else { "" };
        let name = format!("{} {}", phase.number, phase.name());
        let name: String = name.chars().take(24 - mark.len()).chain(mark.chars()).collect();
        let mut first = format!("{name:<24} {start:>8} {took:>8} {operations:>9} {per_s:>9}");
        for (operation, [p50, p95, p99]) in phase.times(7) {
            let row = format!("{first:62}  {operation:<7} {p50:>7} {p95:>7} {p99:>7}");
            line(text, &row, anstyle::Style::new());
            first.clear();
        }
    }
    let phases = stored_phases(part);
    let lags = lags(&phases);
    if !lags.is_empty() {
        text.push('\n');
        line(text, "READ-AFTER-WRITE LAG", styles.heading);
    }
    for (name, lag) in lags {
        wrapped(text, &format!("{name:<24} "), &crate::lag::in_short(lag), anstyle::Style::new());
    }
    text.push('\n');
    wrapped(text, "", "Response times. at: when the phase began, since the first one did.", styles.dim);
}

/// The plots of all phases on one axis.
pub(super) fn section(part: &Part) -> Option<Section> {
    let phases = stored_phases(part);
    let end = phases.iter().map(|phase| phase.entry.end_s).fold(0.0, f64::max);
    let mut axis = TimePlots::new(end, HEIGHT)?;
    axis.uprights = uprights(&phases, end);
    let series: Vec<_> = phases.iter().map(|phase| (phase.zero(), phase.series())).collect();
    let timeline = Timeline { stretched: true, ..Timeline::of_series(&series) };
    let done = std::iter::once(timeline.operations()).chain(timeline.offered());
    let mut plots: Vec<Plot> = axis.rates("Operations a second", done.collect()).into_iter().collect();
    let processes = processes(&phases, &timeline);
    plots.extend(processes.and_then(|lines| axis.rates("Operations a second, of each process", lines)));
    plots.extend(operations(&phases).into_iter().filter_map(|name| {
        axis.times(format!("Response time, {}", printable(name, 40)), timeline.response_times(name))
    }));
    plots.extend(crate::lag::together(&lags(&phases)));
    let words = "All phases on one axis, from the start of the first; a mark is the start of a phase. Nothing was \
                 measured between the lines. Each phase's report has more.";
    let blocks = vec![Block::new(String::new(), Layout::Wide, plots)];
    Some(Section { title: "Over time", words: words.to_owned(), blocks })
}

/// A mark at the start of each phase, with its name if there is room.
fn uprights(phases: &[StoredPhase<'_>], end: f64) -> Vec<Upright> {
    let mut left_of = f64::NEG_INFINITY;
    let upright = |phase: &StoredPhase<'_>| {
        let x = phase.entry.start_s;
        let fits = (x - left_of) / end * 1040.0 >= NAME_MIN;
        if fits {
            left_of = x;
        }
        let label = if fits { phase.name().chars().take(24).collect() } else { String::new() };
        Upright { x, style: None, label }
    };
    phases.iter().map(upright).collect()
}

/// The lag of each phase that measured it, with the phase's name.
fn lags<'a>(phases: &[StoredPhase<'a>]) -> Vec<(String, &'a LagResult)> {
    phases.iter().filter_map(|phase| Some((phase.name(), phase.result?.lag.as_ref()?))).collect()
}

/// The lag of the phases of several experiments, with the phases' names; with the experiments' names
/// too if there are several.
pub(super) fn lags_of(parts: &[Part]) -> Vec<(String, &LagResult)> {
    let of_part = |part| {
        let phases = stored_phases(part);
        let name = |name| if parts.len() > 1 { format!("{}: {name}", part.name) } else { name };
        lags(&phases).into_iter().map(|(phase, lag)| (name(phase), lag)).collect::<Vec<_>>()
    };
    parts.iter().flat_map(of_part).collect()
}

/// The most frequent operations.
fn operations<'a>(phases: &[StoredPhase<'a>]) -> Vec<&'a str> {
    let metrics = phases.iter().flat_map(StoredPhase::operations);
    most_frequent(metrics.map(|metric| (metric.name.as_str(), metric.count())))
}

/// A line for each process, if there are several.
fn processes(phases: &[StoredPhase<'_>], timeline: &Timeline<Chunk<'_>>) -> Option<Vec<Line>> {
    let clients = |phase: usize| Some(&phases[phase].result?.group.as_ref()?.clients[..]);
    let mut names: Vec<(&str, u32)> = Vec::new();
    for client in (0..phases.len()).filter_map(clients).flatten() {
        let name = (client.host.as_str(), client.process);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let lines = names.iter().take(PROCESSES_MAX).zip(1..).map(|(name, style)| {
        let label = format!("{} ({})", printable(name.0, 30), name.1);
        timeline.process(&label, style, |phase| {
            let client = clients(phase)?.iter().find(|c| (c.host.as_str(), c.process) == *name)?;
            Some(&client.rates)
        })
    });
    let lines: Vec<Line> = lines.collect();
    (names.len() > 1).then_some(lines)
}

/// Writes a line for each interval and operation of each phase; `time_s` is on the common axis.
pub(super) fn csv(part: &Part, out: impl Write) -> Result<(), ::csv::Error> {
    let phases = stored_phases(part);
    let records = phases.iter().flat_map(|phase| {
        let intervals = phase.result.into_iter().flat_map(|result| &result.series);
        let metrics = intervals.flat_map(|interval| interval.metrics.iter().map(move |m| (interval, m)));
        metrics.map(move |(interval, (name, metric))| {
            let [mean, p50, p95, p99, _, max] = csv::times(&metric.response);
            [
                phase.number.to_string(),
                phase.entry.name.clone(),
                phase.entry.kind.clone(),
                format!("{:.3}", phase.zero() + interval.start_s),
                format!("{:.3}", interval.length_s),
                interval.warm_up.to_string(),
                name.clone(),
                metric.ok.to_string(),
                metric.failed.to_string(),
                mean,
                p50,
                p95,
                p99,
                max,
                phase.entry.incomplete.is_some().to_string(),
            ]
        })
    });
    csv::table(out, COLUMNS, records)
}
