//! One server: how it is connected to, and a connection that is opened again
//! after it was lost.

use super::INDEX;
use crate::opening::{self, Opening};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, RedisResult, TlsCertificates, Value, aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use serval_model::{Outcome, Status, StoreError};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::{sync::Mutex, time};

/// Time between attempts to connect again, so that a server that is down is
/// not asked by every operation.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How any server is connected to: all but its address.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    pub(super) login: RedisConnectionInfo,
    /// Under TLS: whether any certificate will do, and the certificates.
    pub(super) tls: Option<(bool, TlsCertificates)>,
    pub(super) timeout: Duration,
    pub(super) operation_timeout: Option<Duration>,
    /// Whether servers are nodes of a Redis Cluster.
    pub(super) cluster: bool,
}

impl Connector {
    /// The server at an address.
    pub(super) fn server(self: &Arc<Self>, host: &str, port: u16) -> RedisResult<Server> {
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
                // Another store of this build may bring another provider, and
                // rustls then wants to be told. It fails where that was done.
                let _ = rustls::crypto::ring::default_provider().install_default();
                Client::build_with_tls(info, certificates.clone())?
            }
        };
        let (name, connector) = (format!("redis at {host}:{port}"), Arc::clone(self));
        Ok(Server { name, host: host.to_owned(), port, client, connector })
    }
}

/// Where a server is and how to connect to it.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// For people.
    pub(super) name: String,
    pub(super) host: String,
    pub(super) port: u16,
    client: Client,
    pub(super) connector: Arc<Connector>,
}

impl Server {
    /// Sends one command on a blocking connection of its own, for set-up.
    pub(super) fn ask(&self, command: &Cmd) -> Result<Value, StoreError> {
        let timeout = self.connector.timeout;
        let answer = self.client.get_connection_with_timeout(timeout).and_then(|mut connection| {
            connection.set_read_timeout(Some(timeout))?;
            command.query(&mut connection)
        });
        answer.map_err(|error| self.failed(&error))
    }

    /// What went wrong before the first operation, and what to do.
    pub(super) fn failed(&self, error: &RedisError) -> StoreError {
        // The parser's has several lines.
        let words = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let advice = match error.code() {
            Some("NOAUTH") => "The server wants a password: set redis.password",
            Some("WRONGPASS" | "NOPERM") => "Check redis.password and redis.username",
            Some("MOVED") => "The server is part of a Redis Cluster: set redis.cluster=true",
            Some("CLUSTERDOWN") => "The cluster has slots that no node serves: see CLUSTER INFO",
            Some("LOADING") => "The server is still loading its data: try again",
            _ if words.contains("cluster support disabled") => {
                "The server is not part of a Redis Cluster: leave out redis.cluster"
            }
            _ if error.kind() == ErrorKind::AuthenticationFailed => {
                "Check redis.password (leave it out if the server has none) and redis.username"
            }
            _ if words.to_lowercase().contains("certificate") => {
                "Do redis.tls.roots and the host name fit the server's certificate, and does the server want one of \
                 the client (redis.tls.certificate)?"
            }
            _ if error.is_timeout() => {
                "Nobody answered in time (redis.timeout, redis.operation.timeout): are redis.host and redis.port right, and redis.tls as the \
                 server wants it?"
            }
            _ if error.is_io_error() => {
                "Is the server running, are redis.host and redis.port right, and redis.tls as the server wants it?"
            }
            _ => "Is this a Redis server? Its log may say more",
        };
        StoreError::new(&self.name, format!("cannot connect: {words}. {advice}"))
    }

    /// Opens a connection and sees that the server answers on it.
    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        let timeout = self.connector.timeout;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(self.connector.operation_timeout);
        let connecting = async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            // The cheapest command that a server refuses without credentials.
            let found: RedisResult<Value> =
                redis::cmd("EXISTS").arg(INDEX).query_async(&mut connection).await;
            match found {
                // The index is another node's; this one answers, though.
                Err(error) if self.connector.cluster && error.code() == Some("MOVED") => Ok(connection),
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

/// A place for a connection, with what is needed to open it again. Shared by
/// several clients, or one client's own.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) server: Server,
    connection: RefCell<Option<MultiplexedConnection>>,
    /// How often it has been opened: a client that failed on an older one
    /// must not close a newer one.
    opened: Cell<u64>,
    /// One client at a time opens it.
    opening: Mutex<Opening<MultiplexedConnection>>,
}

impl Seat {
    /// A seat whose connection is yet to be opened.
    pub(super) fn empty(server: Server) -> Rc<Seat> {
        Rc::new(Seat {
            server,
            connection: RefCell::default(),
            opened: Cell::default(),
            opening: Mutex::default(),
        })
    }

