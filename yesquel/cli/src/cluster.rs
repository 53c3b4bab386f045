//! `yesquel cluster`: shows the groups of a cluster, checks them, and changes its machines.

use crate::{
    cluster_check, cluster_doubt, cluster_lost,
    cluster_machines::{self, AddArguments, RemoveArguments},
    connect::ServerArguments,
    failure::CliError,
    show,
    table_of_lines::TableOfLines,
};
use clap::{Args, Subcommand};
use serde_json::json;
use std::{collections::BTreeMap, io::Write};
use yesquel::{
    ServerId, Store,
    status::{DirectoryStatus, GroupStatus, ServerStatus},
};

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// List the groups: where they are, whether they serve, and how much they hold
    Status(ClusterStatusArguments),
    /// Write a token with which one machine can join: yesquel serve --join ADDRESS --token-file FILE
    Add(AddArguments),
    /// Remove a machine that has no database
    Remove(RemoveArguments),
    /// Check that all trees are whole, beside writers
    Check(cluster_check::ClusterCheckArguments),
    /// List the transactions that have voted and do not know their end
    Doubt(cluster_doubt::ClusterDoubtArguments),
    /// Say what is missing without a group that is lost for good, and end what waits for it
    Lost(cluster_lost::ClusterLostArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ClusterStatusArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A group, and what its server says, or why it says nothing.
struct FoundGroup {
    group: GroupStatus,
    status: Result<ServerStatus, yesquel::Error>,
}

impl FoundGroup {
    fn serves(&self) -> bool {
        self.status.as_ref().is_ok_and(|status| status.peers.not_serving.is_none())
    }
}

pub(crate) fn run(command: &ClusterCommand) -> Result<(), CliError> {
    match command {
        ClusterCommand::Status(arguments) => status(arguments),
        ClusterCommand::Add(arguments) => cluster_machines::add(arguments),
        ClusterCommand::Remove(arguments) => cluster_machines::remove(arguments),
        ClusterCommand::Check(arguments) => cluster_check::run(arguments),
        ClusterCommand::Doubt(arguments) => cluster_doubt::run(arguments),
        ClusterCommand::Lost(arguments) => cluster_lost::run(arguments),
    }
}

fn status(arguments: &ClusterStatusArguments) -> Result<(), CliError> {
    let store = arguments.server.connect()?;
    let DirectoryStatus { groups, machines, .. } = store.directory()?;
    let groups = groups.into_iter().map(|group| {
        let status = store.status_of(ServerId(group.group));
        FoundGroup { group, status }
    });
    let groups: Vec<FoundGroup> = groups.collect();
    // The home group, which has their names, may not answer.
    let databases = store.databases_by_group().ok();
    let text = if arguments.json {
        let mut json = json_of(&store, &groups, databases.as_ref());
        json["machines"] = json!(machines);
        json.to_string() + "\n"
    } else {
        text_of(&store, &groups, databases.as_ref()) + &cluster_machines::text_of(&machines)
    };
    let mut out = anstream::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    match groups.iter().filter(|found| !found.serves()).count() {
        0 => Ok(()),
        unserved => Err(CliError::Unserved(unserved, groups.len())),
    }
}

type Databases = BTreeMap<ServerId, usize>;

fn count_of(databases: Option<&Databases>, group: &GroupStatus) -> Option<usize> {
    databases.map(|counts| counts.get(&ServerId(group.group)).copied().unwrap_or_default())
}

fn json_of(store: &Store, groups: &[FoundGroup], databases: Option<&Databases>) -> serde_json::Value {
    let groups: Vec<_> = groups
        .iter()
        .map(|FoundGroup { group, status }| {
            json!({
                "group": group.group,
                "address": group.address,
                "databases": count_of(databases, group),
                "error": status.as_ref().err().map(ToString::to_string),
                "status": status.as_ref().ok(),
            })
        })
        .collect();
    json!({ "cluster": store.cluster().to_string(), "home_group": store.home_group().0, "groups": groups })
}

fn text_of(store: &Store, groups: &[FoundGroup], databases: Option<&Databases>) -> String {
    let mut table = TableOfLines::new([
        "group",
        "address",
        "databases",
        "memory",
        "records",
        "in doubt",
        "release",
        "up",
    ]);
    let mut problems = Vec::new();
    for found in groups {
        let GroupRow { cells, problem } = row(store, found, databases);
        table.push(cells);
        problems.extend(problem.map(|problem| (found.group.group, problem)));
    }
    let mut text = format!("cluster {}\n\n{}", store.cluster(), table.text());
    let bad = anstyle::AnsiColor::Red.on_default();
    for (group, problem) in problems {
        text.push_str(&format!("\n{bad}group {group}: {problem}{bad:#}\n"));
    }
    text
}

/// A line of the table of groups.
struct GroupRow {
    cells: Vec<String>,
    /// Why the group does not serve, or not everything.
    problem: Option<String>,
}

fn row(store: &Store, FoundGroup { group, status }: &FoundGroup, databases: Option<&Databases>) -> GroupRow {
    let home = if ServerId(group.group) == store.home_group() { " (home)" } else { "" };
    let count = count_of(databases, group).map_or_else(|| "?".to_owned(), |count| count.to_string());
    let mut cells = vec![format!("{}{home}", group.group), group.address.clone(), count];
    let problem = match status {
        Ok(status) => {
            cells.extend([
                show::bytes(status.memory.bytes),
                show::count(status.log.lsn),
                show::count(status.transactions.undecided),
                status.version.clone(),
                show::duration(status.uptime_ms),
            ]);
            let disk = status.log.failed.as_ref().map(|why| format!("takes no writes: {why}"));
            status.peers.not_serving.as_ref().map(|why| format!("serves nothing: {why}")).or(disk)
        }
        Err(error) => {
            cells.push("does not answer".to_owned());
            Some(error.to_string())
        }
    };
    GroupRow { cells, problem }
}
