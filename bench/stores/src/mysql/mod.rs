//! MySQL and MariaDB in the layout of YCSB's JDBC client, on one server or sharded over
//! several by YCSB's function of the key.
//!
//! | verb | statement, prepared |
//! |---|---|
//! | read | `SELECT` of all or the selected columns, by key |
//! | update | `UPDATE ... SET` of the given columns |
//! | insert | `INSERT` |
//! | scan | a read from the key on, `ORDER BY` key, `LIMIT`; none when sharded |
//! | delete | `DELETE` |
//! | batch of inserts | `INSERT` of several rows |
//!
//! A client has a connection to each server, because the protocol executes one
//! statement at a time. A lost connection fails the operation in flight; the next
//! operation reconnects.

mod client;
mod link;

use crate::{StoreInfo, jdbc, optional};
use client::MysqlClient;
use link::{MysqlConnection, MysqlServer};
use mysql_async::{ClientIdentity, OptsBuilder, SslOpts, prelude::Queryable};
use serval_model::{
    Execution, OperationKind, OperationKinds, Purpose, Schema, Store, StoreError,
    properties::{Faults, Kind, Properties, Property, PropertyTable, Reader, units},
};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Column of the primary key, named as in YCSB.
const KEY: &str = "YCSB_KEY";

/// Maximum characters of a name in MySQL.
const NAME_CHARACTERS_MAX: usize = 64;

static URL: Property = Property::serval(
    "mysql.url",
    Kind::Text,
    "JDBC URL of the server: jdbc:mysql://HOST:PORT/DATABASE?user=U&password=P, or jdbc:mariadb:. Several \
     URLs separated by ';' are shards: a record is on shard |Java's hashCode of the key| modulo their \
     number. The parameters user, password and sslMode are used and override the properties; the others \
     are JDBC's own and are listed in the result. If unset: mysql.host, mysql.port and mysql.database.",
)
.aliases(&["db.url"]);
static HOST: Property =
    Property::serval("mysql.host", Kind::Text, "Host name or address of the server.").default("127.0.0.1");
static PORT: Property =
    Property::serval("mysql.port", Kind::Count { min: 1, max: 65535 }, "Port of the server.").default("3306");
static DATABASE: Property =
    Property::serval("mysql.database", Kind::Text, "Name of the database, which must exist.").default("ycsb");
static USER: Property =
    Property::serval("mysql.user", Kind::Text, "User name.").default("root").aliases(&["db.user"]);
static PASSWORD: Property =
    Property::serval("mysql.password", Kind::Text, "The user's password, if there is one.")
        .aliases(&["db.passwd"]);
static VALUE_TYPE: Property = Property::serval(
    "mysql.value_type",
    Kind::Choice(&["text", "longtext", "longblob"]),
    "Type of the columns of a table that the load creates. text is YCSB's: UTF-8 of at most 65,535 bytes; \
     longtext holds more, and longblob any bytes. An existing table is used as it is.",
)
.default("text");
static SSL_MODE: Property = Property::serval(
    "mysql.sslmode",
    Kind::Choice(&["disable", "require", "verify-full"]),
    "TLS mode. require: any certificate. verify-full: the certificate must be signed by one in \
     mysql.sslrootcert and name the host.",
)
.default("disable");
static SSL_ROOT_CERTIFICATE: Property = Property::serval(
    "mysql.sslrootcert",
    Kind::Path,
    "PEM file of the certificates that verify-full trusts; /etc/ssl/certs/ca-certificates.crt has the \
     public ones on many systems.",
);
static SSL_CERTIFICATE: Property = Property::serval(
    "mysql.sslcert",
    Kind::Path,
    "PEM file of the client's certificate and its chain, for users that need one (REQUIRE X509).",
);
static SSL_KEY: Property =
    Property::serval("mysql.sslkey", Kind::Path, "PEM file of the private key of mysql.sslcert.");
