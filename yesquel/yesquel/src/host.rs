//! A storage server in this process, with the thread that does for it what an
//! engine cannot do itself: lets time go on, and splits nodes.

use crate::{Error, identity::Identity};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{Settings, SplitPlan, Techniques};
use yesquel_fork as fork;
use yesquel_model::{NodeId, ServerId, TreeId};
use yesquel_server::{DataFolder, FolderError, Options, ReplySink, Time};
use yesquel_transport::block_on;
use yesquel_tree::{Splitter, Tree, TreeError, Trees};

/// How often an engine is told that time goes on.
const TICK: Duration = Duration::from_millis(50);

/// The tree of names, of every server.
pub(crate) fn catalog(server: ServerId) -> Tree {
    Tree::at(NodeId::root(TreeId::default(), server))
}

/// A number that no other client has.
pub(crate) fn client_number() -> u64 {
    let mut bytes = [0; 8];
    // The kernel refuses only before it has gathered chance, at boot; zero is
    // the number of nobody, so anything is better than it.
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    // The highest bit is that of connections beside a client's own.
    let number = u64::from_le_bytes(bytes) & !yesquel_wire::greeting::LANE;
    if filled == Ok(8) && number != 0 { number } else { u64::from(std::process::id()) << 32 | 1 }
}

/// A storage server in this process. Dropping it ends it in order.
#[derive(Debug)]
pub struct Host {
    embedded: EmbeddedServer,
    server: ServerId,
    pub(crate) identity: Identity,
    ending: Arc<AtomicBool>,
    helper: Option<JoinHandle<()>>,
    /// The process that has it, see [`fork`].
    generation: u32,
}

impl Host {
    /// In memory only. `others` takes the replies to requests that come by
    /// sockets.
    pub fn in_memory(
        settings: Settings,
        time: impl Time + 'static,
        others: impl ReplySink,
    ) -> Result<Host, Error> {
        Host::around(EmbeddedServer::in_memory_with(settings, time, others), settings)
    }

    /// On a data folder, which is made if it is not there.
    pub fn open(
        folder: DataFolder,
        settings: Settings,
        options: Options,
        time: impl Time + 'static,
        others: impl ReplySink,
    ) -> Result<Host, Error> {
        let opened = EmbeddedServer::open_with(folder, settings, options, time, others);
        Host::around(opened?, settings)
    }

    fn around(embedded: EmbeddedServer, settings: Settings) -> Result<Host, Error> {
        fork::watch();
        let (server, techniques) = (settings.server, settings.techniques);
        let ending = Arc::<AtomicBool>::default();
        let (served, ends) = (embedded.clone(), Arc::clone(&ending));
        let thread = thread::Builder::new().name("yesquel-helper".to_owned());
        let helper = thread.spawn(move || help(&served, server, techniques, &ends));
        let helper = helper
            .map_err(|error| FolderError::Io { path: "a thread for splits".into(), error })
            .map_err(Error::from)?;
        let host = Host {
            embedded,
            server,
            identity: Identity::fresh(),
            ending,
            helper: Some(helper),
            generation: fork::generation(),
        };
        let trees = Trees::new(Client::new(host.embedded.clone(), client_number()));
        block_on(trees.create_if_missing(catalog(server)))?;
        Ok(host)
    }

    /// Who it is.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// The way to it.
    pub fn transport(&self) -> &EmbeddedServer {
        &self.embedded
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // Threads do not go along with a fork: nobody would ever come.
            std::mem::forget(self.helper.take());
            return;
        }
        self.ending.store(true, Relaxed);
        self.embedded.core().wake_work();
        if let Some(helper) = self.helper.take() {
            // It has nothing to say that anybody could hear now.
            let _ = helper.join();
        }
    }
}

/// Splits what is too large, and ticks, until the end.
fn help(embedded: &EmbeddedServer, server: ServerId, techniques: Techniques, ending: &AtomicBool) {
    let trees = Trees::new(Client::new(embedded.clone(), client_number()));
    let splitter = if techniques.right_splits { Splitter::new(server) } else { Splitter::left(server) };
    while !ending.load(Relaxed) {
        let work = embedded.core().wait_for_work(TICK);
        embedded.tick();
        let delegated = techniques.delegated_splits;
        for node in work.full.into_iter().filter(|_| delegated) {
            let SplitPlan { parts, mostly_obsolete } = embedded.with_engine(|engine| engine.split_plan(node));
            let split = block_on(splitter.split_into(&trees, node, parts, mostly_obsolete));
            if told(node, split, ending) {
                return;
            }
        }
        for (node, key) in work.hot.into_iter().filter(|_| delegated) {
            let split = block_on(splitter.split_at(&trees, node, Some(&key)));
            if told(node, split, ending) {
                return;
            }
        }
        for node in work.empty {
            if told(node, block_on(splitter.remove(&trees, node)), ending) {
                return;
            }
        }
    }
}

/// Tells of a failure; whether this is the end.
fn told(node: NodeId, done: Result<bool, TreeError>, ending: &AtomicBool) -> bool {
    let ends = ending.load(Relaxed);
    if let (Err(error), false) = (done, ends) {
        // It will be found again.
        tracing::warn!(%node, %error, "a node was neither split nor taken away");
    }
    ends
}
