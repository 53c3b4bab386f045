//! The world of one run: what time it is, what is about to happen, and who is
//! there.

use crate::{
    network::{Body, Call, Link},
    reference::Book,
    server::Server,
    steps::{Act, PEERS, PROCESSES, SERVERS, Step, TASKS, process_of},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    rc::Rc,
    sync::Weak,
    task::{Poll, Waker},
};
use yesquel_engine::Now;
use yesquel_model::Timestamp;
use yesquel_seeds::Random;
use yesquel_transport::Holdings;
use yesquel_tree::Tree;

pub(crate) type Shared = Rc<RefCell<World>>;

/// Milliseconds since 1970 when a run begins.
const START_MS: u64 = 1_000_000;
/// How often clients say of themselves what servers must know.
const NEWS_US: u64 = 200_000;
/// Who makes the trees, and reads them in the end: nothing happens to it.
pub(crate) const OBSERVER: usize = PEERS;

pub(crate) enum Event {
    /// A message of a connection comes to the server.
    Message {
        link: usize,
        index: u64,
        body: Body,
    },
    /// A reply comes to whoever has asked.
    Reply {
        link: usize,
        index: u64,
        call: u64,
        bytes: Vec<u8>,
    },
    /// A call fails.
    Lost {
        call: u64,
    },
    /// A server learns that a connection has ended.
    Disconnected {
        link: usize,
    },
    /// Clients say what there is to say of them.
    News,
    /// Records go to a server's disk, and are there.
    Write {
        server: usize,
        epoch: u64,
    },
    Sync {
        server: usize,
        epoch: u64,
    },
    Checkpoint {
        server: usize,
        epoch: u64,
    },
    Tick {
        server: usize,
        epoch: u64,
    },
    Rise {
        server: usize,
    },
    Fault(Step),
    Cut {
        link: usize,
        cut: Cut,
    },
    Wake(Waker),
}

/// What a run went through.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) committed: u64,
    pub(crate) of_several: u64,
    pub(crate) unknown: u64,
    pub(crate) deaths: u64,
    pub(crate) splits: u64,
    pub(crate) load_splits: u64,
    pub(crate) removals: u64,
    pub(crate) drops: u64,
    pub(crate) restarts: u64,
    pub(crate) power_cuts: u64,
    pub(crate) disk_failures: u64,
    pub(crate) checkpoints: u64,
    pub(crate) recovered: u64,
    pub(crate) cuts: u64,
}

impl Counts {
    fn each(&mut self) -> [&mut u64; 14] {
        [
            &mut self.committed,
            &mut self.of_several,
            &mut self.unknown,
            &mut self.deaths,
            &mut self.splits,
            &mut self.load_splits,
            &mut self.removals,
            &mut self.drops,
            &mut self.restarts,
            &mut self.power_cuts,
            &mut self.disk_failures,
            &mut self.checkpoints,
            &mut self.recovered,
            &mut self.cuts,
        ]
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        let mut other = *other;
        self.each().into_iter().zip(other.each()).for_each(|(sum, more)| *sum += *more);
    }

    /// Of what there was least.
    pub(crate) fn least(&self) -> u64 {
        let mut counts = *self;
        counts.each().into_iter().map(|count| *count).min().unwrap_or(0)
    }
}

/// How a connection is cut: quarters of what is under way that still come, and
/// how much later the requests among it do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    requests: u64,
    late_us: u64,
    replies: u64,
}

/// A client's process, life after life.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) lives: u64,
    pub(crate) calls: u64,
    /// The calls with which it dies, and whether they are sent.
    pub(crate) deaths: Vec<(u64, bool)>,
    /// The calls whose connections are cut, and how long after that and how.
    pub(crate) cuts: Vec<(u64, u64, Cut)>,
    pub(crate) holdings: Option<Weak<dyn Holdings>>,
    /// The latest commit that it was told of.
    pub(crate) committed: Timestamp,
}

/// A server that some cannot reach.
pub(crate) struct Parted {
    pub(crate) server: usize,
    pub(crate) peers: u32,
    pub(crate) until_us: u64,
    pub(crate) breaks: bool,
}

/// How long things take.
#[derive(Debug, Clone, Copy)]
struct Weather {
    seed: u64,
    late_in: u64,
    late_us: u64,
}