static CONNECT_TIMEOUT: Property = Property::serval(
    "mysql.connect_timeout",
    Kind::MILLISECONDS,
    "Timeout for a usable connection, including authentication.",
)
.default("10s")
.unit("ms");
static TIMEOUT: Property = Property::serval(
    "mysql.timeout",
    Kind::MILLISECONDS,
    "Timeout for the answer to an operation. The operation then fails with SERVICE_UNAVAILABLE, and its \
     connection is closed. 0: no timeout, so that a slow server shows as slow.",
)
.default("0")
.unit("ms");

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: optional::MYSQL.name,
    aliases: optional::MYSQL.aliases,
    summary: optional::MYSQL.summary,
    details: "Layout of YCSB's JDBC client, so that either tool reads what the other loaded: table \
              usertable (property table), primary key column YCSB_KEY, columns FIELD0, FIELD1, ... of \
              text; a missing field is NULL. The load creates the table if it is missing, with a key of \
              bytes (VARBINARY(1024)), so that distinct keys stay distinct and scans run in byte order; a \
              table of YCSB's has the equality and order of its database's collation.\n\
              Values are text of at most 65,535 bytes of UTF-8: others are BAD_REQUEST. mysql.value_type \
              creates a table that holds more. Sessions are strict (STRICT_TRANS_TABLES), so nothing is \
              truncated silently.\n\
              read: SELECT by key. scan: SELECT from the key on, ORDER BY key, LIMIT. update: UPDATE; a \
              missing record is NOT_FOUND. insert: INSERT; an existing key is an ERROR. delete: DELETE. A \
              batch of inserts is one INSERT of several rows, or a transaction of several such: all or \
              nothing (shards commit one after the other). Statements are prepared once per connection.\n\
              Several servers (mysql.url with ';') are shards by YCSB's function of the key; they cannot \
              scan. Asynchronous: clients run on event loops, each with a connection to each server.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable {
        heading: "mysql",
        properties: &[
            &URL,
            &HOST,
            &PORT,
            &DATABASE,
            &USER,
            &PASSWORD,
            &VALUE_TYPE,
            &SSL_MODE,
            &SSL_ROOT_CERTIFICATE,
            &SSL_CERTIFICATE,
            &SSL_KEY,
            &CONNECT_TIMEOUT,
            &TIMEOUT,
            &jdbc::DRIVER,
            &jdbc::FETCH_SIZE,
            &jdbc::AUTO_COMMIT,
            &jdbc::BATCH_API,
        ],
    },
};

/// Facts from the preparation of the store.
#[derive(Debug, Default)]
struct PreparedStore {
    /// Fields of the schema, whose names columns map to.
    fields: Arc<[String]>,
    /// Effective settings of the first server.
    facts: Vec<(String, String)>,
}

/// A MySQL or MariaDB server, or several.
#[derive(Debug)]
pub struct Mysql {
    servers: Arc<[MysqlServer]>,
    value_type: &'static str,
    connect_timeout: Duration,
    timeout: Option<Duration>,
    /// Parameters of the URLs that are ignored.
    unread: Vec<String>,
    prepared: Mutex<PreparedStore>,
}

/// Reads the servers' URLs. Faults of a URL do not repeat it, because it may contain a
/// password.
fn urls(reader: &mut Reader<'_>) -> Vec<jdbc::Url> {
    if !reader.given(&URL) {
        return vec![jdbc::Url::default()];
    }
    for part in [&HOST, &PORT, &DATABASE] {
        if reader.given(part) {
            reader.fault(part, "the URL names the server too: leave one of them out");
        }
    }
    let name = reader.properties().setting(&URL).map_or(URL.name, |(name, _)| name).to_owned();
    let (text, mut all) = (reader.text(&URL), Vec::new());
    for text in text.split(';').filter(|text| !text.trim().is_empty()) {
        match jdbc::Url::parse(text, &["mysql", "mariadb"]) {
            Ok(url) if url.hosts.len() > 1 => reader.fault_overall(format!(
                "{name}: several hosts of one URL are for JDBC to choose from; name one, or shards with ';' between"
            )),
            Ok(url) => all.push(url),
            Err(problem) => reader.fault_overall(format!("{name}: {problem}")),
        }
    }
    if text.trim_matches([';', ' ']).is_empty() {
        reader.fault_overall(format!("{name}: names no server"));
    }
    all
}

/// Converts JDBC's settings for TLS.
fn ssl_mode(reader: &mut Reader<'_>, url: &jdbc::Url, otherwise: &'static str) -> &'static str {
    match url.parameter("sslMode").map(str::to_ascii_lowercase).as_deref() {
        None => otherwise,
        Some("disable" | "disabled") => "disable",
        Some("require" | "required" | "trust") => "require",
        Some("verify-full" | "verify_identity") => "verify-full",
        Some(other) => {
            reader.fault_overall(format!(
                "{}: sslMode={other}: must be DISABLED, REQUIRED or VERIFY_IDENTITY",
                URL.name
            ));
            otherwise
        }
    }
}

