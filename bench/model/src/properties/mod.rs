//! Properties: where they come from, which one wins, and how they are read.
//!
//! Precedence is YCSB's: of several files the later wins; what the command
//! line says (`-p`, `-threads`, ...) wins over every file, wherever it
//! stands, and of two the later.

pub mod java;
mod reader;
mod table;
pub mod units;

pub use reader::Reader;
pub use table::{Catalog, Kind, Property, PropertySource, Table, YcsbWord};

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

/// Largest property file that is read; a workload file has a few KiB.
pub const FILE_SIZE_MAX: u64 = 16 << 20;

/// Who set a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file.
    File {
        /// The file, as it was named.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The command line, by this flag.
    CommandLine(String),
    /// The program itself, for this reason.
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

/// A value and who set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The text.
    pub value: String,
    /// Who set it.
    pub origin: Origin,
}

/// One thing wrong with a configuration: what, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where, if it can be said.
    pub origin: Option<Origin>,
    /// What is wrong and what to do.
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

/// Everything wrong with a configuration, at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// A single fault without a place.
    pub fn one(problem: impl Into<String>) -> Self {
        Faults(vec![Fault { origin: None, problem: problem.into() }])
    }

    /// Adds the faults that are not here yet: two looks at the same properties repeat some.
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

    /// Adds the faults of a result. Returns its value, if it has one.
    pub fn take<T>(&mut self, result: Result<T, Faults>) -> Option<T> {
        result.map_err(|more| self.0.extend(more.0)).ok()
    }

    /// Changes each fault.
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

/// What is the matter with the name of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// Accepted, and without effect.
    Ignored,
    /// Known, with a word that says yes and that YCSB reads as false.
    ReadAsFalse,
    /// Unknown, and within two edits of a known name.
    Slip,
    /// Unknown. YCSB's files carry the properties of other stores.
    Unknown,
}

/// A name that means nothing here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameFault {
    /// The name.
    pub name: String,
    /// What is the matter with it.
    pub kind: NameKind,
    /// The same in words.
    pub fault: Fault,
}

/// Names with their settings.
#[derive(Debug, Clone, Default)]
pub struct Properties {
    settings: BTreeMap<String, Setting>,
}

impl Properties {
    /// No properties.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a file and lets it win over what was there, except over the
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
        // What is no plain file, a pipe or a device, does not tell its length.
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(|e| fault(format!("cannot be read: {e}")))?;
        std::io::Read::read_to_end(&mut std::io::Read::take(file, FILE_SIZE_MAX + 1), &mut bytes)
            .map_err(|e| fault(format!("cannot be read: {e}")))?;
        if bytes.len() as u64 > FILE_SIZE_MAX {
            return Err(fault(format!("is longer than {FILE_SIZE_MAX} bytes, the most of a property file")));
        }
        self.load(&bytes, path)
    }

    /// As [`load_file`](Self::load_file), from bytes that came from `path`.
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

    /// The setting of this name, aliases not considered.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.settings.get(name)
    }

    /// Removes a setting.
    pub fn remove(&mut self, name: &str) -> Option<Setting> {
        self.settings.remove(name)
    }

    /// The setting of a property, by its name or an alias, and the name that
    /// was used. The command line wins over files, the name over an alias.
    pub fn setting(&self, property: &Property) -> Option<(&str, &Setting)> {
        let candidates = std::iter::once(property.name).chain(property.aliases.iter().copied());
        let found = candidates.filter_map(|name| {
            self.settings.get_key_value(name).map(|(name, setting)| (name.as_str(), setting))
        });
        // `min_by_key` keeps the first of equals, which is the name itself.
        found.min_by_key(|(_, s)| !matches!(s.origin, Origin::CommandLine(_)))
    }

    /// A fault at the place where a property was set, if it was.
    pub fn fault_of(&self, property: &Property, problem: impl Into<String>) -> Fault {
        let origin = self.setting(property).map(|(_, setting)| setting.origin.clone());
        Fault { origin, problem: problem.into() }
    }

    /// Whether a property was given.
    pub fn has(&self, property: &Property) -> bool {
        self.setting(property).is_some()
    }

    /// All settings by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.settings.iter().map(|(name, setting)| (name.as_str(), setting))
    }

    /// Finds names that are accepted without effect, names that no table knows, and
    /// words that say yes where YCSB reads false. Names in `elsewhere` are known to belong to other programs and are
    /// never slips.
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
            // Two edits of a name of two letters would be any word.
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
