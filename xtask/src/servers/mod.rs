//! Real servers on loopback, one module a system. A server is a guard: it
//! answers once it exists, and is gone with its files once dropped.

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
pub(crate) mod zookeeper;

use crate::{Result, children::Children, setup::Purpose};

/// How a server is to be started by hand.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerOptions {
    /// Where it listens; a free port if `None`.
    pub(crate) port: Option<u16>,
    /// What it asks of its clients; nothing if `None`.
    pub(crate) password: Option<String>,
    /// Whether it serves tests only, which are over before what the Java compiler
    /// optimises has paid for itself.
    pub(crate) short_lived: bool,
}

impl ServerOptions {
    /// The argument of `java` for how far it optimises.
    pub(crate) fn java_level(&self) -> &'static str {
        if self.short_lived { QUICK_JAVA } else { "-XX:TieredStopAtLevel=4" }
    }
}

/// The argument of `java` for code that is compiled soon rather than well.
pub(crate) const QUICK_JAVA: &str = "-XX:TieredStopAtLevel=1";

/// A server that runs.
pub(crate) trait ServerHandle: Send {
    /// Where it listens, for people.
    fn address(&self) -> String;
    /// The `-p` arguments that point Serval at it, as words.
    fn properties(&self) -> Vec<String>;
    /// Waits until it answers, if it may have been started without that (as the fixtures of
    /// several servers are, for others can be started meanwhile).
    fn wait_until_ready(&self) -> Result<()> {
        Ok(())
    }
    /// Waits until a signal stops it with the task; its ending by itself is
    /// an error.
    fn wait_for_interrupt(&self) -> Result<()>;
}

/// The servers that a store's tests want, and the environment variables that
/// tell the tests where they are.
pub(crate) struct Fixture {
    /// All of them; dropping them stops them.
    pub(crate) servers: Vec<Box<dyn ServerHandle>>,
    /// Names and values; every name must be among its kind's `variables`.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// A kind of server.
pub(crate) struct Kind {
    /// The store it is for, and its name in `cargo xtask serve`.
    pub(crate) name: &'static str,
    /// The programs it needs.
    pub(crate) purpose: Purpose,
    /// Starts one by hand.
    pub(crate) serve: fn(&Children, &ServerOptions) -> Result<Box<dyn ServerHandle>>,
    /// Starts those that the tests want.
    pub(crate) fixture: fn(&Children) -> Result<Fixture>,
    /// The variables that tests look at. Removed from outside, so that
    /// nothing is tested that the summary says was skipped.
    pub(crate) variables: &'static [&'static str],
}

/// Every kind, in the order in which they are started: those that take long and are waited for
/// in the end come first.
pub(crate) const KINDS: &[Kind] = &[
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
    zookeeper::KIND,
];

impl Kind {
    /// What is run in the place of the store's own server, for those who read
    /// what was tested.
    pub(crate) fn stand_in(&self) -> Option<&'static str> {
        (self.purpose == Purpose::Mongodb).then_some("mongo-java-server, a stand-in for MongoDB")
    }
}

/// Endings of the names of kinds that are several servers of one store.
const SEVERAL: [&str; 3] = ["-replica", "-ring", "-ensemble"];

/// The store that a kind of server is for.
pub(crate) fn store(name: &str) -> &str {
    SEVERAL.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

/// Waits until a signal stops servers with the task. As long as one is left it is no error that
/// others end, so that it can be seen what becomes of their clients.
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

/// The kind of a name.
pub(crate) fn kind(name: &str) -> Option<&'static Kind> {
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
