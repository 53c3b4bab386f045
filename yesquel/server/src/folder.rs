//! Data folder, which belongs to one server, and is locked by one process at a time.

use crate::{
    cluster_files::{ClusterFiles, StoredCredential, create_groups, create_machine, finish_join},
    folder_error::DataFolderError,
    machine_file::{
        GROUP_PREFIX, MACHINE, MACHINE_UNFINISHED, MachineFile, MachineIdentity, MachineStart, group_folder,
        group_of_folder,
    },
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    os::fd::AsFd,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use yesquel_fork::CloseOnFork;
use yesquel_log::{
    disk::{Disk as _, DiskTree as _, Folder},
    v1,
};
use yesquel_model::{ClusterMembership, ServerId};

/// Data folder, locked until this is dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// The cluster that a new folder joins.
    joins: Option<ClusterMembership>,
    /// Decides whether the machine starts, once the end of its log is known.
    admission: Option<StartAdmission>,
    /// A forked child does not share the lock.
    _fork: CloseOnFork,
    /// Holds the lock.
    _lock: File,
}

/// Records of the logs of a machine's groups that are on disk.
pub type LogEnds = [(ServerId, u64)];

/// Returns the start of the machine with this folder and these logs; `None`: it does not start.
type Admit = dyn FnOnce(&mut DataFolder, &LogEnds) -> Option<MachineStart> + Send + Sync;

/// Decides whether a machine starts.
struct StartAdmission(Box<Admit>);

impl fmt::Debug for StartAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartAdmission").finish_non_exhaustive()
    }
}

/// Attempts to lock a folder, and the pause between two: a second in all. A process that was killed
/// holds its lock until the system has torn it down, which may be after its successor's start.
const LOCK_ATTEMPTS: u32 = 21;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

const LOCK: &str = "lock";
/// File of a folder of format 1 that states the format and the server.
pub(crate) const OWNER: &str = "server";
/// Name of that file while it is written.
pub(crate) const OWNER_UNFINISHED: &str = "server-unfinished";

fn failed(of: &Path) -> impl FnOnce(io::Error) -> DataFolderError {
    let path = of.to_owned();
    move |error| DataFolderError::Io { path, error }
}

/// Returns the process that a lock file names. The text only makes the error message better.
fn holder_of(lock: &mut File) -> String {
    let mut text = String::new();
    let _ = lock.rewind().and_then(|()| lock.read_to_string(&mut text));
    text.lines().next().filter(|line| !line.is_empty()).unwrap_or("another process").to_owned()
}

/// Returns whether a file of this name belongs to a folder of format 1.
pub(crate) fn is_of_format_1(name: &str) -> bool {
    [OWNER, OWNER_UNFINISHED].contains(&name) || v1::is_log_file(name)
}

/// Content of the owner file.
pub(crate) struct Owner {
    pub(crate) format: u32,
    /// None in a later format.
    pub(crate) server: Option<ServerId>,
}

impl Owner {
    pub(crate) fn parse(text: &str) -> Option<Owner> {
        let mut lines = text.lines();
        let format = lines.next()?.strip_prefix("format ")?.parse().ok()?;
        let server = lines.next().and_then(|line| line.strip_prefix("server ")?.parse().ok());
        Some(Owner { format, server: server.map(ServerId) })
    }
}

/// The groups of a folder, at least one.
#[derive(Debug, Clone)]
pub(crate) struct FolderGroups {
    /// The lowest one.
    pub(crate) first: ServerId,
    pub(crate) others: Vec<ServerId>,
}

impl FolderGroups {
    pub(crate) fn all(&self) -> impl Iterator<Item = ServerId> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

impl DataFolder {
    /// Locks a folder; creates it if it does not exist. Waits a second for another process to end.
    pub fn take(path: impl Into<PathBuf>) -> Result<DataFolder, DataFolderError> {
        DataFolder::take_waiting(path.into(), thread::sleep)
    }

