//! Fuzz targets with arbitrary bytes for Yesquel: each module has a `check` function that panics if
//! an invariant does not hold.
//!
//! `cargo xtask fuzz` runs them; the files in `seeds` are the initial inputs, which `cargo run
//! --example seeds` creates.

pub mod checkpoint;
mod damage;
mod disk;
pub mod engine;
mod input;
pub mod log;
pub mod seeds;
pub mod wire;

/// Prints what an input does if `YESQUEL_FUZZ_SHOW` is set, for replays.
fn show(what: impl FnOnce() -> String) {
    static IS_SHOWN: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| std::env::var_os("YESQUEL_FUZZ_SHOW").is_some());
    if *IS_SHOWN {
        eprintln!("{}", what());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, fs, path::Path};

    #[test]
    fn the_stored_seeds_equal_the_generated_ones() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
        let mut kept = BTreeMap::new();
        for target in fs::read_dir(folder).unwrap() {
            let target = target.unwrap().path();
            for file in fs::read_dir(&target).unwrap() {
                let file = file.unwrap().path();
                let name = format!(
                    "{}/{}",
                    target.file_name().unwrap().display(),
                    file.file_name().unwrap().display()
                );
                kept.insert(name, fs::read(file).unwrap());
            }
        }
        let made = seeds::all().into_iter().map(|(target, name, bytes)| (format!("{target}/{name}"), bytes));
        assert!(made.collect::<BTreeMap<_, _>>() == kept, "`cargo run --example seeds` writes them anew");
    }

    #[test]
    fn all_seeds_pass_the_checks() {
        for (target, name, bytes) in seeds::all() {
            println!("{target}/{name}");
            match target {
                "wire" => wire::check(&bytes),
                "engine" => engine::check(&bytes),
                "log" => log::check(&bytes),
                "checkpoint" => checkpoint::check(&bytes),
                _ => panic!("there is no target {target}"),
            }
        }
    }
}