pub(crate) struct World {
    pub(crate) now_us: u64,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    weather: Option<Weather>,
    pub(crate) servers: Vec<Server>,
    pub(crate) processes: Vec<Process>,
    pub(crate) links: Vec<Link>,
    /// The connection that is open between two.
    pub(crate) open: BTreeMap<(usize, usize), usize>,
    pub(crate) calls: BTreeMap<u64, Call>,
    pub(crate) last_call: u64,
    pub(crate) parted: Vec<Parted>,
    pub(crate) programs: Vec<VecDeque<(u64, Act)>>,
    /// The trees, as all clients know them.
    pub(crate) slots: Vec<Tree>,
    pub(crate) book: Book,
    /// The task that is polled.
    pub(crate) current: Option<usize>,
    /// Processes that have just died.
    pub(crate) dying: Vec<usize>,
    /// Servers that have fallen or risen, whose helpers go or come.
    pub(crate) changed: Vec<usize>,
    /// Nothing goes wrong any more.
    pub(crate) is_healed: bool,
    pub(crate) counts: Counts,
}

impl World {
    pub(crate) fn new(steps: &[Step]) -> World {
        let mut world = World {
            now_us: 0,
            events: BTreeMap::new(),
            sequence: 0,
            weather: None,
            servers: (0..SERVERS).map(Server::new).collect(),
            processes: (0..=PEERS).map(|_| Process::default()).collect(),
            links: Vec::new(),
            open: BTreeMap::new(),
            calls: BTreeMap::new(),
            last_call: 0,
            parted: Vec::new(),
            programs: vec![VecDeque::new(); TASKS],
            slots: Vec::new(),
            book: Book::new(steps.iter().any(Step::is_fault)),
            current: None,
            dying: Vec::new(),
            changed: Vec::new(),
            is_healed: false,
            counts: Counts::default(),
        };
        for step in steps {
            match step.clone() {
                Step::Weather { seed, late_in, late_us } => {
                    world.weather = Some(Weather { seed, late_in, late_us });
                }
                Step::Log { checkpoint_bytes, segment_bytes } => {
                    for server in &mut world.servers {
                        (server.checkpoint_bytes, server.segment_bytes) = (checkpoint_bytes, segment_bytes);
                    }
                }
                Step::Act { task, pause_us, act } => world.programs[task].push_back((pause_us, act)),
                Step::CutCall { process, call, after_us, requests, late_us, replies } => {
                    let cut = Cut { requests, late_us, replies };
                    world.processes[process].cuts.push((call, after_us, cut));
                }
                Step::Die { process, call, sent } => world.processes[process].deaths.push((call, sent)),
                _ => {}
            }
        }
        world.after(NEWS_US, Event::News);
        world
    }

