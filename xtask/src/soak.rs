//! What takes too long for each change: Yesquel's server killed a thousand
//! times, and its seeded tests by the million.

use clap::Args;

use crate::Result;
use crate::children::{Children, line};
use crate::simulate;

// Without a group of its own, which would be called like that of the seeds.
#[derive(Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// How often the server is killed
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    kills: u64,
    #[command(flatten)]
    seeds: simulate::Arguments,
}

/// Whether all of it passed. A test that fails prints what it takes to run it
/// again.
pub(crate) fn soak(arguments: &Arguments, children: &Children) -> Result<bool> {
    let mut kill = crate::cargo();
    kill.args(["test", "--release", "--package", "yesquel-cli", "--test", "kill", "--", "--nocapture"]);
    kill.env("KILLS", arguments.kills.to_string());
    println!("    KILLS={} {}", arguments.kills, line(&kill));
    // The seeds also tell of what kills have not met, and the other way round.
    let survives = children.run(&mut kill)?.success();
    let passes = simulate::simulate(&arguments.seeds, children)?;
    Ok(survives && passes)
}
