//! Folder in memory.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};
use yesquel_log::disk::{Disk, DiskFile};

pub(crate) type MemoryFiles = BTreeMap<String, Vec<u8>>;

/// Files by name. Fuzz targets damage them here.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryDisk(Arc<Mutex<MemoryFiles>>);

#[derive(Debug)]
pub(crate) struct MemoryFile {
    disk: MemoryDisk,
    name: String,
}

impl MemoryDisk {
    pub(crate) fn files(&self) -> MutexGuard<'_, MemoryFiles> {
        self.0.lock().expect("the fuzzer has one thread")
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for MemoryDisk {
    type File = MemoryFile;

    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.files().keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.files().get(name).cloned().ok_or_else(missing)
    }

    fn create(&self, name: &str) -> io::Result<MemoryFile> {
        if self.files().contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.files().insert(name.to_owned(), Vec::new());
        Ok(MemoryFile { disk: self.clone(), name: name.to_owned() })
    }

    fn open_cut(&self, name: &str, length: u64) -> io::Result<MemoryFile> {
        self.files().get_mut(name).ok_or_else(missing)?.truncate(length as usize);
        Ok(MemoryFile { disk: self.clone(), name: name.to_owned() })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let bytes = self.files().remove(from).ok_or_else(missing)?;
        self.files().insert(to.to_owned(), bytes);
        Ok(())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.files().remove(name).map(drop).ok_or_else(missing)
    }
}

impl DiskFile for MemoryFile {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.disk.files();
        let file = files.get_mut(&self.name).ok_or_else(missing)?;
        let from = at as usize;
        assert!(from <= file.len(), "there is a gap in {}", self.name);
        file.resize(file.len().max(from + bytes.len()), 0);
        file[from..from + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.files().get(&self.name).ok_or_else(missing)?.len() as u64)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.disk.files().get_mut(&self.name).ok_or_else(missing)?.truncate(length as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
