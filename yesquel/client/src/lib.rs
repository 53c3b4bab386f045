//! Transactions over nodes: snapshot reads, and a commit that the client runs.
//!
//! `docs/yesquel/commit.md` has the protocol and why it is safe. What is here
//! knows nodes and not trees; it buffers nothing but what a commit needs.

mod commit;
mod counters;
mod error;
mod lease;
mod ledger;
mod read_view;
mod staging;
mod writes;

pub use counters::{Counters, Counts};
pub use error::{CommitError, Error};
pub use lease::Lease;
pub use ledger::SnapshotHold;
pub use read_view::{ProofOutcome, ReadView};
pub use staging::Staging;
pub use writes::{PART_BYTES, Writes};

use ledger::Ledger;
use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use yesquel_model::{NodeId, Refusal, ServerId, Timestamp, TreeId};
use yesquel_transport::{Cause, HeartbeatSource, Lost, Transport};
use yesquel_wire::{Answer, Answers, Cells, Lookup, Question, Reply, Request, Writer};

thread_local! {
    /// Room for a request.
    static REQUEST: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A client of some servers. Threads may share one.
#[derive(Debug)]
pub struct Client<T> {
    transport: T,
    ledger: Arc<Ledger>,
    /// The highest timestamp that it knows of.
    seen: AtomicU64,
    counters: Counters,
}

impl<T: Transport> Client<T> {
    /// A client with a number that no other one has, now or before.
    pub fn new(transport: T, id: u64) -> Client<T> {
        let ledger = Arc::new(Ledger::new(id));
        transport.set_heartbeat_source(Arc::clone(&ledger) as Arc<dyn HeartbeatSource>);
        Client { transport, ledger, seen: AtomicU64::new(0), counters: Counters::default() }
    }

    /// What was sent so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn seen(&self) -> Timestamp {
        Timestamp(self.seen.load(Relaxed))
    }

    fn saw(&self, at: Timestamp) {
        // Mostly nothing new: then no other thread's copy is made stale.
        if self.seen.load(Relaxed) < at.0 {
            self.seen.fetch_max(at.0, Relaxed);
        }
    }

    /// Has servers keep what a snapshot sees until the answer is dropped. It is
    /// to be asked for as soon as a server has given the snapshot.
    pub fn hold(&self, snapshot: Timestamp) -> SnapshotHold<'_> {
        self.ledger.hold(snapshot)
    }

    /// A refusal. What a server does not keep any more is not to be named as
    /// held: it would hide from it what is.
    fn refused(&self, refusal: Refusal) -> Error {
        if let Refusal::SnapshotTooOld { oldest, .. } = refusal {
            self.ledger.gone_before(oldest);
        }
        refusal.into()
    }

    /// Sends a request.
    async fn call(&self, server: ServerId, request: &Request<'_>) -> Result<Vec<u8>, Lost> {
        self.send(server, &Client::<T>::bytes_of(request)).await
    }

    fn bytes_of(request: &Request<'_>) -> Vec<u8> {
        let written = match request {
            Request::Commit { operations, .. } | Request::Prepare { operations, .. } => operations.size(),
            _ => 0,
        };
        let mut bytes = Vec::with_capacity(128 + written);
        request.write(&mut Writer(&mut bytes));
        bytes
    }

    fn send<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, Lost>> + use<'a, T> {
        self.counters.sent(request.len());
        self.counted(self.transport.call(server, request))
    }

    /// Sends a request that may overtake others.
    fn send_beside(&self, server: ServerId, request: &[u8]) -> impl Future<Output = Result<Vec<u8>, Lost>> {
        self.counters.sent(request.len());
        self.counted(self.transport.call_beside(server, request))
    }

    async fn counted(&self, reply: impl Future<Output = Result<Vec<u8>, Lost>>) -> Result<Vec<u8>, Lost> {
        let reply = reply.await?;
        self.counters.received(reply.len());
        Ok(reply)
    }

    /// Sends a request that may be done twice: where the connection has ended, as
    /// it does when the server is started anew, it is sent by another one.
    async fn ask(&self, server: ServerId, request: &[u8]) -> Result<Vec<u8>, Lost> {
        match self.send(server, request).await {
            Err(lost) if lost.cause == Cause::Ended => self.send(server, request).await,
            reply => reply,
        }
    }

    /// Sends a question. One who has read nothing yet loses nothing by a server
    /// that was started anew; another one might, if it has lost what it had not on
    /// disk.
    async fn question(
        &self,
        server: ServerId,
        snapshot: Option<Timestamp>,
        request: &[u8],
    ) -> Result<Vec<u8>, Lost> {
        match self.send_beside(server, request).await {
            // A lane may have ended before the connection that is shared; this one then
            // too is only found to have ended when it is used.
            Err(lost) if lost.cause == Cause::Ended && snapshot.is_none() => self.ask(server, request).await,
            reply => reply,
        }
    }

    /// Asks nodes of one server, all at one snapshot: the one given, or the
    /// server's present, which `snapshot` then is.
    pub async fn read(
        &self,
        snapshot: &mut Option<Timestamp>,
        server: ServerId,
        questions: &[Question<'_>],
    ) -> Result<Reading, Error> {
        let mut read_view = ReadView::from(*snapshot);
        let outcome = self.read_at(&mut read_view, server, questions).await;
        *snapshot = read_view.snapshot;
        outcome
    }

    /// The same at a moment. What is to be proved of it is asked too.
    pub async fn read_at(
        &self,
        read_view: &mut ReadView,
        server: ServerId,
        questions: &[Question<'_>],
    ) -> Result<Reading, Error> {
        let mut request = Vec::with_capacity(128);
        Request::write_questions(&mut Writer(&mut request), read_view.snapshot, self.seen(), |writer| {
            questions.iter().for_each(|question| question.write(writer));
            read_view.questions(server).for_each(|question| question.write(writer));
        });
        let bytes = self.question(server, read_view.snapshot, &request).await?;
        match Reply::decode(&bytes)? {
            Reply::Answers { snapshot: at, answers } => {
                self.saw(at);
                read_view.snapshot = Some(at);
                if read_view.asks(server) && !read_view.told(server, answers.iter().skip(questions.len())) {
                    return Err(Error::Unfit);
                }
                // They are the last of it.
                let start = bytes.len() - answers.bytes().len();
                Ok(Reading { bytes, start })
            }
            Reply::Refused { refusal, .. } => Err(self.refused(refusal)),
            _ => Err(Error::Unfit),
        }
    }

    /// What a node holds under a key, at the snapshot given or the server's
    /// present, which `snapshot` then is; `see` is given the answer.
    pub async fn lookup<Seen>(
        &self,
        snapshot: &mut Option<Timestamp>,
        node: NodeId,
        key: &[u8],
        see: impl FnOnce(Answer<'_>) -> Option<Seen>,
    ) -> Result<Seen, Error> {
        // One that was used before, for lookups are many.
        let mut request = REQUEST.take();
        request.clear();
        let lookup = Lookup { snapshot: *snapshot, seen: self.seen(), node, key };
        Request::write_lookup(&mut Writer(&mut request), &lookup);
        let bytes = self.question(node.server, *snapshot, &request).await;
        REQUEST.set(request);
        let bytes = bytes?;
        match Reply::lookup(&bytes) {
            Some((at, answer)) => {
                self.saw(at);
                *snapshot = Some(at);
                see(answer).ok_or(Error::Unfit)
            }
            None => match Reply::decode(&bytes)? {
                Reply::Refused { refusal, .. } => Err(self.refused(refusal)),
                _ => Err(Error::Unfit),
            },
        }
    }

    /// The same at a moment. What is to be proved of it is asked too.
    pub async fn lookup_at<Seen>(
        &self,
        read_view: &mut ReadView,
        node: NodeId,
        key: &[u8],
        see: impl FnOnce(Answer<'_>) -> Option<Seen>,
    ) -> Result<Seen, Error> {
        let server = node.server;
        if !read_view.asks(server) {
            return self.lookup(&mut read_view.snapshot, node, key, see).await;
        }
        let mut request = REQUEST.take();
        request.clear();
        let all = std::iter::once(Question::Lookup { node, key }).chain(read_view.questions(server));
        Request::write_read(&mut Writer(&mut request), read_view.snapshot, self.seen(), all);
        let bytes = self.question(server, read_view.snapshot, &request).await;
        REQUEST.set(request);
        let bytes = bytes?;
        match Reply::decode(&bytes)? {
            Reply::Answers { snapshot: at, answers } => {
                self.saw(at);
                read_view.snapshot = Some(at);
                let mut answers = answers.iter();
                let seen = answers.next().and_then(see).ok_or(Error::Unfit)?;
                if read_view.told(server, answers) { Ok(seen) } else { Err(Error::Unfit) }
            }
            Reply::Refused { refusal, .. } => Err(self.refused(refusal)),
            _ => Err(Error::Unfit),
        }
    }

    /// What a server tells of itself, or of one tree, as JSON of what is in
    /// [`yesquel_wire::status`].
    pub async fn inspect(&self, server: ServerId, tree: Option<TreeId>) -> Result<Vec<u8>, Error> {
        self.report(server, &Request::Inspect { tree }).await
    }

    /// What a server tells of the nodes of a tree after this one, as JSON.
    pub async fn inspect_after(&self, server: ServerId, node: NodeId) -> Result<Vec<u8>, Error> {
        self.report(server, &Request::InspectAfter { node }).await
    }

    async fn report(&self, server: ServerId, request: &Request<'_>) -> Result<Vec<u8>, Error> {
        let bytes = self.ask(server, &Client::<T>::bytes_of(request)).await?;
        match Reply::decode(&bytes)? {
            Reply::Report(json) => Ok(json.to_vec()),
            Reply::Refused { refusal, .. } => Err(refusal.into()),
            _ => Err(Error::Unfit),
        }
    }

    /// Numbers of a node's counter, above `above`, that nobody else gets;
    /// returns the first.
    pub async fn take(&self, node: NodeId, count: u64, above: u64) -> Result<u64, Error> {
        // Numbers that were given twice are lost, once.
        let request = Request::Take { node, count, above };
        taken(&self.ask(node.server, &Client::<T>::bytes_of(&request)).await?)
    }

    /// The same, sent at once and waited for later: beside what is asked meanwhile it
    /// costs no round trip of its own. It is not sent again if the connection has ended.
    pub fn take_beside(
        &self,
        node: NodeId,
        count: u64,
        above: u64,
    ) -> impl Future<Output = Result<u64, Error>> + use<'_, T> {
        self.counters.beside();
        let reply = self.send(node.server, &Client::<T>::bytes_of(&Request::Take { node, count, above }));
        async move { taken(&reply.await?) }
    }
}

/// The first of the numbers that a server has given.
fn taken(reply: &[u8]) -> Result<u64, Error> {
    match Reply::decode(reply)? {
        Reply::Taken(first) => Ok(first),
        Reply::Refused { refusal, .. } => Err(refusal.into()),
        _ => Err(Error::Unfit),
    }
}

/// Answers of one server.
#[derive(Debug)]
pub struct Reading {
    bytes: Vec<u8>,
    /// Where the answers begin.
    start: usize,
}

impl Reading {
    fn of(cells: &Cells<'_>) -> Reading {
        Reading { bytes: cells.encode(), start: 0 }
    }

    /// Them, in the order of the questions.
    pub fn answers(&self) -> Option<Answers<'_>> {
        // They were looked through when they came.
        self.bytes.get(self.start..).map(Answers::again)
    }
}
