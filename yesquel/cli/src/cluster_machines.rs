//! `yesquel cluster add` and `remove`: the machines of a cluster.

use crate::{connect::OperatorArguments, failure::CliError, table_of_lines::TableOfLines};
use clap::Args;
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};
use yesquel::status::MachineStatus;

#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    #[command(flatten)]
    server: OperatorArguments,
    /// Time for which the token is valid: a number with s, m, h or d, 30 days at most
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = expiry)]
    expires: Duration,
    /// New file for the token, which only its owner can read [default: standard output]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    #[command(flatten)]
    server: OperatorArguments,
    /// Number of the machine, as `cluster status` lists it
    machine: u32,
}

/// Parses a time with a unit.
fn expiry(text: &str) -> Result<Duration, String> {
    const MOST: u64 = 30 * 86_400;
    let wrong = || format!("'{text}' is no time: write a number with s, m, h or d, such as 1h");
    let (at, unit) = text.char_indices().last().ok_or_else(wrong)?;
    let unit = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..at].parse().map_err(|_| wrong())?;
    match number.checked_mul(unit) {
        Some(0) => Err("it must be above zero".to_owned()),
        Some(seconds) if seconds <= MOST => Ok(Duration::from_secs(seconds)),
        _ => Err("it is more than 30 days".to_owned()),
    }
}

pub(crate) fn add(arguments: &AddArguments) -> Result<(), CliError> {
    let store = arguments.server.connect()?;
    // The file first: a token that cannot be written would be lost.
    let file =
        arguments.token_file.as_deref().map(|path| Ok::<_, CliError>((path, create(path)?))).transpose()?;
    let token = store.add_machine(arguments.expires).inspect_err(|_| {
        if let Some(path) = &arguments.token_file {
            // The error of the command says more.
            let _ = fs::remove_file(path);
        }
    })?;
    match file {
        Some((path, mut file)) => {
            let written = writeln!(file, "{token}").and_then(|()| file.sync_all());
            written.map_err(|error| CliError::File { path: path.to_owned(), error })?;
            // A hint for people: the output is not for scripts.
            let addresses = arguments.server.addresses();
            writeln!(
                anstream::stderr(),
                "one machine can join: yesquel serve --data DIR --listen ADDRESS --join {addresses} --token-file {}",
                path.display()
            )?;
        }
        None => {
            let mut out = anstream::stdout();
            writeln!(out, "{token}")?;
            out.flush()?;
        }
    }
    Ok(())
}

/// Creates a file that only its owner can read.
fn create(path: &Path) -> Result<File, CliError> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|error| CliError::File { path: path.to_owned(), error })
}

pub(crate) fn remove(arguments: &RemoveArguments) -> Result<(), CliError> {
    Ok(arguments.server.connect()?.remove_machine(arguments.machine)?)
}

/// Returns the table of the machines; empty: the cluster has no directory.
pub(crate) fn text_of(machines: &[MachineStatus]) -> String {
    if machines.is_empty() {
        return String::new();
    }
    let mut table = TableOfLines::new(["machine", "groups", "state", "starts", "address"]);
    for machine in machines {
        let groups = machine.all_groups().map(|group| group.to_string()).collect::<Vec<_>>().join(",");
        let MachineStatus { machine, address, state, incarnation, .. } = machine;
        let (state, starts) = (state.to_string(), incarnation.to_string());
        table.push([machine.to_string(), groups, state, starts, address.clone()]);
    }
    format!("\n{}", table.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel::status::MachineState;

    #[test]
    fn times_have_units() {
        let seconds = |text| expiry(text).map(|time| time.as_secs());
        assert_eq!(["90s", "5m", "1h", "30d"].map(seconds), [Ok(90), Ok(300), Ok(3_600), Ok(2_592_000)]);
        for wrong in ["", "h", "1", "1.5h", "-1h", "0s", "31d", "18446744073709551615d", "1é"] {
            assert!(expiry(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn machines_are_a_table() {
        assert_eq!(text_of(&[]), "");
        let machine = MachineStatus {
            machine: 2,
            group: 1,
            groups: Vec::new(),
            address: "a:7411".to_owned(),
            state: MachineState::Removed,
            incarnation: 12,
        };
        let several = MachineStatus { machine: 3, group: 2, groups: vec![2, 4], ..machine.clone() };
        let text = anstream::adapter::strip_str(&text_of(&[machine, several])).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "",
                "machine  groups  state    starts  address",
                "2        1       removed  12      a:7411",
                "3        2,4     removed  12      a:7411"
            ]
        );
    }
}
