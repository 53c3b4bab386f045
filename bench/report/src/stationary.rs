//! The texts about a run that changed or stalled while it was measured.

use crate::units::{plural, rate, time};
use serval_result::load::{Change, ChangeShape, Stalls, Stationarity};

/// The sentence about stalls.
pub(crate) fn stalled(found: &Stalls, judged_s: f64) -> String {
    format!("The run stalled while it was measured: {}.", stalls(found, judged_s))
}

/// The sentence about changes.
pub(crate) fn changed(throughput: Option<&Change>, service: Option<&Change>, judged_s: f64) -> String {
    let changes = changes(throughput, service, judged_s);
    format!("The run changed while it was measured: {changes}. Its numbers are of all of that together.")
}

/// How throughput and service time changed.
pub(crate) fn changes(throughput: Option<&Change>, service: Option<&Change>, judged_s: f64) -> String {
    let throughput = throughput.map(|found| change("throughput", found, judged_s, per_second));
    let service = service.map(|found| change("the mean service time", found, judged_s, time));
    throughput.into_iter().chain(service).collect::<Vec<_>>().join("; ")
}

/// A short text for a table.
pub(crate) fn in_short(stationarity: &Stationarity) -> String {
    let change = |name: &str, found: &Change| {
        let how = match found.shape {
            ChangeShape::Drift => "between first and last third".to_owned(),
            ChangeShape::Step => format!("at second {}", second(found.from_s)),
            ChangeShape::Episode => {
                format!("from second {} to {}", second(found.from_s), second(found.to_s))
            }
        };
        format!("{name} {:+.1} % {how}", found.change * 100.0)
    };
    let found = [
        stationarity.throughput.as_ref().map(|found| change("throughput", found)),
        stationarity.service.as_ref().map(|found| change("mean service time", found)),
        stationarity.stalls.as_ref().map(|stalls| {
            format!("{}, {} in all", plural(stalls.count, "stall"), time(stalls.total_s * 1e9))
        }),
    ];
    let found: Vec<String> = found.into_iter().flatten().collect();
    match found.is_empty() {
        true => format!("no change over {}", time(stationarity.judged_s * 1e9)),
        false => found.join("; "),
    }
}

fn per_second(value: f64) -> String {
    format!("{}/s", rate(value))
}

/// A second of the measured time, with at most one decimal.
fn second(s: f64) -> String {
    let text = if s < 100.0 { format!("{s:.1}") } else { format!("{s:.0}") };
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn change(name: &str, found: &Change, judged_s: f64, write: fn(f64) -> String) -> String {
    let Change { shape, from_s, to_s, before, after, change } = found;
    let (verb, more) = if *change < 0.0 { ("fell", "lower") } else { ("rose", "higher") };
    let size = format!("{:.1} %", change.abs() * 100.0);
    let (before, after, whole) = (write(*before), write(*after), time(judged_s * 1e9));
    match shape {
        ChangeShape::Drift => {
            format!(
                "{name} {verb} by {size} within the measured {whole}: first third {before}, last third {after}"
            )
        }
        ChangeShape::Step => format!(
            "{name} {verb} by {size} at second {} of the measured {whole}: {before} before, {after} after",
            second(*from_s)
        ),
        ChangeShape::Episode => format!(
            "{name} was {size} {more} from second {} to {} of the measured {whole}: {after} then, {before} at other times",
            second(*from_s),
            second(*to_s)
        ),
    }
}

/// When the store did nearly nothing, and for how long.
pub(crate) fn stalls(found: &Stalls, judged_s: f64) -> String {
    let Stalls { count, total_s, longest_s, longest_at_s } = found;
    let (longest, all) = (time(longest_s * 1e9), time(total_s * 1e9));
    let (at, whole) = (second(*longest_at_s), time(judged_s * 1e9));
    match count {
        0 | 1 => format!("nearly nothing was done for {longest} from second {at} of the measured {whole} on"),
        n => format!(
            "nearly nothing was done for {all} of the measured {whole}, in {n} stalls, the longest {longest} from second \
             {at} on"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(shape: ChangeShape, before: f64, after: f64) -> Change {
        Change { shape, from_s: 24.0, to_s: 36.0, before, after, change: after / before - 1.0 }
    }

    #[test]
    fn texts_about_changes_have_their_numbers() {
        let drift = found(ChangeShape::Drift, 20_100.0, 16_500.0);
        assert_eq!(
            changed(Some(&drift), None, 60.0),
            "The run changed while it was measured: throughput fell by 17.9 % within the measured 60.0 s: first third \
             20,100/s, last third 16,500/s. Its numbers are of all of that together."
        );
        let step = found(ChangeShape::Step, 100.0, 120.0);
        let episode = found(ChangeShape::Episode, 1e6, 2e6);
        assert_eq!(
            changed(Some(&step), Some(&episode), 60.0),
            "The run changed while it was measured: throughput rose by 20.0 % at second 24 of the measured 60.0 s: \
             100/s before, 120/s after; the mean service time was 100.0 % higher from second 24 to 36 of the measured \
             60.0 s: 2.00 ms then, 1.00 ms at other times. Its numbers are of all of that together."
        );
        let both = Stationarity {
            judged_s: 60.0,
            throughput: Some(step),
            service: Some(episode),
            ..Stationarity::default()
        };
        assert_eq!(
            in_short(&both),
            "throughput +20.0 % at second 24; mean service time +100.0 % from second 24 to 36"
        );
    }

    #[test]
    fn texts_about_stalls_have_their_times() {
        let one = Stalls { count: 1, total_s: 2.35, longest_s: 2.35, longest_at_s: 12.25 };
        assert_eq!(
            stalled(&one, 60.0),
            "The run stalled while it was measured: nearly nothing was done for 2.35 s from second 12.2 of the \
             measured 60.0 s on."
        );
        let three = Stalls { count: 3, total_s: 4.0, longest_s: 2.0, longest_at_s: 12.0 };
        assert!(stalled(&three, 60.0).contains("for 4.00 s of the measured 60.0 s, in 3 stalls"));
        let mut stationarity =
            Stationarity { judged_s: 60.0, stalls: Some(three), ..Stationarity::default() };
        assert_eq!(in_short(&stationarity), "3 stalls, 4.00 s in all");
        stationarity.stalls = None;
        assert_eq!(in_short(&stationarity), "no change over 60.0 s");
    }
}
