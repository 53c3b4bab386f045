//! PostgreSQL, in the layout of YCSB's JDBC client or of its `postgrenosql` binding.
//!
//! | verb | `columns`: a column per field | `json`: one JSONB column |
//! |---|---|---|
//! | read | `SELECT` of all or the selected columns, by key | `SELECT ycsb_value`, or `->>` of the selected fields |
//! | update | `UPDATE ... SET` of the given columns | `UPDATE ... SET ycsb_value = ycsb_value \|\| ...` |
//! | insert | `INSERT` | `INSERT` |
//! | scan | a read from the key on, `ORDER BY` key, `LIMIT` | the same |
//! | delete | `DELETE` | `DELETE` |
//! | batch of inserts | `COPY ... FROM STDIN (FORMAT binary)` | the same |
//!
//! Every verb is one statement, prepared once per connection and selection of fields, and
//! one transaction. A lost connection fails the operations in flight; the next operation
//! reconnects.

mod client;
mod link;
mod sql;

use crate::{
    StoreInfo, jdbc, optional,
    reconnecting::{Pool, Reconnecting, Slot},
};
use client::PostgresClient;
use link::{PostgresConnection, PostgresConnector, PostgresEndpoint};
use rustls::ClientConfig;
use serval_model::{
    Execution, Purpose, Schema, Store, StoreError,
    properties::{Faults, Kind, Properties, Property, PropertyTable, Reader, units},
};
use serval_tls::{CertificateVerification, ClientIdentity};
use std::{
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio_postgres::{Config, config::SslMode};

/// Column of the key: YCSB's name, folded by Postgres.
const KEY: &str = "ycsb_key";
/// Column of all fields in the json layout.
const VALUE: &str = "ycsb_value";

/// Interval at which a replica is polled for a new table.
const REPLICA_POLL: Duration = Duration::from_millis(10);

/// Maximum bytes of a name; Postgres truncates longer ones.
const NAME_BYTES_MAX: usize = 63;

static URL: Property = Property::serval(
    "postgres.url",
    Kind::Text,
    "JDBC URL of the server: jdbc:postgresql://HOST:PORT/DATABASE?user=U&password=P. Several HOST:PORT, \
     separated by commas, are tried in order. The parameters user, password, sslmode, sslrootcert, \
     sslcert, sslkey and currentSchema are used and override the properties; the others are pgjdbc's own \
     and are listed in the result. If unset: postgres.host, postgres.port and postgres.database.",
)
.aliases(&["db.url", "postgrenosql.url"]);
static HOST: Property = Property::serval(
    "postgres.host",
    Kind::Text,
    "Host name or address of the server, or the folder of its Unix socket (/var/run/postgresql).",
)
.default("localhost");
static PORT: Property =
    Property::serval("postgres.port", Kind::Count { min: 1, max: 65535 }, "Port of the server.")
        .default("5432");
static REPLICA: Property = Property::serval(
    "postgres.replica",
    Kind::Text,
    "Hot standby of the server, host or host:port (default port: postgres.port), for reads and scans; \
     writes go to the server itself. A write that has not reached the standby is not found there.",
);
static DATABASE: Property = Property::serval(
    "postgres.database",
    Kind::Text,
    "Name of the database, which must exist. If unset: the user's name, as in Postgres.",
);
static USER: Property = Property::serval("postgres.user", Kind::Text, "User name.")
    .default("postgres")
    .aliases(&["db.user", "postgrenosql.user"]);
static PASSWORD: Property = Property::serval(
    "postgres.password",
    Kind::Text,
    "The user's password, if the server requires one (SCRAM, MD5 or plain, as the server asks).",
)
.aliases(&["db.passwd", "postgrenosql.passwd"]);
static SCHEMA: Property = Property::serval(
    "postgres.schema",
    Kind::Text,
    "Schema of the table (search_path). If unset: the server's choice, often 'public'.",
);
static LAYOUT: Property = Property::serval(
    "postgres.layout",
    Kind::Choice(&["columns", "json"]),
    "Layout of a record. columns: a column per field, as in YCSB's jdbc binding. json: one JSONB column \
     of all fields, as in its postgrenosql binding; the store name 'postgrenosql' implies it.",
)
.default("columns");
static VALUE_TYPE: Property = Property::serval(
    "postgres.value_type",
    Kind::Choice(&["text", "bytea"]),
    "Type of the columns of a table that the load creates. text is YCSB's and holds only UTF-8 without \
     NUL; bytea holds any bytes. An existing table is used as it is.",
)
.default("text");
static SSL_MODE: Property = Property::serval(
    "postgres.sslmode",
    Kind::Choice(&["disable", "prefer", "require", "verify-full"]),
    "TLS mode. prefer: TLS if the server offers it, without checking its certificate. require: the same, \
     or fail. verify-full: the certificate must be signed by one in postgres.sslrootcert and name the \
     host.",
)
.default("prefer");
static SSL_ROOT_CERTIFICATE: Property = Property::serval(
    "postgres.sslrootcert",
    Kind::Path,
    "PEM file of the certificates that verify-full trusts; /etc/ssl/certs/ca-certificates.crt has the \
     public ones on many systems.",
);
static SSL_CERTIFICATE: Property = Property::serval(
    "postgres.sslcert",
    Kind::Path,
    "PEM file of the client's certificate and its chain, for servers that ask for one (clientcert, or the \
     method cert).",
);
static SSL_KEY: Property =
    Property::serval("postgres.sslkey", Kind::Path, "PEM file of the private key of postgres.sslcert.");
static CONNECT_TIMEOUT: Property = Property::serval(
    "postgres.connect_timeout",
    Kind::MILLISECONDS,
    "Timeout for a usable connection, including authentication.",
)
.default("10s")
.unit("ms");
static TIMEOUT: Property = Property::serval(
    "postgres.timeout",
    Kind::MILLISECONDS,
    "Timeout for the answer to an operation. The operation then fails with SERVICE_UNAVAILABLE, and its \
     connection is closed, which fails all operations in flight on it. 0: no timeout, so that a slow \
     server shows as slow.",
)
.default("0")
.unit("ms");
static CONNECTIONS: Property = Property::serval(
    "postgres.connections",
    Kind::Count { min: 0, max: 100_000 },
    "Connections that the clients of one event loop share; statements of several clients are then sent \
     without waiting for each other, and the server runs those of one connection in order. 0: each client \
     has a connection of its own, as in YCSB; the server's max_connections must allow as many.",
)
.default("0");
static OTHER_AUTO_COMMIT: Property =
    Property::ignored("postgrenosql.autocommit", "every operation commits itself.");

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: optional::POSTGRES.name,
    aliases: optional::POSTGRES.aliases,
    summary: optional::POSTGRES.summary,
    details: "Layouts are YCSB's, so that either tool reads what the other loaded: table usertable \
              (property table), primary key column ycsb_key, and either a column per field (field0, \
              field1, ... of text) or one JSONB column ycsb_value (postgres.layout=json). Names are lower \
              case in the database, as Postgres folds YCSB's names, and are returned as the workload \
              spells them; a missing field is NULL. The load creates the table if it is missing, with a \
              key in byte order (COLLATE \"C\"); a table of YCSB's has the database's order, which scans \
              then follow.\n\
              Values are text: bytes that are not UTF-8, or include NUL, are BAD_REQUEST. \
              postgres.value_type=bytea creates a table that holds any bytes (columns only; YCSB then \
              reads them as \\x...).\n\
              read: SELECT by key. scan: SELECT from the key on, ORDER BY key, LIMIT; a snapshot. update: \
              UPDATE; a missing record is NOT_FOUND. insert: INSERT; an existing key is an ERROR. delete: \
              DELETE. A batch of inserts is one COPY: all or nothing. Statements are prepared once per \
              connection; each is a transaction of its own. Asynchronous: clients run on event loops, \
              each with a connection, or sharing some (postgres.connections). Several servers separated \
              by ';' (YCSB's shards) are refused.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable {
        heading: "postgres",
        properties: &[
            &URL,
            &HOST,
            &PORT,
            &REPLICA,
            &DATABASE,
            &USER,
            &PASSWORD,
            &SCHEMA,
            &LAYOUT,
            &VALUE_TYPE,
            &SSL_MODE,
            &SSL_ROOT_CERTIFICATE,
            &SSL_CERTIFICATE,
            &SSL_KEY,
            &CONNECT_TIMEOUT,
            &TIMEOUT,
            &CONNECTIONS,
            &jdbc::DRIVER,
            &jdbc::FETCH_SIZE,
            &jdbc::AUTO_COMMIT,
            &jdbc::BATCH_API,
            &OTHER_AUTO_COMMIT,
        ],
    },
};

