//! A script's file and its declarations, which are read once, before the run.

use crate::{
    engine::LuaState,
    host::{ScriptHost, ScriptState},
    property_value::property_value,
    source::ScriptSource,
};
use mlua::{Table as LuaTable, Value as LuaValue};
use serval_model::{
    Metric, OperationKind, OperationKinds,
    properties::{Catalog, Faults, Kind, Origin, Properties, Property, PropertyTable, Reader},
};
use serval_workload::Rng;
use std::{path::Path, sync::Arc};

/// Maximum size of a script's file, bytes.
const FILE_SIZE_MAX: u64 = 1 << 20;

/// Maximum length of a transaction's name: results have columns.
const NAME_LENGTH_MAX: usize = 40;

/// Budget of Lua instructions for running the file.
const DECLARING_BUDGET: u64 = 10_000_000;

/// Extension of a script's file name.
pub const EXTENSION: &str = "lua";

/// Limit of a script's instructions between operations.
pub const BUDGET: Property = Property::serval(
    "script.budget",
    Kind::COUNT,
    "Largest number of Lua instructions of a script between two operations. A script that exceeds it, by \
     at most a fifth of it or 20,000, whichever is less, ends the run with its position. Counting costs some nanoseconds per \
     instruction. 0: no limit; a script that loops forever hangs its client.",
)
.default("1000000")
.unit("instructions");

/// Properties of all scripts, besides those of the core workload.
pub const PROPERTIES: PropertyTable = PropertyTable { heading: "script workload", properties: &[&BUDGET] };

/// A script and its declarations.
#[derive(Debug, Clone)]
pub struct Script {
    pub(crate) source: ScriptSource,
    /// One-line description.
    pub summary: String,
    /// Verbs that the script uses.
    pub(crate) operations: Vec<OperationKind>,
    /// Names of the script's own transactions.
    pub transactions: Vec<String>,
    /// The script's own properties.
    pub table: PropertyTable,
    /// The script's defaults for other properties.
    pub defaults: Vec<(String, String)>,
    /// Fields of its records, if they are not the core's.
    pub(crate) fields: Option<Vec<String>>,
    /// Whether a run checks before its start that the records exist.
    pub(crate) checks: bool,
    /// Whether it loads the records itself.
    pub loads: bool,
}

/// Leaks a value. Tables of properties are `'static`; a script's are read once or
/// a few times per process.
fn keep<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn keep_text(text: &str) -> &'static str {
    keep(text.to_owned()).as_str()
}

/// Returns whether a value of `workload` is a script's path.
pub fn is_script(workload: &str) -> bool {
    Path::new(workload).extension().is_some_and(|extension| extension == EXTENSION)
}

impl Script {
    /// Reads a script and its declarations. Reports all faults at once. Its properties must
    /// not be in `known`.
    pub fn read(path: &Path, known: &Catalog) -> Result<Script, Faults> {
        let fault = |problem: String| Faults::one(format!("{}: {problem}", path.display()));
        let size =
            std::fs::metadata(path).map_err(|e| fault(format!("the script cannot be read: {e}")))?.len();
        if size > FILE_SIZE_MAX {
            return Err(fault(format!("has {size} bytes; a script may have {FILE_SIZE_MAX}")));
        }
        let text =
            std::fs::read_to_string(path).map_err(|e| fault(format!("the script cannot be read: {e}")))?;
        let source = ScriptSource { path: path.to_owned(), text };
        let mut faults = Vec::new();
        let script = Declarations::read(&source, &mut faults)
            .map(|declared| declared.into_script(source.clone(), known, &mut faults))
            .map_err(|error| Faults::one(source.explain(&error)))?;
        let faults = faults.into_iter().flat_map(|problem: String| fault(problem).0).collect::<Vec<_>>();
        if faults.is_empty() { Ok(script) } else { Err(Faults(faults)) }
    }

    /// Returns its file.
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// Returns the names of the verbs that it uses.
    pub fn operations(&self) -> Vec<&'static str> {
        self.operations.iter().map(|kind| kind.name()).collect()
    }

    /// Sets the script's defaults for properties that are not set.
    pub fn apply_defaults(&self, properties: &mut Properties) {
        for (name, value) in &self.defaults {
            if properties.get(name).is_none() {
                properties.set(name, value, Origin::Program("a default of the script"));
            }
        }
    }

    pub(crate) fn kinds(&self) -> OperationKinds {
        self.operations.iter().copied().collect()
    }
}

