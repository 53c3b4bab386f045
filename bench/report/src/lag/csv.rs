//! The curves of lag as CSV: a line for each point of a curve.

use super::distribution_of;
use crate::csv::{micros, table};
use serval_result::lag::{LagResult, SurvivalStep};
use std::io::Write;

/// The columns, separated by commas. Later versions add columns at the end only.
pub const COLUMNS: &str = "name,curve,time_us,versions,share,count";

/// Writes the curves of several results; the first column has their names.
pub fn write(several: &[(String, &LagResult)], out: impl Write) -> Result<(), ::csv::Error> {
    let mut records: Vec<[String; 6]> = Vec::new();
    for (name, lag) in several {
        let mut add = |curve: &str, ns: Option<u64>, versions: String, share: f64, count: String| {
            let time = ns.map_or_else(String::new, micros);
            records.push([name.clone(), curve.to_owned(), time, versions, share_of(share), count]);
        };
        let visible = lag.visible.as_ref();
        let distributions = [
            ("lag", lag.lag.as_ref()),
            ("hand_over", lag.hand_over.as_ref()),
            ("visible_lower", visible.and_then(|visible| visible.lower.as_ref())),
            ("visible_upper", visible.and_then(|visible| visible.upper.as_ref())),
            ("last_stale", lag.versions.as_ref().and_then(|versions| versions.last_stale.as_ref())),
        ];
        for (curve, spans) in distributions {
            for (ns, share, count) in distribution_of(spans).unwrap_or_default() {
                add(curve, Some(ns), String::new(), share, count.to_string());
            }
        }
        let survival = lag.survival.iter().flat_map(|survival| {
            [("not_visible_lower", &survival.lower), ("not_visible_upper", &survival.upper)]
        });
        for (curve, steps) in survival {
            for SurvivalStep { at_ns, share } in steps {
                add(curve, Some(*at_ns), String::new(), *share, String::new());
            }
        }
        if let Some(versions) = &lag.versions {
            let (all, _) = versions.stale();
            for behind in &versions.behind {
                let share = behind.reads as f64 / all.max(1) as f64;
                add("behind", None, behind.versions.to_string(), share, behind.reads.to_string());
            }
        }
    }
    table(out, COLUMNS, records)
}

fn share_of(share: f64) -> String {
    format!("{share:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn lines(curve: &str) -> Vec<String> {
        let document = sample::lagging();
        let lag = document.lag.unwrap();
        let mut out = Vec::new();
        write(&[("a, b".to_owned(), &lag), (String::new(), &LagResult::default())], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("name,curve,time_us,versions,share,count\n"), "{text:.80}");
        let start = format!("\"a, b\",{curve},");
        text.lines().filter_map(|line| line.strip_prefix(&start)).map(str::to_owned).collect()
    }

    #[test]
    fn every_curve_is_complete() {
        assert_eq!(
            lines("behind"),
            [",0,0.751691,3000", ",1,0.225507,900", ",2,0.022551,90", ",1000,0.000251,1"]
        );
        let lag = lines("lag");
        // The last step is at the largest lag and counts all.
        let document = sample::lagging();
        let largest = micros(document.lag.as_ref().unwrap().lag.as_ref().unwrap().max_ns);
        assert_eq!(lag.last(), Some(&format!("{largest},,1.000000,240")));
        let counts: Vec<u64> =
            lag.iter().map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect();
        assert!(counts.is_sorted());
        let survival = document.lag.unwrap().survival.unwrap();
        assert_eq!(lines("not_visible_lower").len(), survival.lower.len());
        assert_eq!(
            lines("not_visible_upper")[0],
            format!("{},,{},", micros(survival.upper[0].at_ns), share_of(survival.upper[0].share))
        );
        for curve in ["hand_over", "visible_lower", "visible_upper", "last_stale"] {
            assert!(lines(curve).last().unwrap().contains(",,1.000000,"), "{curve}");
        }
    }
}
