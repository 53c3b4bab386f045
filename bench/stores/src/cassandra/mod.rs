//! Cassandra and what speaks its protocol (ScyllaDB), over CQL.
//!
//! The layout of YCSB's CQL client, so that either tool reads the other's data: keyspace
//! `ycsb`, the workload's table, primary key `y_id`, and a text column per
//! field.
//!
//! | verb | statement, prepared |
//! |---|---|
//! | read | SELECT ... WHERE y_id = ? LIMIT 1 |
//! | update | UPDATE ... SET ... WHERE y_id = ? (inserts a missing record) |
//! | insert | INSERT (replaces an existing record) |
//! | scan | SELECT ... WHERE token(y_id) >= token(?) LIMIT ?: in the order of tokens |
//! | delete | DELETE (succeeds for a missing record) |
//!
//! The clients of one event loop share a session of the driver, which has a few
//! connections to every node and sends a request to a node with the key. The driver's
//! tasks run on the session's loop. The driver's retries and speculative executions are
//! off.

mod client;
mod link;
mod tls;

pub use client::CassandraClient;

use crate::{
    StoreInfo, optional,
    reconnecting::{Pool, Reconnecting, Slot},
};
use link::{CassandraConnector, CassandraEndpoint};
use scylla::{policies::timestamp_generator::MonotonicTimestampGenerator, statement::Consistency};
use serval_model::{
    Execution, Purpose, Schema, Store, StoreError,
    properties::{Faults, Kind, Properties, Property, PropertyTable, Reader, units},
};
use std::{
    num::NonZeroUsize,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Column of the primary key, named as in YCSB.
const KEY: &str = "y_id";

/// Time limit for a statement of the set-up. Creating a keyspace waits for schema
/// agreement.
const SETUP_TIMEOUT: Duration = Duration::from_secs(60);

const LEVELS: [(&str, Consistency); 11] = [
    ("QUORUM", Consistency::Quorum),
    ("ONE", Consistency::One),
    ("TWO", Consistency::Two),
    ("THREE", Consistency::Three),
    ("ALL", Consistency::All),
    ("LOCAL_ONE", Consistency::LocalOne),
    ("LOCAL_QUORUM", Consistency::LocalQuorum),
    ("EACH_QUORUM", Consistency::EachQuorum),
    ("ANY", Consistency::Any),
    ("SERIAL", Consistency::Serial),
    ("LOCAL_SERIAL", Consistency::LocalSerial),
];

const HOSTS: Property = Property::serval(
    "cassandra.hosts",
    Kind::Names,
    "Contact points, separated by commas, each with or without a port; the other nodes are found through \
     them.",
)
.default("localhost")
.aliases(&["hosts", "scylla.hosts"]);
const PORT: Property = Property::serval(
    "cassandra.port",
    Kind::Count { min: 1, max: 65535 },
    "TCP port of all nodes (native_transport_port).",
)
.default("9042")
.aliases(&["port", "scylla.port"]);
const KEYSPACE: Property = Property::ycsb("cassandra.keyspace", Kind::Text, "Keyspace of the table.")
    .default("ycsb")
    .aliases(&["scylla.keyspace"]);
const USERNAME: Property =
    Property::ycsb("cassandra.username", Kind::Text, "User name, if the nodes require one.")
        .aliases(&["scylla.username"]);
const PASSWORD: Property =
    Property::ycsb("cassandra.password", Kind::Text, "Password, if the nodes require one.")
        .aliases(&["scylla.password"]);
const READ_LEVEL: Property = Property::ycsb(
    "cassandra.readconsistencylevel",
    Kind::Choice(&[
        "QUORUM",
        "ONE",
        "TWO",
        "THREE",
        "ALL",
        "LOCAL_ONE",
        "LOCAL_QUORUM",
        "SERIAL",
        "LOCAL_SERIAL",
    ]),
    "Consistency level of reads and scans: the number of replicas that answer.",
)
.default("QUORUM")
.aliases(&["scylla.readconsistencylevel"]);
const WRITE_LEVEL: Property = Property::ycsb(
    "cassandra.writeconsistencylevel",
    Kind::Choice(&[
        "QUORUM",
        "ONE",
        "TWO",
        "THREE",
        "ALL",
        "LOCAL_ONE",
        "LOCAL_QUORUM",
        "EACH_QUORUM",
        "ANY",
    ]),
    "Consistency level of writes: the number of replicas that confirm.",
)
.default("QUORUM")
.aliases(&["scylla.writeconsistencylevel"]);
const CONNECTIONS: Property = Property::ycsb(
    "cassandra.coreconnections",
    Kind::Count { min: 1, max: 10_000 },
    "Connections to each node that the clients of one event loop share.",
)
.default("1")
.aliases(&["cassandra.connections", "scylla.coreconnections"]);
const MAX_CONNECTIONS: Property =
    Property::ignored("cassandra.maxconnections", "The driver keeps cassandra.coreconnections connections.")
        .aliases(&["scylla.maxconnections"]);
const CONNECT_TIMEOUT: Property = Property::ycsb(
    "cassandra.connecttimeoutmillis",
    Kind::MILLISECONDS,
    "Timeout for a session: connections, authentication, and the description of the cluster.",
)
.default("5s")
.unit("ms")
.aliases(&["scylla.connecttimeoutmillis"]);
const TIMEOUT: Property = Property::ycsb(
    "cassandra.readtimeoutmillis",
    Kind::MILLISECONDS,
    "Timeout for the answer to an operation of any kind, which then fails with SERVICE_UNAVAILABLE. If \
     unset: only the server's own timeout, so that a slow server shows as slow.",
)
.unit("ms")
.aliases(&["scylla.readtimeoutmillis"]);
const DATACENTER: Property = Property::serval(
    "cassandra.local_dc",
    Kind::Text,
    "Data centre whose nodes are used. If unset: all data centres. As in YCSB's scylla client, \
     consistency levels that are not set are then LOCAL_QUORUM.",
)
.aliases(&["scylla.local_dc"]);
const TRACING: Property =
    Property::ycsb("cassandra.tracing", Kind::Flag, "Whether the nodes trace every operation (slow).")
        .default("false")
        .aliases(&["scylla.tracing"]);
const LWT: Property = Property::ycsb(
    "scylla.lwt",
    Kind::Flag,
    "YCSB's lightweight transactions (INSERT ... IF NOT EXISTS). Not supported: true is refused.",
)
.default("false");
const CREATE: Property = Property::serval(
    "cassandra.create",
    Kind::Flag,
    "Whether a load creates the keyspace and the table if missing.",
)
.default("true");
const REPLICATION: Property = Property::serval(
    "cassandra.replication_factor",
    Kind::Count { min: 1, max: 1000 },
    "Replicas of each record in a keyspace that a load creates (SimpleStrategy; for several data centres \
     create the keyspace yourself).",
)
.default("1");
const VALUE_TYPE: Property = Property::serval(
    "cassandra.value_type",
    Kind::Choice(&["text", "blob"]),
    "Type of the field columns in a table that a load creates. YCSB's are text, which must be UTF-8; a \
     blob holds any bytes, but YCSB cannot write it.",
)
.default("text");
const SSL: Property =
    Property::ycsb("cassandra.useSSL", Kind::Flag, "Whether connections are encrypted (TLS).")
        .default("false")
        .aliases(&["scylla.useSSL"]);
const CA: Property = Property::serval(
    "cassandra.tls_ca",
    Kind::Path,
    "PEM file of the certificates that sign the nodes' certificates. If unset: the signers that browsers \
     trust.",
);
const CERTIFICATE: Property = Property::serval(
    "cassandra.tls_certificate",
    Kind::Path,
    "PEM file of the client's certificate, if the nodes require one; needs cassandra.tls_key.",
);
const TLS_KEY: Property = Property::serval(
    "cassandra.tls_key",
    Kind::Path,
    "PEM file of the private key of cassandra.tls_certificate.",
);
const VERIFY: Property = Property::serval(
    "cassandra.tls_verify",
    Kind::Choice(&["full", "signer", "none"]),
    "Check of a node's certificate. full: its signer, and that it names the node's address. signer: only \
     its signer, as in YCSB. none: nothing.",
)
.default("signer");

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: optional::CASSANDRA.name,
    aliases: optional::CASSANDRA.aliases,
    summary: optional::CASSANDRA.summary,
    details: "Layout of YCSB's CQL client, so that either tool reads what the other loaded: keyspace \
              ycsb, table usertable (property table), primary key column y_id, columns field0, field1, \
              ... of text. Values must be UTF-8, others are BAD_REQUEST; a table with columns of type \
              blob (cassandra.value_type) holds any bytes. Names of letters, digits and _ are lower case \
              in the database, as in CQL; others are used unchanged.\n\
              read: SELECT by key. update: UPDATE, which creates a missing record. insert: INSERT, which \
              overwrites the given fields of an existing record and leaves the others. scan: SELECT from \
              the start key's token on: in the order of tokens (hashes), not of keys. delete: DELETE, \
              which is OK whether the record existed or not. A batch of inserts is sent one by one. \
              Writes carry the client's time, as those of YCSB's driver do: of two writes the later one \
              by the clocks of their clients wins.\n\
              Asynchronous: clients run on event loops; those of a loop share a session, with one \
              connection to each node (cassandra.coreconnections). Statements are prepared once per loop \
              and sent to a node that has the record. The driver repeats nothing: no retries, no \
              speculative executions. Tested against Cassandra 5.0; not run against ScyllaDB.",
    time_series: false,
    keeps_records: true,
    batches: false,
    updates_insert: true,
    behind_driver: false,
    properties: PropertyTable {
        heading: "cassandra",
        properties: &[
            &HOSTS,
            &PORT,
            &KEYSPACE,
            &USERNAME,
            &PASSWORD,
            &READ_LEVEL,
            &WRITE_LEVEL,
            &CONNECTIONS,
            &CONNECT_TIMEOUT,
            &TIMEOUT,
            &DATACENTER,
            &CREATE,
            &REPLICATION,
            &VALUE_TYPE,
            &TRACING,
            &SSL,
            &VERIFY,
            &CA,
            &CERTIFICATE,
            &TLS_KEY,
            &MAX_CONNECTIONS,
            &LWT,
        ],
    },
};

