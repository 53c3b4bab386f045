//! memcached, in YCSB's layout: a JSON object of strings under the key
//! `TABLE-KEY`.
//!
//! | verb | meta commands of the text protocol |
//! |---|---|
//! | read | mg; the client selects the fields |
//! | update, `merge` | mg with the item's version, then ms for this version only; repeated if another client wrote in between |
//! | update, `replace` | ms of the given fields, if the item exists |
//! | insert | ms, if the item does not exist |
//! | scan | not implemented: memcached has no order and no list of keys |
//! | delete | md |
//!
//! With several servers, a key's server is that of the Java client of YCSB's binding
//! (spymemcached): Java's hash code of `TABLE-KEY`, as an unsigned number, modulo the
//! number of servers. There is no failover.

use crate::{
    StoreInfo, json, optional,
    reconnecting::{ConnectionFate, Connector, OperationFailure, Reconnecting, TimeLimit},
};
use async_memcached::{
    AsciiProtocol, Client as Driver, Error, ErrorKind, MetaProtocol, MetaValue, Status as Said,
};
use serval_model::{
    Client, Execution, FieldSelection, OperationKind, OperationKinds, Outcome, Purpose, Record, Reply,
    Schema, Status, Store, StoreError,
    java::string_hash,
    properties::{Faults, Kind, Properties, Property, PropertyTable, Reader},
};
use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
    task::Context,
    time::Duration,
};
use tokio::time;

/// Default port.
const PORT: u16 = 11211;

/// Maximum attempts of an update whose record another client changes in
/// between. Each failed attempt is another client's progress; this many in a row
/// mean that too many clients write one record.
const UPDATE_ATTEMPTS_MAX: usize = 1000;

const HOSTS: Property = Property::ycsb(
    "memcached.hosts",
    Kind::Names,
    "Servers, host or host:port, separated by commas; the default port is 11211. A key is on server h \
     modulo their number, counted from 0 in this order, where h is the Java hash code of TABLE-KEY as an \
     unsigned number.",
)
.default("localhost");
const EXPIRATION: Property = Property::ycsb(
    "memcached.objectExpirationTime",
    Kind::Count { min: 0, max: i32::MAX as u64 },
    "Item TTL: seconds from now, or above 30 days a Unix time. 0: no TTL. YCSB's default, 2147483647, is \
     a day in 2038.",
)
.default("0")
.unit("s");
const UPDATE: Property = Property::serval(
    "memcached.update",
    Kind::Choice(&["merge", "replace"]),
    "Kind of update. merge: reads the record and writes it back with the given fields changed, if no \
     other client has changed it since. replace: writes the given fields and drops all others, as YCSB's \
     binding does, in one round trip.",
)
.default("merge");
const USERNAME: Property = Property::serval(
    "memcached.username",
    Kind::Text,
    "User name, for servers that require one on the text protocol (memcached -Y); needs \
     memcached.password.",
);
const PASSWORD: Property =
    Property::serval("memcached.password", Kind::Text, "Password of memcached.username.");
const TIMEOUT: Property = Property::serval(
    "memcached.timeout",
    Kind::MILLISECONDS,
    "Timeout for a connection and its first answer. Operations have a timeout of their own, \
     memcached.opTimeoutMillis.",
)
.default("2000")
.unit("ms");
const OPERATION_TIMEOUT: Property = Property::ycsb(
    "memcached.opTimeoutMillis",
    Kind::MILLISECONDS,
    "Timeout of an operation. The operation then fails, and its connection is reopened. If unset: no \
     timeout (YCSB: 60 s), so that a slow server shows as slow.",
)
.unit("ms");
const PROTOCOL: Property =
    Property::ignored("memcached.protocol", "the meta commands of the text protocol are always used.");
const FAILURE_MODE: Property =
    Property::ignored("memcached.failureMode", "operations on a server that is down fail.");
