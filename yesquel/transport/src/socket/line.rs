//! One connection that threads share, in two roles: whoever sends takes
//! along what the others have to say, and whoever receives hands out what has
//! come for them. Neither waits for the other.

use super::{
    Address, ConnectError, SocketOptions,
    channel::{Channel, is_late},
    failure::Step,
    slots::{Delivered, Slots},
};
use crate::{
    Cause, HeartbeatSource,
    wait::{self, LOOK_EVERY},
};
use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};
use yesquel_model::{ServerId, Timestamp};
use yesquel_wire::{
    ClientHeartbeat,
    frame::{Inbox, Outbox},
    greeting::{CREDENTIAL_BYTES_MAX, Denial, Hello, LANE, VERSIONS, Welcome},
};

/// How old what the server knows of its client may be when something is sent.
/// Well below the time for which a server keeps a snapshot that it has given.
const NEWS_EVERY: Duration = Duration::from_millis(200);

/// Requests under way on a lane.
const LANE_REQUESTS_MAX: u32 = 16;

#[derive(Debug, Default)]
struct Sending {
    outbox: Outbox,
    /// Somebody has the role.
    is_taken: bool,
    /// Encryption has something to say.
    flush: bool,
    /// A buffer that was sent, for the next time.
    spare: Vec<u8>,
    /// The rest of one whose sender has given up: it goes before all others.
    rest: Vec<u8>,
    heartbeat: ClientHeartbeat,
    news_at: Option<Instant>,
}

#[derive(Debug)]
struct Receiving {
    inbox: Inbox,
    wakers: Vec<Waker>,
    /// Since when nothing has come, although it was waited for, if that is long.
    quiet: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Line {
    channel: Channel,
    pub(super) server: ServerId,
    /// What the server's clock said.
    pub(super) now: Timestamp,
    slots: Slots,
    sending: Mutex<Sending>,
    /// Whoever holds it has the role.
    receiving: Mutex<Receiving>,
    /// Threads that were woken with a reply and will probably ask again.
    expected: AtomicU32,
    /// Requests whose replies nobody has taken yet.
    under_way: AtomicU32,
    /// The end of something sent waits for whoever sends next.
    is_cut: AtomicBool,
    /// Why nothing more will come.
    dead: OnceLock<Dead>,
    timeout: Duration,
}

/// Why a request could not be asked, or has no reply.
#[derive(Debug, Clone)]
pub(super) struct Dead {
    pub(super) cause: Cause,
    pub(super) why: String,
}

impl Dead {
    pub(super) fn other(why: impl Into<String>) -> Dead {
        Dead { cause: Cause::Other, why: why.into() }
    }

    pub(super) fn given_up() -> Dead {
        Dead { cause: Cause::GivenUp, why: String::new() }
    }

    /// The system ends it.
    fn of(error: &io::Error) -> Dead {
        Dead { cause: Cause::Ended, why: error.to_string() }
    }
}

/// A request under way. Whoever polls it may have to receive for all.
pub(super) struct Call {
    line: Arc<Line>,
    slot: u32,
    is_over: bool,
}

impl Future for Call {
    type Output = Result<Vec<u8>, Dead>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = self.line.poll(self.slot, context.waker());
        self.is_over |= matches!(reply, Poll::Ready(Ok(_)));
        reply
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.line.under_way.fetch_sub(1, Relaxed);
        if !self.is_over {
            self.line.slots.abandon(self.slot);
            // It may have been the one who was to receive.
            self.line.pass_on();
            self.line.rest();
        }
    }
}

