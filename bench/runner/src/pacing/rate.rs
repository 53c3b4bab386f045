//! Offered load over time: the rate λ(t), its integral Λ(t), and Λ⁻¹. `docs/pacing.md` has the law
//! and its symbols.

use serval_model::properties::units::{format_duration, parse_duration};
use std::fmt;

/// Steps of the bisection that inverts a sine, more than the precision of a double needs.
const BISECTIONS: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq)]
enum RateShape {
    /// λ = rate.
    Constant { rate: f64 },
    /// λ rises or falls evenly over the segment's length.
    Ramp { from: f64, to: f64 },
    /// λ(t) = mean + amplitude sin(2πt / period).
    Sine { mean: f64, amplitude: f64, period_s: f64 },
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Segment {
    shape: RateShape,
    start_s: f64,
    /// Infinite for a last segment without end.
    length_s: f64,
    /// Λ at the start of the segment.
    before: f64,
}

impl Segment {
    /// Returns the operations due `t` seconds into the segment.
    fn due(&self, t: f64) -> f64 {
        match self.shape {
            RateShape::Constant { rate } => rate * t,
            RateShape::Ramp { from, to } => from * t + (to - from) * t * t / (2.0 * self.length_s),
            RateShape::Sine { mean, amplitude, period_s } => {
                let turn = std::f64::consts::TAU / period_s;
                mean * t + amplitude / turn * (1.0 - libm::cos(turn * t))
            }
        }
    }

    /// Returns the second of the segment at which `due` operations are due.
    fn time_of(&self, due: f64) -> f64 {
        match self.shape {
            RateShape::Constant { rate } => due / rate,
            RateShape::Ramp { from, to } => {
                // The numerically stable root of the quadratic; also right for from = to.
                let root = libm::sqrt((from * from + 2.0 * due * (to - from) / self.length_s).max(0.0));
                if from + root == 0.0 { 0.0 } else { 2.0 * due / (from + root) }
            }
            RateShape::Sine { mean, amplitude, period_s } => {
                // |Λ(t) - mean t| <= amplitude * period / π bounds the search.
                let slack = amplitude * period_s / std::f64::consts::PI;
                let (mut low, mut high) = (((due - slack) / mean).max(0.0), (due + slack) / mean);
                for _ in 0..BISECTIONS {
                    let middle = (low + high) / 2.0;
                    if self.due(middle) < due { low = middle } else { high = middle }
                }
                high
            }
        }
    }

    fn starting_rate(&self) -> f64 {
        match self.shape {
            RateShape::Constant { rate } => rate,
            RateShape::Ramp { from, .. } => from,
            RateShape::Sine { mean, .. } => mean,
        }
    }
}

/// Offered load as a function of time.
#[derive(Debug, Clone, PartialEq)]
pub struct RateSchedule {
    segments: Vec<Segment>,
    words: String,
}

impl fmt::Display for RateSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl RateSchedule {
    /// Creates a constant rate (operations/s, above zero) without end.
    pub fn constant(rate: f64) -> Self {
        Self::of(vec![(RateShape::Constant { rate }, f64::INFINITY)], format!("{rate}/s"))
    }

    fn of(shapes: Vec<(RateShape, f64)>, words: String) -> Self {
        let mut schedule = RateSchedule { segments: Vec::new(), words };
        let (mut start_s, mut before) = (0.0, 0.0);
        for (shape, length_s) in shapes {
            let segment = Segment { shape, start_s, length_s, before };
            schedule.segments.push(segment);
            if length_s.is_finite() {
                start_s += length_s;
                before += segment.due(length_s);
            }
        }
        schedule
    }

