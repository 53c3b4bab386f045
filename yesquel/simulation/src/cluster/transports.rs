//! The transports of clients: of processes, and of servers for their own work.

use super::{
    SharedCluster,
    network::{OWN, lost},
    notices::{ClientEnd, ProcessWatches, ServerWatch},
    pause, peer_of_server,
};
use crate::{
    ProtocolPath,
    simulated_transport::{SimulatedCall, SimulatedTransport},
};
use std::{
    future::{Future, pending, poll_fn},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use yesquel_engine::Caller;
use yesquel_model::{ClusterId, ClusterMembership, ServerId, Timestamp};
use yesquel_transport::{
    Attempt, HeartbeatSource, LostCall, ReplyHandler, SeeEvent, Transport, WatchEvent, WatchLink,
    WatchRequest,
};
use yesquel_wire::{Correction, Reply, frame::Inbox};

/// Pause after an attempt to connect for notices. That of sockets is longer than most runs.
const AGAIN_AFTER: Duration = Duration::from_millis(300);
/// How long a reply is waited for on a connection for notices.
const WATCH_WAIT_US: u64 = 1_000_000;

/// The transport of a client process.
#[derive(Clone)]
pub struct Network {
    cluster: SharedCluster,
    peer: usize,
    watches: Rc<ProcessWatches>,
}

/// The transport of a server's own client.
#[derive(Clone)]
pub struct LocalTransport {
    pub(crate) cluster: SharedCluster,
    pub(crate) server: usize,
}

async fn wait(cluster: SharedCluster, server: ServerId, number: u64) -> Result<Vec<u8>, LostCall> {
    poll_fn(move |context| {
        let mut cluster = cluster.borrow_mut();
        let Some(call) = cluster.calls.get_mut(&number) else { panic!("call {number} is not known") };
        match call.reply.take() {
            Some(reply) => {
                cluster.calls.remove(&number);
                Poll::Ready(reply.map_err(|()| lost(server)))
            }
            None => {
                call.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

impl ServerWatch {
    fn new() -> ServerWatch {
        let link = WatchLink::new(AGAIN_AFTER);
        ServerWatch { link, pipe: None, is_asking: false, waiting: Vec::new() }
    }
}

impl Network {
    pub(crate) fn new(cluster: &SharedCluster, peer: usize) -> Network {
        Network { cluster: Rc::clone(cluster), peer, watches: Rc::default() }
    }

    /// The cluster, and the group that has its catalog and counters.
    pub fn membership(&self) -> ClusterMembership {
        let home_group = self.cluster.borrow().home_group();
        ClusterMembership { cluster: ClusterId::from_random([1; 16]), home_group }
    }

    fn with_watch<T>(&self, server: ServerId, act: impl FnOnce(&mut ServerWatch) -> T) -> T {
        let mut watches = self.watches.borrow_mut();
        act(watches.entry(usize::from(server.0)).or_insert_with(ServerWatch::new))
    }

    /// Counts what a client learns about the nodes that it watches.
    fn counting<'a>(&'a self, see: SeeEvent<'a>) -> impl FnMut(WatchEvent) + 'a {
        move |event| {
            let path = match event {
                WatchEvent::Changed(_) => ProtocolPath::NoticesTaken,
                WatchEvent::Lost => ProtocolPath::WatchesLost,
            };
            self.cluster.borrow_mut().count_path(path);
            see(event);
        }
    }

    /// Sends a question on the connection for notices. Returns whether a reply may come; `None`: the
    /// process dies before it is sent.
    fn send_watching(&self, server: ServerId, request: &[u8], see: SeeEvent<'_>) -> Option<bool> {
        let at = usize::from(server.0);
        let (_, destination) = self.cluster.borrow_mut().route(self.peer, at);
        let question = WatchRequest { destination: destination.encode(), request };
        let pipe = self.with_watch(server, |watch| {
            let ServerWatch { link, pipe, is_asking, .. } = watch;
            if *is_asking {
                return None;
            }
            let is_alive = || self.cluster.borrow().is_connected(self.peer, at);
            let connect = || {
                let made = self.cluster.borrow_mut().connect_watcher(self.peer, at)?;
                *pipe = Some(Rc::clone(&made));
                Some((ClientEnd::new(made), Inbox::default()))
            };
            *is_asking = link.ask(self.transport_uptime(), is_alive, connect, &question, see);
            if *is_asking { pipe.clone() } else { None }
        });
        let Some(pipe) = pipe else { return Some(false) };
        let mut cluster = self.cluster.borrow_mut();
        cluster.note_request(server, request);
        if !cluster.count_call(self.peer) {
            return None;
        }
        cluster.send_watch_request(&pipe);
        Some(true)
    }

    /// Polls for the reply to a question on the connection for notices.
    fn poll_watching(
        &self,
        context: &Context<'_>,
        server: ServerId,
        until_us: u64,
        see: SeeEvent<'_>,
    ) -> Poll<Option<Vec<u8>>> {
        let is_over = self.cluster.borrow().now_us() >= until_us;
        let (reply, waiting) = self.with_watch(server, |watch| {
            let ServerWatch { link, pipe, is_asking, waiting } = watch;
            link.receive(|channel, inbox| channel.take(inbox), see);
            let mut reply = link.take(see);
            if reply.is_pending() && is_over {
                link.lost(see);
                reply = Poll::Ready(None);
            }
            if reply.is_pending() {
                pipe.iter().for_each(|pipe| pipe.borrow_mut().reader = Some(context.waker().clone()));
                return (reply, Vec::new());
            }
            *is_asking = false;
            (reply, std::mem::take(waiting))
        });
        waiting.into_iter().for_each(Waker::wake);
        if let Poll::Ready(Some(reply)) = &reply
            && let Ok(Reply::Answers { snapshot, .. }) = Reply::decode(reply)
        {
            self.cluster.borrow_mut().note_given(snapshot);
        }
        reply
    }

    fn transport_uptime(&self) -> Duration {
        Duration::from_micros(self.cluster.borrow().now_us())
    }
}

impl Transport for Network {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        let number = self.cluster.borrow_mut().call(self.peer, usize::from(server.0), request.to_vec(), None);
        wait(Rc::clone(&self.cluster), server, number)
    }

    fn send(&self, server: ServerId, request: &[u8], handler: ReplyHandler) {
        let mut cluster = self.cluster.borrow_mut();
        let number = cluster.call(self.peer, usize::from(server.0), request.to_vec(), None);
        if let Some(call) = cluster.calls.get_mut(&number) {
            call.handler = Some(handler);
        }
    }

    fn correct(&self, group: ServerId, correction: &Correction<'_>, attempt: Attempt) -> bool {
        self.cluster.borrow_mut().correct(self.peer, group, correction, attempt)
    }

    async fn pause(&self, time: Duration) {
        pause(&self.cluster, time.as_micros() as u64).await;
    }

    fn home_group(&self) -> ServerId {
        self.cluster.borrow().home_group()
    }

    fn can_watch(&self, server: ServerId) -> bool {
        self.cluster.borrow().is_watchable(usize::from(server.0))
    }

    async fn ask_watching(&self, server: ServerId, request: &[u8], see: SeeEvent<'_>) -> Option<Vec<u8>> {
        let mut see = self.counting(see);
        match self.send_watching(server, request, &mut see) {
            Some(true) => {}
            Some(false) => return None,
            None => pending().await,
        }
        let (mut until_us, mut is_first) = (WATCH_WAIT_US, true);
        poll_fn(|context| {
            if std::mem::take(&mut is_first) {
                let mut cluster = self.cluster.borrow_mut();
                cluster.after(until_us, super::SimulationEvent::Wake(context.waker().clone()));
                until_us += cluster.now_us();
            }
            self.poll_watching(context, server, until_us, &mut see)
        })
        .await
    }

    fn take_notices(&self, server: ServerId, see: SeeEvent<'_>) -> bool {
        let mut see = self.counting(see);
        self.with_watch(server, |watch| {
            if !watch.is_asking {
                watch.link.poll(&mut see);
            }
            !watch.is_asking
        })
    }

    async fn wait_for_notices(&self, server: ServerId, see: SeeEvent<'_>) {
        let mut see = self.counting(see);
        poll_fn(|context| {
            self.with_watch(server, |watch| {
                if watch.is_asking {
                    watch.waiting.push(context.waker().clone());
                    return Poll::Pending;
                }
                watch.link.poll(&mut see);
                Poll::Ready(())
            })
        })
        .await;
    }

    fn end_watches(&self, server: ServerId, see: SeeEvent<'_>) {
        self.with_watch(server, |watch| {
            watch.link.end(see);
            // A task that waits for a reply finds that none will come.
            let reader = watch.pipe.take().and_then(|pipe| pipe.borrow_mut().reader.take());
            reader.into_iter().for_each(Waker::wake);
        });
    }

    fn uptime(&self) -> Duration {
        self.transport_uptime()
    }

    fn clock(&self) -> Timestamp {
        let mut cluster = self.cluster.borrow_mut();
        let servers = cluster.server_count();
        (0..servers).map(|server| Timestamp::from_ms(cluster.clock(server).wall_ms)).max().unwrap_or_default()
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        let process = &mut self.cluster.borrow_mut().processes[self.peer];
        process.heartbeats = Some(Arc::downgrade(&heartbeats));
        process.watches = Some(Rc::downgrade(&self.watches));
    }
}

impl SimulatedTransport for Network {
    fn call(self: Rc<Self>, group: ServerId, request: Vec<u8>) -> SimulatedCall<Result<Vec<u8>, LostCall>> {
        Box::pin(async move { Transport::call(&*self, group, &request).await })
    }

    fn send(&self, group: ServerId, request: &[u8], handler: ReplyHandler) {
        Transport::send(self, group, request, handler);
    }

    fn correct(&self, group: ServerId, correction: &Correction<'_>, attempt: Attempt) -> bool {
        Transport::correct(self, group, correction, attempt)
    }

    fn pause(self: Rc<Self>, time: Duration) -> SimulatedCall<()> {
        Box::pin(async move { Transport::pause(&*self, time).await })
    }

    fn membership(&self) -> ClusterMembership {
        Network::membership(self)
    }

    fn uptime(&self) -> Duration {
        self.transport_uptime()
    }

    fn clock(&self) -> Timestamp {
        Transport::clock(self)
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        Transport::set_heartbeat_source(self, heartbeats);
    }
}

impl Transport for LocalTransport {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        let mut cluster = self.cluster.borrow_mut();
        let number = if usize::from(server.0) == self.server {
            let number = cluster.new_call(None);
            cluster.handle(self.server, Caller { connection: OWN, request: number }, request);
            number
        } else {
            cluster.call(peer_of_server(self.server), usize::from(server.0), request.to_vec(), None)
        };
        wait(Rc::clone(&self.cluster), server, number)
    }

    fn send(&self, server: ServerId, request: &[u8], handler: ReplyHandler) {
        let mut cluster = self.cluster.borrow_mut();
        let is_own = usize::from(server.0) == self.server;
        let number = if is_own {
            cluster.new_call(None)
        } else {
            cluster.call(peer_of_server(self.server), usize::from(server.0), request.to_vec(), None)
        };
        if let Some(call) = cluster.calls.get_mut(&number) {
            call.handler = Some(handler);
        }
        if is_own {
            cluster.handle(self.server, Caller { connection: OWN, request: number }, request);
        }
    }

    fn correct(&self, group: ServerId, correction: &Correction<'_>, attempt: Attempt) -> bool {
        self.cluster.borrow_mut().correct(peer_of_server(self.server), group, correction, attempt)
    }

    async fn pause(&self, time: Duration) {
        pause(&self.cluster, time.as_micros() as u64).await;
    }

    fn home_group(&self) -> ServerId {
        self.cluster.borrow().home_group()
    }

    fn uptime(&self) -> Duration {
        Duration::from_micros(self.cluster.borrow().now_us())
    }

    fn clock(&self) -> Timestamp {
        Timestamp::from_ms(self.cluster.borrow_mut().clock(self.server).wall_ms)
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        if let Some(running) = &mut self.cluster.borrow_mut().servers[self.server].running {
            running.heartbeats = Some(Arc::downgrade(&heartbeats));
        }
    }
}
