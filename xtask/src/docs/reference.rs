//! The reference pages as Markdown: all properties, all stores.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::markdown::{Slugs, escaped, wrapped};
use crate::Result;

/// First line of each page: what wrote it.
const WRITTEN: &str = "<!-- Written by `cargo xtask docs` from the program's tables; do not edit. -->\n\n";

/// Length of a default value above which the page leaves it out, bytes.
const LONG_DEFAULT: usize = 80;

/// Stores whose driver is a Java program.
const JAVA: [&str; 3] = ["java", "hbase", "accumulo"];

pub(crate) struct PropertyEntry {
    /// The store, workload or part of the client that reads it.
    part: String,
    name: String,
    aliases: Vec<String>,
    default: Option<String>,
    meaning: String,
    source: String,
    unit: String,
    values: String,
}

pub(crate) struct StoreReference {
    name: String,
    aliases: Vec<String>,
    summary: String,
    details: String,
    /// Part and name of each of its properties.
    properties: Vec<(String, String)>,
}

pub(crate) fn properties(list: &[Value]) -> Result<Vec<PropertyEntry>> {
    list.iter().map(property).collect()
}

fn property(value: &Value) -> Result<PropertyEntry> {
    Ok(PropertyEntry {
        part: text(value, "part")?,
        name: text(value, "name")?,
        aliases: texts(value, "aliases")?,
        default: value["default"].as_str().map(str::to_owned),
        meaning: text(value, "meaning")?,
        source: text(value, "source")?,
        unit: text(value, "unit")?,
        values: text(value, "values")?,
    })
}

pub(crate) fn stores(list: &[Value]) -> Result<Vec<StoreReference>> {
    list.iter().map(store).collect()
}

fn store(value: &Value) -> Result<StoreReference> {
    let properties = value["properties"].as_array().ok_or_else(|| missing(value, "properties"))?;
    Ok(StoreReference {
        name: text(value, "name")?,
        aliases: texts(value, "aliases")?,
        summary: text(value, "summary")?,
        details: text(value, "details")?,
        properties: properties
            .iter()
            .map(|property| Ok((text(property, "part")?, text(property, "name")?)))
            .collect::<Result<_>>()?,
    })
}

fn text(value: &Value, key: &str) -> Result<String> {
    value[key].as_str().map(str::to_owned).ok_or_else(|| missing(value, key))
}

fn texts(value: &Value, key: &str) -> Result<Vec<String>> {
    let list = value[key].as_array().ok_or_else(|| missing(value, key))?;
    list.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(|| missing(value, key))).collect()
}

fn missing(value: &Value, key: &str) -> String {
    format!("'{key}' is missing, or not text, in {value}")
}

/// The features of `full` that are stores but not among these.
pub(crate) fn lacking<'a>(stores: &[StoreReference], features: &[&'a str]) -> Vec<&'a str> {
    // The one feature of `full` that is no store.
    let is_store = |feature: &&&str| **feature != "opentelemetry";
    let has = |name: &str| stores.iter().any(|store| store.name == name);
    features.iter().filter(is_store).filter(|feature| !has(feature)).copied().collect()
}

/// The properties of each part, parts in the order of their first property.
fn parts(properties: &[PropertyEntry]) -> Vec<(&str, Vec<&PropertyEntry>)> {
    let mut parts: Vec<(&str, Vec<&PropertyEntry>)> = Vec::new();
    for property in properties {
        match parts.iter_mut().find(|(part, _)| *part == property.part) {
            Some((_, members)) => members.push(property),
            None => parts.push((&property.part, vec![property])),
        }
    }
    parts
}

/// The anchors of the properties' page: of parts by name, of properties by part
/// and name.
struct Anchors<'a> {
    parts: Vec<String>,
    properties: BTreeMap<(&'a str, &'a str), String>,
}

impl<'a> Anchors<'a> {
    /// Assigns anchors in the order of the page's headings, which determines the numbers of equal
    /// anchors.
    fn new(parts: &[(&'a str, Vec<&'a PropertyEntry>)]) -> Self {
        let mut slugs = Slugs::default();
        slugs.next("Properties");
        let mut anchors = Anchors { parts: Vec::new(), properties: BTreeMap::new() };
        for (part, members) in parts {
            anchors.parts.push(slugs.next(part));
            for property in members {
                anchors.properties.insert((part, &property.name), slugs.next(&property.name));
            }
        }
        anchors
    }
}

pub(crate) fn properties_page(properties: &[PropertyEntry]) -> String {
    let parts = parts(properties);
    let anchors = Anchors::new(&parts);
    let mut page = format!(
        "{WRITTEN}# Properties\n\n\
         Properties configure the client, the workload and the store. Set one with `-p NAME=VALUE`, or in a\n\
         file with `-P FILE`; in an experiment file they stand in `[properties]`. The command line wins over\n\
         files, and a later file over an earlier one. `serval properties NAME` prints the same text.\n\n\
         *From YCSB* marks a property that YCSB has too, with the same default.\n\n\
         | read by | properties |\n|---|---|\n"
    );
    for ((part, members), anchor) in parts.iter().zip(&anchors.parts) {
        _ = writeln!(page, "| [{part}](#{anchor}) | {} |", members.len());
    }
    for (part, members) in &parts {
        _ = writeln!(page, "\n## {part}");
        for property in members {
            page.push_str(&property_section(property));
        }
    }
    page
}

