//! The properties of a group of client processes.

use serval_model::properties::{Kind, Property, Table};

/// Where ZooKeeper is.
pub const ZOOKEEPER: Property = Property::serval(
    "coordination.zookeeper",
    Kind::Text,
    "ZooKeeper by which several client processes work as one: host:2181, or several with commas between.",
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
    "Node of ZooKeeper that everything is below; agents and coordinators of one root find each other.",
)
.default("serval")
.aliases(&["barrier-zkRoot"]);
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

/// YCSB++'s own way.
pub const BARRIER_STATUS: Property = Property::ycsb(
    "barrier-status",
    Kind::Choice(&["no", "yes", "false", "true"]),
    "Whether processes that are started one by one meet before a load or run, and leave it together (YCSB++): as many as \
     barrier-size says, at barrier-zkRoot of barrier-zkServer. Where coordination.clients is given they are led as a \
     group instead.",
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
