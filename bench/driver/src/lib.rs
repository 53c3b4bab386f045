//! Stores behind a driver: another process, in any language, that speaks the
//! protocol of `docs/driver-protocol.md`.
//!
//! The driver is started when its capabilities are first asked for, once, and
//! ends with the store. Service times are the driver's own.

pub mod check;
mod client;
mod frame;
mod link;
mod meeting;
mod process;
pub mod serve;

pub use client::DriverClient;

use frame::{Answer, Body, CAN_BATCH, CAN_SERVE_APART, Frames, Nonsense, ask, tell};
use link::{Ends, Exited, Link};
use meeting::Meeting;
use process::{Process, Talk};
use serval_model::{
    Execution, OperationKinds, Purpose, Reply, Schema, Store, StoreError, StoreInfo,
    properties::{Faults, Kind, Properties, Property, Reader, Table},
};
use std::{
    cell::Cell,
    collections::VecDeque,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Command, ExitStatus},
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

const COMMAND: Property = Property::serval(
    "driver.command",
    Kind::Text,
    "Program of the driver and its arguments, in shell syntax. It is started once, with a Unix socket as \
     its standard input and output.",
);
const SOCKET: Property = Property::serval(
    "driver.socket",
    Kind::Path,
    "Unix socket on which a running driver listens, instead of driver.command. Each event loop connects \
     once.",
);
/// Whether clients have connections of their own.
pub const CONNECTIONS: Property = Property::serval(
    "driver.connections",
    Kind::Choice(&["client", "shared"]),
    "Use of connections. client: each client has a connection of its own, if the driver supports that, \
     which saves the driver handing requests from one thread to another. shared: the clients of an event \
     loop share one, as with other drivers.",
)
.default("client");
/// How long a driver may be silent.
pub const TIMEOUT: Property = Property::serval(
    "driver.timeout",
    Kind::SECONDS,
    "Longest silence of a driver while requests are in flight; then the run ends with an error.",
)
.default("60")
.unit("s");
/// How long a driver may take to exit.
pub const GRACE: Property = Property::serval(
    "driver.grace",
    Kind::SECONDS,
    "Time that a driver has to exit after the end of its input, before it is killed.",
)
.default("10")
.unit("s");

/// What help shows of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "driver",
    aliases: &[],
    summary: "Any store behind a driver: a program that speaks Serval's driver protocol",
    details: "Serval starts the program named by driver.command and sends requests over a Unix socket. \
              docs/driver-protocol.md describes the protocol, drivers/python has a driver of 150 lines, \
              and 'serval driver check -- PROGRAM' tests one. All properties of the run are passed to it. \
              Service time is measured by the driver around its client library; response time runs to the \
              receipt of the outcome; DRIVER-HOP is the difference. Clients share one event loop, and one \
              connection unless the driver supports more (driver.connections).",
    time_series: true,
    behind_driver: true,
    properties: Table { heading: "driver", properties: &[&COMMAND, &SOCKET, &CONNECTIONS, &TIMEOUT, &GRACE] },
};

/// What a driver is told in the greeting: that it may tell of flushes.
const FLUSHES: (&str, &str) = ("driver.flushes", "told");

/// What is said of a driver that is gone.
const CLOSED: &str = "It has closed the connection";

/// Where a driver comes from.
enum Origin {
    /// It is started. The words are for people.
    Program(Box<dyn Fn() -> Command + Send + Sync>, String),
    /// It listens.
    Socket(PathBuf),
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Origin {
    fn shown(&self) -> String {
        match self {
            Origin::Program(_, shown) => shown.clone(),
            Origin::Socket(path) => path.display().to_string(),
        }
    }
}

/// What a driver says of itself.
#[derive(Debug, Clone)]
struct Welcome {
    name: String,
    capabilities: u32,
    facts: Vec<(String, String)>,
}

/// A driver that has greeted.
#[derive(Debug)]
struct Running {
    /// Closed before the process is waited for: fields drop in this order.
    talk: Talk,
    frames: Frames,
    process: Option<Process>,
    welcome: Welcome,
    /// The request that has prepared it, for further connections.
    prepared: Option<Vec<u8>>,
    /// Whether an event loop has the connection.
    lent: bool,
    /// Requests of an event loop that ended before their answers came. What
    /// comes next on the connection is theirs.
    abandoned: usize,
    /// What went wrong on it, if something has.
    broken: Option<String>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Fresh,
    Running(Box<Running>),
    Failed(StoreError),
}

/// What the store and its clients share.
#[derive(Debug)]
struct Shared {
    origin: Origin,
    state: Mutex<State>,
}

impl Shared {
    /// An error of the driver with its exit and last words, for which it is
    /// given a moment.
    fn failed(&self, what: &str) -> StoreError {
        let what = what.trim_end_matches('.');
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Running(running) if let Some(process) = &running.process => process.failed(what),
            _ => self.broken(what),
        }
    }