/// The script's globals after running its file.
struct Declarations {
    globals: LuaTable,
    // `globals` is valid only while this lives.
    _engine: LuaState,
}

impl Declarations {
    fn read(source: &ScriptSource, faults: &mut Vec<String>) -> mlua::Result<Declarations> {
        let host = ScriptHost::new("", Rng::new(0), None, Arc::new(ScriptState::default()));
        let engine = LuaState::new(source, host, DECLARING_BUDGET, None)?;
        let globals = engine.globals();
        if !matches!(globals.get::<LuaValue>("step")?, LuaValue::Function(_)) {
            faults.push("defines no function step(), which asks for the next operation".into());
        }
        for optional in ["start", "load"] {
            if !matches!(globals.get::<LuaValue>(optional)?, LuaValue::Function(_) | LuaValue::Nil) {
                faults.push(format!("'{optional}' must be a function"));
            }
        }
        Ok(Declarations { globals, _engine: engine })
    }

    fn get(&self, name: &str) -> LuaValue {
        self.globals.get(name).unwrap_or(LuaValue::Nil)
    }

    /// Reads a list of texts.
    fn texts(&self, name: &str, faults: &mut Vec<String>) -> Option<Vec<String>> {
        let texts = match self.get(name) {
            LuaValue::Nil => return None,
            LuaValue::Table(table) => {
                table.sequence_values::<String>().collect::<mlua::Result<Vec<_>>>().ok()
            }
            _ => None,
        };
        if texts.is_none() {
            faults.push(format!("'{name}' must be a list of texts, such as {{ \"one\", \"two\" }}"));
        }
        texts
    }

    fn into_script(self, source: ScriptSource, known: &Catalog, faults: &mut Vec<String>) -> Script {
        let summary = match self.get("summary") {
            LuaValue::String(text) => text.to_string_lossy(),
            LuaValue::Nil => "a script without a description (set 'summary')".into(),
            _ => {
                faults.push("'summary' must be a text".into());
                String::new()
            }
        };
        let operations = self.operations(faults);
        let transactions = self.texts("transactions", faults).unwrap_or_default();
        check_transactions(&transactions, faults);
        let properties = self.properties(known, faults);
        let heading = keep_text(&format!("{}", source.path.display()));
        Script {
            summary,
            operations,
            transactions,
            table: PropertyTable { heading, properties: keep(properties).as_slice() },
            defaults: self.defaults(faults),
            fields: self.texts("fields", faults),
            checks: !matches!(self.get("check"), LuaValue::Boolean(false)),
            loads: matches!(self.get("load"), LuaValue::Function(_)),
            source,
        }
    }

    fn operations(&self, faults: &mut Vec<String>) -> Vec<OperationKind> {
        let names = self.texts("operations", faults).unwrap_or_default();
        if names.is_empty() {
            faults.push(
                "names no operations: say which ones it asks for, such as operations = { \"read\", \"update\" }"
                    .into(),
            );
        }
        let mut kinds = Vec::new();
        for name in names {
            let kind = OperationKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(&name));
            match kind {
                Some(kind) => kinds.push(kind),
                None => faults.push(format!(
                    "'operations': no operation '{name}'; there are read, update, insert, scan, delete"
                )),
            }
        }
        kinds
    }

    fn properties(&self, known: &Catalog, faults: &mut Vec<String>) -> Vec<&'static Property> {
        let list = match self.get("properties") {
            LuaValue::Nil => return Vec::new(),
            LuaValue::Table(table) => {
                table.sequence_values::<LuaTable>().collect::<mlua::Result<Vec<_>>>().ok()
            }
            _ => None,
        };
        let Some(list) = list else {
            faults.push(
                "'properties' must be a list of tables: { { name = ..., default = ..., meaning = ... } }"
                    .into(),
            );
            return Vec::new();
        };
        let mut all: Vec<&'static Property> = Vec::new();
        for entry in list {
            match property(&entry) {
                Err(problem) => faults.push(format!("'properties': {problem}")),
                Ok(property) if known.find(property.name).is_some() => faults.push(format!(
                    "'properties': '{}' is a property of Serval's; take another name, or set it by 'defaults'",
                    property.name
                )),
                Ok(property) if all.iter().any(|other| other.name == property.name) => {
                    faults.push(format!("'properties': '{}' is declared twice", property.name));
                }
                Ok(property) => all.push(property),
            }
        }
        all
    }

    fn defaults(&self, faults: &mut Vec<String>) -> Vec<(String, String)> {
        let pairs = match self.get("defaults") {
            LuaValue::Nil => return Vec::new(),
            LuaValue::Table(table) => table
                .pairs::<String, LuaValue>()
                .map(|pair| pair.and_then(|(name, value)| Ok((name, value.to_string()?))))
                .collect::<mlua::Result<Vec<_>>>()
                .ok(),
            _ => None,
        };
        match pairs {
            Some(mut pairs) => {
                pairs.sort();
                pairs
            }
            None => {
                faults.push("'defaults' must be a table of properties: { fieldcount = 1 }".into());
                Vec::new()
            }
        }
    }
}

