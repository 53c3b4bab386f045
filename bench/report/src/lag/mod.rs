//! Reports of lag: how stale reads were.

mod csv;

pub use csv::{COLUMNS, write};

use crate::{
    html::parts::{explained, facts, figure},
    plot::{Axis, Line, Plot},
    terminal::{Styles, line, wrapped},
    text::printable,
    units::{count, percent, plural, time},
};
use serval_result::{
    document::Latency,
    lag::{LagResult, SurvivalStep, Versions, Violations},
};

/// Characters shown of a queue's address.
const QUEUE_MAX: usize = 80;

fn at(latency: &Latency, p: f64) -> u64 {
    latency.percentile(p).unwrap_or(0)
}

/// Median, tail and maximum of spans.
fn spans(latency: Option<&Latency>) -> Option<String> {
    let latency = latency.filter(|latency| latency.count > 0)?;
    let [half, tail] = [50.0, 99.0].map(|p| time(at(latency, p) as f64));
    Some(format!("p50 {half}, p99 {tail}, at most {}", time(latency.max_ns as f64)))
}

fn kept(violations: &Violations) -> String {
    let open = match violations.undecided {
        0 => String::new(),
        open => format!(", {} undecided", count(open)),
    };
    match violations.checked {
        0 => format!("not checked{open}"),
        checked => format!("{} of {} not kept{open}", count(violations.violations), count(checked)),
    }
}

/// How many reads were behind, and by how many versions, in words.
fn behind(versions: &Versions) -> String {
    let (all, stale) = versions.stale();
    let mut words = format!("{} of {} ({})", count(stale), count(all), percent(stale, all));
    let most = versions.behind.iter().filter(|behind| behind.reads > 0).map(|behind| behind.versions).max();
    if let Some(most) = most.filter(|most| *most > 0) {
        words.push_str(&format!(", by {most} at most"));
    }
    if versions.undecided > 0 {
        words.push_str(&format!("; {} undecided", count(versions.undecided)));
    }
    words
}

/// Rows of names and values; unknown values have none.
fn rows(lag: &LagResult) -> Vec<(String, String)> {
    let keys = &lag.keys;
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            rows.push((name.to_owned(), value));
        }
    };
    row(
        "sampled",
        Some(format!(
            "{} ({} of keys), {} carried by {}, {} not carried",
            plural(lag.writes.acknowledged, "write"),
            percent((lag.sample.clamp(0.0, 1.0) * 1e6).round() as u64, 1_000_000),
            count(lag.writes.carried),
            printable(&lag.queue, QUEUE_MAX),
            count(lag.writes.not_carried)
        )),
    );
    if keys.tried == 0 && lag.versions.is_none() {
        return rows;
    }
    row(
        "keys read",
        Some(format!(
            "{}: {} found at once, {} later, {} not found, {} undecided",
            count(keys.tried),
            count(keys.at_once),
            count(keys.later),
            count(keys.censored),
            count(keys.undecided)
        )),
    );
    row("lag not zero", Some(percent(keys.not_zero(), keys.decided())));
    row("lag, where not zero", spans(lag.lag.as_ref()));
    row("of it at most too long by", spans(lag.poll.as_ref()));
    row("hand-over, by which it is too short", spans(lag.hand_over.as_ref()));
    if let Some(visible) = &lag.visible {
        row("acknowledged to visible, at least", spans(visible.lower.as_ref()));
        row("acknowledged to visible, at most", spans(visible.upper.as_ref()));
        let error = visible.clock_error_ns;
        row("widened by the clocks' error", (error > 0).then(|| time(error as f64)));
        let without = visible.without;
        row("keys in neither: their writer's clock is not known", (without > 0).then(|| count(without)));
    }
    if let Some(versions) = &lag.versions {
        row("reads behind an acknowledged version", Some(behind(versions)));
        row("last stale read after acknowledgement", spans(versions.last_stale.as_ref()));
        row("read your writes", Some(kept(&versions.read_your_writes)));
        row("monotonic reads", Some(kept(&versions.monotonic_reads)));
        row("monotonic writes", Some(kept(&versions.monotonic_writes)));
    }
    rows
}

