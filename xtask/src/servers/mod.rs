//! Real servers on loopback, one module per system. A server is a guard: it answers from
//! construction on, and dropping it removes it with its files.

pub(crate) mod accumulo;
pub(crate) mod cassandra;
mod cql;
pub(crate) mod etcd;
pub(crate) mod hbase;
pub(crate) mod memcached;
pub(crate) mod mongodb;
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod redis;
mod resp;
pub(crate) mod rest;
pub(crate) mod yesquel;
pub(crate) mod zookeeper;

use crate::{Result, children::Children, setup::ProgramPurpose};

/// Options of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerOptions {
    /// Port; a free one if `None`.
    pub(crate) port: Option<u16>,
    /// Password of its clients, if any.
    pub(crate) password: Option<String>,
    /// Whether it serves tests only, which are too short for Java's optimising compiler to pay off.
    pub(crate) short_lived: bool,
}

impl ServerOptions {
    /// Argument of `java` that limits optimisation.
    pub(crate) fn java_level(&self) -> &'static str {
        if self.short_lived { QUICK_JAVA } else { "-XX:TieredStopAtLevel=4" }
    }
}

/// Argument of `java` for fast compilation instead of optimisation.
pub(crate) const QUICK_JAVA: &str = "-XX:TieredStopAtLevel=1";

/// A running server.
pub(crate) trait ServerHandle: Send {
    /// Its address, for users.
    fn address(&self) -> String;
    /// The `-p` arguments with which Serval uses it.
    fn properties(&self) -> Vec<String>;
    /// Waits until it answers, if it may have been started without that (as the fixtures of
    /// several servers are, for others can be started meanwhile).
    fn wait_until_ready(&self) -> Result<()> {
        Ok(())
    }
    /// Waits until a signal stops it together with the task; its own exit is an error.
    fn wait_for_interrupt(&self) -> Result<()>;
}

/// The servers for a store's tests, and the environment variables with their addresses.
pub(crate) struct Fixture {
    /// All of them; dropping them stops them.
    pub(crate) servers: Vec<Box<dyn ServerHandle>>,
    /// Names and values; every name must be among its kind's `variables`.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// A kind of server.
pub(crate) struct ServerKind {
    /// Name of the store and of the server in `cargo xtask serve`.
    pub(crate) name: &'static str,
    /// The programs it needs.
    pub(crate) purpose: ProgramPurpose,
    /// Starts one by hand.
    pub(crate) serve: fn(&Children, &ServerOptions) -> Result<Box<dyn ServerHandle>>,
    /// Starts the servers of the tests.
    pub(crate) fixture: fn(&Children) -> Result<Fixture>,
    /// The variables that tests read. They are removed from the inherited environment, so that the
    /// summary is right about skipped tests.
    pub(crate) variables: &'static [&'static str],
}

/// All kinds, in the order of their start: slow ones, which are awaited last, come first.
pub(crate) const KINDS: &[ServerKind] = &[
    cassandra::RING,
    zookeeper::ENSEMBLE,
    redis::KIND,
    redis::REPLICA,
    accumulo::KIND,
    cassandra::KIND,
    etcd::KIND,
    hbase::KIND,
    memcached::KIND,
    mongodb::KIND,
    mysql::KIND,
    postgres::KIND,
    postgres::REPLICA,
    rest::KIND,
    yesquel::KIND,
    yesquel::CLUSTER,
    zookeeper::KIND,
];

impl ServerKind {
    /// Substitute for the store's own server, for the summary.
    pub(crate) fn stand_in(&self) -> Option<&'static str> {
        (self.purpose == ProgramPurpose::Mongodb).then_some("mongo-java-server, a stand-in for MongoDB")
    }
}

/// Endings of the names of kinds that are several servers of one store.
const SEVERAL: [&str; 4] = ["-replica", "-ring", "-ensemble", "-cluster"];

/// The store that a kind of server is for.
pub(crate) fn store(name: &str) -> &str {
    SEVERAL.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

/// Waits until a signal stops the servers together with the task. A user may kill all but one of
/// them to watch their clients.
fn wait_for_all<S: ServerHandle>(servers: &[S]) -> Result<()> {
    let mut last = Err("there is no server".to_owned());
    for server in servers {
        last = server.wait_for_interrupt();
        match &last {
            Ok(()) => break,
            Err(reason) => eprintln!("{}: {reason}", server.address()),
        }
    }
    last
}

/// Returns the kind with this name.
pub(crate) fn kind(name: &str) -> Option<&'static ServerKind> {
    KINDS.iter().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_servers_are_of_one_store() {
        for kind in KINDS {
            let store = store(kind.name);
            assert!(super::kind(store).is_some_and(|single| single.purpose == kind.purpose), "{}", kind.name);
        }
        assert_eq!((store("cassandra-ring"), store("redis")), ("cassandra", "redis"));
    }

    #[test]
    fn no_two_kinds_have_a_variable_in_common() {
        let mut names: Vec<&str> = KINDS.iter().flat_map(|kind| kind.variables).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
