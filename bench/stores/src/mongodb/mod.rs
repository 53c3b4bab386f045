//! MongoDB, in the layout of YCSB's two MongoDB bindings.
//!
//! | verb | command |
//! |---|---|
//! | read | `find` by `_id`, one document |
//! | update | `update` of one document, `$set` of the fields given |
//! | insert | `insert`, or with `mongodb.upsert` an `update` that replaces or inserts |
//! | scan | `find` of `_id` from the key on, sorted by `_id`, with a limit |
//! | delete | `delete` of one document |
//! | batch of inserts | `insert` of several documents, in order |
//!
//! Each event loop has a driver client of its own, created in [`Store::local`], with a
//! pool of connections and tasks that monitor the servers, so that answers wake no
//! other thread. A client takes a connection for one operation; without a limit there
//! is one for each operation in flight. A lost connection fails its operation; the
//! driver reopens connections once its monitor sees the server again.

mod client;
mod failure;
mod limit;
mod settings;

use crate::{StoreInfo, optional};
use client::MongodbClient;
use failure::{code, words};
use mongodb::{
    Client, Database,
    bson::doc,
    error::Error,
    options::{Acknowledgment, ServerAddress},
};
use serval_model::{
    Execution, Purpose, Schema, Store, StoreError,
    properties::{Faults, Properties, PropertyTable, units},
};
use settings::MongodbSettings;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Mutex, PoisonError},
};

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: optional::MONGODB.name,
    aliases: optional::MONGODB.aliases,
    summary: optional::MONGODB.summary,
    details: "Layout of YCSB's MongoDB bindings, so that either tool reads what the other loaded: \
              database ycsb (or the URL's), collection usertable (property table), _id the key, one \
              binary value per field. Texts of other tools are read too; fields that are neither bytes \
              nor text are omitted. MongoDB creates the collection with the first insert.\n\
              read: find by _id. scan: find from the key on, sorted by _id, with a limit; byte order of \
              keys, not a snapshot. update: $set of the fields; a missing record is NOT_FOUND. insert: \
              insert; an existing key is an ERROR unless mongodb.upsert is set. delete: delete; a missing \
              record is NOT_FOUND. A batch of inserts is one ordered insert: it stops at the first \
              failure, and the inserts before it remain. Writes without an answer (w=0) are refused.\n\
              No transactions, and no operation is performed twice: the driver's retries are off, \
              whatever the URL says (retryReads, retryWrites). Asynchronous: the clients of an event loop \
              share a pool of connections (mongodb.maxconnections), which grows with the operations in \
              flight; with the URL's minPoolSize each loop opens that many before the run begins.\n\
              Tested only against a stand-in (mongo-java-server, which speaks MongoDB's protocol without \
              authentication, sessions or replica sets): no real MongoDB was available where Serval was \
              developed.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable { heading: "mongodb", properties: settings::ALL },
};

/// A MongoDB server, replica set or sharded cluster.
#[derive(Debug)]
pub struct Mongodb {
    settings: MongodbSettings,
    /// Facts about the server, from the preparation of the store.
    version: Mutex<Option<String>>,
}

/// State that the clients of one event loop share.
#[derive(Debug)]
pub struct MongodbState {
    client: RefCell<Option<Client>>,
    database: String,
    clients: Cell<usize>,
}

impl MongodbState {
    fn new(client: Client, database: &str) -> Rc<Self> {
        let (client, database) = (RefCell::new(Some(client)), database.to_owned());
        Rc::new(MongodbState { client, database, clients: Cell::new(0) })
    }

    /// The database; `None` once all clients are closed.
    fn database(&self) -> Option<Database> {
        self.client.borrow().as_ref().map(|client| client.database(&self.database))
    }

    /// Closes a client. The last one shuts the driver down, whose tasks would
    /// otherwise be aborted with their loop.
    async fn leave(&self) {
        self.clients.set(self.clients.get().saturating_sub(1));
        if self.clients.get() == 0 {
            let client = self.client.borrow_mut().take();
            if let Some(client) = client {
                client.shutdown().immediate(true).await;
            }
        }
    }
}

impl Mongodb {
    /// Reads the properties. Does not connect.
    pub fn open(properties: &Properties) -> Result<Mongodb, Faults> {
        let settings = MongodbSettings::read(properties)?;
        // The driver uses the process's TLS provider, which may be installed only
        // once. It may be installed already.
        drop(rustls::crypto::ring::default_provider().install_default());
        Ok(Mongodb { settings, version: Mutex::default() })
    }

    fn address(&self) -> String {
        let hosts: Vec<String> = self.settings.options.hosts.iter().map(ServerAddress::to_string).collect();
        hosts.join(",")
    }

    fn error(&self, problem: impl Into<String>) -> StoreError {
        StoreError::new(format!("{} ({})", INFO.name, self.address()), problem)
    }

    /// Converts an error of the set-up, with advice.
    fn failed(&self, error: &Error) -> StoreError {
        let advice = match code(error) {
            _ if failure::is_of_login(error) => {
                "Are the user and password right, in mongodb.url or mongodb.username and mongodb.password, and is \
                 authSource the database that knows the user?"
            }
            Some(13 | 18) => "May the user do this? Look at mongodb.url and mongodb.username.",
            _ if self.settings.options.tls.is_some() => {
                "Does mongodb.url name a MongoDB server that speaks TLS, with a certificate that tlsCAFile trusts?"
            }
            _ => "Does mongodb.url name a MongoDB server, and has the URL tls=true if it speaks TLS only?",
        };
        self.error(format!("cannot connect: {}. {advice}", words(error)))
    }

