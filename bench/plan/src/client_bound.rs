//! Whether the client, and not the store, bounded a result. The rules and their
//! reasons are in `docs/client-load.md`.

/// Share of the time from which an event loop that has work is at its limit.
const LOOP_BUSY: f64 = 0.9;
/// Share of the clients' time outside of the store from which the client is what
/// is measured.
const OUTSIDE: f64 = 0.5;
/// Share of the machine's processors in use from which none is free.
const MACHINE_BUSY: f64 = 0.95;
/// Wait for a processor that matters, as a share of CPU time.
const WAITED: f64 = 0.1;
/// Share of operations started late by free clients from which their 99th
/// percentile is the client's work.
const OVERSLEPT: f64 = 0.01;

/// Measurements of the client at the end of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signs {
    /// Event loops, if the clients ran on some; otherwise each has a thread.
    pub(crate) event_loops: Option<u64>,
    pub(crate) clients: u64,
    /// Processors that the client may use.
    pub(crate) cores: u64,
    pub(crate) busiest_thread: Option<f64>,
    pub(crate) outside_store: Option<f64>,
    pub(crate) machine_busy: Option<f64>,
    pub(crate) cpu_s: f64,
    pub(crate) run_queue_s: Option<f64>,
    /// Operations with an intended start, and how many of them a free client
    /// started later than that by more than `late_from_ms`.
    pub(crate) scheduled: u64,
    pub(crate) overslept: u64,
    pub(crate) late_from_ms: f64,
}

fn percent(share: f64) -> String {
    // Less than all is less than 100 %.
    format!("{} %", (share * 100.0).floor())
}

/// Sentences of why and what to do; none if the client did not bound the result.
pub(crate) fn bound_by_client(signs: &Signs) -> Vec<String> {
    let mut reasons = Vec::new();
    let full = signs.machine_busy.is_some_and(|busy| busy >= MACHINE_BUSY);
    if let (Some(loops), Some(busiest)) = (signs.event_loops, signs.busiest_thread)
        && busiest >= LOOP_BUSY
    {
        let which = if loops == 1 {
            "its event loop".into()
        } else {
            format!("the busiest of its {loops} event loops")
        };
        let more = loops.saturating_mul(2).min(signs.cores).min(signs.clients);
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
    if let (None, Some(outside)) = (signs.event_loops, signs.outside_store)
        && outside > OUTSIDE
    {
        reasons.push(format!(
            "The client bounded this result: clients spent {} of their time outside of the store, making operations and \
             writing down times. The store can do more than this; more clients (threadcount) show it while processors \
             are free.",
            percent(outside)
        ));
    }
    // A blocking store may be part of this process, and what its threads wait
    // for is then the store's own work.
    if let (Some(_), true, Some(waited), Some(busy)) =
        (signs.event_loops, full, signs.run_queue_s, signs.machine_busy)
        && waited > signs.cpu_s * WAITED
    {
        reasons.push(format!(
            "The machine bounded this result: its processors were {} busy, and the client's threads waited {waited:.2} s \
             for one, beside {:.2} s of CPU time. If the store's processes run here too, run the client on another \
             machine; if not, use fewer event loops or end what else runs here.",
            percent(busy),
            signs.cpu_s
        ));
    }
    let overslept = signs.overslept as f64 / signs.scheduled.max(1) as f64;
    if overslept > OVERSLEPT && (signs.event_loops.is_some() || !full) {
        reasons.push(format!(
            "The client missed its schedule: {} of operations started more than {} ms late although a client was free \
             for them. Give the client processors of its own, more event loops (eventloops), or a lower target.",
            percent(overslept),
            signs.late_from_ms
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loops() -> Signs {
        Signs {
            event_loops: Some(2),
            clients: 64,
            cores: 8,
            busiest_thread: Some(0.4),
            machine_busy: Some(0.5),
            cpu_s: 5.0,
            run_queue_s: Some(0.1),
            late_from_ms: 1.0,
            ..Signs::default()
        }
    }

    #[track_caller]
    fn one(signs: &Signs) -> String {
        let mut reasons = bound_by_client(signs);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        reasons.remove(0)
    }

    #[test]
    fn an_event_loop_without_idle_time_bounds() {
        assert_eq!(bound_by_client(&loops()), [""; 0]);
        assert_eq!(bound_by_client(&Signs { busiest_thread: Some(0.89), ..loops() }), [""; 0]);
        let busy = Signs { busiest_thread: Some(0.978), ..loops() };
        let words = one(&busy);
        assert!(words.contains("busiest of its 2 event loops had work 97 % of the time"), "{words}");
        assert!(words.contains("eventloops=4)"), "{words}");
        // More than processors, or clients, are of no use.
        assert!(one(&Signs { cores: 3, ..busy.clone() }).contains("eventloops=3)"));
        assert!(!one(&Signs { cores: 2, ..busy.clone() }).contains("eventloops"));
        assert!(!one(&Signs { clients: 2, ..busy }).contains("eventloops"));
    }

    #[test]
    fn a_busy_thread_of_a_blocking_store_does_not_bound() {
        let threads = Signs { event_loops: None, busiest_thread: Some(1.0), ..loops() };
        assert_eq!(bound_by_client(&threads), [""; 0]);
        let full = Signs {
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
        let threads = Signs { event_loops: None, outside_store: Some(0.5), ..loops() };
        assert_eq!(bound_by_client(&threads), [""; 0]);
        assert!(
            one(&Signs { outside_store: Some(0.83), ..threads }).contains("spent 83 % of their time outside")
        );
    }

    #[test]
    fn a_machine_without_a_free_processor_bounds() {
        let full = Signs { machine_busy: Some(0.95), run_queue_s: Some(0.51), ..loops() };
        assert!(one(&full).contains("waited 0.51 s for one, beside 5.00 s"));
        assert_eq!(bound_by_client(&Signs { run_queue_s: Some(0.5), ..full.clone() }), [""; 0]);
        assert_eq!(bound_by_client(&Signs { machine_busy: Some(0.94), ..full.clone() }), [""; 0]);
        assert_eq!(bound_by_client(&Signs { run_queue_s: None, ..full }), [""; 0]);
    }

    #[test]
    fn late_starts_of_idle_clients_miss_the_schedule() {
        let late = Signs { scheduled: 1000, overslept: 31, ..loops() };
        assert!(one(&late).contains("3 % of operations started more than 1 ms late although"));
        assert_eq!(bound_by_client(&Signs { overslept: 10, ..late.clone() }), [""; 0]);
        one(&Signs { event_loops: None, ..late });
    }
}