    /// The same, at once.
    fn broken(&self, what: &str) -> StoreError {
        let which = match &self.origin {
            Origin::Program(..) => format!("driver '{}'", self.origin.shown()),
            Origin::Socket(_) => format!("driver at '{}'", self.origin.shown()),
        };
        StoreError::new(which, format!("{}.", what.trim_end_matches('.')))
    }

    /// Whether the driver's process has ended.
    fn has_exited(&self) -> bool {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Running(running) => {
                running.process.as_ref().is_some_and(|process| process.exit(Duration::ZERO).is_some())
            }
            _ => false,
        }
    }
}

/// A store behind a driver.
#[derive(Debug)]
pub struct Driver {
    properties: Vec<(String, String)>,
    timeout: Duration,
    grace: Duration,
    /// Whether clients have connections of their own if the driver can.
    apart: bool,
    shared: Arc<Shared>,
}

impl Driver {
    /// From its properties; starts nothing.
    pub fn open(properties: &Properties) -> Result<Driver, Faults> {
        let mut reader = Reader::new(properties);
        let command = reader.optional_text(&COMMAND).filter(|command| !command.trim().is_empty());
        let socket = reader.path(&SOCKET);
        let origin = match (command, socket) {
            (Some(command), None) => {
                let line = command.clone();
                Some(Origin::Program(Box::new(move || process::shell(&line)), command))
            }
            (None, Some(path)) => Some(Origin::Socket(path)),
            (Some(_), Some(_)) => {
                reader.fault(&SOCKET, "and driver.command cannot both be set: choose one");
                None
            }
            (None, None) => {
                reader.fault_overall(
                    "nothing says which driver: set driver.command to its program, or driver.socket",
                );
                None
            }
        };
        Driver::new(origin, properties, reader)
    }

    /// A driver that a store of Serval's starts by itself.
    pub fn program(
        command: impl Fn() -> Command + Send + Sync + 'static,
        shown: String,
        properties: &Properties,
        reader: Reader<'_>,
    ) -> Result<Driver, Faults> {
        Driver::new(Some(Origin::Program(Box::new(command), shown)), properties, reader)
    }

    fn new(
        origin: Option<Origin>,
        properties: &Properties,
        mut reader: Reader<'_>,
    ) -> Result<Driver, Faults> {
        let (timeout, grace) = (reader.duration(&TIMEOUT), reader.duration(&GRACE));
        let apart = reader.choice(&CONNECTIONS) == "client";
        if timeout < Duration::from_millis(10) {
            reader.fault(&TIMEOUT, "must be 10 ms or more");
        }
        reader.finish()?;
        let Some(origin) = origin else { return Err(Faults::one("nothing says which driver")) };
        // What it is told in any case, in one form.
        let told = [(FLUSHES.0, FLUSHES.1.to_owned()), (GRACE.name, grace.as_secs_f64().to_string())];
        Ok(Driver {
            properties: properties
                .iter()
                .map(|(name, setting)| (name, setting.value.clone()))
                .filter(|(name, _)| told.iter().all(|(own, _)| name != own))
                .chain(told.iter().map(|(name, value)| (*name, value.clone())))
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            timeout,
            grace,
            apart,
            shared: Arc::new(Shared { origin, state: Mutex::default() }),
        })
    }