    fn client(&self) -> Result<Client, StoreError> {
        Client::with_options(self.settings.options.clone()).map_err(|error| self.failed(&error))
    }

    /// Returns the write concern in the URL's notation.
    fn write_concern(&self) -> String {
        let Some(concern) = &self.settings.options.write_concern else { return "the server's".to_owned() };
        let mut parts = Vec::new();
        match &concern.w {
            Some(Acknowledgment::Nodes(nodes)) => parts.push(format!("w={nodes}")),
            Some(Acknowledgment::Majority) => parts.push("w=majority".to_owned()),
            Some(Acknowledgment::Custom(name)) => parts.push(format!("w={name}")),
            _ => {}
        }
        parts.extend(concern.journal.map(|journal| format!("journal={journal}")));
        parts.extend(concern.w_timeout.map(|timeout| format!("wTimeoutMS={}", timeout.as_millis())));
        parts.join(" ")
    }

    async fn check(&self, client: &Client, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let database = client.database(&self.settings.database);
        let answer =
            database.run_command(doc! { "buildInfo": 1 }).await.map_err(|error| self.failed(&error))?;
        let version = answer.get_str("version").ok().map(str::to_owned);
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = version;
        if purpose == Purpose::Load {
            return Ok(());
        }
        let names = database.list_collection_names().filter(doc! { "name": &schema.table });
        let names = names.authorized_collections(true).await.map_err(|error| self.failed(&error))?;
        if names.is_empty() {
            return Err(self.error(format!(
                "the database '{}' has no collection '{}': load it first, with 'serval load mongodb' and the same \
                 mongodb.url and table",
                self.settings.database, schema.table
            )));
        }
        Ok(())
    }
}

/// Returns the faults of field names that have a special meaning in MongoDB.
fn fault_of_name(field: &str) -> Option<&'static str> {
    match field {
        "" => Some("is empty"),
        "_id" => Some("is the key's"),
        _ if field.starts_with('$') => Some("begins with '$'"),
        _ if field.contains('.') => Some("has a '.', which MongoDB takes for a path into a field"),
        _ if field.contains('\0') => Some("has a NUL"),
        _ => None,
    }
}

impl Store for Mongodb {
    type Local = Rc<MongodbState>;
    type Client = MongodbClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        for field in &schema.fields {
            if let Some(fault) = fault_of_name(field) {
                let problem = format!("the field name '{field}' {fault}: change fieldnameprefix");
                return Err(self.error(problem));
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.error(format!("no event loop: {error}")))?;
        runtime.block_on(async {
            let client = self.client()?;
            let checking = self.check(&client, schema, purpose);
            // The server may stop answering at any time.
            let limit = self.settings.options.server_selection_timeout.unwrap_or_default() * 2;
            let checked = match tokio::time::timeout(limit, checking).await {
                Ok(checked) => checked,
                Err(_) => Err(self.error("the server stopped answering while it was prepared")),
            };
            client.shutdown().immediate(true).await;
            checked
        })
    }

    fn describe(&self) -> Vec<(String, String)> {
        let MongodbSettings { options, database, upsert, timeout, unread } = &self.settings;
        let timeout = timeout.map(|timeout| units::format_duration(timeout.as_nanos() as u64));
        let connections = match options.max_pool_size {
            None | Some(settings::UNBOUNDED) => "one an operation under way".to_owned(),
            Some(most) => format!("{most} an event loop and server at most"),
        };
        let mut all = vec![
            ("address".to_owned(), self.address()),
            ("database".to_owned(), database.clone()),
            ("write concern".to_owned(), self.write_concern()),
            ("read preference".to_owned(), settings::preference(options).to_owned()),
            ("upsert".to_owned(), upsert.to_string()),
            ("connections".to_owned(), connections),
            ("timeout".to_owned(), timeout.unwrap_or_else(|| "none".to_owned())),
            ("retries".to_owned(), "off".to_owned()),
        ];
        if !unread.is_empty() {
            all.push(("URL parameters without effect".to_owned(), unread.join(", ")));
        }
        let version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(version.iter().map(|version| ("version".to_owned(), version.clone())));
        all
    }

    fn local(&self) -> Result<Rc<MongodbState>, StoreError> {
        Ok(MongodbState::new(self.client()?, &self.settings.database))
    }

    async fn connect(&self, shared: &Rc<MongodbState>, _: usize) -> Result<MongodbClient, StoreError> {
        let client = shared.client.borrow().clone();
        let client = client.ok_or_else(|| self.error("all clients of this loop are closed"))?;
        let least = self.settings.options.min_pool_size;
        if shared.clients.get() == 0 && least.is_some_and(|least| least > 0) {
            client.warm_connection_pool().await;
        }
        shared.clients.set(shared.clients.get() + 1);
        let asked = client.database(&self.settings.database).run_command(doc! { "ping": 1 }).await;
        asked.map_err(|error| self.failed(&error))?;
        let MongodbSettings { upsert, timeout, .. } = self.settings;
        Ok(MongodbClient::new(Rc::clone(shared), upsert, timeout))
    }
}
