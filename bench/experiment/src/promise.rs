//! Service-level objectives (SLOs): `read.p99 < 10ms and failed < 0.1%`.

use serval_measure::histogram::Histogram;
use serval_model::{Metric, properties::units::parse_duration};
use serval_result::{
    document::{BufferedResult, MetricResult, ResultDocument},
    experiment::PromiseValue,
    metric::is_beside,
};
use std::fmt;

/// Most conditions of an SLO.
const CONDITIONS_MAX: usize = 16;

/// Statistic of a condition.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PromiseStatistic {
    Mean,
    Max,
    Percentile(f64),
    /// Share of operations that failed or got no answer.
    Failed,
}

/// A condition of an SLO.
#[derive(Debug, Clone, PartialEq)]
struct Condition {
    /// Name of the operation in results, such as READ; `None` for all operations together.
    operation: Option<String>,
    /// Whether the condition is about service times instead of response times.
    service: bool,
    statistic: PromiseStatistic,
    /// Upper limit: ns, or a share of operations.
    limit: f64,
}

/// An SLO: conditions that must all hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Promise {
    conditions: Vec<Condition>,
    words: String,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// Margin of a result to an SLO.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Largest ln(value / limit) of all conditions; the SLO holds at 0 or less.
    pub margin: f64,
}

/// Largest absolute margin: that of a value of zero, and of a time without any finished operation.
const FAR: f64 = 20.0;

fn statistic(text: &str) -> Option<PromiseStatistic> {
    Some(match text {
        "mean" | "avg" | "average" => PromiseStatistic::Mean,
        "max" => PromiseStatistic::Max,
        "median" => PromiseStatistic::Percentile(50.0),
        "failed" => PromiseStatistic::Failed,
        text => {
            let percentile: f64 = text.strip_prefix('p')?.parse().ok()?;
            if !(0.0..=100.0).contains(&percentile) {
                return None;
            }
            PromiseStatistic::Percentile(percentile)
        }
    })
}

fn condition(text: &str) -> Result<Condition, String> {
    let form = "write for example 'read.p99 < 10ms', 'update.service.mean < 2ms' or 'failed < 0.1%'";
    if text.is_empty() {
        return Err(format!("a condition is missing: {form}"));
    }
    let (left, limit) = text.split_once('<').ok_or_else(|| format!("'{text}' has no '<': {form}"))?;
    let limit = limit.trim_start_matches('=').trim();
    // The percentile may contain a point itself: p99.9.
    let lower = left.trim().to_ascii_lowercase();
    let point = if statistic(&lower).is_some() { None } else { lower.rfind('.') };
    let at = lower.rfind(".p").or(point);
    let (before, last) = match at {
        Some(at) => (lower.get(..at), lower.get(at + 1..).unwrap_or_default()),
        None => (None, lower.as_str()),
    };
    let statistic = statistic(last).ok_or_else(|| format!("'{last}' is no statistic: {form}"))?;
    let (operation, service) = match before {
        None => (None, false),
        Some("service") => (None, true),
        Some("response") => (None, false),
        Some(operation) => match (operation.strip_suffix(".service"), operation.strip_suffix(".response")) {
            (Some(operation), _) => (Some(operation), true),
            (_, Some(operation)) => (Some(operation), false),
            _ => (Some(operation), false),
        },
    };
    if operation.is_some_and(|name| name.is_empty() || name.contains('.')) {
        return Err(format!("'{}' is no operation: {form}", operation.unwrap_or_default()));
    }
    let limit_value = if statistic == PromiseStatistic::Failed {
        let percent = limit.strip_suffix('%').map(|text| text.trim().parse::<f64>().map(|p| p / 100.0));
        percent.unwrap_or_else(|| limit.parse()).map_err(|_| format!("'{limit}' is no share: write 0.1%"))?
    } else {
        if limit.bytes().last().is_some_and(|byte| byte.is_ascii_digit()) {
            let left = left.trim();
            return Err(format!("'{text}': {limit} has no unit; give one, as in {left}<{limit}ms"));
        }
        parse_duration(limit, 1).map_err(|problem| format!("'{limit}': {problem}"))? as f64
    };
    if statistic == PromiseStatistic::Failed && limit_value > 1.0 {
        return Err(format!("'{limit}' is more than all operations: write for example 0.1%"));
    }
    if !(limit_value > 0.0 && limit_value.is_finite()) {
        return Err(format!("'{limit}': the limit must be above zero"));
    }
    let operation = operation.map(str::to_ascii_uppercase);
    Ok(Condition { operation, service, statistic, limit: limit_value })
}