const CHECK_STATUS: Property =
    Property::ignored("memcached.checkOperationStatus", "the server's answer is always checked.");
const READ_BUFFER: Property = Property::ignored("memcached.readBufferSize", "buffers grow as needed.");
const SHUTDOWN: Property =
    Property::ignored("memcached.shutdownTimeoutMillis", "a client has no operation in flight when it ends.");

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: optional::MEMCACHED.name,
    aliases: optional::MEMCACHED.aliases,
    summary: optional::MEMCACHED.summary,
    details: "A record is a JSON object of strings under the key TABLE-KEY, as in YCSB's binding. Either \
              tool reads what the other loaded, except for records above 16 KiB, which YCSB's Java client \
              compresses. An insert of an existing record is an ERROR. An update reads the record and \
              writes it back (memcached.update), and is NOT_FOUND if there is no record. There are no \
              scans. Values must be UTF-8.\n\
              A key has at most 250 bytes, including the table, and no spaces or control characters; a \
              record has at most 1 MiB unless the server was started with more (-I); others are \
              BAD_REQUEST. An update that makes a record too large loses the old one, because the server \
              drops it. A server that runs out of memory evicts records unless it was started with -M. \
              Asynchronous: clients run on event loops, each with a connection of its own to every \
              server. Servers of version 1.6 or later. No TLS and no SASL: the driver has neither; user \
              names and passwords are those of the text protocol (-Y).",
    time_series: false,
    keeps_records: true,
    batches: false,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable {
        heading: "memcached",
        properties: &[
            &HOSTS,
            &UPDATE,
            &EXPIRATION,
            &USERNAME,
            &PASSWORD,
            &TIMEOUT,
            &OPERATION_TIMEOUT,
            &PROTOCOL,
            &FAILURE_MODE,
            &CHECK_STATUS,
            &READ_BUFFER,
            &SHUTDOWN,
        ],
    },
};

/// One memcached or several.
#[derive(Debug)]
pub struct Memcached {
    settings: Arc<MemcachedSettings>,
    /// Facts about the first server, from the preparation of the store.
    facts: Mutex<Vec<(String, String)>>,
}

#[derive(Debug)]
struct MemcachedSettings {
    addresses: Vec<String>,
    merge: bool,
    /// Flag of writes for the item TTL; empty for none.
    expiration: String,
    /// User name and password.
    login: Option<String>,
    timeout: Duration,
    operation_timeout: Option<Duration>,
}

impl Memcached {
    /// Reads the properties. Does not connect.
    pub fn open(properties: &Properties) -> Result<Memcached, Faults> {
        let mut reader = Reader::new(properties);
        let addresses = addresses(&mut reader);
        let merge = reader.choice(&UPDATE) == "merge";
        let expiration = match reader.count(&EXPIRATION) {
            0 => String::new(),
            seconds => format!("T{seconds}"),
        };
        let login = login(&mut reader);
        let timeout = above_zero(&mut reader, &TIMEOUT);
        let operation_timeout =
            reader.given(&OPERATION_TIMEOUT).then(|| above_zero(&mut reader, &OPERATION_TIMEOUT));
        reader.finish()?;
        let settings = MemcachedSettings { addresses, merge, expiration, login, timeout, operation_timeout };
        Ok(Memcached { settings: Arc::new(settings), facts: Mutex::default() })
    }
}

fn above_zero(reader: &mut Reader<'_>, property: &'static Property) -> Duration {
    let duration = reader.duration(property);
    if duration.is_zero() && reader.given(property) {
        reader.fault(property, "must be above zero");
    }
    duration
}

