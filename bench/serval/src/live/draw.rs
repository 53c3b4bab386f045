//! Layout of the dashboard: draws a state into a frame, as a pure function.

use super::{
    lines::named,
    live_state::{FinishedRun, LastInterval, LiveState, RunPart, plain},
};
use crate::format::span;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    symbols::Marker,
    text::{Line, Span},
    widgets::{Axis, Block, Borders, Chart, Dataset, Gauge, GraphType, Paragraph, Row, Sparkline, Table},
};
use serval_report::units::{count, percent, plural, rate, time};
use serval_result::experiment::Flag;
use std::time::Duration;

/// Minimum rows of the throughput plot with its axes; with fewer, one line of bars.
const PLOT_ROWS: u16 = 8;
/// Maximum rows of the plot.
const PLOT_ROWS_MAX: u16 = 12;
/// Rows reserved for the table of points before the plot gets any.
const POINT_ROWS: u16 = 6;
/// Number of notes shown.
const NOTES: usize = 3;
/// Width from which the table of points spells out flags and steps.
const WIDE: u16 = 90;

/// The state and the elapsed times.
pub(super) struct LiveView<'a> {
    /// The state.
    pub(super) seen: &'a LiveState,
    /// Time since the experiment was started or resumed.
    pub(super) elapsed: Duration,
    /// Time since the step started.
    pub(super) step_taken: Duration,
}

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const DOUBTFUL: Style = Style::new().fg(Color::Yellow);
const DONE: Color = Color::Cyan;
const OFFERED: Color = Color::Yellow;

/// Draws the dashboard.
pub(super) fn draw(frame: &mut Frame<'_>, view: &LiveView<'_>) {
    let seen = view.seen;
    let area = frame.area();
    let [title, gauge, step, body, hints] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(title_line(view), title);
    plan(frame, view, gauge);
    frame.render_widget(step_line(view), step);

    let notes = if seen.notes.is_empty() { 0 } else { seen.notes.len().min(NOTES) as u16 + 1 };
    let operations = seen.last.as_ref().map_or(1, |last| last.operations.len().clamp(1, 6)) as u16 + 2;
    // Omit the title if there is no note.
    let notes = match notes.min(body.height.saturating_sub(operations + 6)) {
        1 => 0,
        notes => notes,
    };
    let left = body.height.saturating_sub(notes + operations);
    let rates = match left.saturating_sub(POINT_ROWS) {
        rows if rows >= PLOT_ROWS => rows.min(PLOT_ROWS_MAX),
        _ if left >= 6 => 3,
        _ => 2,
    };
    let [rates, operations, points, notes] = Layout::vertical([
        Constraint::Length(rates),
        Constraint::Length(operations),
        Constraint::Fill(1),
        Constraint::Length(notes),
    ])
    .areas(body);
    throughput(frame, seen, rates);
    last_interval(frame, seen, operations);
    points_done(frame, seen, points);
    notes_of(frame, seen, notes);
    frame.render_widget(hints_line(seen), hints);
}