/// The section of a summary.
pub(crate) fn summary(text: &mut String, lag: &LagResult, styles: &Styles) {
    text.push('\n');
    line(text, "READ-AFTER-WRITE LAG", styles.heading);
    let rows = rows(lag);
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in rows {
        wrapped(text, &format!("{name:width$}  "), &value, anstyle::Style::new());
    }
}

/// The cumulative distribution of spans: times in ns, the share and the number of spans that are not
/// longer, in ascending order; `None` if there are no spans.
fn distribution_of(spans: Option<&Latency>) -> Option<Vec<(u64, f64, u64)>> {
    let histogram = spans?.to_histogram().ok()?;
    let (all, mut seen) = (histogram.count() as f64, 0);
    let points = histogram.iter().map(|(ns, n)| {
        seen += n;
        let ns = if seen == histogram.count() { histogram.max() } else { ns.max(histogram.min()) };
        (ns, seen as f64 / all, seen)
    });
    let points: Vec<_> = points.collect();
    (!points.is_empty()).then_some(points)
}

/// The cumulative distribution of the lags that are not zero, as a step function.
fn shares_below(lag: &LagResult) -> Option<Vec<(f64, f64)>> {
    let mut before = 0.0;
    let steps = distribution_of(lag.lag.as_ref())?.into_iter().flat_map(|(ns, share, _)| {
        let ns = ns.max(1) as f64;
        [(ns, std::mem::replace(&mut before, share)), (ns, share)]
    });
    Some(steps.collect())
}

/// A plot of several distributions of lag, as in figure 7 of YCSB++ (SoCC 2011).
pub(crate) fn together(several: &[(String, &LagResult)]) -> Option<Plot> {
    let lines: Vec<Line> = several
        .iter()
        .zip(1..)
        .filter_map(|((name, lag), style)| {
            let points = shares_below(lag)?.into_iter().map(|(ns, share)| (ns, Some(share)));
            let share = lag.keys.share_not_zero().unwrap_or(0.0);
            let label = format!("{name} ({:.1} % of all)", 100.0 * share);
            Some(Line::new(&label, style, points).dashed_by_style())
        })
        .collect();
    shares("Share of the lags that are not zero below a time", (1040, 300), lines)
}

/// A plot of shares against times in ns.
fn shares(title: impl Into<String>, size: (u32, u32), lines: Vec<Line>) -> Option<Plot> {
    let x = Axis::times(lines.iter().flat_map(|line| line.pieces.iter().flatten()).map(|(ns, _)| *ns))?;
    Some(Plot::new(title, size, x, Axis::shares(1.0, size.1)?).with_lines(lines))
}

/// The lag in one line: number of keys, share of lags that are not zero, their median and maximum.
pub(crate) fn in_short(lag: &LagResult) -> String {
    let (not_zero, all) = (lag.keys.not_zero(), lag.keys.decided());
    let times = lag.lag.as_ref().map_or(String::new(), |lag| {
        format!(
            ", of these the median {}, the largest {}",
            time(at(lag, 50.0) as f64),
            time(lag.max_ns as f64)
        )
    });
    let censored = match lag.keys.censored {
        0 => String::new(),
        censored => format!(", {} not found at the end", count(censored)),
    };
    format!("{}, {} with a lag{times}{censored}", plural(all, "key"), percent(not_zero, all))
}

fn distribution(lag: &LagResult) -> Option<Plot> {
    let line = Line::new("", 1, shares_below(lag)?.into_iter().map(|(ns, share)| (ns, Some(share))));
    let (not_zero, all) = (lag.keys.not_zero(), lag.keys.decided());
    let title =
        format!("Share of the lags that are not zero ({} of all) below a time", percent(not_zero, all));
    shares(title, (540, 260), vec![line])
}

/// A curve as a step function from the left end of the axis.
fn steps(name: &str, style: usize, curve: &[SurvivalStep], from: f64) -> Line {
    let mut points = vec![(from, 1.0)];
    for step in curve {
        let at = (step.at_ns as f64).max(from);
        let before = points.last().map_or(1.0, |(_, share)| *share);
        points.push((at, before));
        points.push((at, step.share));
    }
    Line::new(name, style, points.into_iter().map(|(at, share)| (at, Some(share))))
}

