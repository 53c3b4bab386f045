//! The clients of a run: a thread each, or tasks on event loops.

use crate::{
    client_loop::ClientLoop,
    run_barrier::{FinishGuard, LoopCommand, RunBarrier},
    timers::{LoopSleeper, LoopTimers, ThreadSleeper},
};
use serval_measure::recorder::{Recorder, RecorderHandle, RecorderOptions};
use serval_model::{Store, StoreError};
use serval_workload::{Place, Rng, Workload};
use std::{
    future::Future,
    pin::pin,
    rc::Rc,
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};
use tokio::task::LocalSet;

/// Connections that one event loop opens at a time: fewer than the usual backlog of a listening
/// socket, and enough to hide the round trips.
const CONNECTING_MAX: usize = 64;

/// Shared state of all clients, and how they are started.
pub(crate) struct ClientPool<S> {
    pub(crate) barrier: Arc<RunBarrier>,
    pub(crate) store: Arc<S>,
    pub(crate) workload: Arc<dyn Workload>,
    pub(crate) table: String,
    pub(crate) clients: usize,
    pub(crate) units: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) recorder: RecorderOptions,
    pub(crate) slack: u64,
}

impl<S: Store> ClientPool<S> {
    /// Returns the number of units of one client: an even share, one more for the first clients.
    fn share(&self, index: usize) -> Option<u64> {
        let (clients, index) = (self.clients as u64, index as u64);
        self.units.map(|units| units / clients + u64::from(index < units % clients))
    }

    fn place(&self, index: usize) -> Place {
        Place { index, count: self.clients, units: self.share(index), seed: self.seed }
    }

    pub(crate) async fn run_client<P: crate::timers::Sleeper>(
        &self,
        index: usize,
        client: &mut S::Client,
        recorder: &RecorderHandle,
        sleeper: &P,
    ) {
        let Some(control) = self.barrier.wait_for_start().await else { return };
        let place = self.place(index);
        let client_loop = ClientLoop {
            barrier: &self.barrier,
            control,
            status: &self.barrier.statuses[index],
            recorder,
            index,
            workload: self.workload.client(place, Rng::stream(self.seed, index as u64)),
            table: &self.table,
            units: place.units,
            lost: None,
        };
        if let Some(error) = client_loop.run(client, sleeper).await {
            self.barrier.lost(error);
        }
    }

    /// Starts a thread for each client. Returns their recorders.
    pub(crate) fn on_threads(self: &Arc<Self>) -> Result<Vec<Arc<Recorder>>, StoreError> {
        let (sender, recorders) = mpsc::channel();
        for index in 0..self.clients {
            let (pool, sender) = (Arc::clone(self), sender.clone());
            let spawned = thread::Builder::new().name(format!("client-{index}")).spawn(move || {
                let barrier = Arc::clone(&pool.barrier);
                barrier.register(thread::current());
                let _finish = FinishGuard { barrier: &barrier, client: index };
                // A handle is used by one thread only, so that thread creates it.
                let (recorder, handle) = Recorder::new(&pool.recorder);
                let _ = sender.send(recorder);
                drop(sender);
                block_on(async {
                    let connecting = async { pool.store.connect(&pool.store.local()?, index).await };
                    match connecting.await {
                        Ok(mut client) => {
                            barrier.connected(Ok(()));
                            let sleeper = ThreadSleeper::new(&barrier.stopping);
                            pool.run_client(index, &mut client, &handle, &sleeper).await;
                        }
                        Err(error) => barrier.connected(Err(error)),
                    }
                });
            });
            if let Err(error) = spawned {
                return Err(StoreError::new(
                    "client threads",
                    format!(
                        "the system gives no thread for client {index}: {error}. Use fewer clients (threadcount)"
                    ),
                ));
            }
        }
        drop(sender);
        Ok(recorders.into_iter().collect())
    }

    /// Starts `loops` event loops with an even share of the clients each. Returns the loops'
    /// recorders.
    pub(crate) fn on_event_loops(self: &Arc<Self>, loops: usize) -> Result<Vec<Arc<Recorder>>, StoreError> {
        let (sender, recorders) = mpsc::channel();
        for number in 0..loops {
            let (pool, sender) = (Arc::clone(self), sender.clone());
            let spawned = thread::Builder::new().name(format!("event-loop-{number}")).spawn(move || {
                let clients: Vec<usize> = (number..pool.clients).step_by(loops).collect();
                let _open = pool.barrier.open_loop();
                let (recorder, handle) = Recorder::new(&pool.recorder);
                let _ = sender.send(recorder);
                drop(sender);
                if let Err(error) = pool.event_loop(&clients, Rc::new(handle)) {
                    pool.barrier.connected(Err(error));
                }
            });
            if let Err(error) = spawned {
                return Err(StoreError::new("event loops", format!("the system gives no thread: {error}")));
            }
        }
        drop(sender);
        Ok(recorders.into_iter().collect())
    }

    fn event_loop(
        self: &Arc<Self>,
        clients: &[usize],
        recorder: Rc<RecorderHandle>,
    ) -> Result<(), StoreError> {
        let system = |error: std::io::Error| StoreError::new("event loop", error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
        let local = LocalSet::new();
        local.block_on(&runtime, async {
            let shared = Rc::new(self.store.local()?);
            let mut connected = Vec::with_capacity(clients.len());
            for group in clients.chunks(CONNECTING_MAX) {
                let tasks: Vec<_> = group
                    .iter()
                    .map(|&index| {
                        let (pool, shared) = (Arc::clone(self), Rc::clone(&shared));
                        tokio::task::spawn_local(
                            async move { (index, pool.store.connect(&shared, index).await) },
                        )
                    })
                    .collect();
                for task in tasks {
                    let Ok((index, result)) = task.await else {
                        return Err(StoreError::new("event loop", "a client panicked while connecting"));
                    };
                    connected.push((index, result?));
                    self.barrier.connected(Ok(()));
                }
            }
            if self.barrier.wait_for_start().await.is_none() {
                return Ok(());
            }
            self.run_tasks(connected, recorder).await.map_err(system)
        })
    }

    async fn run_tasks(
        self: &Arc<Self>,
        connected: Vec<(usize, S::Client)>,
        recorder: Rc<RecorderHandle>,
    ) -> std::io::Result<()> {
        let mut commands = self.barrier.commands();
        let timers = LoopTimers::new(connected.len(), self.slack)?;
        let driver = tokio::task::spawn_local(Rc::clone(&timers).drive());
        let mut tasks = Vec::with_capacity(connected.len());
        for (number, (index, mut client)) in connected.into_iter().enumerate() {
            let (pool, recorder) = (Arc::clone(self), Rc::clone(&recorder));
            let sleeper = LoopSleeper::new(Rc::clone(&timers), number);
            tasks.push(tokio::task::spawn_local(async move {
                let _finish = FinishGuard { barrier: &pool.barrier, client: index };
                pool.run_client(index, &mut client, &recorder, &sleeper).await;
            }));
        }
        drop(recorder);
        let all = async {
            for task in tasks {
                // The task's guard has noted a panic.
                let _ = task.await;
            }
        };
        let mut all = pin!(all);
        loop {
            tokio::select! {
                biased;
                () = &mut all => break,
                _ = commands.changed() => match *commands.borrow_and_update() {
                    LoopCommand::Run => {}
                    LoopCommand::Stop => timers.stop(),
                    LoopCommand::Abandon => break,
                },
            }
        }
        driver.abort();
        Ok(())
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread. The futures of blocking stores are ready when first polled, so
/// this is a plain call.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}
