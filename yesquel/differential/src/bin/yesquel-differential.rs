//! Runs a given script on both engines: `yesquel-differential < script.sql`.
//!
//! `PLACE` selects where the trees are (memory, folder, served, plain), and `TRACE` prints each
//! statement first. Statements end with a semicolon at the end of a line. Lines `-- 2: SELECT …`
//! prepare a statement in slot 2, `-- 2: step 3` steps it, and `-- 2: end` closes it; `-- reopen`
//! and `-- check` do what they say. `{file}` and `{tree}` are databases to attach.
//!
//! `yesquel-differential --record` prints the script in the format of sqllogictest with the results
//! of stock SQLite; `--draw SEED COUNT` prints a random one.

use std::{env, io::Read as _, process::ExitCode};
use yesquel_differential::{
    logic,
    script::{Order, ScriptStep, run},
};

fn steps(text: &str) -> Vec<ScriptStep> {
    let (mut steps, mut sql) = (Vec::new(), String::new());
    for line in text.lines() {
        let line = line.trim();
        if let Some(order) = line.strip_prefix("-- ").filter(|_| sql.is_empty()) {
            match order.split_once(": ") {
                Some((at, what)) => {
                    let Ok(at) = at.parse() else { continue };
                    steps.push(match what.strip_prefix("step ").map(str::parse) {
                        Some(Ok(count)) => ScriptStep::Next(at, count),
                        _ if what == "end" => ScriptStep::Close(at),
                        _ => ScriptStep::Open(at, what.to_owned()),
                    });
                }
                None if order == "reopen" => steps.push(ScriptStep::Reopen),
                None if order == "check" => steps.push(ScriptStep::Check),
                None => {}
            }
            continue;
        }
        sql.push_str(line);
        sql.push('\n');
        if line.ends_with(';') {
            steps.push(ScriptStep::Run(std::mem::take(&mut sql), Order::By(usize::MAX)));
        }
    }
    if !sql.trim().is_empty() {
        steps.push(ScriptStep::Run(sql, Order::By(usize::MAX)));
    }
    steps
}

/// Prints a script or an error.
fn printed(script: Result<String, logic::LogicError>) -> ExitCode {
    match script {
        Ok(script) => {
            print!("{script}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("yesquel-differential: {error}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--draw", seed, count] = arguments[..] {
        let (Ok(seed), Ok(count)) = (seed.parse(), count.parse()) else {
            eprintln!("yesquel-differential: --draw SEED COUNT takes two numbers");
            return ExitCode::FAILURE;
        };
        return printed(logic::drawn(seed, count));
    }
    let mut text = String::new();
    if let Err(error) = std::io::stdin().read_to_string(&mut text) {
        eprintln!("yesquel-differential: {error}");
        return ExitCode::FAILURE;
    }
    if arguments == ["--record"] {
        return printed(logic::record(&text));
    }
    // Panics with a description of the difference.
    run(&steps(&text));
    println!("the same");
    ExitCode::SUCCESS
}
