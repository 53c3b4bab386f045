//! `yesquel tree`: reads, writes and draws the maps of a server.

use crate::{connect::ServerArguments, failure::CliError, show, tree_drawing};
use clap::{Args, Subcommand};
use serde_json::Value;
use std::{
    io::{Read, Write},
    ops::Bound,
    path::PathBuf,
};
use yesquel::{Database, Map, limits};

/// Format of keys and values, for the help.
const WRITING: &str = "Keys and values are text, in input as in output: \\t, \\n, \\r and \\xHH (two hexadecimal digits) \
    stand for control characters and for bytes that are not UTF-8, \\\\ for a backslash, and \\x2d for a '-' that \
    would be taken for an option. With --hex all keys and values are hexadecimal digits. JSON has strings, and \
    {\"hex\":\"80\"} for a key or value that is not UTF-8; with --hex all its strings are hexadecimal.";

#[derive(Debug, Args)]
#[command(after_help = WRITING)]
pub(crate) struct TreeArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Database and map
    #[arg(value_name = "DATABASE/MAP")]
    map: String,
    /// Read and print keys and values as hexadecimal digits
    #[arg(long, global = true)]
    hex: bool,
    #[command(subcommand)]
    command: TreeCommand,
}

#[derive(Debug, Subcommand)]
enum TreeCommand {
    /// Print the value of a key
    #[command(after_help = WRITING)]
    Get {
        /// Key
        #[arg(allow_negative_numbers = true)]
        key: String,
        /// Print the bytes unchanged, without a newline
        #[arg(long)]
        raw: bool,
    },
    /// Set the value of a key; creates a missing map
    #[command(after_help = WRITING)]
    Put {
        /// Key
        #[arg(allow_negative_numbers = true)]
        key: String,
        /// Value, or `-` for the bytes of standard input
        #[arg(allow_negative_numbers = true)]
        value: String,
        /// Fail if the key exists
        #[arg(long)]
        new: bool,
    },
    /// Delete a key
    #[command(after_help = WRITING)]
    Delete {
        /// Key
        #[arg(allow_negative_numbers = true)]
        key: String,
    },
    /// Print keys and values in order of keys
    #[command(after_help = WRITING)]
    Scan {
        /// First key, inclusive
        #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
        from: Option<String>,
        /// Last key, exclusive
        #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
        to: Option<String>,
        /// Prefix of keys
        #[arg(long, value_name = "TEXT", conflicts_with_all = ["from", "to"])]
        prefix: Option<String>,
        /// Largest number of keys
        #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
        limit: Option<u64>,
        /// Print one object per line: {"key":"...","value":"..."}, with {"hex":"80"} for bytes that are not UTF-8
        #[arg(long)]
        json: bool,
    },
    /// Draw the tree: its nodes, their key ranges, and how often each is accessed
    Draw {
        /// SVG file to write; `-`: standard output
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
}

impl TreeArguments {
    fn bytes(&self, text: &str) -> Result<Vec<u8>, CliError> {
        if !self.hex {
            return show::from_text(text).map_err(CliError::Usage);
        }
        show::from_hex(text).ok_or_else(|| CliError::Usage(format!("'{text}' is not hexadecimal")))
    }

    fn show(&self, bytes: &[u8]) -> String {
        if self.hex { show::to_hex(bytes) } else { show::argument(bytes) }
    }

    fn json(&self, bytes: &[u8]) -> Value {
        if self.hex { show::to_hex(bytes).into() } else { show::json(bytes) }
    }

