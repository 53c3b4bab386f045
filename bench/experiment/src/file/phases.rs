//! Reading files of phases: `[[phases]]` in an experiment file (`docs/phases.md`).

use super::{
    group,
    heading::Heading,
    phase_entries::{
        At, Only, PARTITIONS_MAX, PHASES_MAX, PhaseSpec, PhaseWork, PhasesFile, WAIT_EVERY, WAIT_TIMEOUT,
    },
    reader::{TomlSource, TomlTable},
    series::{self, checked_name, origin, unique},
};
use serval_group::program;
use serval_model::{properties::units::format_span, share::SHARES_MAX};
use std::{path::Path, time::Duration};

/// Kinds of phases.
const KINDS: [&str; 8] =
    ["load", "run", "pause", "presplit", "command", "wait", "bulk-format", "bulk-import"];

pub(super) fn file(source: &TomlSource<'_>, root: &TomlTable<'_, '_>) -> Option<PhasesFile> {
    let heading = Heading::read(source, root);
    for series in ["sweep", "max", "run", "workloads", "axis"] {
        if root.value(series).is_some() {
            root.fault(series, "is of sweeps and not of phases: make two files");
        }
    }
    let properties = root.properties_in("[properties]");
    let group = root.table("group", "[group]").map(group::group);
    let stores = root.tables("stores", "[[stores]]");
    match stores.len() {
        0 => source.fault_overall("no [[stores]]: an experiment of phases needs one"),
        1 => {}
        _ => root.fault(
            "stores",
            "phases are of one store: run the file once for each (--store), or make more files",
        ),
    }
    let store = stores.into_iter().find_map(series::store);
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let tables = root.tables("phases", "[[phases]]");
    if tables.is_empty() || tables.len() > PHASES_MAX {
        root.fault("phases", format!("must be 1 to {PHASES_MAX} tables, each begun by [[phases]]"));
    }
    let count = tables.len();
    let phases: Vec<PhaseSpec> =
        tables.into_iter().enumerate().filter_map(|(nth, table)| phase(table, nth, folder)).collect();
    if phases.len() == count {
        unique(source, "phases", phases.iter().map(|phase| (&phase.name, &phase.origin)));
    }
    let seed = root.count("seed", 0..1 << 53);
    Some(PhasesFile { heading, seed, group, properties, store: store?, phases })
}

pub(super) fn phase(table: TomlTable<'_, '_>, nth: usize, folder: &Path) -> Option<PhaseSpec> {
    let place = origin(&table, table.source());
    let Some(kind) = table.text("kind") else {
        if table.value("kind").is_none() {
            table.fault("kind", format!("is missing: one of {}", KINDS.join(", ")));
        }
        return None;
    };
    let mut properties = table.properties_in("[phases.properties]");
    let only = table.tables("only", "[[phases.only]]").into_iter().map(|table| {
        let clients = numbers(&table, "clients");
        let properties = table.properties_in("[phases.only.properties]");
        if clients.is_none() {
            table.fault("clients", "is missing: which clients are these properties of?");
        }
        table.finish();
        Only { clients: clients.unwrap_or_default(), properties }
    });
    let only: Vec<Only> = only.collect();
    let clients = numbers(&table, "clients");
    let name = table.text("name").map(|name| checked_name(&table, name));
    let workload = table.path("workload").map(|path| folder.join(path));
    // Keys that are short for properties.
    let time = table.duration("time");
    let count = table.count("operationcount", 1..u64::MAX);
    let warm_up = table.duration("warmup");
    let work = work(&table, &kind, time)?;
    if work.measures() {
        let at = |key: &'static str| table.source().origin(&table.span(key));
        let mut add = |key: &'static str, property: &str, value: Option<String>| {
            if let Some(value) = value {
                properties.push((property.to_owned(), value, at(key)));
            }
        };
        if kind == "load" {
            for (key, given) in [("operationcount", count.is_some()), ("warmup", warm_up.is_some())] {
                if given {
                    table.fault(key, "a load has none: recordcount or insertcount says how much it does");
                }
            }
        }
        add("time", "maxexecutiontime", time.map(format_span));
        add("operationcount", "operationcount", count.map(|count| count.to_string()));
        add("warmup", "warmup", warm_up.map(format_span));
    } else {
        let at_clients = matches!(work, PhaseWork::Command { at: At::Clients, .. });
        let none = [
            ("time", time.is_some() && kind != "pause"),
            ("clients", clients.is_some() && !at_clients),
            ("workload", workload.is_some()),
            ("properties", !properties.is_empty()),
            ("operationcount", count.is_some()),
            ("warmup", warm_up.is_some()),
            ("only", !only.is_empty()),
        ];
        for (key, given) in none {
            // A presplit takes the properties that determine its range of keys.
            if given && !(key == "properties" && kind == "presplit") {
                table.fault(key, format!("a phase that is a {kind} has none"));
            }
        }
    }
    table.finish();
    let name = name.unwrap_or_else(|| format!("{} {}", work.kind(), nth + 1));
    Some(PhaseSpec { name, work, clients, workload, properties, only, origin: Some(place) })
}

/// Reads a list of clients' numbers, from 1.
fn numbers(table: &TomlTable<'_, '_>, key: &'static str) -> Option<Vec<u64>> {
    table.value(key)?;
    let parsed: Option<Vec<u64>> = table.texts(key).iter().map(|text| text.parse().ok()).collect();
    let found = parsed.filter(|all| !all.is_empty() && all.iter().all(|n| (1..=SHARES_MAX).contains(n)));
    if found.is_none() {
        table.fault(key, "must be a list of clients' numbers, from 1: [1, 2]");
    }
    found
}

fn work(table: &TomlTable<'_, '_>, kind: &str, time: Option<Duration>) -> Option<PhaseWork> {
    let command = || {
        let command = table.text("command").filter(|text| !text.trim().is_empty());
        if command.is_none() {
            table.fault("command", format!("is missing: the program that a phase of kind '{kind}' runs"));
        }
        command
    };
    let timeout = |default| table.duration("timeout").unwrap_or(default);
    Some(match kind {
        "load" => PhaseWork::Load,
        "run" => PhaseWork::Run,
        "pause" => {
            if time.is_none() && table.value("time").is_none() {
                table.fault("time", "is missing: how long is the pause?");
            }
            PhaseWork::Pause(time.unwrap_or_default())
        }
        "presplit" => {
            let partitions = table.count("partitions", 2..PARTITIONS_MAX + 1);
            let points = table.texts("points");
            if (table.value("partitions").is_some()) == (table.value("points").is_some()) {
                table.fault(
                    "partitions",
                    "either partitions (how many pieces) or points (a list of keys) is needed",
                );
            }
            let command = table.text("command");
            PhaseWork::Presplit { partitions, points, command, timeout: timeout(program::TIMEOUT) }
        }
        "command" => PhaseWork::Command {
            command: command()?,
            at: table.choice("at", &At::NAMES).unwrap_or(At::Coordinator),
            timeout: timeout(program::TIMEOUT),
        },
        "wait" => PhaseWork::Wait {
            command: command()?,
            every: table.duration("every").unwrap_or(WAIT_EVERY),
            timeout: timeout(WAIT_TIMEOUT),
        },
        "bulk-format" => PhaseWork::Later("bulk-format"),
        "bulk-import" => PhaseWork::Later("bulk-import"),
        other => {
            table.fault("kind", format!("'{other}' is not one of {}", KINDS.join(", ")));
            return None;
        }
    })
}
