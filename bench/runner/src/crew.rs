//! Where clients run: a thread each, or as tasks on event loops.

use crate::{
    client::Seat,
    stage::{Finish, Order, Stage},
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

/// Connections that one event loop opens at a time: fewer than a listening
/// socket's usual backlog, more than round trips can hide.
const CONNECTING_MAX: usize = 64;

/// What every client needs.
pub(crate) struct Crew<S> {
    pub(crate) stage: Arc<Stage>,
    pub(crate) store: Arc<S>,
    pub(crate) workload: Arc<dyn Workload>,
    pub(crate) table: String,
    pub(crate) clients: usize,
    pub(crate) units: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) recorder: RecorderOptions,
    pub(crate) slack: u64,
}

impl<S: Store> Crew<S> {
    /// Units of one client: an even share, the first ones one more.
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
        let Some(course) = self.stage.wait_for_start().await else { return };
        let place = self.place(index);
        let seat = Seat {
            stage: &self.stage,
            course,
            slot: &self.stage.slots[index],
            recorder,
            index,
            workload: self.workload.client(place, Rng::stream(self.seed, index as u64)),
            table: &self.table,
            units: place.units,
            lost: None,
        };
        if let Some(error) = seat.run(client, sleeper).await {
            self.stage.lost(error);
        }
    }

    /// Starts a thread a client. Returns their recorders.
    pub(crate) fn on_threads(self: &Arc<Self>) -> Result<Vec<Arc<Recorder>>, StoreError> {
        let (sender, recorders) = mpsc::channel();
        for index in 0..self.clients {
            let (crew, sender) = (Arc::clone(self), sender.clone());
            let spawned = thread::Builder::new().name(format!("client-{index}")).spawn(move || {
                let stage = Arc::clone(&crew.stage);
                stage.register(thread::current());
                let _finish = Finish { stage: &stage, client: index };
                // A handle stays on its thread, so it is made there.
                let (recorder, handle) = Recorder::new(&crew.recorder);
                let _ = sender.send(recorder);
                drop(sender);
                block_on(async {
                    let connecting = async { crew.store.connect(&crew.store.local()?, index).await };
                    match connecting.await {
                        Ok(mut client) => {
                            stage.connected(Ok(()));
                            let sleeper = ThreadSleeper::new(&stage.stopping);
                            crew.run_client(index, &mut client, &handle, &sleeper).await;
                        }
                        Err(error) => stage.connected(Err(error)),
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

    /// Starts `loops` event loops, which share the clients. Returns their recorders.
    pub(crate) fn on_event_loops(self: &Arc<Self>, loops: usize) -> Result<Vec<Arc<Recorder>>, StoreError> {
        let (sender, recorders) = mpsc::channel();
        for number in 0..loops {
            let (crew, sender) = (Arc::clone(self), sender.clone());
            let spawned = thread::Builder::new().name(format!("event-loop-{number}")).spawn(move || {
                let clients: Vec<usize> = (number..crew.clients).step_by(loops).collect();
                let _open = crew.stage.open_loop();
                let (recorder, handle) = Recorder::new(&crew.recorder);
                let _ = sender.send(recorder);
                drop(sender);
                if let Err(error) = crew.event_loop(&clients, Rc::new(handle)) {
                    crew.stage.connected(Err(error));
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
                        let (crew, shared) = (Arc::clone(self), Rc::clone(&shared));
                        tokio::task::spawn_local(
                            async move { (index, crew.store.connect(&shared, index).await) },
                        )
                    })
                    .collect();
                for task in tasks {
                    let Ok((index, result)) = task.await else {
                        return Err(StoreError::new("event loop", "a client panicked while connecting"));
                    };
                    connected.push((index, result?));
                    self.stage.connected(Ok(()));
                }
            }
            if self.stage.wait_for_start().await.is_none() {
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
        let mut orders = self.stage.orders();
        let timers = LoopTimers::new(connected.len(), self.slack)?;
        let driver = tokio::task::spawn_local(Rc::clone(&timers).drive());
        let mut tasks = Vec::with_capacity(connected.len());
        for (seat, (index, mut client)) in connected.into_iter().enumerate() {
            let (crew, recorder) = (Arc::clone(self), Rc::clone(&recorder));
            let sleeper = LoopSleeper::new(Rc::clone(&timers), seat);
            tasks.push(tokio::task::spawn_local(async move {
                let _finish = Finish { stage: &crew.stage, client: index };
                crew.run_client(index, &mut client, &recorder, &sleeper).await;
            }));
        }
        drop(recorder);
        let all = async {
            for task in tasks {
                // A panic has been noted by the task's guard.
                let _ = task.await;
            }
        };
        let mut all = pin!(all);
        loop {
            tokio::select! {
                biased;
                () = &mut all => break,
                _ = orders.changed() => match *orders.borrow_and_update() {
                    Order::Run => {}
                    Order::Stop => timers.stop(),
                    Order::Abandon => break,
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

/// Runs a future on this thread. Those of blocking stores are ready when
/// first polled, so that this is a plain call.
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
