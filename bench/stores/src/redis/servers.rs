//! One server, or several independent ones with keys sharded by hash.

use super::server::RedisEndpoint;
use crate::reconnecting::{Reconnecting, Slot};
use futures_util::future::join_all;
use redis::{Cmd, Pipeline, Value};
use serval_model::{Outcome, StoreError, java::string_hash};
use std::rc::Rc;

/// A client's connections to all servers.
#[derive(Debug)]
pub(super) struct Servers {
    links: Vec<Reconnecting<RedisEndpoint>>,
}

/// Returns the number of a key's server, by the sharding function of YCSB's SQL
/// binding.
pub(super) fn server_of(key: &str, servers: usize) -> usize {
    // A single server, the usual case, needs no hash.
    if servers == 1 { 0 } else { string_hash(key).unsigned_abs() as usize % servers }
}

/// Connects to all servers.
pub(super) async fn connect(servers: &[RedisEndpoint]) -> Result<Vec<Rc<Slot<RedisEndpoint>>>, StoreError> {
    let mut slots = Vec::with_capacity(servers.len());
    for server in servers {
        slots.push(Slot::connect(server.clone()).await?);
    }
    Ok(slots)
}

impl Servers {
    pub(super) fn new(slots: &[Rc<Slot<RedisEndpoint>>]) -> Self {
        Servers { links: slots.iter().cloned().map(Reconnecting::new).collect() }
    }

    fn link(&mut self, key: &str) -> &mut Reconnecting<RedisEndpoint> {
        let number = server_of(key, self.links.len());
        &mut self.links[number]
    }

    /// Sends a command to the key's server.
    pub(super) async fn command(&mut self, key: &str, command: &Cmd) -> Result<Value, Outcome> {
        self.link(key).command(command).await
    }

    /// Sends pipelined commands to the key's server.
    pub(super) async fn pipeline(&mut self, key: &str, commands: &Pipeline) -> Result<Vec<Value>, Outcome> {
        self.link(key).pipeline(commands).await
    }

    /// Sends a command to every server.
    pub(super) async fn everywhere(&mut self, command: &Cmd) -> Result<Vec<Value>, Outcome> {
        if let [link] = &mut self.links[..] {
            return Ok(vec![link.command(command).await?]);
        }
        join_all(self.links.iter_mut().map(|link| link.command(command))).await.into_iter().collect()
    }

    /// Sends commands to their keys' servers, concurrently and pipelined. Returns the
    /// replies in the order of the commands.
    pub(super) async fn commands(&mut self, commands: Vec<(&str, Cmd)>) -> Result<Vec<Value>, Outcome> {
        let servers = self.links.len();
        let mut pipelines = vec![Pipeline::new(); servers];
        let order: Vec<usize> = commands
            .into_iter()
            .map(|(key, command)| {
                let number = server_of(key, servers);
                pipelines[number].add_command(command);
                number
            })
            .collect();
        let asked = self.links.iter_mut().zip(&pipelines).map(async |(link, pipeline)| {
            if pipeline.is_empty() { Ok(Vec::new()) } else { link.pipeline(pipeline).await }
        });
        let replies: Result<Vec<Vec<Value>>, Outcome> = join_all(asked).await.into_iter().collect();
        let mut replies: Vec<_> = replies?.into_iter().map(Vec::into_iter).collect();
        // A server answers each command, or the pipeline has failed above.
        Ok(order.into_iter().filter_map(|number| replies[number].next()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_on_the_server_that_its_java_hash_names() {
        // "a" hashes to 97, "user1" to 111578566, and the third to Java's smallest int.
        assert_eq!(server_of("a", 3), 1);
        assert_eq!(server_of("user1", 4), 2);
        assert_eq!(string_hash("polygenelubricants"), i32::MIN);
        assert_eq!(server_of("polygenelubricants", 3), 2);
        assert_eq!(server_of("anything", 1), 0);
    }
}
