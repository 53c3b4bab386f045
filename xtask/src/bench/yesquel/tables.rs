//! The client of statements of SQL on tables that are distributed over the groups of a cluster.

use std::process::Command;

use super::groups::ServerGroup;
use super::options;

/// What the client does.
#[derive(Debug, Clone, Copy)]
pub(super) struct TablesLoad<'a> {
    /// The client's name of the statement.
    pub(super) statement: &'a str,
    pub(super) tables: usize,
    /// Each has a thread.
    pub(super) connections: usize,
    /// Statements of all connections together.
    pub(super) operations: usize,
    /// Rows of a table.
    pub(super) keys: usize,
}

impl TablesLoad<'_> {
    /// Adds the arguments to a command that runs the client.
    pub(super) fn command(&self, mut client: Command, servers: &ServerGroup) -> Command {
        client.args(["tables", "--target", &servers.target, "--statement", self.statement]).args(options(&[
            ("tables", self.tables.to_string()),
            ("threads", self.connections.to_string()),
            ("operations", self.operations.to_string()),
            ("keys", self.keys.to_string()),
        ]));
        client
    }
}
