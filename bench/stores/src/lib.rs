//! Who is asked: one module a store, behind [`serval_model::Store`].
//!
//! A store is known by its [`StoreInfo`]; [`open`] hands the store of a name
//! to a [`Visitor`], which is compiled once a store, so that nothing is
//! dispatched dynamically on the measured path.

pub mod basic;
#[cfg(feature = "cassandra")]
pub mod cassandra;
mod delay;
pub mod driver;
pub mod java;
pub mod memory;
pub mod noop;
pub mod redis;
pub mod sqlite;

use serval_model::{
    Store,
    properties::{Faults, Properties, Table},
};

/// What people are told of a store.
#[derive(Debug, Clone, Copy)]
pub struct StoreInfo {
    /// The name on the command line.
    pub name: &'static str,
    /// Other names (YCSB's, and the Java class that YCSB's `db` property carries).
    pub aliases: &'static [&'static str],
    /// One line.
    pub summary: &'static str,
    /// How records are laid out, what the verbs are mapped to, what to know.
    pub details: &'static str,
    /// Whether it takes the points and queries of time series as they are
    /// meant. Other stores take them for records with odd fields.
    pub time_series: bool,
    /// Its properties.
    pub properties: Table,
}

impl StoreInfo {
    /// Whether properties that Serval does not know may be known to the store:
    /// drivers are passed all of them.
    pub fn passes_on(&self) -> bool {
        self.properties.properties.iter().any(|property| property.name == driver::TIMEOUT.name)
    }
}

/// Does something with a store of whatever type.
pub trait Visitor {
    /// What comes of it.
    type Output;
    /// Does it.
    fn visit<S: Store>(self, store: S) -> Self::Output;
}