/// A cluster.
#[derive(Debug)]
pub struct Cassandra {
    server: Arc<CassandraEndpoint>,
    /// How a load creates keyspace and table; `None` if it must not.
    create: Option<Create>,
    prepared: Mutex<PreparedStore>,
}

/// Options of the keyspace and table that a load creates.
#[derive(Debug, Clone, Copy)]
struct Create {
    replication: u64,
    value_type: &'static str,
}

/// Facts from the preparation of the store.
#[derive(Debug, Default, Clone)]
struct PreparedStore {
    table: Arc<Columns>,
    /// Effective settings.
    facts: Vec<(String, String)>,
}

/// Columns of a table without its key, in their order, with their fields.
#[derive(Debug, Default)]
struct Columns {
    /// The workload's name of the table.
    table: String,
    columns: Vec<CqlColumn>,
}

#[derive(Debug)]
struct CqlColumn {
    name: String,
    field: String,
}

impl Cassandra {
    /// Reads the properties. Does not connect.
    pub fn open(properties: &Properties) -> Result<Cassandra, Faults> {
        let mut reader = Reader::new(properties);
        let (hosts, port) = (reader.names(&HOSTS), reader.count(&PORT) as u16);
        if hosts.is_empty() {
            reader.fault(&HOSTS, "must name a node");
        }
        let keyspace = reader.text(&KEYSPACE);
        if keyspace.is_empty() {
            reader.fault(&KEYSPACE, "must not be empty");
        }
        // As in YCSB, an empty user name is none.
        let username = reader.optional_text(&USERNAME).filter(|name| !name.is_empty());
        let credentials = match (username, reader.optional_text(&PASSWORD)) {
            (Some(username), Some(password)) => Some((username, password)),
            (Some(_), None) => {
                reader.fault(&USERNAME, "needs cassandra.password too");
                None
            }
            (None, Some(_)) => {
                reader.fault(&PASSWORD, "needs cassandra.username too");
                None
            }
            (None, None) => None,
        };
        let datacenter = reader.optional_text(&DATACENTER).filter(|name| !name.is_empty());
        let mut level = |property: &Property| {
            let name = reader.choice(property);
            let local = datacenter.is_some() && !reader.given(property);
            let name = if local { "LOCAL_QUORUM" } else { name };
            LEVELS.into_iter().find(|(known, _)| *known == name).unwrap_or(LEVELS[0])
        };
        let (read, write) = (level(&READ_LEVEL), level(&WRITE_LEVEL));
        let connect_timeout = reader.duration(&CONNECT_TIMEOUT);
        let timeout = reader.given(&TIMEOUT).then(|| reader.duration(&TIMEOUT));
        if connect_timeout.is_zero() && reader.given(&CONNECT_TIMEOUT) {
            reader.fault(&CONNECT_TIMEOUT, "must be above zero");
        }
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            reader.fault(&TIMEOUT, "must be above zero; leave it out for no limit");
        }
        if reader.flag(&LWT) {
            reader.fault(&LWT, "lightweight transactions are not supported");
        }
        let create =
            Create { replication: reader.count(&REPLICATION), value_type: reader.choice(&VALUE_TYPE) };
        let create = reader.flag(&CREATE).then_some(create);
        let tls = tls::from_properties(&mut reader);
        let connections = NonZeroUsize::new(reader.count(&CONNECTIONS) as usize).unwrap_or(NonZeroUsize::MIN);
        let tracing = reader.flag(&TRACING);
        reader.finish()?;
        let server = CassandraEndpoint {
            name: format!("cassandra at {}", addresses(&hosts, port).join(", ")),
            addresses: addresses(&hosts, port),
            keyspace: folded(&keyspace),
            credentials,
            read,
            write,
            connections,
            connect_timeout,
            timeout,
            datacenter,
            tracing,
            tls,
            // One generator for all loops, so that a process's writes are ordered.
            timestamps: Arc::new(MonotonicTimestampGenerator::new().without_warnings()),
        };
        Ok(Cassandra { server: Arc::new(server), create, prepared: Mutex::default() })
    }

    fn prepared(&self) -> PreparedStore {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Finds or creates the table.
    async fn set_up(&self, schema: &Schema, purpose: Purpose) -> Result<PreparedStore, StoreError> {
        let setup = link::SetupSession::connect(&self.server).await?;
        let error = |problem| StoreError::new(&self.server.name, problem);
        let Schema { table, fields } = schema;
        for (index, field) in fields.iter().enumerate() {
            if folded(field) == KEY {
                return Err(error(format!(
                    "field '{field}' would be the key's column; change fieldnameprefix"
                )));
            }
            if let Some(other) = fields[..index].iter().find(|other| folded(other) == folded(field)) {
                return Err(error(format!(
                    "fields '{other}' and '{field}' would be one column: CQL takes names that differ only in case \
                     for the same; change fieldnameprefix"
                )));
            }
        }
        let keyspace = quoted(&self.server.keyspace);
        let mut make_keyspace = format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{'class': 'SimpleStrategy', \
             'replication_factor': {}}}",
            self.create.map_or(1, |create| create.replication)
        );
        let value_type = self.create.map_or("text", |create| create.value_type);
        let mut make_table =
            format!("CREATE TABLE IF NOT EXISTS {keyspace}.{} (y_id text PRIMARY KEY", quoted(table));
        for field in fields {
            make_table.push_str(&format!(", {} {value_type}", quoted(field)));
        }
        make_table.push(')');
        if let (Purpose::Load, Some(_)) = (purpose, self.create) {
            if setup.replication().await?.is_none() {
                setup.execute(&make_keyspace).await?;
            }
            if setup.columns(&folded(table)).await?.is_empty() {
                setup.execute(&make_table).await?;
            }
        }
        make_keyspace.push(';');
        make_table.push(';');
        let how = match (purpose, self.create) {
            (Purpose::Load, _) => "make it, or let the load make it (cassandra.create=true):",
            (Purpose::Run, _) => "load it first, with the same cassandra.keyspace and table, or make it:",
        };
        let Some(replication) = setup.replication().await? else {
            let keyspace = &self.server.keyspace;
            return Err(error(format!(
                "there is no keyspace '{keyspace}': {how}\n{make_keyspace}\n{make_table}"
            )));
        };
        let columns = setup.columns(&folded(table)).await?;
        if columns.is_empty() {
            let keyspace = &self.server.keyspace;
            return Err(error(format!("keyspace '{keyspace}' has no table '{table}': {how}\n{make_table}")));
        }
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let mut wanted = std::iter::once(KEY.to_owned()).chain(fields.iter().map(|field| folded(field)));
        let missing: Vec<String> = wanted.by_ref().filter(|name| !names.contains(&name.as_str())).collect();
        if !missing.is_empty() {
            return Err(error(format!(
                "table '{table}' lacks the columns {}; it has {}: set fieldcount and fieldnameprefix as they were \
                 when it was loaded, or load into another keyspace or table",
                missing.join(", "),
                names.join(", ")
            )));
        }
        let mut types = Vec::new();
        for column in &columns {
            let key = column.name == KEY;
            if key != (column.kind == "partition_key") || column.kind == "clustering" {
                return Err(error(format!(
                    "table '{table}' must have the primary key (y_id), as YCSB's has"
                )));
            }
            let used = key || fields.iter().any(|field| folded(field) == column.name);
            let text = matches!(column.kind_of_value.as_str(), "text" | "ascii");
            if used && !text && (key || column.kind_of_value != "blob") {
                return Err(error(format!(
                    "column '{}' of table '{table}' is of type {}; Serval writes text, ascii and (fields only) blob",
                    column.name, column.kind_of_value
                )));
            }
            if used && !key && !types.contains(&column.kind_of_value) {
                types.push(column.kind_of_value.clone());
            }
        }
        let mut facts = setup.facts().await?;
        facts.push(("replication".to_owned(), replication));
        facts.push(("type of values".to_owned(), types.join(", ")));
        let columns = columns.into_iter().filter(|column| column.name != KEY).map(|column| {
            let field = fields.iter().find(|field| folded(field) == column.name);
            CqlColumn { field: field.unwrap_or(&column.name).clone(), name: column.name }
        });
        let table = Columns { table: table.clone(), columns: columns.collect() };
        Ok(PreparedStore { table: Arc::new(table), facts })
    }
}

