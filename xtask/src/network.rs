//! `cargo xtask network`: four of Yesquel's servers in network namespaces, with faults of
//! processes, links, disks and clocks. `yesquel/cli/tests/network` is the program.

use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;

use crate::Result;
use crate::children::{Children, line};
use crate::setup::{self, Missing, ProgramPurpose};

#[derive(Args)]
pub(crate) struct NetworkArguments {
    /// Seed of the faults, which happen in the same order again [default: the clock]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Number of kills of servers
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,
    /// Time after which no further round of faults begins [default: none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    minutes: Option<u64>,
}

impl NetworkArguments {
    /// As many kills as this time allows, at least a minute.
    pub(crate) fn within(limit: Duration) -> NetworkArguments {
        let minutes = (limit.as_secs() / 60).max(1);
        NetworkArguments { seed: None, kills: u64::from(u32::MAX), minutes: Some(minutes) }
    }
}

/// Makes sure that the programs are installed, and that this process may create namespaces.
pub(crate) fn provide(children: &Children, missing: Missing) -> Result<String> {
    let note = setup::provide(children, ProgramPurpose::Network, missing)?;
    if may_create_namespaces(children) {
        Ok(note)
    } else {
        Err("this process may not create network namespaces".to_owned())
    }
}

/// Tries to create a pair of devices, a filter and a file system in namespaces of their own.
pub(crate) fn may_create_namespaces(children: &Children) -> bool {
    let try_all = "ip link add v0 type veth peer name v1 && nft add table inet t && \
                   mount -t tmpfs tmpfs /mnt";
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", try_all]).stdout(Stdio::null()).stderr(Stdio::null());
    let is_root = rustix::process::geteuid().is_root();
    is_root && children.run(&mut command).is_ok_and(|status| status.success())
}

/// Installs the programs, and runs the faults; returns whether everything held.
pub(crate) fn network(arguments: &NetworkArguments, children: &Children) -> Result<bool> {
    provide(children, Missing::Install)?;
    run(arguments, children)
}

/// The same for a soak, where it is skipped if namespaces cannot be created.
pub(crate) fn part(arguments: &NetworkArguments, children: &Children) -> Result<bool> {
    if let Err(reason) = provide(children, Missing::Install) {
        println!("    skipped: {reason}");
        return Ok(true);
    }
    run(arguments, children)
}

fn run(arguments: &NetworkArguments, children: &Children) -> Result<bool> {
    let mut test = crate::cargo();
    test.args(["test", "--release", "--package", "yesquel-cli", "--test", "network", "--"]);
    test.args(["--ignored", "--exact", "a_cluster_survives_faults_of_machines_and_links", "--nocapture"]);
    test.env("KILLS", arguments.kills.to_string());
    arguments.seed.map(|seed| test.env("SEED", seed.to_string()));
    arguments.minutes.map(|minutes| test.env("MINUTES", minutes.to_string()));
    println!("    KILLS={} {}", arguments.kills, line(&test));
    Ok(children.run(&mut test)?.success())
}
