//! A server in this process: the calling thread steps its engine.

mod machine;
mod numbers;

pub use machine::EmbeddedMachine;

use numbers::unique;
use std::{
    collections::HashMap,
    fmt,
    future::{Future, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Poll, Waker},
};
use yesquel_engine::{Caller, Engine, EngineSettings};
use yesquel_fork as fork;
use yesquel_model::{ServerId, Timestamp};
use yesquel_server::{Core, CoreError, DataFolder, LOCAL_CONNECTION, LogOptions, ReplySink, Time};
use yesquel_transport::{
    HeartbeatSource, LossCause, LostCall, OPENED_BEFORE_FORK, ReplyHandler, Transport, take_cancelled,
};

/// A call without an immediate reply, or whose late reply was not taken yet.
#[derive(Default)]
struct PendingCall {
    waker: Option<Waker>,
    reply: Option<Vec<u8>>,
    /// Takes the reply if no caller waits for it.
    handler: Option<ReplyHandler>,
}

/// Pending calls by their numbers.
#[derive(Clone, Default)]
struct PendingCalls(Arc<Mutex<HashMap<u64, PendingCall>>>);

impl PendingCalls {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, PendingCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Delivers replies to the pending calls, and those of sockets to their sink.
struct ReplyRouter<D> {
    pending: PendingCalls,
    others: D,
}

impl<D: ReplySink> ReplySink for ReplyRouter<D> {
    fn deliver(&self, caller: Caller, reply: &[u8]) {
        if caller.connection != LOCAL_CONNECTION {
            return self.others.deliver(caller, reply);
        }
        let mut pending = self.pending.lock();
        // The caller may have cancelled the call.
        let Some(call) = pending.get_mut(&caller.request) else { return };
        match call.handler.take() {
            Some(handler) => {
                pending.remove(&caller.request);
                drop(pending);
                handler(Ok(reply));
            }
            None => {
                call.reply = Some(reply.to_vec());
                call.waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }

    fn notify(&self, connection: u64, notice: &[u8]) {
        self.others.notify(connection, notice);
    }

    fn reply_held(&self, caller: Caller, bytes: usize) {
        if caller.connection != LOCAL_CONNECTION {
            self.others.reply_held(caller, bytes);
        }
    }

    fn reply_released(&self, caller: Caller, bytes: usize) {
        if caller.connection != LOCAL_CONNECTION {
            self.others.reply_released(caller, bytes);
        }
    }

    fn flush(&self) {
        self.others.flush();
    }
}

/// The sink of a server without sockets.
struct NoSockets;

impl ReplySink for NoSockets {
    fn deliver(&self, _: Caller, _: &[u8]) {}
}

/// A server in this process. Clones share it.
#[derive(Clone)]
pub struct EmbeddedServer {
    server: ServerId,
    core: Arc<Core>,
    pending: PendingCalls,
    clients: Arc<Mutex<Vec<LocalClient>>>,
    /// The process that made it, see [`fork`].
    generation: u32,
}

/// A client in this process.
struct LocalClient {
    /// The number under which it holds snapshots.
    connection: u64,
    client: u64,
    heartbeats: Weak<dyn HeartbeatSource>,
}

impl fmt::Debug for EmbeddedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("server", &self.server).finish_non_exhaustive()
    }
}

impl EmbeddedServer {
    fn around(server: ServerId, core: Core, pending: PendingCalls) -> EmbeddedServer {
        EmbeddedServer {
            server,
            core: Arc::new(core),
            pending,
            clients: Arc::default(),
            generation: fork::generation(),
        }
    }

    /// Creates a server in memory.
    pub fn in_memory(settings: EngineSettings, time: impl Time + 'static) -> EmbeddedServer {
        EmbeddedServer::in_memory_with(settings, time, NoSockets)
    }

    /// Creates a server in memory; `others` takes the replies to requests from sockets.
    pub fn in_memory_with(
        settings: EngineSettings,
        time: impl Time + 'static,
        others: impl ReplySink + Send + Sync + 'static,
    ) -> EmbeddedServer {
        let pending = PendingCalls::default();
        let post = ReplyRouter { pending: pending.clone(), others };
        EmbeddedServer::around(settings.server, Core::in_memory(settings, time, post), pending)
    }

    /// Opens a server on a data folder.
    pub fn open(
        folder: DataFolder,
        settings: EngineSettings,
        options: LogOptions,
        time: impl Time + Clone + 'static,
    ) -> Result<EmbeddedServer, CoreError> {
        EmbeddedServer::open_with(folder, settings, options, time, NoSockets)
    }

