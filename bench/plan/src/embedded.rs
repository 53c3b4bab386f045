//! Embedded stores whose files are in the results' folder unless a property names another path.

use serval_model::properties::{Origin, Properties};
use serval_stores::StoreInfo;
use std::{fs, io, path::Path};

/// An embedded store and the property with its path.
#[derive(Debug)]
pub struct EmbeddedStore {
    store: &'static str,
    /// Property with the path of the store's files.
    pub property: &'static str,
    /// Other property that may name the path.
    other: Option<&'static str>,
    /// Name of the store's file or folder.
    pub file: &'static str,
    /// Text before and after the path in the property's value.
    affixes: (&'static str, &'static str),
}

const EMBEDDED_STORES: &[EmbeddedStore] = &[
    // Same durability as the default of `yesquel.address`.
    EmbeddedStore {
        store: "yesquel",
        property: "yesquel.address",
        other: None,
        file: "store",
        affixes: ("yesquel:", "?durability=100"),
    },
    EmbeddedStore {
        store: "sqlite",
        property: "sqlite.path",
        other: Some("db.url"),
        file: "store.db",
        affixes: ("", ""),
    },
    EmbeddedStore { store: "fjall", property: "fjall.path", other: None, file: "store", affixes: ("", "") },
];

/// Suffixes of the files of a store: its main file, and SQLite's auxiliary files.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

impl EmbeddedStore {
    /// Finds the embedded store of this name; `None` if a property already names its path.
    pub fn of(info: &StoreInfo, properties: &Properties) -> Option<&'static EmbeddedStore> {
        EMBEDDED_STORES.iter().find(|embedded| {
            let mut names = std::iter::once(embedded.property).chain(embedded.other);
            embedded.store == info.name && !names.any(|name| properties.get(name).is_some())
        })
    }

    /// Returns the property's value for a store in a folder.
    pub fn value(&self, folder: &Path) -> String {
        format!("{}{}{}", self.affixes.0, folder.join(self.file).to_string_lossy(), self.affixes.1)
    }

    /// Sets the property so that the store's files are in a folder.
    pub fn place(&self, properties: &mut Properties, folder: &Path, why: &'static str) {
        properties.set(self.property, self.value(folder), Origin::Program(why));
    }

    /// Removes the files of the closed store.
    pub fn remove(&self, folder: &Path) -> io::Result<()> {
        for suffix in SUFFIXES {
            let path = folder.join(format!("{}{suffix}", self.file));
            let Ok(facts) = path.symlink_metadata() else { continue };
            if facts.is_dir() { fs::remove_dir_all(&path)? } else { fs::remove_file(&path)? }
        }
        Ok(())
    }

    /// Copies the files of the closed store to another folder and replaces those there.
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
