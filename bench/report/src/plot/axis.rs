//! Axes with chosen marks.

use crate::units::{digits, time};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// An axis.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    pub(super) range: Range<f64>,
    logarithmic: bool,
    /// Tick marks and their labels.
    marks: Vec<(f64, String)>,
    /// The quantity that it shows; may be empty.
    pub(super) label: String,
    /// Whether grid lines go through the plot at its marks.
    pub(super) lined: bool,
}

impl Axis {
    fn new(range: Range<f64>, logarithmic: bool, marks: Vec<(f64, String)>) -> Axis {
        Axis { range, logarithmic, marks, label: String::new(), lined: true }
    }

    /// The axis with a label.
    pub(crate) fn labelled(self, label: &str) -> Axis {
        Axis { label: label.to_owned(), ..self }
    }

    /// Seconds from 0.
    pub(crate) fn seconds(end: f64, width: u32) -> Option<Axis> {
        let marks = time_steps(usable(end)?, parts(width)).into_iter().map(|s| (s, seconds_label(s, end)));
        Some(Axis::new(0.0..end, false, marks.collect()))
    }

    /// Operations a second from 0, for values up to `most`.
    pub(crate) fn rates(most: f64, width: u32) -> Option<Axis> {
        let top = usable(most)? * 1.08;
        let marks = steps(top, parts(width)).into_iter().map(|r| (r, tick(crate::units::rate(r))));
        Some(Axis::new(0.0..top, false, marks.collect()))
    }

    /// Logarithmic axis of times in ns that covers all values above 0.
    pub(crate) fn times(values: impl Iterator<Item = f64>) -> Option<Axis> {
        around(values, 4.0).map(Axis::times_between)
    }

    /// Logarithmic axis of times in ns with exactly this range.
    pub(crate) fn times_between(range: Range<f64>) -> Axis {
        let marks = log_steps(&range).into_iter().map(|ns| (ns, tick(time(ns)))).collect();
        Axis::new(range, true, marks)
    }

    /// Percentages from 0, for shares up to `most`.
    pub(crate) fn shares(most: f64, width: u32) -> Option<Axis> {
        let top = usable(most)? * 1.08;
        let marks = steps(top * 100.0, parts(width)).into_iter();
        let marks = marks.map(|p| (p / 100.0, format!("{} %", tick(digits(p)))));
        Some(Axis::new(0.0..top, false, marks.collect()))
    }

    /// Logarithmic axis of ratios that contains 1.
    pub(crate) fn ratios(values: impl Iterator<Item = f64>) -> Option<Axis> {
        let range = around(values.chain([0.5, 2.0]), 4.0)?;
        let marks = log_steps(&range).into_iter().map(|ratio| (ratio, format!("× {}", plain(ratio))));
        Some(Axis::new(range.clone(), true, marks.collect()))
    }

    /// Axis with a mark at each value; logarithmic if they span a factor of 8 or more.
    pub(crate) fn places(values: &[f64]) -> Option<Axis> {
        let (least, most) = ends(values.iter().copied().filter(|v| v.is_finite()))?;
        let logarithmic = least > 0.0 && most / least >= 8.0;
        let range = if logarithmic {
            least / 1.3..most * 1.3
        } else {
            let margin = if most > least { (most - least) * 0.06 } else { 1.0 };
            least - margin..most + margin
        };
        let marks = values.iter().map(|v| (*v, plain(*v))).collect();
        Some(Axis::new(range, logarithmic, marks))
    }

    /// Categories side by side: the nth is at n.
    pub(crate) fn things(names: &[String]) -> Axis {
        let marks = names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect();
        Axis { lined: false, ..Axis::new(-0.5..names.len() as f64 - 0.5, false, marks) }
    }

    /// Percentiles with equal room for each further nine; values are those of
    /// [`percentile_place`].
    pub(crate) fn percentiles(last: f64, width: u32) -> Axis {
        let last = last.max(1.0);
        let mut places: Vec<f64> = vec![0.0, percentile_place(0.5)];
        places.extend((1..=last as u32).map(f64::from));
        // In pixels; a label of many nines needs 60.
        let nine = f64::from(width - width.min(90)) / last;
        let marks = places.into_iter().map(|place| {
            let is_narrow = place > 3.0 && nine < 60.0 && place as u32 % 2 == 1;
            let label = if is_narrow || (place == 0.0 && nine < 110.0) {
                String::new()
            } else {
                percentile_label(place)
            };
            (place, label)
        });
        let marks = marks.collect();
        Axis::new(0.0..last, false, marks).labelled("percentile")
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let place = |v: f64| if self.logarithmic { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let (start, end) = (place(self.range.start), place(self.range.end));
        let part = ((place(*value) - start) / (end - start)).clamp(-0.02, 1.02);
        first + (part * f64::from(last - first)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _hint: H) -> Vec<f64> {
        self.marks.iter().map(|(value, _)| *value).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.marks.iter().find(|(at, _)| at == value).map_or(String::new(), |(_, label)| label.clone())
    }
}

/// The end of an axis from 0; `None` if nothing can be shown on it.
fn usable(end: f64) -> Option<f64> {
    (end.is_finite() && end > 0.0).then_some(end)
}

/// Number of ticks that fit into a width in pixels.
fn parts(width: u32) -> f64 {
    f64::from(width / 90).clamp(2.0, 8.0)
}

/// A number without trailing zeros.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", crate::units::count(value.abs() as u64));
    }
    format!("{value}")
}

