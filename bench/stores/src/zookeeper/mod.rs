//! ZooKeeper, in YCSB's layout: a node `/KEY` whose data is a JSON object of
//! strings.
//!
//! | verb | requests of ZooKeeper's protocol |
//! |---|---|
//! | read | getData; the client selects the fields |
//! | update | getData, then setData for the version that was read; repeated if another client wrote in between |
//! | insert | create |
//! | insert of a batch | multi with the creates, up to the servers' maximum size |
//! | scan | not implemented: ZooKeeper lists all children of a node, unordered |
//! | delete | delete |

mod client;
mod link;
mod node_name;
mod settings;

pub use client::ZookeeperClient;

use crate::{StoreInfo, optional, reconnecting::Reconnecting};
use client::ZookeeperConnector;
use serval_model::{
    Execution, OperationKind, OperationKinds, Purpose, Schema, Store, StoreError,
    properties::{Faults, Properties, PropertyTable},
};
use settings::ZookeeperSettings;
use std::sync::{Arc, Mutex, PoisonError};

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: optional::ZOOKEEPER.name,
    aliases: optional::ZOOKEEPER.aliases,
    summary: optional::ZOOKEEPER.summary,
    details: "A record is a node /KEY whose data is a JSON object of strings, as in YCSB's binding: \
              either tool reads what the other loaded. The table is not used; end zookeeper.connectString \
              with a path (/benchmark), which a load creates if it is missing, to keep records apart and \
              to remove them with one deleteall. An insert of an existing record is an ERROR and leaves \
              it unchanged (YCSB returns OK). An update reads the record and writes it back for the \
              version that it read, so that no update is lost (YCSB's overwrites concurrent changes), and \
              is NOT_FOUND if there is no record. There are no scans. Values must be UTF-8.\n\
              A key is the name of one node: not empty, not '.' or '..', no '/' except one at its \
              beginning, no control characters, and above U+D7FF only U+F900 to U+FFEF; others are \
              BAD_REQUEST, and so are records larger than the servers accept (zookeeper.maxbuffer). A \
              batch of inserts is one multi: all or nothing, unless it is too large for one request.\n\
              Asynchronous: clients run on event loops, each with a session of its own; a server accepts \
              60 sessions from one host unless its maxClientCnxns says more. The driver waits for the \
              network in a thread of its own, so that each answer wakes two threads. A session that loses \
              its server is given up, and the next operation opens a new one. Servers of version 3.5 or \
              later. No Kerberos.",
    time_series: false,
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable { heading: "zookeeper", properties: settings::PROPERTIES },
};

/// One ZooKeeper or an ensemble.
#[derive(Debug)]
pub struct Zookeeper {
    settings: Arc<ZookeeperSettings>,
    /// Facts about a server, from the preparation of the store.
    facts: Mutex<Vec<(String, String)>>,
}

impl Zookeeper {
    /// Reads the properties. Does not connect.
    pub fn open(properties: &Properties) -> Result<Zookeeper, Faults> {
        Ok(Zookeeper { settings: Arc::new(ZookeeperSettings::from(properties)?), facts: Mutex::default() })
    }
}

impl Store for Zookeeper {
    type Local = ();
    type Client = ZookeeperClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn capabilities(&self) -> OperationKinds {
        OperationKinds::ALL.without(OperationKind::Scan)
    }

    fn prepare(&self, _: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let settings = &self.settings;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| settings.error(format!("no event loop: {error}")))?;
        let facts = runtime.block_on(async {
            link::reach(settings).await?;
            let session = link::open(settings).await?;
            link::look_at_root(settings, &session, purpose).await?;
            link::close(settings, session).await;
            Ok::<_, StoreError>(link::facts(settings).await)
        })?;
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = facts;
        Ok(())
    }

    fn describe(&self) -> Vec<(String, String)> {
        let mut facts = self.settings.describe();
        facts.extend(self.facts.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        facts
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), _: usize) -> Result<ZookeeperClient, StoreError> {
        let opener = ZookeeperConnector(Arc::clone(&self.settings));
        Ok(ZookeeperClient::new(Reconnecting::connect(opener).await?))
    }
}