    /// Opens the server of the first group of a data folder; `others` takes the replies to requests from sockets.
    pub fn open_with(
        folder: DataFolder,
        settings: EngineSettings,
        options: LogOptions,
        time: impl Time + Clone + 'static,
        others: impl ReplySink + Send + Sync + 'static,
    ) -> Result<EmbeddedServer, CoreError> {
        let pending = PendingCalls::default();
        let post = ReplyRouter { pending: pending.clone(), others };
        let core = Core::open(folder, settings, options, time, post)?;
        Ok(EmbeddedServer::around(settings.server, core, pending))
    }

    /// The server's number.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// The server's core, for sockets.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Accesses the engine without changing it.
    pub fn with_engine<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> T {
        self.core.with_engine(act)
    }

    /// Advances time, also without requests. Call it about every 50 ms.
    pub fn tick(&self) {
        {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            let mut session = self.core.session();
            clients.retain(|LocalClient { connection, client, heartbeats }| match heartbeats.upgrade() {
                Some(heartbeats) => {
                    session.on_heartbeat(*connection, *client, &heartbeats.heartbeat());
                    true
                }
                None => {
                    session.disconnected(*connection);
                    false
                }
            });
        }
        self.core.tick();
    }

    /// Waits for a late reply.
    async fn wait(&self, seat: CallGuard<'_>) -> Result<Vec<u8>, LostCall> {
        poll_fn(|context| {
            // Taken in any case: a cancellation concerns this call only.
            let cancelled = take_cancelled();
            let mut pending = self.pending.lock();
            let Some(call) = pending.get_mut(&seat.request) else {
                return Poll::Ready(Err(lost("the request is gone".to_owned())));
            };
            if let Some(reply) = call.reply.take() {
                return Poll::Ready(Ok(reply));
            }
            if cancelled {
                return Poll::Ready(Err(LostCall::cancelled(HERE.to_owned())));
            }
            call.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// The place in error messages.
const HERE: &str = "the server of this process";

fn lost(why: String) -> LostCall {
    LostCall { place: HERE.to_owned(), cause: LossCause::Other, why }
}

/// Removes a pending call when its caller stops waiting.
struct CallGuard<'a> {
    pending: &'a PendingCalls,
    request: u64,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.pending.lock().remove(&self.request);
    }
}

impl Transport for EmbeddedServer {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        let mut reply = Vec::new();
        let (mut seat, mut begun) = (None, Ok(true));
        if self.generation != fork::generation() {
            begun = Err(lost(OPENED_BEFORE_FORK.to_owned()));
        } else if server == self.server {
            let number = unique();
            let caller = Caller { connection: LOCAL_CONNECTION, request: number };
            // Under the core's lock, so that the reply cannot arrive before the call is registered.
            let later = || {
                self.pending.lock().insert(number, PendingCall::default());
                seat = Some(CallGuard { pending: &self.pending, request: number });
            };
            let called = self.core.call(caller, request, &mut reply, later);
            begun = called.map_err(|malformed| lost(malformed.to_string()));
        } else {
            begun = begun.and_then(|_| Err(lost("there is no such server".to_owned())));
        }
        async move {
            begun?;
            match seat {
                None => Ok(reply),
                Some(seat) => self.wait(seat).await,
            }
        }
    }

    fn send(&self, server: ServerId, request: &[u8], handler: ReplyHandler) {
        if self.generation != fork::generation() {
            return handler(Err(lost(OPENED_BEFORE_FORK.to_owned())));
        } else if server != self.server {
            return handler(Err(lost("there is no such server".to_owned())));
        }
        let (number, mut reply) = (unique(), Vec::new());
        let caller = Caller { connection: LOCAL_CONNECTION, request: number };
        self.pending.lock().insert(number, PendingCall { handler: Some(handler), ..PendingCall::default() });
        let called = self.core.call(caller, request, &mut reply, || ());
        if matches!(called, Ok(false)) {
            return;
        }
        let call = self.pending.lock().remove(&number);
        if let Some(handler) = call.and_then(|call| call.handler) {
            handler(called.map(|_| reply.as_slice()).map_err(|malformed| lost(malformed.to_string())));
        }
    }

    fn home_group(&self) -> ServerId {
        self.core.membership().home_group
    }

    fn clock(&self) -> Timestamp {
        // A server that does not serve yet gives out no time: the first reply names it.
        self.core.session().clock().unwrap_or_default()
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // From the upper end, which connections do not reach.
        let connection = u64::MAX - unique();
        let client = heartbeats.client();
        clients.push(LocalClient { connection, client, heartbeats: Arc::downgrade(&heartbeats) });
    }
}
