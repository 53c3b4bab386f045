//! Transactions over nodes: snapshot reads and a commit that the client runs.
//!
//! `docs/yesquel/commit.md` describes the protocol and its safety. This layer knows nodes, not
//! trees, and buffers nothing but what a commit needs.

mod catch_up;
mod commit;
mod counters;
mod error;
mod in_flight;
mod lease;
mod min_set;
mod parallel_read;
mod read_view;
mod recovery;
mod staging;
mod unsettled;
mod watch;
mod watches;
mod writes;

pub use counters::{SentCounters, SentCounts};
pub use error::{CommitError, RequestError};
pub use in_flight::SnapshotHold;
pub use lease::{LeaseHolder, LeaseRanges};
pub use parallel_read::ServerQuestions;
pub use read_view::{ProofOutcome, ReadView};
pub use recovery::KnownVote;
pub use staging::StagedWrites;
pub use watch::Watch;
pub use writes::{PART_BYTES, Writes};

use in_flight::InFlight;
use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use yesquel_model::{NodeId, Refusal, ServerId, Timestamp, TreeId};
use yesquel_transport::{HeartbeatSource, LossCause, LostCall, Transport, repeat_corrected};
use yesquel_wire::{Answer, Answers, ByteWriter, Cells, Correction, Lookup, Question, Reply, Request};

