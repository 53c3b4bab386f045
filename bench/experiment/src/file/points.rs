//! Points of a sweep: the offered loads of a curve.

use super::reader::{TomlSource, TomlValue, number};
use std::fmt;
use toml::de::DeValue;

/// Most points of a curve; a figure cannot show more.
pub const POINTS_MAX: usize = 100;

/// Default number of points.
pub const POINTS: usize = 8;

/// Share of the saturation of the last point of an even sweep: above 1, so that the sweep shows overload.
const BEYOND: f64 = 1.1;

/// Largest share of the saturation.
const SHARE_MAX: f64 = 10.0;

/// Offered loads, operations/s: from one in a quarter of an hour to the highest target.
const RATES: std::ops::RangeInclusive<f64> = 0.001..=1e9;

/// One offered load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LoadPoint {
    /// Share of the curve's saturation; 1 is the saturation.
    Share(f64),
    /// Rate, operations/s.
    Rate(f64),
    /// No target: as fast as the store answers.
    Max,
}

impl fmt::Display for LoadPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadPoint::Share(share) => write!(f, "{}%", round(share * 100.0)),
            LoadPoint::Rate(rate) => write!(f, "{rate}/s"),
            LoadPoint::Max => f.write_str("max"),
        }
    }
}

/// Rounds to one decimal.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

impl LoadPoint {
    /// Reads `60%`, `20000` or `max`.
    pub fn parse(text: &str) -> Result<LoadPoint, String> {
        let text = text.trim();
        if text == "max" {
            return Ok(LoadPoint::Max);
        }
        let wrong = || format!("'{text}' is no point: write \"60%\", a number of operations/s, or \"max\"");
        let above_zero = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
        match text.strip_suffix('%') {
            Some(percent) => {
                let share = above_zero(percent).ok_or_else(wrong)? / 100.0;
                if share > SHARE_MAX {
                    return Err(format!("'{text}' is more than {}%", SHARE_MAX * 100.0));
                }
                Ok(LoadPoint::Share(share))
            }
            None => LoadPoint::rate(above_zero(text).ok_or_else(wrong)?),
        }
    }

    fn rate(rate: f64) -> Result<LoadPoint, String> {
        if RATES.contains(&rate) {
            return Ok(LoadPoint::Rate(rate));
        }
        Err(format!("{rate:e} operations/s is not from {} to 1,000,000,000", RATES.start()))
    }

    /// Returns `count` points: even steps up to the saturation, and one point beyond it.
    pub fn even(count: usize) -> Vec<LoadPoint> {
        let steps = count.saturating_sub(1);
        let up = (1..=steps).map(|i| LoadPoint::Share(i as f64 / steps as f64));
        up.chain((count > 0).then_some(LoadPoint::Share(BEYOND))).collect()
    }

    /// Returns whether the offered load depends on the saturation.
    pub fn needs_saturation(self) -> bool {
        matches!(self, LoadPoint::Share(_))
    }
}

/// Reads points from a command line: a list separated by commas, or the number of even points.
pub fn parse_points(text: &str) -> Result<Vec<LoadPoint>, String> {
    if let Ok(count) = text.trim().parse::<usize>()
        && !text.contains(',')
        && count <= POINTS_MAX
    {
        return counted(count);
    }
    let points = text.split(',').map(LoadPoint::parse).collect::<Result<Vec<_>, _>>()?;
    bounded(points)
}

fn counted(count: usize) -> Result<Vec<LoadPoint>, String> {
    if !(2..=POINTS_MAX).contains(&count) {
        return Err(format!("from 2 to {POINTS_MAX} points, or a list of them"));
    }
    Ok(LoadPoint::even(count))
}

fn bounded(points: Vec<LoadPoint>) -> Result<Vec<LoadPoint>, String> {
    if points.is_empty() || points.len() > POINTS_MAX {
        return Err(format!("from 1 to {POINTS_MAX} points"));
    }
    if let Some((_, again)) = points.iter().enumerate().find(|(i, point)| points[..*i].contains(point)) {
        return Err(format!("{again} twice: 'repeats' says how often each point is run"));
    }
    Ok(points)
}

/// Reads points from a value of a file.
pub(super) fn read(source: &TomlSource<'_>, value: TomlValue<'_>) -> Vec<LoadPoint> {
    let fault = |problem: String| {
        source.fault(&value.span(), format!("points: {problem}"));
        Vec::new()
    };
    let items = match value.get_ref() {
        DeValue::Array(items) => items,
        one => {
            let count = number(one).filter(|n| n.fract() == 0.0 && *n >= 0.0);
            return match count {
                Some(count) => counted(count as usize).unwrap_or_else(fault),
                None => fault("must be a number of points or a list of them".to_owned()),
            };
        }
    };
    let points = items.iter().map(|item| match (item.get_ref().as_str(), number(item.get_ref())) {
        (Some(text), _) => LoadPoint::parse(text),
        (None, Some(rate)) if rate > 0.0 && rate.is_finite() => LoadPoint::rate(rate),
        _ => Err("a point is \"60%\", a number of operations/s above 0, or \"max\"".to_owned()),
    });
    points.collect::<Result<Vec<_>, _>>().and_then(bounded).unwrap_or_else(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_points_reach_and_exceed_the_saturation() {
        let words: Vec<String> = LoadPoint::even(8).iter().map(LoadPoint::to_string).collect();
        assert_eq!(words, ["14.3%", "28.6%", "42.9%", "57.1%", "71.4%", "85.7%", "100%", "110%"]);
        assert_eq!(LoadPoint::even(2), [LoadPoint::Share(1.0), LoadPoint::Share(1.1)]);
    }

    #[test]
    fn points_are_parsed_or_refused() {
        assert_eq!(
            parse_points("50%, 2000,max").unwrap(),
            [LoadPoint::Share(0.5), LoadPoint::Rate(2000.0), LoadPoint::Max]
        );
        assert_eq!(parse_points("3").unwrap().len(), 3);
        assert_eq!(parse_points("2000").unwrap(), [LoadPoint::Rate(2000.0)]);
        for text in
            ["", "0", "-5", "x", "0%", "nan", "1e999", "5000%", "1", "1e-300", "1e18", "9,9.0", "max,50%,max"]
        {
            assert!(parse_points(text).is_err(), "{text}");
        }
    }
}
