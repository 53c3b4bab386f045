//! Serves one of Serval's stores as a driver. It measures the cost of the hop, and is
//! the reference for drivers in other languages.
//!
//! A blocking store executes one request after another on the reading thread. An
//! asynchronous store has all requests in flight at once.

#[cfg(test)]
mod tests;

use super::{
    FLUSHES, GRACE, INFO,
    frame::{self, CAN_BATCH, FrameBody, FrameBuffer, ProtocolError, request, response},
};
use serval_model::{
    Client, Execution, Flush, Operation, OperationKind, Outcome, Purpose, Reply, Schema, Status, Store,
    StoreError, StoreInfo, StoreOpener, Visitor,
    properties::{Faults, Origin, Properties, Reader},
};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fs::File,
    future::Future,
    io::{self, Read, Write},
    os::fd::AsFd,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Error that ends a driver before the end of its input.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The input or output failed.
    #[error("the connection to Serval fails: {0}")]
    Io(#[from] io::Error),
    /// The input violates the protocol.
    #[error("the input violates the driver protocol: {0}")]
    Protocol(String),
    /// The store's properties are wrong.
    #[error(transparent)]
    Faults(#[from] Faults),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ProtocolError> for ServeError {
    fn from(invalid: ProtocolError) -> Self {
        ServeError::Protocol(invalid.to_string())
    }
}

/// Returns standard input without a buffer; the driver has one.
pub fn input() -> Result<File, ServeError> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Returns standard output without a buffer or lock.
pub fn output() -> Result<File, ServeError> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Serves a store until the end of the input. `properties` override those of the greeting.
/// Calls `greeted` with the time limit for the exit after the end of the input.
pub fn serve(
    opener: &impl StoreOpener,
    properties: &Properties,
    mut input: impl Read + Send + 'static,
    mut output: impl Write + 'static,
    greeted: impl FnOnce(Duration),
) -> Result<(), ServeError> {
    let mut frames = FrameBuffer::default();
    let Some(greeting) = next(&mut input, &mut frames)? else { return Ok(()) };
    let mut all = Properties::new();
    for (name, value) in hello(&greeting)? {
        all.set(name, value, Origin::Program("the greeting"));
    }
    for (name, setting) in properties.iter() {
        all.set(name, &setting.value, setting.origin.clone());
    }
    let reports_flushes = all.get(FLUSHES.0).is_some_and(|setting| setting.value == FLUSHES.1);
    greeted(Reader::new(&all).duration(&GRACE));
    struct Serve<I, O> {
        info: &'static StoreInfo,
        reports_flushes: bool,
        frames: FrameBuffer,
        input: I,
        output: O,
    }
    impl<I: Read + Send + 'static, O: Write + 'static> Visitor for Serve<I, O> {
        type Output = Result<(), ServeError>;
        fn visit<S: Store>(self, store: S) -> Self::Output {
            let Serve { info, reports_flushes, frames, input, mut output } = self;
            output.write_all(&welcome(info, &store))?;
            output.flush()?;
            match store.execution() {
                Execution::Threads => in_turn(&store, reports_flushes, frames, input, output),
                Execution::EventLoops => at_once(store, reports_flushes, frames, input, output),
            }
        }
    }
    let info = opener.info();
    // Refuses in the protocol, so that Serval can report it.
    let opened = opener.open(&all, Probe);
    if let Err(faults) = opened {
        let mut out = Vec::new();
        frame::put_frame(&mut out, response::REFUSED, |out| {
            frame::put_bytes(out, faults.to_string().as_bytes())
        });
        output.write_all(&out)?;
        output.flush()?;
        return Err(faults.into());
    }
    opener.open(&all, Serve { info, reports_flushes, frames, input, output })?
}

/// Checks that a store opens.
struct Probe;

impl Visitor for Probe {
    type Output = ();
    fn visit<S: Store>(self, _: S) {}
}

/// Waits for the next complete frame; `None` at the end of the input.
fn next(input: &mut impl Read, frames: &mut FrameBuffer) -> Result<Option<Vec<u8>>, ServeError> {
    loop {
        if let Some(frame) = frames.next()? {
            return Ok(Some(frame.to_vec()));
        }
        match input.read(frames.room())? {
            0 if frames.is_partial() => {
                return Err(ServeError::Protocol("the input ends in the middle of a frame".into()));
            }
            0 => return Ok(None),
            count => frames.filled(count),
        }
    }
}

fn hello(frame: &[u8]) -> Result<Vec<(String, String)>, ServeError> {
    let (kind, mut body) = FrameBody::of(frame)?;
    if kind != request::HELLO {
        return Err(ProtocolError::Type(kind).into());
    }
    if body.u32()? != frame::MAGIC {
        return Err(ProtocolError::Magic.into());
    }
    match body.u16()? {
        frame::VERSION => {}
        other => return Err(ProtocolError::Version(other).into()),
    }
    let pairs = body.pairs()?;
    body.end()?;
    Ok(pairs)
}

fn welcome<S: Store>(info: &StoreInfo, store: &S) -> Vec<u8> {
    let verbs = store.capabilities().iter().fold(CAN_BATCH, |bits, kind| bits | 1 << kind as u32);
    let facts = store.describe();
    let mut out = Vec::new();
    frame::put_frame(&mut out, response::WELCOME, |out| {
        frame::put_u16(out, frame::VERSION);
        frame::put_bytes(out, info.name.as_bytes());
        frame::put_u32(out, verbs);
        frame::put_pairs(out, facts.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    });
    out
}

/// A request.
enum DriverRequest {
    Prepare(Schema, Purpose),
    Open,
    Close,
    Nothing,
    Verb,
}

/// Reads a request's id, client and kind; a verb into `operation`. An error has the id,
/// if it could be read.
fn request(
    frame: &[u8],
    operation: &mut Operation,
) -> Result<(u32, u32, DriverRequest), (Option<u32>, ProtocolError)> {
    let (kind, mut body) = FrameBody::of(frame).map_err(|invalid| (None, invalid))?;
    let id = body.u32().map_err(|invalid| (None, invalid))?;
    let mut read = || {
        if kind == request::PREPARE {
            let purpose = if body.u8()? == 0 { Purpose::Load } else { Purpose::Run };
            let table = body.text()?.to_owned();
            let fields = (0..body.u32()?).map(|_| Ok(body.text()?.to_owned())).collect::<Result<_, _>>()?;
            body.clone().end()?;
            return Ok((0, DriverRequest::Prepare(Schema { table, fields }, purpose)));
        }
        let client = body.u32()?;
        let verb = match kind {
            request::OPEN => return body.clone().end().map(|()| (client, DriverRequest::Open)),
            request::CLOSE => return body.clone().end().map(|()| (client, DriverRequest::Close)),
            request::READ => OperationKind::Read,
            request::UPDATE => OperationKind::Update,
            request::INSERT | request::INSERT_BATCH => OperationKind::Insert,
            request::SCAN => OperationKind::Scan,
            request::DELETE => OperationKind::Delete,
            other => return Err(ProtocolError::Type(other)),
        };
        operation.begin(verb);
        operation.table.clear();
        operation.table.push_str(body.text()?);
        if kind == request::INSERT_BATCH {
            let count = body.u32()?;
            if count == 0 {
                // An empty batch would look like a single insert.
                return body.clone().end().map(|()| (client, DriverRequest::Nothing));
            }
            for _ in 0..count {
                let (key, record) = operation.push_batch();
                key.push_str(body.text()?);
                body.record(record)?;
            }
        } else {
            operation.key.push_str(body.text()?);
            match verb {
                OperationKind::Read => body.fields(&mut operation.fields)?,
                OperationKind::Update | OperationKind::Insert => body.record(&mut operation.record)?,
                OperationKind::Scan => {
                    operation.scan_length = body.u64()?;
                    body.fields(&mut operation.fields)?;
                }
                OperationKind::Delete => {}
            }
        }
        body.clone().end()?;
        Ok((client, DriverRequest::Verb))
    };
    read().map(|(client, asked)| (id, client, asked)).map_err(|invalid| (Some(id), invalid))
}

/// Calls the store. Returns the outcome and the service time, ns.
async fn call<C: Client>(client: &mut C, operation: &Operation, reply: &mut Reply) -> (Outcome, u64) {
    let Operation { table, key, fields, record, .. } = operation;
    reply.clear();
    let start = Instant::now();
    let outcome = match operation.kind {
        OperationKind::Read => client.read(table, key, fields, reply).await,
        OperationKind::Update => client.update(table, key, record).await,
        OperationKind::Insert if operation.batch().is_empty() => client.insert(table, key, record).await,
        OperationKind::Insert => client.insert_batch(table, operation.batch()).await,
        OperationKind::Scan => client.scan(table, key, operation.scan_length, fields, reply).await,
        OperationKind::Delete => client.delete(table, key).await,
    };
    let took = start.elapsed().as_nanos() as u64;
    if !outcome.is_ok() {
        reply.clear();
    }
    (outcome, took)
}

/// The answer to a request.
struct Response {
    id: u32,
    outcome: Outcome,
    /// Service time, ns.
    took: u64,
    /// Flushes of the client's buffer since its last answer.
    flushes: Vec<Flush>,
}

impl Response {
    /// Returns an answer without a service time.
    fn plainly(id: u32, outcome: Outcome) -> Response {
        Response { id, outcome, took: 0, flushes: Vec::new() }
    }

    fn put(&self, out: &mut Vec<u8>, reply: &Reply) {
        let Response { id, outcome, took, flushes } = self;
        let message = outcome.message.as_deref().unwrap_or_default();
        if !frame::put_result(out, *id, outcome.status, *took, message, reply.records(), flushes) {
            let words = "the records are more than the driver protocol takes in one answer";
            frame::put_result(out, *id, Status::Error, *took, words, &[], &[]);
        }
    }
}

/// Returns a client's flushes, if Serval understands them.
fn flushes<C: Client>(client: &mut C, reports_flushes: bool) -> Vec<Flush> {
    if !reports_flushes || !client.buffers() {
        return Vec::new();
    }
    std::iter::from_fn(|| client.flushed()).take(frame::FLUSHES_MAX as usize).collect()
}

fn plain(result: Result<(), StoreError>) -> Outcome {
    result.map_or_else(|error| Outcome::error(error.to_string()), |()| Outcome::OK)
}

fn no_client(client: u32) -> Outcome {
    Outcome::failed(Status::BadRequest, format!("client {client} is not open"))
}

/// Polls a blocking store's future, which is ready at once.
fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Serves a blocking store: one request after another. Answers to requests that arrived together are
/// written together.
fn in_turn<S: Store>(
    store: &S,
    reports_flushes: bool,
    mut frames: FrameBuffer,
    mut input: impl Read,
    mut output: impl Write,
) -> Result<(), ServeError> {
    let mut clients: HashMap<u32, S::Client> = HashMap::new();
    let local = store.local()?;
    let (mut operation, mut reply, mut out) = (Operation::new(""), Reply::new(), Vec::new());
    let waits = || Outcome::error("the store's future is pending, but the store is a blocking one");
    loop {
        while let Some(frame) = frames.next()? {
            reply.clear();
            let answered = match request(frame, &mut operation) {
                Err((None, invalid)) => return Err(invalid.into()),
                Err((Some(id), invalid)) => {
                    Response::plainly(id, Outcome::failed(Status::BadRequest, invalid.to_string()))
                }
                Ok((id, _, DriverRequest::Prepare(schema, purpose))) => {
                    Response::plainly(id, plain(store.prepare(&schema, purpose)))
                }
                Ok((id, client, DriverRequest::Open)) => {
                    let connected = ready(store.connect(&local, client as usize));
                    let outcome = match connected {
                        Some(Ok(handle)) => {
                            clients.insert(client, handle);
                            Outcome::OK
                        }
                        Some(Err(error)) => plain(Err(error)),
                        None => waits(),
                    };
                    Response::plainly(id, outcome)
                }
                Ok((id, client, DriverRequest::Close)) => match clients.remove(&client) {
                    Some(mut handle) => {
                        let outcome = ready(handle.close()).unwrap_or_else(waits);
                        Response {
                            flushes: flushes(&mut handle, reports_flushes),
                            ..Response::plainly(id, outcome)
                        }
                    }
                    None => Response::plainly(id, no_client(client)),
                },
                Ok((id, _, DriverRequest::Nothing)) => Response::plainly(id, Outcome::OK),
                Ok((id, client, DriverRequest::Verb)) => match clients.get_mut(&client) {
                    Some(handle) => {
                        let called = ready(call(handle, &operation, &mut reply));
                        let (outcome, took) = called.unwrap_or_else(|| (waits(), 0));
                        Response { id, outcome, took, flushes: flushes(handle, reports_flushes) }
                    }
                    None => Response::plainly(id, no_client(client)),
                },
            };
            answered.put(&mut out, &reply);
        }
        if !out.is_empty() {
            output.write_all(&out)?;
            output.flush()?;
            out.clear();
        }
        match input.read(frames.room())? {
            0 if frames.is_partial() => {
                return Err(ServeError::Protocol("the input ends in the middle of a frame".into()));
            }
            0 => return Ok(store.finish()?),
            count => frames.filled(count),
        }
    }
}

/// A request for a client's task.
struct ClientJob {
    id: u32,
    asked: DriverRequest,
    operation: Operation,
}

/// Answers that wait to be written.
#[derive(Default)]
struct PendingAnswers {
    bytes: RefCell<Vec<u8>>,
    some: tokio::sync::Notify,
    /// Whether all answers were added.
    last: Cell<bool>,
}

impl PendingAnswers {
    fn put(&self, answered: &Response, reply: &Reply) {
        answered.put(&mut self.bytes.borrow_mut(), reply);
        self.some.notify_one();
    }

    /// Adds an answer without records.
    fn plainly(&self, id: u32, outcome: Outcome) {
        self.put(&Response::plainly(id, outcome), &Reply::new());
    }
}

/// Serves an asynchronous store with a task per client.
fn at_once<S: Store>(
    store: S,
    reports_flushes: bool,
    mut frames: FrameBuffer,
    mut input: impl Read + Send + 'static,
    mut output: impl Write + 'static,
) -> Result<(), ServeError> {
    let store = std::sync::Arc::new(store);
    let (sender, mut received) = mpsc::unbounded_channel::<Result<Vec<u8>, ServeError>>();
    // Reading blocks, so it has a thread of its own.
    std::thread::spawn(move || {
        loop {
            match next(&mut input, &mut frames) {
                Ok(Some(frame)) => {
                    if sender.send(Ok(frame)).is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    let _ = sender.send(Err(error));
                    return;
                }
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let local = Rc::new(store.local()?);
        let out = Rc::new(PendingAnswers::default());
        let writer = {
            let out = Rc::clone(&out);
            tokio::task::spawn_local(async move {
                loop {
                    out.some.notified().await;
                    let bytes = std::mem::take(&mut *out.bytes.borrow_mut());
                    // If Serval is gone, the input ends too.
                    let _ = output.write_all(&bytes).and_then(|()| output.flush());
                    if out.last.get() {
                        return;
                    }
                }
            })
        };
        let mut clients: HashMap<u32, mpsc::UnboundedSender<ClientJob>> = HashMap::new();
        let mut tasks = Vec::new();
        while let Some(frame) = received.recv().await {
            let mut operation = Operation::new("");
            match request(&frame?, &mut operation) {
                Err((None, invalid)) => return Err(invalid.into()),
                Err((Some(id), invalid)) => {
                    out.plainly(id, Outcome::failed(Status::BadRequest, invalid.to_string()));
                }
                Ok((id, _, DriverRequest::Prepare(schema, purpose))) => {
                    // `prepare` may block, and may use a runtime of its own.
                    let prepared = std::thread::scope(|scope| {
                        let panicked = || StoreError::new(INFO.name, "preparing the store panicked");
                        scope
                            .spawn(|| store.prepare(&schema, purpose))
                            .join()
                            .unwrap_or_else(|_| Err(panicked()))
                    });
                    out.plainly(id, plain(prepared));
                }
                Ok((id, number, asked)) => {
                    if matches!(asked, DriverRequest::Open) {
                        let (sender, jobs) = mpsc::unbounded_channel();
                        clients.insert(number, sender);
                        let (store, local, out) =
                            (std::sync::Arc::clone(&store), Rc::clone(&local), Rc::clone(&out));
                        tasks.push(tokio::task::spawn_local(async move {
                            client(&*store, &local, (number, reports_flushes), jobs, &out).await;
                        }));
                    }
                    let job = ClientJob { id, asked, operation };
                    let sent = clients.get(&number).map(|sender| sender.send(job).is_ok());
                    if sent != Some(true) {
                        out.plainly(id, no_client(number));
                    }
                }
            }
        }
        drop(clients);
        for task in tasks {
            // A panic was printed to standard error.
            let _ = task.await;
        }
        out.last.set(true);
        out.some.notify_one();
        let _ = writer.await;
        store.finish()?;
        Ok(())
    })
}

/// Executes one client's requests in order.
async fn client<S: Store>(
    store: &S,
    local: &S::Local,
    (number, reports_flushes): (u32, bool),
    mut jobs: mpsc::UnboundedReceiver<ClientJob>,
    out: &PendingAnswers,
) {
    let mut reply = Reply::new();
    let mut handle: Option<S::Client> = None;
    while let Some(ClientJob { id, asked, operation }) = jobs.recv().await {
        reply.clear();
        let answered = match (asked, &mut handle) {
            (DriverRequest::Open, _) => match store.connect(local, number as usize).await {
                Ok(connected) => {
                    handle = Some(connected);
                    Response::plainly(id, Outcome::OK)
                }
                Err(error) => Response::plainly(id, plain(Err(error))),
            },
            (DriverRequest::Close, Some(client)) => {
                let outcome = client.close().await;
                let flushes = flushes(client, reports_flushes);
                handle = None;
                Response { flushes, ..Response::plainly(id, outcome) }
            }
            (DriverRequest::Nothing, _) => Response::plainly(id, Outcome::OK),
            (DriverRequest::Verb, Some(client)) => {
                let (outcome, took) = call(client, &operation, &mut reply).await;
                Response { id, outcome, took, flushes: flushes(client, reports_flushes) }
            }
            _ => Response::plainly(id, no_client(number)),
        };
        out.put(&answered, &reply);
    }
}