impl Store for Cassandra {
    type Local = CassandraLocal;
    type Client = CassandraClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let prepared = link::blocking(&self.server, self.set_up(schema, purpose))?;
        *self.prepared.lock().unwrap_or_else(PoisonError::into_inner) = prepared;
        Ok(())
    }

    fn describe(&self) -> Vec<(String, String)> {
        let server = &self.server;
        let timeout = match server.timeout {
            Some(timeout) => units::format_duration(timeout.as_nanos() as u64),
            None => "none".to_owned(),
        };
        let mut all = vec![
            ("address".to_owned(), server.addresses.join(", ")),
            ("keyspace".to_owned(), server.keyspace.clone()),
            ("consistency of reads".to_owned(), server.read.0.to_owned()),
            ("consistency of writes".to_owned(), server.write.0.to_owned()),
            ("connections".to_owned(), format!("{} a node and event loop", server.connections)),
            ("timeout of operations".to_owned(), timeout),
            ("TLS".to_owned(), if server.tls.is_some() { "yes" } else { "no" }.to_owned()),
        ];
        all.extend(self.prepared().facts);
        all
    }

    fn local(&self) -> Result<CassandraLocal, StoreError> {
        Ok(CassandraLocal::default())
    }

    async fn connect(&self, local: &CassandraLocal, _: usize) -> Result<CassandraClient, StoreError> {
        let open = async || Slot::connect(CassandraConnector(Arc::clone(&self.server))).await;
        let session = Reconnecting::new(local.0.next(1, open).await?);
        Ok(CassandraClient::new(session, self.prepared().table))
    }
}

