//! The public interface, one module per behaviour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod budget;
mod bulk_load;
mod check;
mod clocks;
mod cluster;
mod connecting;
mod hermitage;
mod histories;
mod identity;
mod joining;
mod large;
mod lease_turns;
mod leases;
mod lost;
mod lost_home;
mod machine_groups;
mod maps;
mod peers;
mod roles;
mod sockets;
