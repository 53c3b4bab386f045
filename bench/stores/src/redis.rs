//! Redis, with records laid out as YCSB lays them out.
//!
//! A record is a hash under its key. A sorted set `_indices` holds the keys of
//! all records by Java's `hashCode` of the key, for scans: these are in the
//! order of hashes, not of keys.
//!
//! | verb | commands, sent together |
//! |---|---|
//! | read | HGETALL, or HMGET of the fields wanted |
//! | update | HMSET (makes the record if there is none) |
//! | insert | HMSET, ZADD |
//! | scan | ZRANGEBYSCORE, then a read of each key |
//! | delete | DEL, ZREM |
//!
//! A connection that is lost fails the operations under way and is opened
//! again by the next one.

use crate::StoreInfo;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, Pipeline, RedisConnectionInfo,
    RedisError, Value, aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use serval_model::{
    Client, Execution, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Status, Store, StoreError,
    java::string_hash,
    properties::{Faults, Kind, Properties, Property, Reader, Table},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{sync::Mutex, time};

/// The sorted set of all keys, by YCSB's name.
const INDEX: &str = "_indices";

/// Time between attempts to connect again, so that a server that is down is
/// not asked by every operation.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

const HOST: Property =
    Property::ycsb("redis.host", Kind::Text, "Host name or address of the server.").default("localhost");
const PORT: Property =
    Property::ycsb("redis.port", Kind::Count { min: 1, max: 65535 }, "TCP port of the server.")
        .default("6379");
const PASSWORD: Property =
    Property::ycsb("redis.password", Kind::Text, "Password, if the server wants one (AUTH).");
const USERNAME: Property = Property::serval(
    "redis.username",
    Kind::Text,
    "User name for servers with access control lists (Redis 6 and later); without it, the default user.",
);
const TIMEOUT: Property = Property::ycsb(
    "redis.timeout",
    Kind::MILLISECONDS,
    "Longest wait for a connection and its first answer. Operations have no limit of their own: a slow server shall \
     show as slow.",
)
.default("2000")
.unit("ms");
const CLUSTER: Property = Property::ycsb(
    "redis.cluster",
    Kind::Flag,
    "Whether the server is part of a Redis Cluster. Not supported yet: true is refused.",
)
.default("false");
const DATABASE: Property = Property::serval(
    "redis.database",
    Kind::Count { min: 0, max: 1_000_000 },
    "Number of the database (SELECT).",
)
.default("0");
const CONNECTIONS: Property = Property::serval(
    "redis.connections",
    Kind::Count { min: 0, max: 100_000 },
    "Connections that the clients of one event loop share; commands of several clients then leave in one write, and \
     the server answers them in turn. 0 gives each client a connection of its own, as YCSB does.",
)
.default("0");

/// What help shows of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "redis",
    aliases: &["site.ycsb.db.RedisClient", "com.yahoo.ycsb.db.RedisClient"],
    summary: "Redis: a hash a record, a sorted set of keys for scans",
    details: "A record is a hash under its key; a sorted set '_indices' holds all keys by the Java hash code of the \
              key, so scans run in the order of hashes. YCSB's data set is the same: either tool reads what the \
              other loaded. The commands of one operation are sent together and cost one round trip (a scan two). \
              An update makes the record if there is none. Asynchronous: clients run on event loops.",
    time_series: false,
    properties: Table {
        heading: "redis",
        properties: &[&HOST, &PORT, &PASSWORD, &USERNAME, &DATABASE, &TIMEOUT, &CONNECTIONS, &CLUSTER],
    },
};

/// A Redis server.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    connections: usize,
}

/// Where the server is and how to connect to it.
#[derive(Debug, Clone)]
struct Server {
    name: String,
    client: redis::Client,
    timeout: Duration,
}