fn title_line(view: &LiveView<'_>) -> Line<'static> {
    let seen = view.seen;
    let mut spans = vec![Span::styled("Serval", HEAD.fg(DONE)), Span::raw(" ")];
    spans.push(Span::styled(seen.title.clone(), HEAD));
    if let Some(kind) = &seen.kind {
        spans.push(Span::raw(plain(&format!(" · {kind}"))));
    }
    if !seen.figure.is_empty() {
        spans.push(Span::styled(format!(" · {}", seen.figure), DIM));
    }
    Line::from(spans)
}

fn plan(frame: &mut Frame<'_>, view: &LiveView<'_>, area: Rect) {
    let seen = view.seen;
    let share = if seen.planned == 0 { 0.0 } else { seen.done as f64 / seen.planned as f64 };
    let mut label = format!("{} of {} runs · {} so far", seen.done, seen.planned, span(view.elapsed));
    if let Some(left) = seen.remaining(view.step_taken).filter(|left| !left.is_zero()) {
        label.push_str(&format!(" · {} left", span(left)));
    }
    let gauge = Gauge::default()
        .ratio(share.clamp(0.0, 1.0))
        .label(label)
        .gauge_style(Style::new().fg(Color::Blue).bg(Color::Black));
    frame.render_widget(gauge, area);
}

fn step_line(view: &LiveView<'_>) -> Line<'static> {
    let seen = view.seen;
    let Some((step, _)) = &seen.step else { return Line::from("getting ready").style(DIM) };
    let mut spans = vec![Span::styled(named(seen.curve(step.curve), &step.what), HEAD)];
    let mut parts = vec![plural(step.clients as u64, "client")];
    if let Some(target) = step.target {
        parts.push(format!("offered {}/s", rate(target)));
    }
    let elapsed = seen.progress.map_or(Duration::ZERO, |progress| progress.elapsed);
    parts.push(match (seen.part, step.units) {
        (RunPart::Between, _) => "getting ready".to_owned(),
        (RunPart::Connecting(clients, of), _) => format!("connecting {clients} of {of} clients"),
        (RunPart::WarmUp, _) => {
            format!("warming up {}, at most {}", span(elapsed), span(step.warm_up_max))
        }
        (RunPart::Measured, Some(units)) => {
            let done = seen.progress.map_or(0, |progress| progress.units);
            format!("{} of {} operations", count(done), count(units))
        }
        (RunPart::Measured, None) => {
            let measured = span(elapsed.saturating_sub(seen.measured_from.unwrap_or_default()));
            match step.time {
                Some(time) => format!("measured {measured} of {}", span(time)),
                None => format!("measured {measured}"),
            }
        }
    });
    spans.extend(parts.into_iter().map(|part| Span::raw(format!(" · {part}"))));
    Line::from(spans)
}

/// Failures of the current run, or of all runs.
fn failures(seen: &LiveState) -> Span<'static> {
    let (operations, failed) = seen.failures();
    if failed == 0 {
        return Span::styled(" · 0 failed", DIM);
    }
    Span::styled(format!(" · {} failed ({})", count(failed), percent(failed, operations)), BAD)
}

fn section(mut title: Line<'static>) -> Block<'static> {
    title.push_span(" ");
    Block::new().borders(Borders::TOP).border_style(DIM).title(title)
}

fn throughput(frame: &mut Frame<'_>, seen: &LiveState, area: Rect) {
    let mut title = vec![Span::styled("Throughput", HEAD)];
    if let Some(LastInterval { rate: now, .. }) = &seen.last {
        title.push(Span::styled(format!(" {}/s", rate(now.done)), Style::new().fg(DONE)));
        if let Some(offered) = now.offered {
            title.push(Span::styled(format!(" · offered {}/s", rate(offered)), Style::new().fg(OFFERED)));
        }
    }
    title.push(failures(seen));
    let block = section(Line::from(title));
    if seen.rates.is_empty() {
        frame.render_widget(Paragraph::new(Line::styled("nothing yet", DIM)).block(block), area);
        return;
    }
    if area.height < PLOT_ROWS {
        let columns = usize::from(area.width);
        let rates = seen.rates.iter().skip(seen.rates.len().saturating_sub(columns));
        let bars: Vec<u64> = rates.map(|rate| rate.done.round() as u64).collect();
        frame.render_widget(Sparkline::default().data(bars).style(Style::new().fg(DONE)).block(block), area);
        return;
    }
    // The x axis has seconds before now.
    let (mut done, mut offered) = (Vec::new(), Vec::new());
    let (mut before, mut highest) = (0.0, 1.0_f64);
    for rate in seen.rates.iter().rev() {
        done.push((-before, rate.done));
        highest = highest.max(rate.done);
        if let Some(load) = rate.offered {
            offered.push((-before, load));
            highest = highest.max(load);
        }
        before += rate.length.as_secs_f64();
    }
    let highest = nice(highest * 1.05);
    let width = before.max(60.0);
    let past = |seconds: f64| {
        let text = span(Duration::from_secs(seconds.round() as u64));
        Line::styled(if seconds > 0.0 { format!("-{text}") } else { "now".to_owned() }, DIM)
    };
    let load = |value: f64| Line::styled(if value > 0.0 { rate(value) } else { "0".to_owned() }, DIM);
    let line = |data, colour| {
        let line = Dataset::default().graph_type(GraphType::Line).marker(Marker::Braille);
        line.style(Style::new().fg(colour)).data(data)
    };
    let chart = Chart::new(vec![line(&offered, OFFERED), line(&done, DONE)])
        .block(block)
        .x_axis(Axis::default().bounds([-width, 0.0]).labels([past(width), past(width / 2.0), past(0.0)]))
        .y_axis(Axis::default().bounds([0.0, highest]).labels([
            load(0.0),
            load(highest / 2.0),
            load(highest),
        ]));
    frame.render_widget(chart, area);
}

/// Returns the next larger number that is round, as is its half.
fn nice(value: f64) -> f64 {
    let size = 10f64.powf(value.max(1.0).log10().floor());
    let digits = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    digits.into_iter().map(|digit| digit * size).find(|nice| *nice >= value).unwrap_or(value)
}

fn right(text: String) -> Line<'static> {
    Line::from(text).right_aligned()
}

fn last_interval(frame: &mut Frame<'_>, seen: &LiveState, area: Rect) {
    let block = section(Line::styled("Response time, last interval", HEAD));
    let Some(last) = seen.last.as_ref().filter(|last| !last.operations.is_empty()) else {
        frame.render_widget(Paragraph::new(Line::styled("nothing yet", DIM)).block(block), area);
        return;
    };
    let heads = ["/s", "failed", "p50", "p95", "p99", "p99.9", "max"];
    let header = std::iter::once(Line::raw("operation")).chain(heads.map(|head| right(head.to_owned())));
    let seconds = last.rate.length.as_secs_f64();
    let rows = last.operations.iter().map(|operation| {
        let times = &operation.times;
        let ns = [times.p50_ns, times.p95_ns, times.p99_ns, times.p999_ns, times.max_ns];
        let failed = right(count(operation.failed));
        let mut cells = vec![
            Line::raw(operation.name.clone()),
            right(rate((operation.ok + operation.failed) as f64 / seconds)),
            if operation.failed > 0 { failed.style(BAD) } else { failed.style(DIM) },
        ];
        cells.extend(ns.map(|ns| right(if operation.ok > 0 { time(ns as f64) } else { "–".to_owned() })));
        Row::new(cells)
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
    ];
    // If the width is short, the tail percentiles are dropped last.
    let fits = |columns: usize| (columns as u16 - 3) * 8 + 16 + 10 <= area.width;
    let shown = (4..=widths.len()).rev().find(|columns| fits(*columns)).unwrap_or(4);
    let table = Table::new(rows, widths[..shown].to_vec())
        .header(Row::new(header.take(shown).collect::<Vec<_>>()).style(DIM))
        .column_spacing(1)
        .block(block);
    frame.render_widget(table, area);
}

/// A flag in one word, for narrow tables.
fn short(flag: Flag) -> &'static str {
    match flag {
        Flag::Unsteady => "unsteady",
        Flag::Changed => "changed",
        Flag::Stalled => "stalled",
        Flag::Overloaded => "overloaded",
        Flag::ClientBound => "client",
        Flag::Failures => "failures",
        Flag::FewSamples => "few",
        Flag::Interrupted => "cut off",
    }
}

fn flags(point: &FinishedRun, wide: bool) -> Line<'static> {
    let mut spans = Vec::new();
    for flag in &point.flags {
        let style = match flag {
            Flag::Failures | Flag::Overloaded | Flag::Interrupted => BAD,
            _ => DOUBTFUL,
        };
        if !spans.is_empty() {
            spans.push(Span::raw(", "));
        }
        spans.push(Span::styled(if wide { flag.words() } else { short(*flag) }, style));
    }
    Line::from(spans)
}

