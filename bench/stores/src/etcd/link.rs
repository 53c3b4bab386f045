//! Connections to members: opening them, and the meaning of their errors.

use super::settings::{EtcdSettings, OPERATION_TIMEOUT};
use crate::reconnecting::{ConnectionFate, Connector, OperationFailure, TimeLimit};
use etcd_client::{Channel, Client as Driver, ConnectOptions, Error, KvClient, MaintenanceClient};
use serval_model::{Outcome, Status, StoreError};
use serval_tls::TlsFailure;
use std::{
    cell::Cell,
    error::Error as _,
    io::{self, ErrorKind},
    rc::Rc,
    sync::{Arc, OnceLock},
};
use tokio::time;
use tonic::{Code, transport::Endpoint};

/// Maximum bytes of an answer: gRPC's own limit. The driver's default of 4 MiB would
/// refuse answers to large scans.
const ANSWER_MAX: usize = i32::MAX as usize;

/// Table that a new connection reads from as a check before the store is
/// prepared: YCSB's.
const USUAL_TABLE: &str = "usertable";

/// The members of a cluster and connection options.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) settings: EtcdSettings,
    /// Table of the records, once the store was prepared.
    pub(super) table: OnceLock<String>,
}

/// An open connection.
pub(super) struct OpenConnection {
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

    /// Opens a connection to a member and checks that it answers.
    pub(super) async fn open(&self, member: usize) -> Result<OpenConnection, StoreError> {
        let EtcdSettings { login, timeout, .. } = &self.settings;
        let connecting = async {
            let channel = self.endpoint(member)?.connect().await?;
            let options = login.as_ref().map(|(username, password)| {
                // Tokens expire after some minutes without use.
                ConnectOptions::new().with_user(username, password).with_auto_token_refresh(true)
            });
            let driver = Driver::from_channel(Channel::Tonic(channel), options).await?;
            let mut records = driver.kv_client().max_decoding_message_size(ANSWER_MAX);
            // Reads a key without a record, which requires credentials and a
            // cluster with a quorum.
            let table = self.table.get().map_or(USUAL_TABLE, String::as_str);
            records.get(format!("{table}/"), None).await?;
            Ok::<OpenConnection, Error>(OpenConnection { records, maintenance: driver.maintenance_client() })
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

    /// Opens a connection to this member, or to the next one that answers. Returns the
    /// first failure if all fail.
    async fn open_any(&self, member: usize) -> Result<(OpenConnection, usize), StoreError> {
        let mut first = None;
        for member in (0..self.count()).map(|after| (member + after) % self.count()) {
            match self.open(member).await {
                Ok(opened) => return Ok((opened, member)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| StoreError::new("etcd", "etcd.endpoints names no server")))
    }

    /// Returns an error of the set-up, with advice.
    fn failed(&self, member: usize, error: &Error) -> StoreError {
        let words = words(error);
        let (tls, cause, status) = (self.settings.tls.is_some(), EtcdCause::of(error), status_of(error));
        let handshake = self::cause(error).and_then(TlsFailure::of);
        let is_of_certificate = matches!(handshake, Some(TlsFailure::Certificate | TlsFailure::Alert));
        let advice = match cause {
            Some(EtcdCause::NoUser) => {
                "The server wants a user name and a password: set etcd.username and etcd.password"
            }
            Some(EtcdCause::NoUsers) => {
                "The server asks for no user name: leave out etcd.username and etcd.password"
            }
            Some(EtcdCause::WrongLogin) => "Check etcd.username and etcd.password",
            _ if status.is_some_and(|status| status.code() == Code::PermissionDenied) => {
                "May the user of etcd.username read and write the keys from TABLE/ on?"
            }
            _ if status.is_some_and(is_of_etcd) => {
                "The server answers and says so itself; is its cluster whole?"
            }
            _ if is_unreachable(error) => "Is the server running, and does etcd.endpoints name it?",
            _ if tls && is_of_certificate => {
                "Do etcd.tls.roots and the host name (etcd.tls.server.name) fit the server's certificate, and does \
                 the server want one of the client (etcd.tls.certificate)?"
            }
            // With TLS 1.3, a server that requires a client certificate closes the
            // connection after the client's side of the handshake.
            _ if tls => {
                "Does the server speak TLS (if not, leave out etcd.tls), and does it want a certificate of the client \
                 (etcd.tls.certificate)?"
            }
            _ => "Is this an etcd of version 3.4 or later, and does it speak without TLS (etcd.tls)?",
        };
        self.error(member, format!("cannot connect: {words}. {advice}"))
    }
}

/// Returns the cause of an error, which the crate does not expose.
fn cause(error: &Error) -> Option<&(dyn std::error::Error + 'static)> {
    match error {
        Error::GRpcStatus(status) => status.source(),
        Error::TransportError(error) => error.source(),
        error => error.source(),
    }
}

/// Returns the server's message, or the driver's distinct causes.
fn words(error: &Error) -> String {
    let mut text = match error {
        Error::GRpcStatus(status) => status.message().to_owned(),
        Error::TransportError(error) => error.to_string(),
        error => error.to_string(),
    };
    let mut next = cause(error);
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&more);
        }
        next = error.source();
    }
    text
}

