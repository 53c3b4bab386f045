//! The definition of a property: name, meaning, unit, default, source and
//! kind. Parsing, validation, `serval properties` and the docs all derive from
//! these tables.

/// How the value of a property is parsed, and the values allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A file or folder.
    Path,
    /// `true` or `false`, in any case; see [`Property::ycsb_word`].
    Flag,
    /// A whole number within bounds, in 64 bits.
    Count {
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// A real number within bounds.
    Number {
        /// Smallest value allowed.
        min: f64,
        /// Largest value allowed.
        max: f64,
    },
    /// Bytes: a bare number, or one with a unit such as `KiB` or `MB`.
    Size,
    /// A duration: a bare number in the property's unit, or one with `ns`, `us`,
    /// `ms`, `s`, `m`, `h`, `d`.
    Duration {
        /// Length of a bare number's unit, ns.
        bare_ns: u64,
    },
    /// One of a list of words.
    Choice(&'static [&'static str]),
    /// Numbers separated by commas.
    Numbers,
    /// Names separated by commas.
    Names,
}

impl Kind {
    /// Any whole number.
    pub const COUNT: Kind = Kind::Count { min: 0, max: u64::MAX };
    /// A whole number above zero.
    pub const POSITIVE: Kind = Kind::Count { min: 1, max: u64::MAX };
    /// A number from 0 to 1.
    pub const FRACTION: Kind = Kind::Number { min: 0.0, max: 1.0 };
    /// A duration whose bare numbers are seconds, as in YCSB.
    pub const SECONDS: Kind = Kind::Duration { bare_ns: 1_000_000_000 };
    /// A duration whose bare numbers are milliseconds.
    pub const MILLISECONDS: Kind = Kind::Duration { bare_ns: 1_000_000 };
    /// A duration whose bare numbers are microseconds.
    pub const MICROSECONDS: Kind = Kind::Duration { bare_ns: 1_000 };

    /// Returns a description of the values allowed, for help texts.
    pub fn describe(self) -> String {
        match self {
            Kind::Text => "text".into(),
            Kind::Path => "a path".into(),
            Kind::Flag => "true or false".into(),
            Kind::Count { min: 0, max: u64::MAX } => "a whole number".into(),
            Kind::Count { min, max: u64::MAX } => format!("a whole number, {min} or more"),
            Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Number { min, max } => match (min.is_finite(), max.is_finite()) {
                (true, true) => format!("a number from {min} to {max}"),
                (true, false) => format!("a number, {min} or more"),
                _ => "a number".into(),
            },
            Kind::Size => "a size (100, 64KiB, 1GB)".into(),
            Kind::Duration { .. } => "a time span (10, 250ms, 10m)".into(),
            Kind::Choice(words) => words.join(" | "),
            Kind::Numbers => "numbers separated by commas".into(),
            Kind::Names => "names separated by commas".into(),
        }
    }
}

/// Origin of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertySource {
    /// YCSB's property, with its name, meaning and default.
    Ycsb,
    /// Serval's own property.
    Serval,
    /// YCSB's property, accepted for the sake of its files and without effect.
    Ignored,
}

impl PropertySource {
    /// Returns the name that help texts show.
    pub fn name(self) -> &'static str {
        match self {
            PropertySource::Ycsb => "YCSB",
            PropertySource::Serval => "Serval",
            PropertySource::Ignored => "YCSB (no effect in Serval)",
        }
    }
}

/// The definition of a property.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Property {
    /// Its name.
    pub name: &'static str,
    /// Other names of the same property.
    pub aliases: &'static [&'static str],
    /// How its value is parsed.
    pub kind: Kind,
    /// Value if the property is not set; `None` if there is no default.
    pub default: Option<&'static str>,
    /// Unit of a bare number; empty if there is none.
    pub unit: &'static str,
    /// Its origin.
    pub source: PropertySource,
    /// Its effect, in a sentence or two.
    pub meaning: &'static str,
}