fn addresses(reader: &mut Reader<'_>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in reader.names(&HOSTS) {
        let (host, port) = match name.rsplit_once(':') {
            Some((host, digits)) => (host, digits.parse().unwrap_or(0)),
            None => (&*name, PORT),
        };
        let address = format!("{host}:{port}");
        if host.is_empty() || host.contains([':', '/', '@', ' ']) || port == 0 {
            reader.fault(&HOSTS, format!("'{name}' is no host or host:port (the driver speaks IPv4 only)"));
        } else if found.contains(&address) {
            reader.fault(&HOSTS, format!("names '{name}' twice"));
        } else {
            found.push(address);
        }
    }
    if found.is_empty() {
        reader.fault(&HOSTS, "names no server");
    }
    found
}

fn login(reader: &mut Reader<'_>) -> Option<String> {
    let (username, password) = (reader.optional_text(&USERNAME), reader.optional_text(&PASSWORD));
    if username.is_some() != password.is_some() {
        reader.fault(&USERNAME, "and memcached.password need each other");
    }
    let (username, password) = (username?, password?);
    if username.contains(|c: char| c.is_whitespace() || c == ':') {
        reader.fault(&USERNAME, "cannot have spaces or colons");
    }
    if password.contains(char::is_control) {
        reader.fault(&PASSWORD, "cannot have control characters");
    }
    Some(format!("{username} {password}"))
}

impl MemcachedSettings {
    fn error(&self, server: usize, problem: impl Into<String>) -> StoreError {
        StoreError::new(format!("memcached at {}", self.addresses[server]), problem)
    }

    /// Opens a connection and checks that the server answers.
    async fn connect(&self, server: usize) -> Result<Driver, StoreError> {
        let connecting = async {
            let mut driver = Driver::new(format!("tcp://{}", self.addresses[server])).await?;
            if let Some(login) = &self.login {
                // An item that expires at once, for servers without authentication.
                driver.set("serval", login, Some(-1), None).await?;
            }
            driver.meta_get("serval", false, None, Some(&["v"])).await?;
            Ok::<Driver, Error>(driver)
        };
        match time::timeout(self.timeout, connecting).await {
            Ok(result) => result.map_err(|error| self.failed(server, &error)),
            Err(_) => Err(self.error(
                server,
                format!(
                    "cannot connect: no answer within {:?} (memcached.timeout). Does memcached.hosts name a memcached?",
                    self.timeout
                ),
            )),
        }
    }

    /// Returns an error of the set-up, with advice.
    fn failed(&self, server: usize, error: &Error) -> StoreError {
        let words = words(error);
        let advice = match (ServerMessage::of(error), error) {
            (Some(ServerMessage::NoLogin), _) => {
                "The server wants a user name and a password: set memcached.username and memcached.password"
            }
            (Some(ServerMessage::WrongLogin), _) => "Check memcached.username and memcached.password",
            (_, Error::Connect(_)) => "Is the server running, and does memcached.hosts name it?",
            _ => "Is this a memcached of version 1.6 or later, without TLS?",
        };
        self.error(server, format!("cannot connect: {words}. {advice}"))
    }
}

