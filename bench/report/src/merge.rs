//! Merges results: of clients that ran at the same time, or of repeated runs.
//!
//! Histograms are merged and percentiles computed from them, never averaged. Summaries of intervals
//! cannot be merged, so that the series is left out (the HDR logs of the parts have it).

mod lag;

use crate::{
    notes::{lines, stored},
    sums::{sum, sums},
};
use serval_measure::histogram::{DecodeError, Histogram};
use serval_result::{
    document::{
        BufferedResult, Censored, Environment, Latency, MessageCount, MetricResult, Overall, PacingResult,
        PropertyFact, ResultDocument, RunFacts, SCHEMA_VERSION, TimesResult,
    },
    load::{ClientLoad, ProcessLoad, Usage},
    note::{MergedNote, Note},
    word::Word,
};
use std::collections::BTreeMap;

/// How the parts relate in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Together {
    /// Clients that ran at the same time: throughputs are added.
    AtOnce,
    /// One after the other: durations are added.
    InTurn,
}

/// A result and its name in warnings.
#[derive(Debug, Clone, Copy)]
pub struct MergeInput<'a> {
    /// For example its folder.
    pub name: &'a str,
    /// The result.
    pub document: &'a ResultDocument,
}

impl MergeInput<'_> {
    /// A note of the part, for the merged result.
    fn noted(&self, note: Note) -> MergedNote {
        MergedNote::OfPart { part: self.name.to_owned(), note: Box::new(note) }
    }
}

/// Results that cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// There are no parts.
    #[error("there is nothing to merge")]
    Nothing,
    /// A part has another schema version.
    #[error("{name} has schema version {found}, and {SCHEMA_VERSION} is wanted")]
    Version {
        /// The part.
        name: String,
        /// Its version.
        found: u32,
    },
    /// Two parts are the same result.
    #[error("{first} and {second} are the same result; counting it twice would be wrong")]
    Same {
        /// A part.
        first: String,
        /// The other part.
        second: String,
    },
    /// Parts have different stores, workloads or phases.
    #[error("{first} and {second} differ in {what}: `{left}` and `{right}`")]
    Different {
        /// A part.
        first: String,
        /// Another part.
        second: String,
        /// What differs: the store, the workload or the phase.
        what: &'static str,
        /// The value of the first.
        left: String,
        /// The value of the second.
        right: String,
    },
    /// A histogram cannot be decoded.
    #[error("{name}: {error}")]
    Histogram {
        /// The part.
        name: String,
        /// Why not.
        error: DecodeError,
    },
}

/// Merges results. Refuses results of different stores, workloads or phases, and duplicates; with
/// `force` it notes them instead.
pub fn merge(
    parts: &[MergeInput<'_>],
    together: Together,
    force: bool,
) -> Result<ResultDocument, MergeError> {
    let Some(first) = parts.first() else { return Err(MergeError::Nothing) };
    let mut notes = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        if part.document.schema_version != SCHEMA_VERSION {
            return Err(MergeError::Version {
                name: part.name.to_owned(),
                found: part.document.schema_version,
            });
        }
        let twice = parts[..index]
            .iter()
            .find(|other| other.document == part.document)
            .map(|other| MergeError::Same { first: other.name.to_owned(), second: part.name.to_owned() });
        for problem in twice.into_iter().chain(alike(first, part).err()) {
            if !force {
                return Err(problem);
            }
            notes.push(MergedNote::Regardless { problem: problem.to_string() });
        }
    }
    if let [only] = parts {
        return Ok(only.document.clone());
    }
    if parts.iter().any(|part| !part.document.series.is_empty()) {
        notes.push(MergedNote::WithoutSeries);
    }
    if together == Together::AtOnce {
        notes.extend(not_at_once(parts));
    }
    for part in parts {
        notes.extend(stored(part.document).into_iter().map(|note| part.noted(note)));
    }
    let run = run(parts, together);
    let environment = environment(parts, &mut notes);
    let pacing = pacing(parts, together, &mut notes)?;
    let lag = lag::merged(parts, together, &mut notes)?;
    let notes: Vec<Note> = notes.into_iter().map(Note::Merged).collect();
    Ok(ResultDocument {
        schema_version: SCHEMA_VERSION,
        run,
        environment,
        overall: overall(parts, together),
        metrics: metrics(parts)?,
        censored: censored(parts)?,
        buffered: buffered(parts),
        pacing,
        steadiness: None,
        group: None,
        lag,
        stationarity: None,
        client: client(parts, together),
        processes: processes(parts, together),
        series: Vec::new(),
        warnings: lines(&notes),
        notes,
    })
}

