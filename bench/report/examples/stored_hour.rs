//! Writes results of an hour into a folder for `cargo xtask bench report`: `sweep/`, an experiment of 2
//! stores, 8 points and 3 repeats of 75 s, and `run/`, one run of 3,600 s. All have two operations and
//! intervals of a second.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use std::path::Path;
use synthetic::Size;

fn main() {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: stored_hour FOLDER");
        std::process::exit(2);
    };
    let (sweep, run) = (Path::new(&folder).join("sweep"), Path::new(&folder).join("run"));
    if let Err(error) = std::fs::create_dir_all(&sweep) {
        eprintln!("{}: {error}", sweep.display());
        std::process::exit(1);
    }
    synthetic::sweep(&sweep, Size { stores: 2, points: 8, repeats: 3, seconds: 75, drawn: 2000 });
    synthetic::write_run(&run, &synthetic::one_run(3600, 1000, 2));
}
