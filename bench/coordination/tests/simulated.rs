//! A coordinator and its clients on a simulated network: messages are delayed,
//! clocks differ, processes freeze and die.

use serval_coordination::{
    clock::{Asking, Exchange},
    group::{self, Group, GroupSettings, Loss, OnLost, PhaseEnd},
    member::{self, Member},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;
/// Start of simulated time, long after the start of all machines.
const BEGIN: u64 = 1_000_000 * MS;

#[derive(Debug, Clone)]
enum Message {
    /// To a client.
    Ask(u64),
    Prepare,
    Propose(u32, u64),
    Confirm(u32),
    Stop,
    /// To the coordinator.
    Answer(u64, u64),
    Heard,
    Entered,
    Agreed(u32),
    Began(u64),
    Left,
    Late,
    Closed,
}

#[derive(Debug)]
enum SimulatedEvent {
    ToClient(usize, Message),
    ToCoordinator(usize, Message),
    /// The coordinator handles a message.
    Taken(usize, Message),
    /// A client's preparation or load ends.
    Ready(usize),
    Go(usize, u64),
    Done(usize),
    Beat(usize),
    BeatAll,
    Freeze(usize),
    Thaw(usize),
    Kill(usize),
    WakeCoordinator,
    WakeClient(usize),
}

impl SimulatedEvent {
    /// The client concerned.
    fn client(&self) -> Option<usize> {
        match self {
            SimulatedEvent::ToClient(client, _)
            | SimulatedEvent::Ready(client)
            | SimulatedEvent::Go(client, _)
            | SimulatedEvent::Done(client)
            | SimulatedEvent::Beat(client)
            | SimulatedEvent::WakeClient(client) => Some(*client),
            _ => None,
        }
    }
}

struct SimulatedClient {
    member: Member,
    /// Offset of its clock from the coordinator's, ns.
    ahead: i64,
    frozen: bool,
    dead: bool,
    /// Events that occurred while it was frozen.
    late: Vec<SimulatedEvent>,
    began: Option<u64>,
    loading: bool,
    /// When it abandoned the group, by the true clock.
    abandoned: Option<u64>,
}

struct World {
    now: u64,
    random: fastrand::Rng,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, SimulatedEvent>,
    sequence: u64,
    clients: Vec<SimulatedClient>,
    group: Group,
    length: u64,
    delay_max: u64,
    /// Coordinator's time for each message sent or received, ns; and when it has handled all of them.
    cost: u64,
    free_at: u64,
    asking: Asking,
    /// Numbers of initial clock exchanges left for each client.
    first: Vec<usize>,
    messages: u64,
    ends: Vec<PhaseEnd>,
    disbanded: bool,
    phases: usize,
}

impl World {
    fn new(seed: u64, settings: GroupSettings, length: u64, delay_max: u64) -> World {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let count = settings.clients;
        let mut group = Group::new(settings.clone(), BEGIN);
        let mut actions = Vec::new();
        let clients = (0..count)
            .map(|number| {
                assert_eq!(group.join(BEGIN, &mut actions), Some(number));
                let ahead = random.i64(-500_000_000_000..500_000_000_000);
                SimulatedClient {
                    member: Member::new(settings.timeout, BEGIN.saturating_add_signed(ahead)),
                    ahead,
                    frozen: false,
                    dead: false,
                    late: Vec::new(),
                    began: None,
                    loading: false,
                    abandoned: None,
                }
            })
            .collect();
        assert_eq!(actions, [group::GroupAction::Complete]);
        let mut world = World {
            now: BEGIN,
            random,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            clients,
            group,
            length,
            delay_max,
            cost: 0,
            free_at: BEGIN,
            asking: Asking::default(),
            first: vec![8; count],
            messages: 0,
            ends: Vec::new(),
            disbanded: false,
            phases: 1,
        };
        for client in 0..count {
            world.ask_clock(client);
            world.after(500 * MS, SimulatedEvent::Beat(client));
        }
        world.after(500 * MS, SimulatedEvent::BeatAll);
        world
    }

    fn after(&mut self, span: u64, event: SimulatedEvent) {
        self.sequence += 1;
        self.queue.push(Reverse((self.now + span, self.sequence)));
        self.events.insert(self.sequence, event);
    }

    fn ask_clock(&mut self, client: usize) {
        if self.asking.want(client) {
            self.ask_now(client);
        }
    }

    fn ask_now(&mut self, client: usize) {
        let asked = self.now + self.busy();
        self.messages += 1;
        let delay = asked - self.now + self.delay();
        self.after(delay, SimulatedEvent::ToClient(client, Message::Ask(asked)));
    }

    /// Returns the time until the coordinator has handled one more message, ns.
    fn busy(&mut self) -> u64 {
        self.free_at = self.free_at.max(self.now) + self.cost;
        self.free_at - self.now
    }

    fn delay(&mut self) -> u64 {
        self.random.u64(self.delay_max / 10..=self.delay_max)
    }

    fn send_to_client(&mut self, client: usize, message: Message) {
        self.messages += 1;
        let delay = self.delay() + self.busy();
        self.after(delay, SimulatedEvent::ToClient(client, message));
    }

    fn send_to_coordinator(&mut self, client: usize, message: Message) {
        self.messages += 1;
        let delay = self.delay();
        self.after(delay, SimulatedEvent::ToCoordinator(client, message));
    }

    fn local(&self, client: usize) -> u64 {
        self.now.saturating_add_signed(self.clients[client].ahead)
    }

    fn prepare(&mut self) {
        let mut actions = Vec::new();
        let length = self.length;
        self.group.prepare(self.now, |_| true, Some(length + 1000 * MS), &mut actions);
        for client in 0..self.clients.len() {
            if !self.group.is_lost(client) {
                self.send_to_client(client, Message::Prepare);
            }
        }
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<group::GroupAction>) {
        use group::GroupAction;
        let all = |world: &World| -> Vec<usize> {
            (0..world.clients.len()).filter(|client| !world.group.is_lost(*client)).collect()
        };
        for action in actions {
            match action {
                GroupAction::Complete | GroupAction::Dismiss(_) => {}
                GroupAction::AskClocks => {
                    self.asking.forget();
                    for client in all(self) {
                        if self.group.wants_clock(client, self.now) {
                            self.ask_clock(client);
                        }
                    }
                }
                GroupAction::Propose { attempt, at } => {
                    for client in all(self) {
                        let at = self.group.offset(client, at).expect("its clock is known").to_client(at);
                        self.send_to_client(client, Message::Propose(attempt, at));
                    }
                }
                GroupAction::Confirm { attempt, .. } => {
                    all(self)
                        .into_iter()
                        .for_each(|client| self.send_to_client(client, Message::Confirm(attempt)));
                }
                GroupAction::Stop => {
                    all(self).into_iter().for_each(|client| self.send_to_client(client, Message::Stop));
                }
                GroupAction::Over(end) => {
                    let go_on = end.go_on;
                    self.ends.push(end);
                    if go_on && self.ends.len() < self.phases {
                        self.prepare();
                    } else {
                        self.disbanded = true;
                    }
                }
                GroupAction::Disband => self.disbanded = true,
            }
        }
    }

    fn perform_client_actions(&mut self, client: usize, actions: Vec<member::MemberAction>) {
        use member::MemberAction;
        for action in actions {
            match action {
                MemberAction::Enter => self.send_to_coordinator(client, Message::Entered),
                MemberAction::Agree(attempt) => self.send_to_coordinator(client, Message::Agreed(attempt)),
                MemberAction::Go(at) => {
                    let span = at - self.local(client);
                    self.after(span, SimulatedEvent::Go(client, self.length));
                }
                MemberAction::Late => self.send_to_coordinator(client, Message::Late),
                MemberAction::End => {
                    self.clients[client].loading = false;
                    self.after(MS, SimulatedEvent::Done(client));
                }
                MemberAction::Leave => self.send_to_coordinator(client, Message::Left),
                MemberAction::Abandon => {
                    self.clients[client].loading = false;
                    self.clients[client].abandoned = Some(self.now);
                    // The client closes its connection.
                    self.send_to_coordinator(client, Message::Closed);
                }
            }
        }
        let wake = self.clients[client].member.wake_at();
        if wake != u64::MAX {
            let span = wake.saturating_sub(self.local(client));
            self.after(span, SimulatedEvent::WakeClient(client));
        }
    }

    /// Runs until the group ends, and for `more` after it.
    fn run(&mut self, more: u64) {
        let mut until = BEGIN + HOUR;
        while let Some(Reverse((at, sequence))) = self.queue.pop() {
            if self.disbanded {
                until = until.min(self.now + more);
            }
            if at > until {
                break;
            }
            self.now = at;
            let event = self.events.remove(&sequence).expect("each event occurs once");
            self.handle(event);
        }
        assert!(self.disbanded, "the group is not over after an hour: {:?}", self.ends);
    }

    /// Handles an event that is due. Events of a frozen client wait until it thaws.
    fn handle(&mut self, event: SimulatedEvent) {
        if let Some(client) = event.client() {
            if self.clients[client].dead {
                return;
            }
            if self.clients[client].frozen {
                return self.clients[client].late.push(event);
            }
        }
        match event {
            SimulatedEvent::ToClient(client, message) => self.client_receives(client, message),
            SimulatedEvent::ToCoordinator(client, message) if self.cost > 0 => {
                let busy = self.busy();
                self.after(busy, SimulatedEvent::Taken(client, message));
            }
            SimulatedEvent::ToCoordinator(client, message) | SimulatedEvent::Taken(client, message) => {
                self.coordinator_receives(client, message);
            }
            SimulatedEvent::Ready(client) => self.client_event(client, member::MemberEvent::Ready),
            SimulatedEvent::Go(client, length) => self.start_load(client, length),
            SimulatedEvent::Done(client) => {
                self.clients[client].loading = false;
                self.client_event(client, member::MemberEvent::Finished);
            }
            SimulatedEvent::Beat(client) => {
                self.send_to_coordinator(client, Message::Heard);
                if !self.disbanded {
                    self.after(500 * MS, SimulatedEvent::Beat(client));
                }
            }
            SimulatedEvent::BeatAll => self.beat_all(),
            SimulatedEvent::Freeze(client) => self.clients[client].frozen = true,
            SimulatedEvent::Thaw(client) => {
                self.clients[client].frozen = false;
                for event in std::mem::take(&mut self.clients[client].late) {
                    self.handle(event);
                }
            }
            SimulatedEvent::Kill(client) => self.clients[client].dead = true,
            SimulatedEvent::WakeCoordinator => {
                let mut actions = Vec::new();
                self.group.tick(self.now, &mut actions);
                self.perform(actions);
            }
            SimulatedEvent::WakeClient(client) => {
                let (mut actions, local) = (Vec::new(), self.local(client));
                self.clients[client].member.tick(local, &mut actions);
                if !actions.is_empty() {
                    self.perform_client_actions(client, actions);
                }
            }
        }
    }

    fn client_event(&mut self, client: usize, event: member::MemberEvent) {
        let (mut actions, local) = (Vec::new(), self.local(client));
        self.clients[client].member.on(event, local, &mut actions);
        self.perform_client_actions(client, actions);
    }

    fn client_receives(&mut self, client: usize, message: Message) {
        use member::MemberEvent;
        let event = match message {
            Message::Ask(asked) => {
                let local = self.local(client);
                return self.send_to_coordinator(client, Message::Answer(asked, local));
            }
            Message::Prepare => MemberEvent::Prepare,
            Message::Propose(attempt, at) => MemberEvent::Proposed { attempt, at },
            Message::Confirm(attempt) => MemberEvent::Confirmed { attempt },
            Message::Stop => MemberEvent::Stop,
            _ => MemberEvent::Heard,
        };
        if event == MemberEvent::Prepare {
            let span = self.random.u64(1..2000) * MS;
            self.after(span, SimulatedEvent::Ready(client));
        }
        self.client_event(client, event);
    }

    fn coordinator_receives(&mut self, client: usize, message: Message) {
        use group::GroupEvent;
        let event = match message {
            Message::Answer(asked, answered) => {
                GroupEvent::Clock(Exchange { asked, answered, received: self.now })
            }
            Message::Entered => GroupEvent::Entered,
            Message::Agreed(attempt) => GroupEvent::Agreed(attempt),
            Message::Began(at) => GroupEvent::Began(at),
            Message::Left => GroupEvent::Left,
            Message::Late => GroupEvent::Lost(Loss::Late),
            Message::Closed => GroupEvent::Lost(Loss::Gone("closed".to_owned())),
            _ => GroupEvent::Heard,
        };
        let is_answer = matches!(event, GroupEvent::Clock(_));
        let mut actions = Vec::new();
        self.group.on(client, event, self.now, &mut actions);
        self.perform(actions);
        if is_answer {
            if let Some(next) = self.asking.answered() {
                self.ask_now(next);
            }
            self.first[client] = self.first[client].saturating_sub(1);
            if self.first[client] > 0 || self.group.wants_clock(client, self.now) {
                self.ask_clock(client);
            }
        }
        let wake = self.group.wake_at().saturating_sub(self.now);
        self.after(wake.min(HOUR), SimulatedEvent::WakeCoordinator);
    }

    fn start_load(&mut self, client: usize, length: u64) {
        if self.clients[client].abandoned.is_some() {
            return;
        }
        self.clients[client].began = Some(self.now);
        self.clients[client].loading = true;
        let local = self.local(client);
        self.send_to_coordinator(client, Message::Began(local));
        self.after(length, SimulatedEvent::Done(client));
    }

    /// Sends the coordinator's heartbeats and clock exchanges.
    fn beat_all(&mut self) {
        for client in 0..self.clients.len() {
            if !self.group.is_lost(client) {
                self.send_to_client(client, Message::Heard);
            }
        }
        self.asking.forget();
        for client in 0..self.clients.len() {
            if !self.group.is_lost(client) {
                self.ask_clock(client);
            }
        }
        if !self.disbanded {
            self.after(500 * MS, SimulatedEvent::BeatAll);
        }
    }
}

fn settings(clients: usize, on_lost: OnLost) -> GroupSettings {
    GroupSettings { clients, on_lost, clock_error_max: 5e6, ..GroupSettings::default() }
}

#[test]
fn clients_start_together_within_the_error_of_their_clocks() {
    for seed in 0..200 {
        let mut world = World::new(seed, settings(4, OnLost::End), 10_000 * MS, MS);
        world.phases = 3;
        world.after(100 * MS, SimulatedEvent::WakeCoordinator);
        world.prepare();
        world.run(0);
        assert_eq!(world.ends.len(), 3);
        for end in &world.ends {
            assert_eq!(end.lost, []);
        }
        let starts: Vec<u64> = world.clients.iter().map(|client| client.began.unwrap()).collect();
        let true_skew = starts.iter().max().unwrap() - starts.iter().min().unwrap();
        let (seen, error) = world.ends[2].skew.unwrap();
        assert!(true_skew <= 2 * error, "{true_skew} > 2 * {error}");
        assert!(seen.abs_diff(true_skew) <= 2 * error + 2, "seen {seen}, true {true_skew}, error {error}");
    }
}

#[test]
fn a_client_that_dies_or_freezes_at_any_time_is_reported_and_nothing_hangs() {
    for seed in 0..600 {
        let on_lost = if seed % 2 == 0 { OnLost::End } else { OnLost::Continue };
        let mut world = World::new(seed, settings(3, on_lost), 10_000 * MS, MS);
        let when = world.random.u64(0..14_000) * MS;
        let frozen = seed % 3 != 0;
        let span = world.random.u64(7_000..20_000) * MS;
        if frozen {
            world.after(when, SimulatedEvent::Freeze(1));
            world.after(when + span, SimulatedEvent::Thaw(1));
        } else {
            world.after(when, SimulatedEvent::Kill(1));
        }
        world.after(0, SimulatedEvent::WakeCoordinator);
        world.prepare();
        world.run(60_000 * MS);
        let end = &world.ends[0];
        let left_before = end.lost.is_empty();
        if left_before {
            // The client had sent its results before.
            assert!(end.start.is_some());
        } else {
            assert_eq!(end.lost.len(), 1, "{end:?}");
            assert_eq!(end.lost[0].client, 1);
            assert_eq!(end.go_on, on_lost == OnLost::Continue);
        }
        for client in [0, 2] {
            let early = world.clients[client].abandoned.is_some_and(|at| at < end.end);
            assert!(!early, "a healthy client abandoned the group: {end:?}");
        }
        assert!(
            world.clients.iter().all(|client| client.dead || !client.loading),
            "a load runs after the end"
        );
        if frozen && !left_before {
            assert!(
                world.clients[1].abandoned.is_some(),
                "a lost client believes that it is in the group: {end:?}"
            );
        }
        // The client is lost within the timeout after its last message.
        if let Some(lost) = end.lost.first() {
            let wait = lost.at - (BEGIN + when);
            assert!(wait <= 6_000 * MS + 500 * MS, "noticed after {} ms", wait / MS);
        }
    }
}

#[test]
fn a_group_that_stays_incomplete_disbands() {
    let mut group = Group::new(settings(2, OnLost::End), 0);
    let mut actions = Vec::new();
    group.join(0, &mut actions);
    let mut now = 0;
    while !actions.contains(&group::GroupAction::Disband) {
        now = group.wake_at();
        assert!(now < u64::MAX, "waits for ever");
        // The client that joined is alive.
        group.on(0, group::GroupEvent::Heard, now, &mut actions);
        group.tick(now, &mut actions);
    }
    assert_eq!(now, settings(2, OnLost::End).wait);
}

/// The number of messages of the coordinator grows linearly with the clients. Prints it for ten
/// thousand.
#[test]
fn ten_thousand_clients_at_the_barrier() {
    let messages = |clients: usize| {
        let mut world = World::new(1, settings(clients, OnLost::End), 1_000 * MS, 2 * MS);
        world.after(0, SimulatedEvent::WakeCoordinator);
        world.prepare();
        world.run(0);
        assert_eq!(world.ends[0].lost, []);
        println!("{clients} clients: {} messages, skew {:?} ns", world.messages, world.ends[0].skew);
        world.messages as f64 / clients as f64
    };
    let (few, many) = (messages(100), messages(10_000));
    assert!(many < few * 1.1, "{many} messages a client, and {few} with a hundred");
}

/// The coordinator's time per message is the first limit. `docs/coordination.md` has the table.
#[test]
fn the_coordinators_time_per_message_is_the_first_limit() {
    let outcome = |clients: usize, cost_us: u64, delay_ms: u64| {
        let mut world = World::new(1, settings(clients, OnLost::Continue), 1_000 * MS, delay_ms * MS);
        world.cost = cost_us * 1000;
        world.after(0, SimulatedEvent::WakeCoordinator);
        world.prepare();
        world.run(0);
        let end = &world.ends[0];
        let mut why = BTreeMap::new();
        for lost in &end.lost {
            *why.entry(format!("{:?}", lost.why).split('(').next().unwrap().to_owned()).or_insert(0) += 1;
        }
        println!(
            "{clients} clients, {cost_us} us a message, delays of {delay_ms} ms at most: skew {:?}, lost {why:?}",
            end.skew
        );
        why
    };
    let well = BTreeMap::new();
    assert_eq!(outcome(1_000, 20, 2), well);
    assert_eq!(outcome(10_000, 10, 2), well);
    // The heartbeats and clock exchanges of a second then take more than a second: no clock is known
    // well enough in time, or a proposal arrives too late.
    let broken = outcome(10_000, 50, 2);
    assert!(broken.keys().all(|why| ["Clock", "Late"].contains(&why.as_str())), "{broken:?}");
    assert_eq!(broken.values().sum::<usize>(), 10_000);
}
