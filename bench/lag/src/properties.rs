//! The properties of lag.

use serval_model::properties::{Kind, Property, Table};

/// Who takes which part.
pub const ROLE: Property = Property::serval(
    "lag.role",
    Kind::Choice(&["none", "producer", "consumer", "both"]),
    "Read-after-write lag (docs/lag.md). both: this process writes, and consumers beside its clients read what a share of \
     the writes wrote until they see it. producer, consumer: one half, with the other in other processes (lag.zookeeper).",
)
.default("none")
.aliases(&["client-coord"]);
/// The share that is sampled.
pub const SAMPLE: Property = Property::serval(
    "lag.sample",
    Kind::FRACTION,
    "Share of keys that are sampled, by a hash of the key: all of their inserts and updates are.",
)
.default("0.01");
/// Which keys these are.
pub const SAMPLE_SEED: Property = Property::serval(
    "lag.sample.seed",
    Kind::COUNT,
    "Says which keys are sampled. All producers of a run need the same.",
)
.default("0");
/// Time between reads of a key.
pub const POLL: Property = Property::serval(
    "lag.poll",
    Kind::MILLISECONDS,
    "Time after which a key that was not there yet is read again, at least.",
)
.default("10")
.unit("ms");
/// Consumers beside the run.
pub const CONSUMERS: Property = Property::serval(
    "lag.consumers",
    Kind::Count { min: 1, max: 10_000 },
    "Clients that consume beside the run, with lag.role=both. With lag.role=consumer threadcount says it.",
)
.default("1")
.unit("clients");
/// Consumers of a group.
pub const CONSUMER_CLIENTS: Property = Property::serval(
    "lag.consumers.clients",
    Kind::Count { min: 0, max: serval_model::share::SHARES_MAX },
    "Of a group's client processes, how many (the last ones) are consumers; the others are producers and divide the work.",
)
.default("0")
.unit("processes");
/// Time to finish.
pub const DRAIN: Property = Property::serval(
    "lag.drain",
    Kind::SECONDS,
    "Time that consumers have at most, once the writes have ended, to find what is left. What they do not find is censored.",
)
.default("10")
.unit("s");
/// Silence that ends a consumer.
pub const IDLE: Property = Property::serval(
    "lag.idle",
    Kind::SECONDS,
    "A consumer in a process of its own ends when no key has come for so long, the first one excepted. 0: never.",
)
.default("10")
.unit("s");
/// Reads by the writer.
pub const READ_BACK: Property = Property::serval(
    "lag.readback",
    Kind::FRACTION,
    "Share of the sampled writes that the client that wrote reads at once, to see whether it finds its own writes. These reads \
     are not measured; they take a client's time.",
)
.default("0.1");
/// Reads after success.
pub const AGAIN: Property = Property::serval(
    "lag.again",
    Kind::FRACTION,
    "Share of the keys that were found which are read a few times more, to see whether reads go back in time.",
)
.default("0.1");
/// ZooKeeper of the queue.
pub const ZOOKEEPER: Property = Property::serval(
    "lag.zookeeper",
    Kind::Text,
    "ZooKeeper that has the queue between processes, host:2181. A group has its own (coordination.zookeeper).",
)
.aliases(&["coord-server"]);
/// The node of the queue.
pub const QUEUE: Property = Property::serval(
    "lag.queue",
    Kind::Text,
    "Node of ZooKeeper that the queue is below. A group has its own.",
)
.default("serval-lag")
.aliases(&["coord-server-zkRoot"]);
/// Items of the queue.
pub const QUEUE_MAX: Property = Property::serval(
    "lag.queue.max",
    Kind::Count { min: 1, max: 1_000_000 },
    "Keys that the queue has at most. What it cannot take is counted as not carried.",
)
.default("100000")
.unit("keys");

/// All of them.
pub const PROPERTIES: Table = Table {
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