    /// Parses a schedule: segments separated by `;`, each
    ///
    /// * `1000 for 30s` – a constant rate; the last segment may omit `for`,
    /// * `ramp 1000..5000 for 60s`,
    /// * `steps 1000..5000 by 1000 for 10s` – 1000, 2000, ... for 10 s each,
    /// * `sine 3000+-1000 every 20s for 2m`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut shapes = Vec::new();
        let parts: Vec<&str> = text.split(';').map(str::trim).filter(|p| !p.is_empty()).collect();
        if parts.is_empty() {
            return Err("is empty: write for example '1000 for 30s; ramp 1000..5000 for 1m'".into());
        }
        for (index, part) in parts.iter().enumerate() {
            let segment = parse_segment(part).map_err(|problem| format!("segment '{part}': {problem}"))?;
            let last = index + 1 == parts.len();
            if segment.iter().any(|(_, length)| length.is_infinite()) && !last {
                return Err(format!("segment '{part}': only the last may go on for ever; add 'for 30s'"));
            }
            shapes.extend(segment);
            if shapes.len() > SEGMENTS_MAX {
                return Err(format!("has more than {SEGMENTS_MAX} segments"));
            }
        }
        let schedule = Self::of(shapes, parts.join("; "));
        let total = schedule.length_s().map_or(0.0, |length| schedule.due(length));
        if total > COUNT_MAX {
            return Err(format!("asks for {total:.0} operations, more than can be counted exactly"));
        }
        Ok(schedule)
    }

    /// Returns the schedule with a warm-up of `seconds` at its starting rate in front.
    #[must_use]
    pub fn after_warm_up(&self, seconds: f64) -> Self {
        if seconds <= 0.0 {
            return self.clone();
        }
        let rate = self.segments[0].starting_rate();
        let mut shapes = vec![(RateShape::Constant { rate }, seconds)];
        shapes.extend(self.segments.iter().map(|s| (s.shape, s.length_s)));
        Self::of(shapes, self.words.clone())
    }

    /// Returns whether the rate is constant and has no end.
    pub fn is_constant(&self) -> bool {
        matches!(self.segments[..], [Segment { shape: RateShape::Constant { .. }, length_s, .. }] if length_s.is_infinite())
    }

    /// Returns its length; `None` if it has no end.
    pub fn length_s(&self) -> Option<f64> {
        let last = self.segments.last()?;
        last.length_s.is_finite().then_some(last.start_s + last.length_s)
    }

    /// Returns Λ(t), the operations due within the first `t` seconds.
    pub fn due(&self, t: f64) -> f64 {
        let index = self.segments.partition_point(|s| s.start_s <= t).max(1) - 1;
        let segment = &self.segments[index];
        segment.before + segment.due((t - segment.start_s).clamp(0.0, segment.length_s))
    }

    /// Returns Λ⁻¹(due), the second at which `due` operations are due; `None` after the end.
    pub fn time_of(&self, due: f64) -> Option<f64> {
        let index = self.segments.partition_point(|s| s.before <= due).max(1) - 1;
        let segment = &self.segments[index];
        let t = segment.time_of(due - segment.before);
        (t.is_finite() && t < segment.length_s).then_some(segment.start_s + t)
    }

    /// Returns its highest rate, operations/s.
    pub fn rate_max(&self) -> f64 {
        let rates = self.segments.iter().map(|s| match s.shape {
            RateShape::Constant { rate } => rate,
            RateShape::Ramp { from, to } => from.max(to),
            RateShape::Sine { mean, amplitude, .. } => mean + amplitude,
        });
        rates.fold(0.0, f64::max)
    }
}

/// Largest number of segments: a day of one-minute steps.
const SEGMENTS_MAX: usize = 1440;
/// Largest number of operations: doubles count exactly up to 2^53.
const COUNT_MAX: f64 = 9.0e15;
/// Highest rate, operations/s: one per nanosecond.
const RATE_MAX: f64 = 1e9;