/// Reads an entry of `properties`; its default determines its kind.
fn property(entry: &LuaTable) -> Result<&'static Property, String> {
    let text = |key: &str| entry.get::<Option<String>>(key).map_err(|_| format!("'{key}' must be a text"));
    let name = text("name")?.filter(|name| !name.is_empty()).ok_or("an entry has no name")?;
    let of = |problem: String| format!("'{name}': {problem}");
    let meaning = text("meaning")?.ok_or_else(|| of("has no meaning: say what it does".into()))?;
    let bound =
        |key: &str| entry.get::<Option<f64>>(key).map_err(|_| of(format!("'{key}' must be a number")));
    let (min, max) = (bound("min")?, bound("max")?);
    let words =
        entry.get::<Option<Vec<String>>>("choices").map_err(|_| of("'choices' must be texts".into()))?;
    let default: LuaValue = entry.get("default").unwrap_or(LuaValue::Nil);
    let kind = match (&default, words) {
        (LuaValue::String(_), Some(words)) if !words.is_empty() => {
            let words: Vec<&'static str> = words.iter().map(|word| keep_text(word)).collect();
            Kind::Choice(keep(words).as_slice())
        }
        (LuaValue::Boolean(_), None) => Kind::Flag,
        (LuaValue::Integer(_), None) => {
            Kind::Count { min: min.map_or(0, |min| min as u64), max: max.map_or(u64::MAX, |max| max as u64) }
        }
        (LuaValue::Number(_), None) => {
            Kind::Number { min: min.unwrap_or(f64::NEG_INFINITY), max: max.unwrap_or(f64::INFINITY) }
        }
        (LuaValue::String(_), None) => Kind::Text,
        _ => {
            return Err(of(
                "its default must be a number, a text or true or false (a text with 'choices')".into()
            ));
        }
    };
    let default = default.to_string().map_err(|error| of(error.to_string()))?;
    let made = Property {
        unit: keep_text(&text("unit")?.unwrap_or_default()),
        ..Property::serval(keep_text(&name), kind, keep_text(&meaning)).default(keep_text(&default))
    };
    // The default must be a valid value.
    let mut properties = Properties::new();
    properties.set(&name, &default, Origin::Program("its default"));
    let mut reader = Reader::new(&properties);
    property_value(&mut reader, &made);
    reader.finish().map_err(|faults| faults.to_string())?;
    Ok(keep(made))
}

/// Checks names of transactions: in results they appear beside the verbs, with
/// prefixes and suffixes.
fn check_transactions(names: &[String], faults: &mut Vec<String>) {
    if names.len() > Metric::CUSTOM_MAX {
        faults.push(format!(
            "'transactions' names {}; a script may have {}",
            names.len(),
            Metric::CUSTOM_MAX
        ));
    }
    let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-' || c == '_';
    for (index, name) in names.iter().enumerate() {
        let taken =
            Metric::all().any(|metric| metric.name(&[]) == name) || name == "OVERALL" || name == "TOTAL";
        let problem = if name.is_empty() || name.len() > NAME_LENGTH_MAX || !name.chars().all(plain) {
            format!("must have 1 to {NAME_LENGTH_MAX} of A to Z, 0 to 9, - and _")
        } else if taken || name.ends_with("-FAILED") {
            "is a name that Serval uses in results".to_owned()
        } else if names[..index].contains(name) {
            "is declared twice".to_owned()
        } else {
            continue;
        };
        faults.push(format!("'transactions': '{name}' {problem}"));
    }
}