/// Converts an error to an outcome and the fate of its connection.
fn failure(error: &Error) -> OperationFailure {
    let lost = || {
        let words = format!("connection lost: {}", words(error));
        OperationFailure {
            fate: ConnectionFate::Lost,
            outcome: Outcome::failed(Status::ServiceUnavailable, words),
        }
    };
    let Error::GRpcStatus(status) = error else { return lost() };
    // An error from the server has no local cause.
    if status.source().is_some() && !is_of_etcd(status) {
        return lost();
    }
    let said = status.message();
    let failed = |fate, status, words: &str| OperationFailure {
        fate,
        outcome: Outcome::failed(status, words.to_owned()),
    };
    let kept = |status, words: &str| failed(ConnectionFate::Kept, status, words);
    match (status.code(), EtcdCause::of(error)) {
        (Code::PermissionDenied | Code::Unauthenticated, _) | (_, Some(EtcdCause::NoUser)) => {
            kept(Status::Forbidden, said)
        }
        // Users were changed; a new connection gets a new token.
        (_, Some(EtcdCause::OldToken)) => failed(ConnectionFate::Lost, Status::ServiceUnavailable, said),
        (_, Some(EtcdCause::ManyOperations)) => {
            let words = format!("{said} (the server's --max-txn-ops): make batchsize smaller");
            kept(Status::BadRequest, &words)
        }
        (_, Some(EtcdCause::TooLarge)) => {
            kept(Status::BadRequest, &format!("{said} (the server's --max-request-bytes)"))
        }
        (Code::InvalidArgument | Code::OutOfRange, _) => kept(Status::BadRequest, said),
        (_, Some(EtcdCause::NoSpace)) => {
            let words = format!(
                "{said}: the server takes no writes (NOSPACE) until its data are compacted and defragmented and the \
                 alarm is disarmed; its --quota-backend-bytes says when"
            );
            kept(Status::ServiceUnavailable, &words)
        }
        // This member may be partitioned from the others.
        (Code::Unavailable, _) => failed(ConnectionFate::Lost, Status::ServiceUnavailable, said),
        (Code::ResourceExhausted | Code::DeadlineExceeded, _) => kept(Status::ServiceUnavailable, said),
        (Code::Cancelled | Code::Internal | Code::Unknown, _) if !is_of_etcd(status) => lost(),
        _ => kept(Status::Error, said),
    }
}

fn status_of(error: &Error) -> Option<&tonic::Status> {
    if let Error::GRpcStatus(status) = error { Some(status) } else { None }
}

/// Returns whether the error comes from etcd instead of gRPC or the network: etcd's
/// messages start with its name.
fn is_of_etcd(status: &tonic::Status) -> bool {
    status.message().starts_with("etcdserver:")
}