impl Line {
    pub(super) fn connect(
        address: &Address,
        client: u64,
        options: &SocketOptions,
    ) -> Result<Line, ConnectError> {
        let bytes = options.credential.len();
        if bytes > CREDENTIAL_BYTES_MAX {
            return Err(ConnectError::LongCredential { address: address.clone(), bytes });
        }
        let is_lane = client & LANE != 0;
        let failed = |error| ConnectError::at(address, options, Step::Greet, error);
        // More than a day is no limit.
        let until = Instant::now() + options.connect_timeout.min(Duration::from_secs(86_400));
        let channel = Channel::connect(address, options, until)?;
        let hello = Hello { versions: VERSIONS, client, credential: &options.credential };
        // A server that takes nobody more may have closed it, and said why.
        let mut sent = channel.send_until(&hello.encode(), until).err();
        let mut inbox = Inbox::default();
        let welcome = loop {
            let foreign = |error| ConnectError::foreign(address, options, inbox.unread(), error);
            if let Some((welcome, length)) = Welcome::decode(inbox.unread()).map_err(foreign)? {
                inbox.skip(length);
                break welcome;
            }
            let received = channel.receive_until(&mut inbox, Some(until));
            received.map_err(|error| failed(sent.take().unwrap_or(error)))?;
        };
        let denied = |denial: Denial| ConnectError::Denied { address: address.clone(), denial };
        let (server, now, requests_max) = match welcome {
            Welcome::Served { server, now, requests_max, .. } => (server, now, requests_max),
            Welcome::Refused(denial) => return Err(denied(denial)),
        };
        channel.timeout(options.timeout.min(LOOK_EVERY)).map_err(failed)?;
        Ok(Line {
            channel,
            server,
            now,
            // What a server allows is its affair, but not without bound; a lane has
            // few at a time, and those that nobody waits for any more.
            slots: Slots::new(requests_max.clamp(1, if is_lane { LANE_REQUESTS_MAX } else { 1 << 16 })),
            sending: Mutex::default(),
            receiving: Mutex::new(Receiving { inbox, wakers: Vec::new(), quiet: None }),
            expected: AtomicU32::new(0),
            under_way: AtomicU32::new(0),
            is_cut: AtomicBool::new(false),
            dead: OnceLock::new(),
            timeout: options.timeout,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.get().is_some()
    }

    /// How many wait for replies.
    pub(super) fn under_way(&self) -> u32 {
        self.under_way.load(Relaxed)
    }

    /// Whether the end of something sent may be missing, because its sender has
    /// given up.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Relaxed)
    }

    /// Ends the connection: all who wait are told.
    pub(super) fn die(&self, why: Dead) {
        // The first reason is the one.
        let _ = self.dead.set(why);
        self.channel.close();
        self.slots.all_waiting().into_iter().for_each(Waker::wake);
    }

    /// Sends a request; the future brings its reply.
    pub(super) fn call(
        self: &Arc<Line>,
        request: &[u8],
        heartbeats: Option<&Arc<dyn HeartbeatSource>>,
    ) -> Result<Call, Dead> {
        let full = || Dead::other("as many requests are under way as a connection may have");
        let slot = self.slots.open().ok_or_else(full)?;
        self.under_way.fetch_add(1, Relaxed);
        let mut sending = self.lock();
        sending.outbox.push(u64::from(slot) + 1, request);
        let expected = self.expected.load(Relaxed);
        if expected > 0 {
            // Only a hint: if it is wrong, a frame is sent too early or too late.
            self.expected.store(expected - 1, Relaxed);
        }
        if !sending.is_taken {
            sending.is_taken = true;
            if expected > 1 {
                // Others have got their replies with this one: their next
                // requests may come along.
                drop(sending);
                thread::yield_now();
                sending = self.lock();
            }
            self.send_all(sending, heartbeats);
        }
        Ok(Call { line: Arc::clone(self), slot, is_over: false })
    }

    /// The reply, if it has come; receives, if nobody else does.
    fn poll(&self, slot: u32, waker: &Waker) -> Poll<Result<Vec<u8>, Dead>> {
        // Of this request, whatever comes of it: the next one begins anew.
        let is_to_end = wait::take_cancelled();
        loop {
            if let Some(reply) = self.slots.take(slot, waker) {
                return Poll::Ready(Ok(reply));
            }
            if let Some(why) = self.dead.get() {
                return Poll::Ready(Err(why.clone()));
            }
            let role = match self.receiving.try_lock() {
                Ok(role) => role,
                Err(TryLockError::Poisoned(role)) => role.into_inner(),
                Err(TryLockError::WouldBlock) if is_to_end => {
                    return Poll::Ready(Err(Dead::given_up()));
                }
                Err(TryLockError::WouldBlock) => return Poll::Pending,
            };
            // Not in the role: whoever is asked may ask servers himself.
            if !self.receive(role, slot) && wait::gives_up() {
                return Poll::Ready(Err(Dead::given_up()));
            }
        }
    }

    /// In the sending role: sends until nothing waits.
    fn send_all<'a>(
        &'a self,
        mut sending: MutexGuard<'a, Sending>,
        heartbeats: Option<&Arc<dyn HeartbeatSource>>,
    ) {
        let mut buffer = std::mem::take(&mut sending.spare);
        let mut rest = std::mem::take(&mut sending.rest);
        loop {
            if !rest.is_empty() {
                drop(sending);
                let left = self.send_sealed(&rest);
                sending = self.lock();
                if let Some(left) = left {
                    sending.rest = left;
                    break;
                }
                rest.clear();
            }
            if let Some(heartbeats) = heartbeats {
                sending.report(&**heartbeats);
            }
            if !sending.outbox.fill(&mut buffer) && !std::mem::take(&mut sending.flush) {
                break;
            }
            drop(sending);
            let left = match self.channel.sealed(&buffer) {
                Ok(sealed) => self.send_sealed(&sealed),
                Err(error) => {
                    self.die(Dead::of(&error));
                    None
                }
            };
            buffer.clear();
            sending = self.lock();
            if let Some(left) = left {
                // Whoever has the role next goes on with it.
                sending.rest = left;
                break;
            }
        }
        sending.spare = buffer;
        sending.is_taken = false;
    }

