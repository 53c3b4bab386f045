//! A server: connecting to it, sending commands, and the meaning of its
//! errors.

use super::{INDEX, text};
use crate::reconnecting::{ConnectionFate, Connector, OperationFailure, Reconnecting, TimeLimit};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, RedisResult, TlsCertificates, Value, aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use serval_model::{Outcome, Status, StoreError};
use serval_tls::TlsFailure;
use std::{sync::Arc, time::Duration};
use tokio::time;

/// Code of most errors, also of a server outside a cluster that is asked for its slots.
pub(super) const UNSPECIFIC: &str = "ERR";

/// Reads a reply to INFO cluster.
pub(super) fn cluster_enabled(info: Value) -> Option<bool> {
    text(info).lines().find_map(|line| match line.trim_end() {
        "cluster_enabled:1" => Some(true),
        "cluster_enabled:0" => Some(false),
        _ => None,
    })
}

/// Connection options of all servers.
#[derive(Debug, Clone)]
pub(super) struct ConnectOptions {
    pub(super) login: RedisConnectionInfo,
    /// With TLS: whether to accept any certificate, and the certificates.
    pub(super) tls: Option<(bool, TlsCertificates)>,
    pub(super) timeout: Duration,
    /// Of operations.
    pub(super) limit: TimeLimit,
    /// Whether servers are nodes of a Redis Cluster.
    pub(super) cluster: bool,
}

impl ConnectOptions {
    /// Returns the server at an address.
    pub(super) fn server(self: &Arc<Self>, host: &str, port: u16) -> RedisResult<RedisEndpoint> {
        let address = match &self.tls {
            None => ConnectionAddr::Tcp(host.to_owned(), port),
            Some((insecure, _)) => {
                ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: *insecure, tls_params: None }
            }
        };
        let info = address
            .into_connection_info()?
            .set_tcp_settings(TcpSettings::default().set_nodelay(true))
            .set_redis_settings(self.login.clone());
        let client = match &self.tls {
            None => Client::open(info)?,
            Some((_, certificates)) => {
                // If the build has several TLS providers, rustls needs one installed. It
                // may be installed already.
                let _ = rustls::crypto::ring::default_provider().install_default();
                Client::build_with_tls(info, certificates.clone())?
            }
        };
        let (name, options) = (format!("redis at {host}:{port}"), Arc::clone(self));
        Ok(RedisEndpoint { name, host: host.to_owned(), port, client, options })
    }
}

/// A server's address and connection options.
#[derive(Debug, Clone)]
pub(super) struct RedisEndpoint {
    /// Name in messages.
    pub(super) name: String,
    pub(super) host: String,
    pub(super) port: u16,
    client: Client,
    pub(super) options: Arc<ConnectOptions>,
}

impl RedisEndpoint {
    /// Sends a command of the set-up on a new blocking connection.
    pub(super) fn ask(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.query(command).map_err(|error| self.failed(&error))
    }

    fn query(&self, command: &Cmd) -> RedisResult<Value> {
        let timeout = self.options.timeout;
        self.client.get_connection_with_timeout(timeout).and_then(|mut connection| {
            connection.set_read_timeout(Some(timeout))?;
            command.query(&mut connection)
        })
    }

    /// Checks that the server answers as a node of a cluster.
    pub(super) fn check_cluster(&self) -> Result<(), StoreError> {
        let answer = self.query(redis::cmd("CLUSTER").arg("SLOTS"));
        answer.map(drop).map_err(|error| match error.code() {
            Some(UNSPECIFIC) => self.cluster_failed(&error, self.cluster_enabled()),
            _ => self.failed(&error),
        })
    }

    /// Returns the error of a server that does not tell its slots; `enabled` is what it says of clusters.
    pub(super) fn cluster_failed(&self, error: &RedisError, enabled: Option<bool>) -> StoreError {
        match enabled {
            Some(false) => {
                let problem = "is not part of a Redis Cluster: leave out redis.cluster";
                StoreError::new(&self.name, problem)
            }
            _ => self.failed(error),
        }
    }

    /// Whether the server is part of a cluster; `None` if the user may not ask, or it does not say.
    pub(super) fn cluster_enabled(&self) -> Option<bool> {
        cluster_enabled(self.query(redis::cmd("INFO").arg("cluster")).ok()?)
    }

