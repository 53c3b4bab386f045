//! Sessions: opening them, and the meaning of their errors.

use super::{SETUP_TIMEOUT, TIMEOUT};
use crate::reconnecting::{ConnectionFate, Connector, OperationFailure, Reconnecting, TimeLimit};
use scylla::{
    client::{
        PoolSize, execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder,
    },
    errors::{
        ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind as SetupError, DbError,
        ExecutionError, MetadataError, NewSessionError, PrepareError, RequestAttemptError, RequestError,
    },
    policies::{
        load_balancing::DefaultPolicy, retry::FallthroughRetryPolicy,
        timestamp_generator::MonotonicTimestampGenerator,
    },
    response::query_result::QueryResult,
    serialize::row::SerializeRow,
    statement::{Consistency, prepared::PreparedStatement},
};
use serval_model::{Outcome, Status, StoreError};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    error::Error,
    num::NonZeroUsize,
    rc::Rc,
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::time;

/// Maximum number of prepared statements of a session. A workload uses a few, plus one
/// for each field that it reads or updates alone; beyond the limit some are prepared
/// again.
const STATEMENTS_MAX: usize = 256;

/// Maximum characters of a node's message, which may repeat a refused value.
const WORDS_MAX: usize = 500;

/// Interval of TCP keep-alive probes, to detect a node that
/// vanished.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The cluster's address and connection options.
#[derive(Debug)]
pub(super) struct CassandraEndpoint {
    pub(super) name: String,
    pub(super) addresses: Vec<String>,
    pub(super) keyspace: String,
    pub(super) credentials: Option<(String, String)>,
    /// Consistency levels with their names.
    pub(super) read: (&'static str, Consistency),
    pub(super) write: (&'static str, Consistency),
    pub(super) connections: NonZeroUsize,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) datacenter: Option<String>,
    pub(super) tracing: bool,
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
    pub(super) timestamps: Arc<MonotonicTimestampGenerator>,
}

impl CassandraEndpoint {
    async fn session(&self) -> Result<Session, StoreError> {
        let mut policy = DefaultPolicy::builder().token_aware(true);
        if let Some(datacenter) = &self.datacenter {
            policy = policy.prefer_datacenter(datacenter.clone());
        }
        let profile = ExecutionProfile::builder()
            // `Reconnecting` applies the time limit of operations.
            .request_timeout(None)
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .speculative_execution_policy(None)
            .load_balancing_policy(policy.build())
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(&self.addresses)
            .default_execution_profile_handle(profile.into_handle())
            .timestamp_generator(Arc::clone(&self.timestamps) as Arc<_>)
            .pool_size(PoolSize::PerHost(self.connections))
            .connection_timeout(self.connect_timeout)
            .fetch_full_schema_metadata(false)
            .tcp_keepalive_interval(KEEPALIVE)
            .tls_context(self.tls.clone());
        if let Some((username, password)) = &self.credentials {
            builder = builder.user(username, password);
        }
        // The driver's own probes would close connections to slow nodes; the timeout
        // of operations decides that instead.
        builder.config.keepalive_interval = None;
        match time::timeout(self.connect_timeout, builder.build()).await {
            Ok(result) => result.map_err(|error| self.failed(&error)),
            Err(_) => {
                let problem = format!(
                    "cannot connect: no answer within {:?} (cassandra.connecttimeoutmillis). Are cassandra.hosts and \
                     cassandra.port right?",
                    self.connect_timeout
                );
                Err(StoreError::new(&self.name, problem))
            }
        }
    }

    /// Returns an error of the set-up, with advice.
    fn failed(&self, error: &NewSessionError) -> StoreError {
        let (words, advice) = match error {
            NewSessionError::FailedToResolveAnyHostname(_) => {
                (error.to_string(), "Is cassandra.hosts right?")
            }
            NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
                ConnectionPoolError::Broken { last_connection_error, .. },
            )) => connection_advice(last_connection_error),
            _ if is_empty_plan(error) => (
                "no node may be asked".to_owned(),
                "Is cassandra.local_dc the name of a data centre of the cluster?",
            ),
            _ => (error.to_string(), "Is this a Cassandra or Scylla node? Its log may say more"),
        };
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        StoreError::new(&self.name, format!("cannot connect: {}. {advice}", cut(&words)))
    }
}

