//! `yesquel databases`: list, create, extend, drop.

use crate::{confirm::is_sure, connect::ServerArguments, failure::CliError};
use clap::{Args, Subcommand};
use std::{io::Write, time::Duration};
use yesquel::{Database, Placement};

#[derive(Debug, Subcommand)]
pub(crate) enum DatabasesCommand {
    /// List the databases of a server, with their maps
    List(ListArguments),
    /// Create a database; its name must not contain `/`
    Create(CreateArguments),
    /// Add groups to a database: tables created from then on may be placed at them
    Extend(ExtendArguments),
    /// Drop a database with all its contents
    Drop(DropArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DatabaseArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Name of the database
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    #[command(flatten)]
    named: DatabaseArguments,
    /// Group of the database: local (the server's own), spread (with the fewest databases), load
    /// (with the least memory), or a number. Over several groups its tables are distributed: tables
    /// (all groups), or their numbers, as in 0,2,5
    #[arg(long, value_name = "PLACEMENT", default_value = "local")]
    placement: Placement,
}

#[derive(Debug, Args)]
pub(crate) struct ExtendArguments {
    #[command(flatten)]
    named: DatabaseArguments,
    /// The groups: numbers, as in 1,2, or tables (all groups of the cluster)
    #[arg(long, value_name = "PLACEMENT", default_value = "tables")]
    placement: Placement,
    /// Longest wait for transactions that have begun with BEGIN IMMEDIATE, in seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,
}

#[derive(Debug, Args)]
pub(crate) struct DropArguments {
    #[command(flatten)]
    named: DatabaseArguments,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(crate) fn run(command: &DatabasesCommand) -> Result<(), CliError> {
    match command {
        DatabasesCommand::List(list) => self::list(list),
        DatabasesCommand::Create(CreateArguments {
            named: DatabaseArguments { server, name },
            placement,
        }) => {
            server.connect()?.create_database_at(name, placement)?;
            Ok(())
        }
        DatabasesCommand::Extend(ExtendArguments {
            named: DatabaseArguments { server, name },
            placement,
            wait,
        }) => {
            let wait = Duration::from_secs(*wait);
            let database = yesquel_sqlite::add_groups(&server.connect()?, name, placement, wait)?;
            writeln!(anstream::stdout(), "{name}{}", groups(&database))?;
            Ok(())
        }
        DatabasesCommand::Drop(DropArguments { named: DatabaseArguments { server, name }, yes }) => {
            let store = server.connect()?;
            let database = store.database(name)?;
            let maps = database.maps()?.len();
            let question = format!("Drop database '{name}' with its {maps} maps and all that is in them?");
            if !yes && !is_sure(&question)? {
                return Err(CliError::Usage("not dropped; --yes drops without asking".to_owned()));
            }
            Ok(store.drop_database(name)?)
        }
    }
}

fn list(ListArguments { server, json }: &ListArguments) -> Result<(), CliError> {
    let store = server.connect()?;
    let mut all = serde_json::Map::new();
    for name in store.databases()? {
        let database = store.database(&name)?;
        let maps: Vec<String> = database.maps()?.into_iter().map(|(name, _)| name).collect();
        if *json {
            all.insert(name, maps.into());
        } else {
            writeln!(anstream::stdout(), "{name}{}  {}", groups(&database), maps.join(" "))?;
        }
    }
    if *json {
        writeln!(anstream::stdout(), "{}", serde_json::Value::Object(all))?;
    }
    Ok(())
}

/// Names the groups of a database with several.
fn groups(database: &Database) -> String {
    match database.groups() {
        [_] => String::new(),
        groups => {
            let groups: Vec<String> = groups.iter().map(|group| group.0.to_string()).collect();
            format!(" (groups {})", groups.join(","))
        }
    }
}