fn parse_segment(text: &str) -> Result<Vec<(RateShape, f64)>, String> {
    let (body, length_s) = match text.rsplit_once(" for ") {
        Some((body, length)) => (body.trim(), parse_span(length)?),
        None => (text, f64::INFINITY),
    };
    let words: Vec<&str> = body.split_whitespace().collect();
    let need_length = |what: &str| {
        if length_s.is_finite() { Ok(()) } else { Err(format!("a {what} needs a length: add 'for 60s'")) }
    };
    match words.as_slice() {
        [rate] => Ok(vec![(RateShape::Constant { rate: parse_rate(rate)? }, length_s)]),
        ["ramp", range] => {
            need_length("ramp")?;
            let (from, to) = parse_range(range)?;
            if from + to == 0.0 {
                return Err("a ramp from 0 to 0 has no operations".into());
            }
            Ok(vec![(RateShape::Ramp { from, to }, length_s)])
        }
        ["steps", range, "by", by] => {
            need_length("step")?;
            let ((from, to), by) = (parse_range(range)?, parse_rate(by)?);
            let count = ((to - from).abs() / by + 1e-9).floor() as usize + 1;
            if count > SEGMENTS_MAX {
                return Err(format!("makes {count} steps, at most {SEGMENTS_MAX} are allowed"));
            }
            let sign = if to < from { -by } else { by };
            let rates = (0..count).map(|i| from + sign * i as f64);
            if rates.clone().any(|rate| rate <= 0.0) {
                return Err("every step needs a rate above zero".into());
            }
            Ok(rates.map(|rate| (RateShape::Constant { rate }, length_s)).collect())
        }
        ["sine", swing, "every", period] => {
            let (mean, amplitude) =
                swing.split_once("+-").ok_or("write the sine as mean+-amplitude, such as 3000+-1000")?;
            let (mean, amplitude) = (parse_rate(mean)?, parse_nonnegative(amplitude)?);
            if amplitude > mean {
                return Err(format!(
                    "the amplitude {amplitude} is above the mean {mean}: rates would be negative"
                ));
            }
            let period_s = parse_span(period)?;
            Ok(vec![(RateShape::Sine { mean, amplitude, period_s }, length_s)])
        }
        _ => Err("write '1000 for 30s', 'ramp 1000..5000 for 60s', 'steps 1000..5000 by 1000 for 10s' \
                  or 'sine 3000+-1000 every 20s for 2m'"
            .into()),
    }
}

fn parse_span(text: &str) -> Result<f64, String> {
    let ns = parse_duration(text, 1_000_000_000).map_err(|problem| format!("'{text}' {problem}"))?;
    if ns == 0 { Err(format!("'{text}' is no time at all")) } else { Ok(ns as f64 / 1e9) }
}

