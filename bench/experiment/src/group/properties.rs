//! The properties of a group, and what they come to.

use serval_coordination::{
    barrier::Meeting,
    coordinator::Leading,
    group::{GroupSettings, OnLost},
};
use serval_model::properties::{Faults, Kind, Properties, Property, Reader, Table};
use serval_runner::clock;
use std::{net::ToSocketAddrs, time::Duration};

/// Where ZooKeeper is.
pub const ZOOKEEPER: Property = Property::serval(
    "coordination.zookeeper",
    Kind::Text,
    "ZooKeeper through which client processes find each other: host:2181, or several separated by commas.",
)
.aliases(&["barrier-zkServer"]);
/// How many client processes.
pub const CLIENTS: Property = Property::serval(
    "coordination.clients",
    Kind::Count { min: 1, max: serval_model::share::SHARES_MAX },
    "Client processes (agents) that divide the work; 1 is this process alone.",
)
.default("1")
.unit("processes")
.aliases(&["barrier-size"]);
/// The root.
pub const ROOT: Property = Property::serval(
    "coordination.root",
    Kind::Text,
    "ZooKeeper node below which all state is kept; agents and coordinators with the same root find each \
     other.",
)
.default("serval")
.aliases(&["barrier-zkRoot"]);
/// The group's name.
pub const GROUP: Property = Property::serval(
    "coordination.group",
    Kind::Text,
    "Name of the group. A name can have only one coordinator at a time.",
)
.default("default");
/// The timeout.
pub const TIMEOUT: Property = Property::serval(
    "coordination.timeout",
    Kind::SECONDS,
    "Silence after which a client, or for clients the coordinator, is lost; also the timeout of the \
     ZooKeeper session.",
)
.default("6")
.unit("s");
/// The longest wait.
pub const WAIT: Property = Property::serval(
    "coordination.wait",
    Kind::SECONDS,
    "Time limit for all clients to join, and to be ready for a phase.",
)
.default("60")
.unit("s");
/// The address.
pub const LISTEN: Property = Property::serval(
    "coordination.listen",
    Kind::Text,
    "Address and port on which the coordinator listens for clients. If unset: a free port of the address \
     from which it reaches ZooKeeper.",
);
/// What a lost client means.
pub const LOST: Property = Property::serval(
    "coordination.lost",
    Kind::Choice(&["end", "continue"]),
    "Reaction to a lost client. end: the other clients end too. continue: they go on without it, and the \
     result says so.",
)
.default("end");
/// The error of clocks.
pub const CLOCK_MAX: Property = Property::serval(
    "coordination.clock.max",
    Kind::MILLISECONDS,
    "Largest accepted error of a client's estimated clock at the start.",
)
.default("1")
.unit("ms");

/// YCSB++'s own way.
pub const BARRIER_STATUS: Property = Property::ycsb(
    "barrier-status",
    Kind::Choice(&["no", "yes", "false", "true"]),
    "Whether processes that are started separately wait for each other before and after a load or run \
     (YCSB++): barrier-size processes, at barrier-zkRoot of barrier-zkServer. If coordination.clients is \
     set, the processes are led as a group instead.",
)
.default("no");

/// All of them.
pub const PROPERTIES: Table = Table {
    heading: "coordination of several client processes",
    properties: &[
        &CLIENTS,
        &ZOOKEEPER,
        &ROOT,
        &GROUP,
        &TIMEOUT,
        &WAIT,
        &LISTEN,
        &LOST,
        &CLOCK_MAX,
        &BARRIER_STATUS,
    ],
};

fn nanoseconds(span: Duration) -> u64 {
    span.as_nanos().min(u128::from(u64::MAX)) as u64
}

/// Whether properties speak of a group, and not only of a barrier.
fn names_group(properties: &Properties) -> bool {
    [&CLIENTS, &ZOOKEEPER].iter().any(|property| properties.get(property.name).is_some())
}

fn cluster(reader: &Reader<'_>) -> Option<String> {
    reader.optional_text(&ZOOKEEPER).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn timeout(reader: &mut Reader<'_>) -> Duration {
    let timeout = reader.duration(&TIMEOUT);
    if timeout < Duration::from_millis(500) {
        reader.fault(&TIMEOUT, "must be 500 ms or more: a machine that is busy is silent for as long");
    }
    timeout
}

/// Where properties say that clients without a coordinator meet before a phase of this name;
/// `None` where they say nothing of it, or speak of a group.
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
    let name = super::agent::facts().name();
    Ok(cluster.map(|cluster| Meeting { cluster, place, size, name, wait, timeout }))
}

/// The group that properties ask for; `None` where it is this process alone.
///
/// # Errors
///
/// All faults at once.
pub fn leading(properties: &Properties) -> Result<Option<Leading>, Faults> {
    if !names_group(properties) {
        return Ok(None);
    }
    let mut reader = Reader::new(properties);
    let clients = reader.count(&CLIENTS) as usize;
    let cluster = cluster(&reader);
    if cluster.is_some() && !reader.given(&CLIENTS) {
        reader.fault(&ZOOKEEPER, "how many clients work as one? Set coordination.clients (--clients)");
    }
    let listen = reader.optional_text(&LISTEN).and_then(|text| {
        // A name is looked up here: what listens is an address.
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
        reader.fault(&CLIENTS, "several clients need ZooKeeper: set coordination.zookeeper (--coordination)");
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
        let leading = leading(&properties(words)).unwrap()?;
        Some((leading.settings.clients, leading.cluster, leading.root))
    }

    fn barrier(words: &str) -> Option<(usize, String, String)> {
        let meeting = meeting(&properties(words), "run").unwrap()?;
        Some((meeting.size, meeting.cluster, meeting.place))
    }

    #[test]
    fn a_barrier_is_no_group_unless_a_group_is_named() {
        let all = "barrier-status=yes barrier-zkServer=zoo:2181 barrier-zkRoot=/b/ barrier-size=3";
        let at = |place: &str| Some((3, "zoo:2181".to_owned(), place.to_owned()));
        assert_eq!((group(all), barrier(all)), (None, at("/b-run")));
        let off = "barrier-status=no barrier-zkServer=zoo:2181 barrier-zkRoot=b barrier-size=3";
        assert_eq!((group(off), barrier(off)), (None, None));
        // What a group does not say itself is read from the barrier's names.
        let led = format!("{all} coordination.clients=2");
        let two = Some((2, "zoo:2181".to_owned(), "/b/".to_owned()));
        assert_eq!((group(&led), barrier(&led)), (two, None));
        let led = format!("{all} coordination.zookeeper=other:1 coordination.root=r");
        assert_eq!(group(&led), Some((3, "other:1".to_owned(), "r".to_owned())));
        assert_eq!((group(""), barrier("")), (None, None));
    }

    #[test]
    fn what_is_missing_is_said() {
        let words = |faults: Faults| faults.to_string();
        let error = words(meeting(&properties("barrier-status=yes"), "run").unwrap_err());
        assert!(error.contains("Set barrier-size") && error.contains("Set barrier-zkServer"), "{error}");
        let error = words(leading(&properties("coordination.zookeeper=a")).unwrap_err());
        assert!(error.contains("how many clients"), "{error}");
        let error = words(leading(&properties("coordination.clients=2")).unwrap_err());
        assert!(error.contains("several clients need ZooKeeper"), "{error}");
    }
}
