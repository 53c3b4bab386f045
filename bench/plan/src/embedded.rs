//! Embedded stores that keep their records in the results' folder unless a property
//! names another place.

use serval_model::properties::{Origin, Properties};
use serval_stores::StoreInfo;
use std::{fs, io, path::Path};

/// Such a store.
#[derive(Debug)]
pub struct EmbeddedStore {
    store: &'static str,
    /// The property that says where.
    pub property: &'static str,
    /// Another one that may.
    other: Option<&'static str>,
    /// Its file or folder.
    pub file: &'static str,
    /// Text around the file's path in the property.
    around: (&'static str, &'static str),
}

const EMBEDDED_STORES: &[EmbeddedStore] = &[
    // The durability is that of the store's own default.
    EmbeddedStore {
        store: "yesquel",
        property: "yesquel.address",
        other: None,
        file: "store",
        around: ("yesquel:", "?durability=100"),
    },
    EmbeddedStore {
        store: "sqlite",
        property: "sqlite.path",
        other: Some("db.url"),
        file: "store.db",
        around: ("", ""),
    },
    EmbeddedStore { store: "fjall", property: "fjall.path", other: None, file: "store", around: ("", "") },
];

/// What may stand beside the file.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

impl EmbeddedStore {
    /// Whether the store that these properties ask for is one.
    pub fn of(info: &StoreInfo, properties: &Properties) -> Option<&'static EmbeddedStore> {
        EMBEDDED_STORES.iter().find(|kept| {
            let mut names = std::iter::once(kept.property).chain(kept.other);
            kept.store == info.name && !names.any(|name| properties.get(name).is_some())
        })
    }

    /// The property's value for a store in a folder.
    pub fn value(&self, folder: &Path) -> String {
        format!("{}{}{}", self.around.0, folder.join(self.file).to_string_lossy(), self.around.1)
    }

    /// Has the store be in a folder.
    pub fn place(&self, properties: &mut Properties, folder: &Path, why: &'static str) {
        properties.set(self.property, self.value(folder), Origin::Program(why));
    }

    /// Removes its files, which are closed.
    pub fn remove(&self, folder: &Path) -> io::Result<()> {
        for suffix in SUFFIXES {
            let path = folder.join(format!("{}{suffix}", self.file));
            let Ok(facts) = path.symlink_metadata() else { continue };
            if facts.is_dir() { fs::remove_dir_all(&path)? } else { fs::remove_file(&path)? }
        }
        Ok(())
    }

    /// Copies its files, which are closed, to another folder, over those that
    /// are there.
    pub fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::create_dir_all(to)?;
        self.remove(to)?;
        for suffix in SUFFIXES {
            let name = format!("{}{suffix}", self.file);
            let source = from.join(&name);
            let Ok(facts) = source.symlink_metadata() else { continue };
            if facts.is_dir() {
                copy_folder(&source, &to.join(name))?
            } else {
                fs::copy(&source, to.join(name)).map(drop)?
            }
        }
        Ok(())
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
