//! Connections to a Redis server: one of a client's own, or one that several
//! clients of an event loop share.

use super::resp::{Nonsense, Part, Parts, Scanner};
use serval_model::{Outcome, Status, StoreError};
use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep_until, timeout},
};

/// First size of a receive buffer; an HGETALL of a YCSB record takes 1.2 KiB.
const BUFFER: usize = 16 << 10;

/// A receive buffer that is larger than this after a reply is given back.
const BUFFER_KEPT: usize = 1 << 20;

/// Time between attempts to connect again, so that a server that is down is
/// not asked by every operation.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Where and how to connect.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u64,
    pub(crate) connect_timeout: Duration,
}

impl Address {
    /// The address as people write it.
    pub(crate) fn name(&self) -> String {
        format!("redis at {}:{}", self.host, self.port)
    }

    /// The commands that a new connection begins with, and their number.
    pub(crate) fn greeting(&self) -> (Vec<u8>, usize) {
        let (mut out, mut commands) = (Vec::new(), 0);
        let mut send = |words: &[&str]| {
            super::resp::command(&mut out, words.len());
            words.iter().for_each(|word| super::resp::argument(&mut out, word.as_bytes()));
            commands += 1;
        };
        match (&self.username, &self.password) {
            (Some(username), Some(password)) => send(&["AUTH", username, password]),
            (None, Some(password)) => send(&["AUTH", password]),
            _ => {}
        }
        if self.database != 0 {
            send(&["SELECT", &self.database.to_string()]);
        }
        // The cheapest command that a server refuses without credentials.
        send(&["EXISTS", super::INDEX]);
        (out, commands)
    }

    /// What went wrong with a greeting, and what to do.
    pub(crate) fn refused(&self, message: &str) -> StoreError {
        let advice = if message.starts_with("NOAUTH") {
            "The server wants a password: set redis.password"
        } else if message.starts_with("WRONGPASS") || message.contains("invalid password") {
            "Check redis.password and redis.username"
        } else if message.contains("without any password configured") {
            "The server has no password: leave out redis.password"
        } else if message.starts_with("MOVED") || message.starts_with("CLUSTERDOWN") {
            "This server is part of a Redis Cluster, which this version does not speak to"
        } else if message.starts_with("LOADING") {
            "The server is still loading its data: try again"
        } else {
            "Check the server's log"
        };
        StoreError::new(self.name(), format!("the server answers '{message}'. {advice}"))
    }

    /// An address that does not answer, and what to do.
    pub(crate) fn unreachable(&self, error: &io::Error) -> StoreError {
        StoreError::new(
            self.name(),
            format!(
                "cannot connect: {error}. Is the server running, and are redis.host and redis.port right?"
            ),
        )
    }

    async fn connect(&self) -> Result<Wire, StoreError> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream = match timeout(self.connect_timeout, connecting).await {
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {:?} (redis.timeout)", self.connect_timeout),
            )),
            Ok(result) => result,
        };
        let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let mut wire = Wire::new(stream.map_err(|error| self.unreachable(&error))?);
        let (greeting, replies) = self.greeting();
        let mut inbox = Vec::new();
        let exchange = wire.exchange(&greeting, replies, &mut inbox);
        match timeout(self.connect_timeout, exchange).await {
            Ok(Ok(())) => {}
            Ok(Err(broken)) => return Err(StoreError::new(self.name(), broken.to_string())),
            Err(_) => {
                let problem = format!("no reply within {:?} (redis.timeout)", self.connect_timeout);
                return Err(StoreError::new(self.name(), problem));
            }
        }
        match first_error(&inbox) {
            None => Ok(wire),
            Some(message) => Err(self.refused(&message)),
        }
    }
}

/// The first error among replies.
pub(crate) fn first_error(replies: &[u8]) -> Option<String> {
    Parts(replies).find_map(|part| match part {
        Part::Error(message) => Some(String::from_utf8_lossy(message).into_owned()),
        _ => None,
    })
}

/// Why a connection can no longer be used.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Broken {
    #[error("connection lost: {0}")]
    Lost(String),
    #[error("{0}")]
    Nonsense(#[from] Nonsense),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Lost(error.to_string())
    }
}

impl From<Broken> for Outcome {
    fn from(broken: Broken) -> Outcome {
        Outcome::failed(Status::ServiceUnavailable, broken.to_string())
    }
}

fn closed() -> Broken {
    Broken::Lost("the server closed it".into())
}

/// Received bytes, and how much of the next reply is known.
#[derive(Debug)]
struct Inflow {
    bytes: Vec<u8>,
    /// Where unconsumed bytes begin and end.
    start: usize,
    end: usize,
    scanner: Scanner,
}

impl Inflow {
    fn new() -> Self {
        Inflow { bytes: vec![0; BUFFER], start: 0, end: 0, scanner: Scanner::default() }
    }