impl Redis {
    /// From its properties; does not connect.
    pub fn open(properties: &Properties) -> Result<Redis, Faults> {
        let mut reader = Reader::new(properties);
        let (host, port) = (reader.text(&HOST), reader.count(&PORT) as u16);
        let (username, password) = (reader.optional_text(&USERNAME), reader.optional_text(&PASSWORD));
        let timeout = reader.duration(&TIMEOUT);
        let connections = reader.count(&CONNECTIONS) as usize;
        if username.is_some() && password.is_none() {
            reader.fault(&USERNAME, "needs redis.password too");
        }
        if timeout.is_zero() && reader.given(&TIMEOUT) {
            reader.fault(&TIMEOUT, "must be above zero");
        }
        if reader.flag(&CLUSTER) {
            reader.fault(&CLUSTER, "Redis Cluster is not supported yet; point Serval at a single server");
        }
        let mut settings = RedisConnectionInfo::default()
            .set_db(reader.count(&DATABASE) as i64)
            // The server shall see the operations and nothing else.
            .set_skip_set_lib_name();
        if let Some(username) = username {
            settings = settings.set_username(username);
        }
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        let name = format!("redis at {host}:{port}");
        let address = ConnectionAddr::Tcp(host, port).into_connection_info();
        let client = address.and_then(|info| {
            let tcp = TcpSettings::default().set_nodelay(true);
            redis::Client::open(info.set_tcp_settings(tcp).set_redis_settings(settings))
        });
        let client = client.map_err(|error| reader.fault(&HOST, error)).ok();
        reader.finish()?;
        let Some(client) = client else { return Err(Faults::one("redis.host: no address")) };
        Ok(Redis { server: Server { name, client, timeout }, connections })
    }

    /// Sends one command on a blocking connection of its own, for set-up.
    fn ask(&self, command: &Cmd) -> Result<Value, StoreError> {
        let Server { client, timeout, .. } = &self.server;
        let answer = client.get_connection_with_timeout(*timeout).and_then(|mut connection| {
            connection.set_read_timeout(Some(*timeout))?;
            command.query(&mut connection)
        });
        answer.map_err(|error| self.server.failed(&error))
    }
}

impl Server {
    /// What went wrong before the first operation, and what to do.
    fn failed(&self, error: &RedisError) -> StoreError {
        let words = error.to_string();
        let advice = match error.code() {
            Some("NOAUTH") => "The server wants a password: set redis.password",
            Some("WRONGPASS" | "NOPERM") => "Check redis.password and redis.username",
            Some("MOVED" | "CLUSTERDOWN") => {
                "The server is part of a Redis Cluster, which is not supported yet"
            }
            Some("LOADING") => "The server is still loading its data: try again",
            _ if error.kind() == ErrorKind::AuthenticationFailed => {
                "Check redis.password (leave it out if the server has none) and redis.username"
            }
            _ if error.is_timeout() => {
                "Nobody answered within redis.timeout: are redis.host and redis.port right?"
            }
            _ if error.is_io_error() => "Is the server running, and are redis.host and redis.port right?",
            _ => "Is this a Redis server? Its log may say more",
        };
        StoreError::new(&self.name, format!("cannot connect: {words}. {advice}"))
    }

    /// Opens a connection and sees that the server answers on it.
    async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(None);
        let connecting = async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            // The cheapest command that a server refuses without credentials.
            let _: Value = redis::cmd("EXISTS").arg(INDEX).query_async(&mut connection).await?;
            Ok(connection)
        };
        match time::timeout(self.timeout, connecting).await {
            Ok(result) => result.map_err(|error| self.failed(&error)),
            Err(_) => {
                let problem = format!(
                    "cannot connect: no answer within {:?} (redis.timeout). Are redis.host and redis.port right?",
                    self.timeout
                );
                Err(StoreError::new(&self.name, problem))
            }
        }
    }
}

/// A place for a connection, with what is needed to open it again. Shared by
/// several clients, or one client's own.
#[derive(Debug)]
struct Seat {
    server: Server,
    connection: RefCell<Option<MultiplexedConnection>>,
    /// How often it has been opened: a client that failed on an older one
    /// must not close a newer one.
    opened: Cell<u64>,
    /// One client at a time opens it, and not before this.
    opening: Mutex<Option<Instant>>,
}

impl Seat {
    async fn connect(server: &Server) -> Result<Rc<Seat>, StoreError> {
        let connection = RefCell::new(Some(server.connect().await?));
        Ok(Rc::new(Seat {
            server: server.clone(),
            connection,
            opened: Cell::new(1),
            opening: Mutex::new(None),
        }))
    }

    /// The connection as it is, or opened again.
    async fn connection(&self) -> Result<(MultiplexedConnection, u64), Outcome> {
        let there = || self.connection.borrow().clone().map(|connection| (connection, self.opened.get()));
        if let Some(found) = there() {
            return Ok(found);
        }
        let mut retry_at = self.opening.lock().await;
        if let Some(found) = there() {
            return Ok(found);
        }
        if let Some(at) = *retry_at {
            time::sleep_until(at.into()).await;
        }
        *retry_at = Some(Instant::now() + RECONNECT_PAUSE);
        match self.server.connect().await {
            Ok(connection) => {
                self.opened.set(self.opened.get() + 1);
                *self.connection.borrow_mut() = Some(connection.clone());
                Ok((connection, self.opened.get()))
            }
            Err(error) => Err(Outcome::failed(Status::ServiceUnavailable, error.problem)),
        }
    }

