//! CPU, memory and network use of the client and of watched processes, read at both ends of the measured part.

use crate::{
    client_bound::{ClientUsage, bound_by_client},
    plan::Plan,
    properties as p,
    secrets::{is_secret, without_secrets},
};
use serval_model::{Metric, properties::Faults};
use serval_result::{
    load::{ClientLoad, ProcessLoad},
    note::Note,
};
use serval_runner::{ClientExecution, RunRecord, late_from};
use serval_watch::{Machine, MemoryReading, ProcessGroup, Selection, Snapshot, System};

/// Longest command line in a result, in characters.
const COMMAND_MAX: usize = 200;

/// Resource use of all processes at one instant.
struct UsageReading {
    machine: Option<Machine>,
    own: Snapshot,
    watched: Vec<Snapshot>,
}

/// Observed processes, with their resource use at both ends of the measured part.
pub(crate) struct Costs {
    system: System,
    own: ProcessGroup,
    watched: Vec<(String, ProcessGroup)>,
    first: Option<UsageReading>,
    last: Option<UsageReading>,
    /// Ids and names of this process's threads at the end.
    threads: Vec<(u32, String)>,
}

/// Costs in a result document.
#[derive(Default)]
pub(crate) struct CostResults {
    pub(crate) client: Option<ClientLoad>,
    pub(crate) processes: Vec<ProcessLoad>,
    pub(crate) notes: Vec<Note>,
}

impl Costs {
    /// Finds the processes that a plan watches.
    pub(crate) fn find(plan: &Plan) -> Result<Costs, Faults> {
        let system = System::this();
        let (mut watched, mut faults) = (Vec::new(), Vec::new());
        for part in &plan.watch {
            let Some(selection) = Selection::parse(part) else { continue };
            match system.find(&selection) {
                Ok(group) => watched.push((part.clone(), group)),
                Err(error) => {
                    let problem =
                        format!("watch: {error}. A store on another machine cannot be watched from here");
                    faults.push(plan.properties.fault_of(&p::WATCH, problem));
                }
            }
        }
        if !faults.is_empty() {
            return Err(Faults(faults));
        }
        let own = system.own();
        Ok(Costs { system, own, watched, first: None, last: None, threads: Vec::new() })
    }

    fn read(&self, memory: MemoryReading) -> UsageReading {
        let look = self.system.look();
        UsageReading {
            machine: self.system.machine(),
            own: Snapshot::take(&look, &self.own, memory),
            watched: self.watched.iter().map(|(_, group)| Snapshot::take(&look, group, memory)).collect(),
        }
    }

    /// Reads resource use at the begin of the measured part.
    pub(crate) fn begin(&mut self) {
        self.first = Some(self.read(MemoryReading::Leave));
    }

    /// Reads resource use at the end of the measured part.
    pub(crate) fn end(&mut self) {
        let last = self.read(MemoryReading::Read);
        if let Some(first) = &self.first {
            let own = std::process::id();
            let threads =
                last.own.threads_since(&first.own).into_iter().filter(|thread| thread.process == own);
            let names = threads
                .filter_map(|thread| Some((thread.thread, self.system.thread_name(own, thread.thread)?)));
            self.threads = names.collect();
        }
        self.last = Some(last);
    }

    /// Returns the costs of the measured part; empty if the run did not reach its end.
    pub(crate) fn results(self, plan: &Plan, record: &RunRecord) -> CostResults {
        let (Some(first), Some(last)) = (&self.first, &self.last) else { return CostResults::default() };
        let mut notes = Vec::new();
        let mut processes = Vec::new();
        for ((name, group), (earlier, later)) in
            self.watched.iter().zip(first.watched.iter().zip(&last.watched))
        {
            if later.is_empty() {
                notes.push(Note::WatchedProcessEnded { name: name.clone() });
                continue;
            }
            if let Some(why) = later.no_bytes() {
                notes.push(Note::WatchedBytesUnknown { name: name.clone(), why: why.to_string() });
            }
            processes.push(ProcessLoad {
                name: name.clone(),
                pids: group.pids(),
                command: command(group.command()),
                usage: later.since(earlier),
            });
        }
        CostResults { client: Some(self.client(plan, record, first, last)), processes, notes }
    }

    fn client(
        &self,
        plan: &Plan,
        record: &RunRecord,
        first: &UsageReading,
        last: &UsageReading,
    ) -> ClientLoad {
        let usage = last.own.since(&first.own);
        let event_loops = matches!(record.execution, ClientExecution::EventLoops(_));
        let prefix = if event_loops { "event-loop-" } else { "client-" };
        let of_clients =
            |thread: u32| self.threads.iter().any(|(id, name)| *id == thread && name.starts_with(prefix));
        let own = std::process::id();
        let shares: Vec<f64> = last
            .own
            .threads_since(&first.own)
            .into_iter()
            .filter(|thread| thread.process == own && of_clients(thread.thread))
            .map(|thread| thread.share)
            .collect();
        let threads = shares.len() as u64;
        let busiest_thread = shares.into_iter().reduce(f64::max);
        let machine_busy = last.machine.zip(first.machine).and_then(|(now, before)| now.busy_since(&before));
        let outside_store =
            if event_loops || plan.options.rate.is_some() { None } else { outside_store(record) };
        let bound_by_client = bound_by_client(&ClientUsage {
            event_loops: event_loops.then_some(threads.max(1)),
            clients: record.clients as u64,
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            busiest_thread,
            outside_store,
            machine_busy,
            cpu_s: usage.cpu_s,
            run_queue_s: usage.run_queue_s,
            scheduled: record.totals.lateness.count(),
            overslept: record.totals.overslept,
            late_from_ms: 1e3 * late_from(record.slack).as_secs_f64(),
        });
        ClientLoad { usage, threads, busiest_thread, outside_store, machine_busy, bound_by_client }
    }
}

/// Returns the share of the clients' time in which no operation was in flight.
fn outside_store(record: &RunRecord) -> Option<f64> {
    // Other metrics count the time of these operations again. A flush may lie inside an operation or between two.
    let counts = |metric: &Metric| metric.is_operation() || *metric == Metric::FLUSH;
    let measured = record.totals.measured.iter().filter(|((metric, _), _)| counts(metric));
    let within: f64 = measured.map(|(_, pair)| pair.service.mean() * pair.service.count() as f64).sum();
    let all = record.client_time.as_nanos() as f64;
    (all > 0.0).then(|| (1.0 - within / all).clamp(0.0, 1.0))
}

/// Formats a command line for a result: secrets replaced, length limited.
fn command(arguments: &[String]) -> String {
    let mut hide = false;
    let shown = without_secrets(arguments.iter().cloned()).into_iter().map(|argument| {
        let hidden = std::mem::take(&mut hide);
        // The argument after `--requirepass` is the secret.
        let flag = argument.starts_with('-') && !argument.contains('=');
        hide = flag && (is_secret(&argument) || argument.to_ascii_lowercase().ends_with("pass"));
        if hidden { "***".to_owned() } else { argument }
    });
    let line = shown.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(COMMAND_MAX) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_truncated_and_without_secrets() {
        let line = |words: &str| command(&words.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(line("redis-server --requirepass x --port 1"), "redis-server --requirepass *** --port 1");
        assert_eq!(line("s --password=x --token y z"), "s --password=*** --token *** z");
        assert_eq!(line(&"é".repeat(300)).chars().count(), COMMAND_MAX + 1);
    }
}