    /// Sends what was sealed. What is left of it, if the thread gives up because
    /// the server takes nothing.
    fn send_sealed(&self, mut sealed: &[u8]) -> Option<Vec<u8>> {
        let mut quiet = None;
        while !sealed.is_empty() && !self.is_dead() {
            match self.channel.send_some(sealed) {
                Ok(0) => self.die(Dead::of(&io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    sealed = sealed.get(count..).unwrap_or_default();
                    quiet = None;
                }
                Err(error) if is_late(&error) => {
                    if self.is_quiet(&mut quiet) {
                        self.die(self.silent());
                    } else if wait::gives_up() {
                        self.is_cut.store(true, Relaxed);
                        return Some(sealed.to_vec());
                    }
                }
                Err(error) => self.die(Dead::of(&error)),
            }
        }
        None
    }

    /// The socket's timeout is over: whether the server has had its time.
    fn is_quiet(&self, quiet: &mut Option<Instant>) -> bool {
        let now = Instant::now();
        let look = self.timeout.min(LOOK_EVERY);
        let since = *quiet.get_or_insert_with(|| now.checked_sub(look).unwrap_or(now));
        now.duration_since(since) >= self.timeout
    }

    fn silent(&self) -> Dead {
        Dead::other(format!("no answer for {} s", self.timeout.as_secs_f32()))
    }

    /// Tells the server what it must know, if that has changed, although
    /// nothing else is to be said.
    pub(super) fn report(&self, heartbeats: &Arc<dyn HeartbeatSource>) {
        let mut sending = self.lock();
        if !sending.is_taken && !self.is_dead() {
            sending.is_taken = true;
            self.send_all(sending, Some(heartbeats));
        }
    }

    /// In the receiving role: hands out what comes until one's own reply has, or
    /// nothing has come for a while, and then it is false.
    fn receive(&self, mut role: MutexGuard<'_, Receiving>, own: u32) -> bool {
        let Receiving { inbox, wakers, quiet } = &mut *role;
        while !self.slots.is_done(own) && !self.is_dead() {
            match self.channel.receive(inbox) {
                Ok(false) => {}
                Ok(true) => self.flush(),
                Err(error) if is_late(&error) && !self.is_quiet(quiet) => return false,
                Err(error) => {
                    self.die(if is_late(&error) { self.silent() } else { Dead::of(&error) });
                    break;
                }
            }
            *quiet = None;
            let mut unasked = false;
            let taken = inbox.take(|number, reply| {
                let slot = number.checked_sub(1).and_then(|slot| u32::try_from(slot).ok());
                match slot.map_or(Delivered::Unasked, |slot| self.slots.deliver(slot, reply)) {
                    Delivered::To(waker) if slot != Some(own) => wakers.extend(waker),
                    Delivered::To(_) | Delivered::Nobody => {}
                    Delivered::Unasked => unasked = true,
                }
            });
            match taken {
                Err(error) => {
                    self.die(Dead::other(format!("the server does not follow the protocol: {error}")));
                }
                Ok(()) if unasked => self.die(Dead::other("the server answers what was not asked")),
                Ok(()) => {}
            }
            self.expected.store(wakers.len() as u32 + 1, Relaxed);
            wakers.drain(..).for_each(Waker::wake);
        }
        drop(role);
        self.pass_on();
        true
    }

    /// If nobody waits any more, the server's silence is none.
    fn rest(&self) {
        if self.slots.any_waiting().is_none()
            && let Ok(mut role) = self.receiving.try_lock()
        {
            role.quiet = None;
        }
    }

    /// Wakes somebody who waits, to receive, if nobody does.
    fn pass_on(&self) {
        if let Some(waker) = self.slots.any_waiting()
            && !matches!(self.receiving.try_lock(), Err(TryLockError::WouldBlock))
        {
            waker.wake();
        }
    }

    /// Has what encryption itself wants to say sent, by whoever sends.
    fn flush(&self) {
        let mut sending = self.lock();
        sending.flush = true;
        if !sending.is_taken {
            sending.is_taken = true;
            // In the role of who receives: whoever would be asked might himself ask
            // servers, and wait for this one.
            wait::unasked(|| self.send_all(sending, None));
        }
    }
}

impl Sending {
    /// Adds what the server must know, if it has changed and some time has
    /// passed.
    fn report(&mut self, heartbeats: &dyn HeartbeatSource) {
        let now = Instant::now();
        if self.news_at.is_some_and(|at| now.duration_since(at) < NEWS_EVERY) {
            return;
        }
        self.news_at = Some(now);
        let heartbeat = heartbeats.heartbeat();
        if heartbeat != self.heartbeat {
            self.outbox.push(ClientHeartbeat::NUMBER, &heartbeat.encode());
            self.heartbeat = heartbeat;
        }
    }
}