/// A word that YCSB's `Boolean.parseBoolean` reads as false, as it does all words but `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum YcsbWord {
    /// A word for false, such as `no`.
    No,
    /// A word for true, such as `yes`, that YCSB reads as false.
    Yes,
}

impl Property {
    /// Returns the class of a word other than `true` and `false`, if this is a flag of YCSB's and
    /// the word occurs in YCSB's files. Other words are misspelled.
    pub fn ycsb_word(&self, text: &str) -> Option<YcsbWord> {
        let is_one_of = |words: [&str; 4]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
        match (self.source, self.kind) {
            (PropertySource::Ycsb, Kind::Flag) if is_one_of(["n", "no", "0", "off"]) => Some(YcsbWord::No),
            (PropertySource::Ycsb, Kind::Flag) if is_one_of(["y", "yes", "1", "on"]) => Some(YcsbWord::Yes),
            _ => None,
        }
    }

    /// Returns a property of YCSB's.
    pub const fn ycsb(name: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Property { name, aliases: &[], kind, default: None, unit: "", source: PropertySource::Ycsb, meaning }
    }

    /// Returns a property of Serval's own.
    pub const fn serval(name: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Property { source: PropertySource::Serval, ..Self::ycsb(name, kind, meaning) }
    }

    /// Returns a property of YCSB's that is accepted without effect.
    pub const fn ignored(name: &'static str, meaning: &'static str) -> Self {
        Property { source: PropertySource::Ignored, ..Self::ycsb(name, Kind::Text, meaning) }
    }

    /// Sets the default.
    #[must_use]
    pub const fn default(self, text: &'static str) -> Self {
        Property { default: Some(text), ..self }
    }

    /// Sets the unit of bare numbers.
    #[must_use]
    pub const fn unit(self, unit: &'static str) -> Self {
        Property { unit, ..self }
    }

    /// Sets other names of the same property.
    #[must_use]
    pub const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Property { aliases, ..self }
    }
}

/// The properties of one part of the program, under one heading.
#[derive(Debug, Clone, Copy)]
pub struct PropertyTable {
    /// The part: "client", "core workload", "redis", ...
    pub heading: &'static str,
    /// The properties, in the order of help texts.
    pub properties: &'static [&'static Property],
}

/// All property tables of a command.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    tables: Vec<PropertyTable>,
}

impl Catalog {
    /// Returns a catalog of tables. Several tables may contain the same property.
    pub fn new(tables: impl IntoIterator<Item = PropertyTable>) -> Self {
        Catalog { tables: tables.into_iter().collect() }
    }

    /// The tables.
    pub fn tables(&self) -> &[PropertyTable] {
        &self.tables
    }

    /// Returns every property once.
    pub fn properties(&self) -> impl Iterator<Item = &'static Property> + '_ {
        let mut seen = std::collections::HashSet::new();
        self.tables
            .iter()
            .flat_map(|table| table.properties.iter().copied())
            .filter(move |property| seen.insert(property.name))
    }

    /// Returns the property with this name or alias. A property whose name ends in
    /// `.*` matches all names with that prefix.
    pub fn find(&self, name: &str) -> Option<&'static Property> {
        self.properties().find(|p| {
            let family = p.name.strip_suffix('*').is_some_and(|family| name.starts_with(family));
            p.name == name || family || p.aliases.contains(&name)
        })
    }

    /// Returns the known name nearest to an unknown one, if at most `edits` single-character
    /// edits (insertions, deletions, substitutions) away.
    pub fn nearest(&self, name: &str, edits: usize) -> Option<&'static str> {
        self.properties()
            .flat_map(|p| std::iter::once(p.name).chain(p.aliases.iter().copied()))
            .map(|known| (strsim::levenshtein(name, known), known))
            .filter(|(distance, _)| *distance <= edits)
            .min()
            .map(|(_, known)| known)
    }
}
