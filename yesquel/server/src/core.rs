//! Engine, log and clock of a server, for callers on any thread.

use crate::{
    DataFolder, DataFolderError, Time,
    error::CoreError,
    log_writer::LogWriter,
    machine_file::{MachineIdentity, MachineStart, new_cluster},
    management::PendingCommand,
    socket_counters::SocketCounters,
    state::{CoreState, SharedState},
};
use std::{
    fmt,
    sync::{Arc, OnceLock, RwLockWriteGuard},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use yesquel_engine::{Caller, Engine, EngineSettings, Now};
use yesquel_fork as fork;
use yesquel_log::disk::Folder;
use yesquel_model::{
    ClusterMembership, DepartedContent, GroupEpoch, KeyRange, NodeId, ServerId, StayReason, Timestamp,
};
use yesquel_node::{
    ClockState, ComparedClock, GroupCore, GroupLoad, GroupWork, OpenedGroup, PeerQuery, ReplySink,
};
use yesquel_secrets::PresentSecrets;
use yesquel_wire::{
    ClientHeartbeat, Destination, Malformed, Request,
    status::{DirectoryStatus, ServerStatus},
};

/// Milliseconds between two ticks of the engine.
const TICK_MS: u64 = 50;

/// Core of a server. Dropping it closes the log cleanly.
pub struct Core {
    group: ServerId,
    pub(crate) shared: Arc<SharedState>,
    thread: Option<JoinHandle<()>>,
    membership: OnceLock<ClusterMembership>,
    /// The machine, if it has a data folder.
    identity: Option<MachineIdentity>,
    /// Fork generation of the process that owns the core, see [`fork`].
    generation: u32,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

impl Core {
    fn around(
        core: GroupCore,
        time: impl Time + 'static,
        reply_sink: impl ReplySink + Send + Sync + 'static,
    ) -> Core {
        let group = core.engine().server();
        let shared = SharedState::new(core, Box::new(time), Box::new(reply_sink));
        Core {
            group,
            shared: Arc::new(shared),
            thread: None,
            membership: OnceLock::new(),
            identity: None,
            generation: fork::generation(),
        }
    }

    /// Creates a core in memory. Unless it [joins](Self::join) a cluster it is the first machine of a
    /// new one.
    pub fn in_memory(
        settings: EngineSettings,
        time: impl Time + 'static,
        reply_sink: impl ReplySink + Send + Sync + 'static,
    ) -> Core {
        Core::around(GroupCore::in_memory(Engine::new(settings)), time, reply_sink)
    }

    /// Starts the core of a group that was recovered.
    pub(crate) fn start(
        OpenedGroup { core, log, .. }: OpenedGroup<Folder>,
        identity: MachineIdentity,
        folder: Arc<DataFolder>,
        time: impl Time + 'static,
        reply_sink: impl ReplySink + Send + Sync + 'static,
    ) -> Result<Core, CoreError> {
        let mut core = Core::around(core, time, reply_sink);
        core.join(identity.membership);
        core.identity = Some(identity);
        let log_writer = LogWriter::new(Arc::clone(&core.shared), log, core.group);
        let thread = thread::Builder::new().name("yesquel-log".to_owned()).spawn(move || {
            log_writer.run();
            // The last log unlocks the folder.
            drop(folder);
        });
        let thread =
            thread.map_err(|error| DataFolderError::Io { path: "a thread for the log".into(), error })?;
        core.thread = Some(thread);
        Ok(core)
    }

    /// The group.
    pub fn group(&self) -> ServerId {
        self.group
    }

    /// Makes it a machine of a cluster, before it is used.
    pub fn join(&self, membership: ClusterMembership) {
        // The first one counts.
        let _ = self.membership.set(membership);
    }

    /// Returns the cluster.
    pub fn membership(&self) -> ClusterMembership {
        *self.membership.get_or_init(|| ClusterMembership { cluster: new_cluster(), home_group: self.group })
    }

    /// Returns the machine. In memory it has the number that follows from its group.
    pub fn identity(&self) -> MachineIdentity {
        self.identity.unwrap_or_else(|| {
            let group = self.group;
            let (membership, machine) = (self.membership(), u32::from(group.0) + 1);
            MachineIdentity { membership, machine, group, start: MachineStart::default() }
        })
    }

    /// Takes commands for the cluster's machines from now on. Without that they are refused.
    pub fn take_commands(&self) {
        self.shared.lock().management.open();
    }

    /// Waits, for `timeout` at most, for commands for the cluster's machines, or until
    /// [`wake_commands`](Self::wake_commands). Returns the commands.
    pub fn wait_for_commands(&self, timeout: Duration) -> Vec<PendingCommand> {
        self.shared.managed.wait_for(timeout);
        self.shared.lock().management.take()
    }

    /// Wakes the thread that waits for commands.
    pub fn wake_commands(&self) {
        self.shared.managed.wake();
    }

    /// Answers a command.
    pub fn answer_command(&self, command: &PendingCommand, reply: &[u8]) {
        // Under the lock, as all replies.
        let locked = self.shared.lock();
        self.shared.reply_sink.deliver(command.caller, reply);
        drop(locked);
        self.shared.released();
    }

    /// Returns the wall clock of the machine, in milliseconds since 1970.
    pub fn wall_ms(&self) -> u64 {
        self.shared.lock().time.now().wall_ms
    }

    /// Takes a copy of the directory, which was read from the home group.
    pub fn install_directory(&self, directory: DirectoryStatus) {
        self.shared.lock().core.install_directory(directory);
    }

    /// Returns the groups of the cluster, as this machine knows them.
    pub fn directory(&self) -> DirectoryStatus {
        self.shared.lock().core.directory()
    }

    /// Whether another server has seen a later version of the directory.
    pub fn is_directory_outdated(&self) -> bool {
        self.shared.lock().core.is_directory_outdated()
    }

    /// Sets the number of the other servers, of which some have joined or left. A server that serves
    /// goes on.
    pub fn set_peers(&self, peers: usize) {
        self.shared.lock().core.set_peers(peers);
    }

    /// Sets the address at which others reach this server.
    pub fn set_address(&self, address: &str) {
        self.shared.lock().core.set_address(address);
    }

    /// Sets the address of another group, until that group reports another one.
    pub fn set_location(&self, group: ServerId, address: &str) {
        self.shared.lock().core.set_location(group, address);
    }

    /// Returns the address of another group; empty: none is known.
    pub fn address_of(&self, group: ServerId) -> String {
        self.shared.lock().core.address_of(group).to_owned()
    }

    /// Begins a new configuration of the group: senders that know an older one are corrected.
    pub fn raise_epoch(&self, epoch: GroupEpoch) {
        let mut locked = self.shared.lock();
        self.shared.notify(locked.core.raise_epoch(epoch, &*self.shared.reply_sink));
    }

    /// Locks the core for several requests.
    pub fn session(&self) -> CoreSession<'_> {
        let mut state = self.shared.lock();
        let now = state.read_clock();
        if now.uptime_ms >= state.ticked_at_ms + TICK_MS {
            self.shared.tick(&mut state, now);
        }
        CoreSession { shared: &self.shared, state, now }
    }

    /// Handles a request to this group. The reply is delivered now or later.
    pub fn handle(&self, caller: Caller, request: &[u8]) -> Result<(), Malformed> {
        let mut session = self.session();
        let destination = session.destination();
        let handled = session.handle(caller, destination, request);
        drop(session);
        self.shared.released();
        handled
    }

    /// Handles a request. Returns `true` after writing the reply to `reply`, which must be empty
    /// before. Otherwise `later` is called first and the reply is delivered later.
    pub fn call(
        &self,
        caller: Caller,
        request: &[u8],
        reply: &mut Vec<u8>,
        later: impl FnOnce(),
    ) -> Result<bool, Malformed> {
        if self.shared.peek(request, reply) {
            return Ok(true);
        }
        let mut session = self.session();
        let (state, now) = (&mut *session.state, session.now);
        if Request::inspects(request) {
            *reply = self.shared.inspect(state, now, request)?;
            return Ok(true);
        }
        if Request::manages(request) {
            return Ok(match self.shared.manage(state, caller, request)? {
                Some(refusal) => {
                    *reply = refusal;
                    true
                }
                None => {
                    later();
                    false
                }
            });
        }
        let settled = self.shared.handle(state, now, caller, request, Some(reply))?;
        if !settled.own {
            later();
        }
        drop(session);
        if settled.others {
            self.shared.released();
        }
        Ok(settled.own)
    }

    /// Advances time without a request. Call it about every 50 ms.
    pub fn tick(&self) {
        self.shared.advance();
    }

    /// Waits, for `timeout` at most, until there is work that the engine cannot do itself.
    pub fn wait_for_work(&self, timeout: Duration) -> GroupWork {
        let end = Instant::now() + timeout;
        let mut state = self.shared.lock();
        while !state.core.has_work() && !state.is_woken {
            drop(state);
            let was_woken = self.shared.work.wait_until(end);
            state = self.shared.lock();
            if !was_woken {
                break;
            }
        }
        state.is_woken = false;
        state.core.take_work()
    }

    /// Wakes the thread that waits for work.
    pub fn wake_work(&self) {
        self.shared.lock().is_woken = true;
        self.shared.work.wake();
    }

    /// Sets the first group of the machine, and how many other machines it compares its clock with,
    /// before it serves anything.
    pub fn compare_with(&self, own: ServerId, peers: usize) {
        self.shared.lock().core.compare_with(own, peers);
    }

    /// Limits the time in milliseconds after the start for which the server waits for the clocks of
    /// others.
    pub fn wait_for_clocks(&self, wait_ms: u64) {
        self.shared.lock().core.wait_for_clocks(wait_ms);
    }

    /// Sets whether requests by sockets are handled; otherwise they are held.
    pub fn admit_clients(&self, admits: bool) {
        self.shared.lock().core.admit_clients(admits);
    }

    /// Returns what the comparison of clocks says.
    pub fn clock_state(&self) -> ClockState {
        self.shared.lock().core.clock_state()
    }

    /// Returns the bytes of a report to another server, and the time.
    pub fn begin_report(&self) -> (Vec<u8>, Now) {
        let mut locked = self.shared.lock();
        let now = locked.read_clock();
        (locked.core.begin_report(), now)
    }

    /// Takes another server's answer to a report that was sent at a time, and compares the clock with
    /// that of its machine. Returns the comparison, for the other groups of this machine.
    pub fn end_report(&self, sent: Now, reply: &[u8]) -> Option<ComparedClock> {
        let mut locked = self.shared.lock();
        let now = locked.read_clock();
        locked.core.end_report(now, sent, reply)
    }

    /// Takes a comparison of this machine's clock, which another of its groups has made.
    pub fn compare_clock(&self, compared: ComparedClock) {
        self.shared.lock().core.compare_clock(compared);
    }

    /// Takes the report of another group, whose machine's clock is compared otherwise.
    pub fn take_report(&self, report: &[u8]) {
        let mut locked = self.shared.lock();
        let now = locked.read_clock();
        locked.core.take_report_of(now, report);
    }

    /// Ends all watches of clients, and grants none any more, for callers in this process.
    pub fn close_watches(&self) {
        self.shared.with_core(|core, sink| core.close_watches(sink));
        self.shared.released();
    }

    /// Begins the departure of ranges of a leaf to other groups: see
    /// [`Engine::begin_departure`](yesquel_engine::Engine::begin_departure).
    pub fn begin_departure(
        &self,
        node: NodeId,
        parts: &[(KeyRange, NodeId)],
    ) -> Result<Vec<DepartedContent>, StayReason> {
        let mut locked = self.shared.lock();
        let now = locked.read_clock();
        locked.core.engine_mut().begin_departure(now, node, parts)
    }

    /// Returns the loads of this group and of those that have reported in the last second.
    pub fn loads(&self) -> Vec<(ServerId, GroupLoad)> {
        let mut locked = self.shared.lock();
        let now = locked.read_clock();
        locked.core.loads(now)
    }

    /// Takes the questions to other servers.
    pub fn take_queries(&self) -> Vec<PeerQuery> {
        self.shared.lock().core.take_queries()
    }

    /// Takes another server's reply to a question.
    pub fn on_peer_reply(&self, query: &PeerQuery, reply: &[u8]) {
        let mut locked = self.shared.lock();
        let now = locked.read_clock();
        let settled =
            self.shared.notify(locked.core.on_peer_reply(now, query, reply, &*self.shared.reply_sink));
        drop(locked);
        if settled.others {
            self.shared.released();
        }
    }

    /// Accesses the engine without changing it.
    pub fn with_engine<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> T {
        act(self.shared.lock().core.engine_mut())
    }

    /// Registers the counters of the sockets, which the status includes.
    pub(crate) fn count_sockets(&self, counters: Arc<SocketCounters>) {
        // There is one socket thread.
        let _ = self.shared.sockets.set(counters);
    }

    /// Registers the secrets, whose state the status includes.
    pub(crate) fn show_secrets(&self, secrets: Arc<PresentSecrets>) {
        // There is one socket thread.
        let _ = self.shared.secrets.set(secrets);
    }

    /// Returns the status of the server.
    pub fn status(&self) -> ServerStatus {
        let mut session = self.session();
        let now = session.now;
        self.shared.status(&mut session.state, now)
    }

    /// Returns the number of log records on disk, and the disk's error, if it has failed.
    pub fn synced(&self) -> (u64, Option<String>) {
        let state = self.shared.lock();
        (state.core.synced(), state.core.failure().map(str::to_owned))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // The core belongs to the parent process, and so does its thread.
            std::mem::forget(self.thread.take());
            return;
        }
        let mut locked = self.shared.lock();
        self.shared.notify(locked.core.end(&*self.shared.reply_sink));
        locked.ending = true;
        drop(locked);
        self.shared.written.wake();
        self.shared.ended.wake();
        if let Some(thread) = self.thread.take() {
            // Nothing could receive a panic's message now.
            let _ = thread.join();
        }
    }
}