fn points_done(frame: &mut Frame<'_>, seen: &LiveState, area: Rect) {
    let block = section(Line::styled("Runs done", HEAD));
    if seen.points.is_empty() {
        frame.render_widget(Paragraph::new(Line::styled("none yet", DIM)).block(block), area);
        return;
    }
    let wide = area.width >= WIDE;
    let mut heads = vec![Line::raw("curve")];
    let mut widths = vec![Constraint::Fill(2)];
    if wide {
        heads.push(Line::raw("run"));
        widths.push(Constraint::Fill(3));
    }
    heads.extend(["offered", "achieved", "p99"].map(|head| right(head.to_owned())));
    heads.push(Line::raw("flags"));
    widths.extend([Constraint::Length(9), Constraint::Length(9), Constraint::Length(7), Constraint::Fill(3)]);
    let rows = area.height.saturating_sub(2);
    let last = seen.points.iter().rev().take(usize::from(rows)).map(|point| {
        let mut cells = vec![Line::raw(point.curve.clone())];
        if wide {
            cells.push(Line::raw(point.what.clone()));
        }
        cells.push(right(point.offered.map_or_else(|| "–".to_owned(), rate)));
        cells.push(right(rate(point.achieved)));
        cells.push(right(point.p99_ns.map_or_else(|| "–".to_owned(), |ns| time(ns as f64))));
        cells.push(flags(point, wide));
        Row::new(cells)
    });
    let table = Table::new(last, widths).header(Row::new(heads).style(DIM)).column_spacing(1).block(block);
    frame.render_widget(table, area);
}

