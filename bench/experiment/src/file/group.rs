//! `[group]`: several client processes that share the work of each run (`docs/coordination.md`).

use super::{
    lines::{PropertyLine, name_of},
    reader::TomlTable,
};
use serval_coordination::{group::OnLost, properties as p};
use serval_model::{
    properties::{Origin, Property, units::format_span},
    share::SHARES_MAX,
};
use std::time::Duration;

/// Names of the reactions to a lost client, in files.
pub const LOST: [(&str, OnLost); 2] = [("end", OnLost::End), ("continue", OnLost::Continue)];

/// `[group]` of an experiment file. An absent key has the default of its property.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GroupEntry {
    /// Number of client processes; 1 for this process alone.
    pub clients: Option<u64>,
    /// Address of ZooKeeper, if the command line does not give it.
    pub zookeeper: Option<String>,
    /// Reaction of the other clients to a lost client.
    pub lost: Option<OnLost>,
    /// ZooKeeper node below which Serval keeps its nodes.
    pub root: Option<String>,
    /// Name of the group.
    pub group: Option<String>,
    /// Address on which the coordinator listens.
    pub listen: Option<String>,
    /// Time limit for all clients to join, and to be ready for a phase.
    pub wait: Option<Duration>,
    /// Silence after which a client is lost.
    pub timeout: Option<Duration>,
    /// Place of the table in the file.
    pub origin: Option<Origin>,
}

/// Reads the table `[group]`.
pub(super) fn group(table: TomlTable<'_, '_>) -> GroupEntry {
    let entry = GroupEntry {
        clients: table.count("clients", 1..SHARES_MAX + 1),
        zookeeper: table.text("zookeeper"),
        lost: table.choice("lost", &LOST),
        root: table.text("root"),
        group: table.text("group"),
        listen: table.text("listen"),
        wait: table.duration("wait"),
        timeout: table.duration("timeout"),
        origin: Some(table.source().origin(&table.span(""))),
    };
    table.finish();
    entry
}

impl GroupEntry {
    /// Returns the keys that are set, each with its property and value.
    fn set(&self) -> Vec<(&'static str, &'static Property, String)> {
        let all = [
            ("clients", &p::CLIENTS, self.clients.map(|clients| clients.to_string())),
            ("zookeeper", &p::ZOOKEEPER, self.zookeeper.clone()),
            ("lost", &p::LOST, self.lost.map(|lost| name_of(&LOST, &lost).to_owned())),
            ("root", &p::ROOT, self.root.clone()),
            ("group", &p::GROUP, self.group.clone()),
            ("listen", &p::LISTEN, self.listen.clone()),
            ("wait", &p::WAIT, self.wait.map(format_span)),
            ("timeout", &p::TIMEOUT, self.timeout.map(format_span)),
        ];
        all.into_iter().filter_map(|(key, property, value)| Some((key, property, value?))).collect()
    }

    /// Returns the entry as properties.
    pub fn properties(&self) -> Vec<PropertyLine> {
        let origin = self.origin.clone().unwrap_or(Origin::Program("[group]"));
        let lines = self.set().into_iter();
        lines.map(|(_, property, value)| (property.name.to_owned(), value, origin.clone())).collect()
    }

    /// Returns the keys that are set with their values, for writing the file.
    pub(super) fn keys(&self) -> Vec<(&'static str, String)> {
        self.set().into_iter().map(|(key, _, value)| (key, value)).collect()
    }
}