/// Layout of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableLayout {
    Columns,
    Json,
}

/// Facts from the preparation of the store.
#[derive(Debug, Default)]
struct PreparedStore {
    /// Fields of the schema, whose names columns map to.
    fields: Arc<[String]>,
    /// Effective settings.
    facts: Vec<(String, String)>,
}

/// A PostgreSQL server.
#[derive(Debug)]
pub struct Postgres {
    server: Arc<PostgresEndpoint>,
    /// Server for reads and scans, if it is another one.
    replica: Option<Arc<PostgresEndpoint>>,
    layout: TableLayout,
    value_type: &'static str,
    connections: usize,
    /// Parameters of the URL that are ignored.
    unread: Vec<String>,
    prepared: Mutex<PreparedStore>,
}

/// Reads the server's address from the URL or the properties.
fn place(reader: &mut Reader<'_>) -> (jdbc::Url, Vec<(String, u16)>) {
    let text = reader.optional_text(&URL).unwrap_or_default();
    let port = reader.count(&PORT) as u16;
    if !reader.given(&URL) {
        return (jdbc::Url::default(), vec![(reader.text(&HOST), port)]);
    }
    for part in [&HOST, &PORT, &DATABASE] {
        if reader.given(part) {
            reader.fault(part, "the URL names the server too: leave one of them out");
        }
    }
    // Faults of the URL do not repeat it, because it may contain a password.
    let name = reader.properties().setting(&URL).map_or(URL.name, |(name, _)| name).to_owned();
    if text.contains(';') {
        reader.fault_overall(format!(
            "{name}: several servers with ';' between them are shards, which the store postgres does not have; name \
             one server"
        ));
        return (jdbc::Url::default(), Vec::new());
    }
    match jdbc::Url::parse(&text, &["postgresql"]) {
        Ok(url) => {
            let mut hosts: Vec<_> =
                url.hosts.iter().map(|(host, known)| (host.clone(), known.unwrap_or(port))).collect();
            if hosts.is_empty() {
                hosts.push((reader.text(&HOST), port));
            }
            (url, hosts)
        }
        Err(problem) => {
            reader.fault_overall(format!("{name}: {problem}"));
            (jdbc::Url::default(), Vec::new())
        }
    }
}

