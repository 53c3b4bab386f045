//! What runs were: in what the set-up of two sides differs.

use crate::{document::SetupDifference, run::Run};
use serval_report::{text::printable, units::rate};
use serval_result::document::ResultDocument;
use std::collections::{BTreeMap, BTreeSet};

/// Characters of a value that are kept.
const VALUE_MAX: usize = 60;
/// Different values of a side that are named.
const VALUES_MAX: usize = 3;
/// Properties, and facts of stores, that are named.
const DETAILS_MAX: usize = 8;

/// Properties that differ from run to run by their nature, or are told under another name.
const LEFT_OUT: [&str; 6] = ["seed", "label", "threadcount", "target", "workload", "expectedoperations"];

const PROPERTY: &str = "property ";
const FACT: &str = "store's ";

/// A schedule as it is told: a rate that is a share of a saturation has more digits than anybody reads.
fn offered(schedule: &str) -> String {
    let number = schedule.strip_suffix("/s").and_then(|number| number.parse::<f64>().ok());
    match number.filter(|number| number.is_finite() && number.fract() != 0.0) {
        Some(number) => format!("{}/s", rate(number)),
        None => schedule.to_owned(),
    }
}

/// What a run was, by name. Names sort as they are to be read: what is most telling has no
/// prefix.
pub(crate) fn facts(document: &ResultDocument) -> BTreeMap<String, String> {
    let (run, environment) = (&document.run, &document.environment);
    let load = document.pacing.as_ref().map(|pacing| offered(&pacing.schedule));
    let mut facts = BTreeMap::from([
        ("store".to_owned(), run.store.clone()),
        ("workload".to_owned(), run.workload.clone()),
        ("phase".to_owned(), run.phase.clone()),
        ("offered load".to_owned(), load.unwrap_or_else(|| "as fast as the store answers".to_owned())),
        ("clients".to_owned(), run.clients.to_string()),
        ("execution".to_owned(), run.execution.clone()),
        ("Serval".to_owned(), run.serval_version.clone()),
        ("processor".to_owned(), format!("{}, {} cores", environment.cpu, environment.cores)),
        ("kernel".to_owned(), environment.kernel.clone()),
        ("host".to_owned(), environment.host.clone()),
        ("build".to_owned(), environment.build.clone()),
    ]);
    for (name, value) in &run.store_facts {
        facts.insert(format!("{FACT}{name}"), value.clone());
    }
    for (name, fact) in run.properties.iter().filter(|(name, _)| !LEFT_OUT.contains(&name.as_str())) {
        facts.insert(format!("{PROPERTY}{name}"), fact.value.clone());
    }
    facts.values_mut().for_each(|value| *value = printable(value, VALUE_MAX));
    facts
}

/// The order in which differences are told.
const ORDER: [&str; 11] = [
    "store",
    "workload",
    "phase",
    "offered load",
    "clients",
    "execution",
    "Serval",
    "processor",
    "kernel",
    "host",
    "build",
];

fn values<'a>(runs: &[&'a Run], name: &str) -> BTreeSet<&'a str> {
    runs.iter().map(|run| run.setup.get(name).map_or("", String::as_str)).collect()
}

fn words(values: &BTreeSet<&str>) -> String {
    let shown: Vec<&str> =
        values.iter().take(VALUES_MAX).map(|value| if value.is_empty() { "–" } else { value }).collect();
    let more = if values.len() > VALUES_MAX { "; …" } else { "" };
    format!("{}{more}", shown.join("; "))
}

/// In what the sides differ: names whose values in A and B are not the same.
/// Properties and facts of stores only where they are the same throughout each side.
pub(crate) fn differences(a: &[&Run], b: &[&Run]) -> Vec<SetupDifference> {
    let names: BTreeSet<&str> =
        a.iter().chain(b).flat_map(|run| run.setup.keys().map(String::as_str)).collect();
    let rest = names.iter().copied().filter(|name| !ORDER.contains(name));
    let mut differences = Vec::new();
    let mut details = 0;
    for name in ORDER.into_iter().chain(rest) {
        let (of_a, of_b) = (values(a, name), values(b, name));
        let is_detail = !ORDER.contains(&name);
        // A path that is another for each run says nothing of the sides.
        if of_a == of_b || (is_detail && (of_a.len() > 1 || of_b.len() > 1)) {
            continue;
        }
        if is_detail {
            details += 1;
            if details > DETAILS_MAX {
                continue;
            }
        }
        differences.push(SetupDifference {
            what: printable(name, VALUE_MAX),
            a: words(&of_a),
            b: words(&of_b),
        });
    }
    if details > DETAILS_MAX {
        let more = format!("and {} more", details - DETAILS_MAX);
        differences.push(SetupDifference { what: more, a: "…".to_owned(), b: "…".to_owned() });
    }
    differences
}

/// In what runs of one side differ that should be alike.
pub(crate) fn within(side: &str, runs: &[&Run]) -> Option<String> {
    let differing: Vec<String> = ["store", "workload", "phase", "offered load", "clients"]
        .into_iter()
        .map(|name| (name, values(runs, name)))
        .filter(|(_, values)| values.len() > 1)
        .map(|(name, values)| format!("{name} ({})", words(&values)))
        .collect();
    (!differing.is_empty()).then(|| {
        format!(
            "The runs of {side} are not repeats of one another: they differ in {}. What they differ by counts as noise.",
            differing.join(", ")
        )
    })
}
