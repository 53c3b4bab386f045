//! A disk in memory that loses unsynced bytes in part and in any order, fills up, fails to sync, and
//! loses power in the middle of any operation.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use yesquel_log::disk::{Disk, DiskFile, DiskTree};
use yesquel_seeds::Random;

/// Bytes that the disk writes atomically.
const SECTOR: usize = 64;

#[derive(Debug, Default)]
struct FileContent {
    all: Vec<u8>,
    /// Content at the last sync.
    durable: Vec<u8>,
    /// Ranges written since the last sync.
    unsynced: Vec<Range<usize>>,
}

impl FileContent {
    fn sync(&mut self) {
        self.durable.clone_from(&self.all);
        self.unsynced.clear();
    }
}

#[derive(Debug)]
struct DiskState {
    files: BTreeMap<String, FileContent>,
    /// Free space in bytes.
    free: usize,
    sync_fails: bool,
    /// Operations left until the power goes; none: it stays.
    power_left: Option<u64>,
    power_is_lost: bool,
    /// Decides what becomes of the operation in which the power goes.
    random: Random,
}

/// A server's folder, or one within it. Clones share it.
#[derive(Debug, Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<DiskState>>,
    path: PathBuf,
    /// Beginning of its files' names: empty, or the names of folders, each with a slash.
    prefix: String,
}

/// An open file of a [`SimulatedDisk`].
#[derive(Debug)]
pub struct SimulatedFile {
    disk: SimulatedDisk,
    /// Its name, with those of its folders.
    name: String,
}

fn power_lost() -> io::Error {
    io::Error::other("the power is lost")
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl DiskState {
    /// Counts an operation. Returns whether the power goes in it.
    fn operation(&mut self) -> io::Result<bool> {
        if self.power_is_lost {
            return Err(power_lost());
        }
        match &mut self.power_left {
            None => Ok(false),
            Some(0) => {
                self.power_is_lost = true;
                Ok(true)
            }
            Some(left) => {
                *left -= 1;
                Ok(false)
            }
        }
    }

    /// Performs an atomic change; if the power goes in it, it may or may not happen.
    fn change(&mut self, act: impl FnOnce(&mut BTreeMap<String, FileContent>)) -> io::Result<()> {
        let power_goes = self.operation()?;
        if !power_goes || self.random.next(2) == 0 {
            act(&mut self.files);
        }
        if power_goes { Err(power_lost()) } else { Ok(()) }
    }
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        SimulatedDisk::new()
    }
}

impl SimulatedDisk {
    /// An empty disk without faults.
    pub fn new() -> SimulatedDisk {
        let (files, random) = (BTreeMap::new(), Random::new(0));
        let free = usize::MAX;
        let inner =
            DiskState { files, free, sync_fails: false, power_left: None, power_is_lost: false, random };
        let (state, prefix) = (Arc::new(Mutex::new(inner)), String::new());
        SimulatedDisk { state, path: "simulated".into(), prefix }
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Leaves so many bytes of free space.
    pub fn limit_space(&self, bytes: usize) {
        self.lock().free = bytes;
    }

    /// Makes syncs fail or succeed from now on.
    pub fn fail_syncs(&self, fail: bool) {
        self.lock().sync_fails = fail;
    }

    /// Loses the power in the operation after so many.
    pub fn lose_power_after(&self, operations: u64, seed: u64) {
        let mut inner = self.lock();
        (inner.power_left, inner.random) = (Some(operations), Random::new(seed));
    }

    /// Whether the power is lost.
    pub fn power_is_lost(&self) -> bool {
        self.lock().power_is_lost
    }

    /// Whether any fault is in effect.
    pub fn is_faulty(&self) -> bool {
        let inner = self.lock();
        inner.sync_fails || inner.free < usize::MAX || inner.power_is_lost
    }

    /// Ends all faults; files stay as they are.
    pub fn repair(&self) {
        let mut inner = self.lock();
        (inner.free, inner.sync_fails) = (usize::MAX, false);
        (inner.power_left, inner.power_is_lost) = (None, false);
    }

    /// Drops what a power failure loses: each unsynced sector is written, keeps its old content, or
    /// holds garbage, and a file may have grown less or not at all.
    pub fn crash(&self, random: &mut Random) {
        for FileContent { all, durable, unsynced } in self.lock().files.values_mut() {
            let grown = all.len().saturating_sub(durable.len());
            durable.resize(durable.len() + random.next(grown as u64 + 1) as usize, 0);
            for written in unsynced.drain(..) {
                let mut at = written.start;
                while at < written.end.min(durable.len()) {
                    let end = ((at / SECTOR + 1) * SECTOR).min(written.end).min(durable.len());
                    match random.next(3) {
                        0 => {}
                        1 => durable[at..end].iter_mut().for_each(|byte| *byte ^= random.next(256) as u8),
                        _ => durable[at..end].copy_from_slice(&all[at..end]),
                    }
                    at = end;
                }
            }
            all.clone_from(durable);
        }
    }

    /// Total bytes of the files whose names start with a prefix.
    pub fn bytes_of(&self, prefix: &str) -> u64 {
        let inner = self.lock();
        let prefix = self.key(prefix);
        let files = inner.files.iter().filter(|(name, _)| name.starts_with(&prefix));
        files.map(|(_, file)| file.all.len() as u64).sum()
    }

    /// Changes a file without the log's knowledge, durably. A file that does not exist is created.
    pub fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.lock();
        let content = inner.files.entry(self.key(name)).or_default();
        change(&mut content.all);
        content.sync();
    }