/// Returns the server's message, or the driver's cause.
fn words(error: &Error) -> String {
    match error {
        Error::Protocol(Said::Error(ErrorKind::Client(said) | ErrorKind::Server(said))) => said.clone(),
        Error::Protocol(said) => said.to_string(),
        Error::Connect(error) | Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

impl Store for Memcached {
    type Local = ();
    type Client = MemcachedClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn capabilities(&self) -> OperationKinds {
        OperationKinds::ALL.without(OperationKind::Scan)
    }

    fn prepare(&self, _: &Schema, _: Purpose) -> Result<(), StoreError> {
        let settings = &self.settings;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| settings.error(0, format!("no event loop: {error}")))?;
        let mut facts = Vec::new();
        for server in 0..settings.addresses.len() {
            runtime.block_on(async {
                let mut driver = settings.connect(server).await?;
                if server == 0 {
                    let stats = time::timeout(settings.timeout, driver.stats()).await;
                    // A proxy may have none; they are optional.
                    let stats = stats.ok().and_then(Result::ok).unwrap_or_default();
                    for name in ["version", "threads", "limit_maxbytes"] {
                        facts.extend(stats.get(name).map(|value| (name.to_owned(), value.trim().to_owned())));
                    }
                }
                Ok(())
            })?;
        }
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = facts;
        Ok(())
    }

    fn describe(&self) -> Vec<(String, String)> {
        let update = if self.settings.merge { "merge" } else { "replace" };
        let mut facts = vec![
            ("address".to_owned(), self.settings.addresses.join(",")),
            ("connections".to_owned(), "one a client and server".to_owned()),
            ("update".to_owned(), update.to_owned()),
        ];
        facts.extend(self.facts.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        facts
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), _: usize) -> Result<MemcachedClient, StoreError> {
        let settings = &self.settings;
        let mut links = Vec::with_capacity(settings.addresses.len());
        for server in 0..settings.addresses.len() {
            let opener = MemcachedConnector { settings: Arc::clone(settings), server };
            links.push(Reconnecting::connect(opener).await?);
        }
        Ok(MemcachedClient {
            settings: Arc::clone(settings),
            links,
            key: String::new(),
            document: Vec::new(),
            old: Record::new(),
            new: Record::new(),
        })
    }
}

/// Returns the number of a key's server, as spymemcached's ArrayModNodeLocator with its
/// native hash.
fn server_of(key: &str, servers: usize) -> usize {
    // A single server, the usual case, needs no hash.
    if servers == 1 { 0 } else { string_hash(key) as u32 as usize % servers }
}

/// Opens clients' connections to one server.
struct MemcachedConnector {
    settings: Arc<MemcachedSettings>,
    server: usize,
}

impl Connector for MemcachedConnector {
    type Connection = Driver;
    type Error = Error;

    fn limit(&self) -> TimeLimit {
        TimeLimit { time: self.settings.operation_timeout, property: OPERATION_TIMEOUT.name }
    }

    fn open(&self) -> impl Future<Output = Result<Driver, StoreError>> + 'static {
        let (settings, server) = (Arc::clone(&self.settings), self.server);
        async move { settings.connect(server).await }
    }

    fn share(_: &Driver) -> Option<Driver> {
        None
    }

    fn is_usable(driver: &mut Driver, _: &mut Context<'_>) -> bool {
        !driver.is_closed()
    }

    fn failure(&self, _: &Driver, error: &Error) -> OperationFailure {
        failure(error)
    }
}

/// One client with its connections.
pub struct MemcachedClient {
    settings: Arc<MemcachedSettings>,
    links: Vec<Reconnecting<MemcachedConnector>>,
    /// The server's key for the operation's table and key.
    key: String,
    document: Vec<u8>,
    /// The old and the new record.
    old: Record,
    new: Record,
}

/// Separates expected refusals from errors.
fn expected<T>(result: Result<T, Error>) -> Result<Result<T, Said>, Error> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Error::Protocol(said @ (Said::NotStored | Said::Exists | Said::NotFound))) => Ok(Err(said)),
        Err(error) => Err(error),
    }
}

/// The server's message of a `CLIENT_ERROR` or `SERVER_ERROR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerMessage {
    NoLogin,
    WrongLogin,
    TooLarge,
    OutOfMemory,
}

impl ServerMessage {
    /// Classifies it by its text: the protocol has no codes besides these two.
    fn of(error: &Error) -> Option<ServerMessage> {
        let Error::Protocol(Said::Error(kind)) = error else { return None };
        match kind {
            ErrorKind::Client(words) if words.contains("unauthenticated") => Some(ServerMessage::NoLogin),
            ErrorKind::Client(words) if words.contains("authentication") => Some(ServerMessage::WrongLogin),
            ErrorKind::Server(words) if words.contains("too large") => Some(ServerMessage::TooLarge),
            ErrorKind::Server(words) if words.contains("memory") => Some(ServerMessage::OutOfMemory),
            _ => None,
        }
    }

