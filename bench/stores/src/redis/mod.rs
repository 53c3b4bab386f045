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
//! These go to one server, or to several in one of two ways:
//!
//! * Independent servers (servers.rs): a key's hash names its server, and each
//!   server has an index of its own keys. A scan asks all indices and reads
//!   the first keys of all of them: what one server would have answered.
//! * Redis Cluster (cluster.rs): a key's slot has a node. The index is a key
//!   like any other, so all inserts, deletes and scans meet on its node, as
//!   they do with YCSB. The two commands of an insert go to two nodes at the
//!   same time; if one fails the other may have been done.
//!
//! A connection that is lost fails the operations under way and is opened
//! again by the next one.

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
    properties::{Faults, Properties, Table},
};
use server::Server;
use servers::Servers;
use settings::Settings;
use std::rc::Rc;
use tokio::sync::Mutex;

/// The sorted set of all keys, by YCSB's name.
const INDEX: &str = "_indices";

/// What help shows of this store.
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
    properties: Table { heading: "redis", properties: settings::ALL },
};

/// One Redis server or several.
#[derive(Debug)]
pub struct Redis {
    settings: Settings,
}

impl Redis {
    /// From its properties; does not connect.
    pub fn open(properties: &Properties) -> Result<Redis, Faults> {
        Ok(Redis { settings: Settings::read(properties)? })
    }

    fn first(&self) -> &Server {
        &self.settings.servers[0]
    }
}

/// What the clients of one event loop share.
#[derive(Debug)]
pub struct Local {
    /// Where slots are, in a cluster; asked for by the first client.
    topology: Mutex<Option<Rc<Topology>>>,
    /// Shared connections.
    pool: Pool<Shared>,
}

/// Connections to all servers, from which clients make their routes.
#[derive(Debug, Clone)]
enum Shared {
    /// And those that are read from, if they are others.
    Servers(Vec<Rc<Slot<Server>>>, Option<Vec<Rc<Slot<Server>>>>),
    Cluster(Rc<Nodes>),
}

impl Shared {
    async fn connect(settings: &Settings, local: &Local) -> Result<Shared, StoreError> {
        if !settings.cluster {
            let replica = match &settings.replica {
                Some(replica) => Some(servers::connect(std::slice::from_ref(replica)).await?),
                None => None,
            };
            return Ok(Shared::Servers(servers::connect(&settings.servers).await?, replica));
        }
        // Held while asking, so that the loop's clients ask once.
        let mut known = local.topology.lock().await;
        let topology = match &*known {
            Some(topology) => Rc::clone(topology),
            None => Rc::clone(known.insert(Topology::learn(&settings.servers).await?)),
        };
        drop(known);
        Ok(Shared::Cluster(Nodes::connect(&topology).await?))
    }

    fn client(&self) -> RedisClient {
        match self {
            Shared::Servers(slots, replica) => {
                let replica = replica.as_ref().map(|slots| Route::Servers(Servers::new(slots)));
                RedisClient::new(Route::Servers(Servers::new(slots)), replica)
            }
            Shared::Cluster(nodes) => RedisClient::new(Route::Cluster(Rc::clone(nodes)), None),
        }
    }
}

impl Store for Redis {
    type Local = Local;
    type Client = RedisClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn prepare(&self, _: &Schema, _: Purpose) -> Result<(), StoreError> {
        if self.settings.cluster {
            // One node that answers is enough to begin with.
            let asked = self
                .settings
                .servers
                .iter()
                .map(|server| server.ask(redis::cmd("CLUSTER").arg("SLOTS")).map(drop));
            return asked.reduce(Result::or).unwrap_or(Ok(()));
        }
        for server in &self.settings.servers {
            server.ask(&redis::cmd("PING"))?;
            // A user who may not ask is not refused for it.
            let info = server.ask(redis::cmd("INFO").arg("cluster")).map(text).unwrap_or_default();
            if info.contains("cluster_enabled:1") {
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
        let Settings { servers, replica, cluster, tls, connections } = &self.settings;
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

    fn local(&self) -> Result<Local, StoreError> {
        Ok(Local { topology: Mutex::default(), pool: Pool::default() })
    }

    async fn connect(&self, local: &Local, _: usize) -> Result<RedisClient, StoreError> {
        let open = async || Shared::connect(&self.settings, local).await;
        Ok(local.pool.next(self.settings.connections, open).await?.client())
    }
}

/// The text of a reply, or nothing.
fn text(reply: Value) -> String {
    redis::from_redis_value(reply).unwrap_or_default()
}