    /// Does something with the driver, which is started first.
    fn with<T>(
        &self,
        something: impl FnOnce(&mut Running) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Fresh) {
            *state = match self.start() {
                Ok(running) => State::Running(Box::new(running)),
                Err(error) => State::Failed(error),
            };
        }
        match &mut *state {
            State::Running(running) => something(running),
            State::Failed(error) => Err(error.clone()),
            State::Fresh => Err(StoreError::new(INFO.name, "was not started")),
        }
    }

    fn start(&self) -> Result<Running, StoreError> {
        match &self.shared.origin {
            Origin::Program(command, shown) => {
                let (process, mut talk) = Process::start(command(), shown, self.grace)?;
                let mut frames = Frames::default();
                match self.greet(&mut talk, &mut frames) {
                    Ok(welcome) => Ok(Running {
                        talk,
                        frames,
                        process: Some(process),
                        welcome,
                        prepared: None,
                        lent: false,
                        abandoned: 0,
                        broken: None,
                    }),
                    Err(what) => {
                        drop(talk);
                        Err(process.failed(&what))
                    }
                }
            }
            Origin::Socket(path) => {
                let (talk, frames, welcome) = self.dial(path)?;
                Ok(Running {
                    talk,
                    frames,
                    process: None,
                    welcome,
                    prepared: None,
                    lent: false,
                    abandoned: 0,
                    broken: None,
                })
            }
        }
    }

    fn exited(&self) -> Exited {
        let shared = Arc::clone(&self.shared);
        Box::new(move || shared.has_exited())
    }

    fn dial(&self, path: &PathBuf) -> Result<(Talk, Frames, Welcome), StoreError> {
        let failed = |what: String| StoreError::new(format!("driver at '{}'", path.display()), what);
        let stream = UnixStream::connect(path).map_err(|error| {
            failed(format!("Cannot connect to the socket (driver.socket): {error}. Does the driver run?"))
        });
        let requests = stream?;
        let answers =
            requests.try_clone().map_err(|error| failed(format!("No second end of its socket: {error}")))?;
        let (mut talk, mut frames) = (Talk { requests, answers }, Frames::default());
        let welcome = self.greet(&mut talk, &mut frames).map_err(failed)?;
        Ok((talk, frames, welcome))
    }

    /// Ends a driver that was started: its exit status, or the time after which
    /// it had none. `None` for a driver that listens.
    pub(crate) fn end(self) -> Option<Result<ExitStatus, Duration>> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Running(running) = std::mem::take(&mut *state) else { return None };
        let Running { talk, process, .. } = *running;
        drop(talk);
        process.map(|process| process.exit(self.grace).ok_or(self.grace))
    }

    /// Greets a driver. Errors are what went wrong.
    fn greet(&self, talk: &mut Talk, frames: &mut Frames) -> Result<Welcome, String> {
        let mut out = Vec::new();
        frame::put_frame(&mut out, ask::HELLO, |out| {
            frame::put_u32(out, frame::MAGIC);
            frame::put_u16(out, frame::VERSION);
            frame::put_pairs(
                out,
                self.properties.iter().map(|(name, value)| (name.as_str(), value.as_str())),
            );
        });
        self.exchange(talk, frames, &out, |kind, body| match kind {
            tell::WELCOME => {
                let version = body.u16()?;
                if version != frame::VERSION {
                    return Err(Nonsense::Version(version));
                }
                let name = body.text()?.to_owned();
                let capabilities = body.u32()?;
                Ok(Ok(Welcome { name, capabilities, facts: body.pairs()? }))
            }
            tell::REFUSED => Ok(Err(format!("It refuses: {}", body.text()?))),
            other => Err(Nonsense::Type(other)),
        })?
    }

    /// Sends a PREPARE. The inner error is the driver's words, the outer one
    /// what is wrong with the driver.
    fn ask_to_prepare(
        &self,
        talk: &mut Talk,
        frames: &mut Frames,
        request: &[u8],
    ) -> Result<Result<(), String>, String> {
        self.exchange(talk, frames, request, |kind, body| {
            if (kind, body.u32()?) != (tell::RESULT, 0) {
                return Err(Nonsense::Type(kind));
            }
            let Answer { status, message, .. } = frame::answer(body, 0, &mut Reply::new())?;
            let words = if message.is_empty() { status.name() } else { message };
            Ok(if status.is_ok() { Ok(()) } else { Err(words.to_owned()) })
        })
    }

    /// Sends a frame and reads the one that answers it, blocking.
    fn exchange<T>(
        &self,
        talk: &mut Talk,
        frames: &mut Frames,
        out: &[u8],
        read: impl FnOnce(u8, &mut Body<'_>) -> Result<T, Nonsense>,
    ) -> Result<T, String> {
        let system = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                format!("It does not answer within {:?} (driver.timeout)", self.timeout)
            }
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => CLOSED.to_owned(),
            _ => format!("The connection to it fails: {error}"),
        };
        for stream in [&talk.requests, &talk.answers] {
            stream.set_nonblocking(false).map_err(system)?;
            stream.set_read_timeout(Some(self.timeout)).map_err(system)?;
            stream.set_write_timeout(Some(self.timeout)).map_err(system)?;
        }
        talk.requests.write_all(out).map_err(system)?;
        let nonsense =
            |nonsense: Nonsense| format!("It does not speak the driver protocol: it has sent {nonsense}");
        loop {
            if let Some(frame) = frames.next().map_err(nonsense)? {
                let (kind, mut body) = Body::of(frame).map_err(nonsense)?;
                let value = read(kind, &mut body).map_err(nonsense)?;
                body.end().map_err(nonsense)?;
                return Ok(value);
            }
            match talk.answers.read(frames.room()).map_err(system)? {
                0 => return Err(CLOSED.to_owned()),
                count => frames.filled(count),
            }
        }
    }
}

