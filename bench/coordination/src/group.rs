//! The coordinator's side of a group, as a state machine.
//!
//! ```text
//! gathering --all joined--> idle --prepare--> entering --all entered--> proposed --all agreed--> running --all left--> idle
//!                                                          ^                |
//!                                                          +--one was late--+
//! ```
//!
//! The caller passes events of clients ([`Group::on`]) and the time
//! ([`Group::tick`], no later than [`Group::wake_at`]), and performs the actions
//! that it gets. Each stage has a time limit. An event costs O(1); the search for
//! silent clients costs O(clients) and runs when the oldest heartbeat reaches the
//! timeout.

use crate::clock::{ClockOffset, Exchange, OffsetFilter};
use std::fmt;

/// Number of proposals of a start before clients that did not agree are lost.
pub const ATTEMPTS_MAX: u32 = 3;

/// Reaction to a lost client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLost {
    /// The experiment ends.
    End,
    /// The other clients continue.
    Continue,
}

/// Number of clients and time limits of a group. Durations in ns.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSettings {
    /// Number of clients. Above zero.
    pub clients: usize,
    /// Silence after which a client is lost.
    pub timeout: u64,
    /// Time limit for all clients to join, or to be ready for a phase.
    pub wait: u64,
    /// Minimum time from the proposal of a start to the start.
    pub lead: u64,
    /// Largest error of a client's clock offset with which a phase starts.
    pub clock_error_max: f64,
    /// Reaction to a lost client.
    pub on_lost: OnLost,
}

impl Default for GroupSettings {
    fn default() -> Self {
        const MS: u64 = 1_000_000;
        GroupSettings {
            clients: 1,
            timeout: 6_000 * MS,
            wait: 60_000 * MS,
            lead: 300 * MS,
            clock_error_max: 1e6,
            on_lost: OnLost::End,
        }
    }
}

/// Reason for which a client was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// The connection ended: how.
    Gone(String),
    /// The client was silent for the timeout.
    Silent,
    /// The client did not reach the barrier in time.
    Absent,
    /// The client did not agree to a start, or missed it.
    Late,
    /// The client did not end with the phase.
    Overdue,
    /// The error of the client's clock offset is too large: the error, ns.
    Clock(u64),
    /// The client failed, with this message.
    Failed(String),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Gone(how) => write!(f, "disconnected: {how}"),
            Loss::Silent => {
                f.write_str("sends nothing any more: its machine, its network or its process has stopped")
            }
            Loss::Absent => f.write_str("did not reach the barrier in time"),
            Loss::Late => f.write_str("missed the start: its process did not run at that instant"),
            Loss::Overdue => f.write_str("did not end with the phase"),
            Loss::Clock(error) => write!(
                f,
                "has a clock whose offset is known only to {:.3} ms, because of the messages' round-trip time; allow a larger error, or use a better network",
                *error as f64 / 1e6
            ),
            Loss::Failed(words) => write!(f, "cannot do its part: {words}"),
        }
    }
}

/// A client that was lost, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostClient {
    /// Number of the client.
    pub client: usize,
    /// Reason.
    pub why: Loss,
    /// Instant at which the coordinator dropped the client, ns of its own clock.
    pub at: u64,
}

/// An event of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupEvent {
    /// Any message, such as a heartbeat.
    Heard,
    /// An answer to a request for the client's time.
    Clock(Exchange),
    /// The client is ready for the phase.
    Entered,
    /// The client agrees to the start proposed by this attempt.
    Agreed(u32),
    /// The client started its threads at this instant, ns of its own clock.
    Began(u64),
    /// The client has done its part and sent its result.
    Left,
    /// The client is lost.
    Lost(Loss),
}

/// Action that the coordinator must perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupAction {
    /// All clients have joined: the first phase may be prepared.
    Complete,
    /// Ask all clients of the phase to agree to a start, ns of the coordinator's
    /// clock. The message to a client has the instant on the client's own clock.
    Propose {
        /// Number of the proposal; agreement to an earlier one is void.
        attempt: u32,
        /// The instant.
        at: u64,
    },
    /// Request the time of clients again ([`Group::wants_clock`]): the error of some
    /// clock offsets is too large.
    AskClocks,
    /// Confirm the start to all clients of the phase.
    Confirm {
        /// Number of the proposal.
        attempt: u32,
        /// The instant.
        at: u64,
    },
    /// A client was lost; ignore its messages from now on.
    Dismiss(LostClient),
    /// Ask all clients of the phase to end their load and send their results.
    Stop,
    /// The phase is over.
    Over(PhaseEnd),
    /// The group is over, before all clients had joined or between phases.
    Disband,
}

