//! Room on the disk for what `cargo xtask test` builds and installs below `target`.

use std::fs;
use std::path::Path;

use crate::Result;

const GIB: u64 = 1 << 30;

/// What `target` holds after all steps in a clean clone, and what the linker needs beside it, bytes.
/// Measured on 2026-11-26: 8.2 GiB after the build, of 189 test programs (now 111), and 0.7 GiB of
/// the other steps.
const NEEDED: u64 = 10 * GIB;

/// Room that a run needs even if `target` is as large as after a whole run, bytes.
const CHANGES: u64 = 2 * GIB;

/// Refuses a run that would fill the disk: the linker then ends by a signal, and nothing in its
/// message says why.
pub(crate) fn check(target: &Path) -> Result<()> {
    let free = rustix::fs::statvfs(target)
        .map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize))
        .map_err(|error| format!("{}: the free room cannot be read: {error}", target.display()))?;
    enough(free, size(target)).map_err(|missing| format!("{}: {missing}", target.display()))
}

fn enough(free: u64, present: u64) -> Result<()> {
    let needed = NEEDED.saturating_sub(present).max(CHANGES);
    if free >= needed {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / GIB as f64;
    Err(format!("{:.1} GiB are free, and the tests need {:.1} GiB", gib(free), gib(needed)))
}

/// Bytes of the files below a folder; what cannot be read counts as nothing.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_clone_needs_all_and_a_built_one_little() {
        assert!(enough(NEEDED, 0).is_ok());
        let refused = enough(NEEDED / 2, 0).unwrap_err();
        assert_eq!(refused, "5.0 GiB are free, and the tests need 10.0 GiB");
        assert!(enough(NEEDED / 2, NEEDED / 2).is_ok());
        assert!(enough(CHANGES, 2 * NEEDED).is_ok());
        assert!(enough(CHANGES - 1, 2 * NEEDED).is_err());
    }

    #[test]
    fn the_size_of_a_folder_is_that_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("deps")).unwrap();
        fs::write(folder.path().join("deps/a"), [0; 1000]).unwrap();
        fs::write(folder.path().join("b"), [0; 24]).unwrap();
        assert_eq!(size(folder.path()), 1024);
        assert_eq!(size(&folder.path().join("absent")), 0);
    }
}