impl Store for Driver {
    type Local = Local;
    type Client = DriverClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn times_itself(&self) -> bool {
        true
    }

    fn event_loops_max(&self) -> usize {
        match self.shared.origin {
            // Its input and output are one connection.
            Origin::Program(..) => 1,
            Origin::Socket(_) => usize::MAX,
        }
    }

    fn capabilities(&self) -> OperationKinds {
        // A driver that cannot be started says so when it is prepared.
        let capabilities = self.with(|running| Ok(running.welcome.capabilities));
        capabilities.map_or(OperationKinds::ALL, frame::verbs)
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let mut out = Vec::new();
        frame::put_frame(&mut out, ask::PREPARE, |out| {
            frame::put_u32(out, 0);
            out.push(u8::from(purpose == Purpose::Run));
            frame::put_bytes(out, schema.table.as_bytes());
            frame::put_u32(out, schema.fields.len() as u32);
            schema.fields.iter().for_each(|field| frame::put_bytes(out, field.as_bytes()));
        });
        let result = self.with(|Running { talk, frames, welcome, prepared, .. }| {
            let result = self.ask_to_prepare(talk, frames, &out);
            *prepared = Some(out);
            Ok((result, welcome.name.clone()))
        })?;
        match result {
            (Ok(Ok(())), _) => Ok(()),
            (Ok(Err(words)), name) => Err(StoreError::new(name, words)),
            (Err(what), _) => Err(self.shared.failed(&what)),
        }
    }

    fn describe(&self) -> Vec<(String, String)> {
        let mut facts = vec![("driver".to_owned(), self.shared.origin.shown())];
        if let Ok(welcome) = self.with(|running| Ok(running.welcome.clone())) {
            facts.push(("store".to_owned(), welcome.name));
            facts.extend(welcome.facts);
        }
        facts
    }

    fn explain(&self, lost: StoreError) -> StoreError {
        self.shared.failed(&lost.problem)
    }

