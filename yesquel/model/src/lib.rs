//! Base types of Yesquel: node ids, timestamps and clocks, key ranges, limits, counters and
//! refusals.
//!
//! `docs/yesquel/nodes.md` explains how they belong together.

mod clock;
mod cluster;
mod departure;
mod error;
mod id;
mod key;
pub mod limits;
mod sharded_counter;
mod small_map;

pub use clock::{HybridClock, Timestamp, TooFarAhead};
pub use cluster::{ClusterId, ClusterMembership, GroupEpoch, NoUuid};
pub use departure::{DepartedContent, StayReason};
pub use error::{Conflict, Refusal};
pub use id::{Issuer, LocalId, NodeId, ServerId, TreeId, TxnId};
pub use key::{Key, KeyRange, Prefix, PrefixBounds, prefix_of, separator, short_bound};
pub use sharded_counter::ShardedCounter;
pub use small_map::SmallMap;