impl Postgres {
    /// Reads the properties. Does not connect.
    pub fn open(properties: &Properties) -> Result<Postgres, Faults> {
        let mut reader = Reader::new(properties);
        let (url, hosts) = place(&mut reader);
        let replica = replica(&mut reader);
        let mut config = Config::new();
        config.user(url.parameter("user").map_or_else(|| reader.text(&USER), str::to_owned));
        let password = url.parameter("password").map(str::to_owned);
        if let Some(password) = password.or_else(|| reader.optional_text(&PASSWORD)) {
            config.password(password);
        }
        if let Some(database) = url.database.clone().or_else(|| reader.optional_text(&DATABASE)) {
            config.dbname(database);
        }
        let schema = url.parameter("currentSchema").map(str::to_owned);
        if let Some(schema) = schema.or_else(|| reader.optional_text(&SCHEMA)) {
            // A space ends an option unless a backslash precedes it.
            let schema = schema.replace('\\', "\\\\").replace(' ', "\\ ");
            config.options(format!("-c search_path={schema}"));
        }
        config.application_name("serval");
        let layout = if reader.choice(&LAYOUT) == "json" { TableLayout::Json } else { TableLayout::Columns };
        let value_type = reader.choice(&VALUE_TYPE);
        if layout == TableLayout::Json && value_type == "bytea" {
            reader.fault(&VALUE_TYPE, "JSON holds text only: leave it out, or set postgres.layout=columns");
        }
        let mode = reader.choice(&SSL_MODE);
        let mode = match url.parameter("sslmode") {
            None => mode,
            Some(wanted) => {
                let Kind::Choice(words) = SSL_MODE.kind else { return Err(Faults::one("no modes")) };
                words.iter().copied().find(|word| word.eq_ignore_ascii_case(wanted)).unwrap_or_else(|| {
                    let known = words.join(", ");
                    reader.fault_overall(format!("{}: sslmode={wanted}: must be one of {known}", URL.name));
                    mode
                })
            }
        };
        config.ssl_mode(match mode {
            "disable" => SslMode::Disable,
            "prefer" => SslMode::Prefer,
            _ => SslMode::Require,
        });
        let roots =
            url.parameter("sslrootcert").map(Into::into).or_else(|| reader.path(&SSL_ROOT_CERTIFICATE));
        let file = |name: &str, path: Option<PathBuf>| url.parameter(name).map(PathBuf::from).or(path);
        let certificate = file("sslcert", reader.path(&SSL_CERTIFICATE));
        let key = file("sslkey", reader.path(&SSL_KEY));
        if mode == "disable" && certificate.is_some() {
            reader.fault(&SSL_CERTIFICATE, "has no use with postgres.sslmode=disable");
        }
        let identity = serval_tls::identity(&mut reader, (&SSL_CERTIFICATE, certificate), (&SSL_KEY, key));
        let tls = match (mode, roots) {
            ("verify-full", Some(path)) => tls_config(Some(&path), CertificateVerification::Full, identity),
            ("verify-full", None) => Err("verify-full needs it: the certificates to trust".to_owned()),
            (_, Some(_)) => Err(format!("has no use with postgres.sslmode={mode}: set verify-full")),
            (_, None) => tls_config(None, CertificateVerification::Nothing, identity),
        };
        let tls = tls.map_err(|problem| reader.fault(&SSL_ROOT_CERTIFICATE, problem)).ok();
        let connect_timeout = reader.duration(&CONNECT_TIMEOUT);
        if connect_timeout.is_zero() {
            reader.fault(&CONNECT_TIMEOUT, "must be above zero");
        }
        let timeout = Some(reader.duration(&TIMEOUT)).filter(|timeout| !timeout.is_zero());
        let connections = reader.count(&CONNECTIONS) as usize;
        reader.finish()?;
        let Some(tls) = tls else { return Err(Faults::one("postgres.sslrootcert: cannot be used")) };
        let server = |hosts: &[(String, u16)]| {
            let mut config = config.clone();
            for (host, port) in hosts {
                config.host(host).port(*port);
            }
            let address: Vec<String> = hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
            Arc::new(PostgresEndpoint::new(address.join(","), config, tls.clone(), connect_timeout, timeout))
        };
        let known = ["user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey", "currentSchema"];
        Ok(Postgres {
            server: server(&hosts),
            replica: replica.map(|place| server(&[place])),
            layout,
            value_type,
            connections,
            unread: url.others(&known).into_iter().map(str::to_owned).collect(),
            prepared: Mutex::default(),
        })
    }