    /// Locks a folder, and waits by a function between two attempts.
    fn take_waiting(path: PathBuf, mut wait: impl FnMut(Duration)) -> Result<DataFolder, DataFolderError> {
        fs::create_dir_all(&path).map_err(failed(&path))?;
        let ours = |name: &str| {
            [LOCK, MACHINE, MACHINE_UNFINISHED].contains(&name)
                || ClusterFiles::NAMES.contains(&name)
                || name.starts_with(GROUP_PREFIX)
                || is_of_format_1(name)
        };
        for entry in fs::read_dir(&path).map_err(failed(&path))? {
            let name = entry.map_err(failed(&path))?.file_name().to_string_lossy().into_owned();
            if !ours(&name) {
                return Err(DataFolderError::Foreign { path, file: name });
            }
        }
        let file = path.join(LOCK);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
        let mut lock = opened.map_err(failed(&file))?;
        let own = format!("process {}", std::process::id());
        for attempt in 1.. {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(failed(&file)(error.into())),
            }
            let holder = holder_of(&mut lock);
            // This process itself does not end meanwhile.
            if attempt == LOCK_ATTEMPTS || holder == own {
                return Err(DataFolderError::InUse { path, holder });
            }
            wait(LOCK_PAUSE);
        }
        let written = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| writeln!(lock, "{own}"));
        written.map_err(failed(&file))?;
        Ok(DataFolder {
            path,
            joins: None,
            admission: None,
            _fork: CloseOnFork::new(lock.as_fd()),
            _lock: lock,
        })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether no server has used the folder yet.
    pub fn is_new(&self) -> Result<bool, DataFolderError> {
        Ok(self.machine()?.is_none())
    }

    /// Sets the cluster that a new folder joins. Otherwise it founds one.
    pub fn join(&mut self, membership: ClusterMembership) {
        self.joins = Some(membership);
    }

    /// The cluster that a new folder joins.
    pub(crate) fn joined(&self) -> Option<ClusterMembership> {
        self.joins
    }

    /// The machine that the folder belongs to; `None`: it is new.
    pub fn identity(&self) -> Result<Option<MachineIdentity>, DataFolderError> {
        Ok(self.machine()?.map(|(file, groups)| file.identity(groups.first)))
    }

    /// The groups of the folder, the lowest first; none: it is new.
    pub fn groups(&self) -> Result<Vec<ServerId>, DataFolderError> {
        Ok(self.machine()?.map_or_else(Vec::new, |(_, groups)| groups.all().collect()))
    }