thread_local! {
    /// Buffer for the bytes of a request.
    static REQUEST: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Client of a set of servers. Threads may share one.
#[derive(Debug)]
pub struct Client<T> {
    transport: T,
    in_flight: Arc<InFlight>,
    /// Highest timestamp seen in any reply.
    seen: AtomicU64,
    counters: SentCounters,
}

impl<T: Transport> Client<T> {
    /// Creates a client. No other client, past or present, may have the same `id`.
    pub fn new(transport: T, id: u64) -> Client<T> {
        let in_flight = Arc::new(InFlight::new(id, transport.clock(), transport.uptime()));
        transport.set_heartbeat_source(Arc::clone(&in_flight) as Arc<dyn HeartbeatSource>);
        Client { transport, in_flight, seen: AtomicU64::new(0), counters: SentCounters::default() }
    }

    /// Returns the way to servers.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Returns whether no connection is known to have ended. Sends nothing.
    pub fn is_connected(&self) -> bool {
        self.transport.is_connected()
    }

    /// Returns the counters of what was sent.
    pub fn counters(&self) -> &SentCounters {
        &self.counters
    }

    /// The highest timestamp that the client has seen.
    pub fn seen(&self) -> Timestamp {
        Timestamp(self.seen.load(Relaxed))
    }

    /// Notes a timestamp that was seen: later snapshots and commits of the client are not below it.
    pub fn note_seen(&self, at: Timestamp) {
        // Mostly there is nothing new; skipping the write leaves other cores' cache lines valid.
        if self.seen.load(Relaxed) < at.0 {
            self.seen.fetch_max(at.0, Relaxed);
        }
    }

    /// Keeps the versions of a snapshot on the servers until the result is dropped. Call it as soon
    /// as a server has given the snapshot.
    pub fn hold(&self, snapshot: Timestamp) -> SnapshotHold<'_> {
        self.in_flight.hold(snapshot)
    }

    /// Takes note of a refusal. A snapshot that the server has dropped is no longer reported as
    /// held, since it would hide the snapshots that are. The next snapshot is not below the server's
    /// oldest, wherever it is taken: after a restart the server's clock may be ahead of the others,
    /// and would refuse again.
    fn note_refusal(&self, refusal: Refusal) {
        if let Refusal::SnapshotTooOld { oldest, .. } = refusal {
            self.in_flight.dropped_below(oldest);
            self.note_seen(oldest);
        }
    }

    fn refused(&self, refusal: Refusal) -> RequestError {
        self.note_refusal(refusal);
        refusal.into()
    }

    /// Sends a request.
    async fn call(&self, server: ServerId, request: &Request<'_>) -> Result<Vec<u8>, LostCall> {
        self.send(server, Client::<T>::bytes_of(request)).await
    }

    fn bytes_of(request: &Request<'_>) -> Vec<u8> {
        let written = match request {
            Request::Commit { operations, .. } | Request::Prepare { operations, .. } => operations.size(),
            _ => 0,
        };
        let mut bytes = Vec::with_capacity(128 + written);
        request.write(&mut ByteWriter(&mut bytes));
        bytes
    }

    /// Sends a request now, not when the future is polled.
    fn send<'a, R: AsRef<[u8]>>(
        &'a self,
        server: ServerId,
        request: R,
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a, R, T> {
        self.counters.sent(request.as_ref().len());
        let reply = self.transport.call(server, request.as_ref());
        async move { self.corrected(server, request.as_ref(), reply.await?).await }
    }

    /// Sends a request that may overtake others.
    async fn send_unordered(&self, server: ServerId, request: &[u8]) -> Result<Vec<u8>, LostCall> {
        self.counters.sent(request.len());
        let reply = self.transport.call_unordered(server, request).await?;
        self.corrected(server, request, reply).await
    }

    /// Repeats a request whose reply says that it came to the wrong place.
    async fn corrected(
        &self,
        server: ServerId,
        request: &[u8],
        mut reply: Vec<u8>,
    ) -> Result<Vec<u8>, LostCall> {
        if Correction::of(&reply).is_some() {
            let count = || self.counters.repeated(request.len());
            // It is rare, and its state would make the state of each call larger.
            reply = Box::pin(repeat_corrected(&self.transport, server, request, reply, count)).await?;
        }
        self.counters.received(reply.len());
        Ok(reply)
    }

    /// Sends an idempotent request. It is sent again over a new connection if the connection has
    /// ended, as after a restart of the server.
    async fn call_idempotent(&self, server: ServerId, request: &[u8]) -> Result<Vec<u8>, LostCall> {
        match self.send(server, request).await {
            Err(lost) if lost.cause == LossCause::Disconnected => self.send(server, request).await,
            reply => reply,
        }
    }

    /// Sends a read. It is retried on a new connection only if the transaction has no snapshot yet:
    /// a restarted server may have lost writes that were not on disk, which an earlier read may
    /// have seen.
    async fn call_read(
        &self,
        server: ServerId,
        snapshot: Option<Timestamp>,
        request: &[u8],
    ) -> Result<Vec<u8>, LostCall> {
        match self.send_unordered(server, request).await {
            // The lane may have ended before the shared connection, whose end is then only noticed
            // at its next use: `call_idempotent` retries there, too.
            Err(lost) if lost.cause == LossCause::Disconnected && snapshot.is_none() => {
                self.call_idempotent(server, request).await
            }
            reply => reply,
        }
    }

    /// Reads nodes of one server, all at one snapshot: the given one or, if there is none, the
    /// server's present time, which is stored in `snapshot`.
    pub async fn read(
        &self,
        snapshot: &mut Option<Timestamp>,
        server: ServerId,
        questions: &[Question<'_>],
    ) -> Result<ReadReply, RequestError> {
        let mut read_view = ReadView::from(*snapshot);
        let outcome = self.read_at(&mut read_view, server, questions).await;
        *snapshot = read_view.snapshot;
        outcome
    }

    /// Like [`read`](Client::read), in a read view. Its open proofs are sent along.
    pub async fn read_at(
        &self,
        read_view: &mut ReadView,
        server: ServerId,
        questions: &[Question<'_>],
    ) -> Result<ReadReply, RequestError> {
        if let Some(first) = read_view.used_elsewhere(server) {
            Box::pin(self.read_at(read_view, first, &[])).await?;
        }
        loop {
            let request = self.read_request(read_view, server, questions);
            let bytes = self.call_read(server, read_view.snapshot, &request).await?;
            if read_view.used_at().is_some() {
                // It is rare, and its state would make the state of each read larger.
                Box::pin(self.wait_for_notices(server)).await;
            }
            let reply = self.on_reply(read_view, server, questions.len(), bytes);
            read_view.settle_answers();
            if let Some(reply) = reply? {
                return Ok(reply);
            }
        }
    }

    /// Like [`read_at`](Self::read_at), and watches a node of the server, of which all other
    /// questions are. Returns the watch if the server has granted it. `None`: no node can be watched
    /// now, and nothing was read.
    pub async fn watch_at(
        &self,
        read_view: &mut ReadView,
        node: NodeId,
        question: Question<'_>,
    ) -> Result<Option<(ReadReply, Option<Watch>)>, RequestError> {
        let server = node.server;
        if read_view.used_elsewhere(server).is_some() {
            return Ok(None);
        }
        let questions = [question, Question::Watch { node }];
        let watch = Watch::begin(&self.in_flight, node);
        loop {
            let request = self.read_request(read_view, server, &questions);
            let Some(bytes) = self.ask_watching(server, &request).await else {
                watch.refused(node);
                return Ok(None);
            };
            if read_view.used_at().is_some() {
                self.wait_for_notices(server).await;
            }
            let reply = self.on_reply(read_view, server, questions.len(), bytes);
            read_view.settle_answers();
            let Some(reply) = reply.inspect_err(|_| watch.refused(node))? else { continue };
            let is_granted = reply.answers().and_then(|all| all.iter().nth(1)) == Some(Answer::Same);
            if !is_granted {
                watch.refused(node);
            }
            return Ok(Some((reply, is_granted.then_some(watch))));
        }
    }

    fn read_request(&self, read_view: &ReadView, server: ServerId, questions: &[Question<'_>]) -> Vec<u8> {
        let mut request = Vec::with_capacity(256);
        Request::write_questions(&mut ByteWriter(&mut request), read_view.snapshot, self.seen(), |writer| {
            questions.iter().for_each(|question| question.write(writer));
            read_view.questions(server).for_each(|question| question.write(writer));
        });
        request
    }

    /// Takes the reply to a read of `count` questions and the open proofs. Notices must have been
    /// taken since, if the view has used watched nodes. `None`: the questions must be asked again, at
    /// the snapshot of the view. The caller settles the answers.
    fn on_reply(
        &self,
        read_view: &mut ReadView,
        server: ServerId,
        count: usize,
        bytes: Vec<u8>,
    ) -> Result<Option<ReadReply>, RequestError> {
        match Reply::decode(&bytes)? {
            Reply::Answers { snapshot: at, answers } => {
                self.note_seen(at);
                if read_view.used_at().is_some() {
                    read_view.pin(server, at)?;
                    if read_view.snapshot.is_some() {
                        return Ok(None);
                    }
                }
                read_view.give(server, at);
                if read_view.has_asked(server) && !read_view.store_answers(server, answers.iter().skip(count))
                {
                    return Err(RequestError::UnexpectedAnswer);
                }
                // The answers are the last part of the reply.
                let start = bytes.len() - answers.bytes().len();
                Ok(Some(ReadReply { bytes, start }))
            }
            Reply::Refused { refusal, .. } => Err(self.refused(refusal)),
            _ => Err(RequestError::UnexpectedAnswer),
        }
    }

    /// Looks up a key in a node, at the given snapshot or, if there is none, the server's present
    /// time, which is stored in `snapshot`. `see` receives the answer.
    pub async fn lookup<Seen>(
        &self,
        snapshot: &mut Option<Timestamp>,
        node: NodeId,
        key: &[u8],
        see: impl FnOnce(Answer<'_>) -> Option<Seen>,
    ) -> Result<Seen, RequestError> {
        // Reuse the buffer, for lookups are frequent.
        let mut request = REQUEST.take();
        request.clear();
        let lookup = Lookup { snapshot: *snapshot, seen: self.seen(), node, key };
        Request::write_lookup(&mut ByteWriter(&mut request), &lookup);
        let bytes = self.call_read(node.server, *snapshot, &request).await;
        REQUEST.set(request);
        let bytes = bytes?;
        match Reply::lookup(&bytes) {
            Some((at, answer)) => {
                self.note_seen(at);
                *snapshot = Some(at);
                see(answer).ok_or(RequestError::UnexpectedAnswer)
            }
            None => match Reply::decode(&bytes)? {
                Reply::Refused { refusal, .. } => Err(self.refused(refusal)),
                _ => Err(RequestError::UnexpectedAnswer),
            },
        }
    }

    /// Like [`lookup`](Client::lookup), in a read view. Its open proofs are sent along.
    pub async fn lookup_at<Seen>(
        &self,
        read_view: &mut ReadView,
        node: NodeId,
        key: &[u8],
        see: impl FnOnce(Answer<'_>) -> Option<Seen>,
    ) -> Result<Seen, RequestError> {
        let server = node.server;
        if read_view.used_at().is_some() {
            let reading = self.read_at(read_view, server, &[Question::Lookup { node, key }]).await?;
            let answer = reading.answers().and_then(|answers| answers.iter().next());
            return answer.and_then(see).ok_or(RequestError::UnexpectedAnswer);
        }
        if !read_view.asks(server) {
            let mut snapshot = read_view.snapshot;
            let outcome = self.lookup(&mut snapshot, node, key, see).await;
            snapshot.into_iter().for_each(|at| read_view.give(server, at));
            return outcome;
        }
        let mut request = REQUEST.take();
        request.clear();
        let all = std::iter::once(Question::Lookup { node, key }).chain(read_view.questions(server));
        Request::write_read(&mut ByteWriter(&mut request), read_view.snapshot, self.seen(), all);
        let bytes = self.call_read(server, read_view.snapshot, &request).await;
        REQUEST.set(request);
        let bytes = bytes?;
        match Reply::decode(&bytes)? {
            Reply::Answers { snapshot: at, answers } => {
                self.note_seen(at);
                read_view.give(server, at);
                let mut answers = answers.iter();
                let seen = answers.next().and_then(see).ok_or(RequestError::UnexpectedAnswer)?;
                let fits = read_view.store_answers(server, answers);
                read_view.settle_answers();
                if fits { Ok(seen) } else { Err(RequestError::UnexpectedAnswer) }
            }
            Reply::Refused { refusal, .. } => Err(self.refused(refusal)),
            _ => Err(RequestError::UnexpectedAnswer),
        }
    }

    /// Returns the status of a server, or of one tree, as JSON of the types in
    /// [`yesquel_wire::status`].
    pub async fn inspect(&self, server: ServerId, tree: Option<TreeId>) -> Result<Vec<u8>, RequestError> {
        self.report(server, &Request::Inspect { tree }).await
    }

    /// Returns the status of the tree's nodes after this one, as JSON.
    pub async fn inspect_after(&self, server: ServerId, node: NodeId) -> Result<Vec<u8>, RequestError> {
        self.report(server, &Request::InspectAfter { node }).await
    }

    /// Returns the groups of the cluster as a server knows them, as JSON.
    pub async fn directory(&self, server: ServerId) -> Result<Vec<u8>, RequestError> {
        self.report(server, &Request::Directory).await
    }

    /// Performs a command for the machines of the cluster: JSON, as its reply.
    pub async fn manage(&self, server: ServerId, command: &[u8]) -> Result<Vec<u8>, RequestError> {
        self.report(server, &Request::Manage { command }).await
    }

    /// Asks to join the cluster: JSON, as the reply.
    pub async fn join(&self, server: ServerId, request: &[u8]) -> Result<Vec<u8>, RequestError> {
        self.report(server, &Request::Join { request }).await
    }

    async fn report(&self, server: ServerId, request: &Request<'_>) -> Result<Vec<u8>, RequestError> {
        let bytes = self.call_idempotent(server, &Client::<T>::bytes_of(request)).await?;
        match Reply::decode(&bytes)? {
            Reply::Report(json) => Ok(json.to_vec()),
            Reply::Refused { refusal, .. } => Err(refusal.into()),
            _ => Err(RequestError::UnexpectedAnswer),
        }
    }

    /// Takes `count` consecutive, unique numbers above `above` from a node's counter; returns the
    /// first.
    pub async fn take(&self, node: NodeId, count: u64, above: u64) -> Result<u64, RequestError> {
        // A retry may take numbers twice; the first lot is then unused.
        let request = Request::Take { node, count, above };
        decode_taken(&self.call_idempotent(node.server, &Client::<T>::bytes_of(&request)).await?)
    }

    /// The group that has the counters of the cluster.
    pub fn home_group(&self) -> ServerId {
        self.transport.home_group()
    }

    /// Like [`take`](Client::take), without waiting: `taken` gets the first number, or `None` if the
    /// request is lost. It runs on any thread that uses the transport, or at once.
    pub fn take_in_background(
        &self,
        node: NodeId,
        count: u64,
        taken: impl FnOnce(Option<u64>) + Send + 'static,
    ) {
        let request = Client::<T>::bytes_of(&Request::Take { node, count, above: 0 });
        self.counters.sent(request.len());
        self.counters.overlapping();
        let handler = move |reply: Result<&[u8], LostCall>| {
            taken(reply.ok().and_then(|reply| decode_taken(reply).ok()));
        };
        self.transport.send(node.server, &request, Box::new(handler));
    }

    /// Like [`take`](Client::take), sent at once and awaited later, so that it overlaps other
    /// requests. It is not retried if the connection has ended.
    pub fn take_unordered(
        &self,
        node: NodeId,
        count: u64,
        above: u64,
    ) -> impl Future<Output = Result<u64, RequestError>> + use<'_, T> {
        self.counters.overlapping();
        let reply = self.send(node.server, Client::<T>::bytes_of(&Request::Take { node, count, above }));
        async move { decode_taken(&reply.await?) }
    }
}

/// Decodes the reply to a `Take`.
fn decode_taken(reply: &[u8]) -> Result<u64, RequestError> {
    match Reply::decode(reply)? {
        Reply::Taken(first) => Ok(first),
        Reply::Refused { refusal, .. } => Err(refusal.into()),
        _ => Err(RequestError::UnexpectedAnswer),
    }
}

/// Answers of one server to a read.
#[derive(Debug)]
pub struct ReadReply {
    bytes: Vec<u8>,
    /// Offset of the answers.
    start: usize,
}

impl ReadReply {
    fn of(cells: &Cells<'_>) -> ReadReply {
        ReadReply { bytes: cells.encode(), start: 0 }
    }

    /// Returns the answers in the order of the questions.
    pub fn answers(&self) -> Option<Answers<'_>> {
        // The bytes were validated when they arrived.
        self.bytes.get(self.start..).map(Answers::again)
    }
}