    /// The outcome of an error; one of the connection closes it.
    fn failed(&self, error: &RedisError, opened: u64) -> Outcome {
        if error.is_unrecoverable_error() || error.is_io_error() || error.kind() == ErrorKind::Parse {
            if self.opened.get() == opened {
                *self.connection.borrow_mut() = None;
            }
            return Outcome::failed(Status::ServiceUnavailable, format!("connection lost: {error}"));
        }
        let status = match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => Status::Forbidden,
            Some(
                "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "READONLY" | "NOREPLICAS",
            ) => Status::ServiceUnavailable,
            Some("WRONGTYPE") => Status::UnexpectedState,
            _ => Status::Error,
        };
        Outcome::failed(status, error.to_string())
    }
}

/// What the clients of one event loop share.
#[derive(Debug)]
pub struct Local {
    /// Shared connections, opened as clients come.
    pool: Mutex<Vec<Rc<Seat>>>,
    next: Cell<usize>,
}

impl Store for Redis {
    type Local = Local;
    type Client = RedisClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn prepare(&self, _: &Schema, _: Purpose) -> Result<(), StoreError> {
        self.ask(&redis::cmd("PING")).map(drop)
    }

    fn describe(&self) -> Vec<(String, String)> {
        let connections = match self.connections {
            0 => "one a client".to_owned(),
            n => format!("{n} shared by the clients of an event loop"),
        };
        let address = self.server.name.trim_start_matches("redis at ").to_owned();
        let mut facts = vec![("address".to_owned(), address), ("connections".to_owned(), connections)];
        let Ok(text) = self.ask(&redis::cmd("INFO")) else { return facts };
        let text: String = redis::from_redis_value(text).unwrap_or_default();
        for wanted in ["redis_version", "redis_mode", "maxmemory_policy", "aof_enabled", "io_threads_active"]
        {
            let line = text.lines().find_map(|line| line.strip_prefix(wanted)?.strip_prefix(':'));
            if let Some(value) = line {
                facts.push((wanted.to_owned(), value.trim().to_owned()));
            }
        }
        facts
    }

    fn local(&self) -> Result<Local, StoreError> {
        Ok(Local { pool: Mutex::default(), next: Cell::default() })
    }

    async fn connect(&self, local: &Local, _: usize) -> Result<RedisClient, StoreError> {
        if self.connections == 0 {
            return Ok(RedisClient::new(Seat::connect(&self.server).await?));
        }
        let number = local.next.get() % self.connections;
        local.next.set(local.next.get() + 1);
        // Held while connecting, so that nobody opens the same one twice.
        let mut pool = local.pool.lock().await;
        if pool.len() <= number {
            pool.push(Seat::connect(&self.server).await?);
        }
        Ok(RedisClient::new(Rc::clone(&pool[number.min(pool.len() - 1)])))
    }
}

/// One client of a Redis server.
#[derive(Debug)]
pub struct RedisClient {
    seat: Rc<Seat>,
    /// The seat's connection as this client last had it.
    link: Option<(MultiplexedConnection, u64)>,
    /// The read command, kept for its memory.
    read: Cmd,
}

impl RedisClient {
    fn new(seat: Rc<Seat>) -> Self {
        RedisClient { seat, link: None, read: Cmd::new() }
    }

    /// The connection, if need be opened again.
    async fn link(&mut self) -> Result<&mut (MultiplexedConnection, u64), Outcome> {
        if self.link.is_none() {
            self.link = Some(self.seat.connection().await?);
        }
        self.link.as_mut().ok_or_else(unexpected)
    }

    fn failed(&mut self, error: &RedisError) -> Outcome {
        let opened = self.link.as_ref().map_or(0, |(_, opened)| *opened);
        let outcome = self.seat.failed(error, opened);
        if outcome.status == Status::ServiceUnavailable {
            self.link = None;
        }
        outcome
    }

    async fn command(&mut self, command: &Cmd) -> Result<Value, Outcome> {
        let (connection, _) = self.link().await?;
        let result = command.query_async(connection).await;
        result.map_err(|error| self.failed(&error))
    }