    fn status(self) -> Status {
        match self {
            ServerMessage::NoLogin | ServerMessage::WrongLogin => Status::Forbidden,
            ServerMessage::TooLarge => Status::BadRequest,
            ServerMessage::OutOfMemory => Status::ServiceUnavailable,
        }
    }
}

/// Converts an error to an outcome and the fate of its connection.
fn failure(error: &Error) -> OperationFailure {
    let cause = ServerMessage::of(error);
    let status = match error {
        Error::Protocol(Said::Error(kind)) => match kind {
            ErrorKind::KeyTooLong => Some(Status::BadRequest),
            ErrorKind::Client(_) | ErrorKind::Server(_) if cause.is_some() => {
                cause.map(ServerMessage::status)
            }
            ErrorKind::Client(_) => Some(Status::BadRequest),
            ErrorKind::Server(_) | ErrorKind::Generic(_) | ErrorKind::NonexistentCommand => {
                Some(Status::Error)
            }
            ErrorKind::Protocol(_) | ErrorKind::OpaqueTooLong => None,
        },
        Error::Protocol(_) => Some(Status::UnexpectedState),
        _ => None,
    };
    match status {
        Some(status) => {
            OperationFailure { fate: ConnectionFate::Kept, outcome: Outcome::failed(status, words(error)) }
        }
        None => {
            let words = format!("connection lost: {}", words(error));
            OperationFailure {
                fate: ConnectionFate::Lost,
                outcome: Outcome::failed(Status::ServiceUnavailable, words),
            }
        }
    }
}

/// Parses a document into a record.
fn take(item: MetaValue, record: &mut Record) -> Result<(), Outcome> {
    let document = item.data.unwrap_or_default();
    json::read(&document, record).map_err(|error| {
        let words = if document.starts_with(b"\x1f\x8b") {
            "the record is compressed, as YCSB's Java client does above 16 KiB".to_owned()
        } else {
            format!("the item is no JSON object: {error}")
        };
        Outcome::failed(Status::UnexpectedState, words)
    })
}

impl MemcachedClient {
    /// Runs a function with a key on its server's connection.
    async fn with_key<T>(
        &mut self,
        table: &str,
        key: &str,
        work: impl AsyncFnOnce(&mut Driver, &str) -> Result<T, Error>,
    ) -> Result<Result<T, Said>, Outcome> {
        self.key.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.key, "{table}-{key}");
        let (key, server) = (&self.key, server_of(&self.key, self.links.len()));
        self.links[server].run(async |driver| expected(work(driver, key).await)).await
    }

    /// Gets the item of a key.
    async fn get(&mut self, table: &str, key: &str, flags: &[&str]) -> Result<MetaValue, Outcome> {
        let work =
            async |driver: &mut Driver, key: &str| driver.meta_get(key, false, None, Some(flags)).await;
        self.with_key(table, key, work).await?.ok().flatten().ok_or(Outcome::NOT_FOUND)
    }

    /// Writes the document under a key, with a mode or for a version.
    async fn set(&mut self, table: &str, key: &str, how: &str) -> Result<Result<(), Said>, Outcome> {
        let settings = Arc::clone(&self.settings);
        let document = std::mem::take(&mut self.document);
        let flags = [how, &settings.expiration];
        let flags = if settings.expiration.is_empty() { &flags[..1] } else { &flags[..] };
        let work = async |driver: &mut Driver, key: &str| {
            driver.meta_set(key, &document[..], false, None, Some(flags)).await
        };
        let said = self.with_key(table, key, work).await;
        self.document = document;
        Ok(said?.map(drop))
    }

    async fn merge(&mut self, table: &str, key: &str, fields: &Record) -> Result<Outcome, Outcome> {
        for _ in 0..UPDATE_ATTEMPTS_MAX {
            let item = self.get(table, key, &["v", "c"]).await?;
            let version =
                item.cas.ok_or_else(|| Outcome::error("the server's reply has no version (flag c)"))?;
            self.old.clear();
            take(item, &mut self.old)?;
            json::merge(&self.old, fields, &mut self.new);
            self.document.clear();
            json::write(&self.new, &mut self.document)?;
            match self.set(table, key, &format!("C{version}")).await? {
                Ok(()) => return Ok(Outcome::OK),
                // Another client has changed it.
                Err(Said::Exists) => {}
                Err(_) => return Ok(Outcome::NOT_FOUND),
            }
        }
        let words = format!("{UPDATE_ATTEMPTS_MAX} times in a row another client changed the record");
        Err(Outcome::failed(Status::ServiceUnavailable, words))
    }
}

