//! A store of Serval's as a driver: the other end of the protocol. It is
//! what measures the hop, and what drivers in other languages are compared
//! with.
//!
//! Stores on threads are asked one after another on the thread that reads;
//! asynchronous ones have all requests under way at once.

#[cfg(test)]
mod tests;

use super::{
    FLUSHES, GRACE, INFO,
    frame::{self, Body, CAN_BATCH, Frames, Nonsense, ask, tell},
};
use serval_model::{
    Client, Execution, Flush, OpenStore, Operation, OperationKind, Outcome, Purpose, Reply, Schema, Status,
    Store, StoreError, StoreInfo, Visitor,
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

/// Why a driver ends before its input does.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its input or output fails.
    #[error("the connection to Serval fails: {0}")]
    Io(#[from] io::Error),
    /// What came is not of this protocol.
    #[error("what came is not of the driver protocol: {0}")]
    Protocol(String),
    /// The store's properties are wrong.
    #[error(transparent)]
    Faults(#[from] Faults),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Nonsense> for ServeError {
    fn from(nonsense: Nonsense) -> Self {
        ServeError::Protocol(nonsense.to_string())
    }
}

/// Standard input without a buffer: a driver reads whole batches itself.
pub fn input() -> Result<File, ServeError> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Standard output without a buffer or lock.
pub fn output() -> Result<File, ServeError> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Serves a store until the input ends. Properties of the greeting come under
/// those given here. `greeted` is told how long the end may take once the input has ended.
pub fn serve(
    opener: &impl OpenStore,
    properties: &Properties,
    mut input: impl Read + Send + 'static,
    mut output: impl Write + 'static,
    greeted: impl FnOnce(Duration),
) -> Result<(), ServeError> {
    let mut frames = Frames::default();
    let Some(greeting) = next(&mut input, &mut frames)? else { return Ok(()) };
    let mut all = Properties::new();
    for (name, value) in hello(&greeting)? {
        all.set(name, value, Origin::Program("the greeting"));
    }
    for (name, setting) in properties.iter() {
        all.set(name, &setting.value, setting.origin.clone());
    }
    let tells = all.get(FLUSHES.0).is_some_and(|setting| setting.value == FLUSHES.1);
    greeted(Reader::new(&all).duration(&GRACE));
    struct Serve<I, O> {
        info: &'static StoreInfo,
        tells: bool,
        frames: Frames,
        input: I,
        output: O,
    }
    impl<I: Read + Send + 'static, O: Write + 'static> Visitor for Serve<I, O> {
        type Output = Result<(), ServeError>;
        fn visit<S: Store>(self, store: S) -> Self::Output {
            let Serve { info, tells, frames, input, mut output } = self;
            output.write_all(&welcome(info, &store))?;
            output.flush()?;
            match store.execution() {
                Execution::Threads => in_turn(&store, tells, frames, input, output),
                Execution::EventLoops => at_once(store, tells, frames, input, output),
            }
        }
    }
    let info = opener.info();
    // A driver refuses what it cannot do, so that Serval can say so.
    let opened = opener.open(&all, Ask);
    if let Err(faults) = opened {
        let mut out = Vec::new();
        frame::put_frame(&mut out, tell::REFUSED, |out| frame::put_bytes(out, faults.to_string().as_bytes()));
        output.write_all(&out)?;
        output.flush()?;
        return Err(faults.into());
    }
    opener.open(&all, Serve { info, tells, frames, input, output })?
}

/// Sees whether a store opens.
struct Ask;

impl Visitor for Ask {
    type Output = ();
    fn visit<S: Store>(self, _: S) {}
}

/// The next whole frame, blocking; `None` at the end of the input.
fn next(input: &mut impl Read, frames: &mut Frames) -> Result<Option<Vec<u8>>, ServeError> {
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
    let (kind, mut body) = Body::of(frame)?;
    if kind != ask::HELLO {
        return Err(Nonsense::Type(kind).into());
    }
    if body.u32()? != frame::MAGIC {
        return Err(Nonsense::Magic.into());
    }
    match body.u16()? {
        frame::VERSION => {}
        other => return Err(Nonsense::Version(other).into()),
    }
    let pairs = body.pairs()?;
    body.end()?;
    Ok(pairs)
}

fn welcome<S: Store>(info: &StoreInfo, store: &S) -> Vec<u8> {
    let verbs = store.capabilities().iter().fold(CAN_BATCH, |bits, kind| bits | 1 << kind as u32);
    let facts = store.describe();
    let mut out = Vec::new();
    frame::put_frame(&mut out, tell::WELCOME, |out| {
        frame::put_u16(out, frame::VERSION);
        frame::put_bytes(out, info.name.as_bytes());
        frame::put_u32(out, verbs);
        frame::put_pairs(out, facts.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    });
    out
}

/// What a request asks, beyond preparing.
enum Asked {
    Prepare(Schema, Purpose),
    Open,
    Close,
    Nothing,
    Verb,
}

/// Reads a request. Verbs go into `operation`. An error comes with the id, if
/// that could be read.
fn request(frame: &[u8], operation: &mut Operation) -> Result<(u32, u32, Asked), (Option<u32>, Nonsense)> {
    let (kind, mut body) = Body::of(frame).map_err(|nonsense| (None, nonsense))?;
    let id = body.u32().map_err(|nonsense| (None, nonsense))?;
    let mut read = || {
        if kind == ask::PREPARE {
            let purpose = if body.u8()? == 0 { Purpose::Load } else { Purpose::Run };
            let table = body.text()?.to_owned();
            let fields = (0..body.u32()?).map(|_| Ok(body.text()?.to_owned())).collect::<Result<_, _>>()?;
            body.clone().end()?;
            return Ok((0, Asked::Prepare(Schema { table, fields }, purpose)));
        }
        let client = body.u32()?;
        let verb = match kind {
            ask::OPEN => return body.clone().end().map(|()| (client, Asked::Open)),
            ask::CLOSE => return body.clone().end().map(|()| (client, Asked::Close)),
            ask::READ => OperationKind::Read,
            ask::UPDATE => OperationKind::Update,
            ask::INSERT | ask::INSERT_BATCH => OperationKind::Insert,
            ask::SCAN => OperationKind::Scan,
            ask::DELETE => OperationKind::Delete,
            other => return Err(Nonsense::Type(other)),
        };
        operation.begin(verb);
        operation.table.clear();
        operation.table.push_str(body.text()?);
        if kind == ask::INSERT_BATCH {
            let count = body.u32()?;
            if count == 0 {
                // It would look like a single insert.
                return body.clone().end().map(|()| (client, Asked::Nothing));
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
        Ok((client, Asked::Verb))
    };
    read().map(|(client, asked)| (id, client, asked)).map_err(|nonsense| (Some(id), nonsense))
}

/// Calls the store, and says how long it took.
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
struct Answered {
    id: u32,
    outcome: Outcome,
    /// What the verb took, ns.
    took: u64,
    /// What the client's buffer has been sent for since its last answer.
    flushes: Vec<Flush>,
}

impl Answered {
    /// One that has to do with no verb.
    fn plainly(id: u32, outcome: Outcome) -> Answered {
        Answered { id, outcome, took: 0, flushes: Vec::new() }
    }

    fn put(&self, out: &mut Vec<u8>, reply: &Reply) {
        let Answered { id, outcome, took, flushes } = self;
        let message = outcome.message.as_deref().unwrap_or_default();
        if !frame::put_result(out, *id, outcome.status, *took, message, reply.records(), flushes) {
            let words = "the records are more than the driver protocol takes in one answer";
            frame::put_result(out, *id, Status::Error, *took, words, &[], &[]);
        }
    }
}

/// The flushes that a client tells of, if whoever asks understands them.
fn flushes<C: Client>(client: &mut C, tells: bool) -> Vec<Flush> {
    if !tells || !client.buffers() {
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

/// Runs a future of a store on threads, which is ready when first polled.
fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Serves a store on threads: one request after another, the answers of all
/// that were read together written together.
fn in_turn<S: Store>(
    store: &S,
    tells: bool,
    mut frames: Frames,
    mut input: impl Read,
    mut output: impl Write,
) -> Result<(), ServeError> {
    let mut clients: HashMap<u32, S::Client> = HashMap::new();
    let local = store.local()?;
    let (mut operation, mut reply, mut out) = (Operation::new(""), Reply::new(), Vec::new());
    let waits = || Outcome::error("the store waits where it should not");
    loop {
        while let Some(frame) = frames.next()? {
            reply.clear();
            let answered = match request(frame, &mut operation) {
                Err((None, nonsense)) => return Err(nonsense.into()),
                Err((Some(id), nonsense)) => {
                    Answered::plainly(id, Outcome::failed(Status::BadRequest, nonsense.to_string()))
                }
                Ok((id, _, Asked::Prepare(schema, purpose))) => {
                    Answered::plainly(id, plain(store.prepare(&schema, purpose)))
                }
                Ok((id, client, Asked::Open)) => {
                    let connected = ready(store.connect(&local, client as usize));
                    let outcome = match connected {
                        Some(Ok(handle)) => {
                            clients.insert(client, handle);
                            Outcome::OK
                        }
                        Some(Err(error)) => plain(Err(error)),
                        None => waits(),
                    };
                    Answered::plainly(id, outcome)
                }
                Ok((id, client, Asked::Close)) => match clients.remove(&client) {
                    Some(mut handle) => {
                        let outcome = ready(handle.close()).unwrap_or_else(waits);
                        Answered { flushes: flushes(&mut handle, tells), ..Answered::plainly(id, outcome) }
                    }
                    None => Answered::plainly(id, no_client(client)),
                },
                Ok((id, _, Asked::Nothing)) => Answered::plainly(id, Outcome::OK),
                Ok((id, client, Asked::Verb)) => match clients.get_mut(&client) {
                    Some(handle) => {
                        let called = ready(call(handle, &operation, &mut reply));
                        let (outcome, took) = called.unwrap_or_else(|| (waits(), 0));
                        Answered { id, outcome, took, flushes: flushes(handle, tells) }
                    }
                    None => Answered::plainly(id, no_client(client)),
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

/// A request on its way to a client's task.
struct Job {
    id: u32,
    asked: Asked,
    operation: Operation,
}

/// Answers that wait to be written.
#[derive(Default)]
struct Out {
    bytes: RefCell<Vec<u8>>,
    some: tokio::sync::Notify,
    /// There will be no more.
    last: Cell<bool>,
}

impl Out {
    fn put(&self, answered: &Answered, reply: &Reply) {
        answered.put(&mut self.bytes.borrow_mut(), reply);
        self.some.notify_one();
    }

    /// An answer without records.
    fn plainly(&self, id: u32, outcome: Outcome) {
        self.put(&Answered::plainly(id, outcome), &Reply::new());
    }
}

/// Serves an asynchronous store: a task a client.
fn at_once<S: Store>(
    store: S,
    tells: bool,
    mut frames: Frames,
    mut input: impl Read + Send + 'static,
    mut output: impl Write + 'static,
) -> Result<(), ServeError> {
    let store = std::sync::Arc::new(store);
    let (sender, mut received) = mpsc::unbounded_channel::<Result<Vec<u8>, ServeError>>();
    // Reading blocks, and the loop must not.
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
        let out = Rc::new(Out::default());
        let writer = {
            let out = Rc::clone(&out);
            tokio::task::spawn_local(async move {
                loop {
                    out.some.notified().await;
                    let bytes = std::mem::take(&mut *out.bytes.borrow_mut());
                    // Serval that is gone shows as the end of the input.
                    let _ = output.write_all(&bytes).and_then(|()| output.flush());
                    if out.last.get() {
                        return;
                    }
                }
            })
        };
        let mut clients: HashMap<u32, mpsc::UnboundedSender<Job>> = HashMap::new();
        let mut tasks = Vec::new();
        while let Some(frame) = received.recv().await {
            let mut operation = Operation::new("");
            match request(&frame?, &mut operation) {
                Err((None, nonsense)) => return Err(nonsense.into()),
                Err((Some(id), nonsense)) => {
                    out.plainly(id, Outcome::failed(Status::BadRequest, nonsense.to_string()));
                }
                Ok((id, _, Asked::Prepare(schema, purpose))) => {
                    // Preparing may block and may have a runtime of its own.
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
                    if matches!(asked, Asked::Open) {
                        let (sender, jobs) = mpsc::unbounded_channel();
                        clients.insert(number, sender);
                        let (store, local, out) =
                            (std::sync::Arc::clone(&store), Rc::clone(&local), Rc::clone(&out));
                        tasks.push(tokio::task::spawn_local(async move {
                            client(&*store, &local, (number, tells), jobs, &out).await;
                        }));
                    }
                    let job = Job { id, asked, operation };
                    let sent = clients.get(&number).map(|sender| sender.send(job).is_ok());
                    if sent != Some(true) {
                        out.plainly(id, no_client(number));
                    }
                }
            }
        }
        drop(clients);
        for task in tasks {
            // A client that panicked has said so on standard error.
            let _ = task.await;
        }
        out.last.set(true);
        out.some.notify_one();
        let _ = writer.await;
        store.finish()?;
        Ok(())
    })
}

/// One client: its requests in turn.
async fn client<S: Store>(
    store: &S,
    local: &S::Local,
    (number, tells): (u32, bool),
    mut jobs: mpsc::UnboundedReceiver<Job>,
    out: &Out,
) {
    let mut reply = Reply::new();
    let mut handle: Option<S::Client> = None;
    while let Some(Job { id, asked, operation }) = jobs.recv().await {
        reply.clear();
        let answered = match (asked, &mut handle) {
            (Asked::Open, _) => match store.connect(local, number as usize).await {
                Ok(connected) => {
                    handle = Some(connected);
                    Answered::plainly(id, Outcome::OK)
                }
                Err(error) => Answered::plainly(id, plain(Err(error))),
            },
            (Asked::Close, Some(client)) => {
                let outcome = client.close().await;
                let flushes = flushes(client, tells);
                handle = None;
                Answered { flushes, ..Answered::plainly(id, outcome) }
            }
            (Asked::Nothing, _) => Answered::plainly(id, Outcome::OK),
            (Asked::Verb, Some(client)) => {
                let (outcome, took) = call(client, &operation, &mut reply).await;
                Answered { id, outcome, took, flushes: flushes(client, tells) }
            }
            _ => Answered::plainly(id, no_client(number)),
        };
        out.put(&answered, &reply);
    }
}
