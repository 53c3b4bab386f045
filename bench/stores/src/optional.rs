//! Stores behind features, with what messages need if the store is not in the
//! build. A store's own `INFO` takes its name, aliases and summary from here.

/// A store behind a feature.
#[derive(Debug, Clone, Copy)]
pub struct Optional {
    /// Name on the command line, and of its feature; the feature `full` enables
    /// all.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// One line.
    pub summary: &'static str,
    /// Build requirements besides Rust and a C compiler; empty for none.
    pub wants: &'static str,
}

/// All stores behind features, in this build or not.
pub const OPTIONAL: &[Optional] =
    &[CASSANDRA, ETCD, FJALL, MEMCACHED, MONGODB, MYSQL, POSTGRES, REST, ZOOKEEPER];

pub(crate) const CASSANDRA: Optional = Optional {
    name: "cassandra",
    aliases: &[
        "cassandra-cql",
        "cassandra2-cql",
        "scylla",
        "site.ycsb.db.CassandraCQLClient",
        "com.yahoo.ycsb.db.CassandraCQLClient",
        "site.ycsb.db.scylla.ScyllaCQLClient",
    ],
    summary: "Cassandra or ScyllaDB, over CQL",
    wants: "",
};

pub(crate) const ETCD: Optional = Optional {
    name: "etcd",
    aliases: &[],
    summary: "etcd: a JSON object per record, on one server or a cluster",
    wants: "protoc (Debian: protobuf-compiler and libprotobuf-dev)",
};

pub(crate) const FJALL: Optional = Optional {
    name: "fjall",
    aliases: &[],
    summary: "fjall, linked in: an embedded log-structured merge tree in one folder",
    wants: "",
};

pub(crate) const MEMCACHED: Optional = Optional {
    name: "memcached",
    aliases: &["site.ycsb.db.MemcachedClient", "com.yahoo.ycsb.db.MemcachedClient"],
    summary: "memcached: a JSON object per record, on one server or several by hash",
    wants: "",
};

pub(crate) const MONGODB: Optional = Optional {
    name: "mongodb",
    aliases: &[
        "mongodb-async",
        "site.ycsb.db.MongoDbClient",
        "com.yahoo.ycsb.db.MongoDbClient",
        "site.ycsb.db.AsyncMongoDbClient",
        "com.yahoo.ycsb.db.AsyncMongoDbClient",
    ],
    summary: "MongoDB, with YCSB's layout of records (tested against a stand-in only)",
    wants: "",
};

pub(crate) const MYSQL: Optional = Optional {
    name: "mysql",
    aliases: &["mariadb"],
    summary: "MySQL and MariaDB: a column per field, on one server or sharded over several",
    wants: "",
};

pub(crate) const POSTGRES: Optional = Optional {
    name: "postgres",
    aliases: &["postgresql", "postgrenosql", "site.ycsb.postgrenosql.PostgreNoSQLDBClient"],
    summary: "PostgreSQL: a column per field, or one JSONB column of all",
    wants: "",
};

pub(crate) const REST: Optional = Optional {
    name: "rest",
    aliases: &["http", "site.ycsb.webservice.rest.RestClient", "com.yahoo.ycsb.webservice.rest.RestClient"],
    summary: "web services: GET, POST, PUT and DELETE over HTTP/1.1, with or without TLS",
    wants: "",
};

pub(crate) const ZOOKEEPER: Optional = Optional {
    name: "zookeeper",
    aliases: &["site.ycsb.db.zookeeper.ZKClient"],
    summary: "ZooKeeper: a node per record, its data a JSON object",
    wants: "",
};
