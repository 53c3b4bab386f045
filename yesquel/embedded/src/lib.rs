//! A server in this process: the calling thread takes its steps.

mod numbers;

use numbers::unique;
use std::{
    collections::HashMap,
    fmt,
    future::{Future, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Poll, Waker},
};
use yesquel_engine::{Asker, Engine, Settings};
use yesquel_fork as fork;
use yesquel_model::ServerId;
use yesquel_server::{Core, CoreError, DataFolder, Deliver, Options, Time};
use yesquel_transport::{Cause, Holdings, Lost, OPENED_BEFORE_FORK, Transport, take_cancelled};

/// The connection of the calls from this process. Those of sockets have other
/// numbers.
const OWN: u64 = 0;

/// A request that was not answered at once, or whose late reply was not
/// fetched.
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

/// Brings replies to the places, and those of sockets to whoever has them.
struct Post<D> {
    places: Places,
    others: D,
}

impl<D: Deliver> Deliver for Post<D> {
    fn deliver(&self, asker: Asker, reply: &[u8]) {
        if asker.connection != OWN {
            return self.others.deliver(asker, reply);
        }
        // Whoever has gone has taken his place with him.
        if let Some(place) = self.places.lock().get_mut(&asker.request) {
            place.reply = Some(reply.to_vec());
            place.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn hold(&self, asker: Asker, bytes: usize) {
        if asker.connection != OWN {
            self.others.hold(asker, bytes);
        }
    }

    fn let_go(&self, asker: Asker, bytes: usize) {
        if asker.connection != OWN {
            self.others.let_go(asker, bytes);
        }
    }

    fn delivered(&self) {
        self.others.delivered();
    }
}

/// There are no sockets.
struct Nobody;

impl Deliver for Nobody {
    fn deliver(&self, _: Asker, _: &[u8]) {}
}

/// A server in this process. Clones are the same one.
#[derive(Clone)]
pub struct Embedded {
    server: ServerId,
    core: Arc<Core>,
    places: Places,
    clients: Arc<Mutex<Vec<Attended>>>,
    /// The process that has it, see [`fork`].
    made_in: u32,
}

/// A client in this process.
struct Attended {
    /// Its number as one who holds snapshots.
    connection: u64,
    client: u64,
    holdings: Weak<dyn Holdings>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Embedded {
    fn around(server: ServerId, core: Core, places: Places) -> Embedded {
        Embedded {
            server,
            core: Arc::new(core),
            places,
            clients: Arc::default(),
            made_in: fork::generation(),
        }
    }

    /// In memory only.
    pub fn in_memory(settings: Settings, time: impl Time + 'static) -> Embedded {
        Embedded::in_memory_with(settings, time, Nobody)
    }

    /// In memory only; `others` takes the replies to requests that do not come
    /// from here.
    pub fn in_memory_with(settings: Settings, time: impl Time + 'static, others: impl Deliver) -> Embedded {
        let places = Places::default();
        let post = Post { places: places.clone(), others };
        Embedded::around(settings.server, Core::in_memory(settings, time, post), places)
    }

    /// On a data folder.
    pub fn open(
        folder: DataFolder,
        settings: Settings,
        options: Options,
        time: impl Time + 'static,
    ) -> Result<Embedded, CoreError> {
        Embedded::open_with(folder, settings, options, time, Nobody)
    }

    /// On a data folder; `others` takes the replies to requests that do not
    /// come from here.
    pub fn open_with(
        folder: DataFolder,
        settings: Settings,
        options: Options,
        time: impl Time + 'static,
        others: impl Deliver,
    ) -> Result<Embedded, CoreError> {
        let places = Places::default();
        let post = Post { places: places.clone(), others };
        let core = Core::open(folder, settings, options, time, post)?;
        Ok(Embedded::around(settings.server, core, places))
    }

    /// Its core, for sockets.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Does something with the engine itself, other than changing it.
    pub fn with_engine<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> T {
        self.core.with_engine(act)
    }

    /// Time goes on, also when nobody asks for anything: to be called every
    /// 50 ms or so.
    pub fn tick(&self) {
        {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            let mut session = self.core.session();
            clients.retain(|Attended { connection, client, holdings }| match holdings.upgrade() {
                Some(holdings) => {
                    session.hear(*connection, *client, holdings.news());
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

    /// Waits for a reply that did not come at once.
    async fn wait(&self, seat: Seat<'_>) -> Result<Vec<u8>, Lost> {
        poll_fn(|context| {
            // Of this request, whatever comes of it: the next one begins anew.
            let cancelled = take_cancelled();
            let mut places = self.places.lock();
            let Some(place) = places.get_mut(&seat.request) else {
                return Poll::Ready(Err(lost("the request is gone".to_owned())));
            };
            if let Some(reply) = place.reply.take() {
                return Poll::Ready(Ok(reply));
            }
            if cancelled {
                return Poll::Ready(Err(Lost::given_up(HERE.to_owned())));
            }
            place.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// Where it is, in words.
const HERE: &str = "the server of this process";

fn lost(why: String) -> Lost {
    Lost { place: HERE.to_owned(), cause: Cause::Other, why }
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
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, Lost>> + use<'a> {
        let mut reply = Vec::new();
        let (mut seat, mut begun) = (None, Ok(true));
        if self.made_in != fork::generation() {
            begun = Err(lost(OPENED_BEFORE_FORK.to_owned()));
        } else if server == self.server {
            let number = unique();
            let asker = Asker { connection: OWN, request: number };
            // Under the core's lock, so that the reply does not come before
            // there is a place for it.
            let later = || {
                self.places.lock().insert(number, Place::default());
                seat = Some(Seat { places: &self.places, request: number });
            };
            let called = self.core.call(asker, request, &mut reply, later);
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

    fn attend(&self, holdings: Arc<dyn Holdings>) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // From the end on, where connections do not come.
        let connection = u64::MAX - unique();
        let client = holdings.client();
        clients.push(Attended { connection, client, holdings: Arc::downgrade(&holdings) });
    }
}
