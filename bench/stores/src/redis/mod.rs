//! Redis, in YCSB's layout.
//!
//! A record is a hash under its key. For scans, a sorted set `_indices` holds the keys of
//! all records, ordered by Java's `hashCode` of the key; scans are in this
//! order.
//!
//! | verb | pipelined commands |
//! |---|---|
//! | read | HGETALL, or HMGET of the selected fields |
//! | update | HMSET (inserts a missing record) |
//! | insert | HMSET, ZADD |
//! | scan | ZRANGEBYSCORE, then a read of each key |
//! | delete | DEL, ZREM |
//!
//! These go to one server, or to several:
//!
//! * Independent servers (servers.rs): a key's hash determines its server, and each
//!   server has an index of its own keys. A scan queries all indices and reads the
//!   overall first keys, as a single server would.
//! * Redis Cluster (cluster.rs): a key's slot determines its node. The index is one key,
//!   so all inserts, deletes and scans use its node, as with YCSB. The two commands of
//!   an insert go to two nodes concurrently; if one fails, the other may have
//!   succeeded.
//!
//! A lost connection fails the operations in flight; the next operation
//! reconnects.

mod client;
mod cluster;
mod server;
mod servers;
mod settings;

pub use client::RedisClient;

use crate::{
    StoreInfo,
    reconnecting::{Pool, Slot},
};
use client::Route;
use cluster::{Nodes, Topology};
use redis::Value;
use serval_model::{
    Execution, Purpose, Schema, Store, StoreError,
    properties::{Faults, Properties, PropertyTable},
};
use server::RedisEndpoint;
use servers::Servers;
use settings::RedisSettings;
use std::rc::Rc;
use tokio::sync::Mutex;

/// Name of the sorted set of all keys, from YCSB.
const INDEX: &str = "_indices";

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "redis",
    aliases: &["site.ycsb.db.RedisClient", "com.yahoo.ycsb.db.RedisClient"],
    summary: "Redis: a hash per record, a sorted set of keys for scans",
    details: "A record is a hash under its key. A sorted set '_indices' holds all keys by the Java hash \
              code of the key, so scans run in the order of hashes. YCSB's data set is the same: either \
              tool reads what the other loaded. The commands of one operation are sent together and cost \
              one round trip (a scan costs two). An update of a missing record creates it. Asynchronous: \
              clients run on event loops.\n\
              The store is one server, the nodes of a Redis Cluster (redis.cluster), or several \
              independent servers (redis.hosts). With independent servers, a key is on server |Java hash \
              code of the key| modulo their number, each server has its own '_indices', and scans ask all \
              servers. In a cluster '_indices' is on one node, which every insert, delete and scan asks, \
              and a command may fail without its change of the index, or the reverse.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: true,
    behind_driver: false,
    properties: PropertyTable { heading: "redis", properties: settings::ALL },
};

/// One Redis server or several.
#[derive(Debug)]
pub struct Redis {
    settings: RedisSettings,
}

impl Redis {
    /// Reads the properties. Does not connect.
    pub fn open(properties: &Properties) -> Result<Redis, Faults> {
        Ok(Redis { settings: RedisSettings::read(properties)? })
    }

    fn first(&self) -> &RedisEndpoint {
        &self.settings.servers[0]
    }
}

/// State that the clients of one event loop share.
#[derive(Debug)]
pub struct RedisLocal {
    /// Map of a cluster's slots, which the first client requests.
    topology: Mutex<Option<Rc<Topology>>>,
    /// Shared connections.
    pool: Pool<SharedConnections>,
}

/// Connections to all servers, for clients' routes.
#[derive(Debug, Clone)]
enum SharedConnections {
    /// Connections for reads, if they differ.
    Servers(Vec<Rc<Slot<RedisEndpoint>>>, Option<Vec<Rc<Slot<RedisEndpoint>>>>),
    Cluster(Rc<Nodes>),
}

