//! Properties of groups and barriers.

use serval_model::properties::{Kind, Property, PropertyTable};

/// Address of ZooKeeper.
pub const ZOOKEEPER: Property = Property::serval(
    "coordination.zookeeper",
    Kind::Text,
    "ZooKeeper through which client processes find each other: host:2181, or several separated by commas.",
)
.aliases(&["barrier-zkServer"]);
/// Number of client processes.
pub const CLIENTS: Property = Property::serval(
    "coordination.clients",
    Kind::Count { min: 1, max: serval_model::share::SHARES_MAX },
    "Number of processes (agents) that take part and divide the work; 1 is this process alone.",
)
.default("1")
.unit("processes")
.aliases(&["barrier-size"]);
/// Root node in ZooKeeper.
pub const ROOT: Property = Property::serval(
    "coordination.root",
    Kind::Text,
    "ZooKeeper node below which all state is kept; agents and coordinators with the same root find each \
     other.",
)
.default("serval")
.aliases(&["barrier-zkRoot"]);
/// Name of the group.
pub const GROUP: Property = Property::serval(
    "coordination.group",
    Kind::Text,
    "Name of the group. A name can have only one coordinator at a time.",
)
.default("default");
/// Silence after which a process is lost.
pub const TIMEOUT: Property = Property::serval(
    "coordination.timeout",
    Kind::SECONDS,
    "Silence after which a client, or for clients the coordinator, is lost; also the timeout of the \
     ZooKeeper session.",
)
.default("6")
.unit("s");
/// Time limit for joining and getting ready.
pub const WAIT: Property = Property::serval(
    "coordination.wait",
    Kind::SECONDS,
    "Time limit for all clients to join, and to be ready for a phase.",
)
.default("60")
.unit("s");
/// Address on which the coordinator listens.
pub const LISTEN: Property = Property::serval(
    "coordination.listen",
    Kind::Text,
    "Address and port on which the coordinator listens for clients. If unset: a free port of the address \
     from which it reaches ZooKeeper.",
);
/// Reaction to a lost client.
pub const LOST: Property = Property::serval(
    "coordination.lost",
    Kind::Choice(&["end", "continue"]),
    "Reaction to a lost client. end: the other clients end too. continue: they go on without it, and the \
     result says so.",
)
.default("end");
/// Largest accepted clock error.
pub const CLOCK_MAX: Property = Property::serval(
    "coordination.clock.max",
    Kind::MILLISECONDS,
    "Largest accepted error of a client's estimated clock at the start.",
)
.default("1")
.unit("ms");

/// Whether processes wait at a barrier, as in YCSB++.
pub const BARRIER_STATUS: Property = Property::ycsb(
    "barrier-status",
    Kind::Choice(&["no", "yes", "false", "true"]),
    "Whether processes that are started separately wait for each other before and after a load or run \
     (YCSB++): barrier-size processes, at barrier-zkRoot of barrier-zkServer. If coordination.clients is \
     set, the processes are led as a group instead.",
)
.default("no");

/// Table of all properties of coordination.
pub const PROPERTIES: PropertyTable = PropertyTable {
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

/// Returns whether a name belongs to groups or barriers, even if no such property exists.
pub fn is_of_group(name: &str) -> bool {
    name.starts_with("coordination.") || name.starts_with("barrier-")
}