    /// Connects to a server, with a connection of the client's own or a shared
    /// one.
    async fn link(
        &self,
        server: &Arc<PostgresEndpoint>,
        pool: &Connections,
    ) -> Result<Reconnecting<PostgresConnector>, StoreError> {
        let fields = || self.prepared.lock().unwrap_or_else(PoisonError::into_inner).fields.clone();
        let open = async || Slot::connect(PostgresConnector::new(server, fields())).await;
        Ok(Reconnecting::new(pool.next(self.connections, open).await?))
    }

    /// Waits until a replica has the table, which its primary may just have created.
    fn wait_for_table(&self, replica: &PostgresEndpoint, table: &str) -> Result<(), StoreError> {
        let shown = ask(replica, async |link| {
            let until = Instant::now() + replica.connect_timeout / 2;
            loop {
                let columns = sql::columns(&link.client, table).await;
                if !columns.map_err(|error| replica.refused(&error))?.is_empty() {
                    return Ok(true);
                }
                if Instant::now() >= until {
                    return Ok(false);
                }
                tokio::time::sleep(REPLICA_POLL).await;
            }
        })?;
        if shown {
            return Ok(());
        }
        Err(replica.error(format!(
            "the replica does not show the table '{}' that the server at {} has: is it a standby of that one, and does \
             it follow?",
            table.to_ascii_lowercase(),
            self.server.address
        )))
    }

