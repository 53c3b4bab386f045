//! The load of one client process: threads in a closed loop, or, with a rate,
//! on a schedule. `cargo xtask bench yesquel` starts servers and several of
//! these, and compares.

mod load;
mod redis;

use clap::{Parser, ValueEnum};
use std::{process::ExitCode, time::Duration};

/// What every thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Inserts all keys once.
    Load,
    /// Reads a random key.
    Read,
    /// Reads a random key and writes it, in a transaction.
    Update,
    /// Inserts a new random key.
    Insert,
    /// Inserts the largest key so far.
    InsertMono,
}

/// One client process of Yesquel's benchmarks.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// What to do
    workload: Workload,
    /// Whom to ask: yesquel:ADDRESS or redis:ADDRESS
    #[arg(long)]
    target: String,
    /// Threads
    #[arg(long, default_value_t = 32)]
    threads: u32,
    /// Seconds that are measured
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before that
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Keys that there are
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Operations a second of all threads together; 0: as fast as answers come
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// Redis: reads that each thread sends in one go
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Which of several processes it is: its random numbers follow from it
    #[arg(long, default_value_t = 0)]
    process: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match load::run(&load::Plan {
        workload: arguments.workload,
        target: arguments.target,
        threads: arguments.threads.max(1),
        measured: Duration::from_secs_f64(arguments.seconds.max(0.1)),
        warm_up: Duration::from_secs_f64(arguments.warm_up.max(0.0)),
        keys: arguments.keys.max(1),
        value_bytes: arguments.value_bytes,
        rate: arguments.rate,
        pipeline: arguments.pipeline.max(1),
        process: arguments.process,
    }) {
        Ok(result) => {
            println!("{result}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("yesquel-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
