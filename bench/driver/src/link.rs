//! One connection to a driver: shared by the clients of an event loop, or a
//! client's own.
//!
//! Clients append requests to one buffer; a task of the loop writes what has
//! come together since it last ran, reads what there is, and wakes the clients
//! whose answers came. Requests of several clients so leave in one system
//! call, and their answers come in one.

use super::frame::{Body, Frames, Nonsense, put_frame, put_u32, tell};
use std::{
    cell::{Cell, RefCell},
    fs::File,
    future::Future,
    io::{ErrorKind, Read, Write},
    os::fd::OwnedFd,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Interval, interval},
};

/// Our ends of the two ways to a driver and back.
///
/// Two, for on a Unix socket that goes both ways whoever waits for what comes
/// is woken each time that the other side has read what he had sent.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) requests: OwnedFd,
    pub(crate) answers: OwnedFd,
}

/// Parts of the timeout after which is looked whether anything came, at least.
const LOOKS: u32 = 4;

/// Longest time between two looks, at which it is also seen whether the driver
/// has exited: what it has started may hold its connections open.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// Whether the driver's process has ended.
pub(crate) type Exited = Box<dyn Fn() -> bool>;

#[derive(Debug, Default, PartialEq)]
enum State {
    /// Nothing is under way.
    #[default]
    Idle,
    Waiting,
    Answered,
}

/// A client's place on a link: at most one request under way.
#[derive(Debug, Default)]
struct Slot {
    state: State,
    waker: Option<Waker>,
    /// The answer's body, from after its id on.
    answer: Vec<u8>,
}

#[derive(Debug, Default)]
struct Inner {
    out: Vec<u8>,
    slots: Vec<Slot>,
    under_way: usize,
    /// The task, while it waits.
    task: Option<Waker>,
    /// What went wrong for good.
    broken: Option<Rc<str>>,
}

/// The clients' side of a connection.
#[derive(Debug, Default)]
pub(crate) struct Link(RefCell<Inner>);

/// The frame that a client wants to send is longer than the protocol allows.
#[derive(Debug)]
pub(crate) struct TooLong;

impl Link {
    /// A link over a connection, and the task that works it.
    /// `heard` counts what all connections of a loop to the driver have heard
    /// of it: a driver that answers others is not silent.
    pub(crate) fn new(
        ends: Ends,
        timeout: Duration,
        heard: &Rc<Cell<u64>>,
        exited: Exited,
    ) -> std::io::Result<(Rc<Link>, Worker)> {
        rustix::io::ioctl_fionbio(&ends.answers, true)?;
        rustix::io::ioctl_fionbio(&ends.requests, true)?;
        let link = Rc::new(Link::default());
        let worker = Worker {
            answers: watch(ends.answers.into(), Interest::READABLE)?,
            requests: ends.requests.into(),
            full: None,
            link: Rc::clone(&link),
            frames: Frames::default(),
            writing: Vec::new(),
            written: 0,
            looks: interval((timeout / LOOKS).min(LOOK_MAX)),
            timeout,
            exited,
            gone: false,
            heard: Rc::clone(heard),
            heard_before: heard.get(),
            quiet: 0,
        };
        Ok((link, worker))
    }

    /// A place for a client.
    pub(crate) fn slot(&self) -> u32 {
        let slots = &mut self.0.borrow_mut().slots;
        slots.push(Slot::default());
        (slots.len() - 1) as u32
    }

    /// Sends a request from a place; its id is the place's number.
    pub(crate) fn send(&self, slot: u32, kind: u8, body: impl FnOnce(&mut Vec<u8>)) -> Result<(), TooLong> {
        let mut inner = self.0.borrow_mut();
        let inner = &mut *inner;
        let first = inner.out.is_empty();
        let put = put_frame(&mut inner.out, kind, |out| {
            put_u32(out, slot);
            body(out);
        });
        if !put {
            return Err(TooLong);
        }
        inner.slots[slot as usize].state = State::Waiting;
        inner.under_way += 1;
        if first && let Some(task) = inner.task.take() {
            task.wake();
        }
        Ok(())
    }

    /// Waits for the answer to a place's request and reads it. An error is
    /// that of the whole link.
    pub(crate) async fn answer<T>(
        &self,
        slot: u32,
        mut read: impl FnMut(&mut Body<'_>) -> Result<T, Nonsense>,
    ) -> Result<T, Rc<str>> {
        std::future::poll_fn(|context| {
            let mut inner = self.0.borrow_mut();
            let inner = &mut *inner;
            let place = &mut inner.slots[slot as usize];
            if place.state != State::Answered {
                if let Some(broken) = &inner.broken {
                    return Poll::Ready(Err(Rc::clone(broken)));
                }
                match &mut place.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                return Poll::Pending;
            }
            place.state = State::Idle;
            let mut body = Body::result(&place.answer);
            match read(&mut body).and_then(|value| body.end().map(|()| value)) {
                Ok(value) => Poll::Ready(Ok(value)),
                Err(nonsense) => Poll::Ready(Err(inner.break_for(&nonsense.to_string()))),
            }
        })
        .await
    }

    /// Why nothing more can be sent, if so.
    pub(crate) fn broken(&self) -> Option<Rc<str>> {
        self.0.borrow().broken.clone()
    }

    /// Requests without an answer.
    pub(crate) fn under_way(&self) -> usize {
        self.0.borrow().under_way
    }
}

impl Inner {
    /// Nothing more can come: wakes everybody.
    fn break_with(&mut self, what: &str) -> Rc<str> {
        let broken = Rc::clone(self.broken.get_or_insert_with(|| what.into()));
        self.slots.iter_mut().filter_map(|slot| slot.waker.take()).for_each(Waker::wake);
        broken
    }

