//! The group or barrier that properties define.

use crate::facts::facts;
use serval_coordination::{
    barrier::Meeting,
    coordinator::Leading,
    group::{GroupSettings, OnLost},
    properties::{BARRIER_STATUS, CLIENTS, CLOCK_MAX, GROUP, LISTEN, LOST, ROOT, TIMEOUT, WAIT, ZOOKEEPER},
};
use serval_model::properties::{Faults, Properties, Reader};
use serval_runner::clock::{self, nanoseconds};
use std::{net::ToSocketAddrs, time::Duration};

/// Whether properties define a group, not only a barrier.
fn names_group(properties: &Properties) -> bool {
    [&CLIENTS, &ZOOKEEPER].iter().any(|property| properties.get(property.name).is_some())
}

fn cluster(reader: &Reader<'_>) -> Option<String> {
    reader.optional_text(&ZOOKEEPER).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn timeout(reader: &mut Reader<'_>) -> Duration {
    let timeout = reader.duration(&TIMEOUT);
    if timeout < Duration::from_millis(500) {
        reader.fault(&TIMEOUT, "must be 500 ms or more, because a busy machine can be silent that long");
    }
    timeout
}

/// The option that sets the number of processes, for advice in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessesFlag {
    /// `--clients`, of single runs.
    Clients,
    /// `--agents`, of experiments.
    Agents,
}

impl ProcessesFlag {
    /// Returns the option, and the one that is easily confused with it.
    fn advice(self) -> &'static str {
        match self {
            ProcessesFlag::Clients => "--clients N",
            ProcessesFlag::Agents => {
                "--agents N; --clients is the number of clients of all processes together"
            }
        }
    }
}

/// Returns the barrier that clients without a coordinator meet at before a phase of this name;
/// `None` if the properties name none, or define a group.
///
/// # Errors
///
/// All faults at once.
pub fn meeting(properties: &Properties, phase: &str) -> Result<Option<Meeting>, Faults> {
    let mut reader = Reader::new(properties);
    if !matches!(reader.choice(&BARRIER_STATUS), "yes" | "true") || names_group(properties) {
        reader.finish()?;
        return Ok(None);
    }
    let size = reader.count(&CLIENTS) as usize;
    if !reader.given(&CLIENTS) {
        reader.fault(&BARRIER_STATUS, "how many clients meet? Set barrier-size");
    }
    let cluster = cluster(&reader);
    if cluster.is_none() {
        reader.fault(&BARRIER_STATUS, "where do clients meet? Set barrier-zkServer to ZooKeeper's host:2181");
    }
    let (wait, timeout) = (reader.duration(&WAIT), timeout(&mut reader));
    // With and without a slash, as in YCSB++.
    let place = format!("{}-{phase}", reader.text(&ROOT).trim_end_matches('/'));
    reader.finish()?;
    let name = facts().name();
    Ok(cluster.map(|cluster| Meeting { cluster, place, size, name, wait, timeout }))
}

