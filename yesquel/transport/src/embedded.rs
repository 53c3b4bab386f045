//! A server in this process: the calling thread takes its steps.

use crate::{Lost, Transport};
use std::{
    collections::HashMap,
    fmt,
    future::{Future, poll_fn},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Poll, Waker},
};
use yesquel_engine::{Asker, Engine, Settings};
use yesquel_model::ServerId;
use yesquel_server::{Core, CoreError, DataFolder, Deliver, Options, Time};

/// A request without a reply yet, or whose reply was not fetched.
#[derive(Default)]
struct Place {
    waker: Option<Waker>,
    reply: Option<Vec<u8>>,
}

/// Places of requests by their numbers.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<HashMap<u64, Place>>>);

impl Places {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deliver for Places {
    fn deliver(&self, asker: Asker, reply: &[u8]) {
        // Whoever has gone has taken his place with him.
        if let Some(place) = self.lock().get_mut(&asker.request) {
            place.reply = Some(reply.to_vec());
            place.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn fail(&self) {
        self.lock().values_mut().filter_map(|place| place.waker.take()).for_each(Waker::wake);
    }
}

/// A server in this process. Clones are the same one.
#[derive(Clone)]
pub struct Embedded {
    server: ServerId,
    core: Arc<Core>,
    places: Places,
    next: Arc<AtomicU64>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Embedded {
    fn around(server: ServerId, core: Core, places: Places) -> Embedded {
        Embedded { server, core: Arc::new(core), places, next: Arc::default() }
    }

    /// In memory only.
    pub fn in_memory(settings: Settings, time: impl Time + 'static) -> Embedded {
        let places = Places::default();
        let core = Core::in_memory(settings, time, places.clone());
        Embedded::around(settings.server, core, places)
    }

    /// On a data folder.
    pub fn open(
        folder: DataFolder,
        settings: Settings,
        options: Options,
        time: impl Time + 'static,
    ) -> Result<Embedded, CoreError> {
        let places = Places::default();
        let core = Core::open(folder, settings, options, time, places.clone())?;
        Ok(Embedded::around(settings.server, core, places))
    }

    /// Does something with the engine itself, other than changing it.
    pub fn with_engine<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> T {
        self.core.with_engine(act)
    }

    /// Time goes on, also when nobody asks for anything.
    pub fn tick(&self) {
        self.core.tick();
    }
}

/// Takes a place away with whoever no longer waits.
struct Seat<'a> {
    places: &'a Places,
    request: u64,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.places.lock().remove(&self.request);
    }
}

impl Transport for Embedded {
    fn call(&self, server: ServerId, request: &[u8]) -> impl Future<Output = Result<Vec<u8>, Lost>> {
        let lost = move |why: String| Lost { server, why };
        let seat = Seat { places: &self.places, request: self.next.fetch_add(1, Relaxed) };
        let begun = if server == self.server {
            self.places.lock().insert(seat.request, Place::default());
            let asker = Asker { connection: 0, request: seat.request };
            self.core.handle(asker, request).map_err(|malformed| lost(malformed.to_string()))
        } else {
            Err(lost("there is no such server".to_owned()))
        };
        async move {
            // All of it: its place goes when this ends, and not before.
            let seat = seat;
            begun?;
            poll_fn(|context| {
                let mut places = self.places.lock();
                let Some(place) = places.get_mut(&seat.request) else {
                    return Poll::Ready(Err(lost("the request is gone".to_owned())));
                };
                if let Some(reply) = place.reply.take() {
                    return Poll::Ready(Ok(reply));
                }
                place.waker = Some(context.waker().clone());
                drop(places);
                // After this nothing more will be durable, or be answered.
                match self.core.failed() {
                    Some(why) => Poll::Ready(Err(lost(why))),
                    None => Poll::Pending,
                }
            })
            .await
        }
    }
}
