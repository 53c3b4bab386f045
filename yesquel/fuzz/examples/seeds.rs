//! Writes what the fuzzer begins with, into `seeds`.

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    for (target, name, bytes) in yesquel_fuzz::seeds::all() {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}
