//! A connection to a driver, shared by the clients of an event loop or owned by
//! one client.
//!
//! Clients append requests to one buffer. A task of the loop writes the buffer,
//! reads the available answers, and wakes their clients. Several clients' requests
//! thus leave in one system call, and their answers arrive in one.

use super::frame::{FrameBody, FrameBuffer, ProtocolError, put_frame, put_u32, response};
use serval_model::properties::units::counted;
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

/// Serval's ends of the channels to a driver and back.
///
/// Two channels, because a reader of a bidirectional Unix socket is also woken when
/// the peer reads what was sent.
#[derive(Debug)]
pub(crate) struct ConnectionEnds {
    pub(crate) requests: OwnedFd,
    pub(crate) answers: OwnedFd,
}

/// Minimum number of checks for silence within the timeout.
const CHECKS: u32 = 4;

/// Longest interval between checks. A check also notices a driver that has exited
/// while one of its child processes holds the connection open.
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(500);

/// Returns whether the driver's process has exited.
pub(crate) type HasExited = Box<dyn Fn() -> bool>;

#[derive(Debug, Default, PartialEq)]
enum SlotState {
    /// No request is in flight.
    #[default]
    Idle,
    Waiting,
    Answered,
}

/// A client's slot on a link, with at most one request in flight.
#[derive(Debug, Default)]
struct RequestSlot {
    state: SlotState,
    waker: Option<Waker>,
    /// The answer's body after its id.
    answer: Vec<u8>,
}

#[derive(Debug, Default)]
struct LinkState {
    out: Vec<u8>,
    slots: Vec<RequestSlot>,
    in_flight: usize,
    /// Waker of the link's task while it waits.
    task: Option<Waker>,
    /// Error of the connection, if it failed.
    broken: Option<Rc<str>>,
}

/// Clients' side of a connection.
#[derive(Debug, Default)]
pub(crate) struct DriverLink(RefCell<LinkState>);

/// The request is longer than the protocol allows.
#[derive(Debug)]
pub(crate) struct TooLong;

impl DriverLink {
    /// Returns a link over a connection, and the task that runs it. `heard` counts
    /// the reads of all the loop's connections: a driver that answers on another
    /// connection is not silent.
    pub(crate) fn new(
        ends: ConnectionEnds,
        timeout: Duration,
        heard: &Rc<Cell<u64>>,
        exited: HasExited,
    ) -> std::io::Result<(Rc<DriverLink>, LinkTask)> {
        rustix::io::ioctl_fionbio(&ends.answers, true)?;
        rustix::io::ioctl_fionbio(&ends.requests, true)?;
        let link = Rc::new(DriverLink::default());
        let worker = LinkTask {
            answers: watch(ends.answers.into(), Interest::READABLE)?,
            requests: ends.requests.into(),
            full: None,
            link: Rc::clone(&link),
            frames: FrameBuffer::default(),
            writing: Vec::new(),
            written: 0,
            checks: interval((timeout / CHECKS).min(CHECK_INTERVAL_MAX)),
            timeout,
            exited,
            had_exited: false,
            heard: Rc::clone(heard),
            heard_before: heard.get(),
            quiet: 0,
        };
        Ok((link, worker))
    }

    /// Adds a slot for a client.
    pub(crate) fn slot(&self) -> u32 {
        let slots = &mut self.0.borrow_mut().slots;
        slots.push(RequestSlot::default());
        (slots.len() - 1) as u32
    }

    /// Sends a request; its id is the slot's number.
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
        inner.slots[slot as usize].state = SlotState::Waiting;
        inner.in_flight += 1;
        if first && let Some(task) = inner.task.take() {
            task.wake();
        }
        Ok(())
    }

    /// Waits for the answer to a slot's request and reads it. Fails if the link
    /// fails.
    pub(crate) async fn answer<T>(
        &self,
        slot: u32,
        mut read: impl FnMut(&mut FrameBody<'_>) -> Result<T, ProtocolError>,
    ) -> Result<T, Rc<str>> {
        std::future::poll_fn(|context| {
            let mut inner = self.0.borrow_mut();
            let inner = &mut *inner;
            let slot = &mut inner.slots[slot as usize];
            if slot.state != SlotState::Answered {
                if let Some(broken) = &inner.broken {
                    return Poll::Ready(Err(Rc::clone(broken)));
                }
                match &mut slot.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                return Poll::Pending;
            }
            slot.state = SlotState::Idle;
            let mut body = FrameBody::result(&slot.answer);
            match read(&mut body).and_then(|value| body.end().map(|()| value)) {
                Ok(value) => Poll::Ready(Ok(value)),
                Err(invalid) => Poll::Ready(Err(inner.break_for(&invalid.to_string()))),
            }
        })
        .await
    }

    /// Returns why the link failed, if it did.
    pub(crate) fn broken(&self) -> Option<Rc<str>> {
        self.0.borrow().broken.clone()
    }

    /// Returns the number of requests in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.0.borrow().in_flight
    }
}

