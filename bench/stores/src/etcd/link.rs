//! Connections: how one is opened, what its failures mean, and how it is
//! opened again after it was lost.

use super::settings::Settings;
use crate::opening::{self, Opening};
use etcd_client::{Channel, Client as Driver, ConnectOptions, Error, KvClient, MaintenanceClient};
use serval_model::{Outcome, Status, StoreError};
use std::{
    cell::{Cell, RefCell},
    error::Error as _,
    rc::Rc,
    sync::{Arc, OnceLock},
};
use tokio::{sync::Mutex, time};
use tonic::{Code, transport::Endpoint};

/// Bytes of the longest answer: what gRPC can count. The driver's own limit of
/// 4 MiB would refuse scans that the server answers.
const ANSWER_MAX: usize = i32::MAX as usize;

/// The table whose readability a new connection is tried on until the store
/// is prepared for another: YCSB's.
const USUAL_TABLE: &str = "usertable";

/// What begins the messages of etcd itself; others are gRPC's or the network's.
const OF_ETCD: &str = "etcdserver:";

/// How members are connected to.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) settings: Settings,
    /// The table of the records, once the store was prepared for it.
    pub(super) table: OnceLock<String>,
}

/// A new connection.
pub(super) struct Opened {
    pub(super) records: KvClient,
    pub(super) maintenance: MaintenanceClient,
}

impl Connector {
    pub(super) fn members(&self) -> usize {
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
    pub(super) async fn open_any(&self, member: usize) -> Result<(Opened, usize), StoreError> {
        let mut first = None;
        for member in (0..self.members()).map(|after| (member + after) % self.members()) {
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

/// Whether the connection is no good any more, and the outcome, of an error.
fn failure(error: &Error) -> (bool, Outcome) {
    let Error::GRpcStatus(status) = error else {
        return (true, lost(error));
    };
    let said = status.message();
    // What arrived as an answer has no cause here.
    if status.source().is_some() && !said.starts_with(OF_ETCD) {
        return (true, lost(error));
    }
    let failed = |status| Outcome::failed(status, said);
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => (false, failed(Status::Forbidden)),
        Code::InvalidArgument if said.contains("user name is empty") => (false, failed(Status::Forbidden)),
        // Users were changed; a new connection asks for a new token.
        Code::InvalidArgument if said.contains("auth store is old") => {
            (true, failed(Status::ServiceUnavailable))
        }
        Code::InvalidArgument if said.contains("too many operations") => {
            let words = format!("{said} (the server's --max-txn-ops): make batchsize smaller");
            (false, Outcome::failed(Status::BadRequest, words))
        }
        Code::InvalidArgument if said.contains("too large") => (false, too_large(said)),
        Code::InvalidArgument | Code::OutOfRange => (false, failed(Status::BadRequest)),
        Code::ResourceExhausted if said.contains("larger than max") => (false, too_large(said)),
        Code::ResourceExhausted if said.contains("space exceeded") => {
            let words = format!(
                "{said}: the server takes no writes (NOSPACE) until its data are compacted and defragmented and the \
                 alarm is disarmed; its --quota-backend-bytes says when"
            );
            (false, Outcome::failed(Status::ServiceUnavailable, words))
        }
        Code::ResourceExhausted | Code::Unavailable | Code::DeadlineExceeded => {
            // It may be this member alone that has lost the others.
            (status.code() == Code::Unavailable, failed(Status::ServiceUnavailable))
        }
        Code::Cancelled | Code::Internal | Code::Unknown if !said.starts_with(OF_ETCD) => (true, lost(error)),
        _ => (false, failed(Status::Error)),
    }
}

fn too_large(said: &str) -> Outcome {
    Outcome::failed(Status::BadRequest, format!("{said} (the server's --max-request-bytes)"))
}

fn lost(error: &Error) -> Outcome {
    Outcome::failed(Status::ServiceUnavailable, format!("connection lost: {}", words(error)))
}

/// A place for a connection, with what is needed to open it again. Shared by
/// the clients of a loop, or one client's own.
pub(super) struct Seat {
    connector: Arc<Connector>,
    connection: RefCell<Option<KvClient>>,
    /// How often it has been opened: a client that failed on an older one
    /// must not close a newer one.
    opened: Cell<u64>,
    /// The member that it is to be opened to.
    member: Cell<usize>,
    /// One client at a time opens it.
    opening: Mutex<Opening<(Opened, usize)>>,
}

impl Seat {
    /// A seat with its connection, to this member if that answers.
    pub(super) async fn connect(connector: &Arc<Connector>, member: usize) -> Result<Rc<Seat>, StoreError> {
        let (opened, member) = connector.open_any(member % connector.members()).await?;
        Ok(Rc::new(Seat {
            connector: Arc::clone(connector),
            connection: RefCell::new(Some(opened.records)),
            opened: Cell::new(1),
            member: Cell::new(member),
            opening: Mutex::default(),
        }))
    }

    /// The connection as it is, or opened again.
    async fn connection(&self) -> Result<(KvClient, u64), Outcome> {
        let there = || self.connection.borrow().clone().map(|connection| (connection, self.opened.get()));
        if let Some(found) = there() {
            return Ok(found);
        }
        let mut opening = self.opening.lock().await;
        if let Some(found) = there() {
            return Ok(found);
        }
        let (connector, member) = (Arc::clone(&self.connector), self.member.get());
        let (opened, member) = opening.wait(|| async move { connector.open_any(member).await }).await?;
        self.member.set(member);
        self.opened.set(self.opened.get() + 1);
        *self.connection.borrow_mut() = Some(opened.records.clone());
        Ok((opened.records, self.opened.get()))
    }

    /// Gives a connection up; the next one is to the next member.
    fn close(&self, opened: u64) {
        if self.opened.get() == opened && self.connection.borrow_mut().take().is_some() {
            self.member.set((self.member.get() + 1) % self.connector.members());
        }
    }
}

/// One client's hold on a seat: the seat's connection as the client last had it.
pub(super) struct Link {
    seat: Rc<Seat>,
    held: Option<(KvClient, u64)>,
}

impl Link {
    pub(super) fn new(seat: Rc<Seat>) -> Self {
        Link { seat, held: None }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.seat.connector.settings
    }

    /// Sends one request and waits for its answer, as long as the settings say.
    pub(super) async fn ask<T>(
        &mut self,
        request: impl AsyncFnOnce(&mut KvClient) -> Result<T, Error>,
    ) -> Result<T, Outcome> {
        let limit = self.settings().operation_timeout;
        let deadline = opening::deadline(limit);
        if self.held.is_none() {
            let found = opening::by(deadline, self.seat.connection()).await;
            self.held = Some(found.ok_or_else(|| opening::no_connection(limit, "etcd.operation.timeout"))??);
        }
        let (connection, opened) = self.held.as_mut().ok_or_else(|| Outcome::error("no connection"))?;
        let opened = *opened;
        let (close, outcome) = match opening::by(deadline, request(connection)).await {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) => failure(&error),
            None => {
                let words = format!(
                    "connection lost: no answer within {:?} (etcd.operation.timeout)",
                    limit.unwrap_or_default()
                );
                (true, Outcome::failed(Status::ServiceUnavailable, words))
            }
        };
        if close {
            self.held = None;
            self.seat.close(opened);
        }
        Err(outcome)
    }
}