/// A plot of the share of keys not yet visible: its lower and upper bound.
fn survival(lag: &LagResult) -> Option<Plot> {
    let survival = lag.survival.as_ref()?;
    let curves = [&survival.lower, &survival.upper];
    let times =
        || curves.iter().flat_map(|curve| curve.iter()).map(|step| step.at_ns as f64).filter(|at| *at > 0.0);
    let from = times().fold(f64::INFINITY, f64::min) / 1.5;
    let lines = vec![
        steps("if each was visible as early as can be", 1, &survival.lower, from),
        steps("as late as can be", 2, &survival.upper, from).dashed(),
    ];
    let title = format!("Share of keys not yet visible, since the {}", printable(&survival.since, 40));
    shares(title, (540, 260), lines)
}

/// The plots of lag, with names for their files.
pub(crate) fn plots(lag: &LagResult) -> Vec<(String, Plot)> {
    let named = |name: &str, plot: Option<Plot>| plot.map(|plot| (name.to_owned(), plot));
    [named("lag", distribution(lag)), named("lag-survival", survival(lag))].into_iter().flatten().collect()
}

/// The section of a page.
pub(crate) fn section(page: &mut String, lag: &LagResult) {
    let mut rows = rows(lag);
    for behind in lag.versions.iter().flat_map(|versions| &versions.behind).take(ROWS_MAX) {
        let what = match behind.versions {
            0 => "reads behind by none".to_owned(),
            1 => "by one version".to_owned(),
            more => format!("by {} versions", count(more)),
        };
        rows.push((what, count(behind.reads)));
    }
    facts(page, "Read-after-write lag", rows);
    let plots = plots(lag);
    if !plots.is_empty() {
        page.push_str("<div class=\"pair\">\n");
        plots.iter().for_each(|(_, plot)| figure(page, plot, plot.legend.len() > 1));
        page.push_str("</div>\n");
    }
    explained(page, EXPLAINED);
}

/// Largest number of rows about reads behind; the document has all.
const ROWS_MAX: usize = 12;

const EXPLAINED: &str = "The lag of a key is the time from a consumer's first read of it to the first that finds it. A \
    write became visible after the last read that did not find it was sent, and before the answer of the one that did; \
    the two curves are these bounds.";

#[cfg(test)]
mod tests {
    use crate::{
        html::html,
        sample, summary,
        terminal::{Styles, WIDTH},
    };

    #[test]
    fn summary_and_page_show_share_curves_and_violations() {
        let document = sample::lagging();
        let text = summary::summary(&document, &Styles::plain());
        for part in [
            "READ-AFTER-WRITE LAG",
            "lag not zero                           25.0 %",
            "1,000 carried by ZooKeeper at",
            "read your writes                       3 of 100 not kept",
            "monotonic writes                       not checked, 7 undecided",
            "! 12 of 1,012 sampled writes did not go into the queue",
            "! 10 keys were not found when the time was over",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let page = html(&document);
        for part in [
            "<h2>Read-after-write lag</h2>",
            "Share of the lags that are not zero (25.0 % of all) below a time",
            "Share of keys not yet visible, since the acknowledgement",
            "by one version",
        ] {
            assert!(page.contains(part), "{part}");
        }
        let names: Vec<String> = crate::html::plots(&document).into_iter().map(|plot| plot.name).collect();
        assert!(names.ends_with(&["lag".to_owned(), "lag-survival".to_owned()]), "{names:?}");
        assert!(!html(&sample::paced()).contains("Read-after-write lag"));
    }

    #[test]
    fn a_result_without_curves_is_shown() {
        let mut document = sample::unpaced();
        document.lag = Some(serval_result::lag::LagResult::default());
        let page = html(&document);
        assert!(page.contains("<h2>Read-after-write lag</h2>") && !page.contains("not yet visible"));
        assert!(summary::summary(&document, &Styles::plain()).contains("0 writes"));
    }
}