/// What the clients of one event loop share: a session.
#[derive(Debug, Default)]
pub struct CassandraLocal(Pool<Rc<Slot<CassandraConnector>>>);

/// Returns HOST:PORT of each host; a host's own port takes precedence.
fn addresses(hosts: &[String], port: u16) -> Vec<String> {
    let address = |host: &String| match (host.matches(':').count(), host.starts_with('[')) {
        (0, _) => format!("{host}:{port}"),
        (1, _) => host.clone(),
        (_, true) if host.contains("]:") => host.clone(),
        (_, true) => format!("{host}:{port}"),
        (_, false) => format!("[{host}]:{port}"),
    };
    hosts.iter().map(address).collect()
}

/// Returns a name as in the database. YCSB writes names of letters, digits and _
/// without quotes, which CQL converts to lower case.
fn folded(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain { name.to_ascii_lowercase() } else { name.to_owned() }
}

/// Returns a name for a statement.
fn quoted(name: &str) -> String {
    let mut text = String::new();
    quote(&mut text, name);
    text
}

/// Appends a quoted identifier.
fn quote(cql: &mut String, name: &str) {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    cql.push('"');
    for c in name.chars() {
        match c {
            '"' => cql.push_str("\"\""),
            c if plain => cql.push(c.to_ascii_lowercase()),
            c => cql.push(c),
        }
    }
    cql.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_may_have_ports_of_their_own() {
        let hosts = ["a", "b:1", "::1", "[::1]", "[::1]:1"].map(String::from);
        assert_eq!(addresses(&hosts, 9), ["a:9", "b:1", "[::1]:9", "[::1]:9", "[::1]:1"]);
    }

    #[test]
    fn names_equal_those_of_ycsb() {
        assert_eq!(quoted("Field0"), "\"field0\"");
        assert_eq!(quoted("a \"B\""), "\"a \"\"B\"\"\"");
        assert_eq!(folded("Field-0"), "Field-0");
    }
}