fn notes_of(frame: &mut Frame<'_>, seen: &LiveState, area: Rect) {
    let rows = usize::from(area.height.saturating_sub(1));
    let last = seen.notes.iter().skip(seen.notes.len().saturating_sub(rows));
    let lines: Vec<Line<'_>> = last.map(|note| Line::from(note.as_str())).collect();
    frame.render_widget(Paragraph::new(lines).block(section(Line::styled("Notes", HEAD))), area);
}

fn hints_line(seen: &LiveState) -> Line<'static> {
    if seen.ending {
        return Line::from("ending; Ctrl-C once more ends at once").style(DOUBTFUL);
    }
    Line::from(vec!["q".bold(), " or ".dim(), "Ctrl-C".bold(), " ends after a clean stop".dim()])
}

#[cfg(test)]
mod tests {
    use super::{super::sample_run, *};
    use ratatui::{Terminal, backend::TestBackend};
    use std::time::Instant;

    fn drawn(seen: &LiveState, width: u16, height: u16) -> (String, ratatui::buffer::Buffer) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let view = LiveView { seen, elapsed: Duration::from_secs(3_725), step_taken: Duration::from_secs(8) };
        terminal.draw(|frame| draw(frame, &view)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let rows = (0..height).map(|y| {
            let row: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
            format!("{}\n", row.trim_end())
        });
        (rows.collect(), buffer)
    }

    #[test]
    fn wide_narrow_and_small() {
        let seen = sample_run::seen(0, Instant::now());
        for (width, height) in [(120, 40), (80, 24), (60, 15)] {
            let (text, _) = drawn(&seen, width, height);
            super::super::golden(&format!("dashboard-{width}x{height}.txt"), &text);
        }
    }

    #[test]
    fn nothing_has_been_seen_yet() {
        let mut seen = LiveState::default();
        super::super::golden("dashboard-empty.txt", &drawn(&seen, 80, 24).0);
        seen.experiment(&sample_run::experiment());
        seen.begin(&sample_run::load(), Instant::now());
        seen.connected(3, 16);
        super::super::golden("dashboard-connecting.txt", &drawn(&seen, 80, 24).0);
    }

    #[test]
    fn failures_are_red() {
        let mut seen = sample_run::seen(7, Instant::now());
        seen.ending = true;
        let (text, buffer) = drawn(&seen, 100, 30);
        super::super::golden("dashboard-failures.txt", &text);
        let reds = |buffer: &ratatui::buffer::Buffer| {
            buffer.content().iter().filter(|cell| cell.fg == Color::Red && cell.symbol() != " ").count()
        };
        assert!(reds(&buffer) > 20, "{}", reds(&buffer));
        let mut well = sample_run::seen(0, Instant::now());
        well.points.clear();
        assert_eq!(reds(&drawn(&well, 100, 30).1), 0);
    }

    #[test]
    fn no_size_panics() {
        for seen in [LiveState::default(), sample_run::seen(3, Instant::now())] {
            for (width, height) in
                (0..70).flat_map(|width| [0, 1, 2, 3, 5, 8, 13, 21, 34].map(|h| (width, h)))
            {
                drawn(&seen, width, height);
            }
        }
    }

    #[test]
    fn ends_of_axes_read_well() {
        for (value, above) in [(0.0, 1.0), (1.0, 1.0), (12_300.0, 15_000.0), (99.0, 100.0), (45.0, 50.0)] {
            assert_eq!(nice(value), above, "{value}");
        }
    }
}
