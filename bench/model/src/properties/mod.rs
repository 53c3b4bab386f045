//! Properties: their sources, their precedence and their parsing.
//!
//! Precedence is YCSB's. A later file overrides an earlier one. The command
//! line (`-p`, `-threads`, ...) overrides every file, whatever the order of
//! arguments, and a later argument overrides an earlier one.

pub mod java;
mod reader;
mod table;
pub mod units;

pub use reader::Reader;
pub use table::{Catalog, Kind, Property, PropertySource, PropertyTable, YcsbWord};

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

/// Most bytes of a property file; a workload file has a few KiB.
pub const FILE_SIZE_MAX: u64 = 16 << 20;

/// Source of a property's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file.
    File {
        /// The path, as the user gave it.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// A flag of the command line.
    CommandLine(String),
    /// The program itself, with its reason.
    Program(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::CommandLine(flag) => write!(f, "command line ({flag})"),
            Origin::Program(why) => f.write_str(why),
        }
    }
}

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The value as text.
    pub value: String,
    /// Its source.
    pub origin: Origin,
}

/// A fault of a configuration: the problem, its place and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its place, if known.
    pub origin: Option<Origin>,
    /// The problem and the remedy.
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "{origin}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

/// All faults of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// Returns a single fault without a place.
    pub fn one(problem: impl Into<String>) -> Self {
        Faults(vec![Fault { origin: None, problem: problem.into() }])
    }

    /// Adds faults that are not yet present: checks that read the same properties repeat some.
    pub fn add_new(&mut self, more: Faults) {
        for fault in more.0 {
            if !self.0.contains(&fault) {
                self.0.push(fault);
            }
        }
    }

    /// Adds a fault without a place.
    pub fn push(&mut self, problem: impl Into<String>) {
        self.0.push(Fault { origin: None, problem: problem.into() });
    }

    /// Adds the faults of a result. Returns its value, if there is one.
    pub fn take<T>(&mut self, result: Result<T, Faults>) -> Option<T> {
        result.map_err(|more| self.0.extend(more.0)).ok()
    }

    /// Applies a function to each fault.
    pub fn map(self, change: impl FnMut(Fault) -> Fault) -> Faults {
        Faults(self.0.into_iter().map(change).collect())
    }

    /// Returns the value if there are no faults.
    ///
    /// # Errors
    ///
    /// These faults.
    pub fn or<T>(self, value: T) -> Result<T, Faults> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Kind of a fault in the name of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// Accepted without effect.
    Ignored,
    /// Known flag with a value such as `yes`, which YCSB reads as false.
    ReadAsFalse,
    /// Unknown, within two edits of a known name.
    Slip,
    /// Unknown. YCSB's files contain properties of other stores.
    Unknown,
}

/// A property name without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameFault {
    /// The name.
    pub name: String,
    /// Kind of the fault.
    pub kind: NameKind,
    /// The fault's text and place.
    pub fault: Fault,
}

/// Names with their settings.
#[derive(Debug, Clone, Default)]
pub struct Properties {
    settings: BTreeMap<String, Setting>,
}

impl Properties {
    /// Returns an empty set of properties.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a file. Its values override earlier ones, except those of the
    /// command line.
    pub fn load_file(&mut self, path: &Path) -> Result<(), Faults> {
        let fault = |problem: String| Faults::one(format!("{}: {problem}", path.display()));
        let metadata = std::fs::metadata(path).map_err(|e| {
            fault(format!(
                "cannot be read: {e}. Is the path right? 'serval workloads workloada' prints a ready-made workload"
            ))
        })?;
        if metadata.is_dir() {
            return Err(fault("is a folder, not a property file".into()));
        }
        // The length of a pipe or device is not known before it is read.
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(|e| fault(format!("cannot be read: {e}")))?;
        std::io::Read::read_to_end(&mut std::io::Read::take(file, FILE_SIZE_MAX + 1), &mut bytes)
            .map_err(|e| fault(format!("cannot be read: {e}")))?;
        if bytes.len() as u64 > FILE_SIZE_MAX {
            return Err(fault(format!("is longer than {FILE_SIZE_MAX} bytes, the most of a property file")));
        }
        self.load(&bytes, path)
    }

