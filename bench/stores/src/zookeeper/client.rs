//! One client with its session.

use super::{link, settings::Settings};
use crate::json;
use serval_model::{Client, FieldSelection, Outcome, Record, Reply, Status};
use std::{
    collections::HashMap,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time;
use zookeeper_client::{Client as Session, CreateMode, Error, OneshotWatcher};

/// Time between attempts to open a session again, so that servers that are
/// down are not asked by every operation.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How often an update is tried whose record another client changes in
/// between. Each time somebody else has made progress; so many in a row mean
/// that too many clients write one record.
const UPDATE_ATTEMPTS_MAX: usize = 1000;

/// What a request takes besides its path and its data, access list included,
/// and some more.
const REQUEST_OVERHEAD: usize = 96;

/// One client with its session, which may have to be opened again.
pub struct ZookeeperClient {
    link: Link,
    /// The node of the operation.
    path: String,
    document: Vec<u8>,
    /// A record as it is, and as it is to be.
    old: Record,
    new: Record,
    /// The watches that reads have left and that have not gone off, at most
    /// one a node, as the servers have them.
    watches: HashMap<Box<str>, OneshotWatcher>,
}

struct Link {
    settings: Arc<Settings>,
    session: Option<Session>,
    /// Not before this.
    retry_at: Option<Instant>,
}

impl Link {
    /// The session, opened again if it must be.
    async fn session(&mut self) -> Result<&Session, Outcome> {
        if !self.session.as_ref().is_some_and(link::is_connected) {
            // The driver would try for longer and longer pauses to take it up
            // again, which would show as the servers' time of recovery.
            self.session = None;
            if let Some(at) = self.retry_at {
                time::sleep_until(at.into()).await;
            }
            self.retry_at = Some(Instant::now() + RECONNECT_PAUSE);
            let opened = link::open(&self.settings).await;
            self.session =
                Some(opened.map_err(|error| Outcome::failed(Status::ServiceUnavailable, error.problem))?);
        }
        self.session.as_ref().ok_or_else(|| Outcome::error("no session"))
    }

    /// Waits for an answer at most as long as told, and tells what is no
    /// answer to the question as an outcome.
    async fn answer<T>(
        &self,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<Result<T, Refusal>, Outcome> {
        let result = match self.settings.timeout {
            None => future.await,
            Some(limit) => time::timeout(limit, future).await.map_err(|_| {
                let words = format!("no answer within {limit:?} (zookeeper.timeout)");
                Outcome::failed(Status::ServiceUnavailable, words)
            })?,
        };
        match result {
            Ok(value) => Ok(Ok(value)),
            Err(Error::NoNode) => Ok(Err(Refusal::NoNode)),
            Err(Error::NodeExists) => Ok(Err(Refusal::NodeExists)),
            Err(Error::BadVersion) => Ok(Err(Refusal::BadVersion)),
            Err(error) => Err(failure(&error)),
        }
    }
}

/// Answers that an operation may expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    NoNode,
    NodeExists,
    BadVersion,
}

/// The outcome of an error.
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

/// Whether a node can have this name: what ZooKeeper's servers check of it,
/// in which Java's characters above U+FFFF are two of the excluded ones.
pub(super) fn is_name(name: &str) -> bool {
    if matches!(name, "" | "." | "..") {
        return false;
    }
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'/') {
        return true;
    }
    name.chars().all(|char| {
        !matches!(char, '/' | '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{d7ff}'..='\u{f8ff}' | '\u{fff0}'..)
    })
}

/// Makes a record's path.
fn set_path(path: &mut String, key: &str) -> Result<(), Outcome> {
    let name = key.strip_prefix('/').unwrap_or(key);
    if !is_name(name) {
        let words = "the key cannot be the name of a node: see `serval stores zookeeper`";
        return Err(Outcome::failed(Status::BadRequest, words));
    }
    path.clear();
    path.push('/');
    path.push_str(name);
    Ok(())
}

/// Moves a record's document into a record.
fn take(document: &[u8], record: &mut Record) -> Result<(), Outcome> {
    // As YCSB has it: a node that holds nothing is no record.
    if document.is_empty() {
        return Err(Outcome::NOT_FOUND);
    }
    json::read(document, record).map_err(|error| {
        Outcome::failed(Status::UnexpectedState, format!("the node's data is no JSON object: {error}"))
    })
}

impl ZookeeperClient {
    pub(super) fn new(settings: Arc<Settings>, session: Session) -> Self {
        ZookeeperClient {
            link: Link { settings, session: Some(session), retry_at: None },
            path: String::new(),
            document: Vec::new(),
            old: Record::new(),
            new: Record::new(),
            watches: HashMap::new(),
        }
    }

