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

mod connection;
mod resp;

use crate::StoreInfo;
use connection::{Address, Link, OwnLink, SharedConnection, SharedLink, first_error};
use resp::{Part, Parts, argument, command};
use serval_model::{
    Client, Execution, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Status, Store, StoreError,
    java::string_hash,
    properties::{Faults, Kind, Properties, Property, Reader, Table},
};
use std::{
    cell::RefCell,
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    rc::Rc,
    time::Duration,
};
use tokio::sync::Mutex;

/// The sorted set of all keys, by YCSB's name.
const INDEX: &str = "_indices";

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
    "Longest wait for a connection and its greeting. Operations have no limit of their own: a slow server shall show as slow.",
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
    properties: Table {
        heading: "redis",
        properties: &[&HOST, &PORT, &PASSWORD, &USERNAME, &DATABASE, &TIMEOUT, &CONNECTIONS, &CLUSTER],
    },
};

/// A Redis server.
#[derive(Debug)]
pub struct Redis {
    address: Address,
    connections: usize,
}

impl Redis {
    /// From its properties; does not connect.
    pub fn open(properties: &Properties) -> Result<Redis, Faults> {
        let mut reader = Reader::new(properties);
        let address = Address {
            host: reader.text(&HOST),
            port: reader.count(&PORT) as u16,
            username: reader.optional_text(&USERNAME),
            password: reader.optional_text(&PASSWORD),
            database: reader.count(&DATABASE),
            connect_timeout: reader.duration(&TIMEOUT),
        };
        if address.username.is_some() && address.password.is_none() {
            reader.fault(&USERNAME, "needs redis.password too");
        }
        if address.connect_timeout.is_zero() && reader.given(&TIMEOUT) {
            reader.fault(&TIMEOUT, "must be above zero");
        }
        if reader.flag(&CLUSTER) {
            reader.fault(&CLUSTER, "Redis Cluster is not supported yet; point Serval at a single server");
        }
        let connections = reader.count(&CONNECTIONS) as usize;
        reader.finish()?;
        Ok(Redis { address, connections })
    }

    /// Sends one command on a blocking connection of its own, for set-up.
    fn ask(&self, words: &[&str]) -> Result<Vec<u8>, StoreError> {
        let Address { host, port, connect_timeout, .. } = &self.address;
        let unreachable = |error: std::io::Error| self.address.unreachable(&error);
        let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the host name has no address");
        for socket in (host.as_str(), *port).to_socket_addrs().map_err(unreachable)? {
            let stream = TcpStream::connect_timeout(&socket, *connect_timeout);
            match stream.and_then(|stream| self.ask_on(stream, words)) {
                Ok(replies) => {
                    return match first_error(&replies) {
                        None => Ok(replies),
                        Some(message) => Err(self.address.refused(&message)),
                    };
                }
                Err(error) => last = error,
            }
        }
        Err(unreachable(last))
    }

    fn ask_on(&self, mut stream: TcpStream, words: &[&str]) -> std::io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(self.address.connect_timeout.max(Duration::from_millis(1))))?;
        let (mut out, greetings) = self.address.greeting();
        command(&mut out, words.len());
        words.iter().for_each(|word| argument(&mut out, word.as_bytes()));
        stream.write_all(&out)?;
        let (mut received, mut start, mut missing) = (Vec::new(), 0, greetings + 1);
        let mut scanner = resp::Scanner::default();
        let mut chunk = [0; 4096];
        loop {
            let count = stream.read(&mut chunk)?;
            if count == 0 {
                return Err(std::io::Error::new(
                    std::io::ErrorKind::UnexpectedEof,
                    "the server closed the connection",
                ));
            }
            received.extend_from_slice(&chunk[..count]);
            while missing > 0 && start < received.len() {
                let found = scanner.reply(&received[start..]);
                match found
                    .map_err(|nonsense| std::io::Error::new(std::io::ErrorKind::InvalidData, nonsense))?
                {
                    Some(length) => (start, missing) = (start + length, missing - 1),
                    None => break,
                }
            }
            if missing == 0 {
                return Ok(received);
            }
        }
    }
}

/// What the clients of one event loop share.
#[derive(Debug)]
pub struct Local {
    address: Rc<Address>,
    /// Shared connections of this loop, opened as clients come.
    pool: Rc<Mutex<Vec<Rc<SharedConnection>>>>,
    /// How many there may be.
    size: usize,
    next: RefCell<usize>,
}

