//! A client with its session.

use super::{
    link,
    node_name::is_node_name,
    settings::{TIMEOUT, ZookeeperSettings},
};
use crate::{
    json,
    reconnecting::{ConnectionFate, Connector, OperationFailure, Reconnecting, TimeLimit},
};
use serval_model::{Client, FieldSelection, Outcome, Record, Reply, Status, StoreError};
use std::{collections::HashMap, sync::Arc, task::Context};
use zookeeper_client::{Client as Session, CreateMode, Error, OneshotWatcher};

/// Maximum attempts of an update whose record another client changes in
/// between. Each failed attempt is another client's progress; this many in a row
/// mean that too many clients write one record.
const UPDATE_ATTEMPTS_MAX: usize = 1000;

/// Upper bound on a request's bytes besides path and data, including the access
/// list.
const REQUEST_OVERHEAD: usize = 96;

/// A client with its session.
pub struct ZookeeperClient {
    link: Reconnecting<ZookeeperConnector>,
    /// Path of the operation's node.
    path: String,
    document: Vec<u8>,
    /// The old and the new record.
    old: Record,
    new: Record,
    /// Watches of reads that have not fired; at most one per node, as at the
    /// servers.
    watches: HashMap<Box<str>, OneshotWatcher>,
}

/// Opens sessions.
pub(super) struct ZookeeperConnector(pub(super) Arc<ZookeeperSettings>);

impl Connector for ZookeeperConnector {
    type Connection = Session;
    type Error = Error;

    /// The driver discards late answers.
    const LATE: ConnectionFate = ConnectionFate::Kept;

    fn limit(&self) -> TimeLimit {
        TimeLimit { time: self.0.timeout, property: TIMEOUT.name }
    }

    fn open(&self) -> impl Future<Output = Result<Session, StoreError>> + 'static {
        let settings = Arc::clone(&self.0);
        async move { link::open(&settings).await }
    }

    fn share(_: &Session) -> Option<Session> {
        None
    }

    /// A session without a server counts as lost. The driver would reconnect with growing
    /// pauses, which would add to the servers' apparent recovery
    /// time.
    fn is_usable(session: &mut Session, _: &mut Context<'_>) -> bool {
        link::is_connected(session)
    }

    fn failure(&self, session: &Session, error: &Error) -> OperationFailure {
        let fate = if link::is_connected(session) { ConnectionFate::Kept } else { ConnectionFate::Lost };
        OperationFailure { fate, outcome: failure(error) }
    }
}

/// Separates expected refusals from errors.
fn expected<T>(result: Result<T, Error>) -> Result<Result<T, RegularRefusal>, Error> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Error::NoNode) => Ok(Err(RegularRefusal::NoNode)),
        Err(Error::NodeExists) => Ok(Err(RegularRefusal::NodeExists)),
        Err(Error::BadVersion) => Ok(Err(RegularRefusal::BadVersion)),
        Err(error) => Err(error),
    }
}

/// Refusals that are regular outcomes of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RegularRefusal {
    NoNode,
    NodeExists,
    BadVersion,
}

/// Converts an error to an outcome.
fn failure(error: &Error) -> Outcome {
    let status = match error {
        Error::NoAuth | Error::AuthFailed | Error::InvalidAcl => Status::Forbidden,
        Error::BadArguments(_) => Status::BadRequest,
        Error::NotEmpty | Error::NoChildrenForEphemerals => Status::UnexpectedState,
        Error::QuotaExceeded | Error::Unimplemented | Error::MarshallingError => Status::Error,
        Error::Throttled => Status::ServiceUnavailable,
        _ => {
            return Outcome::failed(Status::ServiceUnavailable, format!("connection lost: {error}"));
        }
    };
    Outcome::failed(status, error.to_string())
}

/// Writes a record's path.
fn set_path(path: &mut String, key: &str) -> Result<(), Outcome> {
    let name = key.strip_prefix('/').unwrap_or(key);
    if !is_node_name(name) {
        let words = "the key cannot be the name of a node: see `serval stores zookeeper`";
        return Err(Outcome::failed(Status::BadRequest, words));
    }
    path.clear();
    path.push('/');
    path.push_str(name);
    Ok(())
}

