//! Connections to members: how one is opened, and what its errors mean.

use super::settings::{OPERATION_TIMEOUT, Settings};
use crate::reconnecting::{Connector, Failure, Fate, Limit};
use etcd_client::{Channel, Client as Driver, ConnectOptions, Error, KvClient, MaintenanceClient};
use serval_model::{Outcome, Status, StoreError};
use std::{
    cell::Cell,
    error::Error as _,
    rc::Rc,
    sync::{Arc, OnceLock},
};
use tokio::time;
use tonic::{Code, transport::Endpoint};

/// Bytes of the longest answer: what gRPC can count. The driver's own limit of
/// 4 MiB would refuse scans that the server answers.
const ANSWER_MAX: usize = i32::MAX as usize;

/// The table whose readability a new connection is tried on until the store
/// is prepared for another: YCSB's.
const USUAL_TABLE: &str = "usertable";

/// What begins the messages of etcd itself; others are gRPC's or the network's.
const OF_ETCD: &str = "etcdserver:";

/// The members of a cluster, and how they are connected to.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) settings: Settings,
    /// The table of the records, once the store was prepared for it.
    pub(super) table: OnceLock<String>,
}

/// A new connection.
pub(super) struct Opened {
    pub(super) records: KvClient,
    pub(super) maintenance: MaintenanceClient,
}

impl Members {
    fn count(&self) -> usize {
        self.settings.endpoints.len()
    }

    fn error(&self, member: usize, problem: impl Into<String>) -> StoreError {
        StoreError::new(format!("etcd at {}", self.settings.endpoints[member]), problem)
    }

    /// Opens a connection to a member and sees that it answers on it.
    pub(super) async fn open(&self, member: usize) -> Result<Opened, StoreError> {
        let Settings { login, timeout, .. } = &self.settings;
        let connecting = async {
            let channel = self.endpoint(member)?.connect().await?;
            let options = login.as_ref().map(|(username, password)| {
                // Tokens end after some minutes without use.
                ConnectOptions::new().with_user(username, password).with_auto_token_refresh(true)
            });
            let driver = Driver::from_channel(Channel::Tonic(channel), options).await?;
            let mut records = driver.kv_client().max_decoding_message_size(ANSWER_MAX);
            // A key that no record has; refused without credentials, and
            // answered only by a member of a cluster that works.
            let table = self.table.get().map_or(USUAL_TABLE, String::as_str);
            records.get(format!("{table}/"), None).await?;
            Ok::<Opened, Error>(Opened { records, maintenance: driver.maintenance_client() })
        };
        match time::timeout(*timeout, connecting).await {
            Ok(result) => result.map_err(|error| self.failed(member, &error)),
            Err(_) => Err(self.error(
                member,
                format!(
                    "cannot connect: no answer within {timeout:?} (etcd.timeout). Does etcd.endpoints name an etcd, \
                     {}, and do most members of its cluster run?",
                    if self.settings.tls.is_some() { "with TLS" } else { "without TLS (etcd.tls)" }
                ),
            )),
        }
    }

    fn endpoint(&self, member: usize) -> Result<Endpoint, Error> {
        let address = &self.settings.endpoints[member];
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?;
        Ok(match &self.settings.tls {
            None => endpoint,
            Some(tls) => {
                endpoint.tls_config_with_verifier(tls.config.clone(), Arc::clone(&tls.verifier) as _)?
            }
        })
    }

