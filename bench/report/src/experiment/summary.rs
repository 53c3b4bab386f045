//! The summary of experiments as text.

use super::{
    Part,
    load::{LoadTimes, Point},
    phases,
    view::{CurveView, View, is_operation},
    warnings::warnings,
};
use crate::{
    terminal::{self, Styles, WIDTH, line, wrapped},
    text::{printable, quoted},
    units::{digits, known, plural, rate, time},
};
use serval_result::experiment::{Curve, Highest, Saturation};

pub(super) fn summary(view: &View<'_>, styles: &Styles) -> String {
    let mut text = String::new();
    for part in view.parts {
        let document = &part.experiment.document;
        wrapped(&mut text, "", &printable(&document.title, 300), styles.headline);
        for words in [&document.about, &document.figure, &document.saw] {
            if !words.is_empty() {
                wrapped(&mut text, "", &printable(words, 1000), styles.dim);
            }
        }
    }
    terminal::warnings(&mut text, &warnings(view), styles);
    for curve in &view.curves {
        table(&mut text, curve, styles);
    }
    let of_phases: Vec<_> = view.parts.iter().filter(|part| phases::has(part)).collect();
    of_phases.iter().for_each(|part| phases::summary(&mut text, part, styles));
    if view.curves.is_empty() && !of_phases.is_empty() {
        return text;
    }
    if view.curves.is_empty() {
        wrapped(&mut text, "", "No point has been measured yet.", styles.dim);
    } else {
        text.push('\n');
        wrapped(&mut text, "", WHAT, styles.dim);
        for part in view.parts {
            comparisons(&mut text, part, styles);
        }
    }
    text
}

/// Ranks the curves of each workload by the rate that they reached, and says how to compare them.
fn comparisons(text: &mut String, part: &Part, styles: &Styles) {
    let document = &part.experiment.document;
    let of_slo = document.curves.iter().any(|curve| curve.highest.is_some());
    let reached = |curve: &Curve| match of_slo {
        true => curve.highest.as_ref().map(|highest| highest.rate),
        false => curve.saturation.as_ref().map(|saturation| saturation.throughput),
    };
    let reached = |curve| reached(curve).filter(|rate| rate.is_finite() && *rate > 0.0);
    let mut workloads: Vec<&str> = Vec::new();
    for curve in &document.curves {
        if !workloads.contains(&curve.workload.as_str()) {
            workloads.push(&curve.workload);
        }
    }
    for workload in workloads {
        let of = document.curves.iter().filter(|curve| curve.workload == workload && curve.at.is_none());
        let mut curves: Vec<(&Curve, f64)> = of.filter_map(|curve| Some((curve, reached(curve)?))).collect();
        curves.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let [(best, most), others @ ..] = &curves[..] else { continue };
        if others.is_empty() {
            continue;
        }
        let than: Vec<String> = others
            .iter()
            .map(|(curve, reached)| {
                let name = printable(&curve.name, 60);
                format!("{} times that of {name} ({})", digits(most / reached), rate(*reached))
            })
            .collect();
        let what = if of_slo { "keeps the SLO up to" } else { "saturates at" };
        let name = printable(&best.name, 60);
        text.push('\n');
        let sentence = format!("{name} {what} {} operations/s, {}.", rate(*most), than.join(", "));
        wrapped(text, "", &sentence, styles.headline);
        let folder = part.experiment.folder.display();
        let side = |curve: &Curve| quoted(&printable(&format!("{folder}:{}", curve.name), usize::MAX));
        // Searches for an SLO measure each store at other rates: no points to compare.
        for (other, _) in others.iter().filter(|_| !of_slo) {
            let command = format!("serval compare {} {}", side(other), side(best));
            line(text, &format!("Point by point: {command}"), styles.dim);
        }
    }
}

const WHAT: &str = "Response times, of all repeats of a point together. offered: operations/s of the \
    schedule (–: closed loop). done: operations/s that were done.";

/// The saturation of a store, in words.
pub(super) fn saturates(saturation: &Saturation) -> String {
    let how = if saturation.found { "" } else { " (not shown to be the most: more clients were not tried)" };
    format!(
        "saturates at {} operations/s with {}{how}",
        rate(saturation.throughput),
        plural(saturation.clients, "client")
    )
}

/// A note as a sentence, with a capital and a full stop.
fn sentence(note: &str) -> String {
    let note = printable(note, 300);
    let mut letters = note.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let end = if note.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

/// The highest rate that keeps an SLO, in words.
pub(super) fn keeps(highest: &Highest) -> String {
    let notes: String = highest.notes.iter().map(|note| format!(" {}", sentence(note))).collect();
    // JSON has no infinity: `f64::MAX` means an unknown end.
    let end = if highest.high < f64::MAX { rate(highest.high) } else { "no known end".to_owned() };
    if highest.rate <= 0.0 {
        return format!(
            "{}: not kept, not even at {end} operations/s.{notes}",
            printable(&highest.promise, 100)
        );
    }
    format!(
        "{}: kept up to {} operations/s ({:.0} % interval {} to {end}).{notes}",
        printable(&highest.promise, 100),
        rate(highest.rate),
        highest.confidence * 100.0,
        rate(highest.low),
    )
}

fn table(text: &mut String, curve: &CurveView<'_>, styles: &Styles) {
    text.push('\n');
    let mut head = curve.name.clone();
    if let Some((at, axis)) = curve.at {
        head += &format!(", {at} {}", printable(axis, 60));
    }
    wrapped(text, "", &head, styles.headline);
    if let Some(saturation) = curve.saturation {
        wrapped(text, "", &saturates(saturation), styles.dim);
    }
    if let Some(highest) = curve.highest {
        wrapped(text, "", &keeps(highest), styles.dim);
    }
    let head = format!(
        "{:>9} {:>9} {:<19} {:>7} {:>7} {:>7}  {}",
        "offered", "done", "operation", "mean", "p95", "p99", "flags"
    );
    line(text, &head, styles.heading);
    for point in &curve.results.points {
        rows(text, point, styles);
    }
}

fn rows(text: &mut String, point: &Point, styles: &Styles) {
    let operations: Vec<_> = point.metrics.iter().filter(|metric| is_operation(metric)).collect();
    let mut first = true;
    for metric in operations {
        let cells =
            |number: fn(&LoadTimes) -> f64| known(metric.response.as_ref(), |times| time(number(times)));
        // Only the first row has the columns of the point.
        let (offered, done, flags) = if first {
            let offered = known(point.target, rate);
            (offered, rate(point.throughput.value), point.flag_words().join(", "))
        } else {
            Default::default()
        };
        first = false;
        let row = format!(
            "{offered:>9} {done:>9} {:<19} {:>7} {:>7} {:>7}  ",
            styles.cell(&metric.name, 18),
            cells(|times| times.mean.value),
            cells(|times| times.p95.value),
            cells(|times| times.p99.value),
        );
        // Flags get all the remaining room: they say why not to trust the row.
        let room = WIDTH.saturating_sub(row.chars().count() + 1);
        let style = if flags.is_empty() { anstyle::Style::new() } else { styles.warning };
        line(text, &format!("{row}{}", styles.cell(&flags, room)), style);
    }
}
