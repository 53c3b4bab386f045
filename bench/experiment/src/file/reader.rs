//! Reading a TOML table key by key. Every fault has its line; at the end the unread keys are faults.

use super::lines::{PropertyLine, value_of};
use serval_model::properties::{Fault, Origin, units};
use std::{
    cell::RefCell,
    collections::BTreeSet,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Text and path of a file, and its faults so far.
pub(super) struct TomlSource<'a> {
    pub(super) text: &'a str,
    pub(super) path: &'a Path,
    faults: RefCell<Vec<Fault>>,
}

impl<'a> TomlSource<'a> {
    pub(super) fn new(text: &'a str, path: &'a Path) -> Self {
        TomlSource { text, path, faults: RefCell::default() }
    }

    pub(super) fn origin(&self, span: &Range<usize>) -> Origin {
        let before = self.text.get(..span.start.min(self.text.len())).unwrap_or(self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        Origin::File { path: self.path.to_owned(), line }
    }

    pub(super) fn fault(&self, span: &Range<usize>, problem: impl Into<String>) {
        let fault = Fault { origin: Some(self.origin(span)), problem: problem.into() };
        self.faults.borrow_mut().push(fault);
    }

    pub(super) fn fault_overall(&self, problem: impl Into<String>) {
        let problem = format!("{}: {}", self.path.display(), problem.into());
        self.faults.borrow_mut().push(Fault { origin: None, problem });
    }

    pub(super) fn into_faults(self) -> Vec<Fault> {
        self.faults.into_inner()
    }
}

/// A value and its place in the file.
pub(super) type TomlValue<'d> = &'d Spanned<DeValue<'d>>;

/// A table of the file.
pub(super) struct TomlTable<'s, 'd> {
    source: &'s TomlSource<'s>,
    table: &'d DeTable<'d>,
    span: Range<usize>,
    /// Name of the table in messages: `[run]`.
    name: &'static str,
    /// Keys that were read, present or not.
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'s, 'd> TomlTable<'s, 'd> {
    pub(super) fn new(
        source: &'s TomlSource<'s>,
        table: &'d DeTable<'d>,
        span: Range<usize>,
        name: &'static str,
    ) -> Self {
        TomlTable { source, table, span, name, read: RefCell::default() }
    }

    pub(super) fn source(&self) -> &'s TomlSource<'s> {
        self.source
    }

    pub(super) fn value(&self, key: &'static str) -> Option<TomlValue<'d>> {
        self.read.borrow_mut().insert(key);
        self.table.get(key)
    }

    /// Returns the place of a key's value, or of the table if the key is missing.
    pub(super) fn span(&self, key: &'static str) -> Range<usize> {
        self.table.get(key).map_or(self.span.clone(), Spanned::span)
    }

    pub(super) fn fault(&self, key: &'static str, problem: impl Into<String>) {
        self.source.fault(&self.span(key), format!("{key}: {}", problem.into()));
    }

    /// Notes a fault of a key whose value is not of its kind.
    fn or_fault<T>(&self, key: &'static str, value: Option<T>, problem: impl Into<String>) -> Option<T> {
        if value.is_none() {
            self.fault(key, problem);
        }
        value
    }

    pub(super) fn text(&self, key: &'static str) -> Option<String> {
        let text = self.value(key)?.get_ref().as_str().map(str::to_owned);
        self.or_fault(key, text, "must be text, in quotes")
    }

    pub(super) fn path(&self, key: &'static str) -> Option<PathBuf> {
        self.text(key).map(PathBuf::from)
    }

    pub(super) fn number(&self, key: &'static str) -> Option<f64> {
        self.or_fault(key, number(self.value(key)?.get_ref()), "must be a number")
    }

    /// Reads a whole number within a range.
    pub(super) fn count(&self, key: &'static str, range: Range<u64>) -> Option<u64> {
        let count = whole(self.value(key)?.get_ref()).filter(|count| range.contains(count));
        let problem = format!("must be a whole number from {} to {}", range.start, range.end - 1);
        self.or_fault(key, count, problem)
    }

    /// Reads a span of time: `"30s"`, or a number of seconds.
    pub(super) fn duration(&self, key: &'static str) -> Option<Duration> {
        const SECOND: u64 = 1_000_000_000;
        let value = self.value(key)?.get_ref();
        let text = value.as_str().map(str::to_owned).or_else(|| number(value).map(|n| n.to_string()));
        let unreadable = || "must be a span of time such as \"30s\"".to_owned();
        let parsed = text.ok_or_else(unreadable).and_then(|text| units::parse_duration(&text, SECOND));
        parsed.map(Duration::from_nanos).map_err(|problem| self.fault(key, problem)).ok()
    }

    pub(super) fn flag(&self, key: &'static str) -> Option<bool> {
        self.or_fault(key, self.value(key)?.get_ref().as_bool(), "must be true or false")
    }

    /// Reads one of the given names, and returns its value.
    pub(super) fn choice<T: Copy>(&self, key: &'static str, choices: &[(&'static str, T)]) -> Option<T> {
        let text = self.text(key)?;
        value_of(choices, &text).map_err(|problem| self.fault(key, problem)).ok()
    }