impl SharedConnections {
    async fn connect(settings: &RedisSettings, local: &RedisLocal) -> Result<SharedConnections, StoreError> {
        if !settings.cluster {
            let replica = match &settings.replica {
                Some(replica) => Some(servers::connect(std::slice::from_ref(replica)).await?),
                None => None,
            };
            return Ok(SharedConnections::Servers(servers::connect(&settings.servers).await?, replica));
        }
        // Locked during the request, so that the loop's clients ask once.
        let mut known = local.topology.lock().await;
        let topology = match &*known {
            Some(topology) => Rc::clone(topology),
            None => Rc::clone(known.insert(Topology::learn(&settings.servers).await?)),
        };
        drop(known);
        Ok(SharedConnections::Cluster(Nodes::connect(&topology).await?))
    }

    fn client(&self) -> RedisClient {
        match self {
            SharedConnections::Servers(slots, replica) => {
                let replica = replica.as_ref().map(|slots| Route::Servers(Servers::new(slots)));
                RedisClient::new(Route::Servers(Servers::new(slots)), replica)
            }
            SharedConnections::Cluster(nodes) => RedisClient::new(Route::Cluster(Rc::clone(nodes)), None),
        }
    }
}

impl Store for Redis {
    type Local = RedisLocal;
    type Client = RedisClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn prepare(&self, _: &Schema, _: Purpose) -> Result<(), StoreError> {
        if self.settings.cluster {
            // One node that answers suffices.
            let asked = self.settings.servers.iter().map(RedisEndpoint::check_cluster);
            return asked.reduce(Result::or).unwrap_or(Ok(()));
        }
        for server in &self.settings.servers {
            server.ask(&redis::cmd("PING"))?;
            // The user may lack the right to ask, which is not a failure.
            if server.cluster_enabled() == Some(true) {
                let problem = "is part of a Redis Cluster: set redis.cluster=true";
                return Err(StoreError::new(&server.name, problem));
            }
        }
        if let Some(replica) = &self.settings.replica {
            let info = replica.ask(redis::cmd("INFO").arg("replication")).map(text)?;
            if !info.contains("role:slave") {
                let problem =
                    "is named as the replica (redis.replica), and is none: see INFO replication there";
                return Err(StoreError::new(&replica.name, problem));
            }
        }
        Ok(())
    }

    fn describe(&self) -> Vec<(String, String)> {
        let RedisSettings { servers, replica, cluster, tls, connections } = &self.settings;
        let connections = match connections {
            0 => "one a client".to_owned(),
            n => format!("{n} shared by the clients of an event loop"),
        };
        let addresses: Vec<&str> =
            servers.iter().map(|server| server.name.trim_start_matches("redis at ")).collect();
        let mut facts =
            vec![("address".to_owned(), addresses.join(",")), ("connections".to_owned(), connections)];
        let kind = match (cluster, servers.len()) {
            (true, _) => Some("a Redis Cluster".to_owned()),
            (false, 1) => None,
            (false, n) => Some(format!("{n} independent, by hash of the key")),
        };
        facts.extend(kind.map(|kind| ("servers".to_owned(), kind)));
        let replica = replica.as_ref().map(|replica| replica.name.trim_start_matches("redis at ").to_owned());
        facts.extend(replica.map(|address| ("reads and scans".to_owned(), format!("replica at {address}"))));
        if *tls {
            facts.push(("tls".to_owned(), "true".to_owned()));
        }
        let info = self.first().ask(&redis::cmd("INFO")).map(text).unwrap_or_default();
        for wanted in ["redis_version", "redis_mode", "maxmemory_policy", "aof_enabled", "io_threads_active"]
        {
            let line = info.lines().find_map(|line| line.strip_prefix(wanted)?.strip_prefix(':'));
            if let Some(value) = line {
                facts.push((wanted.to_owned(), value.trim().to_owned()));
            }
        }
        facts
    }

    fn local(&self) -> Result<RedisLocal, StoreError> {
        Ok(RedisLocal { topology: Mutex::default(), pool: Pool::default() })
    }

    async fn connect(&self, local: &RedisLocal, _: usize) -> Result<RedisClient, StoreError> {
        let open = async || SharedConnections::connect(&self.settings, local).await;
        Ok(local.pool.next(self.settings.connections, open).await?.client())
    }
}

/// Returns the text of a reply, or an empty text.
fn text(reply: Value) -> String {
    redis::from_redis_value(reply).unwrap_or_default()
}