/// Makes [`STORES`] and [`open`] from one list, so that a store cannot be in
/// one and not in the other. A store's module has an `INFO`, and its type an
/// `open(&Properties) -> Result<Self, Faults>`. A store behind a feature has
/// its `#[cfg]` here, before its module above, and a line in [`OPTIONAL`].
macro_rules! stores {
    ($($(#[$condition:meta])* $module:ident :: $store:ident),+ $(,)?) => {
        /// Every store of this build, in the order in which help lists them.
        pub const STORES: &[StoreInfo] = &[$($(#[$condition])* $module::INFO),+];

        /// Opens the store of a name or alias with its properties and hands it
        /// to the visitor. Faults are those of the properties; whether a server
        /// answers shows when the store is prepared or a client connects.
        pub fn open<V: Visitor>(
            name: &str,
            properties: &Properties,
            visitor: V,
        ) -> Result<V::Output, Faults> {
            if let Some(info) = find(name) {
                $($(#[$condition])* {
                    if info.name == $module::INFO.name {
                        return Ok(visitor.visit($module::$store::open(properties)?));
                    }
                })+
            }
            Err(Faults::one(unknown(name)))
        }
    };
}

stores! {
    noop::Noop,
    basic::Basic,
    memory::Memory,
    sqlite::Sqlite,
    redis::Redis,
    #[cfg(feature = "cassandra")]
    cassandra::Cassandra,
    driver::Driver,
    java::Java,
}

/// A store that is in a build only if asked for.
#[derive(Debug, Clone, Copy)]
pub struct Optional {
    /// The name on the command line.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// One line.
    pub summary: &'static str,
    /// The feature that brings it; `full` brings all.
    pub feature: &'static str,
}

/// The stores behind features, whether in this build or not.
pub const OPTIONAL: &[Optional] = &[Optional {
    name: "cassandra",
    aliases: CASSANDRA_ALIASES,
    summary: CASSANDRA_SUMMARY,
    feature: "cassandra",
}];

const CASSANDRA_ALIASES: &[&str] = &[
    "cassandra-cql",
    "scylla",
    "site.ycsb.db.CassandraCQLClient",
    "com.yahoo.ycsb.db.CassandraCQLClient",
    "site.ycsb.db.scylla.ScyllaCQLClient",
];
const CASSANDRA_SUMMARY: &str = "Cassandra or ScyllaDB, over CQL";

/// The stores that this build could have and has not.
pub fn absent() -> impl Iterator<Item = &'static Optional> {
    OPTIONAL.iter().filter(|optional| !STORES.iter().any(|info| info.name == optional.name))
}

/// The command that builds a store in.
pub fn build_command(optional: &Optional) -> String {
    format!("cargo build --release --features {}", optional.feature)
}

/// The store of a name or alias.
pub fn find(name: &str) -> Option<&'static StoreInfo> {
    STORES.iter().find(|info| info.name == name || info.aliases.contains(&name))
}

/// What to tell someone who named a store that there is not: how to build it
/// in, or the names that there are, and the nearest one or alias if it is near
/// enough to be meant.
pub fn unknown(name: &str) -> String {
    if let Some(optional) = absent().find(|absent| absent.name == name || absent.aliases.contains(&name)) {
        let command = build_command(optional);
        return format!("the store '{}' is not in this build: {command} (or --features full)", optional.name);
    }
    let lower = name.to_lowercase();
    let names = STORES.iter().flat_map(|info| std::iter::once(&info.name).chain(info.aliases));
    // A third of the letters may be wrong; more would suggest any word.
    let nearest = names
        .map(|known| (strsim::damerau_levenshtein(&lower, &known.to_lowercase()), known))
        .filter(|(edits, known)| *edits <= (known.chars().count() / 3).max(1))
        .min();
    let hint = nearest.map(|(_, known)| format!("did you mean '{known}'? ")).unwrap_or_default();
    let known: Vec<&str> = STORES.iter().map(|info| info.name).collect();
    format!("unknown store '{name}': {hint}Stores of this build: {}", known.join(", "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failure is what a test is for")]
mod tests {
    use super::*;
    use serval_model::properties::{Origin, Source};
    use std::collections::HashSet;

    struct Describe;
    impl Visitor for Describe {
        type Output = Vec<(String, String)>;
        fn visit<S: Store>(self, store: S) -> Self::Output {
            store.describe()
        }
    }

    static JAVA_DRIVER: std::sync::LazyLock<tempfile::TempDir> =
        std::sync::LazyLock::new(|| tempfile::tempdir().unwrap());

    /// What a store cannot do without.
    fn wanted(info: &StoreInfo) -> Properties {
        let mut properties = Properties::new();
        let settings: &[(&str, &str)] = match info.name {
            "driver" => &[("driver.command", "true")],
            "java" => {
                let folder = JAVA_DRIVER.path();
                std::fs::write(folder.join("serval-java-driver.jar"), "").unwrap();
                properties.set("java.driver", folder.to_string_lossy(), Origin::Program("test"));
                &[("java.class", "X"), ("java.program", "/bin/sh")]
            }
            _ => &[],
        };
        for (name, value) in settings {
            properties.set(*name, *value, Origin::Program("test"));
        }
        properties
    }

    #[test]
    fn every_store_listed_opens_by_its_name_and_aliases() {
        for info in STORES {
            for name in std::iter::once(&info.name).chain(info.aliases) {
                assert!(open(name, &wanted(info), Describe).is_ok(), "{name}");
            }
        }
    }

    #[test]
    fn no_name_means_two_stores() {
        let mut seen = HashSet::new();
        for info in STORES {
            for name in std::iter::once(&info.name).chain(info.aliases) {
                assert!(seen.insert(*name), "'{name}' twice");
            }
        }
    }

    #[test]
    fn a_store_s_properties_carry_its_name_or_ycsbs_and_their_defaults_are_valid() {
        for info in STORES {
            let mut properties = wanted(info);
            for property in info.properties.properties {
                let named = property.name.starts_with(&format!("{}.", info.name))
                    || (info.passes_on() && property.name.starts_with("driver."));
                assert!(named || property.source == Source::Ycsb, "{}", property.name);
                assert!(!property.meaning.is_empty());
                if let Some(text) = property.default {
                    properties.set(property.name, text, Origin::Program("test"));
                }
            }
            assert!(open(info.name, &properties, Describe).is_ok(), "{}", info.name);
        }
    }

    #[test]
    fn an_unknown_store_is_told_the_known_ones_and_the_nearest() {
        let words = |name: &str| open(name, &Properties::new(), Describe).unwrap_err().to_string();
        assert!(words("sqlit").contains("unknown store 'sqlit': did you mean 'sqlite'?"));
        assert!(words("SQLITE").contains("did you mean 'sqlite'?"));
        assert!(words("memroy").contains("did you mean 'memory'?"));
        let foreign = words("oracle");
        assert!(!foreign.contains("did you mean"), "{foreign}");
        assert!(foreign.contains("noop, basic, memory, sqlite"), "{foreign}");
        assert!(!words("").contains("did you mean"));
    }
}