impl Mysql {
    /// Reads the properties. Does not connect.
    pub fn open(properties: &Properties) -> Result<Mysql, Faults> {
        let mut reader = Reader::new(properties);
        let urls = urls(&mut reader);
        let (host, port) = (reader.text(&HOST), reader.count(&PORT) as u16);
        let (user, password) = (reader.text(&USER), reader.optional_text(&PASSWORD));
        let mode = reader.choice(&SSL_MODE);
        let roots = reader.path(&SSL_ROOT_CERTIFICATE);
        let files = (reader.path(&SSL_CERTIFICATE), reader.path(&SSL_KEY));
        let identity = serval_tls::identity(&mut reader, (&SSL_CERTIFICATE, files.0), (&SSL_KEY, files.1));
        let identity = identity
            .map(|identity| ClientIdentity::new(identity.certificate_file.into(), identity.key_file.into()));
        let (mut servers, mut unread) = (Vec::new(), Vec::new());
        let (mut verified, mut encrypted) = (false, false);
        for url in &urls {
            let (host, port) = match url.hosts.first() {
                Some((host, known)) => (host.clone(), known.unwrap_or(port)),
                None => (host.clone(), port),
            };
            let mode = ssl_mode(&mut reader, url, mode);
            verified |= mode == "verify-full";
            encrypted |= mode != "disable";
            let options = OptsBuilder::default()
                .ip_or_hostname(host.clone())
                .tcp_port(port)
                .user(Some(url.parameter("user").unwrap_or(&user)))
                .pass(url.parameter("password").map(str::to_owned).or_else(|| password.clone()))
                .db_name(url.database.clone().or_else(|| Some(reader.text(&DATABASE))))
                // Connect only as specified.
                .prefer_socket(false)
                // Count matched rows: an update that changes nothing has found its record.
                .client_found_rows(true)
                .stmt_cache_size(link::DRIVER_STATEMENTS_MAX)
                .setup(vec!["SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',STRICT_TRANS_TABLES')"])
                .ssl_opts(ssl_options(mode, roots.as_ref(), identity.clone()));
            servers.push(MysqlServer::new(format!("{host}:{port}"), options.into()));
            let others = url.others(&["user", "password", "sslMode"]);
            unread.extend(others.into_iter().map(str::to_owned));
        }
        if identity.is_some() && !encrypted {
            reader.fault(&SSL_CERTIFICATE, "has no use with mysql.sslmode=disable");
        }
        match &roots {
            None if verified => {
                reader.fault(&SSL_ROOT_CERTIFICATE, "verify-full needs it: the certificates to trust")
            }
            Some(_) if !verified => {
                reader.fault(&SSL_ROOT_CERTIFICATE, "has a use with mysql.sslmode=verify-full only");
            }
            Some(path) => {
                if let Err(problem) = serval_tls::certificates(path) {
                    reader.fault(&SSL_ROOT_CERTIFICATE, problem);
                }
            }
            None => {}
        }
        let connect_timeout = reader.duration(&CONNECT_TIMEOUT);
        if connect_timeout.is_zero() {
            reader.fault(&CONNECT_TIMEOUT, "must be above zero");
        }
        let timeout = Some(reader.duration(&TIMEOUT)).filter(|timeout| !timeout.is_zero());
        let value_type = reader.choice(&VALUE_TYPE);
        reader.finish()?;
        // The driver uses the process's TLS provider, which may be installed only
        // once. It may be installed already.
        drop(rustls::crypto::ring::default_provider().install_default());
        unread.sort();
        unread.dedup();
        Ok(Mysql {
            servers: servers.into(),
            value_type,
            connect_timeout,
            timeout,
            unread,
            prepared: Mutex::default(),
        })
    }

    /// Prepares one server. Returns its settings.
    async fn prepare_server(
        &self,
        server: &MysqlServer,
        schema: &Schema,
        purpose: Purpose,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let mut link = server.connect(self.connect_timeout, Arc::default()).await?;
        let checking = self.check_table(server, &mut link, schema, purpose);
        // The server may stop answering at any time.
        match tokio::time::timeout(self.connect_timeout, checking).await {
            Ok(result) => result?,
            Err(_) => return Err(server.error("the server stopped answering while it was prepared")),
        }
        let names = "'version', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'innodb_buffer_pool_size', \
                     'transaction_isolation', 'tx_isolation', 'max_allowed_packet', 'max_connections'";
        let sql = format!("SHOW VARIABLES WHERE Variable_name IN ({names})");
        let facts = link.conn.query(sql).await.map_err(|error| server.refused(&error))?;
        // A failed goodbye does not matter.
        drop(link.conn.disconnect().await);
        Ok(facts)
    }