/// Returns the group that properties define; `None` for this process alone. `flag` is the command's
/// option for the number of processes.
///
/// # Errors
///
/// All faults at once.
pub fn leading(properties: &Properties, flag: ProcessesFlag) -> Result<Option<Leading>, Faults> {
    if !names_group(properties) {
        return Ok(None);
    }
    let mut reader = Reader::new(properties);
    let clients = reader.count(&CLIENTS) as usize;
    let cluster = cluster(&reader);
    if cluster.is_some() && !reader.given(&CLIENTS) {
        let advice = flag.advice();
        reader
            .fault(&ZOOKEEPER, format!("how many processes take part? Set coordination.clients ({advice})"));
    }
    let listen = reader.optional_text(&LISTEN).and_then(|text| {
        // Names are resolved here, since listening needs an address.
        let mut found = text.trim().to_socket_addrs().ok();
        let address = found.as_mut().and_then(Iterator::next);
        if address.is_none() {
            let problem = format!(
                "'{text}' is no address of this machine with a port, such as 10.0.0.5:7500, [fd00::5]:7500 or a name that \
                 is known here and a port"
            );
            reader.fault(&LISTEN, problem);
        }
        address
    });
    let (root, group) = (reader.text(&ROOT), reader.text(&GROUP));
    if group.is_empty() || group.contains('/') || group.starts_with('.') {
        reader.fault(&GROUP, format!("'{group}' is no name of a node: letters, digits and '-'"));
    }
    let timeout = timeout(&mut reader);
    let settings = GroupSettings {
        clients,
        timeout: nanoseconds(timeout),
        wait: nanoseconds(reader.duration(&WAIT)),
        clock_error_max: nanoseconds(reader.duration(&CLOCK_MAX)) as f64,
        on_lost: if reader.choice(&LOST) == "continue" { OnLost::Continue } else { OnLost::End },
        ..GroupSettings::default()
    };
    if clients > 1 && cluster.is_none() {
        reader.fault(
            &CLIENTS,
            "processes find each other through ZooKeeper: set coordination.zookeeper (--coordination HOST:PORT)",
        );
    }
    reader.finish()?;
    Ok(cluster.filter(|_| clients > 1).map(|cluster| Leading {
        cluster,
        root,
        group,
        listen,
        calls_agents: true,
        settings,
        clock: clock::now,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serval_model::properties::Origin;

    fn properties(words: &str) -> Properties {
        let mut properties = Properties::new();
        for word in words.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap();
            properties.set(name, value, Origin::CommandLine("-p".into()));
        }
        properties
    }

    fn group(words: &str) -> Option<(usize, String, String)> {
        let leading = leading(&properties(words), ProcessesFlag::Clients).unwrap()?;
        Some((leading.settings.clients, leading.cluster, leading.root))
    }

    fn barrier(words: &str) -> Option<(usize, String, String)> {
        let meeting = meeting(&properties(words), "run").unwrap()?;
        Some((meeting.size, meeting.cluster, meeting.place))
    }

    #[test]
    fn a_barrier_is_a_group_only_with_a_group_name() {
        let all = "barrier-status=yes barrier-zkServer=zoo:2181 barrier-zkRoot=/b/ barrier-size=3";
        let at = |place: &str| Some((3, "zoo:2181".to_owned(), place.to_owned()));
        assert_eq!((group(all), barrier(all)), (None, at("/b-run")));
        let off = "barrier-status=no barrier-zkServer=zoo:2181 barrier-zkRoot=b barrier-size=3";
        assert_eq!((group(off), barrier(off)), (None, None));
        // Settings that a group lacks come from the barrier's properties.
        let led = format!("{all} coordination.clients=2");
        let two = Some((2, "zoo:2181".to_owned(), "/b/".to_owned()));
        assert_eq!((group(&led), barrier(&led)), (two, None));
        let led = format!("{all} coordination.zookeeper=other:1 coordination.root=r");
        assert_eq!(group(&led), Some((3, "other:1".to_owned(), "r".to_owned())));
        assert_eq!((group(""), barrier("")), (None, None));
    }

    #[test]
    fn missing_settings_are_reported() {
        let words = |faults: Faults| faults.to_string();
        let error = words(meeting(&properties("barrier-status=yes"), "run").unwrap_err());
        assert!(error.contains("Set barrier-size") && error.contains("Set barrier-zkServer"), "{error}");
        // Each command names its own option.
        let fault = |text, flag| words(leading(&properties(text), flag).unwrap_err());
        let error = fault("coordination.zookeeper=a", ProcessesFlag::Clients);
        assert!(
            error.contains("how many processes take part?") && error.contains("(--clients N)"),
            "{error}"
        );
        let error = fault("coordination.zookeeper=a", ProcessesFlag::Agents);
        assert!(error.contains("(--agents N; --clients is the number of clients"), "{error}");
        let error = fault("coordination.clients=2", ProcessesFlag::Agents);
        assert!(error.contains("find each other through ZooKeeper"), "{error}");
    }
}
