//! A client and its verbs.

use super::{INDEX, cluster::Nodes, servers::Servers};
use redis::{Cmd, Pipeline, Value};
use serval_model::{Client, FieldSelection, Outcome, Record, Reply, Status, java::string_hash};
use std::rc::Rc;

/// A client of one server, several, or a cluster.
#[derive(Debug)]
pub struct RedisClient {
    route: Route,
    /// Route of reads and scans, if it differs from that of writes.
    replica: Option<Route>,
    /// Buffer for the read command.
    read: Cmd,
}

/// Routing of commands to servers.
#[derive(Debug)]
pub(super) enum Route {
    Servers(Servers),
    Cluster(Rc<Nodes>),
}

impl Route {
    /// Sends a command to the key's server.
    async fn command(&mut self, key: &str, command: &Cmd) -> Result<Value, Outcome> {
        match self {
            Route::Servers(servers) => servers.command(key, command).await,
            Route::Cluster(nodes) => nodes.command(key.as_bytes(), command).await,
        }
    }

    /// Sends a command for a record and one for its index, concurrently. In a cluster,
    /// the index may be on another node.
    async fn pair(&mut self, key: &str, record: Cmd, index: Cmd) -> Result<[Value; 2], Outcome> {
        let replies = match self {
            Route::Servers(servers) => {
                let mut pipeline = Pipeline::with_capacity(2);
                pipeline.add_command(record).add_command(index);
                servers.pipeline(key, &pipeline).await?
            }
            Route::Cluster(nodes) => {
                nodes.commands(&[(key.as_bytes(), record), (INDEX.as_bytes(), index)]).await?
            }
        };
        replies.try_into().map_err(|_| unexpected())
    }

    /// Sends commands to their keys' servers, concurrently.
    async fn reads(&mut self, commands: Vec<(&str, Cmd)>) -> Result<Vec<Value>, Outcome> {
        match self {
            Route::Servers(servers) => servers.commands(commands).await,
            Route::Cluster(nodes) => {
                let commands: Vec<_> =
                    commands.into_iter().map(|(key, command)| (key.as_bytes(), command)).collect();
                nodes.commands(&commands).await
            }
        }
    }

    /// Writes records and their index entries, concurrently.
    async fn insert(&mut self, records: &[(String, Record)]) -> Result<Vec<Value>, Outcome> {
        let pairs = records.iter().map(|(key, record)| (key, write_command(key, record), index_command(key)));
        match self {
            Route::Servers(servers) => {
                let commands = pairs.flat_map(|(key, record, index)| [(&**key, record), (&**key, index)]);
                servers.commands(commands.collect()).await
            }
            Route::Cluster(nodes) => {
                let commands = pairs
                    .flat_map(|(key, record, index)| [(key.as_bytes(), record), (INDEX.as_bytes(), index)]);
                nodes.commands(&commands.collect::<Vec<_>>()).await
            }
        }
    }

    /// Sends a command to every index.
    async fn index(&mut self, command: &Cmd) -> Result<Vec<Value>, Outcome> {
        match self {
            Route::Servers(servers) => servers.everywhere(command).await,
            Route::Cluster(nodes) => Ok(vec![nodes.index(command).await?]),
        }
    }
}

impl RedisClient {
    pub(super) fn new(route: Route, replica: Option<Route>) -> Self {
        RedisClient { route, replica, read: Cmd::new() }
    }

    /// Returns the route of reads and scans.
    fn read_route(&mut self) -> &mut Route {
        self.replica.as_mut().unwrap_or(&mut self.route)
    }

    /// Returns the keys of a scan, ordered by hash and then by key, as in one server's
    /// index.
    async fn keys(&mut self, start_key: &str, count: u64) -> Result<Vec<String>, Outcome> {
        let mut range = redis::cmd("ZRANGEBYSCORE");
        range.arg(INDEX).arg(string_hash(start_key)).arg("+inf");
        // LIMIT is a signed number.
        range.arg("LIMIT").arg(0).arg(count.min(i64::MAX as u64));
        let replies = self.read_route().index(&range).await?;
        let several = replies.len() > 1;
        let mut keys = Vec::new();
        for reply in replies {
            let Value::Array(found) = reply else { return Err(unexpected()) };
            for key in found {
                let Value::BulkString(key) = key else { return Err(unexpected()) };
                keys.push(String::from_utf8(key).map_err(|_| unexpected())?);
            }
        }
        if several {
            keys.sort_by_cached_key(|key| (string_hash(key), key.clone()));
            keys.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        }
        Ok(keys)
    }
}

fn unexpected() -> Outcome {
    Outcome::failed(Status::UnexpectedState, "the server's reply has another shape than the command's")
}

fn read_command(command: &mut Cmd, key: &str, fields: &FieldSelection) {
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

/// Parses the reply of a read into a record.
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
        read_command(&mut command, key, fields);
        let value = self.read_route().command(key, &command).await;
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
        let written = self.route.command(key, &write_command(key, fields)).await;
        written.map_or_else(|outcome| outcome, |_| Outcome::OK)
    }

    async fn insert(&mut self, _: &str, key: &str, record: &Record) -> Outcome {
        let written = self.route.pair(key, write_command(key, record), index_command(key)).await;
        written.map_or_else(|outcome| outcome, |_| Outcome::OK)
    }

    async fn scan(
        &mut self,
        _: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        let keys = match self.keys(start_key, count).await {
            Ok(keys) if keys.is_empty() => return Outcome::OK,
            Ok(keys) => keys,
            Err(outcome) => return outcome,
        };
        let reads = keys.iter().map(|key| {
            let mut command = Cmd::new();
            read_command(&mut command, key, fields);
            (&**key, command)
        });
        match self.read_route().reads(reads.collect()).await {
            Ok(records) => {
                for record in records {
                    // A record that was deleted after the first command is empty.
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
        let (mut record, mut index) = (redis::cmd("DEL"), redis::cmd("ZREM"));
        record.arg(key);
        index.arg(INDEX).arg(key);
        match self.route.pair(key, record, index).await {
            // The record's reply decides. In a cluster, of two concurrent deletes one may
            // remove the record and the other its index entry.
            Ok([Value::Int(0), _]) => Outcome::NOT_FOUND,
            Ok(_) => Outcome::OK,
            Err(outcome) => outcome,
        }
    }

    async fn insert_batch(&mut self, _: &str, records: &[(String, Record)]) -> Outcome {
        if records.is_empty() {
            return Outcome::OK;
        }
        self.route.insert(records).await.map_or_else(|outcome| outcome, |_| Outcome::OK)
    }
}