    /// Removes a file without the log's knowledge and returns its content.
    pub fn take(&self, name: &str) -> Option<Vec<u8>> {
        self.lock().files.remove(&self.key(name)).map(|content| content.all)
    }
}

impl Disk for SimulatedDisk {
    type File = SimulatedFile;

    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let inner = self.lock();
        if inner.power_is_lost {
            return Err(power_lost());
        }
        let within = inner.files.keys().filter_map(|name| name.strip_prefix(&self.prefix));
        let mut names: Vec<String> =
            within.map(|name| name.split('/').next().unwrap_or_default().to_owned()).collect();
        names.dedup();
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let inner = self.lock();
        if inner.power_is_lost {
            return Err(power_lost());
        }
        inner.files.get(&self.key(name)).map(|content| content.all.clone()).ok_or_else(not_found)
    }

    fn create(&self, name: &str) -> io::Result<SimulatedFile> {
        let name = self.key(name);
        if self.lock().free == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.lock().change(|files| {
            let old = files.insert(name.clone(), FileContent::default());
            assert!(old.is_none(), "{name} exists");
        })?;
        Ok(SimulatedFile { disk: self.clone(), name })
    }

    fn open_cut(&self, name: &str, length: u64) -> io::Result<SimulatedFile> {
        let name = self.key(name);
        self.lock().change(|files| {
            if let Some(content) = files.get_mut(&name) {
                content.all.truncate(length as usize);
                content.sync();
            }
        })?;
        Ok(SimulatedFile { disk: self.clone(), name })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.key(from), self.key(to));
        let (folder, new_folder) = (format!("{from}/"), format!("{to}/"));
        self.lock().change(|files| {
            let has_file = files.contains_key(&from);
            for (name, content) in std::mem::take(files) {
                let name = match name.strip_prefix(&folder) {
                    _ if name == to && has_file => continue,
                    _ if name == from => to.clone(),
                    Some(within) => format!("{new_folder}{within}"),
                    None => name,
                };
                files.insert(name, content);
            }
        })
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.lock().change(|files| drop(files.remove(&self.key(name))))
    }
}

/// A folder exists as long as it has files.
impl DiskTree for SimulatedDisk {
    fn subfolder(&self, name: &str) -> SimulatedDisk {
        let (state, path) = (Arc::clone(&self.state), self.path.join(name));
        SimulatedDisk { state, path, prefix: format!("{}/", self.key(name)) }
    }

    fn create_folder(&self, _: &str) -> io::Result<()> {
        self.lock().change(|_| {})
    }

    fn delete_folder(&self, name: &str) -> io::Result<()> {
        let prefix = format!("{}/", self.key(name));
        self.lock().change(|files| {
            let within = files.keys().find(|name| name.starts_with(&prefix));
            assert_eq!(within, None, "the folder is not empty");
        })
    }
}

impl DiskFile for SimulatedFile {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.disk.lock();
        let power_goes = inner.operation()?;
        let DiskState { files, free, random, .. } = &mut *inner;
        let file = files.get_mut(&self.name).ok_or_else(not_found)?;
        let from = at as usize;
        assert!(from <= file.all.len(), "the write leaves a gap in {}", self.name);
        // Overwriting takes no space.
        let mut taken = bytes.len().min(free.saturating_add(file.all.len() - from));
        if power_goes {
            taken = random.next(taken as u64 + 1) as usize;
        }
        let end = from + taken;
        *free -= end.saturating_sub(file.all.len());
        file.all.resize(file.all.len().max(end), 0);
        file.all[from..end].copy_from_slice(&bytes[..taken]);
        file.unsynced.push(from..end);
        match (power_goes, taken < bytes.len()) {
            (true, _) => Err(power_lost()),
            (false, true) => Err(io::ErrorKind::StorageFull.into()),
            (false, false) => Ok(()),
        }
    }

    fn length(&self) -> io::Result<u64> {
        let inner = self.disk.lock();
        if inner.power_is_lost {
            return Err(power_lost());
        }
        inner.files.get(&self.name).map(|file| file.all.len() as u64).ok_or_else(not_found)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        let mut inner = self.disk.lock();
        if inner.operation()? {
            return Err(power_lost());
        }
        let file = inner.files.get_mut(&self.name).ok_or_else(not_found)?;
        file.all.truncate(length as usize);
        file.sync();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut inner = self.disk.lock();
        if inner.operation()? {
            return Err(power_lost());
        }
        if inner.sync_fails {
            return Err(io::Error::other("the sync failed"));
        }
        let file = inner.files.get_mut(&self.name).ok_or_else(not_found)?;
        file.sync();
        Ok(())
    }
}