/// Returns whether no server listens at the address.
fn is_unreachable(error: &Error) -> bool {
    let mut next = cause(error);
    while let Some(error) = next {
        let refused = error.downcast_ref().is_some_and(|error: &io::Error| {
            matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable)
        });
        // The error type of a failed name lookup is private.
        if refused || error.to_string().contains("dns error") {
            return true;
        }
        next = error.source();
    }
    false
}

/// Errors of etcd that share their gRPC code with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EtcdCause {
    /// The request has no user.
    NoUser,
    /// The server has no users.
    NoUsers,
    WrongLogin,
    OldToken,
    ManyOperations,
    TooLarge,
    NoSpace,
}

impl EtcdCause {
    /// Text of the error. etcd has no error numbers besides gRPC's codes, which several
    /// errors share; its clients distinguish them by these constants of its API
    /// (`rpctypes`).
    fn of(error: &Error) -> Option<EtcdCause> {
        let status = status_of(error)?;
        let known: &[(&str, EtcdCause)] = match status.code() {
            Code::InvalidArgument => &[
                ("user name is empty", EtcdCause::NoUser),
                ("authentication failed", EtcdCause::WrongLogin),
                ("auth store is old", EtcdCause::OldToken),
                ("too many operations", EtcdCause::ManyOperations),
                ("too large", EtcdCause::TooLarge),
            ],
            Code::FailedPrecondition => &[("authentication is not enabled", EtcdCause::NoUsers)],
            Code::ResourceExhausted => {
                &[("larger than max", EtcdCause::TooLarge), ("space exceeded", EtcdCause::NoSpace)]
            }
            _ => &[],
        };
        let said = status.message();
        known.iter().find(|(words, _)| said.contains(words)).map(|(_, cause)| *cause)
    }
}

/// Connects to the members in turn.
#[derive(Debug)]
pub(super) struct Turns {
    members: Arc<Members>,
    /// Member of the next attempt: the one after the last connection's
    /// member.
    next: Rc<Cell<usize>>,
}

impl Turns {
    /// Starts with this member.
    pub(super) fn from(members: &Arc<Members>, member: usize) -> Turns {
        Turns { members: Arc::clone(members), next: Rc::new(Cell::new(member % members.count())) }
    }

    pub(super) fn settings(&self) -> &EtcdSettings {
        &self.members.settings
    }
}

impl Connector for Turns {
    type Connection = KvClient;
    type Error = Error;

    fn limit(&self) -> TimeLimit {
        TimeLimit { time: self.settings().operation_timeout, property: OPERATION_TIMEOUT.name }
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

    fn failure(&self, _: &KvClient, error: &Error) -> OperationFailure {
        failure(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_with_one_code_are_distinguished() {
        let of = |code, words: &str| {
            let failure = failure(&Error::GRpcStatus(tonic::Status::new(code, words)));
            (failure.fate, failure.outcome.status)
        };
        for (code, words, expected) in [
            (
                Code::InvalidArgument,
                "etcdserver: user name is empty",
                (ConnectionFate::Kept, Status::Forbidden),
            ),
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old",
                (ConnectionFate::Lost, Status::ServiceUnavailable),
            ),
            (
                Code::InvalidArgument,
                "etcdserver: key is not provided",
                (ConnectionFate::Kept, Status::BadRequest),
            ),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (3 vs. 2)",
                (ConnectionFate::Kept, Status::BadRequest),
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                (ConnectionFate::Kept, Status::ServiceUnavailable),
            ),
            (Code::Unavailable, "etcdserver: no leader", (ConnectionFate::Lost, Status::ServiceUnavailable)),
            (Code::Unknown, "etcdserver: odd", (ConnectionFate::Kept, Status::Error)),
            (Code::Unknown, "transport", (ConnectionFate::Lost, Status::ServiceUnavailable)),
            // The text must come with its gRPC code.
            (Code::Unknown, "etcdserver: request is too large", (ConnectionFate::Kept, Status::Error)),
        ] {
            assert_eq!(of(code, words), expected, "{code:?} {words}");
        }
    }
}
