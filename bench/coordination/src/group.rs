//! The coordinator's side of a group, as a state machine.
//!
//! ```text
//! gathering --all joined--> idle --prepare--> entering --all entered--> proposed --all agreed--> running --all left--> idle
//!                                                          ^                |
//!                                                          +--one was late--+
//! ```
//!
//! Whoever drives it tells it what came from clients ([`Group::on`]) and the
//! time ([`Group::tick`], no later than [`Group::wake_at`]), and does what
//! it asks for. It never waits without a limit. An event costs the same however
//! many clients there are; a look for silent ones, when the one that was heard of longest ago would
//! have been silent for the timeout, a step for each.

use crate::clock::{Exchange, Offset, OffsetFilter};
use std::fmt;

/// Proposals of one start before clients that did not agree are lost.
pub const ATTEMPTS_MAX: u32 = 3;

/// What happens to the others when a client is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLost {
    /// The experiment ends.
    End,
    /// They go on.
    Continue,
}

/// How a group goes about it. Spans in ns.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Clients that it needs. Above zero.
    pub clients: usize,
    /// Silence after which a client is lost.
    pub timeout: u64,
    /// Time in which all must have joined, or entered a phase.
    pub wait: u64,
    /// From the proposal of a start to the start, at least.
    pub lead: u64,
    /// Largest error of a client's clock with which a phase begins.
    pub clock_error_max: f64,
    /// What a lost client means for the others.
    pub on_lost: OnLost,
}

impl Default for Settings {
    fn default() -> Self {
        const MS: u64 = 1_000_000;
        Settings {
            clients: 1,
            timeout: 6_000 * MS,
            wait: 60_000 * MS,
            lead: 300 * MS,
            clock_error_max: 1e6,
            on_lost: OnLost::End,
        }
    }
}

/// Why a client takes no part any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// Its connection ended, or its node is gone; in whose words.
    Gone(String),
    /// It said nothing for the timeout.
    Silent,
    /// It came to no barrier within the time for it.
    Absent,
    /// It would not agree to a start, or was not there at the start.
    Late,
    /// It did not end with the phase.
    Overdue,
    /// Its clock could not be told well enough: the error, ns.
    Clock(u64),
    /// It cannot go on, in its own words.
    Failed(String),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Gone(how) => write!(f, "went away: {how}"),
            Loss::Silent => {
                f.write_str("says nothing any more: its machine, its network or the process stands still")
            }
            Loss::Absent => f.write_str("did not come to the barrier in time"),
            Loss::Late => f.write_str("was not there at the start: its process stood still just then"),
            Loss::Overdue => f.write_str("did not end with the phase"),
            Loss::Clock(error) => write!(
                f,
                "has a clock that can be told to {:.3} ms only, for messages take so long; allow more, or use a better network",
                *error as f64 / 1e6
            ),
            Loss::Failed(words) => write!(f, "cannot do its part: {words}"),
        }
    }
}

/// A client that was lost, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Its number.
    pub client: usize,
    /// Why.
    pub why: Loss,
    /// When, ns by the coordinator's clock.
    pub at: u64,
}

/// What came from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Something, if only that it is there.
    Heard,
    /// An answer about its clock.
    Clock(Exchange),
    /// It is ready for the phase.
    Entered,
    /// It agrees to the start proposed by this attempt.
    Agreed(u32),
    /// It let its threads go; when, ns by its own clock.
    Began(u64),
    /// It has done its part and handed over what it saw.
    Left,
    /// It is lost.
    Lost(Loss),
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// All have joined: the first phase may be prepared.
    Complete,
    /// Ask all that take part whether they can begin then; ns by the
    /// coordinator's clock, to be told to each by its own.
    Propose {
        /// Number of the proposal; what was agreed to an earlier one is void.
        attempt: u32,
        /// The instant.
        at: u64,
    },
    /// Ask all about their clocks again, for some are not known well enough
    /// ([`Group::wants_clock`]).
    AskClocks,
    /// Tell all that take part that it is so.
    Confirm {
        /// Number of the proposal.
        attempt: u32,
        /// The instant.
        at: u64,
    },
    /// A client was lost; it is not to be heard again.
    Dismiss(Lost),
    /// Tell all that take part to end their load and hand over what they saw.
    Stop,
    /// The phase is over.
    Over(PhaseEnd),
    /// The group is over before all had joined, or between phases.
    Disband,
}

