//! etcd. A record is a JSON object of strings under the key `TABLE/KEY`; YCSB has no
//! binding for etcd and hence no layout.
//!
//! | verb | requests |
//! |---|---|
//! | read | a range of one key; the client selects the fields |
//! | update, `merge` | the same, then a transaction that puts if the key's revision is unchanged; repeated if another client wrote in between |
//! | update, `replace` | a transaction that puts if the key exists |
//! | insert | a transaction that puts if the key does not exist |
//! | batch | one transaction of that kind for up to 128 records and 1 MiB |
//! | scan | a range from the start key to the end of the table, with a limit |
//! | delete | a delete of one key |
//!
//! A connection goes to one member of the cluster, in round-robin order. A lost
//! connection fails the operations in flight; the next operation connects to the next
//! member (link.rs).

mod client;
mod link;
mod settings;

pub use client::EtcdClient;

use crate::{
    StoreInfo, optional,
    reconnecting::{Pool, Reconnecting, Slot},
};
use link::{Members, Turns};
use serval_model::{
    Execution, Purpose, Schema, Store, StoreError,
    properties::{Faults, Properties, PropertyTable},
};
use settings::EtcdSettings;
use std::{
    rc::Rc,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use tokio::time;

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: optional::ETCD.name,
    aliases: optional::ETCD.aliases,
    summary: optional::ETCD.summary,
    details: "A record is a JSON object of strings under the key TABLE/KEY. YCSB has no binding for etcd. \
              An insert is a transaction, and an ERROR if the record exists; a batch of up to 128 records \
              and 1 MiB is one transaction, a longer one several. An update reads the record and writes \
              it back if no other client has changed it (etcd.update), and is NOT_FOUND if there is no \
              record. Scans run in the byte order of keys. Reads are linearizable unless etcd.read says \
              otherwise. Values must be UTF-8.\n\
              A request has at most 1.5 MiB unless the servers were started with more \
              (--max-request-bytes); larger ones are BAD_REQUEST. A server whose data have reached its \
              quota (2 GiB unless --quota-backend-bytes says more; old revisions count until they are \
              compacted) refuses writes: SERVICE_UNAVAILABLE. Asynchronous: clients run on event loops, \
              each with a connection of its own to one member (etcd.connections). Servers of version 3.4 \
              or later.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable { heading: "etcd", properties: settings::ALL },
};

/// An etcd cluster, or one server.
#[derive(Debug)]
pub struct Etcd {
    members: Arc<Members>,
    /// Facts from the preparation of the store.
    facts: Mutex<Vec<(String, String)>>,
}

impl Etcd {
    /// Reads the properties. Does not connect.
    pub fn open(properties: &Properties) -> Result<Etcd, Faults> {
        let members = Members { settings: EtcdSettings::read(properties)?, table: OnceLock::new() };
        Ok(Etcd { members: Arc::new(members), facts: Mutex::default() })
    }

    /// Returns facts about each member. One that answers suffices, as for
    /// clients.
    async fn ask_all(&self) -> Result<Vec<(String, String)>, StoreError> {
        let EtcdSettings { endpoints, timeout, .. } = &self.members.settings;
        let (mut versions, mut away, mut first) = (Vec::new(), Vec::new(), None);
        for (member, endpoint) in endpoints.iter().enumerate() {
            match self.members.open(member).await {
                Ok(mut opened) => {
                    let status = time::timeout(*timeout, opened.maintenance.status()).await;
                    // The user may lack the right to ask, which is not a failure.
                    if let Ok(Ok(status)) = status {
                        let version = status.version().to_owned();
                        versions.extend((!versions.contains(&version)).then_some(version));
                    }
                }
                Err(error) => {
                    away.push(endpoint.clone());
                    first = first.or(Some(error));
                }
            }
        }
        match first {
            Some(error) if away.len() == endpoints.len() => Err(error),
            _ => {
                let facts = [("version", versions), ("did not answer", away)];
                let known = facts.into_iter().filter(|(_, values)| !values.is_empty());
                Ok(known.map(|(name, values)| (name.to_owned(), values.join(","))).collect())
            }
        }
    }
}

/// State that the clients of one event loop share: their connection, if they share
/// one.
#[derive(Debug)]
pub struct EtcdLocal(Pool<Rc<Slot<Turns>>>);

impl Store for Etcd {
    type Local = EtcdLocal;
    type Client = EtcdClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn prepare(&self, schema: &Schema, _: Purpose) -> Result<(), StoreError> {
        // The table is the same in every phase of a run.
        let _ = self.members.table.set(schema.table.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::new("etcd", format!("no event loop: {error}")))?;
        let facts = runtime.block_on(self.ask_all())?;
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = facts;
        Ok(())
    }

    fn describe(&self) -> Vec<(String, String)> {
        let EtcdSettings { endpoints, serializable, merge, shared, tls, .. } = &self.members.settings;
        let mut facts = vec![
            ("address".to_owned(), endpoints.join(",")),
            ("read".to_owned(), if *serializable { "serializable" } else { "linearizable" }.to_owned()),
            ("update".to_owned(), if *merge { "merge" } else { "replace" }.to_owned()),
            ("connections".to_owned(), if *shared { "one an event loop" } else { "one a client" }.to_owned()),
        ];
        if tls.is_some() {
            facts.push(("tls".to_owned(), "true".to_owned()));
        }
        facts.extend(self.facts.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        facts
    }

    fn local(&self) -> Result<EtcdLocal, StoreError> {
        Ok(EtcdLocal(Pool::default()))
    }

    async fn connect(&self, local: &EtcdLocal, client: usize) -> Result<EtcdClient, StoreError> {
        let shared = usize::from(self.members.settings.shared);
        let open = async || Slot::connect(Turns::from(&self.members, client)).await;
        let slot = local.0.next(shared, open).await?;
        Ok(EtcdClient::new(Reconnecting::new(slot)))
    }
}