/// A note if no instant exists at which all parts measured, by their clocks.
fn not_at_once(parts: &[MergeInput<'_>]) -> Option<MergedNote> {
    let measured = |part: &MergeInput<'_>| {
        let overall = &part.document.overall;
        let begun = part.document.run.started.parse::<jiff::Timestamp>().ok()?.as_duration().as_secs_f64();
        let start = begun + overall.warm_up_s;
        let end = start + overall.duration_s;
        end.is_finite().then(|| (part.name.to_owned(), start, end))
    };
    let measured: Vec<(String, f64, f64)> = parts.iter().filter_map(measured).collect();
    let (first, _, end) = measured.iter().min_by(|a, b| a.2.total_cmp(&b.2))?;
    let (last, start, _) = measured.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let apart_s = start - end;
    (apart_s > 0.0).then(|| MergedNote::NotAtOnce { parts: [first.clone(), last.clone()], apart_s })
}

fn alike(first: &MergeInput<'_>, second: &MergeInput<'_>) -> Result<(), MergeError> {
    let of = |part: &MergeInput<'_>| {
        let run = &part.document.run;
        [
            ("the store", run.store.clone()),
            ("the workload", run.workload.clone()),
            ("the phase", run.phase.clone()),
        ]
    };
    for ((what, left), (_, right)) in of(first).into_iter().zip(of(second)) {
        if left != right {
            let (first, second) = (first.name.to_owned(), second.name.to_owned());
            return Err(MergeError::Different { first, second, what, left, right });
        }
    }
    Ok(())
}

/// Joins texts, each once.
fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut different: Vec<&str> = Vec::new();
    for text in texts {
        if !different.contains(&text) {
            different.push(text);
        }
    }
    different.join("; ")
}

/// Merges maps; `join` merges the values of a key.
fn joined_maps<V>(maps: &[&BTreeMap<String, V>], join: impl Fn(&[&V]) -> V) -> BTreeMap<String, V> {
    let mut values: BTreeMap<&String, Vec<&V>> = BTreeMap::new();
    for (name, value) in maps.iter().copied().flatten() {
        values.entry(name).or_default().push(value);
    }
    values.into_iter().map(|(name, values)| (name.clone(), join(&values))).collect()
}