impl Store for Redis {
    type Local = Local;
    type Client = RedisClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn prepare(&self, _: &Schema, _: Purpose) -> Result<(), StoreError> {
        self.ask(&["PING"]).map(drop)
    }

    fn describe(&self) -> Vec<(String, String)> {
        let mut facts = vec![
            ("address".to_owned(), format!("{}:{}", self.address.host, self.address.port)),
            (
                "connections".to_owned(),
                match self.connections {
                    0 => "one a client".to_owned(),
                    n => format!("{n} shared"),
                },
            ),
        ];
        let Ok(replies) = self.ask(&["INFO"]) else { return facts };
        let text = String::from_utf8_lossy(&replies);
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
        Ok(Local {
            address: Rc::new(self.address.clone()),
            pool: Rc::default(),
            size: self.connections,
            next: RefCell::default(),
        })
    }

    async fn connect(&self, local: &Local, _: usize) -> Result<RedisClient, StoreError> {
        let link = if local.size == 0 {
            Link::Own(Box::new(OwnLink::connect(Rc::clone(&local.address)).await?))
        } else {
            let number = {
                let mut next = local.next.borrow_mut();
                *next += 1;
                (*next - 1) % local.size
            };
            // Held while connecting, so that nobody opens the same one twice.
            let mut pool = local.pool.lock().await;
            if pool.len() <= number {
                pool.push(SharedConnection::connect(Rc::clone(&local.address)).await?);
            }
            let connection = Rc::clone(&pool[number.min(pool.len() - 1)]);
            Link::Shared(SharedLink::new(connection))
        };
        Ok(RedisClient { link, out: Vec::new(), inbox: Vec::new(), more: Vec::new() })
    }
}

/// One client of a Redis server.
#[derive(Debug)]
pub struct RedisClient {
    link: Link,
    out: Vec<u8>,
    inbox: Vec<u8>,
    more: Vec<u8>,
}

fn failure(message: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(message);
    let status = match text.split(' ').next().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" | "NOPERM" => Status::Forbidden,
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "READONLY" | "NOREPLICAS" => {
            Status::ServiceUnavailable
        }
        "WRONGTYPE" => Status::UnexpectedState,
        _ => Status::Error,
    };
    Outcome::failed(status, text)
}

fn unexpected() -> Outcome {
    Outcome::failed(Status::UnexpectedState, "the server's reply has another shape than the command's")
}

/// Moves the fields of one record from a reply. `None` when there is none.
fn take_record<'a>(
    parts: &mut impl Iterator<Item = Part<'a>>,
    fields: &FieldSelection,
    record: &mut Record,
) -> Result<Option<()>, Outcome> {
    let length = match parts.next() {
        Some(Part::Array(length)) => length,
        Some(Part::Error(message)) => return Err(failure(message)),
        _ => return Err(unexpected()),
    };
    if fields.is_all() {
        for _ in 0..length / 2 {
            match (parts.next(), parts.next()) {
                (Some(Part::Bulk(name)), Some(Part::Bulk(value))) => match std::str::from_utf8(name) {
                    Ok(name) => record.push(name, value),
                    Err(_) => return Err(unexpected()),
                },
                _ => return Err(unexpected()),
            }
        }
    } else {
        for name in fields.iter() {
            match parts.next() {
                Some(Part::Bulk(value)) => record.push(name, value),
                Some(Part::Nil) => {}
                _ => return Err(unexpected()),
            }
        }
    }
    Ok((!record.is_empty()).then_some(()))
}

fn write_read(out: &mut Vec<u8>, key: &[u8], fields: &FieldSelection) {
    if fields.is_all() {
        command(out, 2);
        argument(out, b"HGETALL");
        argument(out, key);
    } else {
        command(out, 2 + fields.len());
        argument(out, b"HMGET");
        argument(out, key);
        fields.iter().for_each(|field| argument(out, field.as_bytes()));
    }
}

fn write_fields(out: &mut Vec<u8>, key: &str, record: &Record) {
    command(out, 2 + 2 * record.len());
    argument(out, b"HMSET");
    argument(out, key.as_bytes());
    for (name, value) in record.iter() {
        argument(out, name.as_bytes());
        argument(out, value);
    }
}