/// A tick label without trailing zeros: `1 ms` and not `1.00 ms`.
fn tick(text: String) -> String {
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number} {unit}").trim_end().to_owned()
}

/// The position of a percentile on its axis, by the share of times above it.
pub(super) fn percentile_place(share_above: f64) -> f64 {
    -share_above.log10()
}

fn percentile_label(place: f64) -> String {
    let percentile = 100.0 - 100.0 * 10f64.powf(-place);
    let decimals = (place.round() as usize).saturating_sub(2);
    format!("{percentile:.decimals$}")
}

/// Length in seconds from which an axis shows minutes.
const IN_MINUTES: f64 = 600.0;

/// The label of a time on an axis that ends at `end`.
fn seconds_label(seconds: f64, end: f64) -> String {
    match seconds {
        s if s < 10.0 && s.fract() != 0.0 => format!("{} s", digits(s)),
        s if end < IN_MINUTES => format!("{s:.0} s"),
        s => {
            let minutes = (s / 60.0).round() as u64;
            let (hours, rest) = (minutes / 60, minutes % 60);
            if end >= 7200.0 { format!("{hours}:{rest:02} h") } else { format!("{minutes} min") }
        }
    }
}

/// As [`steps`], but whole minutes or hours on a long axis.
fn time_steps(end: f64, parts: f64) -> Vec<f64> {
    if end < IN_MINUTES {
        return steps(end, parts);
    }
    let minutes = [2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 180.0, 360.0, 720.0];
    let step = minutes.into_iter().map(|m| m * 60.0).find(|step| end / step <= parts);
    let days = 86_400.0;
    let step = step.unwrap_or_else(|| (end / parts / days).ceil() * days);
    (0..=(end / step) as u32).map(|i| f64::from(i) * step).collect()
}

/// At most about `parts` round steps from 0 to `end`.
fn steps(end: f64, parts: f64) -> Vec<f64> {
    let rough = end / parts;
    let size = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * size).find(|s| *s >= rough).unwrap_or(rough);
    (0..=(end / step) as u32).map(|i| f64::from(i) * step).collect()
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((least, most)) => Some((value.min(least), value.max(most))),
    })
}

/// A range around all values above 0, whose ends are at least a factor of `times` apart.
fn around(values: impl Iterator<Item = f64>, times: f64) -> Option<Range<f64>> {
    let (least, most) = ends(values.filter(|v| *v > 0.0 && v.is_finite()))?;
    // The margin in pixels stays the same however many decades there are.
    let margin = (most / least).powf(0.05).max(1.25);
    let (least, most) = (least / margin, most * margin);
    let more = (times * least / most).max(1.0).sqrt();
    Some(least / more..most * more)
}

/// Powers of ten within a range; also their multiples by 2 and 5 if there are few.
fn log_steps(range: &Range<f64>) -> Vec<f64> {
    let few = range.end / range.start < 200.0;
    let parts: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let first = range.start.log10().floor() as i32;
    let last = range.end.log10().ceil() as i32;
    (first..=last)
        .flat_map(|power| parts.iter().map(move |part| part * 10f64.powi(power)))
        .filter(|value| range.contains(value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_steps() {
        assert_eq!(steps(120.0, 6.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]);
        assert_eq!(log_steps(&(3e5..2e7)), [5e5, 1e6, 2e6, 5e6, 1e7][..]);
        assert_eq!(log_steps(&(3e3..2e7)), [1e4, 1e5, 1e6, 1e7]);
        assert_eq!(tick(time(1e6)), "1 ms");
        assert_eq!(tick("50.0".to_owned()), "50");
        assert_eq!(tick("200".to_owned()), "200");
        assert_eq!(time_steps(3600.0, 8.0), [0.0, 600.0, 1200.0, 1800.0, 2400.0, 3000.0, 3600.0]);
        assert_eq!(time_steps(500.0, 5.0)[1], 100.0);
        assert!(time_steps(1e9, 8.0).len() <= 9);
        assert_eq!(seconds_label(600.0, 3600.0), "10 min");
        assert_eq!(seconds_label(500.0, 599.0), "500 s");
        assert_eq!(seconds_label(9000.0, 86_400.0), "2:30 h");
        assert_eq!(percentile_label(0.0), "0");
        assert_eq!(percentile_label(percentile_place(0.5)), "50");
        assert_eq!(percentile_label(1.0), "90");
        assert_eq!(percentile_label(4.0), "99.99");
        assert_eq!(plain(25.0), "25");
        assert_eq!(plain(0.2), "0.2");
    }

    #[test]
    fn an_axis_of_one_time_has_marks_around_it() {
        let axis = Axis::times([1.3e6].into_iter()).unwrap();
        assert!(axis.range.start < 1e6 && axis.range.end > 2e6, "{:?}", axis.range);
        let labels: Vec<&str> = axis.marks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["1 ms", "2 ms"]);
        assert!(Axis::times([0.0].into_iter()).is_none());
        assert!(Axis::rates(0.0, 300).is_none() && Axis::seconds(f64::NAN, 300).is_none());
    }

    #[test]
    fn values_out_of_range_are_clamped() {
        let axis = Axis::times([1e6].into_iter()).unwrap();
        assert!(axis.map(&0.0, (0, 1000)) >= -20);
        assert!(axis.map(&1e18, (0, 1000)) <= 1020);
    }
}
