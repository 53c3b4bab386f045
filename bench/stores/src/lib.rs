//! Bindings of stores: one module per store, each an implementation of
//! [`serval_model::Store`].
//!
//! [`StoreInfo`] describes a store. [`open`] passes a store to a [`Visitor`], which is
//! compiled once per store, so that the measured path has no dynamic dispatch.

pub mod accumulo;
pub mod basic;
#[cfg(feature = "cassandra")]
pub mod cassandra;
mod columns;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "fjall")]
pub mod fjall;
mod framed;
pub mod hbase;
pub mod java;
mod jdbc;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "memcached")]
pub mod memcached;
pub mod memory;
#[cfg(feature = "mongodb")]
pub mod mongodb;
#[cfg(feature = "mysql")]
pub mod mysql;
pub mod noop;
pub mod optional;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg_attr(
    not(all(feature = "cassandra", feature = "mysql")),
    allow(dead_code, reason = "each store uses other parts, these two all of them")
)]
mod reconnecting;
pub mod redis;
#[cfg(feature = "rest")]
pub mod rest;
pub mod sqlite;
pub mod yesquel_sql;
pub mod yesquel_tree;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use optional::{OPTIONAL, Optional};
pub use serval_model::{StoreInfo, Visitor};

use serval_driver as driver;
use serval_model::{
    StoreOpener,
    properties::{Faults, Origin, Properties},
};

/// Opens the store with this description by [`open`].
#[derive(Debug, Clone, Copy)]
pub struct Opener(pub &'static StoreInfo);

impl StoreOpener for Opener {
    fn info(&self) -> &'static StoreInfo {
        self.0
    }

    fn open<V: Visitor>(&self, properties: &Properties, visitor: V) -> Result<V::Output, Faults> {
        open(self.0.name, properties, visitor)
    }
}