    fn local(&self) -> Result<Local, StoreError> {
        let failed = |error: std::io::Error| {
            StoreError::new(format!("driver '{}'", self.shared.origin.shown()), error.to_string())
        };
        if let Some(broken) = self.with(|running| Ok(running.broken.clone()))? {
            return Err(self.shared.failed(&broken));
        }
        let (ends, capabilities) = match &self.shared.origin {
            Origin::Program(..) => self.with(|running| {
                if running.lent || running.abandoned > 0 {
                    let problem = match running.abandoned {
                        0 => "serves one event loop, and has one".to_owned(),
                        n => format!("still has {n} requests under way that were given up"),
                    };
                    return Err(StoreError::new(running.welcome.name.clone(), problem));
                }
                running.lent = true;
                let requests = running.talk.requests.try_clone().map_err(failed)?;
                let answers = running.talk.answers.try_clone().map_err(failed)?;
                let ends = Ends { requests: requests.into(), answers: answers.into() };
                Ok((ends, running.welcome.capabilities))
            })?,
            Origin::Socket(path) => {
                let (mut talk, mut frames, welcome) = self.dial(path)?;
                if let Some(request) = self.with(|running| Ok(running.prepared.clone()))? {
                    let prepared = self.ask_to_prepare(&mut talk, &mut frames, &request);
                    prepared
                        .and_then(std::convert::identity)
                        .map_err(|what| StoreError::new(welcome.name.clone(), what))?;
                }
                let ends = Ends { requests: talk.requests.into(), answers: talk.answers.into() };
                (ends, welcome.capabilities)
            }
        };
        let heard = Rc::default();
        let (link, worker) = Link::new(ends, self.timeout, &heard, self.exited()).map_err(failed)?;
        tokio::task::spawn_local(worker);
        let meeting = if self.apart && capabilities & CAN_SERVE_APART != 0 { Meeting::new() } else { None };
        let batches = capabilities & CAN_BATCH != 0;
        Ok(Local { link, shared: Arc::clone(&self.shared), batches, heard, meeting })
    }

    async fn connect(&self, local: &Local, client: usize) -> Result<DriverClient, StoreError> {
        let number = u32::try_from(client)
            .map_err(|_| StoreError::new(INFO.name, "a driver has at most 2^32 clients"))?;
        let mut client = DriverClient {
            slot: local.link.slot(),
            link: Rc::clone(&local.link),
            shared: Arc::clone(&self.shared),
            number,
            batches: local.batches,
            service_ns: None,
            flushes: VecDeque::new(),
        };
        let place = local.meeting.as_ref().map(|meeting| meeting.place(number)).transpose();
        let place =
            place.map_err(|error| StoreError::new(INFO.name, format!("no pipes for a client: {error}")))?;
        let kind = if place.is_some() { ask::OPEN_APART } else { ask::OPEN };
        let mut none = Reply::new();
        let opening = client.call(kind, 0, &mut none, |out| {
            frame::put_u32(out, number);
            if let Some(place) = &place {
                frame::put_bytes(out, place.requests().as_bytes());
                frame::put_bytes(out, place.answers().as_bytes());
            }
        });
        let outcome = opening.await;
        if outcome.is_ok() {
            if let Some(place) = place {
                let met =
                    place.meet().and_then(|ends| Link::new(ends, self.timeout, &local.heard, self.exited()));
                let (link, worker) = met.map_err(|error| {
                    let words = format!("It says that client {number} is connected, and is not: {error}");
                    self.shared.failed(&words)
                })?;
                tokio::task::spawn_local(worker);
                client.slot = link.slot();
                client.link = link;
            }
            return Ok(client);
        }
        if let Some(broken) = client.link.broken() {
            return Err(self.shared.failed(&broken));
        }
        let words = outcome.message.unwrap_or_else(|| outcome.status.name().into());
        let name = self.with(|running| Ok(running.welcome.name.clone())).unwrap_or_default();
        Err(StoreError::new(name, format!("client {number} cannot be opened: {words}")))
    }
}

/// What the clients of one event loop share.
#[derive(Debug)]
pub struct Local {
    link: Rc<Link>,
    shared: Arc<Shared>,
    batches: bool,
    /// What came from the driver on all connections of the loop.
    heard: Rc<Cell<u64>>,
    /// Where clients get connections of their own, if they do.
    meeting: Option<Meeting>,
}

impl Drop for Local {
    fn drop(&mut self) {
        if let State::Running(running) =
            &mut *self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
        {
            running.lent = false;
            running.abandoned += self.link.under_way();
            running.broken = self.link.broken().map(|broken| broken.to_string());
        }
    }
}
