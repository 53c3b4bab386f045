//! Stores behind a driver: another process, in any language, that speaks the
//! protocol of `docs/driver-protocol.md`.
//!
//! The driver starts once, when its capabilities are first asked for, and ends
//! with the store. The driver measures service times itself.

pub mod check;
mod client;
mod frame;
mod link;
mod pipes;
mod process;
pub mod serve;

pub use client::DriverClient;

use frame::{
    AnswerHead, CAN_BATCH, CAN_SERVE_APART, FrameBody, FrameBuffer, ProtocolError, request, response,
};
use link::{ConnectionEnds, DriverLink, HasExited};
use pipes::PipeFolder;
use process::{DriverProcess, Streams};
use serval_model::{
    Execution, OperationKinds, Purpose, Reply, Schema, Store, StoreError, StoreInfo,
    properties::{Faults, Kind, Properties, Property, PropertyTable, Reader, units::counted},
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
/// Whether each client has a connection of its own.
pub const CONNECTIONS: Property = Property::serval(
    "driver.connections",
    Kind::Choice(&["client", "shared"]),
    "Use of connections. client: each client has a connection of its own, if the driver supports that, \
     which saves the driver handing requests from one thread to another. shared: the clients of an event \
     loop share one, as with other drivers.",
)
.default("client");
/// Silence after which a driver counts as lost.
pub const TIMEOUT: Property = Property::serval(
    "driver.timeout",
    Kind::SECONDS,
    "Longest silence of a driver while requests are in flight, the greeting (HELLO) included; then the run \
     ends with an error.",
)
.default("60")
.unit("s");
/// Time limit for a driver to exit.
pub const GRACE: Property = Property::serval(
    "driver.grace",
    Kind::SECONDS,
    "Time that a driver has to exit after the end of its input, before it is killed.",
)
.default("10")
.unit("s");

/// Description of this store for help.
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
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: true,
    properties: PropertyTable {
        heading: "driver",
        properties: &[&COMMAND, &SOCKET, &CONNECTIONS, &TIMEOUT, &GRACE],
    },
};

/// Property of the greeting that allows the driver to report flushes.
const FLUSHES: (&str, &str) = ("driver.flushes", "told");

/// End of a message about a program that does not answer HELLO: the advice.
const NO_WELCOME: &str = ": a driver answers HELLO as soon as it has started (docs/driver-protocol.md); one that starts \
                          slowly needs a longer driver.timeout";

/// Message for a driver whose connection has ended.
const CLOSED: &str = "It has closed the connection";

/// Way of reaching a driver.
enum DriverOrigin {
    /// Start a program; the text is for messages.
    Program(Box<dyn Fn() -> Command + Send + Sync>, String),
    /// Connect to a socket.
    Socket(PathBuf),
}

impl std::fmt::Debug for DriverOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

impl DriverOrigin {
    fn shown(&self) -> String {
        match self {
            DriverOrigin::Program(_, shown) => shown.clone(),
            DriverOrigin::Socket(path) => path.display().to_string(),
        }
    }
}

/// A driver's greeting.
#[derive(Debug, Clone)]
struct DriverWelcome {
    name: String,
    capabilities: u32,
    facts: Vec<(String, String)>,
}

/// A connected driver.
#[derive(Debug)]
struct RunningDriver {
    /// Dropped before `process`, which waits for the exit that follows.
    streams: Streams,
    frames: FrameBuffer,
    process: Option<DriverProcess>,
    welcome: DriverWelcome,
    /// The PREPARE request, which is repeated on further connections.
    prepared: Option<Vec<u8>>,
    /// Whether an event loop has the connection.
    lent: bool,
    /// Requests of an ended event loop without an answer. Their answers
    /// come next on the connection.
    abandoned: usize,
    /// Error of the connection, if it failed.
    broken: Option<String>,
}

#[derive(Debug, Default)]
enum DriverState {
    #[default]
    Fresh,
    Running(Box<RunningDriver>),
    Failed(StoreError),
}

/// State that the store and its clients share.
#[derive(Debug)]
struct DriverShared {
    origin: DriverOrigin,
    state: Mutex<DriverState>,
}