fn parse_nonnegative(text: &str) -> Result<f64, String> {
    let rate: f64 = text.trim().parse().map_err(|_| {
        format!(
            "'{text}' is not a rate in operations/s; write for example '1000 for 30s; ramp 1000..5000 for 1m'"
        )
    })?;
    if (0.0..=RATE_MAX).contains(&rate) {
        Ok(rate)
    } else {
        Err(format!("the rate '{text}' must be from 0 to {RATE_MAX} operations/s"))
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = parse_nonnegative(text)?;
    // A lower rate is a mistake, and 1/rate overflows.
    if rate >= 1e-4 { Ok(rate) } else { Err(format!("the rate '{text}' must be above zero")) }
}

fn parse_range(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text.split_once("..").ok_or("write the range as 1000..5000")?;
    Ok((parse_nonnegative(from)?, parse_nonnegative(to)?))
}

/// Returns the length of a schedule in words, for plans.
pub fn length_in_words(schedule: &RateSchedule) -> String {
    match schedule.length_s() {
        Some(seconds) => format_duration((seconds * 1e9) as u64),
        None => "no end".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn starts(text: &str, count: usize) -> Vec<Option<f64>> {
        let schedule = RateSchedule::parse(text).unwrap();
        (0..count).map(|k| schedule.time_of(k as f64).map(|t| (t * 1000.0).round() / 1000.0)).collect()
    }

    #[test]
    fn intended_starts_of_each_kind_of_schedule() {
        for (text, expected) in [
            ("1", vec![Some(0.0), Some(1.0), Some(2.0)]),
            ("10 for 200ms", vec![Some(0.0), Some(0.1), None]),
            ("2 for 1s; 4", vec![Some(0.0), Some(0.5), Some(1.0), Some(1.25)]),
            // Λ = t²: operations 0, 1, 4 at 0, 1, 2 s.
            ("ramp 0..20 for 10s", vec![Some(0.0), Some(1.0), Some(1.414), Some(1.732), Some(2.0)]),
            ("ramp 20..0 for 10s", vec![Some(0.0), Some(0.05), Some(0.101)]),
            (
                "steps 1..3 by 1 for 1s",
                vec![Some(0.0), Some(1.0), Some(1.5), Some(2.0), Some(2.333), Some(2.667), None],
            ),
        ] {
            assert_eq!(starts(text, expected.len()), expected, "{text}");
        }
    }

    #[test]
    fn a_sine_returns_to_its_mean() {
        let schedule = RateSchedule::parse("sine 100+-50 every 10s for 1m").unwrap();
        assert!((schedule.due(10.0) - 1000.0).abs() < 1e-6);
        assert!((schedule.due(60.0) - 6000.0).abs() < 1e-6);
        // The first half period has the amplitude's surplus: A T / π.
        assert!((schedule.due(5.0) - (500.0 + 50.0 * 10.0 / std::f64::consts::PI)).abs() < 1e-6);
        assert_eq!(schedule.rate_max(), 150.0);
    }

    #[test]
    fn warm_up_holds_the_starting_rate() {
        let schedule = RateSchedule::parse("ramp 10..20 for 10s").unwrap().after_warm_up(2.0);
        assert_eq!(schedule.due(2.0), 20.0);
        assert!((schedule.due(12.0) - 170.0).abs() < 1e-9);
    }

    #[test]
    fn only_a_single_endless_rate_is_constant() {
        assert!(RateSchedule::constant(5.0).is_constant() && RateSchedule::parse("5").unwrap().is_constant());
        for text in ["5 for 3s", "5 for 3s; 5", "ramp 5..6 for 1s", "sine 5+-1 every 1s"] {
            assert!(!RateSchedule::parse(text).unwrap().is_constant(), "{text}");
        }
    }

    #[test]
    fn invalid_schedules_are_refused_with_the_reason() {
        for (text, word) in [
            ("", "empty"),
            ("1000; 2000", "for"),
            ("ramp 1..2", "length"),
            ("ramp 0..0 for 1s", "no operations"),
            ("sine 10+-20 every 1s", "negative"),
            ("-5", "rate"),
            ("0", "above zero"),
            ("fast", "rate"),
            ("steps 1..1000000 by 1 for 1s", "at most"),
            ("10 for 0s", "no time"),
            ("wobble 1 2 3", "write"),
        ] {
            let problem = RateSchedule::parse(text).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
    }

    proptest! {
        #[test]
        fn time_of_inverts_due(a in 0.0f64..1e5, b in 1.0f64..1e5, c in 1.0f64..1e5, x in 0.0f64..1.0) {
            let text = format!("{b} for 3s; ramp {a}..{b} for 7s; sine {c}+-{} every 2s for 9s; {c} for 1s", c / 2.0);
            let schedule = RateSchedule::parse(&text).unwrap();
            let t = x * 19.99;
            let due = schedule.due(t);
            let back = schedule.time_of(due).unwrap();
            // Where the rate is near zero, the time of an operation is ill-determined.
            prop_assert!((schedule.due(back) - due).abs() < 1e-6 * due.max(1.0), "{t} -> {due} -> {back}");
        }

        #[test]
        fn starts_never_decrease(b in 1.0f64..1000.0, k in 0u64..2000) {
            let schedule = RateSchedule::parse(&format!("ramp 0..{b} for 5s; sine {b}+-{b} every 1s")).unwrap();
            if let (Some(first), Some(second)) = (schedule.time_of(k as f64), schedule.time_of(k as f64 + 1.0)) {
                prop_assert!(first <= second);
            }
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in ".*") {
            let _ = RateSchedule::parse(&text);
        }
    }
}
