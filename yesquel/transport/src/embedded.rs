//! An engine in this process: the calling thread takes its steps.

use crate::{Lost, Transport};
use std::{
    collections::HashMap,
    fmt,
    future::{Future, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::{Instant, SystemTime},
};
use yesquel_engine::{Asker, Effects, Engine, Now};
use yesquel_model::ServerId;

/// Where the time comes from.
pub trait Time: Send {
    /// What it is.
    fn now(&mut self) -> Now;
}

/// The system's clocks.
#[derive(Debug, Clone, Copy)]
pub struct WallTime {
    start: Instant,
}

impl Default for WallTime {
    fn default() -> Self {
        WallTime { start: Instant::now() }
    }
}

impl Time for WallTime {
    fn now(&mut self) -> Now {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { wall_ms: wall.as_millis() as u64, uptime_ms: self.start.elapsed().as_millis() as u64 }
    }
}

/// A request that has no reply yet.
#[derive(Default)]
struct Pending {
    waker: Option<Waker>,
    reply: Option<Vec<u8>>,
}

struct Inner {
    engine: Engine,
    effects: Effects,
    time: Box<dyn Time>,
    pending: HashMap<u64, Pending>,
    next_request: u64,
    ticked_at_ms: u64,
}

/// Milliseconds between an engine's ticks.
const TICK_MS: u64 = 50;

/// An engine in this process, in memory only. Clones are the same one.
#[derive(Clone)]
pub struct Embedded {
    server: ServerId,
    inner: Arc<Mutex<Inner>>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Embedded {
    /// Around an engine, which is that of this server.
    pub fn new(server: ServerId, engine: Engine, time: impl Time + 'static) -> Embedded {
        let inner = Inner {
            engine,
            effects: Effects::default(),
            time: Box::new(time),
            pending: HashMap::new(),
            next_request: 0,
            ticked_at_ms: 0,
        };
        Embedded { server, inner: Arc::new(Mutex::new(inner)) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the engine itself.
    pub fn with_engine<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> T {
        act(&mut self.lock().engine)
    }

    /// Lets the engine know that time has gone on, as requests do by
    /// themselves.
    pub fn tick(&self) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let now = inner.time.now();
        inner.tick(now);
        inner.deliver(None);
    }
}

impl Inner {
    fn tick(&mut self, now: Now) {
        self.ticked_at_ms = now.uptime_ms;
        self.engine.tick(now, &mut self.effects);
    }

    /// Hands out the replies; that to `own` is returned.
    fn deliver(&mut self, own: Option<u64>) -> Option<Vec<u8>> {
        let mut found = None;
        for reply in &self.effects.replies {
            let bytes = &self.effects.bytes[reply.bytes.clone()];
            if own == Some(reply.asker.request) {
                found = Some(bytes.to_vec());
            } else if let Some(pending) = self.pending.get_mut(&reply.asker.request) {
                pending.reply = Some(bytes.to_vec());
                pending.waker.take().into_iter().for_each(Waker::wake);
            }
        }
        self.effects.clear();
        found
    }
}

/// Takes a place among the pending away with whoever no longer waits.
struct Place<'a> {
    of: &'a Embedded,
    request: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.of.lock().pending.remove(&self.request);
    }
}

impl Transport for Embedded {
    fn call(&self, server: ServerId, request: &[u8]) -> impl Future<Output = Result<Vec<u8>, Lost>> {
        let lost = move |why: String| Lost { server, why };
        let begun = if server == self.server {
            let mut inner = self.lock();
            let inner = &mut *inner;
            let now = inner.time.now();
            if now.uptime_ms >= inner.ticked_at_ms + TICK_MS {
                inner.tick(now);
            }
            inner.next_request += 1;
            let asker = Asker { connection: 0, request: inner.next_request };
            match inner.engine.handle(now, asker, request, &mut inner.effects) {
                Ok(()) => {
                    let reply = inner.deliver(Some(asker.request));
                    if reply.is_none() {
                        inner.pending.insert(asker.request, Pending::default());
                    }
                    Ok((asker.request, reply))
                }
                Err(malformed) => Err(lost(malformed.to_string())),
            }
        } else {
            Err(lost("there is no such server".to_owned()))
        };
        async move {
            let (request, reply) = begun?;
            if let Some(reply) = reply {
                return Ok(reply);
            }
            let place = Place { of: self, request };
            poll_fn(|context| {
                let mut inner = self.lock();
                let Some(pending) = inner.pending.get_mut(&place.request) else {
                    return Poll::Ready(Err(lost("the request is gone".to_owned())));
                };
                match pending.reply.take() {
                    Some(reply) => Poll::Ready(Ok(reply)),
                    None => {
                        pending.waker = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            })
            .await
        }
    }
}
