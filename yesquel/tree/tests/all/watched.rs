//! Watched leaves at two servers in this process.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};
use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{Caller, EngineSettings, Now};
use yesquel_model::{ClusterMembership, ServerId};
use yesquel_server::{LOCAL_CONNECTION, ReplySink, Time};
use yesquel_transport::{HeartbeatSource, LostCall, ReplyHandler, SeeEvent, Transport, WatchEvent, block_on};
use yesquel_tree::{Tree, Trees};
use yesquel_wire::Notice;

/// Clock that advances at every reading.
struct Steps(u64);

impl Time for Steps {
    fn now(&mut self) -> Now {
        self.0 += 1;
        Now { wall_ms: 1_000_000 + self.0, uptime_ms: self.0 }
    }
}

/// Notices that the client has not taken.
#[derive(Clone, Default)]
struct Notices(Arc<Mutex<Vec<Notice>>>);

impl ReplySink for Notices {
    fn deliver(&self, _: Caller, _: &[u8]) {}

    fn notify(&self, _: u64, notice: &[u8]) {
        self.0.lock().unwrap().push(Notice::decode(notice).unwrap());
    }
}

/// Two servers whose nodes can be watched.
struct Watchable(Vec<(EmbeddedServer, Notices)>);

impl Watchable {
    fn new() -> Watchable {
        let server = |number| {
            let settings = EngineSettings { server: ServerId(number), ..EngineSettings::default() };
            let notices = Notices::default();
            let server = EmbeddedServer::in_memory_with(settings, Steps(0), notices.clone());
            server.core().join(ClusterMembership { home_group: ServerId(1), ..Default::default() });
            server.with_engine(|engine| engine.admit_watcher(LOCAL_CONNECTION));
            (server, notices)
        };
        Watchable([0, 1].map(server).into())
    }

    fn at(&self, server: ServerId) -> &(EmbeddedServer, Notices) {
        &self.0[usize::from(server.0)]
    }
}

impl Transport for Watchable {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        self.at(server).0.call(server, request)
    }

    fn send(&self, server: ServerId, request: &[u8], handler: ReplyHandler) {
        self.at(server).0.send(server, request, handler);
    }

    fn home_group(&self) -> ServerId {
        ServerId(1)
    }

    fn can_watch(&self, _: ServerId) -> bool {
        true
    }

    async fn ask_watching(&self, server: ServerId, request: &[u8], _: SeeEvent<'_>) -> Option<Vec<u8>> {
        self.call(server, request).await.ok()
    }

    fn take_notices(&self, server: ServerId, see: SeeEvent<'_>) -> bool {
        let notices = std::mem::take(&mut *self.at(server).1.0.lock().unwrap());
        notices.into_iter().for_each(|notice| see(WatchEvent::Changed(notice)));
        true
    }

    async fn wait_for_notices(&self, server: ServerId, see: SeeEvent<'_>) {
        self.take_notices(server, see);
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        self.0.iter().for_each(|(server, _)| server.set_heartbeat_source(Arc::clone(&heartbeats)));
    }
}

/// A transaction that reads at two servers takes the notices of both: those of one say nothing of
/// leaves at the other.
#[test]
fn notices_are_taken_at_the_server_of_the_leaf() {
    let servers = Watchable::new();
    let (reader, writer) = (Trees::new(Client::new(&servers, 1)), Trees::new(Client::new(&servers, 2)));
    let [elsewhere, watched, other] =
        [0, 1, 1].map(|server| block_on(writer.create(ServerId(server))).unwrap());
    let put = |tree: Tree, value: &[u8]| {
        let mut txn = writer.begin();
        txn.put(tree, b"key", value).unwrap();
        block_on(txn.commit()).unwrap();
    };
    [elsewhere, watched, other].into_iter().for_each(|tree| put(tree, b"old"));
    let uses: Vec<u64> = (0..4)
        .map(|_| {
            let mut txn = reader.begin();
            txn.use_watched(true);
            assert_eq!(block_on(txn.get(watched, b"key")).unwrap().as_deref(), Some(&b"old"[..]));
            txn.used_watched()
        })
        .collect();
    assert_eq!(uses, [0, 0, 1, 1], "it is watched from the second read");
    put(watched, b"new");
    let mut txn = reader.begin();
    txn.use_watched(false);
    for (tree, value) in [(other, b"old"), (elsewhere, b"old"), (watched, b"new")] {
        assert_eq!(block_on(txn.get(tree, b"key")).unwrap().as_deref(), Some(&value[..]), "{tree:?}");
    }
}
