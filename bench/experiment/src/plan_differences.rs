//! Differences between two plans, for the message that refuses to resume an experiment with another plan.

use serval_report::text::printable;
use std::{collections::BTreeMap, fmt};
use toml::de::{DeTable, DeValue};

/// Differences that a message lists.
const SHOWN_MAX: usize = 3;
/// Characters of a value that a message shows.
const VALUE_MAX: usize = 60;

/// Settings of two plans that differ, with both values; empty if the plans cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanDifferences(Vec<PlanDifference>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct PlanDifference {
    /// The setting, as an experiment file names it: `run.seed`.
    name: String,
    /// Value in the stored plan.
    stored: Option<String>,
    /// Value in the given plan.
    given: Option<String>,
}

impl PlanDifferences {
    /// Compares two plans in TOML.
    pub(crate) fn of(stored: &str, given: &str) -> PlanDifferences {
        let (Some(stored), Some(given)) = (settings(stored), settings(given)) else {
            return PlanDifferences::default();
        };
        let mut names: Vec<&String> = stored.keys().chain(given.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let differing = names.into_iter().filter(|name| stored.get(*name) != given.get(*name));
        let value =
            |of: &BTreeMap<String, &str>, name: &str| of.get(name).map(|text| printable(text, VALUE_MAX));
        let difference = |name: &String| PlanDifference {
            name: name.clone(),
            stored: value(&stored, name),
            given: value(&given, name),
        };
        PlanDifferences(differing.map(difference).collect())
    }
}

impl fmt::Display for PlanDifferences {
    /// `: run.seed: stored 7, given 8; ...`; nothing if there are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        for (nth, PlanDifference { name, stored, given }) in self.0.iter().take(SHOWN_MAX).enumerate() {
            let lead = if nth == 0 { ": " } else { "; " };
            write!(f, "{lead}{name}: stored {}, given {}", words(stored), words(given))?;
        }
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// The settings of a plan by name, with their text; `None` if it is not TOML.
fn settings(plan: &str) -> Option<BTreeMap<String, &str>> {
    let table = DeTable::parse(plan).ok()?;
    let mut all = BTreeMap::new();
    flatten("", table.get_ref(), plan, &mut all);
    Some(all)
}

fn flatten<'p>(above: &str, table: &DeTable<'_>, plan: &'p str, all: &mut BTreeMap<String, &'p str>) {
    for (key, value) in table {
        let name = format!("{above}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(table) => flatten(&format!("{name}."), table, plan, all),
            DeValue::Array(entries) if entries.iter().any(|entry| entry.get_ref().is_table()) => {
                for (nth, entry) in entries.iter().enumerate() {
                    let Some(table) = entry.get_ref().as_table() else { continue };
                    let own = table.get("name").and_then(|name| name.get_ref().as_str());
                    let own = own.map_or_else(|| (nth + 1).to_string(), str::to_owned);
                    flatten(&format!("{name}.{own}."), table, plan, all);
                }
            }
            _ => {
                all.insert(name, plan.get(value.span()).unwrap_or_default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_settings_are_named_with_both_values() {
        let stored = "title = \"a\"\n[run]\nseed = 7\ntime = \"10s\"\n[[stores]]\nname = \"redis\"\n";
        let differences = |given: &str| PlanDifferences::of(stored, given).to_string();
        assert_eq!(differences(&stored.replace('7', "8")), ": run.seed: stored 7, given 8");
        assert_eq!(
            differences(&format!(
                "{}[stores.properties]\n\"redis.host\" = \"h\"\n",
                stored.replace("10s", "5s")
            )),
            ": run.time: stored \"10s\", given \"5s\"; stores.redis.properties.redis.host: stored nothing, given \"h\""
        );
        assert!(
            differences("").ends_with("stored \"redis\", given nothing; and 1 more"),
            "{}",
            differences("")
        );
        assert_eq!(differences(stored), "");
        assert_eq!(differences("no plan"), "");
    }
}