/// Exclusive access to a core until this is dropped.
#[derive(Debug)]
pub struct CoreSession<'a> {
    shared: &'a SharedState,
    state: RwLockWriteGuard<'a, CoreState>,
    now: Now,
}

impl CoreSession<'_> {
    /// Returns the group, as requests must name it.
    #[inline]
    pub fn destination(&self) -> Destination {
        self.state.core.destination()
    }

    /// Handles a request for a group. The reply is delivered now or later.
    pub fn handle(
        &mut self,
        caller: Caller,
        destination: Destination,
        request: &[u8],
    ) -> Result<(), Malformed> {
        let state = &mut *self.state;
        if destination != state.core.destination() {
            self.shared.notify(state.core.correct(caller, destination, &*self.shared.reply_sink));
            return Ok(());
        }
        if Request::inspects(request) {
            let reply = self.shared.inspect(state, self.now, request)?;
            self.shared.reply_sink.deliver(caller, &reply);
            return Ok(());
        }
        if Request::manages(request) {
            if let Some(refusal) = self.shared.manage(state, caller, request)? {
                self.shared.reply_sink.deliver(caller, &refusal);
            }
            return Ok(());
        }
        self.shared.handle(state, self.now, caller, request, None).map(drop)
    }

    /// Takes a client's heartbeat.
    pub fn on_heartbeat(&mut self, connection: u64, client: u64, heartbeat: &ClientHeartbeat) {
        self.state.core.on_heartbeat(connection, client, heartbeat);
    }

    /// Lets a connection watch nodes.
    pub fn admit_watcher(&mut self, connection: u64) {
        self.state.core.admit_watcher(connection);
    }

    /// Releases what a connection held, which has ended.
    pub fn disconnected(&mut self, connection: u64) {
        self.state.core.disconnected(connection);
    }

    /// Returns the time of the server's clock, or why the server gives out none.
    pub fn clock(&mut self) -> Result<Timestamp, ClockState> {
        let core = &mut self.state.core;
        match core.clock_state() {
            state if state.serves() => Ok(core.engine_mut().clock(self.now)),
            state => Err(state),
        }
    }
}