    /// The data of a key's node and their version.
    async fn get(&mut self, key: &str) -> Result<(Vec<u8>, i32), Outcome> {
        set_path(&mut self.path, key)?;
        let watch = self.link.settings.watch;
        let session = self.link.session().await?;
        let answer = if watch {
            let session = session.clone();
            let answer = self.link.answer(session.get_and_watch_data(&self.path)).await?;
            answer.map(|(data, stat, watcher)| {
                // The one that was there goes after the new one has come, so
                // that the servers are not told to take it away.
                match self.watches.get_mut(&*self.path) {
                    Some(old) => *old = watcher,
                    None => drop(self.watches.insert(self.path.as_str().into(), watcher)),
                }
                (data, stat)
            })
        } else {
            let answer = session.get_data(&self.path);
            self.link.answer(answer).await?
        };
        let (data, stat) = answer.map_err(|_| Outcome::NOT_FOUND)?;
        Ok((data, stat.version))
    }

    /// Whether a request with this path and document is one that the servers
    /// take.
    fn fits(&self, others: usize) -> Result<(), Outcome> {
        let settings = &self.link.settings;
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
            let answer = self.link.session().await?.set_data(&self.path, &self.document, Some(version));
            match self.link.answer(answer).await? {
                Ok(_) => return Ok(()),
                // Somebody else has changed it.
                Err(Refusal::BadVersion) => {}
                Err(_) => return Err(Outcome::NOT_FOUND),
            }
        }
        let words = format!("{UPDATE_ATTEMPTS_MAX} times in a row somebody else has changed the record");
        Err(Outcome::failed(Status::ServiceUnavailable, words))
    }

    /// Makes the path and document of a record.
    fn lay_out(&mut self, key: &str, record: &Record) -> Result<(), Outcome> {
        set_path(&mut self.path, key)?;
        self.document.clear();
        json::write(record, &mut self.document)?;
        self.fits(0)
    }

    async fn try_insert(&mut self, key: &str, record: &Record) -> Result<(), Outcome> {
        self.lay_out(key, record)?;
        let session = self.link.session().await?.clone();
        let options = CreateMode::Persistent.with_acls(self.link.settings.acls());
        match self.link.answer(session.create(&self.path, &self.document, &options)).await? {
            Ok(_) => Ok(()),
            Err(refusal) => Err(not_inserted(refusal)),
        }
    }

    async fn try_insert_batch(&mut self, records: &[(String, Record)]) -> Result<(), Outcome> {
        let mut left = records;
        while !left.is_empty() {
            let session = self.link.session().await?.clone();
            let mut writer = session.new_multi_writer();
            let options = CreateMode::Persistent.with_acls(self.link.settings.acls());
            let (mut count, mut bytes) = (0, 0);
            for (key, record) in left {
                self.lay_out(key, record)?;
                if self.fits(bytes).is_err() {
                    break;
                }
                bytes += self.path.len() + self.document.len() + REQUEST_OVERHEAD;
                writer.add_create(&self.path, &self.document, &options).map_err(|error| failure(&error))?;
                count += 1;
            }
            let sent = writer.commit();
            if let Err(refusal) = self.link.answer(async { sent.await.map_err(Error::from) }).await? {
                return Err(not_inserted(refusal));
            }
            left = &left[count..];
        }
        Ok(())
    }

    async fn try_delete(&mut self, key: &str) -> Result<(), Outcome> {
        set_path(&mut self.path, key)?;
        let answer = self.link.session().await?.delete(&self.path, None);
        self.link.answer(answer).await?.map_err(|_| Outcome::NOT_FOUND)
    }
}

fn not_inserted(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::NodeExists => Outcome::error("there is a record under this key already"),
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
        let Some(session) = self.link.session.take() else { return Outcome::OK };
        if link::close(&self.link.settings, session).await {
            return Outcome::OK;
        }
        let limit = self.link.settings.connect_timeout;
        let words =
            format!("the session's end was not answered within {limit:?} (zookeeper.connect_timeout)");
        Outcome::failed(Status::ServiceUnavailable, words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes_are_those_that_servers_take() {
        for name in ["user1", " ", "a b", "...", ".a", "Ä", "世界", "\u{d7fe}", "\u{f900}", "\u{ffef}", "~"]
        {
            assert!(is_name(name), "{name:?}");
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "/",
            "\n",
            "\x7f",
            "\u{80}",
            "\u{9f}",
            "\u{e000}",
            "\u{fff0}",
            "🦁",
            "a\u{ffff}",
        ] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
