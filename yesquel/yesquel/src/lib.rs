//! Yesquel's ordered maps with transactions: in memory, in a folder, or at a server.
//!
//! A [`Store`] holds [`Database`]s, a database holds [`Map`]s by name, and a [`Transaction`] reads
//! and writes any of its maps atomically. Keys and values are bytes; keys are in byte order.
//!
//! Isolation is snapshot isolation (Berenson et al., 1995): the first committer of a key wins. A
//! transaction whose commit fails with [`Error::Conflict`] must be retried, as [`Database::run`]
//! does, and [`Database::try_run`] for closures with errors of their own. Where snapshot isolation
//! is too weak, for example for the uniqueness of something that is not a key,
//! [guard](Transaction::guard) a range.

mod any_transport;
mod catalog;
mod check;
mod checked_start;
mod client_number;
mod database;
mod directory;
mod directory_entries;
mod directory_proofs;
mod directory_starts;
mod directory_thread;
mod error;
mod fatal;
mod group_maintenance;
mod host;
mod join;
mod lease;
mod least_used;
mod lost;
mod map;
mod name_copier;
mod name_knowledge;
mod names;
mod peers;
mod placement;
mod range;
mod run;
mod secret_reload;
mod server;
mod server_start;
mod split_work;
mod stop_flag;
mod store;
mod transaction;
mod write_turn;

pub use catalog::{AddedGroups, NAME_BYTES_MAX};
pub use check::{CheckObserver, CheckProgress, CheckSummary, FoundFault, StoreFault};
pub use database::{Database, PendingNumbers};
pub use error::Error;
pub use host::Host;
pub use join::JoinOptions;
pub use lease::Lease;
pub use least_used::{COOKIES_MAP, SCHEMA_MAP};
pub use lost::GivenUp;
pub use map::{Map, MapCopies};
pub use peers::PeerOptions;
pub use placement::{Placement, PlacementError};
pub use secret_reload::{ReloadSummary, SecretReloader};
pub use server::{CLIENTS_MAX, ListenOptions, SOCKET_MODE, Server};
pub use stop_flag::StopFlag;
pub use store::Store;
pub use transaction::{Cursor, Entries, Entry, Proof, Savepoint, Transaction};
pub use yesquel_client::SentCounts;
pub use yesquel_embedded::EmbeddedServer;
pub use yesquel_engine::{Caller, EngineSettings, Now, Techniques};
pub use yesquel_fork as fork;
pub use yesquel_log::LogError;
pub use yesquel_model::{
    ClusterId, Conflict, Key, LocalId, NodeId, Refusal, ServerId, Timestamp, TooFarAhead, TreeId, TxnId,
    limits,
};
pub use yesquel_secrets::{
    CREDENTIALS_MAX, CertificateFiles, ClientFiles, ConnectionSecrets, Credentials, PresentedSecrets,
    SecretFiles, SecretsError, ServerEncryption, tls,
};
pub use yesquel_server::{
    ClockState, Core, CoreError, DataFolder, DataFolderError, Durability, GROUPS_MAX, LogOptions, ManualTime,
    ReplySink, SocketCounters, Time, UpgradeError, UpgradeOutcome, UpgradeProgress, WallTime, upgrade,
};
pub use yesquel_transport::{
    Address, AddressError, Addresses, CancelCheck, CancelGuard, ConnectError, ConnectStep, DEFAULT_PORT,
    SocketOptions, TransportObject, check_cancelled, was_cancelled,
};
pub use yesquel_tree::{LeafPlacement, SearchCounts, TreeCounts, TreeFault};
pub use yesquel_wire::{
    Malformed,
    greeting::{CREDENTIAL_BYTES_MAX, Denial, GreetingError, Role},
    machines::ManagementRefusal,
    status,
};