/// How a phase went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseEnd {
    /// The start, ns by the coordinator's clock; `None` if it never began.
    pub start: Option<u64>,
    /// When the last had left, ns.
    pub end: u64,
    /// From the first client's actual start to the last one's, ns, and the largest
    /// error of the clocks that it was seen by.
    pub skew: Option<(u64, u64)>,
    /// Those that were lost in it.
    pub lost: Vec<Lost>,
    /// Whether the next phase may begin.
    pub go_on: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Takes no part in the present phase.
    Idle,
    Preparing,
    Entered,
    Agreed,
    Left,
    Lost,
}

#[derive(Debug)]
struct Client {
    standing: Standing,
    heard: u64,
    clock: OffsetFilter,
    began: Option<u64>,
}

/// All clients, and how many stand where.
#[derive(Debug, Default)]
struct Clients {
    all: Vec<Client>,
    standing: [usize; 6],
}

impl Clients {
    fn count(&self, standing: Standing) -> usize {
        self.standing[standing as usize]
    }

    /// Those that take part in the phase and are not lost.
    fn taking_part(&self) -> usize {
        self.all.len() - self.count(Standing::Idle) - self.count(Standing::Lost)
    }

    fn all_left(&self) -> bool {
        self.taking_part() == self.count(Standing::Left)
    }

    fn put(&mut self, number: usize, standing: Standing) {
        let client = &mut self.all[number];
        self.standing[client.standing as usize] -= 1;
        self.standing[standing as usize] += 1;
        client.standing = standing;
    }

    fn add(&mut self, now: u64) -> usize {
        let client =
            Client { standing: Standing::Idle, heard: now, clock: OffsetFilter::default(), began: None };
        self.standing[Standing::Idle as usize] += 1;
        self.all.push(client);
        self.all.len() - 1
    }

    /// A place that somebody has left.
    fn reuse(&mut self, now: u64) -> Option<usize> {
        let number = self.all.iter().position(|client| client.standing == Standing::Lost)?;
        self.put(number, Standing::Idle);
        self.all[number].heard = now;
        self.all[number].clock = OffsetFilter::default();
        Some(number)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Gathering,
    Idle,
    Entering,
    /// All have entered; the clocks of some are not known well enough yet.
    Clocks,
    Proposed {
        attempt: u32,
        at: u64,
    },
    Running {
        at: u64,
    },
    /// The phase ends early: what was measured is waited for.
    Stopping {
        began: Option<u64>,
    },
    Disbanded,
}

/// A group of clients, seen by its coordinator.
#[derive(Debug)]
pub struct Group {
    settings: Settings,
    clients: Clients,
    stage: Stage,
    /// When the present stage has lasted too long.
    deadline: u64,
    next_look: u64,
    /// The longest that the phase may last once it has begun, ns.
    length_max: Option<u64>,
    lost: Vec<Lost>,
    stop_asked: bool,
}

impl Group {
    /// A group that nobody has joined yet.
    pub fn new(settings: Settings, now: u64) -> Group {
        Group {
            clients: Clients::default(),
            stage: Stage::Gathering,
            deadline: now.saturating_add(settings.wait),
            next_look: now.saturating_add(settings.timeout),
            length_max: None,
            lost: Vec::new(),
            stop_asked: false,
            settings,
        }
    }