/// Defines [`STORES`] and [`open`] from one list. A store's module has an `INFO`, and
/// its type a function `open(&Properties) -> Result<Self, Faults>`. A store behind a
/// feature has its `#[cfg]` here and at its module above, and an entry in
/// [`OPTIONAL`].
macro_rules! stores {
    ($($(#[$condition:meta])* $module:ident :: $store:ident),+ $(,)?) => {
        /// All stores of this build, in the order of the help.
        pub const STORES: &[StoreInfo] = &[$($(#[$condition])* $module::INFO),+];

        /// Opens the store with a name or alias and passes it to the visitor.
        /// Reports faults of the properties only: an unreachable server is an
        /// error of `prepare` or `connect`.
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
    yesquel_sql::YesquelSql,
    sqlite::Sqlite,
    redis::Redis,
    yesquel_tree::YesquelTree,
    driver::Driver,
    java::Java,
    hbase::Hbase,
    accumulo::Accumulo,
    #[cfg(feature = "cassandra")]
    cassandra::Cassandra,
    #[cfg(feature = "etcd")]
    etcd::Etcd,
    #[cfg(feature = "fjall")]
    fjall::Fjall,
    #[cfg(feature = "memcached")]
    memcached::Memcached,
    #[cfg(feature = "mongodb")]
    mongodb::Mongodb,
    #[cfg(feature = "mysql")]
    mysql::Mysql,
    #[cfg(feature = "postgres")]
    postgres::Postgres,
    #[cfg(feature = "rest")]
    rest::Rest,
    #[cfg(feature = "zookeeper")]
    zookeeper::Zookeeper,
}

/// Returns the stores that are not in this build.
pub fn absent() -> impl Iterator<Item = &'static Optional> {
    OPTIONAL.iter().filter(|optional| !STORES.iter().any(|info| info.name == optional.name))
}

/// Returns the command that builds Serval with a store.
pub fn build_command(optional: &Optional) -> String {
    format!("cargo build --release --features {}", optional.name)
}

/// Returns the store with a name or alias.
pub fn find(name: &str) -> Option<&'static StoreInfo> {
    STORES.iter().find(|info| info.name == name || info.aliases.contains(&name))
}

/// Returns the store for a command's name and properties. `jdbc` is the store of
/// `db.url`. A name of YCSB's that implies a setting sets it.
pub fn resolve(name: &str, properties: &mut Properties) -> Result<&'static StoreInfo, Faults> {
    let meant = if jdbc::NAMES.contains(&name) { jdbc::store(properties)? } else { name };
    let info = find(meant).ok_or_else(|| Faults::one(unknown(meant)))?;
    for (alias, property, value) in MEANING {
        if *alias == name && properties.get(property).is_none() {
            properties.set(*property, *value, Origin::Program("what YCSB's name of the store means"));
        }
    }
    Ok(info)
}

/// Aliases that imply a setting: property and value.
const MEANING: &[(&str, &str, &str)] = &[
    ("postgrenosql", "postgres.layout", "json"),
    ("site.ycsb.postgrenosql.PostgreNoSQLDBClient", "postgres.layout", "json"),
];

/// YCSB's names of RocksDB, for which Serval has no binding.
const KIN_OF_FJALL: &[&str] = &["rocksdb", "site.ycsb.db.rocksdb.RocksDBClient"];

/// YCSB's bindings that Serval lacks, by name and class. They run under the store
/// `java`.
const JAVA_ONLY: &[(&str, &str)] = &[
    ("aerospike", "site.ycsb.db.AerospikeClient"),
    ("arangodb", "site.ycsb.db.arangodb.ArangoDBClient"),
    ("arangodb3", "site.ycsb.db.arangodb.ArangoDBClient"),
    ("azurecosmos", "site.ycsb.db.AzureCosmosClient"),
    ("azuretablestorage", "site.ycsb.db.azuretablestorage.AzureClient"),
    ("cloudspanner", "site.ycsb.db.cloudspanner.CloudSpannerClient"),
    ("couchbase", "site.ycsb.db.CouchbaseClient"),
    ("couchbase2", "site.ycsb.db.couchbase2.Couchbase2Client"),
    ("crail", "site.ycsb.db.crail.CrailClient"),
    ("dynamodb", "site.ycsb.db.DynamoDBClient"),
    ("elasticsearch", "site.ycsb.db.ElasticsearchClient"),
    ("elasticsearch5", "site.ycsb.db.elasticsearch5.ElasticsearchClient"),
    ("elasticsearch5-rest", "site.ycsb.db.elasticsearch5.ElasticsearchRestClient"),
    ("foundationdb", "site.ycsb.db.foundationdb.FoundationDBClient"),
    ("geode", "site.ycsb.db.GeodeClient"),
    ("googlebigtable", "site.ycsb.db.GoogleBigtableClient"),
    ("googlebigtable2", "site.ycsb.db.GoogleBigtable2Client"),
    ("googledatastore", "site.ycsb.db.GoogleDatastoreClient"),
    ("ignite", "site.ycsb.db.ignite.IgniteClient"),
    ("ignite-sql", "site.ycsb.db.ignite.IgniteSqlClient"),
    ("infinispan", "site.ycsb.db.InfinispanClient"),
    ("infinispan-cs", "site.ycsb.db.InfinispanRemoteClient"),
    ("kudu", "site.ycsb.db.KuduYCSBClient"),
    ("nosqldb", "site.ycsb.db.NoSqlDbClient"),
    ("orientdb", "site.ycsb.db.OrientDBClient"),
    ("rados", "site.ycsb.db.RadosClient"),
    ("riak", "site.ycsb.db.riak.RiakKVClient"),
    ("s3", "site.ycsb.db.S3Client"),
    ("solr7", "site.ycsb.db.solr7.SolrClient"),
    ("tablestore", "site.ycsb.db.tablestore.TableStoreClient"),
    ("tarantool", "site.ycsb.db.TarantoolClient"),
    ("voltdb", "site.ycsb.db.voltdb.VoltClient4"),
];

/// Returns the message for an unknown store: how to build it in, or the known names
/// with a suggestion.
pub fn unknown(name: &str) -> String {
    if jdbc::NAMES.contains(&name) {
        return "the store 'jdbc' is the one that db.url names: postgres, mysql or sqlite".to_owned();
    }
    if let Some(optional) = absent().find(|absent| absent.name == name || absent.aliases.contains(&name)) {
        let command = build_command(optional);
        let wants = match optional.wants {
            "" => String::new(),
            wants => format!(". Its build wants {wants}"),
        };
        return format!(
            "the store '{}' is not in this build: {command} (or --features full){wants}",
            optional.name
        );
    }
    if KIN_OF_FJALL.contains(&name) {
        return format!(
            "there is no store '{name}': the embedded engine of its kind is 'fjall' (a database of its own, not \
             RocksDB's files); YCSB's own binding runs under the store 'java'"
        );
    }
    if let Some((known, class)) = JAVA_ONLY.iter().find(|(known, class)| *known == name || *class == name) {
        return format!(
            "there is no store '{known}', but YCSB's own binding of it runs under the store 'java': --class {class} \
             --classpath FOLDER, the folder of its jars (in YCSB's release {known}-binding/lib)"
        );
    }
    let lower = name.to_lowercase();
    let names = STORES.iter().flat_map(|info| std::iter::once(&info.name).chain(info.aliases));
    // A third of the letters may differ; more would match any word.
    let nearest = names
        .map(|known| (strsim::damerau_levenshtein(&lower, &known.to_lowercase()), known))
        .filter(|(edits, known)| *edits <= (known.chars().count() / 3).max(1))
        .min();
    // A name that is cut off: of stores that are not in this build too.
    let all = STORES.iter().map(|info| info.name).chain(absent().map(|absent| absent.name));
    let begun: Vec<String> = all
        .filter(|known| lower.len() > 1 && known.starts_with(&lower))
        .map(|known| format!("'{known}'"))
        .collect();
    let hint = match nearest {
        Some((_, known)) => format!("did you mean '{known}'? "),
        None if !begun.is_empty() => format!("did you mean {}? ", begun.join(" or ")),
        None => String::new(),
    };
    let known: Vec<&str> = STORES.iter().map(|info| info.name).collect();
    format!("unknown store '{name}': {hint}Stores of this build: {}", known.join(", "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use super::*;
    use serval_model::{
        Store,
        properties::{Property, PropertySource},
    };
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

    /// Returns a store's required properties.
    fn wanted(info: &StoreInfo) -> Properties {
        let mut properties = Properties::new();
        let settings: &[(&str, &str)] = match info.name {
            "driver" => &[("driver.command", "true")],
            "java" | "hbase" | "accumulo" => {
                let folder = JAVA_DRIVER.path();
                std::fs::write(folder.join(format!("serval-{}-driver.jar", info.name)), "").unwrap();
                properties.set(
                    format!("{}.driver", info.name),
                    folder.to_string_lossy(),
                    Origin::Program("test"),
                );
                &[
                    ("java.class", "X"),
                    ("java.program", "/bin/sh"),
                    ("accumulo.instanceName", "X"),
                    ("accumulo.zooKeepers", "X"),
                    ("accumulo.username", "X"),
                    ("accumulo.password", "X"),
                ]
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
    fn store_names_are_unique() {
        let mut seen = HashSet::new();
        for info in STORES {
            for name in std::iter::once(&info.name).chain(info.aliases) {
                assert!(seen.insert(*name), "'{name}' twice");
            }
        }
    }

    #[test]
    fn properties_have_the_stores_or_ycsbs_prefix_and_valid_defaults() {
        for info in STORES {
            let mut properties = wanted(info);
            // Properties of the write buffer are common to all stores.
            let general =
                |property: &&&Property| serval_wrappers::settings::PROPERTIES.properties.contains(*property);
            for property in info.properties.properties.iter().filter(|property| !general(property)) {
                let named = property.name.starts_with(&format!("{}.", info.name))
                    || (info.passes_on()
                        && ["driver.", "java."].iter().any(|start| property.name.starts_with(start)));
                assert!(named || property.source != PropertySource::Serval, "{}", property.name);
                assert!(!property.meaning.is_empty());
                if let Some(text) = property.default {
                    properties.set(property.name, text, Origin::Program("test"));
                }
            }
            assert!(open(info.name, &properties, Describe).is_ok(), "{}", info.name);
        }
    }

    #[test]
    fn the_url_selects_the_store_of_jdbc() {
        let resolved = |name: &str, url: &str| {
            let mut properties = Properties::new();
            properties.set("db.url", url, Origin::CommandLine("-p".into()));
            resolve(name, &mut properties).map(|info| info.name).map_err(|faults| faults.to_string())
        };
        for name in jdbc::NAMES {
            assert_eq!(resolved(name, "jdbc:sqlite:x.db").as_deref(), Ok("sqlite"));
            assert!(resolved(name, "jdbc:oracle:thin:@h").unwrap_err().contains("speaks jdbc:oracle"));
            for (url, store) in [("jdbc:postgresql://h/d", "postgres"), ("jdbc:mysql://h/d", "mysql")] {
                match resolved(name, url) {
                    Ok(found) => assert_eq!(found, store),
                    Err(words) => assert!(words.contains(&format!("--features {store}")), "{words}"),
                }
            }
        }
        // The URL does not affect other names.
        assert_eq!(resolved("noop", "jdbc:oracle:thin:@h").as_deref(), Ok("noop"));
        assert!(unknown("jdbc").contains("db.url"));
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn an_alias_with_a_setting_sets_it_unless_it_is_set() {
        let mut properties = Properties::new();
        assert_eq!(resolve("postgres", &mut properties).unwrap().name, "postgres");
        assert!(properties.get("postgres.layout").is_none());
        assert_eq!(resolve("postgrenosql", &mut properties).unwrap().name, "postgres");
        assert_eq!(properties.get("postgres.layout").unwrap().value, "json");
        properties.set("postgres.layout", "columns", Origin::CommandLine("-p".into()));
        resolve("postgrenosql", &mut properties).unwrap();
        assert_eq!(properties.get("postgres.layout").unwrap().value, "columns");
    }

    #[test]
    fn an_unknown_store_is_refused_with_the_known_names_and_the_nearest() {
        let words = |name: &str| open(name, &Properties::new(), Describe).unwrap_err().to_string();
        assert!(words("sqlit").contains("unknown store 'sqlit': did you mean 'sqlite'?"));
        assert!(words("SQLITE").contains("did you mean 'sqlite'?"));
        assert!(words("memroy").contains("did you mean 'memory'?"));
        assert!(words("mem").contains("unknown store 'mem': did you mean 'memory' or 'memcached'? "));
        let foreign = words("oracle");
        assert!(!foreign.contains("did you mean"), "{foreign}");
        assert!(foreign.contains("noop, basic, memory, yesquel, sqlite"), "{foreign}");
        assert!(!words("").contains("did you mean"));
        let java = "under the store 'java': --class site.ycsb.db.AerospikeClient --classpath";
        assert!(words("aerospike").contains(java));
        assert!(words("site.ycsb.db.AerospikeClient").contains(java));
        // No name has two meanings.
        for (name, class) in JAVA_ONLY {
            assert!(find(name).is_none() && find(class).is_none(), "{name}");
        }
        assert!(words("rocksdb").contains("the embedded engine of its kind is 'fjall'"));
    }
}