/// Parses a document into a record.
fn take(document: &[u8], record: &mut Record) -> Result<(), Outcome> {
    // As in YCSB, a node without data is not a record.
    if document.is_empty() {
        return Err(Outcome::NOT_FOUND);
    }
    json::read(document, record).map_err(|error| {
        Outcome::failed(Status::UnexpectedState, format!("the node's data is no JSON object: {error}"))
    })
}

impl ZookeeperClient {
    pub(super) fn new(link: Reconnecting<ZookeeperConnector>) -> Self {
        ZookeeperClient {
            link,
            path: String::new(),
            document: Vec::new(),
            old: Record::new(),
            new: Record::new(),
            watches: HashMap::new(),
        }
    }

    fn settings(&self) -> &ZookeeperSettings {
        &self.link.connector().0
    }

    /// Reads the data of a key's node and their version.
    async fn get(&mut self, key: &str) -> Result<(Vec<u8>, i32), Outcome> {
        set_path(&mut self.path, key)?;
        let (path, watch) = (&*self.path, self.settings().watch);
        let answer = self.link.run(async |session| {
            let result = if watch {
                let watched = session.get_and_watch_data(path).await;
                watched.map(|(data, stat, watcher)| (data, stat, Some(watcher)))
            } else {
                session.get_data(path).await.map(|(data, stat)| (data, stat, None))
            };
            expected(result)
        });
        let (data, stat, watcher) = answer.await?.map_err(|_| Outcome::NOT_FOUND)?;
        if let Some(watcher) = watcher {
            // The old watcher is dropped after the new one exists, so that the
            // driver does not remove the watch at the servers.
            match self.watches.get_mut(&*self.path) {
                Some(old) => *old = watcher,
                None => drop(self.watches.insert(self.path.as_str().into(), watcher)),
            }
        }
        Ok((data, stat.version))
    }

    /// Checks that the servers accept a request with this path and document,
    /// besides `others` bytes.
    fn fits(&self, others: usize) -> Result<(), Outcome> {
        let settings = self.settings();
        let root = settings.root.as_ref().map_or(0, String::len);
        let bytes = others + root + self.path.len() + self.document.len() + REQUEST_OVERHEAD;
        if bytes <= settings.request_max {
            return Ok(());
        }
        let words = format!(
            "the record makes a request of {bytes} bytes, and the servers take {} (zookeeper.maxbuffer)",
            settings.request_max
        );
        Err(Outcome::failed(Status::BadRequest, words))
    }