fn run(parts: &[MergeInput<'_>], together: Together) -> RunFacts {
    let runs: Vec<&RunFacts> = parts.iter().map(|part| &part.document.run).collect();
    let text = |field: fn(&RunFacts) -> &str| joined(runs.iter().map(|run| field(run)));
    let clients = runs.iter().map(|run| run.clients);
    let properties: Vec<_> = runs.iter().map(|run| &run.properties).collect();
    let facts: Vec<_> = runs.iter().map(|run| &run.store_facts).collect();
    RunFacts {
        serval_version: text(|run| &run.serval_version),
        label: text(|run| &run.label),
        phase: text(|run| &run.phase),
        // The first stands for all; the properties have the differences.
        command_line: runs[0].command_line.clone(),
        started: runs.iter().map(|run| run.started.as_str()).min().unwrap_or_default().to_owned(),
        store: text(|run| &run.store),
        store_facts: joined_maps(&facts, |values| joined(values.iter().map(|v| v.as_str()))),
        workload: text(|run| &run.workload),
        seed: runs[0].seed,
        clients: match together {
            Together::AtOnce => sum(clients),
            Together::InTurn => clients.max().unwrap_or(0),
        },
        execution: text(|run| &run.execution),
        properties: joined_maps(&properties, |values| PropertyFact {
            value: joined(values.iter().map(|v| v.value.as_str())),
            origin: joined(values.iter().map(|v| v.origin.as_str())),
        }),
    }
}

/// Merges environments: texts that differ are joined, numbers that differ are 0, and a note lists
/// the machines.
fn environment(parts: &[MergeInput<'_>], notes: &mut Vec<MergedNote>) -> Environment {
    let all: Vec<&Environment> = parts.iter().map(|part| &part.document.environment).collect();
    let text = |field: fn(&Environment) -> &str| joined(all.iter().map(|e| field(e)));
    let equal = |field: fn(&Environment) -> u64| {
        let first = field(all[0]);
        if all.iter().all(|e| field(e) == first) { first } else { 0 }
    };
    let merged = Environment {
        cpu: text(|e| &e.cpu),
        cores: equal(|e| e.cores),
        memory_bytes: equal(|e| e.memory_bytes),
        kernel: text(|e| &e.kernel),
        host: text(|e| &e.host),
        build: text(|e| &e.build),
        debug: all.iter().any(|e| e.debug),
    };
    if all.iter().any(|e| **e != merged) {
        let of = |part: &MergeInput<'_>| {
            let Environment { cpu, cores, memory_bytes, kernel, host, build, .. } =
                &part.document.environment;
            format!("{}: {host}, {cpu}, {cores} cores, {memory_bytes} bytes, {kernel}, {build}", part.name)
        };
        notes.push(MergedNote::MachinesDiffer { machines: parts.iter().map(of).collect() });
    }
    merged
}

fn overall(parts: &[MergeInput<'_>], together: Together) -> Overall {
    let all: Vec<&Overall> = parts.iter().map(|part| &part.document.overall).collect();
    let longest = |field: fn(&Overall) -> f64| all.iter().map(|o| field(o)).fold(0.0, f64::max);
    let total = |field: fn(&Overall) -> f64| all.iter().map(|o| field(o)).sum::<f64>();
    let operations = sum(all.iter().map(|o| o.operations));
    let (duration_s, throughput) = match together {
        Together::AtOnce => (longest(|o| o.duration_s), total(|o| o.throughput)),
        Together::InTurn => {
            let duration = total(|o| o.duration_s);
            (duration, if duration > 0.0 { operations as f64 / duration } else { 0.0 })
        }
    };
    let ended_by = all.iter().filter_map(|o| o.ended_by.known()).max();
    Overall {
        duration_s,
        warm_up_s: longest(|o| o.warm_up_s),
        operations,
        failed: sum(all.iter().map(|o| o.failed)),
        throughput,
        ended_by: ended_by.map_or_else(|| all[0].ended_by.clone(), Word::from),
        client_cpu_s: total(|o| o.client_cpu_s),
    }
}

/// Adds up usage; a value is unknown if any of them is. Memory is added for clients that ran at the
/// same time; for runs in turn it is the maximum.
fn usage(all: &[&Usage], together: Together) -> Usage {
    fn known<N>(all: &[&Usage], field: fn(&Usage) -> Option<N>) -> Option<Vec<N>> {
        all.iter().map(|usage| field(usage)).collect()
    }
    let all_of = |field| known(all, field).map(sum);
    let memory = known(all, |usage| usage.memory_bytes);
    Usage {
        cpu_s: all.iter().map(|usage| usage.cpu_s).sum(),
        run_queue_s: known(all, |usage| usage.run_queue_s).map(|seconds| seconds.iter().sum()),
        memory_bytes: match together {
            Together::AtOnce => memory.map(sum),
            Together::InTurn => memory.and_then(|bytes| bytes.into_iter().max()),
        },
        sent_bytes: all_of(|usage| usage.sent_bytes),
        received_bytes: all_of(|usage| usage.received_bytes),
    }
}

/// Adds up the load of clients; shares are those of the busiest.
fn client(parts: &[MergeInput<'_>], together: Together) -> Option<ClientLoad> {
    let all: Vec<&ClientLoad> =
        parts.iter().map(|part| part.document.client.as_ref()).collect::<Option<_>>()?;
    let largest =
        |field: fn(&ClientLoad) -> Option<f64>| all.iter().filter_map(|load| field(load)).reduce(f64::max);
    let threads = all.iter().map(|load| load.threads);
    let reasons = parts.iter().zip(&all).flat_map(|(part, load)| {
        load.bound_by_client.iter().map(|reason| format!("{}: {reason}", part.name))
    });
    Some(ClientLoad {
        usage: usage(&all.iter().map(|load| &load.usage).collect::<Vec<_>>(), together),
        threads: match together {
            Together::AtOnce => sum(threads),
            Together::InTurn => threads.max().unwrap_or(0),
        },
        busiest_thread: largest(|load| load.busiest_thread),
        outside_store: largest(|load| load.outside_store),
        machine_busy: largest(|load| load.machine_busy),
        bound_by_client: reasons.collect(),
    })
}

/// Merges watched processes. Processes with the same name and process ids that clients on one machine
/// watched at the same time are the same: their usage counts once, by the largest account.
fn processes(parts: &[MergeInput<'_>], together: Together) -> Vec<ProcessLoad> {
    let mut merged: Vec<(&str, ProcessLoad)> = Vec::new();
    for part in parts {
        let host = part.document.environment.host.as_str();
        for load in &part.document.processes {
            let same = merged.iter_mut().find(|(at, other)| {
                other.name == load.name
                    && (together == Together::InTurn || (*at == host && other.pids == load.pids))
            });
            let Some((_, other)) = same else {
                merged.push((host, load.clone()));
                continue;
            };
            other.usage = match together {
                Together::InTurn => usage(&[&other.usage, &load.usage], together),
                Together::AtOnce if load.usage.cpu_s > other.usage.cpu_s => load.usage.clone(),
                Together::AtOnce => continue,
            };
            other.pids.extend(&load.pids);
            other.pids.sort_unstable();
            other.pids.dedup();
        }
    }
    merged.into_iter().map(|(_, load)| load).collect()
}

/// Merges distributions; the result has the percentiles of all of them.
fn latency<'a>(all: impl Iterator<Item = (&'a str, &'a Latency)>) -> Result<Option<Latency>, MergeError> {
    let (mut sum, mut percentiles, mut any) = (Histogram::new(), Vec::new(), false);
    for (name, latency) in all {
        let histogram = latency.to_histogram();
        let histogram = histogram.map_err(|error| MergeError::Histogram { name: name.to_owned(), error })?;
        sum.merge(&histogram);
        percentiles.extend(latency.percentiles.iter().map(|p| p.percentile));
        any = true;
    }
    Ok(any.then(|| Latency::of(&sum, &percentiles)))
}

fn times(all: &[(&str, &TimesResult)]) -> Result<Option<TimesResult>, MergeError> {
    let response = latency(all.iter().map(|(name, times)| (*name, &times.response)))?;
    let service = latency(all.iter().map(|(name, times)| (*name, &times.service)))?;
    Ok(response.zip(service).map(|(response, service)| TimesResult { response, service }))
}

fn metrics(parts: &[MergeInput<'_>]) -> Result<Vec<MetricResult>, MergeError> {
    // Keep the order of the parts.
    let mut names: Vec<&str> = Vec::new();
    for metric in parts.iter().flat_map(|part| &part.document.metrics) {
        if !names.contains(&metric.name.as_str()) {
            names.push(&metric.name);
        }
    }
    names.into_iter().map(|name| metric(parts, name)).collect()
}

fn metric(parts: &[MergeInput<'_>], name: &str) -> Result<MetricResult, MergeError> {
    let all: Vec<(&str, &MetricResult)> = parts
        .iter()
        .flat_map(|part| part.document.metrics.iter().map(|metric| (part.name, metric)))
        .filter(|(_, metric)| metric.name == name)
        .collect();
    let mut failed: BTreeMap<String, Vec<(&str, &TimesResult)>> = BTreeMap::new();
    for (part, metric) in &all {
        for (status, times) in &metric.failed {
            failed.entry(status.clone()).or_default().push((part, times));
        }
    }
    let messages = all.iter().flat_map(|(_, metric)| metric.messages.clone());
    let messages = sums(messages.map(|m| ((m.status, m.message), m.count))).into_iter();
    let ok: Vec<_> = all.iter().filter_map(|(part, metric)| Some((*part, metric.ok.as_ref()?))).collect();
    let mut failed_times = BTreeMap::new();
    for (status, all) in failed {
        failed_times.extend(times(&all)?.map(|times| (status, times)));
    }
    Ok(MetricResult {
        name: name.to_owned(),
        statuses: sums(all.iter().flat_map(|(_, metric)| metric.statuses.clone())),
        ok: times(&ok)?,
        failed: failed_times,
        messages: messages
            .map(|((status, message), count)| MessageCount { status, message, count })
            .collect(),
    })
}

fn buffered(parts: &[MergeInput<'_>]) -> Option<BufferedResult> {
    let all: Vec<_> = parts.iter().filter_map(|part| part.document.buffered.as_ref()).collect();
    let sum = |field: fn(&BufferedResult) -> u64| sum(all.iter().map(|buffered| field(buffered)));
    let whole = BufferedResult { sent: sum(|b| b.sent), lost: sum(|b| b.lost), unsent: sum(|b| b.unsent) };
    (!all.is_empty()).then_some(whole)
}

fn censored(parts: &[MergeInput<'_>]) -> Result<Censored, MergeError> {
    let all = || parts.iter().map(|part| (part.name, &part.document.censored));
    Ok(Censored {
        in_flight: sum(all().map(|(_, c)| c.in_flight)),
        not_started: sum(all().map(|(_, c)| c.not_started)),
        in_flight_age: latency(all().filter_map(|(name, c)| Some((name, c.in_flight_age.as_ref()?))))?,
        not_started_age: latency(all().filter_map(|(name, c)| Some((name, c.not_started_age.as_ref()?))))?,
    })
}

fn pacing(
    parts: &[MergeInput<'_>],
    together: Together,
    notes: &mut Vec<MergedNote>,
) -> Result<Option<PacingResult>, MergeError> {
    let paced: Vec<(&str, f64, &PacingResult)> = parts
        .iter()
        .filter_map(|p| Some((p.name, p.document.overall.duration_s, p.document.pacing.as_ref()?)))
        .collect();
    if paced.is_empty() {
        return Ok(None);
    }
    for part in parts.iter().filter(|part| part.document.pacing.is_none()) {
        notes.push(MergedNote::NotPaced { part: part.name.to_owned() });
    }
    let text = |field: fn(&PacingResult) -> &str| joined(paced.iter().map(|(.., pacing)| field(pacing)));
    let duration: f64 = paced.iter().map(|(_, duration, _)| duration).sum();
    let due: f64 = paced.iter().map(|(_, duration, pacing)| pacing.target * duration).sum();
    let lateness = latency(paced.iter().map(|(name, _, pacing)| (*name, &pacing.lateness)))?;
    Ok(lateness.map(|lateness| PacingResult {
        schedule: text(|pacing| &pacing.schedule),
        target: match together {
            // Clients in a closed loop add nothing to the target.
            Together::AtOnce => paced.iter().map(|(.., pacing)| pacing.target).sum(),
            Together::InTurn if duration > 0.0 => due / duration,
            Together::InTurn => 0.0,
        },
        arrivals: text(|pacing| &pacing.arrivals),
        slack_ns: paced.iter().map(|(.., pacing)| pacing.slack_ns).max().unwrap_or(0),
        lateness,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use proptest::prelude::*;

    fn parts<'a>(documents: &'a [ResultDocument]) -> Vec<MergeInput<'a>> {
        let names = ["a", "b", "c"];
        names.iter().zip(documents).map(|(name, document)| MergeInput { name, document }).collect()
    }

    #[test]
    fn different_results_are_refused_or_forced() {
        let mut documents = [sample::paced(), sample::paced()];
        documents[1].run.store = "sqlite".to_owned();
        let error = merge(&parts(&documents), Together::AtOnce, false).unwrap_err().to_string();
        assert_eq!(error, "a and b differ in the store: `redis` and `sqlite`");
        let merged = merge(&parts(&documents), Together::AtOnce, true).unwrap();
        assert!(merged.warnings[0].contains("differ in the store"));
        assert_eq!(merged.run.store, "redis; sqlite");
        documents[1].schema_version = 9;
        assert!(merge(&parts(&documents), Together::AtOnce, true).is_err());
        assert!(matches!(merge(&[], Together::AtOnce, false), Err(MergeError::Nothing)));
    }

    #[test]
    fn the_same_result_twice_is_refused_or_forced() {
        let documents = [sample::paced(), sample::unpaced(), sample::paced()];
        let error = merge(&parts(&documents), Together::AtOnce, false).unwrap_err().to_string();
        assert_eq!(error, "a and c are the same result; counting it twice would be wrong");
        let merged = merge(&parts(&documents), Together::AtOnce, true).unwrap();
        assert!(merged.warnings[0].contains("are the same result"), "{:?}", merged.warnings);
    }

    #[test]
    fn merging_a_single_result_returns_it() {
        let documents = [sample::paced()];
        assert_eq!(merge(&parts(&documents), Together::AtOnce, false).unwrap(), documents[0]);
    }

    #[test]
    fn throughput_adds_up_and_warnings_name_their_part() {
        let mut documents = [sample::paced(), sample::unpaced()];
        documents[1].environment.host = "client-2".to_owned();
        let [a, b] = &documents;
        let at_once = merge(&parts(&documents), Together::AtOnce, false).unwrap();
        assert_eq!(at_once.overall.throughput, a.overall.throughput + b.overall.throughput);
        assert_eq!((at_once.overall.duration_s, at_once.run.clients), (110.2, 32));
        assert_eq!(at_once.environment.host, "client-1; client-2");
        assert_eq!(at_once.environment.cores, 8);
        assert!(at_once.series.is_empty());
        let has = |text: &str| at_once.warnings.iter().any(|w| w.starts_with(text));
        assert!(has("The series is left out") && has("a: The store runs") && has("b: closed loop"));
        assert!(has("The clients' machines differ. a: client-1, AMD"));
        let in_turn = merge(&parts(&documents), Together::InTurn, false).unwrap();
        assert_eq!((in_turn.overall.duration_s, in_turn.run.clients), (220.4, 16));
        let mean = (a.overall.operations + b.overall.operations) as f64 / 220.4;
        assert!((in_turn.overall.throughput - mean).abs() < 1e-9);
    }

    /// Throughputs of runs that did not overlap must not be added.
    #[test]
    fn runs_that_did_not_overlap_are_noted() {
        let mut documents = [sample::paced(), sample::unpaced()];
        let apart = |documents: &[ResultDocument; 2], together| {
            let notes = merge(&parts(documents), together, false).unwrap().notes;
            let of = |note| match note {
                Note::Merged(MergedNote::NotAtOnce { parts, apart_s }) => Some((parts, apart_s)),
                _ => None,
            };
            notes.into_iter().find_map(of)
        };
        // 10 s of warm-up and 110.2 s of measured time from 06:07:08.009 on.
        documents[1].run.started = "2026-04-05T06:08:58.208Z".to_owned();
        assert_eq!(apart(&documents, Together::AtOnce), None);
        documents[1].run.started = "2026-04-05T06:08:59.209Z".to_owned();
        let (names, apart_s) = apart(&documents, Together::AtOnce).unwrap();
        assert_eq!(names, ["a", "b"]);
        assert!((apart_s - 1.0).abs() < 1e-6, "{apart_s}");
        assert_eq!(apart(&documents, Together::InTurn), None);
        // The order of the parts does not matter.
        documents.swap(0, 1);
        assert_eq!(apart(&documents, Together::AtOnce).unwrap().0, ["b", "a"]);
        // A start that cannot be parsed is ignored.
        documents[1].run.started = "once upon a time".to_owned();
        assert_eq!(apart(&documents, Together::AtOnce), None);
    }

    #[test]
    fn costs_of_clients_at_once_add_up_and_a_server_is_counted_once() {
        let mut documents = [sample::costly(), sample::costly()];
        documents[1].run.seed = 43;
        let load = documents[1].client.as_mut().unwrap();
        (load.busiest_thread, load.usage.received_bytes) = (Some(0.2), None);
        load.bound_by_client.clear();
        let costs = documents[0].clone();
        let (client, server) = (costs.client.unwrap(), &costs.processes[0]);
        let at_once = merge(&parts(&documents), Together::AtOnce, false).unwrap();
        let merged = at_once.client.clone().unwrap();
        assert_eq!(merged.usage.cpu_s, 2.0 * client.usage.cpu_s);
        assert_eq!(merged.usage.memory_bytes, client.usage.memory_bytes.map(|bytes| 2 * bytes));
        assert_eq!(
            (merged.usage.sent_bytes, merged.usage.received_bytes),
            (client.usage.sent_bytes.map(|b| 2 * b), None)
        );
        assert_eq!((merged.threads, merged.busiest_thread), (4, client.busiest_thread));
        assert_eq!(merged.bound_by_client, [format!("a: {}", client.bound_by_client[0])]);
        assert_eq!(at_once.processes[0], *server);
        let in_turn = merge(&parts(&documents), Together::InTurn, false).unwrap();
        assert_eq!(in_turn.client.unwrap().usage.memory_bytes, client.usage.memory_bytes);
        assert_eq!(in_turn.processes[0].usage.cpu_s, 2.0 * server.usage.cpu_s);
        documents[1].processes[0].pids = vec![9];
        let other = merge(&parts(&documents), Together::AtOnce, false).unwrap();
        assert_eq!(other.processes.len(), costs.processes.len() + 1);
        documents[1].client = None;
        assert_eq!(merge(&parts(&documents), Together::AtOnce, false).unwrap().client, None);
    }

    #[test]
    fn an_invalid_histogram_is_named() {
        let mut documents = [sample::paced(), sample::paced()];
        documents[1].metrics[0].ok.as_mut().unwrap().service.histogram = "?".to_owned();
        let error = merge(&parts(&documents), Together::AtOnce, false).unwrap_err();
        assert!(error.to_string().starts_with("b: not an HdrHistogram"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_parts_are_the_whole(a in sample::operations(), b in sample::operations(), c in sample::operations()) {
            let documents = [sample::of(&a, 2.0), sample::of(&b, 3.0), sample::of(&c, 1.0)];
            let whole = sample::of(&[a, b, c].concat(), 3.0);
            let merged = merge(&parts(&documents), Together::AtOnce, false).unwrap();
            prop_assert_eq!(merged.overall.operations, whole.overall.operations);
            prop_assert_eq!(merged.overall.failed, whole.overall.failed);
            prop_assert_eq!(merged.metrics.len(), whole.metrics.len());
            for (merged, whole) in merged.metrics.iter().zip(&whole.metrics) {
                prop_assert_eq!(&merged.statuses, &whole.statuses);
                prop_assert_eq!(&merged.messages, &whole.messages);
                let pairs = |m: &MetricResult| {
                    let all = m.ok.iter().chain(m.failed.values());
                    all.flat_map(|t| [t.response.clone(), t.service.clone()]).collect::<Vec<_>>()
                };
                for (merged, whole) in pairs(merged).iter().zip(pairs(whole)) {
                    prop_assert_eq!(merged.count, whole.count);
                    prop_assert_eq!(&merged.percentiles, &whole.percentiles);
                    prop_assert_eq!((merged.min_ns, merged.max_ns), (whole.min_ns, whole.max_ns));
                    prop_assert!((merged.mean_ns - whole.mean_ns).abs() < 1.0);
                }
            }
            let lateness = |d: &ResultDocument| d.pacing.clone().unwrap().lateness.percentiles;
            prop_assert_eq!(lateness(&merged), lateness(&whole));
        }
    }
}
