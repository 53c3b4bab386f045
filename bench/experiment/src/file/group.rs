//! `[group]`: several client processes that do the work of one
//! (`docs/coordination.md`).

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

/// Names of what a lost client means for the others.
pub const LOST: [(&str, OnLost); 2] = [("end", OnLost::End), ("continue", OnLost::Continue)];

/// `[group]` of an experiment file. An absent key has the default of its property.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GroupEntry {
    /// Client processes; 1 is this process alone.
    pub clients: Option<u64>,
    /// ZooKeeper's address; may also be given on the command line.
    pub zookeeper: Option<String>,
    /// What becomes of the others when a client is lost.
    pub lost: Option<OnLost>,
    /// Node that everything is below.
    pub root: Option<String>,
    /// The group's name.
    pub group: Option<String>,
    /// Where the coordinator listens.
    pub listen: Option<String>,
    /// Time in which all must have come, and have got ready for a phase.
    pub wait: Option<Duration>,
    /// Silence after which one is lost.
    pub timeout: Option<Duration>,
    /// Its place in the file.
    pub origin: Option<Origin>,
}

/// Reads the table.
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
    /// The keys that are set: the key, its property, and the value.
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

    /// The same as properties.
    pub fn properties(&self) -> Vec<PropertyLine> {
        let origin = self.origin.clone().unwrap_or(Origin::Program("[group]"));
        let lines = self.set().into_iter();
        lines.map(|(_, property, value)| (property.name.to_owned(), value, origin.clone())).collect()
    }

    /// The keys and values as the file has them.
    pub(super) fn keys(&self) -> Vec<(&'static str, String)> {
        self.set().into_iter().map(|(key, _, value)| (key, value)).collect()
    }
}
