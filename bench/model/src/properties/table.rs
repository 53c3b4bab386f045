//! A property's one home: name, meaning, unit, default, source and how its
//! text is read. Parsing, validation, `serval properties` and the docs are
//! all made from these tables.

/// How the text of a property is read and what values are allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A file or folder.
    Path,
    /// `true` or `false`, in any case; see [`Property::ycsb_word`].
    Flag,
    /// A whole number within bounds, 64 bits.
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
    /// Bytes: a bare number, or one with `KiB`, `MB`, ...
    Size,
    /// A span of time: a bare number in the property's unit, or one with
    /// `ns`, `us`, `ms`, `s`, `m`, `h`, `d`.
    Duration {
        /// Nanoseconds that a bare number counts.
        bare_ns: u64,
    },
    /// One of some words.
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
    /// A span whose bare numbers are seconds, as YCSB's are.
    pub const SECONDS: Kind = Kind::Duration { bare_ns: 1_000_000_000 };
    /// A span whose bare numbers are milliseconds.
    pub const MILLISECONDS: Kind = Kind::Duration { bare_ns: 1_000_000 };
    /// A span whose bare numbers are microseconds.
    pub const MICROSECONDS: Kind = Kind::Duration { bare_ns: 1_000 };

    /// What is allowed, in words for help texts.
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

/// Where a property comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertySource {
    /// YCSB's, with its name, meaning and default.
    Ycsb,
    /// Serval's own.
    Serval,
    /// YCSB's, accepted so that its files work, but without effect here.
    Ignored,
}

impl PropertySource {
    /// The name shown to people.
    pub fn name(self) -> &'static str {
        match self {
            PropertySource::Ycsb => "YCSB",
            PropertySource::Serval => "Serval",
            PropertySource::Ignored => "YCSB (no effect in Serval)",
        }
    }
}

/// One property.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Property {
    /// Its name.
    pub name: &'static str,
    /// Other names that mean the same.
    pub aliases: &'static [&'static str],
    /// How its text is read.
    pub kind: Kind,
    /// The text that holds when it is not given; `None` when there is none.
    pub default: Option<&'static str>,
    /// The unit of a bare number; empty when there is none.
    pub unit: &'static str,
    /// Where it comes from.
    pub source: PropertySource,
    /// What it does, in a sentence or two.
    pub meaning: &'static str,
}

/// A word that YCSB's `Boolean.parseBoolean` reads as false, as it reads all but `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum YcsbWord {
    /// Says no, and is false.
    No,
    /// Says yes, and is false all the same.
    Yes,
}

impl Property {
    /// What a word other than `true` and `false` says as the value of this property, if it is
    /// one that YCSB's files have and this is a flag of YCSB's. Other words are slips.
    pub fn ycsb_word(&self, text: &str) -> Option<YcsbWord> {
        let is_one_of = |words: [&str; 4]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
        match (self.source, self.kind) {
            (PropertySource::Ycsb, Kind::Flag) if is_one_of(["n", "no", "0", "off"]) => Some(YcsbWord::No),
            (PropertySource::Ycsb, Kind::Flag) if is_one_of(["y", "yes", "1", "on"]) => Some(YcsbWord::Yes),
            _ => None,
        }
    }

    /// A property of YCSB's.
    pub const fn ycsb(name: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Property { name, aliases: &[], kind, default: None, unit: "", source: PropertySource::Ycsb, meaning }
    }

    /// A property of Serval's own.
    pub const fn serval(name: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Property { source: PropertySource::Serval, ..Self::ycsb(name, kind, meaning) }
    }

    /// A property of YCSB's that is accepted and has no effect.
    pub const fn ignored(name: &'static str, meaning: &'static str) -> Self {
        Property { source: PropertySource::Ignored, ..Self::ycsb(name, Kind::Text, meaning) }
    }

    /// With a default.
    #[must_use]
    pub const fn default(self, text: &'static str) -> Self {
        Property { default: Some(text), ..self }
    }

    /// With a unit for bare numbers.
    #[must_use]
    pub const fn unit(self, unit: &'static str) -> Self {
        Property { unit, ..self }
    }

    /// With other names that mean the same.
    #[must_use]
    pub const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Property { aliases, ..self }
    }
}

/// The properties of one part of the program, under a heading.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// What they belong to: "client", "core workload", "redis", ...
    pub heading: &'static str,
    /// The properties, in the order in which help shows them.
    pub properties: &'static [&'static Property],
}

/// All tables that a command knows.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    tables: Vec<Table>,
}

impl Catalog {
    /// A catalog of tables; a property may stand in several.
    pub fn new(tables: impl IntoIterator<Item = Table>) -> Self {
        Catalog { tables: tables.into_iter().collect() }
    }

    /// The tables.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Every property once.
    pub fn properties(&self) -> impl Iterator<Item = &'static Property> + '_ {
        let mut seen = std::collections::HashSet::new();
        self.tables
            .iter()
            .flat_map(|table| table.properties.iter().copied())
            .filter(move |property| seen.insert(property.name))
    }

    /// The property of this name or alias. A property whose name ends in `.*`
    /// stands for all names that begin so.
    pub fn find(&self, name: &str) -> Option<&'static Property> {
        self.properties().find(|p| {
            let family = p.name.strip_suffix('*').is_some_and(|family| name.starts_with(family));
            p.name == name || family || p.aliases.contains(&name)
        })
    }

    /// The known name nearest to an unknown one, if at most `edits` single-character
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
