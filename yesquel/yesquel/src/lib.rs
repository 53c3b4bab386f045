//! Yesquel's ordered maps with transactions: in memory, in a folder, or at a
//! server.
//!
//! A [`Store`] holds [`Database`]s, a database holds [`Map`]s by name, and a
//! [`Transaction`] reads and writes any of its maps, all or nothing. Keys and
//! values are bytes; keys are in the order of bytes.
//!
//! Isolation is snapshot isolation (Berenson et al., 1995), first committer
//! wins at the grain of keys: a transaction whose commit fails with
//! [`Error::Conflict`] begins again, which [`Database::run`] does by itself, and
//! [`Database::try_run`] for work that fails with errors of its own.
//! What must be more than a snapshot, uniqueness of something that is no key
//! say, is [guarded](Transaction::guard).

mod any_transport;
mod catalog;
mod database;
mod error;
mod host;
mod identity;
mod lease;
mod map;
mod range;
mod run;
mod server;
mod store;
pub mod tls;
mod transaction;

pub use catalog::NAME_BYTES_MAX;
pub use database::{Database, Numbers};
pub use error::Error;
pub use host::Host;
pub use lease::Lease;
pub use map::Map;
pub use server::{CLIENTS_MAX, Reach, SOCKET_MODE, Server};
pub use store::Store;
pub use transaction::{Cursor, Entries, Entry, Proof, Savepoint, Transaction};
pub use yesquel_client::Counts as SentCounts;
pub use yesquel_embedded::EmbeddedServer;
pub use yesquel_engine::{Caller, Now, Settings, Techniques};
pub use yesquel_fork as fork;
pub use yesquel_log::LogError;
pub use yesquel_model::{
    Conflict, Key, LocalId, NodeId, Refusal, ServerId, Timestamp, TooFarAhead, TreeId, TxnId, limits,
};
pub use yesquel_server::{
    Core, CoreError, DataFolder, Durability, FolderError, ManualTime, Options, ReplySink, SocketCounters,
    Time, WallTime,
};
pub use yesquel_transport::{
    Address, AddressError, ConnectError, ConnectStep, DEFAULT_PORT, Patience, Patient, SocketOptions,
    gives_up, has_given_up,
};
pub use yesquel_tree::Counts as SearchCounts;
pub use yesquel_wire::{
    Malformed,
    greeting::{CREDENTIAL_BYTES_MAX, Denial, GreetingError},
    status,
};