    /// Reads a list of texts. A single text needs no brackets.
    pub(super) fn texts(&self, key: &'static str) -> Vec<String> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let text = |value: &DeValue<'_>| {
            value.as_str().map(str::to_owned).or_else(|| whole(value).map(|number| number.to_string()))
        };
        let all: Option<Vec<String>> = match value.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| text(item.get_ref())).collect(),
            one => text(one).map(|text| vec![text]),
        };
        self.or_fault(key, all, "must be a list of texts").unwrap_or_default()
    }

    /// Reads a table inside this one.
    pub(super) fn table(&self, key: &'static str, name: &'static str) -> Option<TomlTable<'s, 'd>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(TomlTable::new(self.source, table, value.span(), name)),
            _ => {
                self.fault(key, format!("must be a table: {name}"));
                None
            }
        }
    }

    /// Reads a list of tables: `[[stores]]`.
    pub(super) fn tables(&self, key: &'static str, name: &'static str) -> Vec<TomlTable<'s, 'd>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let table = |item: TomlValue<'d>| match item.get_ref() {
            DeValue::Table(table) => Some(TomlTable::new(self.source, table, item.span(), name)),
            _ => None,
        };
        let tables = value.get_ref().as_array().and_then(|items| items.iter().map(table).collect());
        let problem = format!("must be a list of tables, each begun by {name}");
        self.or_fault(key, tables, problem).unwrap_or_default()
    }

    /// Reads the table `properties` inside this one.
    pub(super) fn properties_in(&self, name: &'static str) -> Vec<PropertyLine> {
        self.table("properties", name).map_or_else(Vec::new, |table| table.properties())
    }

    /// Returns all keys as properties. Names of nested tables are joined by dots, because TOML reads
    /// `redis.port = 1` as a table.
    fn properties(&self) -> Vec<PropertyLine> {
        let mut found = Vec::new();
        self.flatten(self.table, "", &mut found);
        found
    }

    fn flatten(&self, table: &DeTable<'_>, prefix: &str, found: &mut Vec<PropertyLine>) {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref());
            let text = match value.get_ref() {
                DeValue::Table(inner) => {
                    self.flatten(inner, &format!("{name}."), found);
                    continue;
                }
                DeValue::Boolean(flag) => Some(flag.to_string()),
                DeValue::String(text) => Some(text.to_string()),
                value => whole(value).map(|n| n.to_string()).or_else(|| number(value).map(|n| n.to_string())),
            };
            match text {
                Some(text) => found.push((name, text, self.source.origin(&key.span()))),
                None => {
                    self.source.fault(&value.span(), format!("{name}: must be text, a number, true or false"))
                }
            }
        }
    }

    /// Notes a fault for each key that was not read.
    pub(super) fn finish(self) {
        let read = self.read.into_inner();
        for key in self.table.keys().filter(|key| !read.contains(&**key.get_ref())) {
            let name = key.get_ref();
            let near = read.iter().find(|known| strsim::levenshtein(known, name) <= 2);
            let hint = near.map_or_else(
                || {
                    let known: Vec<&str> = read.iter().copied().collect();
                    format!("there is {}", known.join(", "))
                },
                |near| format!("did you mean '{near}'?"),
            );
            self.source.fault(&key.span(), format!("unknown key '{name}' in {}: {hint}", self.name));
        }
    }
}

/// Returns a number, integer or float.
pub(super) fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(_) => whole(value).map(|n| n as f64),
        DeValue::Float(float) => float.as_str().parse().ok().filter(|n: &f64| n.is_finite()),
        _ => None,
    }
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(&integer.as_str().replace('_', ""), integer.radix()).ok()
}
