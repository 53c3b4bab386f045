//! The properties of a group, and what they come to.

use serval_coordination::{
    coordinator::Leading,
    group::{OnLost, Settings},
};
use serval_model::properties::{Faults, Kind, Properties, Property, Reader, Table};
use serval_runner::clock;
use std::{net::SocketAddr, time::Duration};

/// Where ZooKeeper is.
pub const ZOOKEEPER: Property = Property::serval(
    "coordination.zookeeper",
    Kind::Text,
    "ZooKeeper by which several client processes work as one: host:2181, or several with commas between.",
);
/// How many client processes.
pub const CLIENTS: Property = Property::serval(
    "coordination.clients",
    Kind::Count { min: 1, max: serval_model::share::SHARES_MAX },
    "Client processes (agents) that divide the work; 1 is this process alone.",
)
.default("1")
.unit("processes");
/// The root.
pub const ROOT: Property = Property::serval(
    "coordination.root",
    Kind::Text,
    "Node of ZooKeeper that everything is below; agents and coordinators of one root find each other.",
)
.default("serval");
/// The group's name.
pub const GROUP: Property = Property::serval(
    "coordination.group",
    Kind::Text,
    "Name of the group: two of one name cannot be led at a time.",
)
.default("default");
/// The timeout.
pub const TIMEOUT: Property = Property::serval(
    "coordination.timeout",
    Kind::SECONDS,
    "Silence after which a client, or for clients the coordinator, is lost; also the session timeout with ZooKeeper.",
)
.default("6")
.unit("s");
/// The longest wait.
pub const WAIT: Property = Property::serval(
    "coordination.wait",
    Kind::SECONDS,
    "Time in which all clients must have come, and have got ready for a phase.",
)
.default("60")
.unit("s");
/// The address.
pub const LISTEN: Property = Property::serval(
    "coordination.listen",
    Kind::Text,
    "Address and port where the coordinator is found by clients. Without it a free port of the address from which ZooKeeper is reached.",
);
/// What a lost client means.
pub const LOST: Property = Property::serval(
    "coordination.lost",
    Kind::Choice(&["end", "continue"]),
    "What becomes of the others when a client is lost: end, or continue without it, which the result says.",
)
.default("end");
/// The error of clocks.
pub const CLOCK_MAX: Property = Property::serval(
    "coordination.clock.max",
    Kind::MILLISECONDS,
    "Largest error to which a client's clock may be known at the start.",
)
.default("1")
.unit("ms");

/// All of them.
pub const PROPERTIES: Table = Table {
    heading: "coordination of several client processes",
    properties: &[&CLIENTS, &ZOOKEEPER, &ROOT, &GROUP, &TIMEOUT, &WAIT, &LISTEN, &LOST, &CLOCK_MAX],
};

fn nanoseconds(span: Duration) -> u64 {
    span.as_nanos().min(u128::from(u64::MAX)) as u64
}

/// The group that properties ask for; `None` where it is this process alone.
///
/// # Errors
///
/// All faults at once.
pub fn leading(properties: &Properties) -> Result<Option<Leading>, Faults> {
    let mut reader = Reader::new(properties);
    let clients = reader.count(&CLIENTS) as usize;
    let cluster = reader.optional_text(&ZOOKEEPER).filter(|text| !text.trim().is_empty());
    let listen = reader.optional_text(&LISTEN).and_then(|text| {
        let address: Result<SocketAddr, _> = text.trim().parse();
        address
            .map_err(|_| reader.fault(&LISTEN, format!("'{text}' is no address such as 10.0.0.5:7500")))
            .ok()
    });
    let (root, group) = (reader.text(&ROOT), reader.text(&GROUP));
    if group.is_empty() || group.contains('/') || group.starts_with('.') {
        reader.fault(&GROUP, format!("'{group}' is no name of a node: letters, digits and '-'"));
    }
    let timeout = reader.duration(&TIMEOUT);
    if timeout < Duration::from_millis(500) {
        reader.fault(&TIMEOUT, "must be 500 ms or more: a machine that is busy is silent for as long");
    }
    let settings = Settings {
        clients,
        timeout: nanoseconds(timeout),
        wait: nanoseconds(reader.duration(&WAIT)),
        clock_error_max: nanoseconds(reader.duration(&CLOCK_MAX)) as f64,
        on_lost: if reader.choice(&LOST) == "continue" { OnLost::Continue } else { OnLost::End },
        ..Settings::default()
    };
    if clients > 1 && cluster.is_none() {
        reader.fault(&CLIENTS, "several clients need ZooKeeper: set coordination.zookeeper (--coordination)");
    }
    reader.finish()?;
    Ok(cluster.filter(|_| clients > 1).map(|cluster| Leading {
        cluster: cluster.trim().to_owned(),
        root,
        group,
        listen,
        calls_agents: true,
        settings,
        clock: clock::now,
    }))
}