/// Outcome of a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseEnd {
    /// The start, ns of the coordinator's clock; `None` if it never started.
    pub start: Option<u64>,
    /// Instant at which the last client had left, ns.
    pub end: u64,
    /// Time from the first client's actual start to the last one's, ns, and the
    /// largest error of the clock offsets that it was computed with.
    pub skew: Option<(u64, u64)>,
    /// Clients that were lost in the phase.
    pub lost: Vec<LostClient>,
    /// Whether the next phase may begin.
    pub go_on: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientStage {
    /// Takes no part in the current phase.
    Idle,
    Preparing,
    Entered,
    Agreed,
    Left,
    Lost,
}

#[derive(Debug)]
struct TrackedClient {
    stage: ClientStage,
    heard: u64,
    clock: OffsetFilter,
    began: Option<u64>,
}

/// Clients of the group, and their number in each stage.
#[derive(Debug, Default)]
struct Clients {
    all: Vec<TrackedClient>,
    in_stage: [usize; 6],
}

impl Clients {
    fn count(&self, stage: ClientStage) -> usize {
        self.in_stage[stage as usize]
    }

    /// Returns the number of clients that take part in the phase and are not lost.
    fn taking_part(&self) -> usize {
        self.all.len() - self.count(ClientStage::Idle) - self.count(ClientStage::Lost)
    }

    fn all_left(&self) -> bool {
        self.taking_part() == self.count(ClientStage::Left)
    }

    fn put(&mut self, number: usize, stage: ClientStage) {
        let client = &mut self.all[number];
        self.in_stage[client.stage as usize] -= 1;
        self.in_stage[stage as usize] += 1;
        client.stage = stage;
    }

    fn add(&mut self, now: u64) -> usize {
        let client = TrackedClient {
            stage: ClientStage::Idle,
            heard: now,
            clock: OffsetFilter::default(),
            began: None,
        };
        self.in_stage[ClientStage::Idle as usize] += 1;
        self.all.push(client);
        self.all.len() - 1
    }