/// Returns whether the driver found no usable node.
fn is_empty_plan(error: &NewSessionError) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if matches!(error.downcast_ref(), Some(RequestError::EmptyPlan))
            || matches!(error.downcast_ref(), Some(ExecutionError::EmptyPlan))
        {
            return true;
        }
        next = error.source();
    }
    false
}

fn connection_advice(error: &ConnectionError) -> (String, &'static str) {
    let advice = match error {
        ConnectionError::ConnectTimeout => {
            "No answer within cassandra.connecttimeoutmillis: are cassandra.hosts and cassandra.port right?"
        }
        ConnectionError::IoError(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            "Check cassandra.tls_ca and cassandra.tls_verify"
        }
        ConnectionError::IoError(_) => {
            "Is the node running, are cassandra.hosts and cassandra.port right, and does it speak TLS if and only if \
             cassandra.useSSL says so?"
        }
        ConnectionError::ConnectionSetupRequestError(request) => match request.get_error() {
            SetupError::MissingAuthentication => {
                let words = "the node wants credentials".to_owned();
                return (words, "Set cassandra.username and cassandra.password");
            }
            SetupError::DbError(DbError::AuthenticationError | DbError::Unauthorized, words) => {
                return (words.clone(), "Check cassandra.username and cassandra.password");
            }
            SetupError::DbError(_, words) => return (words.clone(), "The node's log may say more"),
            _ => {
                "Is this a Cassandra or Scylla node, and does it speak TLS if and only if cassandra.useSSL says so?"
            }
        },
        _ => {
            "Is this a Cassandra or Scylla node, and does it speak TLS if and only if cassandra.useSSL says so?"
        }
    };
    (error.to_string(), advice)
}

/// Runs a future of the set-up on a new thread, because the caller's may belong to a
/// runtime.
pub(super) fn blocking<T: Send>(
    server: &CassandraEndpoint,
    future: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, StoreError> {
    let failed = |words: String| StoreError::new(&server.name, words);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime =
                runtime.map_err(|error| failed(format!("no event loop for the set-up: {error}")))?;
            runtime.block_on(future)
        });
        thread.join().unwrap_or_else(|_| Err(failed("the set-up panicked".to_owned())))
    })
}

/// A column of a table's schema.
pub(super) struct ColumnFact {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) kind_of_value: String,
}

/// Opens a session for the set-up.
pub(super) struct SetupSession<'a> {
    server: &'a CassandraEndpoint,
    session: Session,
}

impl<'a> SetupSession<'a> {
    pub(super) async fn connect(server: &'a CassandraEndpoint) -> Result<SetupSession<'a>, StoreError> {
        Ok(SetupSession { server, session: server.session().await? })
    }

    async fn ask(&self, cql: &str, values: impl SerializeRow) -> Result<QueryResult, StoreError> {
        let failed = |words: &str, advice: &str| {
            StoreError::new(&self.server.name, format!("'{cql}' failed: {}{advice}", cut(words)))
        };
        match time::timeout(SETUP_TIMEOUT, self.session.query_unpaged(cql, values)).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => {
                let outcome = failure(&error);
                let advice = match outcome.status {
                    Status::Forbidden => ". Log in as a role with this permission (cassandra.username)",
                    _ => "",
                };
                Err(failed(outcome.message.as_deref().unwrap_or_default(), advice))
            }
            Err(_) => Err(failed(&format!("no answer within {SETUP_TIMEOUT:?}"), "")),
        }
    }

    /// Converts the rows of an answer.
    async fn rows<R>(&self, cql: &str, values: impl SerializeRow) -> Result<Vec<R>, StoreError>
    where
        R: for<'f> scylla::deserialize::row::DeserializeRow<'f, 'f>,
    {
        let unexpected =
            |words: String| StoreError::new(&self.server.name, format!("'{cql}' failed: {words}"));
        let result =
            self.ask(cql, values).await?.into_rows_result().map_err(|error| unexpected(error.to_string()))?;
        let rows = result.rows::<R>().map_err(|error| unexpected(error.to_string()))?;
        rows.collect::<Result<_, _>>().map_err(|error| unexpected(error.to_string()))
    }

    pub(super) async fn execute(&self, cql: &str) -> Result<(), StoreError> {
        self.ask(cql, ()).await.map(drop)
    }