    fn break_for(&mut self, nonsense: &str) -> Rc<str> {
        self.break_with(&format!("It does not speak the driver protocol: it has sent {nonsense}"))
    }

    fn answered(&mut self, frame: &[u8]) -> Result<(), Nonsense> {
        let (kind, mut body) = Body::of(frame)?;
        if kind != tell::RESULT {
            return Err(Nonsense::Type(kind));
        }
        let id = body.u32()?;
        let slot = self.slots.get_mut(id as usize).filter(|slot| slot.state == State::Waiting);
        let slot = slot.ok_or(Nonsense::Id(id))?;
        slot.answer.clear();
        slot.answer.extend_from_slice(body.rest());
        slot.state = State::Answered;
        self.under_way -= 1;
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
        Ok(())
    }
}

/// The task that works a link. Ends when the link is broken.
pub(crate) struct Worker {
    /// Watched for what comes only: a socket watched for room as well wakes
    /// us each time that the driver reads, for nothing.
    answers: AsyncFd<File>,
    requests: File,
    /// The same, watched for room, while there is none.
    full: Option<AsyncFd<File>>,
    link: Rc<Link>,
    frames: Frames,
    /// What is being written, and how much of it is.
    writing: Vec<u8>,
    written: usize,
    looks: Interval,
    timeout: Duration,
    exited: Exited,
    /// It had exited at the last look. What it said before is read first.
    gone: bool,
    heard: Rc<Cell<u64>>,
    /// The same at the last look.
    heard_before: u64,
    /// Looks in a row at which requests were under way and nothing had come.
    quiet: u32,
}

/// Has the loop watch a file for one thing.
#[allow(unsafe_code, reason = "at the border to the system; the safe way watches for both")]
fn watch(file: File, interest: Interest) -> std::io::Result<AsyncFd<File>> {
    // SAFETY: the file owns its descriptor, which stays open and the same
    // until the watcher, which then owns the file, has taken it off the loop.
    Ok(unsafe { AsyncFd::register_with_interest(file, interest) }?)
}

fn failed(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => super::CLOSED.to_owned(),
        _ => format!("The connection to it fails: {error}"),
    }
}

impl Worker {
    /// Writes all that it can.
    fn write(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        loop {
            if self.written == self.writing.len() {
                self.writing.clear();
                self.written = 0;
                std::mem::swap(&mut self.writing, &mut self.link.0.borrow_mut().out);
                if self.writing.is_empty() {
                    return Ok(());
                }
            }
            match self.requests.write(&self.writing[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.has_room(context).map_err(|error| failed(&error))? {
                        continue;
                    }
                    return Ok(());
                }
                Err(error) => return Err(failed(&error)),
            }
        }
    }

    /// Whether the driver's input takes more now; if not, it will wake us.
    fn has_room(&mut self, context: &mut Context<'_>) -> std::io::Result<bool> {
        if self.full.is_none() {
            self.full = Some(watch(self.requests.try_clone()?, Interest::WRITABLE)?);
        }
        let Some(full) = &self.full else { return Ok(true) };
        match full.poll_write_ready(context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(mut ready)) => {
                // Tried once more; watched anew if that was not enough.
                ready.clear_ready();
                self.full = None;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Reads all that there is.
    fn read(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        loop {
            let mut ready = match self.answers.poll_read_ready(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(ready) => ready.map_err(|error| failed(&error))?,
            };
            let room = self.frames.room();
            let wanted = room.len();
            let count = match self.answers.get_ref().read(room) {
                Ok(0) => return Err(super::CLOSED.to_owned()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    continue;
                }
                Err(error) => return Err(failed(&error)),
            };
            // Less than asked for means that there is no more: what comes
            // later makes it ready again.
            if count < wanted {
                ready.clear_ready();
            }
            self.frames.filled(count);
            self.heard.set(self.heard.get().wrapping_add(1));
            let mut inner = self.link.0.borrow_mut();
            let nonsense =
                |nonsense: Nonsense| format!("It does not speak the driver protocol: it has sent {nonsense}");
            while let Some(frame) = self.frames.next().map_err(nonsense)? {
                inner.answered(frame).map_err(nonsense)?;
            }
        }
    }

    /// Sees whether the driver has been quiet for too long.
    fn look(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        while self.looks.poll_tick(context).is_ready() {
            let heard = self.heard.get();
            let silent = heard == self.heard_before && self.link.under_way() > 0;
            self.heard_before = heard;
            self.quiet = if silent { self.quiet + 1 } else { 0 };
            if self.gone && self.link.under_way() > 0 {
                return Err(
                    "It has exited, and something that it has started holds its connection open".to_owned()
                );
            }
            self.gone = (self.exited)();
            // The first look may come just after a request.
            let timeout = self.timeout;
            if self.looks.period() * (self.quiet.saturating_sub(1)) >= timeout {
                return Err(format!(
                    "It has sent nothing for {timeout:?} (driver.timeout) while {} requests were under way",
                    self.link.under_way()
                ));
            }
        }
        Ok(())
    }
}

impl Future for Worker {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let worker = &mut *self;
        let link = Rc::clone(&worker.link);
        if link.0.borrow().broken.is_some() {
            return Poll::Ready(());
        }
        let worked =
            worker.read(context).and_then(|()| worker.write(context)).and_then(|()| worker.look(context));
        let mut inner = link.0.borrow_mut();
        match worked {
            Ok(()) => {
                inner.task = Some(context.waker().clone());
                Poll::Pending
            }
            Err(what) => {
                inner.break_with(&what);
                Poll::Ready(())
            }
        }
    }
}