    /// Creates the table, or checks the existing one.
    async fn check_table(
        &self,
        link: &PostgresConnection,
        schema: &Schema,
        purpose: Purpose,
    ) -> Result<(), StoreError> {
        let Schema { table, fields } = schema;
        for (index, field) in fields.iter().enumerate() {
            let mut taken = fields[..index].iter().map(String::as_str).chain([KEY]);
            if self.layout == TableLayout::Json {
                continue;
            }
            if let Some(other) = taken.find(|other| other.eq_ignore_ascii_case(field)) {
                return Err(self.server.error(format!(
                    "fields '{other}' and '{field}' would be one column: SQL takes names that differ only in case for \
                     the same; change fieldnameprefix"
                )));
            }
            if field.len() > NAME_BYTES_MAX {
                return Err(self.server.error(format!(
                    "the field name '{field}' is longer than the {NAME_BYTES_MAX} bytes that Postgres keeps of a \
                     column's; change fieldnameprefix"
                )));
            }
        }
        if purpose == Purpose::Load {
            let make = sql::create_table(self.layout, self.value_type, schema);
            link.client.batch_execute(&make).await.map_err(|error| self.server.refused(&error))?;
        }
        let columns = sql::columns(&link.client, table).await.map_err(|error| self.server.refused(&error))?;
        if columns.is_empty() {
            return Err(self.server.error(format!(
                "the database has no table '{}': load it first, with 'serval load postgres' and the same properties",
                table.to_ascii_lowercase()
            )));
        }
        let wanted: Vec<(String, &[&str])> = match self.layout {
            TableLayout::Json => vec![(KEY.to_owned(), sql::TEXT_TYPES), (VALUE.to_owned(), &["jsonb"])],
            TableLayout::Columns => std::iter::once((KEY.to_owned(), sql::TEXT_TYPES))
                .chain(fields.iter().map(|field| (field.to_ascii_lowercase(), sql::VALUE_TYPES)))
                .collect(),
        };
        let there = |name: &str| columns.iter().find(|(column, _)| column == name);
        let missing: Vec<&str> =
            wanted.iter().map(|(name, _)| name.as_str()).filter(|name| there(name).is_none()).collect();
        if !missing.is_empty() {
            let all: Vec<&str> = columns.iter().map(|(column, _)| column.as_str()).collect();
            return Err(self.server.error(format!(
                "table '{table}' lacks the columns {}; it has {}: set postgres.layout, fieldcount and fieldnameprefix \
                 as they were when it was loaded, or load into another table",
                missing.join(", "),
                all.join(", ")
            )));
        }
        for (name, types) in wanted {
            if let Some((_, found)) = there(&name)
                && !types.contains(&found.as_str())
            {
                return Err(self.server.error(format!(
                    "column {name} of table '{table}' is of type {found}: it must be {}",
                    types.join(" or ")
                )));
            }
        }
        Ok(())
    }
}

