//! The set-up of runs, and how those of two sides differ.

use crate::document::SetupDifference;
use serval_report::{text::printable, units::rate};
use serval_result::document::ResultDocument;
use std::collections::{BTreeMap, BTreeSet};

/// Longest value, in characters.
const VALUE_MAX: usize = 60;
/// Most different values of a side that a difference lists.
const VALUES_MAX: usize = 3;
/// Most differing properties and facts of stores that are listed.
const DETAILS_MAX: usize = 8;

/// Properties that differ in every run, or that are shown under another name.
const LEFT_OUT: [&str; 6] = ["seed", "label", "threadcount", "target", "workload", "expectedoperations"];

const PROPERTY: &str = "property ";
const FACT: &str = "store's ";

/// A schedule, with a fractional rate rounded: one that is a share of a saturation has many digits.
fn offered(schedule: &str) -> String {
    let number = schedule.strip_suffix("/s").and_then(|number| number.parse::<f64>().ok());
    match number.filter(|number| number.is_finite() && number.fract() != 0.0) {
        Some(number) => format!("{}/s", rate(number)),
        None => schedule.to_owned(),
    }
}

/// The set-up of a run: values by name.
pub(crate) type Setup = BTreeMap<String, String>;

/// Returns the set-up of a run.
pub(crate) fn setup(document: &ResultDocument) -> Setup {
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

/// The order in which differences are listed; properties and facts of stores follow.
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

fn values<'a>(runs: &[&'a Setup], name: &str) -> BTreeSet<&'a str> {
    runs.iter().map(|run| run.get(name).map_or("", String::as_str)).collect()
}

fn words(values: &BTreeSet<&str>) -> String {
    let shown: Vec<&str> =
        values.iter().take(VALUES_MAX).map(|value| if value.is_empty() { "–" } else { value }).collect();
    let more = if values.len() > VALUES_MAX { "; …" } else { "" };
    format!("{}{more}", shown.join("; "))
}

/// Returns the names whose values differ between A and B; properties and facts of stores only if all runs of a side agree.
pub(crate) fn differences(a: &[&Setup], b: &[&Setup]) -> Vec<SetupDifference> {
    let names: BTreeSet<&str> = a.iter().chain(b).flat_map(|run| run.keys().map(String::as_str)).collect();
    let rest = names.iter().copied().filter(|name| !ORDER.contains(name));
    let mut differences = Vec::new();
    let mut details = 0;
    for name in ORDER.into_iter().chain(rest) {
        let (of_a, of_b) = (values(a, name), values(b, name));
        let is_detail = !ORDER.contains(&name);
        // A path that differs from run to run does not tell the sides apart.
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

/// Returns a warning if runs of one side that should repeat one another have different set-ups.
pub(crate) fn within(side: &str, runs: &[&Setup]) -> Option<String> {
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
