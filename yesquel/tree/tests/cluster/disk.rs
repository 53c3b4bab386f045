//! A disk in memory that loses what was not synced, in part and in any order;
//! that fills up; whose syncs fail; whose power goes in the midst of anything.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use yesquel_log::disk::{Disk, DiskFile};
use yesquel_seeds::Random;

/// Bytes that a disk writes at once or not at all.
const SECTOR: usize = 64;

#[derive(Debug, Default)]
struct Bytes {
    all: Vec<u8>,
    /// As they were at the last sync.
    durable: Vec<u8>,
    /// What was written since.
    loose: Vec<Range<usize>>,
}

impl Bytes {
    fn sync(&mut self) {
        self.durable.clone_from(&self.all);
        self.loose.clear();
    }
}

#[derive(Debug)]
struct Inner {
    files: BTreeMap<String, Bytes>,
    /// Bytes that may still be written.
    room: usize,
    sync_fails: bool,
    /// Operations until the power goes.
    power: Option<u64>,
    is_gone: bool,
    /// What becomes of the operation in which the power goes.
    random: Random,
}

/// A server's folder. Clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedDisk(Arc<Mutex<Inner>>);

#[derive(Debug)]
pub(crate) struct SimulatedFile {
    disk: SimulatedDisk,
    name: String,
}

fn no_power() -> io::Error {
    io::Error::other("the power is gone")
}

impl Inner {
    /// Counts an operation. Whether it is the one in which the power goes.
    fn operation(&mut self) -> io::Result<bool> {
        if self.is_gone {
            return Err(no_power());
        }
        match &mut self.power {
            None => Ok(false),
            Some(0) => {
                self.is_gone = true;
                Ok(true)
            }
            Some(left) => {
                *left -= 1;
                Ok(false)
            }
        }
    }

    /// Does what is done whole or not at all; perhaps not, where the power
    /// goes.
    fn change(&mut self, act: impl FnOnce(&mut BTreeMap<String, Bytes>)) -> io::Result<()> {
        let goes = self.operation()?;
        if !goes || self.random.next(2) == 0 {
            act(&mut self.files);
        }
        if goes { Err(no_power()) } else { Ok(()) }
    }
}

impl SimulatedDisk {
    pub(crate) fn new() -> SimulatedDisk {
        let files = BTreeMap::new();
        let (room, random) = (usize::MAX, Random::new(0));
        let inner = Inner { files, room, sync_fails: false, power: None, is_gone: false, random };
        SimulatedDisk(Arc::new(Mutex::new(inner)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes and no more.
    pub(crate) fn fill(&self, room: usize) {
        self.lock().room = room;
    }

    pub(crate) fn fail_syncs(&self) {
        self.lock().sync_fails = true;
    }

    /// The power goes in the operation after so many.
    pub(crate) fn lose_power_after(&self, operations: u64, seed: u64) {
        let mut inner = self.lock();
        (inner.power, inner.random) = (Some(operations), Random::new(seed));
    }

    /// Whether the power is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.lock().is_gone
    }

    /// Whether anything is wrong with it.
    pub(crate) fn is_faulty(&self) -> bool {
        let inner = self.lock();
        inner.sync_fails || inner.room < usize::MAX || inner.is_gone
    }

    /// There is room and power, and syncs do what they should.
    pub(crate) fn repair(&self) {
        let mut inner = self.lock();
        (inner.room, inner.sync_fails) = (usize::MAX, false);
        (inner.power, inner.is_gone) = (None, false);
    }

    /// The power goes. Of what was not synced each sector is there, or is as it
    /// was before, or holds rubbish, and the file may not have grown, or less.
    pub(crate) fn crash(&self, random: &mut Random) {
        for Bytes { all, durable, loose } in self.lock().files.values_mut() {
            let grown = all.len().saturating_sub(durable.len());
            durable.resize(durable.len() + random.next(grown as u64 + 1) as usize, 0);
            for written in loose.drain(..) {
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
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for SimulatedDisk {
    type File = SimulatedFile;

    fn path(&self) -> &Path {
        Path::new("simulated")
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let inner = self.lock();
        if inner.is_gone { Err(no_power()) } else { Ok(inner.files.keys().cloned().collect()) }
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let inner = self.lock();
        if inner.is_gone {
            return Err(no_power());
        }
        inner.files.get(name).map(|bytes| bytes.all.clone()).ok_or_else(not_found)
    }

    fn create(&self, name: &str) -> io::Result<SimulatedFile> {
        self.lock().change(|files| {
            let old = files.insert(name.to_owned(), Bytes::default());
            assert!(old.is_none(), "{name} is there");
        })?;
        Ok(SimulatedFile { disk: self.clone(), name: name.to_owned() })
    }

    fn open_cut(&self, name: &str, length: u64) -> io::Result<SimulatedFile> {
        self.lock().change(|files| {
            if let Some(bytes) = files.get_mut(name) {
                bytes.all.truncate(length as usize);
                bytes.sync();
            }
        })?;
        Ok(SimulatedFile { disk: self.clone(), name: name.to_owned() })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.lock().change(|files| {
            if let Some(bytes) = files.remove(from) {
                files.insert(to.to_owned(), bytes);
            }
        })
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.lock().change(|files| drop(files.remove(name)))
    }
}

impl DiskFile for SimulatedFile {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.disk.lock();
        let goes = inner.operation()?;
        let Inner { files, room, random, .. } = &mut *inner;
        let file = files.get_mut(&self.name).ok_or_else(not_found)?;
        let from = at as usize;
        assert!(from <= file.all.len(), "there is a gap in {}", self.name);
        // What is there already takes no room.
        let mut taken = bytes.len().min(room.saturating_add(file.all.len() - from));
        if goes {
            taken = random.next(taken as u64 + 1) as usize;
        }
        let end = from + taken;
        *room -= end.saturating_sub(file.all.len());
        file.all.resize(file.all.len().max(end), 0);
        file.all[from..end].copy_from_slice(&bytes[..taken]);
        file.loose.push(from..end);
        match (goes, taken < bytes.len()) {
            (true, _) => Err(no_power()),
            (false, true) => Err(io::ErrorKind::StorageFull.into()),
            (false, false) => Ok(()),
        }
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        let mut inner = self.disk.lock();
        if inner.operation()? {
            return Err(no_power());
        }
        let file = inner.files.get_mut(&self.name).ok_or_else(not_found)?;
        file.all.truncate(length as usize);
        file.sync();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut inner = self.disk.lock();
        if inner.operation()? {
            return Err(no_power());
        }
        if inner.sync_fails {
            return Err(io::Error::other("the sync failed"));
        }
        let file = inner.files.get_mut(&self.name).ok_or_else(not_found)?;
        file.sync();
        Ok(())
    }
}