impl Store for Postgres {
    type Local = PostgresLocal;
    type Client = PostgresClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let facts = ask(&self.server, async |link| {
            self.check_table(link, schema, purpose).await?;
            sql::facts(&link.client).await.map_err(|error| self.server.refused(&error))
        })?;
        if let Some(replica) = &self.replica {
            let follows = ask(replica, async |link| {
                sql::is_standby(&link.client).await.map_err(|error| replica.refused(&error))
            })?;
            if !follows {
                return Err(
                    replica.error("is named as the replica (postgres.replica), and is no standby of another")
                );
            }
            self.wait_for_table(replica, &schema.table)?;
        }
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        *prepared = PreparedStore { fields: schema.fields.clone().into(), facts };
        Ok(())
    }

    fn describe(&self) -> Vec<(String, String)> {
        let mut all = vec![
            ("address".to_owned(), self.server.address.clone()),
            (
                "layout".to_owned(),
                if self.layout == TableLayout::Json { "json" } else { "columns" }.to_owned(),
            ),
            (
                "connections".to_owned(),
                match self.connections {
                    0 => "one a client".to_owned(),
                    n => format!("{n} shared by the clients of an event loop"),
                },
            ),
            (
                "timeout".to_owned(),
                self.server
                    .timeout
                    .map_or("none".to_owned(), |timeout| units::format_duration(timeout.as_nanos() as u64)),
            ),
        ];
        if let Some(replica) = &self.replica {
            all.push(("reads and scans".to_owned(), format!("replica at {}", replica.address)));
        }
        if !self.unread.is_empty() {
            all.push(("URL parameters without effect".to_owned(), self.unread.join(", ")));
        }
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(prepared.facts.iter().cloned());
        all
    }

    fn local(&self) -> Result<PostgresLocal, StoreError> {
        Ok(PostgresLocal::default())
    }

    async fn connect(&self, local: &PostgresLocal, _: usize) -> Result<PostgresClient, StoreError> {
        let connection = self.link(&self.server, &local.pool).await?;
        let reader = match &self.replica {
            None => None,
            Some(replica) => {
                let connection = self.link(replica, &local.replica_pool).await?;
                Some(Box::new(PostgresClient::new(connection, self.layout, None)))
            }
        };
        Ok(PostgresClient::new(connection, self.layout, reader))
    }
}

type Connections = Pool<Rc<Slot<PostgresConnector>>>;

/// State that the clients of one event loop share.
#[derive(Debug, Default)]
pub struct PostgresLocal {
    pool: Connections,
    /// Connections to the replica.
    replica_pool: Connections,
}

/// Runs a function of the set-up on a new connection.
fn ask<T>(
    server: &PostgresEndpoint,
    ask: impl AsyncFnOnce(&PostgresConnection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| server.error(format!("no event loop: {error}")))?;
    runtime.block_on(async {
        let link = server.connect(Arc::default()).await?;
        // The server may stop answering at any time.
        match tokio::time::timeout(server.connect_timeout, ask(&link)).await {
            Ok(result) => result,
            Err(_) => Err(server.error("the server stopped answering while it was prepared")),
        }
    })
}

/// Reads the replica's address.
fn replica(reader: &mut Reader<'_>) -> Option<(String, u16)> {
    let text = reader.optional_text(&REPLICA)?;
    let port = reader.count(&PORT) as u16;
    let (host, digits) = text.trim().rsplit_once(':').unwrap_or((text.trim(), ""));
    let port = if digits.is_empty() { Some(port) } else { digits.parse().ok().filter(|port| *port > 0) };
    if host.is_empty() || port.is_none() || host.contains([',', ':', '/']) {
        reader.fault(&REPLICA, "is no host or host:port");
        return None;
    }
    Some((host.to_owned(), port?))
}

fn tls_config(
    signers: Option<&Path>,
    demand: CertificateVerification,
    identity: Option<ClientIdentity>,
) -> Result<ClientConfig, String> {
    serval_tls::config(serval_tls::roots(signers)?, demand, identity)
}