    /// Gives the number of a lost client to a new one.
    fn reuse(&mut self, now: u64) -> Option<usize> {
        let number = self.all.iter().position(|client| client.stage == ClientStage::Lost)?;
        self.put(number, ClientStage::Idle);
        self.all[number].heard = now;
        self.all[number].clock = OffsetFilter::default();
        Some(number)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupStage {
    Gathering,
    Idle,
    Entering,
    /// All clients have entered; the clock error of some is still too large.
    Clocks,
    Proposed {
        attempt: u32,
        at: u64,
    },
    Running {
        at: u64,
    },
    /// The phase ends early; the coordinator waits for results.
    Stopping {
        began: Option<u64>,
    },
    Disbanded,
}

/// The coordinator's view of a group.
#[derive(Debug)]
pub struct Group {
    settings: GroupSettings,
    clients: Clients,
    stage: GroupStage,
    /// Time limit of the current stage.
    deadline: u64,
    next_check: u64,
    /// Longest time that the phase may last from its start, ns.
    length_max: Option<u64>,
    lost: Vec<LostClient>,
    stop_asked: bool,
}

impl Group {
    /// Returns a group without clients.
    pub fn new(settings: GroupSettings, now: u64) -> Group {
        Group {
            clients: Clients::default(),
            stage: GroupStage::Gathering,
            deadline: now.saturating_add(settings.wait),
            next_check: now.saturating_add(settings.timeout),
            length_max: None,
            lost: Vec::new(),
            stop_asked: false,
            settings,
        }
    }

    /// Adds a client. Returns its number, from 0; `None` if the group is complete.
    /// A client that is lost before the group is complete is replaced by the next.
    pub fn join(&mut self, now: u64, actions: &mut Vec<GroupAction>) -> Option<usize> {
        if self.stage != GroupStage::Gathering {
            return None;
        }
        let number = self.clients.reuse(now).unwrap_or_else(|| self.clients.add(now));
        if self.joined() == self.settings.clients {
            self.stage = GroupStage::Idle;
            self.deadline = u64::MAX;
            self.lost.clear();
            actions.push(GroupAction::Complete);
        }
        Some(number)
    }

    /// Returns whether a phase has started and is not over.
    pub fn is_running(&self) -> bool {
        matches!(self.stage, GroupStage::Running { .. } | GroupStage::Stopping { .. })
    }

    /// Returns the number of clients that have joined and are not lost.
    pub fn joined(&self) -> usize {
        self.clients.all.len() - self.clients.count(ClientStage::Lost)
    }

    /// Returns whether this client was lost, or never joined.
    pub fn is_lost(&self, client: usize) -> bool {
        self.clients.all.get(client).is_none_or(|client| client.stage == ClientStage::Lost)
    }

    /// Returns the offset of a client's clock at an instant of the coordinator's.
    pub fn offset(&self, client: usize, instant: u64) -> Option<ClockOffset> {
        self.clients.all.get(client)?.clock.at(instant)
    }

    /// Starts a phase with these clients, except lost ones. `length_max` is the
    /// longest time that it may last from its start, ns. The caller sends the
    /// clients their work.
    pub fn prepare(
        &mut self,
        now: u64,
        takes_part: impl Fn(usize) -> bool,
        length_max: Option<u64>,
        actions: &mut Vec<GroupAction>,
    ) {
        if self.stage != GroupStage::Idle {
            return;
        }
        self.length_max = length_max;
        for number in 0..self.clients.all.len() {
            if self.is_lost(number) {
                continue;
            }
            self.clients
                .put(number, if takes_part(number) { ClientStage::Preparing } else { ClientStage::Idle });
            self.clients.all[number].began = None;
        }
        self.stage = GroupStage::Entering;
        self.deadline = now.saturating_add(self.settings.wait);
        self.advance(now, actions);
    }

    /// Handles an event of a client.
    pub fn on(&mut self, client: usize, event: GroupEvent, now: u64, actions: &mut Vec<GroupAction>) {
        let sender = self.clients.all.get_mut(client);
        let Some(sender) = sender.filter(|sender| sender.stage != ClientStage::Lost) else { return };
        sender.heard = sender.heard.max(now);
        match (event, sender.stage, self.stage) {
            (GroupEvent::Clock(exchange), _, stage) => {
                sender.clock.add(exchange);
                if stage != GroupStage::Clocks {
                    return;
                }
            }
            (GroupEvent::Began(at), ClientStage::Agreed | ClientStage::Left, _) => sender.began = Some(at),
            (GroupEvent::Entered, ClientStage::Preparing, _) => self.clients.put(client, ClientStage::Entered),
            (GroupEvent::Agreed(number), ClientStage::Entered, GroupStage::Proposed { attempt, .. })
                if attempt == number =>
            {
                self.clients.put(client, ClientStage::Agreed);
            }
            (GroupEvent::Left, ClientStage::Agreed, GroupStage::Running { .. })
            // Asked to end before the start.
            | (
                GroupEvent::Left,
                ClientStage::Agreed | ClientStage::Entered | ClientStage::Preparing,
                GroupStage::Stopping { .. } | GroupStage::Entering | GroupStage::Clocks | GroupStage::Proposed { .. },
            ) => self.clients.put(client, ClientStage::Left),
            (GroupEvent::Lost(why), ..) => self.lose(client, why, now, actions),
            // A heartbeat, or a late message of an earlier stage.
            _ => return,
        }
        self.advance(now, actions);
    }

    /// Ends the phase, or the group between phases, because the user asked for it.
    pub fn stop(&mut self, now: u64, actions: &mut Vec<GroupAction>) {
        self.stop_asked = true;
        self.end(now, actions);
        self.advance(now, actions);
    }

    /// Returns when [`Group::tick`] must be called at the latest, ns.
    pub fn wake_at(&self) -> u64 {
        if self.stage == GroupStage::Disbanded { u64::MAX } else { self.deadline.min(self.next_check) }
    }

    /// Checks the time limits.
    pub fn tick(&mut self, now: u64, actions: &mut Vec<GroupAction>) {
        if now >= self.next_check {
            let timeout = self.settings.timeout;
            self.lose_all(Loss::Silent, now, actions, |client| now.saturating_sub(client.heard) >= timeout);
            // When the next client would have been silent for the timeout.
            let present = self.clients.all.iter().filter(|client| client.stage != ClientStage::Lost);
            let heard = present.map(|client| client.heard).min().unwrap_or(now);
            self.next_check =
                heard.saturating_add(timeout).max(now.saturating_add(timeout / 64)).max(now + 1);
        }
        if now >= self.deadline {
            self.on_deadline(now, actions);
        }
        self.advance(now, actions);
    }

    /// Handles the end of the current stage's time limit.
    fn on_deadline(&mut self, now: u64, actions: &mut Vec<GroupAction>) {
        self.deadline = u64::MAX;
        match self.stage {
            GroupStage::Gathering | GroupStage::Running { .. } => self.end(now, actions),
            GroupStage::Entering => {
                self.lose_all(Loss::Absent, now, actions, |client| client.stage == ClientStage::Preparing);
            }
            GroupStage::Clocks => self.refuse_bad_clocks(now, actions),
            // Nothing was confirmed, so no client starts.
            GroupStage::Proposed { attempt, .. } if attempt < ATTEMPTS_MAX => {
                self.propose(attempt + 1, now, actions);
            }
            GroupStage::Proposed { attempt, .. } => {
                self.lose_all(Loss::Late, now, actions, |client| client.stage == ClientStage::Entered);
                if let GroupStage::Proposed { .. } = self.stage {
                    self.propose(attempt + 1, now, actions);
                }
            }
            GroupStage::Stopping { .. } => self.lose_all(Loss::Overdue, now, actions, |client| {
                matches!(client.stage, ClientStage::Preparing | ClientStage::Entered | ClientStage::Agreed)
            }),
            GroupStage::Idle | GroupStage::Disbanded => {}
        }
    }

    fn lose_all(
        &mut self,
        why: Loss,
        now: u64,
        actions: &mut Vec<GroupAction>,
        which: impl Fn(&TrackedClient) -> bool,
    ) {
        for number in 0..self.clients.all.len() {
            if !self.is_lost(number) && which(&self.clients.all[number]) {
                self.lose(number, why.clone(), now, actions);
            }
        }
    }

    fn lose(&mut self, number: usize, why: Loss, now: u64, actions: &mut Vec<GroupAction>) {
        self.clients.put(number, ClientStage::Lost);
        let lost = LostClient { client: number, why, at: now };
        actions.push(GroupAction::Dismiss(lost.clone()));
        self.lost.push(lost);
        if self.settings.on_lost == OnLost::End && self.stage != GroupStage::Gathering {
            self.end(now, actions);
        }
    }

    /// Ends the phase, or the group between phases.
    fn end(&mut self, now: u64, actions: &mut Vec<GroupAction>) {
        let began = match self.stage {
            GroupStage::Gathering | GroupStage::Idle => return self.disband(actions),
            GroupStage::Entering | GroupStage::Clocks | GroupStage::Proposed { .. } => None,
            GroupStage::Running { at } => Some(at),
            GroupStage::Stopping { .. } | GroupStage::Disbanded => return,
        };
        self.stage = GroupStage::Stopping { began };
        // Time limit for results to arrive; silent clients are found earlier.
        self.deadline = now.saturating_add(self.settings.wait);
        actions.push(GroupAction::Stop);
    }

    fn disband(&mut self, actions: &mut Vec<GroupAction>) {
        self.stage = GroupStage::Disbanded;
        actions.push(GroupAction::Disband);
    }

    /// Enters the next stage if its condition holds.
    fn advance(&mut self, now: u64, actions: &mut Vec<GroupAction>) {
        let (preparing, entered) =
            (self.clients.count(ClientStage::Preparing), self.clients.count(ClientStage::Entered));
        match self.stage {
            GroupStage::Entering | GroupStage::Clocks if self.clients.taking_part() == 0 => {
                self.over(None, now, actions)
            }
            GroupStage::Entering if preparing == 0 => {
                self.stage = GroupStage::Clocks;
                self.deadline = now.saturating_add(self.settings.timeout / 2);
                if self.clocks_are_known(now) {
                    self.propose(1, now, actions);
                } else {
                    actions.push(GroupAction::AskClocks);
                }
            }
            GroupStage::Clocks if self.clocks_are_known(now) => self.propose(1, now, actions),
            GroupStage::Proposed { .. } if self.clients.taking_part() == 0 => self.over(None, now, actions),
            GroupStage::Proposed { attempt, at } if entered == 0 => {
                self.stage = GroupStage::Running { at };
                self.deadline = self.length_max.map_or(u64::MAX, |length| {
                    at.saturating_add(length).saturating_add(self.settings.timeout)
                });
                actions.push(GroupAction::Confirm { attempt, at });
            }
            GroupStage::Running { at } if self.clients.all_left() => self.over(Some(at), now, actions),
            GroupStage::Stopping { began } if self.clients.all_left() => self.over(began, now, actions),
            _ => {}
        }
    }

    /// Returns whether the clock of a client needs more exchanges.
    pub fn wants_clock(&self, client: usize, now: u64) -> bool {
        self.stage == GroupStage::Clocks
            && self.clients.all.get(client).is_some_and(|client| {
                client.stage == ClientStage::Entered
                    && self.clock_error(client, now) > self.settings.clock_error_max
            })
    }

    fn clock_error(&self, client: &TrackedClient, now: u64) -> f64 {
        client.clock.at(now).map_or(f64::INFINITY, |offset| offset.error)
    }

    fn clocks_are_known(&self, now: u64) -> bool {
        (0..self.clients.all.len()).all(|client| !self.wants_clock(client, now))
    }

    fn refuse_bad_clocks(&mut self, now: u64, actions: &mut Vec<GroupAction>) {
        for number in 0..self.clients.all.len() {
            let client = &self.clients.all[number];
            let error = self.clock_error(client, now);
            if client.stage == ClientStage::Entered && error > self.settings.clock_error_max {
                self.lose(number, Loss::Clock(error as u64), now, actions);
            }
        }
    }

    fn propose(&mut self, attempt: u32, now: u64, actions: &mut Vec<GroupAction>) {
        let mut slowest = 0;
        for number in 0..self.clients.all.len() {
            if self.clients.all[number].stage == ClientStage::Agreed {
                self.clients.put(number, ClientStage::Entered);
            }
            let client = &self.clients.all[number];
            if client.stage == ClientStage::Entered {
                slowest = slowest.max(client.clock.round_trip_min().unwrap_or(0));
            }
        }
        // Later attempts allow slow machines more time, up to a limit.
        let factor = u64::from(attempt.min(ATTEMPTS_MAX));
        let lead = self.settings.lead.max(slowest.saturating_mul(10)).saturating_mul(factor);
        let at = now.saturating_add(lead);
        self.stage = GroupStage::Proposed { attempt, at };
        // The other half is for the confirmation to arrive.
        self.deadline = now.saturating_add(lead / 2);
        actions.push(GroupAction::Propose { attempt, at });
    }

    fn over(&mut self, start: Option<u64>, now: u64, actions: &mut Vec<GroupAction>) {
        let lost = std::mem::take(&mut self.lost);
        let ends =
            self.joined() == 0 || self.stop_asked || self.settings.on_lost == OnLost::End && !lost.is_empty();
        let skew = self.skew(start);
        self.stage = if ends { GroupStage::Disbanded } else { GroupStage::Idle };
        self.deadline = u64::MAX;
        actions.push(GroupAction::Over(PhaseEnd { start, end: now, skew, lost, go_on: !ends }));
    }

    /// Returns the time from the first actual start to the last, and the largest
    /// error of the clock offsets that it was computed with, ns.
    fn skew(&self, start: Option<u64>) -> Option<(u64, u64)> {
        let (mut first, mut last, mut error, mut count) = (u64::MAX, 0, 0.0f64, 0);
        for client in &self.clients.all {
            let (Some(offset), Some(began)) = (client.clock.at(start?), client.began) else { continue };
            let began = offset.to_coordinator(began);
            (first, last, error, count) =
                (first.min(began), last.max(began), error.max(offset.error), count + 1);
        }
        (count > 1).then(|| (last - first, error as u64))
    }
}