impl DriverShared {
    /// Returns an error of the driver with its exit status and the end of its
    /// standard error; waits for these for a moment.
    fn failed(&self, what: &str) -> StoreError {
        let what = what.trim_end_matches('.');
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            DriverState::Running(running) if let Some(process) = &running.process => process.failed(what),
            _ => self.broken(what),
        }
    }

    /// Returns an error of the driver without waiting for its exit status.
    fn broken(&self, what: &str) -> StoreError {
        let which = match &self.origin {
            DriverOrigin::Program(..) => format!("driver '{}'", self.origin.shown()),
            DriverOrigin::Socket(_) => format!("driver at '{}'", self.origin.shown()),
        };
        StoreError::new(which, format!("{}.", what.trim_end_matches('.')))
    }

    /// Returns whether the driver's process has exited.
    fn has_exited(&self) -> bool {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            DriverState::Running(running) => {
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
    /// Whether clients have connections of their own if the driver supports it.
    apart: bool,
    shared: Arc<DriverShared>,
}

impl Driver {
    /// Reads the properties. Does not start the driver.
    pub fn open(properties: &Properties) -> Result<Driver, Faults> {
        let mut reader = Reader::new(properties);
        let command = reader.optional_text(&COMMAND).filter(|command| !command.trim().is_empty());
        let socket = reader.path(&SOCKET);
        let origin = match (command, socket) {
            (Some(command), None) => {
                let line = command.clone();
                Some(DriverOrigin::Program(Box::new(move || process::shell(&line)), command))
            }
            (None, Some(path)) => Some(DriverOrigin::Socket(path)),
            (Some(_), Some(_)) => {
                reader.fault(&SOCKET, "and driver.command cannot both be set: choose one");
                None
            }
            (None, None) => {
                reader.fault_overall(
                    "no driver is given: set driver.command to its command line, or driver.socket to its socket",
                );
                None
            }
        };
        Driver::new(origin, properties, reader)
    }

    /// Returns a driver that Serval starts for one of its own stores.
    pub fn program(
        command: impl Fn() -> Command + Send + Sync + 'static,
        shown: String,
        properties: &Properties,
        reader: Reader<'_>,
    ) -> Result<Driver, Faults> {
        Driver::new(Some(DriverOrigin::Program(Box::new(command), shown)), properties, reader)
    }

    fn new(
        origin: Option<DriverOrigin>,
        properties: &Properties,
        mut reader: Reader<'_>,
    ) -> Result<Driver, Faults> {
        let (timeout, grace) = (reader.duration(&TIMEOUT), reader.duration(&GRACE));
        let apart = reader.choice(&CONNECTIONS) == "client";
        if timeout < Duration::from_millis(10) {
            reader.fault(&TIMEOUT, "must be 10 ms or more");
        }
        reader.finish()?;
        let Some(origin) = origin else { return Err(Faults::one("no driver is given")) };
        // Every driver gets these, in one form.
        let fixed = [(FLUSHES.0, FLUSHES.1.to_owned()), (GRACE.name, grace.as_secs_f64().to_string())];
        Ok(Driver {
            properties: properties
                .iter()
                .map(|(name, setting)| (name, setting.value.clone()))
                .filter(|(name, _)| fixed.iter().all(|(own, _)| name != own))
                .chain(fixed.iter().map(|(name, value)| (*name, value.clone())))
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            timeout,
            grace,
            apart,
            shared: Arc::new(DriverShared { origin, state: Mutex::default() }),
        })
    }

    /// Calls a function with the driver; starts it first if necessary.
    fn with<T>(
        &self,
        something: impl FnOnce(&mut RunningDriver) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, DriverState::Fresh) {
            *state = match self.start() {
                Ok(running) => DriverState::Running(Box::new(running)),
                Err(error) => DriverState::Failed(error),
            };
        }
        match &mut *state {
            DriverState::Running(running) => something(running),
            DriverState::Failed(error) => Err(error.clone()),
            DriverState::Fresh => Err(StoreError::new(INFO.name, "was not started")),
        }
    }

    fn start(&self) -> Result<RunningDriver, StoreError> {
        match &self.shared.origin {
            DriverOrigin::Program(command, shown) => {
                let (process, mut streams) = DriverProcess::start(command(), shown, self.grace)?;
                let mut frames = FrameBuffer::default();
                match self.greet(&mut streams, &mut frames) {
                    Ok(welcome) => Ok(RunningDriver {
                        streams,
                        frames,
                        process: Some(process),
                        welcome,
                        prepared: None,
                        lent: false,
                        abandoned: 0,
                        broken: None,
                    }),
                    Err(what) => {
                        drop(streams);
                        Err(process.failed(&what))
                    }
                }
            }
            DriverOrigin::Socket(path) => {
                let (streams, frames, welcome) = self.dial(path)?;
                Ok(RunningDriver {
                    streams,
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

    fn exited(&self) -> HasExited {
        let shared = Arc::clone(&self.shared);
        Box::new(move || shared.has_exited())
    }

    fn dial(&self, path: &PathBuf) -> Result<(Streams, FrameBuffer, DriverWelcome), StoreError> {
        let failed = |what: String| StoreError::new(format!("driver at '{}'", path.display()), what);
        let stream = UnixStream::connect(path).map_err(|error| {
            failed(format!("Cannot connect to the socket (driver.socket): {error}. Is the driver running?"))
        });
        let requests = stream?;
        let answers =
            requests.try_clone().map_err(|error| failed(format!("No second end of its socket: {error}")))?;
        let (mut streams, mut frames) = (Streams { requests, answers }, FrameBuffer::default());
        let welcome = self.greet(&mut streams, &mut frames).map_err(failed)?;
        Ok((streams, frames, welcome))
    }

    /// Ends a driver that Serval started. Returns its exit status, or the time limit
    /// that it exceeded. `None` for a driver behind a socket.
    pub(crate) fn end(self) -> Option<Result<ExitStatus, Duration>> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let DriverState::Running(running) = std::mem::take(&mut *state) else { return None };
        let RunningDriver { streams, process, .. } = *running;
        drop(streams);
        process.map(|process| process.exit(self.grace).ok_or(self.grace))
    }

    /// Exchanges greetings with a driver.
    fn greet(&self, streams: &mut Streams, frames: &mut FrameBuffer) -> Result<DriverWelcome, String> {
        let mut out = Vec::new();
        frame::put_frame(&mut out, request::HELLO, |out| {
            frame::put_u32(out, frame::MAGIC);
            frame::put_u16(out, frame::VERSION);
            frame::put_pairs(
                out,
                self.properties.iter().map(|(name, value)| (name.as_str(), value.as_str())),
            );
        });
        self.exchange(streams, frames, &out, NO_WELCOME, |kind, body| match kind {
            response::WELCOME => {
                let version = body.u16()?;
                if version != frame::VERSION {
                    return Err(ProtocolError::Version(version));
                }
                let name = body.text()?.to_owned();
                let capabilities = body.u32()?;
                Ok(Ok(DriverWelcome { name, capabilities, facts: body.pairs()? }))
            }
            response::REFUSED => Ok(Err(format!("It refuses: {}", body.text()?))),
            other => Err(ProtocolError::Type(other)),
        })?
    }

    /// Sends a PREPARE. The inner error is the store's, the outer one the
    /// driver's.
    fn ask_to_prepare(
        &self,
        streams: &mut Streams,
        frames: &mut FrameBuffer,
        request: &[u8],
    ) -> Result<Result<(), String>, String> {
        self.exchange(streams, frames, request, "", |kind, body| {
            if (kind, body.u32()?) != (response::RESULT, 0) {
                return Err(ProtocolError::Type(kind));
            }
            let AnswerHead { status, message, .. } = frame::answer(body, 0, &mut Reply::new())?;
            let words = if message.is_empty() { status.name() } else { message };
            Ok(if status.is_ok() { Ok(()) } else { Err(words.to_owned()) })
        })
    }

    /// Sends a frame and waits for its answer. `advice` ends the message of a driver that does not answer.
    fn exchange<T>(
        &self,
        streams: &mut Streams,
        frames: &mut FrameBuffer,
        out: &[u8],
        advice: &str,
        read: impl FnOnce(u8, &mut FrameBody<'_>) -> Result<T, ProtocolError>,
    ) -> Result<T, String> {
        let system = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                format!("It does not answer within {:?} (driver.timeout){advice}", self.timeout)
            }
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => CLOSED.to_owned(),
            _ => format!("The connection to it fails: {error}"),
        };
        for stream in [&streams.requests, &streams.answers] {
            stream.set_nonblocking(false).map_err(system)?;
            stream.set_read_timeout(Some(self.timeout)).map_err(system)?;
            stream.set_write_timeout(Some(self.timeout)).map_err(system)?;
        }
        streams.requests.write_all(out).map_err(system)?;
        let invalid =
            |invalid: ProtocolError| format!("It does not speak the driver protocol: it has sent {invalid}");
        loop {
            if let Some(frame) = frames.next().map_err(invalid)? {
                let (kind, mut body) = FrameBody::of(frame).map_err(invalid)?;
                let value = read(kind, &mut body).map_err(invalid)?;
                body.end().map_err(invalid)?;
                return Ok(value);
            }
            match streams.answers.read(frames.room()).map_err(system)? {
                0 => return Err(CLOSED.to_owned()),
                count => frames.filled(count),
            }
        }
    }
}

impl Store for Driver {
    type Local = DriverLocal;
    type Client = DriverClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn times_itself(&self) -> bool {
        true
    }

    fn event_loops_max(&self) -> usize {
        match self.shared.origin {
            // Its standard input and output are one connection.
            DriverOrigin::Program(..) => 1,
            DriverOrigin::Socket(_) => usize::MAX,
        }
    }

    fn capabilities(&self) -> OperationKinds {
        // `prepare` reports a driver that cannot be started.
        let capabilities = self.with(|running| Ok(running.welcome.capabilities));
        capabilities.map_or(OperationKinds::ALL, frame::verbs)
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let mut out = Vec::new();
        frame::put_frame(&mut out, request::PREPARE, |out| {
            frame::put_u32(out, 0);
            out.push(u8::from(purpose == Purpose::Run));
            frame::put_bytes(out, schema.table.as_bytes());
            frame::put_u32(out, schema.fields.len() as u32);
            schema.fields.iter().for_each(|field| frame::put_bytes(out, field.as_bytes()));
        });
        let result = self.with(|RunningDriver { streams, frames, welcome, prepared, .. }| {
            let result = self.ask_to_prepare(streams, frames, &out);
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

    fn local(&self) -> Result<DriverLocal, StoreError> {
        let failed = |error: std::io::Error| {
            StoreError::new(format!("driver '{}'", self.shared.origin.shown()), error.to_string())
        };
        if let Some(broken) = self.with(|running| Ok(running.broken.clone()))? {
            return Err(self.shared.failed(&broken));
        }
        let (ends, capabilities) = match &self.shared.origin {
            DriverOrigin::Program(..) => self.with(|running| {
                if running.lent || running.abandoned > 0 {
                    let problem = match running.abandoned {
                        0 => "can serve one event loop only, and serves one already".to_owned(),
                        n => format!("has not answered {} of an earlier run", counted(n as u64, "request")),
                    };
                    return Err(StoreError::new(running.welcome.name.clone(), problem));
                }
                running.lent = true;
                let requests = running.streams.requests.try_clone().map_err(failed)?;
                let answers = running.streams.answers.try_clone().map_err(failed)?;
                let ends = ConnectionEnds { requests: requests.into(), answers: answers.into() };
                Ok((ends, running.welcome.capabilities))
            })?,
            DriverOrigin::Socket(path) => {
                let (mut streams, mut frames, welcome) = self.dial(path)?;
                if let Some(request) = self.with(|running| Ok(running.prepared.clone()))? {
                    let prepared = self.ask_to_prepare(&mut streams, &mut frames, &request);
                    prepared
                        .and_then(std::convert::identity)
                        .map_err(|what| StoreError::new(welcome.name.clone(), what))?;
                }
                let ends =
                    ConnectionEnds { requests: streams.requests.into(), answers: streams.answers.into() };
                (ends, welcome.capabilities)
            }
        };
        let heard = Rc::default();
        let (link, worker) = DriverLink::new(ends, self.timeout, &heard, self.exited()).map_err(failed)?;
        tokio::task::spawn_local(worker);
        let pipes = if self.apart && capabilities & CAN_SERVE_APART != 0 { PipeFolder::new() } else { None };
        let batches = capabilities & CAN_BATCH != 0;
        Ok(DriverLocal { link, shared: Arc::clone(&self.shared), batches, heard, pipes })
    }

    async fn connect(&self, local: &DriverLocal, client: usize) -> Result<DriverClient, StoreError> {
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
        let place = local.pipes.as_ref().map(|pipes| pipes.client(number)).transpose();
        let place =
            place.map_err(|error| StoreError::new(INFO.name, format!("no pipes for a client: {error}")))?;
        let kind = if place.is_some() { request::OPEN_APART } else { request::OPEN };
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
                let met = place
                    .meet()
                    .and_then(|ends| DriverLink::new(ends, self.timeout, &local.heard, self.exited()));
                let (link, worker) = met.map_err(|error| {
                    let words = format!(
                        "It answered OPEN-APART of client {number} without opening its pipes: {error}"
                    );
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

/// State that the clients of one event loop share.
#[derive(Debug)]
pub struct DriverLocal {
    link: Rc<DriverLink>,
    shared: Arc<DriverShared>,
    batches: bool,
    /// Number of reads from the driver on all connections of the loop.
    heard: Rc<Cell<u64>>,
    /// Folder of the clients' pipes, if they have connections of their own.
    pipes: Option<PipeFolder>,
}

impl Drop for DriverLocal {
    fn drop(&mut self) {
        if let DriverState::Running(running) =
            &mut *self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
        {
            running.lent = false;
            running.abandoned += self.link.in_flight();
            running.broken = self.link.broken().map(|broken| broken.to_string());
        }
    }
}