    /// The next whole reply, if it is all there.
    fn reply(&mut self) -> Result<Option<&[u8]>, Nonsense> {
        if self.start == self.end {
            return Ok(None);
        }
        let Some(length) = self.scanner.reply(&self.bytes[self.start..self.end])? else { return Ok(None) };
        let from = self.start;
        self.start += length;
        Ok(Some(&self.bytes[from..from + length]))
    }

    /// Room for more bytes.
    fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > BUFFER_KEPT {
                self.bytes = vec![0; BUFFER];
            }
        } else if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            // The scanner bounds what a reply may ask for.
            if self.end * 2 > self.bytes.len() {
                let doubled = self.bytes.len() * 2;
                self.bytes.resize(doubled, 0);
            }
        }
        &mut self.bytes[self.end..]
    }
}

/// A socket and what has come from it.
#[derive(Debug)]
struct Wire {
    stream: TcpStream,
    inflow: Inflow,
}

impl Wire {
    fn new(stream: TcpStream) -> Self {
        Wire { stream, inflow: Inflow::new() }
    }

    /// Sends commands and puts their replies, so many of them, into `inbox`.
    async fn exchange(&mut self, out: &[u8], replies: usize, inbox: &mut Vec<u8>) -> Result<(), Broken> {
        inbox.clear();
        self.stream.write_all(out).await?;
        let mut missing = replies;
        loop {
            while missing > 0 {
                let Some(reply) = self.inflow.reply()? else { break };
                inbox.extend_from_slice(reply);
                missing -= 1;
            }
            if missing == 0 {
                return Ok(());
            }
            let received = self.stream.read(self.inflow.room()).await?;
            if received == 0 {
                return Err(closed());
            }
            self.inflow.end += received;
        }
    }
}

/// One client's way to the server.
#[derive(Debug)]
pub(crate) enum Link {
    /// A connection of its own.
    Own(Box<OwnLink>),
    /// A share in a connection.
    Shared(SharedLink),
}

impl Link {
    /// Sends the commands in `out`; their replies, `replies` of them, are in
    /// `inbox` afterwards.
    pub(crate) async fn exchange(
        &mut self,
        out: &[u8],
        replies: usize,
        inbox: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        match self {
            Link::Own(link) => link.exchange(out, replies, inbox).await,
            Link::Shared(link) => link.exchange(out, replies, inbox).await,
        }
    }
}

/// A connection of a client's own. A lost one is opened again by the next
/// operation, which fails if that fails.
#[derive(Debug)]
pub(crate) struct OwnLink {
    address: Rc<Address>,
    wire: Option<Wire>,
    /// Not before this is it tried again.
    retry_at: Option<Instant>,
}

impl OwnLink {
    pub(crate) async fn connect(address: Rc<Address>) -> Result<Self, StoreError> {
        let wire = Some(address.connect().await?);
        Ok(OwnLink { address, wire, retry_at: None })
    }

    async fn exchange(&mut self, out: &[u8], replies: usize, inbox: &mut Vec<u8>) -> Result<(), Broken> {
        let wire = match &mut self.wire {
            Some(wire) => wire,
            none => none.insert(reconnect(&self.address, &mut self.retry_at).await?),
        };
        let result = wire.exchange(out, replies, inbox).await;
        if result.is_err() {
            self.wire = None;
        }
        result
    }
}

async fn reconnect(address: &Address, retry_at: &mut Option<Instant>) -> Result<Wire, Broken> {
    if let Some(at) = *retry_at {
        sleep_until(at.into()).await;
    }
    *retry_at = Some(Instant::now() + RECONNECT_PAUSE);
    address.connect().await.map_err(|error| Broken::Lost(error.problem))
}

/// A connection that the clients of an event loop share. Whatever they send
/// while the loop is busy leaves in one write, and many replies arrive in one
/// read.
#[derive(Debug)]
pub(crate) struct SharedConnection {
    address: Rc<Address>,
    state: RefCell<SharedState>,
}

#[derive(Debug, Default)]
struct SharedState {
    /// Commands not yet written.
    out: Vec<u8>,
    /// Who waits for replies, in the order of the commands.
    waiting: VecDeque<Rc<RefCell<Waiter>>>,
    driver: Option<Waker>,
    broken: Option<Broken>,
    /// Whether somebody is opening the connection again.
    reconnecting: bool,
    retry_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct Waiter {
    missing: usize,
    inbox: Vec<u8>,
    waker: Option<Waker>,
    broken: Option<Broken>,
}

impl SharedConnection {
    /// Connects, and serves the connection by a task of this event loop.
    pub(crate) async fn connect(address: Rc<Address>) -> Result<Rc<Self>, StoreError> {
        let wire = address.connect().await?;
        let shared = Rc::new(SharedConnection { address, state: RefCell::default() });
        shared.serve(wire);
        Ok(shared)
    }