impl Promise {
    /// Reads an SLO.
    pub fn parse(text: &str) -> Result<Promise, String> {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut parts = vec![String::new()];
        for word in words.replace("&&", " and ").split_whitespace() {
            match parts.last_mut() {
                _ if word.eq_ignore_ascii_case("and") => parts.push(String::new()),
                Some(part) if part.is_empty() => *part = word.to_owned(),
                Some(part) => *part = format!("{part} {word}"),
                None => {}
            }
        }
        if parts.len() > CONDITIONS_MAX {
            return Err(format!("has more than {CONDITIONS_MAX} conditions"));
        }
        let conditions = parts.iter().map(|part| condition(part)).collect::<Result<Vec<_>, _>>()?;
        Ok(Promise { conditions, words })
    }

    /// Returns the names of the operations in the conditions, as in results: READ.
    pub fn operations(&self) -> impl Iterator<Item = &str> {
        self.conditions.iter().filter_map(|condition| condition.operation.as_deref())
    }

    /// Returns the value of each condition in a result, in the order of the conditions.
    pub fn values(&self, document: &ResultDocument) -> Result<Vec<PromiseValue>, String> {
        let of = |condition: &Condition| {
            let value = condition.value(document)?;
            Ok(PromiseValue {
                quantity: condition.quantity(),
                value: value.filter(|value| value.is_finite()),
                limit: condition.limit,
                is_time: condition.statistic != PromiseStatistic::Failed,
            })
        };
        self.conditions.iter().map(of).collect()
    }

    /// Returns the margin of a result; `None` if the run neither finished an operation of any condition nor has one
    /// in flight or not started. At a low rate a rare operation may not occur.
    pub fn standing(&self, document: &ResultDocument) -> Result<Option<Standing>, String> {
        let mut worst: Option<f64> = None;
        for condition in &self.conditions {
            if let Some(margin) = condition.margin(document)? {
                worst = Some(worst.map_or(margin, |worst| worst.max(margin)));
            }
        }
        Ok(worst.map(|margin| Standing { margin }))
    }
}

impl Condition {
    /// Returns the name of the value that must stay below the limit: `read.service.p99`.
    fn quantity(&self) -> String {
        let operation = self.operation.iter().map(|name| name.to_lowercase());
        let service = self.service.then(|| "service".to_owned());
        let statistic = match self.statistic {
            PromiseStatistic::Mean => "mean".to_owned(),
            PromiseStatistic::Max => "max".to_owned(),
            PromiseStatistic::Percentile(percentile) => format!("p{percentile}"),
            PromiseStatistic::Failed => "failed".to_owned(),
        };
        operation.chain(service).chain([statistic]).collect::<Vec<_>>().join(".")
    }

    /// Returns the value of the condition, ns or a share: infinite if operations began and none ended, `None` if
    /// none began.
    fn value(&self, document: &ResultDocument) -> Result<Option<f64>, String> {
        if self.metrics(document).is_empty() {
            let censored = &document.censored;
            let hangs = document.overall.operations == 0 && censored.in_flight + censored.not_started > 0;
            return Ok(hangs.then_some(f64::INFINITY));
        }
        match self.statistic {
            PromiseStatistic::Failed => Ok(Some(self.failed(document))),
            statistic => self.time(document, statistic).map(Some),
        }
    }

    fn margin(&self, document: &ResultDocument) -> Result<Option<f64>, String> {
        let margin = |value: f64| if value > 0.0 { (value / self.limit).ln() } else { -FAR };
        Ok(self.value(document)?.map(|value| margin(value).clamp(-FAR, FAR)))
    }