    async fn pipeline(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, Outcome> {
        let (connection, _) = self.link().await?;
        let result = pipeline.query_async(connection).await;
        result.map_err(|error| self.failed(&error))
    }

    async fn write(&mut self, pipeline: &Pipeline) -> Outcome {
        self.pipeline(pipeline).await.map_or_else(|outcome| outcome, |_| Outcome::OK)
    }
}

fn unexpected() -> Outcome {
    Outcome::failed(Status::UnexpectedState, "the server's reply has another shape than the command's")
}

fn read_command(command: &mut Cmd, key: &[u8], fields: &FieldSelection) {
    if fields.is_all() {
        command.arg("HGETALL").arg(key);
        return;
    }
    command.arg("HMGET").arg(key);
    for field in fields.iter() {
        command.arg(field);
    }
}

fn write_command(key: &str, record: &Record) -> Cmd {
    let mut command = redis::cmd("HMSET");
    command.arg(key);
    for (name, value) in record.iter() {
        command.arg(name).arg(value);
    }
    command
}

fn index_command(key: &str) -> Cmd {
    let mut command = redis::cmd("ZADD");
    command.arg(INDEX).arg(string_hash(key)).arg(key);
    command
}

/// Moves the fields of a read's reply into a record.
fn take_record(reply: Value, fields: &FieldSelection, record: &mut Record) -> Result<(), Outcome> {
    let Value::Array(values) = reply else { return Err(unexpected()) };
    if !fields.is_all() {
        for (name, value) in fields.iter().zip(&values) {
            match value {
                Value::BulkString(value) => record.push(name, value),
                Value::Nil => {}
                _ => return Err(unexpected()),
            }
        }
        return Ok(());
    }
    for pair in values.chunks_exact(2) {
        let [Value::BulkString(name), Value::BulkString(value)] = pair else { return Err(unexpected()) };
        record.push(std::str::from_utf8(name).map_err(|_| unexpected())?, value);
    }
    Ok(())
}

impl Client for RedisClient {
    async fn read(&mut self, _: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        let mut command = std::mem::take(&mut self.read);
        command.clear();
        read_command(&mut command, key.as_bytes(), fields);
        let value = self.command(&command).await;
        self.read = command;
        let value = match value {
            Ok(value) => value,
            Err(outcome) => return outcome,
        };
        let record = reply.begin_record();
        if let Err(outcome) = take_record(value, fields, record) {
            return outcome;
        }
        if record.is_empty() {
            reply.clear();
            return Outcome::NOT_FOUND;
        }
        Outcome::OK
    }

    async fn update(&mut self, _: &str, key: &str, fields: &Record) -> Outcome {
        self.command(&write_command(key, fields)).await.map_or_else(|outcome| outcome, |_| Outcome::OK)
    }

    async fn insert(&mut self, _: &str, key: &str, record: &Record) -> Outcome {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(write_command(key, record)).add_command(index_command(key));
        self.write(&pipeline).await
    }

    async fn scan(
        &mut self,
        _: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        let mut range = redis::cmd("ZRANGEBYSCORE");
        range.arg(INDEX).arg(string_hash(start_key)).arg("+inf");
        // LIMIT takes a signed number.
        range.arg("LIMIT").arg(0).arg(count.min(i64::MAX as u64));
        let keys = match self.command(&range).await {
            Ok(Value::Array(keys)) => keys,
            Ok(_) => return unexpected(),
            Err(outcome) => return outcome,
        };
        if keys.is_empty() {
            return Outcome::OK;
        }
        let mut pipeline = Pipeline::with_capacity(keys.len());
        for key in &keys {
            let Value::BulkString(key) = key else { return unexpected() };
            let mut command = Cmd::new();
            read_command(&mut command, key, fields);
            pipeline.add_command(command);
        }
        match self.pipeline(&pipeline).await {
            Ok(records) => {
                for record in records {
                    // A record deleted since the first command is an empty one.
                    if let Err(outcome) = take_record(record, fields, reply.begin_record()) {
                        return outcome;
                    }
                }
                Outcome::OK
            }
            Err(outcome) => outcome,
        }
    }

    async fn delete(&mut self, _: &str, key: &str) -> Outcome {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("DEL").arg(key).cmd("ZREM").arg(INDEX).arg(key);
        match self.pipeline(&pipeline).await {
            Ok(counts) if counts.iter().all(|count| *count == Value::Int(0)) => Outcome::NOT_FOUND,
            Ok(_) => Outcome::OK,
            Err(outcome) => outcome,
        }
    }

    async fn insert_batch(&mut self, _: &str, records: &[(String, Record)]) -> Outcome {
        if records.is_empty() {
            return Outcome::OK;
        }
        let mut pipeline = Pipeline::with_capacity(2 * records.len());
        for (key, record) in records {
            pipeline.add_command(write_command(key, record)).add_command(index_command(key));
        }
        self.write(&pipeline).await
    }
}