    /// Returns an error of the set-up, with advice.
    pub(super) fn failed(&self, error: &RedisError) -> StoreError {
        // The parser's message has several lines.
        let words = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let advice = match error.code() {
            Some("NOAUTH") => "The server wants a password: set redis.password",
            Some("WRONGPASS" | "NOPERM") => "Check redis.password and redis.username",
            Some("MOVED") => "The server is part of a Redis Cluster: set redis.cluster=true",
            Some("CLUSTERDOWN") => "The cluster has slots that no node serves: see CLUSTER INFO",
            Some("LOADING") => "The server is still loading its data: try again",
            _ if error.kind() == ErrorKind::AuthenticationFailed => {
                "Check redis.password (leave it out if the server has none) and redis.username"
            }
            _ if matches!(TlsFailure::of(error), Some(TlsFailure::Certificate | TlsFailure::Alert)) => {
                "Do redis.tls.roots and the host name fit the server's certificate, and does the server want one of \
                 the client (redis.tls.certificate)?"
            }
            _ if error.is_timeout() => {
                "No answer in time (redis.timeout, redis.operation.timeout): are redis.host and redis.port right, and redis.tls as the \
                 server wants it?"
            }
            _ if error.is_io_error() => {
                "Is the server running, are redis.host and redis.port right, and redis.tls as the server wants it?"
            }
            _ => "Is this a Redis server? Its log may say more",
        };
        StoreError::new(&self.name, format!("cannot connect: {words}. {advice}"))
    }

    /// Opens a connection and checks that the server answers.
    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        let timeout = self.options.timeout;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            // Operations have their time limit from `Reconnecting`.
            .set_response_timeout(None);
        let connecting = async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            // The cheapest command that requires credentials.
            let found: RedisResult<Value> =
                redis::cmd("EXISTS").arg(INDEX).query_async(&mut connection).await;
            match found {
                // The index is on another node, but this one answers.
                Err(error) if self.options.cluster && error.code() == Some("MOVED") => Ok(connection),
                found => found.map(|_| connection),
            }
        };
        match time::timeout(timeout, connecting).await {
            Ok(result) => result.map_err(|error| self.failed(&error)),
            Err(_) => {
                let problem = format!(
                    "cannot connect: no answer within {timeout:?} (redis.timeout). Are redis.host and redis.port right?"
                );
                Err(StoreError::new(&self.name, problem))
            }
        }
    }
}

impl Connector for RedisEndpoint {
    type Connection = MultiplexedConnection;
    type Error = RedisError;

    fn limit(&self) -> TimeLimit {
        self.options.limit
    }

    fn open(&self) -> impl Future<Output = Result<MultiplexedConnection, StoreError>> + 'static {
        let server = self.clone();
        async move { server.connect().await }
    }

    fn share(connection: &MultiplexedConnection) -> Option<MultiplexedConnection> {
        Some(connection.clone())
    }

    fn failure(&self, _: &MultiplexedConnection, error: &RedisError) -> OperationFailure {
        if error.is_unrecoverable_error() || error.is_io_error() || error.kind() == ErrorKind::Parse {
            let words = format!("connection lost: {error}");
            return OperationFailure {
                fate: ConnectionFate::Lost,
                outcome: Outcome::failed(Status::ServiceUnavailable, words),
            };
        }
        let status = match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => Status::Forbidden,
            Some(
                "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "READONLY" | "NOREPLICAS",
            ) => Status::ServiceUnavailable,
            Some("WRONGTYPE") => Status::UnexpectedState,
            _ => Status::Error,
        };
        OperationFailure { fate: ConnectionFate::Kept, outcome: Outcome::failed(status, error.to_string()) }
    }
}

/// Reply of a cluster's node to a command.
#[derive(Debug)]
pub(super) enum NodeReply {
    Reply(Value),
    /// The slot has moved to the node at the address.
    Moved(String),
    /// The record has moved, its slot not yet.
    Ask(String),
}

impl Reconnecting<RedisEndpoint> {
    /// Sends a command.
    pub(super) async fn command(&mut self, command: &Cmd) -> Result<Value, Outcome> {
        self.run(async |connection| command.query_async(connection).await).await
    }

    /// Sends pipelined commands.
    pub(super) async fn pipeline(&mut self, pipeline: &redis::Pipeline) -> Result<Vec<Value>, Outcome> {
        self.run(async |connection| pipeline.query_async(connection).await).await
    }

    /// Sends a command to a node of a cluster, which may redirect
    /// it.
    pub(super) async fn command_in_cluster(
        &mut self,
        command: &Cmd,
        asking: bool,
    ) -> Result<NodeReply, Outcome> {
        self.run(async |connection| {
            let result: RedisResult<Value> = if asking {
                let mut pipeline = redis::Pipeline::with_capacity(2);
                pipeline.cmd("ASKING").ignore().add_command(command.clone());
                pipeline.query_async::<(Value,)>(connection).await.map(|(value,)| value)
            } else {
                command.query_async(connection).await
            };
            let error = match result {
                Ok(value) => return Ok(NodeReply::Reply(value)),
                Err(error) => error,
            };
            match (error.code(), error.redirect_node()) {
                (Some("MOVED"), Some((node, _))) => Ok(NodeReply::Moved(node.to_owned())),
                (Some("ASK"), Some((node, _))) => Ok(NodeReply::Ask(node.to_owned())),
                _ => Err(error),
            }
        })
        .await
    }
}