    /// From now on the steps' faults happen.
    pub(crate) fn begin_faults(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Cut { at_us, .. }
                | Step::Part { at_us, .. }
                | Step::Fall { at_us, .. }
                | Step::PowerGoes { at_us, .. }
                | Step::SyncFails { at_us, .. }
                | Step::Full { at_us, .. }
                | Step::Clock { at_us, .. } => self.after(*at_us, Event::Fault(step.clone())),
                _ => {}
            }
        }
    }

    pub(crate) fn after(&mut self, us: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now_us + us, self.sequence), event);
    }

    /// What happens next; time goes on to it.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let ((at_us, _), event) = self.events.pop_first()?;
        self.now_us = self.now_us.max(at_us);
        Some(event)
    }

    /// Takes events out that are not to happen, or not then, in their order.
    pub(crate) fn take_events(&mut self, is_meant: impl Fn(&Event) -> bool) -> Vec<Event> {
        let meant = self.events.iter().filter(|(_, event)| is_meant(event));
        let meant: Vec<(u64, u64)> = meant.map(|(at, _)| *at).collect();
        meant.iter().filter_map(|at| self.events.remove(at)).collect()
    }

    /// How long something takes. It depends on nothing else that happens, so
    /// that a step that is left out changes little.
    pub(crate) fn takes(&self, what: [u64; 4]) -> u64 {
        let Some(Weather { seed, late_in, late_us }) = self.weather else { return 200 };
        let mixed = what.iter().fold(seed, |mixed, part| {
            (mixed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .rotate_left(23)
                .wrapping_mul(0xff51_afd7_ed55_8ccd)
        });
        let mut random = Random::new(mixed ^ mixed >> 31);
        if late_in > 0 && !self.is_healed && random.next(late_in) == 0 {
            random.next(late_us)
        } else {
            50 + random.next(2_000)
        }
    }

    pub(crate) fn clock(&self, server: usize) -> Now {
        let Server { ahead_ms, started_us, .. } = &self.servers[server];
        Now {
            wall_ms: (START_MS + self.now_us / 1_000).saturating_add_signed(*ahead_ms),
            uptime_ms: (self.now_us - started_us) / 1_000,
        }
    }

    pub(crate) fn happen(&mut self, event: Event) {
        match event {
            Event::Message { link, index, body } => self.arrive(link, index, body),
            Event::Reply { link, index, call, bytes } => self.replied(link, index, call, bytes),
            Event::Lost { call } => self.complete(call, Err(())),
            Event::Disconnected { link } => self.disconnected(link),
            Event::News => {
                self.tell_news();
                self.after(NEWS_US, Event::News);
            }
            Event::Write { server, epoch } => self.write(server, epoch),
            Event::Sync { server, epoch } => self.sync(server, epoch),
            Event::Checkpoint { server, epoch } => self.write_checkpoint(server, epoch),
            Event::Tick { server, epoch } => self.tick(server, epoch),
            Event::Rise { server } => self.rise(server),
            Event::Fault(step) => self.fault(&step),
            Event::Cut { link, cut: Cut { requests, late_us, replies } } => {
                if self.is_open(link) {
                    self.hold_back(link, late_us);
                    self.cut(link, requests, replies);
                }
            }
            Event::Wake(waker) => waker.wake(),
        }
    }

    fn fault(&mut self, step: &Step) {
        if self.is_healed {
            return;
        }
        match *step {
            Step::Cut { peer, server, requests, late_us, replies, .. } => {
                if let Some(link) = self.open.get(&(peer, server)).copied() {
                    self.happen(Event::Cut { link, cut: Cut { requests, late_us, replies } });
                }
            }
            Step::Part { us, server, peers, breaks, .. } => {
                self.parted.push(Parted { server, peers, until_us: self.now_us + us, breaks });
                if breaks {
                    let is_meant = |peer: usize| peer < PEERS && peers >> peer & 1 == 1;
                    self.cut_all(|peer, of| of == server && is_meant(peer), 2, 2);
                    self.cut_all(|peer, of| peer == PROCESSES + server && is_meant(PROCESSES + of), 2, 2);
                }
            }
            Step::Fall { server, power, down_us, ahead_ms, .. } => {
                if let Some(ahead_ms) = ahead_ms {
                    self.servers[server].ahead_ms = ahead_ms;
                }
                self.fall(server, power, down_us);
            }
            Step::PowerGoes { server, operations, seed, down_us, .. } => {
                let of = &mut self.servers[server];
                of.outage = (seed, down_us);
                of.disk.lose_power_after(operations, seed);
            }
            Step::SyncFails { server, power, until_us, at_us } => {
                self.servers[server].disk.fail_syncs();
                let (at_us, down_us) = (until_us - at_us, 1_000);
                self.after(at_us, Event::Fault(Step::Fall { at_us, server, power, down_us, ahead_ms: None }));
            }
            Step::Full { server, room, until_us, at_us } => {
                self.servers[server].disk.fill(room);
                let (at_us, down_us) = (until_us - at_us, 1_000);
                let fall = Step::Fall { at_us, server, power: None, down_us, ahead_ms: None };
                self.after(at_us, Event::Fault(fall));
            }
            Step::Clock { server, ahead_ms, .. } => self.servers[server].ahead_ms = ahead_ms,
            Step::Weather { .. } | Step::Log { .. } | Step::Act { .. } => {}
            Step::Die { .. } | Step::CutCall { .. } => {}
        }
    }

    /// Nothing goes wrong from now on, and what is down comes back.
    pub(crate) fn heal(&mut self) {
        self.is_healed = true;
        self.parted.clear();
        for process in &mut self.processes {
            process.deaths.clear();
            process.cuts.clear();
        }
        for server in 0..SERVERS {
            let of = &mut self.servers[server];
            of.ahead_ms = 0;
            match &of.running {
                Some(running) if running.failed => self.fall(server, None, 1_000),
                _ => of.disk.repair(),
            }
        }
    }

    /// The next thing that a task is to do.
    pub(crate) fn next_act(&mut self, task: usize) -> Option<(u64, Act)> {
        self.programs[task].pop_front()
    }

    /// The process of a task, if it is a client's.
    pub(crate) fn process(&mut self, task: usize) -> Option<&mut Process> {
        if task < TASKS { self.processes.get_mut(process_of(task)) } else { None }
    }
}

const _: () = assert!(PROCESSES < PEERS);

/// Waits until so much time has passed.
pub(crate) async fn pause(shared: &Shared, us: u64) {
    let until_us = shared.borrow().now_us + us;
    poll_fn(|context| {
        let mut world = shared.borrow_mut();
        if world.now_us >= until_us {
            return Poll::Ready(());
        }
        let left = until_us - world.now_us;
        world.after(left, Event::Wake(context.waker().clone()));
        Poll::Pending
    })
    .await;
}
