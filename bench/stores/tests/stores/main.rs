//! The tests of all stores, one module each, in one program: linking all drivers
//! takes longer than most of the tests.
//!
//! One alone: `cargo test -p serval-stores --all-features --test stores redis::`.

mod accumulo;
mod cassandra;
mod driver;
mod etcd;
mod fjall;
mod hbase;
mod memcached;
mod memory;
mod mongodb;
mod mysql;
mod postgres;
mod redis;
mod rest;
mod sqlite;
mod visibility;
mod wrapped;
mod yesquel_sql;
mod yesquel_tree;
mod zookeeper;