    /// Creates the table, or checks the existing one.
    async fn check_table(
        &self,
        server: &MysqlServer,
        link: &mut MysqlConnection,
        schema: &Schema,
        purpose: Purpose,
    ) -> Result<(), StoreError> {
        let Schema { table, fields } = schema;
        if purpose == Purpose::Load {
            let sql = client::create_table(self.value_type, schema);
            link.conn.query_drop(sql).await.map_err(|error| server.refused(&error))?;
        }
        let sql = "SELECT column_name, data_type FROM information_schema.columns \
                   WHERE table_schema = DATABASE() AND table_name = ? ORDER BY ordinal_position";
        let columns: Vec<(String, String)> =
            link.conn.exec(sql, (table,)).await.map_err(|error| server.refused(&error))?;
        if columns.is_empty() {
            return Err(server.error(format!(
                "the database has no table '{table}': load it first, with 'serval load mysql' and the same properties"
            )));
        }
        let wanted = || std::iter::once(KEY).chain(fields.iter().map(String::as_str));
        let there = |name: &str| columns.iter().find(|(column, _)| column.eq_ignore_ascii_case(name));
        let missing: Vec<String> =
            wanted().filter(|name| there(name).is_none()).map(str::to_ascii_uppercase).collect();
        if !missing.is_empty() {
            let all: Vec<&str> = columns.iter().map(|(column, _)| column.as_str()).collect();
            return Err(server.error(format!(
                "table '{table}' lacks the columns {}; it has {}: set fieldcount and fieldnameprefix as they were when \
                 it was loaded, or load into another table",
                missing.join(", "),
                all.join(", ")
            )));
        }
        for name in wanted() {
            if let Some((_, kind)) = there(name)
                && !["char", "text", "blob", "binary"].iter().any(|known| kind.contains(known))
            {
                return Err(server.error(format!(
                    "column {name} of table '{table}' is of type {kind}: it must be text or bytes",
                )));
            }
        }
        Ok(())
    }

    /// Returns faults of field names that apply to every server.
    fn check_names(&self, fields: &[String]) -> Result<(), StoreError> {
        let error = |problem: String| Err(self.servers[0].error(problem));
        for (index, field) in fields.iter().enumerate() {
            let mut taken = fields[..index].iter().map(String::as_str).chain([KEY]);
            if let Some(other) = taken.find(|other| other.eq_ignore_ascii_case(field)) {
                return error(format!(
                    "fields '{other}' and '{field}' would be one column: SQL takes names that differ only in case for \
                     the same; change fieldnameprefix"
                ));
            }
            if field.chars().count() > NAME_CHARACTERS_MAX {
                return error(format!(
                    "the field name '{field}' is longer than the {NAME_CHARACTERS_MAX} characters that MySQL lets a \
                     column's be; change fieldnameprefix"
                ));
            }
        }
        Ok(())
    }
}

/// Returns the driver's TLS settings.
fn ssl_options(mode: &str, roots: Option<&PathBuf>, identity: Option<ClientIdentity>) -> Option<SslOpts> {
    let options = SslOpts::default().with_client_identity(identity);
    match mode {
        "disable" => None,
        "require" => {
            let anyone = options.with_danger_accept_invalid_certs(true);
            Some(anyone.with_danger_skip_domain_validation(true))
        }
        _ => {
            let roots = roots.map(|path| path.clone().into()).into_iter().collect();
            Some(options.with_root_certs(roots).with_disable_built_in_roots(true))
        }
    }
}

impl Store for Mysql {
    type Local = ();
    type Client = MysqlClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn capabilities(&self) -> OperationKinds {
        if self.servers.len() == 1 {
            OperationKinds::ALL
        } else {
            OperationKinds::ALL.without(OperationKind::Scan)
        }
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        self.check_names(&schema.fields)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.servers[0].error(format!("no event loop: {error}")))?;
        let facts = runtime.block_on(async {
            let mut first = None;
            for server in self.servers.iter() {
                let facts = self.prepare_server(server, schema, purpose).await?;
                first.get_or_insert(facts);
            }
            Ok(first.unwrap_or_default())
        })?;
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        *prepared = PreparedStore { fields: schema.fields.clone().into(), facts };
        Ok(())
    }

    fn describe(&self) -> Vec<(String, String)> {
        let addresses: Vec<&str> = self.servers.iter().map(|server| server.address.as_str()).collect();
        let timeout = self.timeout.map(|timeout| units::format_duration(timeout.as_nanos() as u64));
        let mut all = vec![
            ("address".to_owned(), addresses.join(";")),
            ("shards".to_owned(), addresses.len().to_string()),
            ("timeout".to_owned(), timeout.unwrap_or_else(|| "none".to_owned())),
        ];
        if !self.unread.is_empty() {
            all.push(("URL parameters without effect".to_owned(), self.unread.join(", ")));
        }
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(prepared.facts.iter().cloned());
        all
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), _: usize) -> Result<MysqlClient, StoreError> {
        let fields = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).fields.clone();
        MysqlClient::connect(&self.servers, self.connect_timeout, self.timeout, fields).await
    }
}