impl Client for MemcachedClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        let item = match self.get(table, key, &["v"]).await {
            Ok(item) => item,
            Err(outcome) => return outcome,
        };
        let record = reply.begin_record();
        let taken = if fields.is_all() {
            take(item, record)
        } else {
            self.old.clear();
            take(item, &mut self.old).map(|()| {
                for (name, value) in self.old.iter().filter(|(name, _)| fields.wants(name)) {
                    record.push(name, value);
                }
            })
        };
        match taken {
            Ok(()) => Outcome::OK,
            Err(outcome) => {
                reply.clear();
                outcome
            }
        }
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        if self.settings.merge {
            return self.merge(table, key, fields).await.unwrap_or_else(|outcome| outcome);
        }
        self.document.clear();
        if let Err(outcome) = json::write(fields, &mut self.document) {
            return outcome;
        }
        match self.set(table, key, "MR").await {
            Ok(Ok(())) => Outcome::OK,
            Ok(Err(_)) => Outcome::NOT_FOUND,
            Err(outcome) => outcome,
        }
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        self.document.clear();
        if let Err(outcome) = json::write(record, &mut self.document) {
            return outcome;
        }
        match self.set(table, key, "ME").await {
            Ok(Ok(())) => Outcome::OK,
            Ok(Err(_)) => Outcome::error("there is a record under this key already"),
            Err(outcome) => outcome,
        }
    }

    async fn scan(&mut self, _: &str, _: &str, _: u64, _: &FieldSelection, _: &mut Reply) -> Outcome {
        Outcome::failed(Status::NotImplemented, "memcached cannot scan")
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        let work = async |driver: &mut Driver, key: &str| driver.meta_delete(key, false, None, None).await;
        match self.with_key(table, key, work).await {
            Ok(Ok(_)) => Outcome::OK,
            Ok(Err(_)) => Outcome::NOT_FOUND,
            Err(outcome) => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_of_the_server_map_to_statuses() {
        let client = |words: &str| ErrorKind::Client(words.to_owned());
        let server = |words: &str| ErrorKind::Server(words.to_owned());
        for (kind, status) in [
            (client("unauthenticated"), Status::Forbidden),
            (client("authentication failure"), Status::Forbidden),
            (client("bad command line format"), Status::BadRequest),
            (server("object too large for cache"), Status::BadRequest),
            (server("out of memory storing object"), Status::ServiceUnavailable),
            (server("odd"), Status::Error),
        ] {
            let words = format!("{kind:?}");
            let failure = failure(&Error::Protocol(Said::Error(kind)));
            assert_eq!((failure.fate, failure.outcome.status), (ConnectionFate::Kept, status), "{words}");
        }
    }

    #[test]
    fn a_key_is_on_the_server_that_spymemcached_chooses() {
        // From version 2.11.4, which YCSB uses; the first and the last hash are
        // negative.
        for (key, of_3, of_4) in [
            ("dustin", 0, 3),
            ("x", 0, 0),
            ("y", 1, 1),
            ("usertable-user1", 1, 0),
            ("polygenelubricants", 2, 0),
        ] {
            assert_eq!((server_of(key, 3), server_of(key, 4)), (of_3, of_4), "{key}");
        }
        assert_eq!(server_of("anything", 1), 0);
    }
}
