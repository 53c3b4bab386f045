//! Runs the checks of a target on inputs that a fuzzer has kept.
//!
//! ```sh
//! cargo run --example replay -- engine FILE...
//! ```

use std::{env, fs, process::ExitCode};
use yesquel_fuzz::{checkpoint, engine, log, wire};

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let check: fn(&[u8]) = match arguments.next().as_deref() {
        Some("wire") => wire::check,
        Some("engine") => engine::check,
        Some("log") => log::check,
        Some("checkpoint") => checkpoint::check,
        _ => {
            eprintln!("error: name a target (wire, engine, log or checkpoint) and files");
            return ExitCode::from(2);
        }
    };
    for path in arguments {
        match fs::read(&path) {
            Ok(bytes) => check(&bytes),
            Err(error) => {
                eprintln!("error: {path}: {error}");
                return ExitCode::FAILURE;
            }
        }
        println!("{path}: passes");
    }
    ExitCode::SUCCESS
}