    fn serve(self: &Rc<Self>, mut wire: Wire) {
        let shared = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let mut written = Vec::new();
            let broken = std::future::poll_fn(|context| shared.drive(&mut wire, &mut written, context)).await;
            shared.fail(broken);
        });
    }

    /// Writes what is to be written and hands out what has come.
    fn drive(&self, wire: &mut Wire, writing: &mut Vec<u8>, context: &mut Context<'_>) -> Poll<Broken> {
        self.state.borrow_mut().driver = Some(context.waker().clone());
        loop {
            if writing.is_empty() {
                std::mem::swap(writing, &mut self.state.borrow_mut().out);
            }
            if writing.is_empty() {
                break;
            }
            match wire.stream.poll_write_ready(context) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Poll::Ready(error.into()),
                Poll::Ready(Ok(())) => match wire.stream.try_write(writing) {
                    Ok(count) => drop(writing.drain(..count)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Poll::Ready(error.into()),
                },
            }
        }
        loop {
            match wire.stream.poll_read_ready(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(error.into()),
                Poll::Ready(Ok(())) => {}
            }
            match wire.stream.try_read(wire.inflow.room()) {
                Ok(0) => return Poll::Ready(closed()),
                Ok(count) => wire.inflow.end += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(error.into()),
            }
            loop {
                match wire.inflow.reply() {
                    Ok(Some(reply)) => {
                        if !self.hand_out(reply) {
                            return Poll::Ready(Broken::Lost("the server sent a reply to no command".into()));
                        }
                    }
                    Ok(None) => break,
                    Err(nonsense) => return Poll::Ready(nonsense.into()),
                }
            }
        }
    }

    fn hand_out(&self, reply: &[u8]) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(waiter) = state.waiting.front().cloned() else { return false };
        let mut waiter = waiter.borrow_mut();
        waiter.inbox.extend_from_slice(reply);
        waiter.missing -= 1;
        if waiter.missing == 0 {
            state.waiting.pop_front();
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
        true
    }

    fn fail(&self, broken: Broken) {
        let waiting = {
            let mut state = self.state.borrow_mut();
            state.out.clear();
            state.driver = None;
            state.broken = Some(broken.clone());
            std::mem::take(&mut state.waiting)
        };
        for waiter in waiting {
            let mut waiter = waiter.borrow_mut();
            waiter.broken = Some(broken.clone());
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    /// Opens a lost connection again, if nobody else is at it.
    async fn restore(self: &Rc<Self>) -> Result<(), Broken> {
        let mut retry_at = {
            let mut state = self.state.borrow_mut();
            match &state.broken {
                None => return Ok(()),
                Some(broken) if state.reconnecting => return Err(broken.clone()),
                Some(_) => {}
            }
            state.reconnecting = true;
            state.retry_at
        };
        let result = reconnect(&self.address, &mut retry_at).await;
        let mut state = self.state.borrow_mut();
        state.reconnecting = false;
        state.retry_at = retry_at;
        match result {
            Ok(wire) => {
                state.broken = None;
                drop(state);
                self.serve(wire);
                Ok(())
            }
            Err(broken) => {
                state.broken = Some(broken.clone());
                Err(broken)
            }
        }
    }
}

/// A share in a [`SharedConnection`].
#[derive(Debug)]
pub(crate) struct SharedLink {
    connection: Rc<SharedConnection>,
    waiter: Rc<RefCell<Waiter>>,
}

impl SharedLink {
    pub(crate) fn new(connection: Rc<SharedConnection>) -> Self {
        SharedLink { connection, waiter: Rc::default() }
    }

    async fn exchange(&mut self, out: &[u8], replies: usize, inbox: &mut Vec<u8>) -> Result<(), Broken> {
        inbox.clear();
        let down = self.connection.state.borrow().broken.is_some();
        if down {
            self.connection.restore().await?;
        }
        {
            let mut waiter = self.waiter.borrow_mut();
            waiter.missing = replies;
            waiter.broken = None;
            // The client's buffer receives the replies without another copy.
            std::mem::swap(&mut waiter.inbox, inbox);
            let mut state = self.connection.state.borrow_mut();
            state.out.extend_from_slice(out);
            state.waiting.push_back(Rc::clone(&self.waiter));
            if let Some(driver) = state.driver.take() {
                driver.wake();
            }
        }
        std::future::poll_fn(|context| {
            let mut waiter = self.waiter.borrow_mut();
            if let Some(broken) = waiter.broken.take() {
                return Poll::Ready(Err(broken));
            }
            if waiter.missing == 0 {
                std::mem::swap(&mut waiter.inbox, inbox);
                return Poll::Ready(Ok(()));
            }
            waiter.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}