    /// Returns the keyspace's replication; `None` if it does not exist.
    pub(super) async fn replication(&self) -> Result<Option<String>, StoreError> {
        let cql = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let rows: Vec<(BTreeMap<String, String>,)> = self.rows(cql, (&self.server.keyspace,)).await?;
        Ok(rows.first().map(|(options,)| {
            let words = options.iter().map(|(name, value)| {
                format!("{name}={}", value.trim_start_matches("org.apache.cassandra.locator."))
            });
            words.collect::<Vec<_>>().join(" ")
        }))
    }

    /// Returns the columns of a table; empty if it does not exist.
    pub(super) async fn columns(&self, table: &str) -> Result<Vec<ColumnFact>, StoreError> {
        let cql = "SELECT column_name, kind, type FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?";
        let rows: Vec<(String, String, String)> = self.rows(cql, (&self.server.keyspace, table)).await?;
        let facts =
            rows.into_iter().map(|(name, kind, kind_of_value)| ColumnFact { name, kind, kind_of_value });
        Ok(facts.collect())
    }

    /// Returns facts about the node and the cluster.
    pub(super) async fn facts(&self) -> Result<Vec<(String, String)>, StoreError> {
        let cql = "SELECT release_version, cluster_name, partitioner FROM system.local";
        let rows: Vec<(String, String, String)> = self.rows(cql, ()).await?;
        let nodes = self.session.get_cluster_state().get_nodes_info().len();
        let mut facts = vec![("nodes".to_owned(), nodes.to_string())];
        if let Some((version, cluster, partitioner)) = rows.into_iter().next() {
            let partitioner = partitioner.trim_start_matches("org.apache.cassandra.dht.").to_owned();
            facts.extend([
                ("version".to_owned(), version),
                ("cluster".to_owned(), cluster),
                ("partitioner".to_owned(), partitioner),
            ]);
        }
        Ok(facts)
    }
}

/// Number of recent statements.
#[derive(Debug, Default)]
struct Recent {
    statements: [Option<(Rc<str>, Rc<PreparedStatement>)>; RECENT],
    next: usize,
}

impl Recent {
    fn add(&mut self, text: &Rc<str>, statement: &Rc<PreparedStatement>) {
        self.statements[self.next] = Some((Rc::clone(text), Rc::clone(statement)));
        self.next = (self.next + 1) % RECENT;
    }
}

/// Recent statements, found by comparing texts.
const RECENT: usize = 4;

/// A session and its prepared statements.
#[derive(Debug)]
pub(super) struct CassandraSession {
    server: Arc<CassandraEndpoint>,
    session: Session,
    statements: RefCell<HashMap<Rc<str>, Rc<PreparedStatement>>>,
    /// Recent statements, found without hashing: a mix of operations uses
    /// few.
    recent: RefCell<Recent>,
}

impl CassandraSession {
    async fn prepared(&self, access: Access, cql: &str) -> Result<Rc<PreparedStatement>, ExecutionError> {
        if let Some((_, recent)) =
            self.recent.borrow().statements.iter().flatten().find(|(text, _)| **text == *cql)
        {
            return Ok(Rc::clone(recent));
        }
        if let Some((text, found)) = self.statements.borrow().get_key_value(cql) {
            self.recent.borrow_mut().add(text, found);
            return Ok(Rc::clone(found));
        }
        let mut statement = self.session.prepare(cql).await?;
        statement.set_consistency(match access {
            Access::Read => self.server.read.1,
            Access::Write => self.server.write.1,
        });
        statement.set_tracing(self.server.tracing);
        // The statement names all columns, so the metadata cannot change.
        statement.set_use_cached_result_metadata(true);
        let statement = Rc::new(statement);
        let mut statements = self.statements.borrow_mut();
        if statements.len() >= STATEMENTS_MAX {
            statements.clear();
        }
        let text = Rc::from(cql);
        self.recent.borrow_mut().add(&text, &statement);
        statements.insert(text, Rc::clone(&statement));
        Ok(statement)
    }
}

/// Consistency level of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Access {
    Read,
    Write,
}

/// Opens the sessions of one event loop.
#[derive(Debug)]
pub(super) struct CassandraConnector(pub(super) Arc<CassandraEndpoint>);

impl Connector for CassandraConnector {
    type Connection = Rc<CassandraSession>;
    type Error = ExecutionError;

    /// The driver discards late answers.
    const LATE: ConnectionFate = ConnectionFate::Kept;

    fn limit(&self) -> TimeLimit {
        TimeLimit { time: self.0.timeout, property: TIMEOUT.name }
    }