    /// A client wants to join. Its number, from 0; `None` if there are as many
    /// as wanted. One that is lost before all have joined leaves its place to
    /// the next.
    pub fn join(&mut self, now: u64, actions: &mut Vec<Action>) -> Option<usize> {
        if self.stage != Stage::Gathering {
            return None;
        }
        let number = self.clients.reuse(now).unwrap_or_else(|| self.clients.add(now));
        if self.joined() == self.settings.clients {
            self.stage = Stage::Idle;
            self.deadline = u64::MAX;
            self.lost.clear();
            actions.push(Action::Complete);
        }
        Some(number)
    }

    /// Whether a phase has begun and is not over.
    pub fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running { .. } | Stage::Stopping { .. })
    }

    /// How many have joined and are not lost.
    pub fn joined(&self) -> usize {
        self.clients.all.len() - self.clients.count(Standing::Lost)
    }

    /// Whether this client takes no part any more.
    pub fn is_lost(&self, client: usize) -> bool {
        self.clients.all.get(client).is_none_or(|client| client.standing == Standing::Lost)
    }

    /// The offset of a client's clock at an instant of the coordinator's.
    pub fn offset(&self, client: usize, instant: u64) -> Option<Offset> {
        self.clients.all.get(client)?.clock.at(instant)
    }

    /// Begins a phase in which these clients take part; those that are lost are
    /// left out. `length_max` is the longest that it may last from its
    /// start, ns. The clients are to be sent their work by whoever calls this.
    pub fn prepare(
        &mut self,
        now: u64,
        takes_part: impl Fn(usize) -> bool,
        length_max: Option<u64>,
        actions: &mut Vec<Action>,
    ) {
        if self.stage != Stage::Idle {
            return;
        }
        self.length_max = length_max;
        for number in 0..self.clients.all.len() {
            if self.is_lost(number) {
                continue;
            }
            self.clients.put(number, if takes_part(number) { Standing::Preparing } else { Standing::Idle });
            self.clients.all[number].began = None;
        }
        self.stage = Stage::Entering;
        self.deadline = now.saturating_add(self.settings.wait);
        self.go_on(now, actions);
    }

    /// Something came from a client.
    pub fn on(&mut self, client: usize, event: Event, now: u64, actions: &mut Vec<Action>) {
        let Some(it) = self.clients.all.get_mut(client).filter(|it| it.standing != Standing::Lost) else {
            return;
        };
        it.heard = it.heard.max(now);
        match (event, it.standing, self.stage) {
            (Event::Clock(exchange), _, stage) => {
                it.clock.add(exchange);
                if stage != Stage::Clocks {
                    return;
                }
            }
            (Event::Began(at), Standing::Agreed | Standing::Left, _) => it.began = Some(at),
            (Event::Entered, Standing::Preparing, _) => self.clients.put(client, Standing::Entered),
            (Event::Agreed(number), Standing::Entered, Stage::Proposed { attempt, .. })
                if attempt == number =>
            {
                self.clients.put(client, Standing::Agreed);
            }
            (Event::Left, Standing::Agreed, Stage::Running { .. })
            // Told to end before it began.
            | (
                Event::Left,
                Standing::Agreed | Standing::Entered | Standing::Preparing,
                Stage::Stopping { .. } | Stage::Entering | Stage::Clocks | Stage::Proposed { .. },
            ) => self.clients.put(client, Standing::Left),
            (Event::Lost(why), ..) => self.lose(client, why, now, actions),
            // A sign of life, or late words of an earlier stage.
            _ => return,
        }
        self.go_on(now, actions);
    }

    /// Ends the phase, or the group if there is none: somebody asked.
    pub fn stop(&mut self, now: u64, actions: &mut Vec<Action>) {
        self.stop_asked = true;
        self.end(now, actions);
        self.go_on(now, actions);
    }

    /// When [`Group::tick`] is wanted at the latest, ns.
    pub fn wake_at(&self) -> u64 {
        if self.stage == Stage::Disbanded { u64::MAX } else { self.deadline.min(self.next_look) }
    }

    /// Looks at the time.
    pub fn tick(&mut self, now: u64, actions: &mut Vec<Action>) {
        if now >= self.next_look {
            let timeout = self.settings.timeout;
            self.lose_where(Loss::Silent, now, actions, |client| now.saturating_sub(client.heard) >= timeout);
            // When the next would have been silent for so long, if nothing comes from it.
            let there = self.clients.all.iter().filter(|client| client.standing != Standing::Lost);
            let heard = there.map(|client| client.heard).min().unwrap_or(now);
            self.next_look = heard.saturating_add(timeout).max(now.saturating_add(timeout / 64)).max(now + 1);
        }
        if now >= self.deadline {
            self.too_long(now, actions);
        }
        self.go_on(now, actions);
    }

    /// The present stage has lasted too long.
    fn too_long(&mut self, now: u64, actions: &mut Vec<Action>) {
        self.deadline = u64::MAX;
        match self.stage {
            Stage::Gathering | Stage::Running { .. } => self.end(now, actions),
            Stage::Entering => {
                self.lose_where(Loss::Absent, now, actions, |client| client.standing == Standing::Preparing);
            }
            Stage::Clocks => self.refuse_bad_clocks(now, actions),
            // Nothing was confirmed, so nobody begins.
            Stage::Proposed { attempt, .. } if attempt < ATTEMPTS_MAX => {
                self.propose(attempt + 1, now, actions);
            }
            Stage::Proposed { attempt, .. } => {
                self.lose_where(Loss::Late, now, actions, |client| client.standing == Standing::Entered);
                if let Stage::Proposed { .. } = self.stage {
                    self.propose(attempt + 1, now, actions);
                }
            }
            Stage::Stopping { .. } => self.lose_where(Loss::Overdue, now, actions, |client| {
                matches!(client.standing, Standing::Preparing | Standing::Entered | Standing::Agreed)
            }),
            Stage::Idle | Stage::Disbanded => {}
        }
    }

    fn lose_where(
        &mut self,
        why: Loss,
        now: u64,
        actions: &mut Vec<Action>,
        which: impl Fn(&Client) -> bool,
    ) {
        for number in 0..self.clients.all.len() {
            if !self.is_lost(number) && which(&self.clients.all[number]) {
                self.lose(number, why.clone(), now, actions);
            }
        }
    }

    fn lose(&mut self, number: usize, why: Loss, now: u64, actions: &mut Vec<Action>) {
        self.clients.put(number, Standing::Lost);
        let lost = Lost { client: number, why, at: now };
        actions.push(Action::Dismiss(lost.clone()));
        self.lost.push(lost);
        if self.settings.on_lost == OnLost::End && self.stage != Stage::Gathering {
            self.end(now, actions);
        }
    }

    /// Ends the phase, or the group if there is none.
    fn end(&mut self, now: u64, actions: &mut Vec<Action>) {
        let began = match self.stage {
            Stage::Gathering | Stage::Idle => return self.disband(actions),
            Stage::Entering | Stage::Clocks | Stage::Proposed { .. } => None,
            Stage::Running { at } => Some(at),
            Stage::Stopping { .. } | Stage::Disbanded => return,
        };
        self.stage = Stage::Stopping { began };
        // As long as a result may take on its way; one that is silent is
        // found before.
        self.deadline = now.saturating_add(self.settings.wait);
        actions.push(Action::Stop);
    }

    fn disband(&mut self, actions: &mut Vec<Action>) {
        self.stage = Stage::Disbanded;
        actions.push(Action::Disband);
    }

    /// Goes to the next stage if nothing is missing for it.
    fn go_on(&mut self, now: u64, actions: &mut Vec<Action>) {
        let (preparing, entered) =
            (self.clients.count(Standing::Preparing), self.clients.count(Standing::Entered));
        match self.stage {
            Stage::Entering | Stage::Clocks if self.clients.taking_part() == 0 => {
                self.over(None, now, actions)
            }
            Stage::Entering if preparing == 0 => {
                self.stage = Stage::Clocks;
                self.deadline = now.saturating_add(self.settings.timeout / 2);
                if self.clocks_are_known(now) {
                    self.propose(1, now, actions);
                } else {
                    actions.push(Action::AskClocks);
                }
            }
            Stage::Clocks if self.clocks_are_known(now) => self.propose(1, now, actions),
            Stage::Proposed { .. } if self.clients.taking_part() == 0 => self.over(None, now, actions),
            Stage::Proposed { attempt, at } if entered == 0 => {
                self.stage = Stage::Running { at };
                self.deadline = self.length_max.map_or(u64::MAX, |length| {
                    at.saturating_add(length).saturating_add(self.settings.timeout)
                });
                actions.push(Action::Confirm { attempt, at });
            }
            Stage::Running { at } if self.clients.all_left() => self.over(Some(at), now, actions),
            Stage::Stopping { began } if self.clients.all_left() => self.over(began, now, actions),
            _ => {}
        }
    }

    /// Whether more should be asked about the clock of a client.
    pub fn wants_clock(&self, client: usize, now: u64) -> bool {
        self.stage == Stage::Clocks
            && self.clients.all.get(client).is_some_and(|client| {
                client.standing == Standing::Entered
                    && self.clock_error(client, now) > self.settings.clock_error_max
            })
    }

    fn clock_error(&self, client: &Client, now: u64) -> f64 {
        client.clock.at(now).map_or(f64::INFINITY, |offset| offset.error)
    }

    fn clocks_are_known(&self, now: u64) -> bool {
        (0..self.clients.all.len()).all(|client| !self.wants_clock(client, now))
    }

    fn refuse_bad_clocks(&mut self, now: u64, actions: &mut Vec<Action>) {
        for number in 0..self.clients.all.len() {
            let client = &self.clients.all[number];
            let error = self.clock_error(client, now);
            if client.standing == Standing::Entered && error > self.settings.clock_error_max {
                self.lose(number, Loss::Clock(error as u64), now, actions);
            }
        }
    }

    fn propose(&mut self, attempt: u32, now: u64, actions: &mut Vec<Action>) {
        let mut slowest = 0;
        for number in 0..self.clients.all.len() {
            if self.clients.all[number].standing == Standing::Agreed {
                self.clients.put(number, Standing::Entered);
            }
            let client = &self.clients.all[number];
            if client.standing == Standing::Entered {
                slowest = slowest.max(client.clock.round_trip_min().unwrap_or(0));
            }
        }
        // What takes part is patient with a slow machine, but not for ever.
        let patience = u64::from(attempt.min(ATTEMPTS_MAX));
        let lead = self.settings.lead.max(slowest.saturating_mul(10)).saturating_mul(patience);
        let at = now.saturating_add(lead);
        self.stage = Stage::Proposed { attempt, at };
        // Half of it is left for the confirmation to arrive.
        self.deadline = now.saturating_add(lead / 2);
        actions.push(Action::Propose { attempt, at });
    }

    fn over(&mut self, start: Option<u64>, now: u64, actions: &mut Vec<Action>) {
        let lost = std::mem::take(&mut self.lost);
        let ends =
            self.joined() == 0 || self.stop_asked || self.settings.on_lost == OnLost::End && !lost.is_empty();
        let skew = self.skew(start);
        self.stage = if ends { Stage::Disbanded } else { Stage::Idle };
        self.deadline = u64::MAX;
        actions.push(Action::Over(PhaseEnd { start, end: now, skew, lost, go_on: !ends }));
    }

    /// From the first actual start to the last, and the largest error of the
    /// clocks that it was seen by, ns.
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