    /// Like [`load_file`](Self::load_file), for bytes read from `path`.
    pub fn load(&mut self, bytes: &[u8], path: &Path) -> Result<(), Faults> {
        let entries = java::parse(bytes).map_err(|errors| {
            Faults(
                errors
                    .into_iter()
                    .map(|e| Fault {
                        origin: Some(Origin::File { path: path.to_owned(), line: e.line }),
                        problem: e.problem,
                    })
                    .collect(),
            )
        })?;
        for java::JavaProperty { line, key, value } in entries {
            let origin = Origin::File { path: path.to_owned(), line };
            let kept = self.settings.get(&key);
            if !matches!(kept, Some(Setting { origin: Origin::CommandLine(_), .. })) {
                self.settings.insert(key, Setting { value, origin });
            }
        }
        Ok(())
    }

    /// Sets a property.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>, origin: Origin) {
        self.settings.insert(name.into(), Setting { value: value.into(), origin });
    }

    /// Returns the setting of this name. Aliases do not count.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.settings.get(name)
    }

    /// Removes a setting.
    pub fn remove(&mut self, name: &str) -> Option<Setting> {
        self.settings.remove(name)
    }

    /// Returns the setting of a property, by its name or an alias, and the name
    /// used. The command line overrides files; the name overrides an alias.
    pub fn setting(&self, property: &Property) -> Option<(&str, &Setting)> {
        let candidates = std::iter::once(property.name).chain(property.aliases.iter().copied());
        let found = candidates.filter_map(|name| {
            self.settings.get_key_value(name).map(|(name, setting)| (name.as_str(), setting))
        });
        // `min_by_key` keeps the first of equals, which is the name itself.
        found.min_by_key(|(_, s)| !matches!(s.origin, Origin::CommandLine(_)))
    }

    /// Returns a fault at the place where a property was set, if it was.
    pub fn fault_of(&self, property: &Property, problem: impl Into<String>) -> Fault {
        let origin = self.setting(property).map(|(_, setting)| setting.origin.clone());
        Fault { origin, problem: problem.into() }
    }

    /// Whether a property was given.
    pub fn has(&self, property: &Property) -> bool {
        self.setting(property).is_some()
    }

    /// All settings, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.settings.iter().map(|(name, setting)| (name.as_str(), setting))
    }

    /// Returns faults for names that are accepted without effect, unknown names,
    /// and flags with a value such as `yes`, which YCSB reads as false. Names in
    /// `elsewhere` belong to other programs and are never reported as misspelled.
    pub fn check_names(&self, catalog: &Catalog, elsewhere: &[&str]) -> Vec<NameFault> {
        let mut found = Vec::new();
        let mut note = |name: &str, setting: &Setting, kind, problem| {
            let fault = Fault { origin: Some(setting.origin.clone()), problem };
            found.push(NameFault { name: name.to_owned(), kind, fault });
        };
        for (name, setting) in &self.settings {
            if let Some(property) = catalog.find(name) {
                if property.source == PropertySource::Ignored {
                    let problem = format!("'{name}' has no effect in Serval: {}", property.meaning);
                    note(name, setting, NameKind::Ignored, problem);
                }
                if property.ycsb_word(setting.value.trim()) == Some(YcsbWord::Yes) {
                    let value = &setting.value;
                    let problem =
                        format!("{name}={value}: false, as in YCSB, which takes only 'true' for true");
                    note(name, setting, NameKind::ReadAsFalse, problem);
                }
                continue;
            }
            // Two edits turn a name of two letters into any other.
            let edits = 2.min(name.chars().count().saturating_sub(1));
            let foreign = elsewhere.contains(&name.as_str());
            let near = if foreign { None } else { catalog.nearest(name, edits) };
            let hint = near.map_or_else(
                || "no part of Serval reads it; 'serval properties' lists what there is".to_owned(),
                |known| format!("did you mean '{known}'?"),
            );
            let kind = if near.is_some() { NameKind::Slip } else { NameKind::Unknown };
            note(name, setting, kind, format!("unknown property '{name}': {hint}"));
        }
        found
    }
}
