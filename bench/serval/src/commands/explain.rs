//! `serval stores`, `serval workloads`, `serval properties`: everything from
//! the tables that also parse.

use crate::{
    args::NameArgs,
    failure::Failure,
    ready_made::{self, READY_MADE, ReadyMade},
    stdout,
};
use anstyle::{AnsiColor, Style};
use serval_model::properties::{Property, PropertyTable};
use serval_plan::{
    properties::catalog,
    workloads::{WORKLOADS, WorkloadInfo},
};
use serval_scripts::{Script, is_script};
use serval_stores::{STORES, StoreInfo};

const HEADING: Style = AnsiColor::Green.on_default().bold();
const NAME: Style = AnsiColor::Cyan.on_default();

/// Columns of text.
const WIDTH: usize = 96;

fn heading(text: &str) {
    anstream::println!("{HEADING}{text}{HEADING:#}");
}

/// Prints text wrapped and indented.
fn paragraph(text: &str, indent: usize) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent + line.chars().count() + 1 + word.chars().count() > WIDTH {
            anstream::println!("{:indent$}{line}", "");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        anstream::println!("{:indent$}{line}", "");
    }
}

fn default_of(property: &Property) -> String {
    match property.default {
        Some("") => "empty".into(),
        Some(text) => text.to_owned(),
        None => "none".into(),
    }
}

fn explain(property: &Property) {
    anstream::println!("  {NAME}{}{NAME:#}", property.name);
    paragraph(property.meaning, 6);
    let mut facts = vec![property.kind.describe()];
    if !property.unit.is_empty() {
        facts.push(format!("unit {}", property.unit));
    }
    facts.push(format!("default {}", default_of(property)));
    facts.push(format!("from {}", property.source.name()));
    if !property.aliases.is_empty() {
        facts.push(format!("also {}", property.aliases.join(", ")));
    }
    paragraph(&facts.join("; "), 6);
}

/// Explains a store, workload or script, and its properties.
fn explain_all(name: &str, paragraphs: &[String], tables: &[PropertyTable]) {
    heading(name);
    paragraphs.iter().for_each(|text| paragraph(text, 2));
    for table in tables.iter().filter(|table| !table.properties.is_empty()) {
        anstream::println!();
        heading(&format!("Properties: {}", table.heading));
        table.properties.iter().for_each(|property| explain(property));
    }
}

fn property_json(property: &Property, heading: &str) -> serde_json::Value {
    serde_json::json!({
        "name": property.name,
        "aliases": property.aliases,
        "values": property.kind.describe(),
        "default": property.default,
        "unit": property.unit,
        "source": property.source.name(),
        "meaning": property.meaning,
        "part": heading,
    })
}

fn tables_json(tables: &[PropertyTable]) -> serde_json::Value {
    let of = |table: &PropertyTable| {
        table.properties.iter().map(|property| property_json(property, table.heading))
    };
    tables.iter().flat_map(of).collect()
}

fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    anstream::println!("{value:#}");
    Ok(())
}

/// `serval stores [NAME]`.
pub(crate) fn stores(args: &NameArgs) -> Result<(), Failure> {
    let json = |info: &StoreInfo| {
        serde_json::json!({
            "name": info.name,
            "aliases": info.aliases,
            "summary": info.summary,
            "details": info.details,
            "properties": tables_json(&[info.properties]),
        })
    };
    if let Some(name) = &args.name {
        let info = super::store(name)?;
        if args.json {
            return print_json(&json(info));
        }
        let mut paragraphs = vec![info.summary.to_owned(), info.details.to_owned()];
        if !info.aliases.is_empty() {
            paragraphs.push(format!("Also: {}", info.aliases.join(", ")));
        }
        explain_all(info.name, &paragraphs, &[info.properties]);
        return Ok(());
    }
    if args.json {
        return print_json(&STORES.iter().map(json).collect());
    }
    heading("Stores");
    for info in STORES {
        anstream::println!("  {NAME}{:<12}{NAME:#} {}", info.name, info.summary);
    }
    let absent: Vec<_> = serval_stores::absent().collect();
    if !absent.is_empty() {
        anstream::println!();
        heading("Not in this build (cargo build --release --features full has all)");
        for optional in absent {
            anstream::println!("  {NAME}{:<12}{NAME:#} {}", optional.name, optional.summary);
        }
    }
    anstream::println!("\n'serval stores NAME' explains a store and its properties.");
    Ok(())
}

/// What stands in the place of a script's class.
const SCRIPT_PATH: &str = "path/to/file.lua";

fn classes(info: &WorkloadInfo) -> String {
    if info.classes.is_empty() { SCRIPT_PATH.to_owned() } else { info.classes.join(" or ") }
}

