//! Detection of results that the client bounded, not the store. `docs/client-load.md` explains the rules.

/// Busy share of an event loop's time at which the loop is saturated.
const LOOP_BUSY: f64 = 0.9;
/// Share of the clients' time outside of the store above which the run measures the client.
const OUTSIDE_STORE: f64 = 0.5;
/// Busy share of the machine's processors at which no processor is free.
const MACHINE_BUSY: f64 = 0.95;
/// Run-queue wait that matters, as a share of CPU time.
const RUN_QUEUE_WAIT: f64 = 0.1;
/// Share of operations that idle clients started late above which the 99th percentile of lateness is the
/// client's own.
const OVERSLEPT: f64 = 0.01;

/// Measurements of the client at the end of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientUsage {
    /// Event loops; `None` if each client has a thread.
    pub(crate) event_loops: Option<u64>,
    pub(crate) clients: u64,
    /// Processors that the client may use.
    pub(crate) cores: u64,
    pub(crate) busiest_thread: Option<f64>,
    pub(crate) outside_store: Option<f64>,
    pub(crate) machine_busy: Option<f64>,
    pub(crate) cpu_s: f64,
    pub(crate) run_queue_s: Option<f64>,
    /// Operations with an intended start.
    pub(crate) scheduled: u64,
    /// Operations that an idle client started more than `late_from_ms` after the intended start.
    pub(crate) overslept: u64,
    pub(crate) late_from_ms: f64,
}

fn percent(share: f64) -> String {
    // Rounds down: a share below 1 must not read "100 %".
    format!("{} %", (share * 100.0).floor())
}

/// Returns a sentence for each way in which the client bounded the result, with advice.
pub(crate) fn bound_by_client(usage: &ClientUsage) -> Vec<String> {
    let mut reasons = Vec::new();
    let full = usage.machine_busy.is_some_and(|busy| busy >= MACHINE_BUSY);
    if let (Some(loops), Some(busiest)) = (usage.event_loops, usage.busiest_thread)
        && busiest >= LOOP_BUSY
    {
        let which = if loops == 1 {
            "its event loop".into()
        } else {
            format!("the busiest of its {loops} event loops")
        };
        let more = loops.saturating_mul(2).min(usage.cores).min(usage.clients);
        let advice = if more > loops && !full {
            format!(
                "Give it more (eventloops={more}), or run clients on several machines and merge their results"
            )
        } else {
            "Run clients on several machines and merge their results (serval merge)".into()
        };
        reasons.push(format!(
            "The client bounded this result: {which} had work {} of the time. {advice}.",
            percent(busiest)
        ));
    }
    if let (None, Some(outside)) = (usage.event_loops, usage.outside_store)
        && outside > OUTSIDE_STORE
    {
        reasons.push(format!(
            "The client bounded this result: clients spent {} of their time outside of the store, making operations and \
             writing down times. The store can do more than this; more clients (threadcount) show it while processors \
             are free.",
            percent(outside)
        ));
    }
    // Event loops only: a blocking store may run in this process, and then the run-queue wait is its own.
    if let (Some(_), true, Some(waited), Some(busy)) =
        (usage.event_loops, full, usage.run_queue_s, usage.machine_busy)
        && waited > usage.cpu_s * RUN_QUEUE_WAIT
    {
        reasons.push(format!(
            "The machine bounded this result: its processors were {} busy, and the client's threads waited {waited:.2} s \
             for one, beside {:.2} s of CPU time. If the store's processes run here too, run the client on another \
             machine; if not, use fewer event loops or end what else runs here.",
            percent(busy),
            usage.cpu_s
        ));
    }
    let overslept = usage.overslept as f64 / usage.scheduled.max(1) as f64;
    if overslept > OVERSLEPT && (usage.event_loops.is_some() || !full) {
        reasons.push(format!(
            "The client missed its schedule: {} of operations started more than {} ms late although a client was free \
             for them. Give the client processors of its own, more event loops (eventloops), or a lower target.",
            percent(overslept),
            usage.late_from_ms
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loops() -> ClientUsage {
        ClientUsage {
            event_loops: Some(2),
            clients: 64,
            cores: 8,
            busiest_thread: Some(0.4),
            machine_busy: Some(0.5),
            cpu_s: 5.0,
            run_queue_s: Some(0.1),
            late_from_ms: 1.0,
            ..ClientUsage::default()
        }
    }

    #[track_caller]
    fn one(usage: &ClientUsage) -> String {
        let mut reasons = bound_by_client(usage);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        reasons.remove(0)
    }

    #[test]
    fn an_event_loop_without_idle_time_bounds() {
        assert_eq!(bound_by_client(&loops()), [""; 0]);
        assert_eq!(bound_by_client(&ClientUsage { busiest_thread: Some(0.89), ..loops() }), [""; 0]);
        let busy = ClientUsage { busiest_thread: Some(0.978), ..loops() };
        let words = one(&busy);
        assert!(words.contains("busiest of its 2 event loops had work 97 % of the time"), "{words}");
        assert!(words.contains("eventloops=4)"), "{words}");
        // The advice never exceeds the number of processors or of clients.
        assert!(one(&ClientUsage { cores: 3, ..busy.clone() }).contains("eventloops=3)"));
        assert!(!one(&ClientUsage { cores: 2, ..busy.clone() }).contains("eventloops"));
        assert!(!one(&ClientUsage { clients: 2, ..busy }).contains("eventloops"));
    }

    #[test]
    fn a_busy_thread_of_a_blocking_store_does_not_bound() {
        let threads = ClientUsage { event_loops: None, busiest_thread: Some(1.0), ..loops() };
        assert_eq!(bound_by_client(&threads), [""; 0]);
        let full = ClientUsage {
            machine_busy: Some(1.0),
            run_queue_s: Some(50.0),
            scheduled: 100,
            overslept: 50,
            ..threads
        };
        assert_eq!(bound_by_client(&full), [""; 0]);
    }

    #[test]
    fn clients_busy_outside_of_the_store_bound() {
        let threads = ClientUsage { event_loops: None, outside_store: Some(0.5), ..loops() };
        assert_eq!(bound_by_client(&threads), [""; 0]);
        assert!(
            one(&ClientUsage { outside_store: Some(0.83), ..threads })
                .contains("spent 83 % of their time outside")
        );
    }

    #[test]
    fn a_machine_without_a_free_processor_bounds() {
        let full = ClientUsage { machine_busy: Some(0.95), run_queue_s: Some(0.51), ..loops() };
        assert!(one(&full).contains("waited 0.51 s for one, beside 5.00 s"));
        assert_eq!(bound_by_client(&ClientUsage { run_queue_s: Some(0.5), ..full.clone() }), [""; 0]);
        assert_eq!(bound_by_client(&ClientUsage { machine_busy: Some(0.94), ..full.clone() }), [""; 0]);
        assert_eq!(bound_by_client(&ClientUsage { run_queue_s: None, ..full }), [""; 0]);
    }

    #[test]
    fn late_starts_of_idle_clients_miss_the_schedule() {
        let late = ClientUsage { scheduled: 1000, overslept: 31, ..loops() };
        assert!(one(&late).contains("3 % of operations started more than 1 ms late although"));
        assert_eq!(bound_by_client(&ClientUsage { overslept: 10, ..late.clone() }), [""; 0]);
        one(&ClientUsage { event_loops: None, ..late });
    }
}