impl LinkState {
    /// Marks the link as failed and wakes all clients.
    fn break_with(&mut self, what: &str) -> Rc<str> {
        let broken = Rc::clone(self.broken.get_or_insert_with(|| what.into()));
        self.slots.iter_mut().filter_map(|slot| slot.waker.take()).for_each(Waker::wake);
        broken
    }

    fn break_for(&mut self, invalid: &str) -> Rc<str> {
        self.break_with(&format!("It does not speak the driver protocol: it has sent {invalid}"))
    }

    fn answered(&mut self, frame: &[u8]) -> Result<(), ProtocolError> {
        let (kind, mut body) = FrameBody::of(frame)?;
        if kind != response::RESULT {
            return Err(ProtocolError::Type(kind));
        }
        let id = body.u32()?;
        let slot = self.slots.get_mut(id as usize).filter(|slot| slot.state == SlotState::Waiting);
        let slot = slot.ok_or(ProtocolError::Id(id))?;
        slot.answer.clear();
        slot.answer.extend_from_slice(body.rest());
        slot.state = SlotState::Answered;
        self.in_flight -= 1;
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
        Ok(())
    }
}

/// Task that reads and writes a link's connection. Ends when the link fails.
pub(crate) struct LinkTask {
    /// Watched for readability only: a socket that is watched for both wakes
    /// this task each time the driver reads.
    answers: AsyncFd<File>,
    requests: File,
    /// `requests`, watched for writability while it is full.
    full: Option<AsyncFd<File>>,
    link: Rc<DriverLink>,
    frames: FrameBuffer,
    /// Bytes that are being written, and how many were.
    writing: Vec<u8>,
    written: usize,
    checks: Interval,
    timeout: Duration,
    exited: HasExited,
    /// Whether the driver had exited at the last check. Its remaining output is read before the link fails.
    had_exited: bool,
    heard: Rc<Cell<u64>>,
    /// `heard` at the last check.
    heard_before: u64,
    /// Number of consecutive checks with requests in flight and nothing read.
    quiet: u32,
}

/// Registers a file with the event loop for one interest.
#[allow(unsafe_code, reason = "the safe constructor registers for both interests")]
fn watch(file: File, interest: Interest) -> std::io::Result<AsyncFd<File>> {
    // SAFETY: the file owns its descriptor. The watcher owns the file and
    // deregisters it before the descriptor is closed.
    Ok(unsafe { AsyncFd::register_with_interest(file, interest) }?)
}

fn failed(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => super::CLOSED.to_owned(),
        _ => format!("The connection to it fails: {error}"),
    }
}

impl LinkTask {
    /// Writes as much as possible.
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

    /// Returns whether the driver accepts more now; if not, arranges a wake-up.
    fn has_room(&mut self, context: &mut Context<'_>) -> std::io::Result<bool> {
        if self.full.is_none() {
            self.full = Some(watch(self.requests.try_clone()?, Interest::WRITABLE)?);
        }
        let Some(full) = &self.full else { return Ok(true) };
        match full.poll_write_ready(context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(mut ready)) => {
                // Try again; the next WouldBlock watches it again.
                ready.clear_ready();
                self.full = None;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Reads all available bytes.
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
            // A short read has emptied the socket; later bytes make it ready again.
            if count < wanted {
                ready.clear_ready();
            }
            self.frames.filled(count);
            self.heard.set(self.heard.get().wrapping_add(1));
            let mut inner = self.link.0.borrow_mut();
            let invalid = |invalid: ProtocolError| {
                format!("It does not speak the driver protocol: it has sent {invalid}")
            };
            while let Some(frame) = self.frames.next().map_err(invalid)? {
                inner.answered(frame).map_err(invalid)?;
            }
        }
    }

    /// Checks whether the driver has been silent for too long, or has exited.
    fn check_silence(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        while self.checks.poll_tick(context).is_ready() {
            let heard = self.heard.get();
            let silent = heard == self.heard_before && self.link.in_flight() > 0;
            self.heard_before = heard;
            self.quiet = if silent { self.quiet + 1 } else { 0 };
            if self.had_exited && self.link.in_flight() > 0 {
                return Err(
                    "It has exited, and a process that it started holds its connection open".to_owned()
                );
            }
            self.had_exited = (self.exited)();
            // The first check may follow a request immediately.
            let timeout = self.timeout;
            if self.checks.period() * (self.quiet.saturating_sub(1)) >= timeout {
                return Err(format!(
                    "It has sent nothing for {timeout:?} (driver.timeout) with {} in flight",
                    counted(self.link.in_flight() as u64, "request")
                ));
            }
        }
        Ok(())
    }
}

impl Future for LinkTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let worker = &mut *self;
        let link = Rc::clone(&worker.link);
        if link.0.borrow().broken.is_some() {
            return Poll::Ready(());
        }
        let worked = worker
            .read(context)
            .and_then(|()| worker.write(context))
            .and_then(|()| worker.check_silence(context));
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