    fn metrics<'a>(&self, document: &'a ResultDocument) -> Vec<&'a MetricResult> {
        // The read and the update of a read-modify-write have metrics of their own.
        let is_counted = |name: &str| !is_beside(name) && name != Metric::READ_MODIFY_WRITE.name(&[]);
        let of = |metric: &&MetricResult| match &self.operation {
            Some(name) => *name == metric.name,
            None => is_counted(&metric.name),
        };
        document.metrics.iter().filter(of).collect()
    }

    fn failed(&self, document: &ResultDocument) -> f64 {
        let metrics = self.metrics(document);
        let (mut all, mut failed) = (0u64, 0u64);
        for metric in metrics {
            all = all.saturating_add(metric.count());
            failed = failed.saturating_add(metric.failed());
        }
        // Operations without an answer, and buffered writes that were not done, count as failed.
        let unanswered = if self.operation.is_none() { document.censored.in_flight } else { 0 };
        let not_done = document.buffered.as_ref().filter(|_| self.operation.is_none());
        let not_done = not_done.map_or(0, BufferedResult::not_done);
        ((failed + unanswered + not_done) as f64 / (all + unanswered).max(1) as f64).min(1.0)
    }

    fn time(&self, document: &ResultDocument, statistic: PromiseStatistic) -> Result<f64, String> {
        let mut sum = Histogram::new();
        for metric in self.metrics(document) {
            let Some(ok) = &metric.ok else { continue };
            let latency = if self.service { &ok.service } else { &ok.response };
            sum.merge(&latency.to_histogram().map_err(|error| error.to_string())?);
        }
        // The response time of an operation that did not end or start is at least its age.
        if !self.service && self.operation.is_none() {
            let censored = &document.censored;
            for age in [&censored.in_flight_age, &censored.not_started_age].into_iter().flatten() {
                sum.merge(&age.to_histogram().map_err(|error| error.to_string())?);
            }
        }
        if sum.is_empty() {
            return Ok(f64::INFINITY);
        }
        Ok(match statistic {
            PromiseStatistic::Mean => sum.mean(),
            PromiseStatistic::Max | PromiseStatistic::Failed => sum.max() as f64,
            PromiseStatistic::Percentile(percentile) => sum.percentile(percentile) as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_parsed() {
        let promise =
            Promise::parse("read.p99.9 <  10ms and update.service.mean<=2ms and failed < 0.1%").unwrap();
        assert_eq!(promise.to_string(), "read.p99.9 < 10ms and update.service.mean<=2ms and failed < 0.1%");
        let [read, update, failed] = &promise.conditions[..] else { panic!("{promise:?}") };
        assert_eq!(
            (read.operation.as_deref(), read.statistic),
            (Some("READ"), PromiseStatistic::Percentile(99.9))
        );
        assert_eq!((read.limit, read.service), (1e7, false));
        assert_eq!((update.service, update.statistic, update.limit), (true, PromiseStatistic::Mean, 2e6));
        assert_eq!((failed.statistic, failed.limit), (PromiseStatistic::Failed, 0.001));
        let quantities: Vec<String> = promise.conditions.iter().map(Condition::quantity).collect();
        assert_eq!(quantities, ["read.p99.9", "update.service.mean", "failed"]);
        let all = Promise::parse("p99 < 1s").unwrap();
        assert_eq!(all.conditions[0].operation, None);
        let all = Promise::parse("P99.9 < 1s AND service.p99.99<1s&&mean < 1s").unwrap();
        let read: Vec<_> = all.conditions.iter().map(|c| (&c.operation, c.service, c.statistic)).collect();
        let percentile = PromiseStatistic::Percentile;
        assert_eq!(
            read,
            [
                (&None, false, percentile(99.9)),
                (&None, true, percentile(99.99)),
                (&None, false, PromiseStatistic::Mean)
            ]
        );
        let modify = Promise::parse("read-modify-write.p95 < 1s").unwrap();
        assert_eq!(modify.conditions[0].operation.as_deref(), Some("READ-MODIFY-WRITE"));
    }

    #[test]
    fn invalid_promises_are_refused_with_the_reason() {
        for (text, part) in [
            ("", "is missing"),
            ("read.p99 < 10ms and", "is missing"),
            ("and failed < 1%", "is missing"),
            ("failed < 200%", "more than all"),
            ("read.p99 10ms", "has no '<'"),
            ("read.p99 < 10", "10 has no unit; give one, as in read.p99<10ms"),
            ("read.p101 < 10ms", "no statistic"),
            ("read.best < 10ms", "no statistic"),
            ("read.p99 < 0ms", "above zero"),
            ("a.b.p99 < 1ms", "no operation"),
            (".p99 < 1ms", "no operation"),
            ("failed < x", "no share"),
            ("read.p99 < 10parsec", "unknown unit"),
        ] {
            let problem = Promise::parse(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}