fn property_section(property: &PropertyEntry) -> String {
    let default = property.default.as_deref().map_or("no default".to_owned(), |value| match value {
        "" => "default empty".to_owned(),
        value if value.len() > LONG_DEFAULT => format!("default of {} characters", value.chars().count()),
        value => format!("default `{value}`"),
    });
    let unit =
        if property.unit.is_empty() { String::new() } else { format!("; unit {}", escaped(&property.unit)) };
    let aliases = match names(&property.aliases) {
        names if names.is_empty() => names,
        names => format!("; other names: {names}"),
    };
    let facts = format!("{}{unit}; {default}; from {}{aliases}", escaped(&property.values), property.source);
    format!(
        "\n### `{}`\n{}\n{}",
        property.name,
        wrapped(&format!("*{facts}*")),
        paragraphs(&property.meaning)
    )
}

/// Names as code, separated by commas.
fn names(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A text of one paragraph a line as Markdown, an empty line before each.
fn paragraphs(text: &str) -> String {
    text.lines().filter(|line| !line.is_empty()).fold(String::new(), |mut page, line| {
        _ = writeln!(page, "{}", wrapped(&escaped(line)));
        page
    })
}

pub(crate) fn stores_page(
    stores: &[StoreReference],
    properties: &[PropertyEntry],
    features: &[&str],
) -> String {
    let anchors = Anchors::new(&parts(properties));
    let mut slugs = Slugs::default();
    slugs.next("Stores");
    let mut page = format!(
        "{WRITTEN}# Stores\n\n\
         A store is named after `load` or `run`, or with `--store`. `serval stores NAME` prints the same text\n\
         with the meaning of each property. What each store cannot do, and its limits, are on\n\
         [the page of limits](../limits.md#stores).\n\n\
         | store | what it is | build |\n|---|---|---|\n"
    );
    for store in stores {
        let build = match store.name.as_str() {
            name if features.contains(&name) => "`--features full`",
            name if JAVA.contains(&name) => "default, and `mvn -f drivers package`",
            _ => "default",
        };
        let summary = escaped(&store.summary).replace('|', "\\|");
        _ = writeln!(page, "| [{}](#{}) | {summary} | {build} |", store.name, slugs.next(&store.name));
    }
    page.push_str(
        "\n`cargo build --release --features full` builds all stores. `etcd` needs `protoc`, in Debian\n\
         `apt-get install protobuf-compiler libprotobuf-dev`. A store that is not here is measured through\n\
         [a driver](../driver-protocol.md).\n",
    );
    for store in stores {
        page.push_str(&store_section(store, &anchors));
    }
    page
}

fn store_section(store: &StoreReference, anchors: &Anchors<'_>) -> String {
    let mut section = format!("\n## {}\n", store.name);
    section.push_str(&paragraphs(&format!("{}.\n{}", store.summary, store.details)));
    let mut lists = Vec::new();
    if !store.aliases.is_empty() {
        lists.push(format!("Other names: {}.", names(&store.aliases)));
    }
    if !store.properties.is_empty() {
        let links = store.properties.iter().map(|(part, name)| {
            match anchors.properties.get(&(part.as_str(), name.as_str())) {
                Some(anchor) => format!("[`{name}`](properties.md#{anchor})"),
                None => format!("`{name}`"),
            }
        });
        lists.push(format!("Properties: {}.", links.collect::<Vec<_>>().join(", ")));
    }
    for list in lists {
        _ = writeln!(section, "{}", wrapped(&list));
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn property_of(part: &str, name: &str) -> Value {
        json!({"part": part, "name": name, "aliases": [], "default": "1", "meaning": "Its *meaning*.",
            "source": "Serval", "unit": "", "values": "text"})
    }

    #[test]
    fn equal_names_of_two_parts_have_two_anchors() {
        let list = properties(&[property_of("a", "one.two"), property_of("b", "one.two")]).unwrap();
        let page = properties_page(&list);
        assert!(
            page.contains(
                "\n## b\n\n### `one.two`\n\n*text; default `1`; from Serval*\n\nIts \\*meaning\\*.\n"
            )
        );
        let store = stores(&[json!({"name": "b", "aliases": ["B"], "summary": "A b", "details": "It\nis.",
            "properties": [property_of("b", "one.two")]})]);
        let page = stores_page(&store.unwrap(), &list, &["b"]);
        assert!(page.contains("| [b](#b) | A b | `--features full` |"), "{page}");
        let section = "\n## b\n\nA b.\n\nIt\n\nis.\n\nOther names: `B`.\n\n\
            Properties: [`one.two`](properties.md#onetwo-1).\n";
        assert!(page.ends_with(section), "{page}");
    }

    #[test]
    fn a_missing_field_is_named() {
        let mut value = property_of("a", "b");
        value["unit"] = Value::Null;
        let error = properties(&[value]).err().unwrap_or_default();
        assert!(error.contains("'unit' is missing"), "{error}");
    }

    #[test]
    fn a_build_without_a_store_is_noticed() {
        let list = stores(&[json!({"name": "etcd", "aliases": [], "summary": "", "details": "",
            "properties": []})]);
        assert_eq!(lacking(&list.unwrap(), &["etcd", "fjall", "opentelemetry"]), ["fjall"]);
    }
}
