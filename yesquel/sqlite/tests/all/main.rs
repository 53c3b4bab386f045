//! SQL on trees, one module per behaviour: linking each separately takes longer than most of them run.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod attached;
mod bulk_load;
mod cluster;
mod collations;
mod concurrency;
mod consistency;
mod copy;
mod errors;
mod histories;
mod interrupts;
mod isolation;
mod joining_groups;
mod lease_turns;
mod long_keys;
mod lost_home;
mod memory;
mod outages;
mod outdated_schemas;
mod page_count;
mod place;
mod plans;
#[path = "../relay/mod.rs"]
mod relay;
mod round_trips;
mod schema_changes;
mod secured;
mod seeks;
mod servers;
mod several_groups;
mod spread_leaves;
mod staleness;
mod watches;