    /// Returns a map, which must exist.
    fn existing(&self, database: &Database, name: &str) -> Result<Map, CliError> {
        let absent = || CliError::Absent(format!("there is no map '{name}' in '{}'", database.name()));
        database.existing_map(name)?.ok_or_else(absent)
    }
}

pub(crate) fn run(arguments: &TreeArguments) -> Result<(), CliError> {
    let Some((database, name)) = arguments.map.split_once('/') else {
        return Err(CliError::Usage(format!("'{}' is no DATABASE/MAP", arguments.map)));
    };
    let store = arguments.server.connect()?;
    let database = store.database(database)?;
    match &arguments.command {
        TreeCommand::Get { key, raw } => {
            let map = arguments.existing(&database, name)?;
            let found = database.get(map, &arguments.bytes(key)?)?;
            let value = found.ok_or_else(|| CliError::Absent(format!("there is no key '{key}'")))?;
            let mut out = anstream::stdout();
            if *raw {
                std::io::stdout().write_all(&value)?;
            } else {
                writeln!(out, "{}", arguments.show(&value))?;
            }
            Ok(())
        }
        TreeCommand::Put { key, value, new } => {
            let value = match value.as_str() {
                "-" => {
                    let mut all = Vec::new();
                    std::io::stdin().take(limits::VALUE_BYTES_MAX + 1).read_to_end(&mut all)?;
                    all
                }
                value => arguments.bytes(value)?,
            };
            let (map, key) = (database.map(name)?, arguments.bytes(key)?);
            database.run(|transaction| {
                if *new { transaction.insert(map, &key, &value) } else { transaction.put(map, &key, &value) }
            })?;
            Ok(())
        }
        TreeCommand::Delete { key } => {
            let map = arguments.existing(&database, name)?;
            let bytes = arguments.bytes(key)?;
            let was_there = database.run(|transaction| {
                let found = transaction.get(map, &bytes)?.is_some();
                transaction.delete(map, &bytes)?;
                Ok(found)
            })?;
            if was_there { Ok(()) } else { Err(CliError::Absent(format!("there is no key '{key}'"))) }
        }
        TreeCommand::Scan { from, to, prefix, limit, json } => {
            let map = arguments.existing(&database, name)?;
            let bytes = |text: &Option<String>| text.as_deref().map(|text| arguments.bytes(text)).transpose();
            let range = ScanRange { from: bytes(from)?, to: bytes(to)?, prefix: bytes(prefix)? };
            scan(arguments, &database, map, &range, limit.unwrap_or(u64::MAX), *json)
        }
        TreeCommand::Draw { svg } => {
            let map = arguments.existing(&database, name)?;
            let nodes = store.nodes(map)?;
            match svg {
                None => tree_drawing::text(&nodes, &mut anstream::stdout()),
                Some(path) if path.as_os_str() == "-" => {
                    Ok(svg::write(std::io::stdout().lock(), &tree_drawing::svg(&nodes, &arguments.map)?)?)
                }
                Some(path) => svg::save(path, &tree_drawing::svg(&nodes, &arguments.map)?)
                    .map_err(|error| CliError::File { path: path.into(), error }),
            }
        }
    }
}

/// Range of keys of a scan.
struct ScanRange {
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    prefix: Option<Vec<u8>>,
}

fn scan(
    arguments: &TreeArguments,
    database: &Database,
    map: Map,
    ScanRange { from, to, prefix }: &ScanRange,
    limit: u64,
    json: bool,
) -> Result<(), CliError> {
    let low = from.as_ref().or(prefix.as_ref()).map_or(Bound::Unbounded, Bound::Included);
    let high = to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    if from.as_ref().zip(to.as_ref()).is_some_and(|(from, to)| from > to) {
        return Err(CliError::Usage("--from is above --to".to_owned()));
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut transaction = database.begin();
    for entry in transaction.range::<Vec<u8>>(map, (low, high)).limit(limit) {
        let (key, value) = entry?;
        if prefix.as_ref().is_some_and(|prefix| !key.starts_with(prefix)) {
            break;
        }
        if json {
            let (key, value) = (arguments.json(&key), arguments.json(&value));
            writeln!(out, "{}", serde_json::json!({ "key": key, "value": value }))?;
        } else {
            writeln!(out, "{}\t{}", arguments.show(&key), arguments.show(&value))?;
        }
    }
    Ok(out.flush()?)
}