    fn open(&self) -> impl Future<Output = Result<Rc<CassandraSession>, StoreError>> + 'static {
        let server = Arc::clone(&self.0);
        async move {
            let session = server.session().await?;
            let (statements, recent) = Default::default();
            Ok(Rc::new(CassandraSession { server, session, statements, recent }))
        }
    }

    fn share(link: &Rc<CassandraSession>) -> Option<Rc<CassandraSession>> {
        Some(Rc::clone(link))
    }

    /// The driver reopens connections to nodes, so a session is lost only when it has none
    /// left.
    fn failure(&self, _: &Rc<CassandraSession>, error: &ExecutionError) -> OperationFailure {
        let fate = if unreachable(error) { ConnectionFate::Unsent } else { ConnectionFate::Kept };
        OperationFailure { fate, outcome: failure(error) }
    }
}

impl Reconnecting<CassandraConnector> {
    pub(super) fn server(&self) -> &CassandraEndpoint {
        &self.connector().0
    }

    /// Runs a statement once. Replaces a session without connections first: nothing was
    /// sent on it.
    pub(super) async fn execute(
        &mut self,
        access: Access,
        cql: &str,
        values: &impl SerializeRow,
    ) -> Result<QueryResult, Outcome> {
        let mut is_replaced = false;
        loop {
            let executed = self.try_run(async |link| {
                let statement = link.prepared(access, cql).await?;
                link.session.execute_unpaged(&statement, values).await
            });
            match executed.await {
                Ok(result) => return Ok(result),
                Err(failure) if failure.fate == ConnectionFate::Unsent && !is_replaced => is_replaced = true,
                Err(failure) => return Err(failure.outcome),
            }
        }
    }
}

/// Returns whether nothing was sent, because there is no connection to any node.
fn unreachable(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::ConnectionPoolError(_)
            | ExecutionError::PrepareError(PrepareError::ConnectionPoolError(_))
            | ExecutionError::EmptyPlan
    )
}

/// Converts the driver's error to an outcome.
pub(super) fn failure(error: &ExecutionError) -> Outcome {
    let attempt = match error {
        ExecutionError::LastAttemptError(attempt) => attempt,
        ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt, .. }) => first_attempt,
        ExecutionError::BadQuery(_) => return Outcome::failed(Status::BadRequest, cut(&error.to_string())),
        ExecutionError::EmptyPlan => {
            let words =
                "no node may be asked: is cassandra.local_dc the name of a data centre of the cluster?";
            return Outcome::failed(Status::ServiceUnavailable, words);
        }
        error if unreachable(error) => {
            return Outcome::failed(Status::ServiceUnavailable, cut(&error.to_string()));
        }
        _ => return Outcome::error(cut(&error.to_string())),
    };
    let (status, words) = match attempt {
        RequestAttemptError::DbError(kind, words) => (status(kind), cut(words)),
        RequestAttemptError::BrokenConnectionError(_) => {
            (Status::ServiceUnavailable, cut(&format!("connection lost: {attempt}")))
        }
        RequestAttemptError::SerializationError(_) | RequestAttemptError::CqlRequestSerialization(_) => {
            (Status::BadRequest, cut(&attempt.to_string()))
        }
        RequestAttemptError::UnableToAllocStreamId => (Status::ServiceUnavailable, attempt.to_string()),
        _ => (Status::UnexpectedState, cut(&attempt.to_string())),
    };
    Outcome::failed(status, words)
}

fn status(kind: &DbError) -> Status {
    match kind {
        DbError::SyntaxError | DbError::Invalid | DbError::ConfigError | DbError::AlreadyExists { .. } => {
            Status::BadRequest
        }
        DbError::AuthenticationError | DbError::Unauthorized => Status::Forbidden,
        DbError::Unavailable { .. }
        | DbError::Overloaded
        | DbError::IsBootstrapping
        | DbError::TruncateError
        | DbError::ReadTimeout { .. }
        | DbError::WriteTimeout { .. }
        | DbError::ReadFailure { .. }
        | DbError::WriteFailure { .. }
        | DbError::RateLimitReached { .. } => Status::ServiceUnavailable,
        _ => Status::Error,
    }
}

fn cut(words: &str) -> String {
    match words.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{}...", &words[..end]),
        None => words.to_owned(),
    }
}

/// Returns `KEYSPACE.TABLE` for a statement.
pub(super) fn qualified(cql: &mut String, server: &CassandraEndpoint, table: &str) {
    super::quote(cql, &server.keyspace);
    cql.push('.');
    super::quote(cql, table);
}
