//! Phases in properties, as in YCSB++: `phases=N`, and `phaseK.NAME=VALUE` for phase K
//! (`docs/phases.md`).

use super::{
    entries::StoreEntry,
    heading::Heading,
    lines::PropertyLine,
    phase_entries::{PHASES_MAX, PhaseSpec, PhasesFile},
    phases::phase,
    reader::{TomlSource, TomlTable},
    write::quoted,
};
use serval_model::properties::{Fault, Faults, Properties};
use std::path::{Path, PathBuf};

/// Names after `phaseK.` that are keys of the phase, not properties of its work.
const PHASE_KEYS: [&str; 11] =
    ["kind", "load", "name", "time", "command", "at", "every", "timeout", "partitions", "points", "clients"];

/// Returns whether properties ask for phases.
pub fn asks_for_phases(properties: &Properties) -> bool {
    properties.get("phases").is_some()
}

/// Makes phases from properties, as in YCSB++: `phases=N`, `phaseK.NAME=VALUE` for phase K alone, and `load=yes`
/// or `no` for the kind. Other properties apply to all phases. `default` is the kind of a phase without one.
///
/// # Errors
///
/// All faults at once.
pub fn of_properties(
    properties: &Properties,
    default: &'static str,
    store: &StoreEntry,
    title: &str,
) -> Result<PhasesFile, Faults> {
    let mut faults = Vec::new();
    let count = properties.get("phases").map_or("", |setting| setting.value.trim());
    let count = count.parse().ok().filter(|count| (1..=PHASES_MAX).contains(count)).unwrap_or_else(|| {
        let origin = properties.get("phases").map(|setting| setting.origin.clone());
        faults.push(Fault { origin, problem: format!("phases: must be a number from 1 to {PHASES_MAX}") });
        0
    });
    let mut of: Vec<Vec<PropertyLine>> = vec![Vec::new(); count];
    let mut all: Vec<PropertyLine> = Vec::new();
    for (name, setting) in properties.iter().filter(|(name, _)| *name != "phases") {
        let line = |name: &str| (name.to_owned(), setting.value.clone(), setting.origin.clone());
        let numbered = name.strip_prefix("phase").and_then(|rest| rest.split_once('.'));
        match numbered.and_then(|(number, rest)| Some((number.parse::<usize>().ok()?, rest))) {
            None => all.push(line(name)),
            Some((number, rest)) if (1..=count).contains(&number) => of[number - 1].push(line(rest)),
            // With a faulty number of phases, each of them would be one more fault.
            Some(_) if count == 0 => {}
            Some((number, _)) => faults.push(Fault {
                origin: Some(setting.origin.clone()),
                problem: format!("{name}: there is no phase {number}, for phases={count}"),
            }),
        }
    }
    // The kind of phases without a kind of their own.
    let common_load = all.iter().position(|(name, _, _)| name == "load").map(|at| all.remove(at));
    let mut phases = Vec::new();
    for (nth, mut lines) in of.into_iter().enumerate() {
        let has_load = lines.iter().any(|(name, _, _)| name == "load");
        if let Some(load) = common_load.as_ref().filter(|_| !has_load) {
            lines.push(load.clone());
        }
        match of_lines(nth, lines, default) {
            Ok(phase) => phases.push(phase),
            Err(fault) => faults.push(fault),
        }
    }
    if !faults.is_empty() {
        return Err(Faults(faults));
    }
    Ok(PhasesFile {
        heading: Heading::titled(title.to_owned()),
        seed: None,
        group: None,
        properties: all,
        store: store.clone(),
        phases,
    })
}

/// Makes a phase from its lines. Its keys are read as TOML, so that they mean the same as in a file.
fn of_lines(nth: usize, lines: Vec<PropertyLine>, default: &'static str) -> Result<PhaseSpec, Fault> {
    let (keys, properties): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|(name, _, _)| PHASE_KEYS.contains(&name.as_str()));
    let place = keys.iter().chain(&properties).next().map(|(_, _, origin)| origin.clone());
    let fault = |problem: String| Fault { origin: place.clone(), problem };
    let find = |key: &str| keys.iter().find(|(name, _, _)| name == key).map(|(_, value, _)| value.trim());
    let kind = match (find("kind"), find("load").map(str::to_lowercase).as_deref()) {
        (Some(kind), _) => kind.to_owned(),
        (None, None) => default.to_owned(),
        (None, Some("yes" | "true")) => "load".to_owned(),
        (None, Some("no" | "false")) => "run".to_owned(),
        (None, Some(other)) => {
            return Err(fault(format!("phase{}.load: '{other}' is neither yes nor no", nth + 1)));
        }
    };
    let mut text = format!("kind = {}\n", quoted(&kind));
    for (key, value, _) in keys.iter().filter(|(key, _, _)| !matches!(key.as_str(), "kind" | "load")) {
        let list: Vec<String> = value.split(',').map(|item| quoted(item.trim())).collect();
        let value = match key.as_str() {
            "points" | "clients" => format!("[{}]", list.join(", ")),
            "partitions" => value.trim().parse::<u64>().map_or_else(|_| quoted(value), |n| n.to_string()),
            _ => quoted(value),
        };
        text.push_str(&format!("{key} = {value}\n"));
    }
    let path = PathBuf::from(format!("phase{}", nth + 1));
    let source = TomlSource::new(&text, &path);
    let (document, errors) = toml::de::DeTable::parse_recoverable(&text);
    if let Some(error) = errors.first() {
        return Err(fault(format!("phase{}: {}", nth + 1, error.message())));
    }
    let spec = phase(TomlTable::new(&source, document.get_ref(), 0..0, "the phase"), nth, Path::new(""));
    let faults = source.into_faults();
    if let Some(first) = faults.first() {
        return Err(fault(format!("phase{}: {}", nth + 1, first.problem)));
    }
    let mut spec = spec.ok_or_else(|| fault(format!("phase{} has a fault", nth + 1)))?;
    if !spec.work.measures() && !properties.is_empty() && spec.work.kind() != "presplit" {
        return Err(fault(format!(
            "phase{}.{}: a phase that is a {} has none",
            nth + 1,
            properties[0].0,
            spec.work.kind()
        )));
    }
    spec.properties.extend(properties);
    spec.origin = place;
    Ok(spec)
}