/// `serval workloads FILE.lua`.
fn script(path: &str, as_json: bool) -> Result<(), Failure> {
    let script = Script::read(path.as_ref(), &catalog())?;
    // The core's hold too, and are explained under their own name.
    let tables = [script.table, serval_scripts::PROPERTIES];
    if as_json {
        return print_json(&serde_json::json!({
            "name": path,
            "summary": script.summary,
            "operations": script.operations(),
            "transactions": script.transactions,
            "defaults": script.defaults.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "properties": tables_json(&tables),
        }));
    }
    let mut paragraphs =
        vec![script.summary.clone(), format!("Operations: {}", script.operations().join(", "))];
    if !script.transactions.is_empty() {
        paragraphs.push(format!("Timed together: {}", script.transactions.join(", ")));
    }
    if !script.defaults.is_empty() {
        let defaults: Vec<String> =
            script.defaults.iter().map(|(name, value)| format!("{name}={value}")).collect();
        paragraphs.push(format!("Unless set: {}", defaults.join(", ")));
    }
    let loads =
        if script.loads { "It loads its records itself." } else { "The core workload loads its records." };
    paragraphs.push(loads.to_owned());
    paragraphs.push(format!("workload={path}; the properties of 'serval workloads core' hold too"));
    explain_all(path, &paragraphs, &tables);
    Ok(())
}

/// `serval workloads [NAME]`: all, the one of that name, or the text of a ready-made file.
pub(crate) fn workloads(args: &NameArgs) -> Result<(), Failure> {
    let json = |info: &WorkloadInfo| {
        serde_json::json!({
            "name": info.name,
            "classes": info.classes,
            "summary": info.summary,
            "details": info.details,
            "properties": tables_json(info.tables),
        })
    };
    if let Some(name) = &args.name {
        if is_script(name) {
            return script(name, args.json);
        }
        if let Some(file) = ready_made::find(name) {
            if args.json {
                let ReadyMade { name, summary, text } = file;
                let file = serde_json::json!({ "name": name, "summary": summary, "text": text });
                return print_json(&file);
            }
            return stdout(file.text.as_bytes());
        }
        let Some(info) = serval_plan::workloads::find(name) else {
            let known = WORKLOADS.iter().map(|info| info.name);
            let known: Vec<&str> = known.chain(READY_MADE.iter().map(|file| file.name)).collect();
            return Err(Failure::usage(format!(
                "unknown workload '{name}'. This build has {}",
                known.join(", ")
            )));
        };
        if args.json {
            return print_json(&json(info));
        }
        let class = format!("workload={}", classes(info));
        explain_all(info.name, &[info.summary.to_owned(), info.details.to_owned(), class], info.tables);
        return Ok(());
    }
    if args.json {
        return print_json(&WORKLOADS.iter().map(json).collect());
    }
    heading("Workloads (property 'workload')");
    for info in WORKLOADS {
        anstream::println!("  {NAME}{:<18}{NAME:#} {}", info.name, info.summary);
        anstream::println!("  {:<18} {}", "", info.classes.first().unwrap_or(&SCRIPT_PATH));
    }
    anstream::println!();
    heading("Ready-made files (folder 'workloads')");
    let scripts =
        ("scripts/", "scripts: sessions.lua, transfer.lua (a transaction of its own), workloadc.lua");
    for (file, text) in READY_MADE.iter().map(|file| (file.name, file.summary)).chain([scripts]) {
        anstream::println!("  {NAME}{file:<18}{NAME:#} {text}");
    }
    anstream::println!(
        "\n'serval workloads NAME' explains a workload and its properties, NAME.lua a script.\n'serval workloads \
         workloada > workloada' writes a ready-made file."
    );
    Ok(())
}

/// `serval properties [NAME]`: all, the one of that name, or all whose names
/// contain it.
pub(crate) fn properties(args: &NameArgs) -> Result<(), Failure> {
    let catalog = catalog();
    let wanted = |property: &Property| match &args.name {
        None => true,
        Some(name) => property.name.contains(name.as_str()) || property.aliases.contains(&name.as_str()),
    };
    let exact = args.name.as_deref().and_then(|name| catalog.find(name));
    let matching =
        |property: &Property| exact.map_or_else(|| wanted(property), |exact| exact.name == property.name);
    let tables: Vec<(&str, Vec<&Property>)> = catalog
        .tables()
        .iter()
        .map(|table| {
            (table.heading, table.properties.iter().copied().filter(|p| matching(p)).collect::<Vec<_>>())
        })
        .filter(|(_, properties)| !properties.is_empty())
        .collect();
    if tables.is_empty() {
        let name = args.name.as_deref().unwrap_or_default();
        let near = catalog.nearest(name, 3);
        let hint = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
        return Err(Failure::usage(format!("no property has '{name}' in its name{hint}")));
    }
    if args.json {
        let all: Vec<_> = tables
            .iter()
            .flat_map(|(heading, list)| list.iter().map(|p| property_json(p, heading)))
            .collect();
        return print_json(&all.into());
    }
    for (index, (part, list)) in tables.iter().enumerate() {
        if index > 0 {
            anstream::println!();
        }
        heading(&format!("Properties: {part}"));
        for property in list {
            if args.name.is_some() {
                explain(property);
            } else {
                let unit =
                    if property.unit.is_empty() { String::new() } else { format!(" {}", property.unit) };
                let default = property.default.map(|text| format!(" = {text}{unit}")).unwrap_or_default();
                anstream::println!("  {NAME}{}{NAME:#}{default}", property.name);
            }
        }
    }
    if args.name.is_none() {
        anstream::println!(
            "\n'serval properties NAME' explains a property: meaning, values, unit, default, source."
        );
    }
    Ok(())
}