    /// Adds groups, which are empty, unless the folder has them.
    pub fn add_groups(&self, groups: &[ServerId]) -> Result<(), DataFolderError> {
        let (file, before) = self.machine_of_folder()?;
        let mut all: Vec<ServerId> = before.all().chain(groups.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        if all.len() == before.all().count() {
            return Ok(());
        }
        create_groups(&Folder::new(&self.path), &MachineFile { groups: all, ..file }, groups)
    }

    /// The files about the cluster.
    pub fn cluster_files(&self) -> ClusterFiles {
        ClusterFiles::new(Folder::new(&self.path))
    }

    /// Makes a new folder that of a machine which has joined a cluster, with the credential of its
    /// servers and a copy of the directory (JSON). The machine's group is empty.
    pub fn finish_join(
        &mut self,
        identity: MachineIdentity,
        peer_credential: Option<&StoredCredential>,
        directory: &[u8],
    ) -> Result<(), DataFolderError> {
        finish_join(&Folder::new(&self.path), identity, peer_credential, directory)
    }

    /// The starts of which the directory may know one: the last one, and one that was interrupted.
    pub fn known_starts(&self) -> Result<Vec<MachineStart>, DataFolderError> {
        let file = self.machine()?.map(|(file, _)| file);
        Ok(file.into_iter().flat_map(|file| [Some(file.start), file.next]).flatten().collect())
    }

    /// Chooses the start after the one that the directory knows, with a fresh nonce each time, so that
    /// two copies of an interrupted start differ. Writes both.
    pub fn propose_start(&mut self, entered: MachineStart) -> Result<MachineStart, DataFolderError> {
        let (file, _) = self.machine_of_folder()?;
        let next = entered.following().map_err(failed(&self.path))?;
        MachineFile { start: entered, next: Some(next), ..file }.write(&Folder::new(&self.path))?;
        Ok(next)
    }

    /// Sets what enters the start of the machine in the directory. It gets the numbers of log records on
    /// disk, and returns the [proposed](Self::propose_start) start; `None`: the machine does not start.
    pub fn admit_by(
        &mut self,
        admit: impl FnOnce(&mut DataFolder, &LogEnds) -> Option<MachineStart> + Send + Sync + 'static,
    ) {
        self.admission = Some(StartAdmission(Box::new(admit)));
    }

    /// Asks whether the machine starts, with these logs. Returns its start, if the directory knows it.
    pub(crate) fn admit(&mut self, log_ends: &LogEnds) -> Result<Option<MachineStart>, DataFolderError> {
        let Some(StartAdmission(admit)) = self.admission.take() else { return Ok(None) };
        let not_admitted = DataFolderError::NotAdmitted { path: self.path.clone() };
        admit(self, log_ends).map(Some).ok_or(not_admitted)
    }

    fn machine_of_folder(&self) -> Result<(MachineFile, FolderGroups), DataFolderError> {
        let missing = || DataFolderError::NoMachine { path: self.path.join(MACHINE) };
        self.machine()?.ok_or_else(missing)
    }

    /// Reads whose the folder is, and the groups that it has; `None`: it is new.
    pub(crate) fn machine(&self) -> Result<Option<(MachineFile, FolderGroups)>, DataFolderError> {
        let disk = Folder::new(&self.path);
        let names = disk.names().map_err(failed(&self.path))?;
        if let Some(file) = MachineFile::read(&disk)? {
            let is_folder = |name: &&String| self.path.join(name.as_str()).is_dir();
            let mut folders: Vec<ServerId> =
                names.iter().filter(is_folder).filter_map(|name| group_of_folder(name)).collect();
            folders.sort_unstable();
            let missing = |group: ServerId| {
                let path = disk.subfolder(&group_folder(group)).path().to_owned();
                DataFolderError::NoGroup { path }
            };
            let first = file.groups.first().or(folders.first()).copied();
            let first = first.ok_or_else(|| missing(file.membership.home_group))?;
            let others: Vec<ServerId> = file.groups.iter().skip(1).copied().collect();
            let groups = FolderGroups { first, others };
            let absent = groups.all().find(|group| !folders.contains(group));
            return match absent {
                Some(group) => Err(missing(group)),
                None => Ok(Some((file, groups))),
            };
        }
        if names.iter().any(|name| is_of_format_1(name)) {
            let owner = disk.read(OWNER).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let format = owner.and_then(|text| Owner::parse(&text)).map_or(1, |owner| owner.format);
            return Err(DataFolderError::OldFormat { path: self.path.clone(), is_interrupted: format > 1 });
        }
        for name in names.iter().filter(|name| name.starts_with(GROUP_PREFIX)) {
            let group = disk.subfolder(name);
            // A start creates the folder of the group first, and was interrupted.
            if !group.names().map_err(failed(group.path()))?.is_empty() {
                return Err(DataFolderError::NoMachine { path: self.path.join(MACHINE) });
            }
        }
        Ok(None)
    }

    /// Checks that the folder belongs to this server.
    pub(crate) fn check(&self, owner: ServerId, asked: ServerId) -> Result<(), DataFolderError> {
        if owner == asked {
            return Ok(());
        }
        Err(DataFolderError::OtherServer { path: self.path.clone(), owner, asked })
    }

    /// Prepares a new folder for groups.
    pub(crate) fn create_groups(
        &self,
        file: &MachineFile,
        groups: &FolderGroups,
    ) -> Result<(), DataFolderError> {
        let groups: Vec<ServerId> = groups.all().collect();
        create_machine(&Folder::new(&self.path), file, &groups)
    }

    /// Warns of folders of groups that do not belong to the machine: it took their numbers, and its start
    /// was interrupted before they were its groups.
    pub(crate) fn report_other_groups(&self, groups: &FolderGroups) -> Result<(), DataFolderError> {
        for name in Folder::new(&self.path).names().map_err(failed(&self.path))? {
            if let Some(group) = group_of_folder(&name)
                && groups.all().all(|own| own != group)
            {
                let folder = self.path.join(&name);
                tracing::warn!(folder = %folder.display(), "the machine does not have this group: its folder is left alone");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that a process has locked.
    fn locked_by(process: &str) -> (tempfile::TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LOCK), format!("process {process}\n")).unwrap();
        let lock = File::open(folder.path().join(LOCK)).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        (folder, lock)
    }

    #[test]
    fn a_lock_of_a_process_that_is_ending_is_waited_for() {
        let (folder, lock) = locked_by("4000000000");
        let (mut lock, mut waits) = (Some(lock), 0);
        let taken = DataFolder::take_waiting(folder.path().into(), |_| {
            waits += 1;
            if waits == 3 {
                lock = None;
            }
        });
        assert!(taken.is_ok(), "{taken:?}");
        assert_eq!(waits, 3);
        let holder = fs::read_to_string(folder.path().join(LOCK)).unwrap();
        assert_eq!(holder, format!("process {}\n", std::process::id()));
    }

    #[test]
    fn a_lock_that_stays_is_reported_after_a_second() {
        let (folder, _lock) = locked_by("4000000000");
        let mut waited = Duration::ZERO;
        let error =
            DataFolder::take_waiting(folder.path().into(), |pause| waited += pause).unwrap_err().to_string();
        assert!(error.contains("in use by process 4000000000"), "{error}");
        assert_eq!(waited, Duration::from_secs(1));
    }

    #[test]
    fn a_lock_of_this_process_is_reported_at_once() {
        let (folder, _lock) = locked_by(&std::process::id().to_string());
        let taken = DataFolder::take_waiting(folder.path().into(), |_| panic!("it waits"));
        assert!(matches!(taken, Err(DataFolderError::InUse { .. })), "{taken:?}");
    }
}
