//! Properties of lag measurement.

use serval_model::properties::{Kind, Property, PropertyTable};

/// Role of this process.
pub const ROLE: Property = Property::serval(
    "lag.role",
    Kind::Choice(&["none", "producer", "consumer", "both"]),
    "Role in a measurement of read-after-write lag (docs/lag.md). both: this process writes, and \
     consumers beside its clients read a sample of the writes until they see them. producer, consumer: \
     one of the two, with the other in other processes (lag.zookeeper).",
)
.default("none")
.aliases(&["client-coord"]);
/// Share of keys that are sampled.
pub const SAMPLE: Property = Property::serval(
    "lag.sample",
    Kind::FRACTION,
    "Share of keys that are sampled, chosen by a hash of the key. All inserts and updates of a sampled \
     key are followed.",
)
.default("0.01");
/// Seed of the sample.
pub const SAMPLE_SEED: Property = Property::serval(
    "lag.sample.seed",
    Kind::COUNT,
    "Seed of the choice of sampled keys. All producers of a run need the same seed.",
)
.default("0");
/// Time between reads of a key.
pub const POLL: Property = Property::serval(
    "lag.poll",
    Kind::MILLISECONDS,
    "Shortest time before a key that was not yet visible is read again.",
)
.default("10")
.unit("ms");
/// Number of consumers of this process.
pub const CONSUMERS: Property = Property::serval(
    "lag.consumers",
    Kind::Count { min: 1, max: 10_000 },
    "Clients that consume beside the run, with lag.role=both. With lag.role=consumer, threadcount sets \
     their number.",
)
.default("1")
.unit("clients");
/// Number of consumer processes of a group.
pub const CONSUMER_CLIENTS: Property = Property::serval(
    "lag.consumers.clients",
    Kind::Count { min: 0, max: serval_model::share::SHARES_MAX },
    "Number of consumers among a group's client processes (the last ones); the others are producers and \
     divide the work.",
)
.default("0")
.unit("processes");
/// Time limit of consumers after the last write.
pub const DRAIN: Property = Property::serval(
    "lag.drain",
    Kind::SECONDS,
    "Time limit for consumers to find the remaining keys after the writes have ended. Keys that they do \
     not find are censored.",
)
.default("10")
.unit("s");
/// Idle time that ends a consumer.
pub const IDLE: Property = Property::serval(
    "lag.idle",
    Kind::SECONDS,
    "Time without new keys after which a consumer in a process of its own ends; it waits for the first \
     key without a limit. 0: never.",
)
.default("10")
.unit("s");
/// Share of writes that their writer reads back.
pub const READ_BACK: Property = Property::serval(
    "lag.readback",
    Kind::FRACTION,
    "Share of the sampled writes that the writing client reads back at once, to check that it sees its \
     own writes. These reads are not measured, but take the client's time.",
)
.default("0.1");
/// Share of keys that are read again after they were found.
pub const AGAIN: Property = Property::serval(
    "lag.again",
    Kind::FRACTION,
    "Share of the found keys that are read a few more times, to detect reads that go back in time.",
)
.default("0.1");
/// ZooKeeper that holds the queue.
pub const ZOOKEEPER: Property = Property::serval(
    "lag.zookeeper",
    Kind::Text,
    "ZooKeeper with the queue between processes: host:2181. A group uses its own (coordination.zookeeper).",
)
.aliases(&["coord-server"]);
/// Node of the queue.
pub const QUEUE: Property = Property::serval(
    "lag.queue",
    Kind::Text,
    "ZooKeeper node below which the queue is kept. A group uses its own.",
)
.default("serval-lag")
.aliases(&["coord-server-zkRoot"]);
/// Maximum number of items of the queue.
pub const QUEUE_MAX: Property = Property::serval(
    "lag.queue.max",
    Kind::Count { min: 1, max: 1_000_000 },
    "Capacity of the queue. Keys that do not fit are counted as not carried.",
)
.default("100000")
.unit("keys");

/// All properties of lag measurement.
pub const PROPERTIES: PropertyTable = PropertyTable {
    heading: "read-after-write lag",
    properties: &[
        &ROLE,
        &SAMPLE,
        &SAMPLE_SEED,
        &POLL,
        &CONSUMERS,
        &CONSUMER_CLIENTS,
        &DRAIN,
        &IDLE,
        &READ_BACK,
        &AGAIN,
        &ZOOKEEPER,
        &QUEUE,
        &QUEUE_MAX,
    ],
};