    /// A seat with its connection.
    pub(super) async fn connect(server: &Server) -> Result<Rc<Seat>, StoreError> {
        let seat = Seat::empty(server.clone());
        *seat.connection.borrow_mut() = Some(server.connect().await?);
        seat.opened.set(1);
        Ok(seat)
    }

    /// The connection as it is, or opened again.
    async fn connection(&self) -> Result<(MultiplexedConnection, u64), Outcome> {
        let there = || self.connection.borrow().clone().map(|connection| (connection, self.opened.get()));
        if let Some(found) = there() {
            return Ok(found);
        }
        let mut opening = self.opening.lock().await;
        if let Some(found) = there() {
            return Ok(found);
        }
        let server = self.server.clone();
        let connection = opening.wait(|| async move { server.connect().await }).await?;
        self.opened.set(self.opened.get() + 1);
        *self.connection.borrow_mut() = Some(connection.clone());
        Ok((connection, self.opened.get()))
    }

    /// The outcome of an error; one of the connection closes it.
    fn failed(&self, error: &RedisError, opened: u64) -> Outcome {
        if error.is_unrecoverable_error() || error.is_io_error() || error.kind() == ErrorKind::Parse {
            if self.opened.get() == opened {
                *self.connection.borrow_mut() = None;
            }
            let limit = self.server.connector.operation_timeout.filter(|_| error.is_timeout());
            let words = match limit {
                Some(limit) => format!("no answer within {limit:?} (redis.operation.timeout)"),
                None => error.to_string(),
            };
            return Outcome::failed(Status::ServiceUnavailable, format!("connection lost: {words}"));
        }
        let status = match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => Status::Forbidden,
            Some(
                "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "READONLY" | "NOREPLICAS",
            ) => Status::ServiceUnavailable,
            Some("WRONGTYPE") => Status::UnexpectedState,
            _ => Status::Error,
        };
        Outcome::failed(status, error.to_string())
    }
}

/// One client's hold on a seat: the seat's connection as the client last had it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) seat: Rc<Seat>,
    held: Option<(MultiplexedConnection, u64)>,
}

/// What came of a command: its reply, where else to ask, or a failure.
#[derive(Debug)]
pub(super) enum Answer<T> {
    Reply(T),
    /// The slot has moved for good, to the node at the address.
    Moved(String),
    /// The record has moved already, its slot not yet.
    Ask(String),
    Failed(Outcome),
}

impl Link {
    pub(super) fn new(seat: Rc<Seat>) -> Self {
        Link { seat, held: None }
    }

    async fn held(&mut self) -> Result<&mut (MultiplexedConnection, u64), Outcome> {
        if self.held.is_none() {
            let limit = self.seat.server.connector.operation_timeout;
            let found = opening::by(opening::deadline(limit), self.seat.connection()).await;
            self.held = Some(found.ok_or_else(|| opening::no_connection(limit, "redis.operation.timeout"))??);
        }
        self.held.as_mut().ok_or_else(|| Outcome::error("no connection"))
    }

    fn failed(&mut self, error: &RedisError) -> Outcome {
        let opened = self.held.as_ref().map_or(0, |(_, opened)| *opened);
        let outcome = self.seat.failed(error, opened);
        if outcome.status == Status::ServiceUnavailable {
            self.held = None;
        }
        outcome
    }

    /// Sends one command.
    pub(super) async fn command(&mut self, command: &Cmd) -> Result<Value, Outcome> {
        let (connection, _) = self.held().await?;
        let result = command.query_async(connection).await;
        result.map_err(|error| self.failed(&error))
    }

    /// Sends several commands in one go.
    pub(super) async fn pipeline(&mut self, pipeline: &redis::Pipeline) -> Result<Vec<Value>, Outcome> {
        let (connection, _) = self.held().await?;
        let result = pipeline.query_async(connection).await;
        result.map_err(|error| self.failed(&error))
    }

    /// Sends one command to a node of a cluster, which may say that another
    /// node has the key.
    pub(super) async fn command_in_cluster(&mut self, command: &Cmd, asking: bool) -> Answer<Value> {
        let connection = match self.held().await {
            Ok((connection, _)) => connection,
            Err(outcome) => return Answer::Failed(outcome),
        };
        let result: RedisResult<Value> = if asking {
            let mut pipeline = redis::Pipeline::with_capacity(2);
            pipeline.cmd("ASKING").ignore().add_command(command.clone());
            pipeline.query_async::<(Value,)>(connection).await.map(|(value,)| value)
        } else {
            command.query_async(connection).await
        };
        match result {
            Ok(value) => Answer::Reply(value),
            Err(error) => match (error.code(), error.redirect_node()) {
                (Some("MOVED"), Some((node, _))) => Answer::Moved(node.to_owned()),
                (Some("ASK"), Some((node, _))) => Answer::Ask(node.to_owned()),
                _ => Answer::Failed(self.failed(&error)),
            },
        }
    }
}