fn write_insert(out: &mut Vec<u8>, key: &str, record: &Record) {
    write_fields(out, key, record);
    command(out, 4);
    argument(out, b"ZADD");
    argument(out, INDEX.as_bytes());
    argument(out, itoa::Buffer::new().format(string_hash(key)).as_bytes());
    argument(out, key.as_bytes());
}

impl RedisClient {
    /// Sends what is in `out` and returns the first error among the replies.
    async fn write(&mut self, replies: usize) -> Outcome {
        if let Err(broken) = self.link.exchange(&self.out, replies, &mut self.inbox).await {
            return broken.into();
        }
        let error = Parts(&self.inbox).find_map(|part| match part {
            Part::Error(message) => Some(failure(message)),
            _ => None,
        });
        error.unwrap_or(Outcome::OK)
    }
}

impl Client for RedisClient {
    async fn read(&mut self, _: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        self.out.clear();
        write_read(&mut self.out, key.as_bytes(), fields);
        if let Err(broken) = self.link.exchange(&self.out, 1, &mut self.inbox).await {
            return broken.into();
        }
        match take_record(&mut Parts(&self.inbox), fields, reply.begin_record()) {
            Ok(Some(())) => Outcome::OK,
            Ok(None) => {
                reply.clear();
                Outcome::NOT_FOUND
            }
            Err(outcome) => outcome,
        }
    }

    async fn update(&mut self, _: &str, key: &str, fields: &Record) -> Outcome {
        self.out.clear();
        write_fields(&mut self.out, key, fields);
        self.write(1).await
    }

    async fn insert(&mut self, _: &str, key: &str, record: &Record) -> Outcome {
        self.out.clear();
        write_insert(&mut self.out, key, record);
        self.write(2).await
    }

    async fn scan(
        &mut self,
        _: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        let mut buffer = itoa::Buffer::new();
        self.out.clear();
        command(&mut self.out, 7);
        argument(&mut self.out, b"ZRANGEBYSCORE");
        argument(&mut self.out, INDEX.as_bytes());
        argument(&mut self.out, buffer.format(string_hash(start_key)).as_bytes());
        argument(&mut self.out, b"+inf");
        argument(&mut self.out, b"LIMIT");
        argument(&mut self.out, b"0");
        // LIMIT takes a signed number.
        argument(&mut self.out, buffer.format(count.min(i64::MAX as u64)).as_bytes());
        if let Err(broken) = self.link.exchange(&self.out, 1, &mut self.inbox).await {
            return broken.into();
        }
        let mut parts = Parts(&self.inbox);
        let keys = match parts.next() {
            Some(Part::Array(keys)) => keys,
            Some(Part::Error(message)) => return failure(message),
            _ => return unexpected(),
        };
        if keys == 0 {
            return Outcome::OK;
        }
        self.out.clear();
        for part in parts {
            let Part::Bulk(key) = part else { return unexpected() };
            write_read(&mut self.out, key, fields);
        }
        if let Err(broken) = self.link.exchange(&self.out, keys, &mut self.more).await {
            return broken.into();
        }
        let mut parts = Parts(&self.more);
        for _ in 0..keys {
            // A record deleted since the first command is an empty one.
            if let Err(outcome) = take_record(&mut parts, fields, reply.begin_record()) {
                return outcome;
            }
        }
        Outcome::OK
    }

    async fn delete(&mut self, _: &str, key: &str) -> Outcome {
        self.out.clear();
        command(&mut self.out, 2);
        argument(&mut self.out, b"DEL");
        argument(&mut self.out, key.as_bytes());
        command(&mut self.out, 3);
        argument(&mut self.out, b"ZREM");
        argument(&mut self.out, INDEX.as_bytes());
        argument(&mut self.out, key.as_bytes());
        let outcome = self.write(2).await;
        if outcome.is_ok() && Parts(&self.inbox).all(|part| part == Part::Integer(0)) {
            return Outcome::NOT_FOUND;
        }
        outcome
    }

    async fn insert_batch(&mut self, _: &str, records: &[(String, Record)]) -> Outcome {
        self.out.clear();
        records.iter().for_each(|(key, record)| write_insert(&mut self.out, key, record));
        self.write(2 * records.len()).await
    }
}