    /// Opens a connection to this member or, failing that, to the next one
    /// that answers; the failure is the first.
    async fn open_any(&self, member: usize) -> Result<(Opened, usize), StoreError> {
        let mut first = None;
        for member in (0..self.count()).map(|after| (member + after) % self.count()) {
            match self.open(member).await {
                Ok(opened) => return Ok((opened, member)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| StoreError::new("etcd", "etcd.endpoints names no server")))
    }

    /// What went wrong before the first operation, and what to do.
    fn failed(&self, member: usize, error: &Error) -> StoreError {
        let words = words(error);
        let lower = words.to_lowercase();
        let tls = self.settings.tls.is_some();
        let advice = if words.contains("user name is empty") {
            "The server wants a user name and a password: set etcd.username and etcd.password"
        } else if words.contains("authentication is not enabled") {
            "The server asks for no user name: leave out etcd.username and etcd.password"
        } else if words.contains("authentication failed") {
            "Check etcd.username and etcd.password"
        } else if words.contains("permission denied") {
            "May the user of etcd.username read and write the keys from TABLE/ on?"
        } else if words.starts_with(OF_ETCD) {
            "The server answers and says so itself; is its cluster whole?"
        } else if lower.contains("connection refused") || lower.contains("dns error") {
            "Is the server running, and does etcd.endpoints name it?"
        } else if tls && lower.contains("certificate") {
            "Do etcd.tls.roots and the host name (etcd.tls.server.name) fit the server's certificate, and does the \
             server want one of the client (etcd.tls.certificate)?"
        } else if tls {
            // With TLS 1.3 a server that misses the client's certificate
            // closes the connection when the client deems it open.
            "Does the server speak TLS (if not, leave out etcd.tls), and does it want a certificate of the client \
             (etcd.tls.certificate)?"
        } else {
            "Is this an etcd of version 3.4 or later, and does it speak without TLS (etcd.tls)?"
        };
        self.error(member, format!("cannot connect: {words}. {advice}"))
    }
}

/// The server's own words, or the causes that the driver knows, each once.
fn words(error: &Error) -> String {
    let (mut text, mut cause): (String, Option<&(dyn std::error::Error + 'static)>) = match error {
        Error::GRpcStatus(status) => (status.message().to_owned(), status.source()),
        // The crate's errors do not hand on what caused them.
        Error::TransportError(error) => (error.to_string(), error.source()),
        error => (error.to_string(), error.source()),
    };
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// The outcome of an error, and what becomes of its connection.
fn failure(error: &Error) -> Failure {
    let lost = || {
        let words = format!("connection lost: {}", words(error));
        Failure { fate: Fate::Lost, outcome: Outcome::failed(Status::ServiceUnavailable, words) }
    };
    let Error::GRpcStatus(status) = error else { return lost() };
    let said = status.message();
    // What arrived as an answer has no cause here.
    if status.source().is_some() && !said.starts_with(OF_ETCD) {
        return lost();
    }
    let kept = |status, words: &str| Failure { fate: Fate::Kept, outcome: Outcome::failed(status, words) };
    let unavailable =
        || Failure { fate: Fate::Lost, outcome: Outcome::failed(Status::ServiceUnavailable, said) };
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => kept(Status::Forbidden, said),
        Code::InvalidArgument if said.contains("user name is empty") => kept(Status::Forbidden, said),
        // Users were changed; a new connection asks for a new token.
        Code::InvalidArgument if said.contains("auth store is old") => unavailable(),
        Code::InvalidArgument if said.contains("too many operations") => {
            let words = format!("{said} (the server's --max-txn-ops): make batchsize smaller");
            kept(Status::BadRequest, &words)
        }
        Code::InvalidArgument if said.contains("too large") => kept(Status::BadRequest, &too_large(said)),
        Code::InvalidArgument | Code::OutOfRange => kept(Status::BadRequest, said),
        Code::ResourceExhausted if said.contains("larger than max") => {
            kept(Status::BadRequest, &too_large(said))
        }
        Code::ResourceExhausted if said.contains("space exceeded") => {
            let words = format!(
                "{said}: the server takes no writes (NOSPACE) until its data are compacted and defragmented and the \
                 alarm is disarmed; its --quota-backend-bytes says when"
            );
            kept(Status::ServiceUnavailable, &words)
        }
        // It may be this member alone that has lost the others.
        Code::Unavailable => unavailable(),
        Code::ResourceExhausted | Code::DeadlineExceeded => kept(Status::ServiceUnavailable, said),
        Code::Cancelled | Code::Internal | Code::Unknown if !said.starts_with(OF_ETCD) => lost(),
        _ => kept(Status::Error, said),
    }
}

fn too_large(said: &str) -> String {
    format!("{said} (the server's --max-request-bytes)")
}

/// Opens a connection to one member after the other.
#[derive(Debug)]
pub(super) struct Turns {
    members: Arc<Members>,
    /// The member that the next attempt begins with: the one after that to
    /// which the last connection was.
    next: Rc<Cell<usize>>,
}

impl Turns {
    /// Begins with this member.
    pub(super) fn from(members: &Arc<Members>, member: usize) -> Turns {
        Turns { members: Arc::clone(members), next: Rc::new(Cell::new(member % members.count())) }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.members.settings
    }
}

impl Connector for Turns {
    type Connection = KvClient;
    type Error = Error;

    fn limit(&self) -> Limit {
        Limit { time: self.settings().operation_timeout, property: OPERATION_TIMEOUT.name }
    }

    fn open(&self) -> impl Future<Output = Result<KvClient, StoreError>> + 'static {
        let (members, next) = (Arc::clone(&self.members), Rc::clone(&self.next));
        async move {
            let (opened, member) = members.open_any(next.get()).await?;
            next.set((member + 1) % members.count());
            Ok(opened.records)
        }
    }

    fn share(connection: &KvClient) -> Option<KvClient> {
        Some(connection.clone())
    }

    fn failure(&self, _: &KvClient, error: &Error) -> Failure {
        failure(error)
    }
}