    async fn try_read(
        &mut self,
        key: &str,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Result<(), Outcome> {
        let (document, _) = self.get(key).await?;
        let record = reply.begin_record();
        if fields.is_all() {
            return take(&document, record);
        }
        self.old.clear();
        take(&document, &mut self.old)?;
        for (name, value) in self.old.iter().filter(|(name, _)| fields.wants(name)) {
            record.push(name, value);
        }
        Ok(())
    }

    async fn try_update(&mut self, key: &str, fields: &Record) -> Result<(), Outcome> {
        for _ in 0..UPDATE_ATTEMPTS_MAX {
            let (document, version) = self.get(key).await?;
            self.old.clear();
            take(&document, &mut self.old)?;
            json::merge(&self.old, fields, &mut self.new);
            self.document.clear();
            json::write(&self.new, &mut self.document)?;
            self.fits(0)?;
            let (path, document) = (&*self.path, &*self.document);
            let answer = self
                .link
                .run(async |session| expected(session.set_data(path, document, Some(version)).await));
            match answer.await? {
                Ok(_) => return Ok(()),
                // Another client has changed it.
                Err(RegularRefusal::BadVersion) => {}
                Err(_) => return Err(Outcome::NOT_FOUND),
            }
        }
        let words = format!("{UPDATE_ATTEMPTS_MAX} times in a row another client changed the record");
        Err(Outcome::failed(Status::ServiceUnavailable, words))
    }

    /// Writes the path and document of a record.
    fn lay_out(&mut self, key: &str, record: &Record) -> Result<(), Outcome> {
        set_path(&mut self.path, key)?;
        self.document.clear();
        json::write(record, &mut self.document)?;
        self.fits(0)
    }

    async fn try_insert(&mut self, key: &str, record: &Record) -> Result<(), Outcome> {
        self.lay_out(key, record)?;
        let options = CreateMode::Persistent.with_acls(self.settings().acls());
        let (path, document) = (&*self.path, &*self.document);
        let answer = self.link.run(async |session| expected(session.create(path, document, &options).await));
        match answer.await? {
            Ok(_) => Ok(()),
            Err(refusal) => Err(not_inserted(refusal)),
        }
    }

    async fn try_insert_batch(&mut self, records: &[(String, Record)]) -> Result<(), Outcome> {
        let options = CreateMode::Persistent.with_acls(self.settings().acls());
        let mut left = records;
        while !left.is_empty() {
            let (mut nodes, mut bytes) = (Vec::new(), 0);
            for (key, record) in left {
                self.lay_out(key, record)?;
                if self.fits(bytes).is_err() {
                    break;
                }
                bytes += self.path.len() + self.document.len() + REQUEST_OVERHEAD;
                nodes.push((self.path.clone(), self.document.clone()));
            }
            let answer = self.link.run(async |session| {
                let mut writer = session.new_multi_writer();
                for (path, document) in &nodes {
                    writer.add_create(path, document, &options)?;
                }
                expected(writer.commit().await.map_err(Error::from))
            });
            if let Err(refusal) = answer.await? {
                return Err(not_inserted(refusal));
            }
            left = &left[nodes.len()..];
        }
        Ok(())
    }

    async fn try_delete(&mut self, key: &str) -> Result<(), Outcome> {
        set_path(&mut self.path, key)?;
        let path = &*self.path;
        let answer = self.link.run(async |session| expected(session.delete(path, None).await));
        answer.await?.map_err(|_| Outcome::NOT_FOUND)
    }
}

fn not_inserted(refusal: RegularRefusal) -> Outcome {
    match refusal {
        RegularRefusal::NodeExists => Outcome::error("there is a record under this key already"),
        _ => Outcome::error("the node at the end of zookeeper.connectString is gone"),
    }
}

fn outcome(result: Result<(), Outcome>) -> Outcome {
    result.err().unwrap_or(Outcome::OK)
}

impl Client for ZookeeperClient {
    async fn read(&mut self, _: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        let result = self.try_read(key, fields, reply).await;
        if result.is_err() {
            reply.clear();
        }
        outcome(result)
    }

    async fn update(&mut self, _: &str, key: &str, fields: &Record) -> Outcome {
        outcome(self.try_update(key, fields).await)
    }

    async fn insert(&mut self, _: &str, key: &str, record: &Record) -> Outcome {
        outcome(self.try_insert(key, record).await)
    }

    async fn insert_batch(&mut self, _: &str, records: &[(String, Record)]) -> Outcome {
        outcome(self.try_insert_batch(records).await)
    }

    async fn scan(&mut self, _: &str, _: &str, _: u64, _: &FieldSelection, _: &mut Reply) -> Outcome {
        Outcome::failed(Status::NotImplemented, "ZooKeeper cannot scan")
    }

    async fn delete(&mut self, _: &str, key: &str) -> Outcome {
        outcome(self.try_delete(key).await)
    }

    async fn close(&mut self) -> Outcome {
        let Some(session) = self.link.close() else { return Outcome::OK };
        if link::close(self.settings(), session).await {
            return Outcome::OK;
        }
        let limit = self.settings().connect_timeout;
        let words =
            format!("the session's end was not answered within {limit:?} (zookeeper.connect_timeout)");
        Outcome::failed(Status::ServiceUnavailable, words)
    }
}
