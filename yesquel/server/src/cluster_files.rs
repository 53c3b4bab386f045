//! Files of a data folder about the cluster: the last copy of the directory, the credential of
//! servers, and a join in progress.

use crate::{
    folder_error::DataFolderError,
    machine_file::{
        MachineFile, MachineIdentity, group_folder, group_of_folder, parse_nonce, random_bytes, write_file,
        write_private_file,
    },
};
use std::{fmt, io, path::PathBuf};
use yesquel_log::disk::{Disk, DiskTree, Folder};
use yesquel_model::ServerId;

const DIRECTORY: &str = "directory";
const DIRECTORY_UNFINISHED: &str = "directory-unfinished";
const PEER_CREDENTIAL: &str = "peer-credential";
/// The same of a cluster that encrypts: it must not be presented without encryption.
const ENCRYPTED_PEER_CREDENTIAL: &str = "peer-credential-encrypted";
const PEER_CREDENTIALS: [&str; 2] = [PEER_CREDENTIAL, ENCRYPTED_PEER_CREDENTIAL];
const PEER_CREDENTIAL_UNFINISHED: &str = "peer-credential-unfinished";
const JOINING: &str = "joining";
const JOINING_UNFINISHED: &str = "joining-unfinished";

/// The credential of a cluster's servers, as a machine got it when it joined.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredCredential {
    /// The credential.
    pub credential: Box<[u8]>,
    /// Whether the cluster encrypts, so that the credential must not be presented without
    /// encryption.
    pub is_encrypted: bool,
}

// Logs and panics must not show it.
impl fmt::Debug for StoredCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredCredential").field("is_encrypted", &self.is_encrypted).finish_non_exhaustive()
    }
}

/// The files. A machine that joins writes them before `machine`, which makes the folder that of a
/// member.
#[derive(Debug, Clone)]
pub struct ClusterFiles<D = Folder>(D);

impl ClusterFiles {
    /// Names of the files, and of those that are being written.
    pub(crate) const NAMES: [&str; 7] = [
        DIRECTORY,
        DIRECTORY_UNFINISHED,
        PEER_CREDENTIAL,
        ENCRYPTED_PEER_CREDENTIAL,
        PEER_CREDENTIAL_UNFINISHED,
        JOINING,
        JOINING_UNFINISHED,
    ];
}

impl<D: Disk> ClusterFiles<D> {
    pub(crate) fn new(disk: D) -> ClusterFiles<D> {
        ClusterFiles(disk)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DataFolderError> {
        match self.0.read(name) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DataFolderError::Io { path: self.0.path().join(name), error }),
        }
    }

    /// Reads the last copy of the directory: JSON.
    pub fn directory(&self) -> Result<Option<Vec<u8>>, DataFolderError> {
        self.read(DIRECTORY)
    }

    /// Returns the error for a copy of the directory that is no JSON.
    pub fn damaged_directory(&self) -> DataFolderError {
        DataFolderError::DamagedFile { path: self.0.path().join(DIRECTORY) }
    }

    /// Writes a copy of the directory.
    pub fn store_directory(&self, json: &[u8]) -> Result<(), DataFolderError> {
        write_file(&self.0, DIRECTORY_UNFINISHED, DIRECTORY, json)
    }

    /// Returns the file with the credentials of the cluster's servers, if there is one, and whether the
    /// cluster encrypts.
    pub fn peer_credential(&self) -> Result<Option<(PathBuf, bool)>, DataFolderError> {
        let path = self.0.path();
        let names = self.0.names().map_err(|error| DataFolderError::Io { path: path.to_owned(), error })?;
        let [plain, encrypted] = PEER_CREDENTIALS.map(|name| names.iter().any(|known| known == name));
        let of = |name: &str| path.join(name);
        match (plain, encrypted) {
            (false, false) => Ok(None),
            (true, false) => Ok(Some((of(PEER_CREDENTIAL), false))),
            (false, true) => Ok(Some((of(ENCRYPTED_PEER_CREDENTIAL), true))),
            (true, true) => {
                Err(DataFolderError::TwoPeerCredentials { path: path.to_owned(), names: PEER_CREDENTIALS })
            }
        }
    }

    /// Writes the credential of the cluster's servers, for the owner of the folder only.
    pub fn store_peer_credential(&self, stored: &StoredCredential) -> Result<(), DataFolderError> {
        let [plain, encrypted] = PEER_CREDENTIALS;
        let (name, other) = if stored.is_encrypted { (encrypted, plain) } else { (plain, encrypted) };
        write_private_file(&self.0, PEER_CREDENTIAL_UNFINISHED, name, &stored.credential)?;
        // Of a join that was interrupted before the cluster changed its encryption.
        self.delete(other)
    }

    /// Returns the number by which the cluster recognizes the folder if its join was interrupted;
    /// `None`: no join has begun.
    pub fn joining(&self) -> Result<Option<u128>, DataFolderError> {
        let Some(text) = self.read(JOINING)? else { return Ok(None) };
        let nonce = std::str::from_utf8(&text).ok().and_then(|text| parse_nonce(text.strip_suffix('\n')?));
        nonce.map(Some).ok_or_else(|| DataFolderError::DamagedFile { path: self.0.path().join(JOINING) })
    }

    /// Begins a join, or continues one. Returns the number of the folder.
    pub fn begin_join(&self) -> Result<u128, DataFolderError> {
        if let Some(nonce) = self.joining()? {
            return Ok(nonce);
        }
        let path = self.0.path().join(JOINING);
        let random = random_bytes().map_err(|error| DataFolderError::Io { path, error })?;
        let nonce = u128::from_le_bytes(random);
        write_file(&self.0, JOINING_UNFINISHED, JOINING, format!("{nonce:032x}\n").as_bytes())?;
        Ok(nonce)
    }

    /// Ends a join: the folder is that of a member.
    pub fn end_join(&self) -> Result<(), DataFolderError> {
        self.delete(JOINING)
    }

    /// Deletes a file, if it exists.
    fn delete(&self, name: &str) -> Result<(), DataFolderError> {
        match self.0.delete(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DataFolderError::Io { path: self.0.path().join(name), error })
            }
            _ => Ok(()),
        }
    }
}

/// Creates the folders of the groups of a new machine, and then states whose they are. Deletes those of
/// other groups, which are empty: a start that was interrupted has left them.
pub(crate) fn create_machine(
    disk: &impl DiskTree,
    file: &MachineFile,
    groups: &[ServerId],
) -> Result<(), DataFolderError> {
    let failed = |error| DataFolderError::Io { path: disk.path().to_owned(), error };
    for name in disk.names().map_err(failed)? {
        if group_of_folder(&name).is_some_and(|group| !groups.contains(&group)) {
            disk.delete_folder(&name).map_err(failed)?;
        }
    }
    create_groups(disk, file, groups)
}

/// Creates the folders of groups, and then states whose they are.
pub(crate) fn create_groups(
    disk: &impl DiskTree,
    file: &MachineFile,
    groups: &[ServerId],
) -> Result<(), DataFolderError> {
    for group in groups {
        let created = disk.create_folder(&group_folder(*group));
        created.map_err(|error| DataFolderError::Io { path: disk.path().to_owned(), error })?;
    }
    file.write(disk)
}

/// Makes a new folder that of a machine which has joined a cluster.
pub(crate) fn finish_join<D: DiskTree + Clone>(
    disk: &D,
    identity: MachineIdentity,
    peer_credential: Option<&StoredCredential>,
    directory: &[u8],
) -> Result<(), DataFolderError> {
    let files = ClusterFiles::new(disk.clone());
    // Before the folder is that of a member.
    if let Some(credential) = peer_credential {
        files.store_peer_credential(credential)?;
    }
    files.store_directory(directory)?;
    let MachineIdentity { membership, machine, group, start } = identity;
    let file = MachineFile { membership, machine, groups: Vec::new(), start, next: None };
    create_machine(disk, &file, &[group])?;
    files.end_join()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_file::MachineStart;
    use yesquel_model::{ClusterId, ClusterMembership};
    use yesquel_seeds::Random;
    use yesquel_simulation::disk::SimulatedDisk;

    fn secret() -> StoredCredential {
        StoredCredential { credential: b"secret"[..].into(), is_encrypted: true }
    }

    fn join(disk: &SimulatedDisk) -> Result<u128, DataFolderError> {
        let nonce = ClusterFiles::new(disk.clone()).begin_join()?;
        let start = MachineStart { incarnation: 0, nonce };
        let membership = ClusterMembership { cluster: ClusterId([3; 16]), home_group: ServerId(0) };
        let identity = MachineIdentity { membership, machine: 5, group: ServerId(4), start };
        finish_join(disk, identity, Some(&secret()), b"{}")?;
        Ok(nonce)
    }

    /// Joins with a power failure in the operation after so many, and then again. Returns whether the
    /// power failed.
    fn interrupted(operations: u64, seed: u64) -> bool {
        let (disk, mut random) = (SimulatedDisk::new(), Random::new(seed));
        disk.lose_power_after(operations, seed);
        let is_ended = join(&disk).is_ok();
        let has_failed = disk.power_is_lost();
        assert!(is_ended || has_failed);
        disk.repair();
        disk.crash(&mut random);
        let files = ClusterFiles::new(disk.clone());
        let begun = files.joining().unwrap();
        if let Some(machine) = MachineFile::read(&disk).unwrap() {
            // It is that of a member, and has all that it needs.
            assert!(begun.is_none_or(|nonce| nonce == machine.start.nonce));
            files.end_join().unwrap();
        } else {
            // The cluster recognizes the folder.
            let nonce = join(&disk).unwrap();
            assert!(begun.is_none_or(|begun| begun == nonce));
        }
        assert_eq!(files.joining().unwrap(), None);
        let (path, is_encrypted) = files.peer_credential().unwrap().unwrap();
        assert!(is_encrypted && path.ends_with(ENCRYPTED_PEER_CREDENTIAL));
        let stored = files.read(ENCRYPTED_PEER_CREDENTIAL).unwrap();
        assert_eq!(stored.as_deref(), Some(&secret().credential[..]));
        assert_eq!(files.directory().unwrap().as_deref(), Some(&b"{}"[..]));
        assert_eq!(MachineFile::read(&disk).unwrap().unwrap().machine, 5);
        has_failed
    }

    #[test]
    fn two_files_of_credentials_are_refused_until_one_is_written_anew() {
        let disk = SimulatedDisk::new();
        let files = ClusterFiles::new(disk.clone());
        assert_eq!(files.peer_credential().unwrap(), None);
        files.store_peer_credential(&secret()).unwrap();
        write_private_file(&disk, PEER_CREDENTIAL_UNFINISHED, PEER_CREDENTIAL, b"other").unwrap();
        let refused = files.peer_credential().unwrap_err().to_string();
        assert!(PEER_CREDENTIALS.iter().all(|name| refused.contains(name)), "{refused}");
        files.store_peer_credential(&StoredCredential { is_encrypted: false, ..secret() }).unwrap();
        assert!(files.peer_credential().unwrap().unwrap().0.ends_with(PEER_CREDENTIAL));
    }

    #[test]
    fn a_join_that_loses_power_at_any_operation_continues() {
        yesquel_seeds::check_seeds(20, |seed| {
            // Ends when no operation is left for the power failure.
            let mut operations = 0;
            while interrupted(operations, seed) {
                operations += 1;
            }
            assert!(operations > 15, "{operations}");
        });
    }

    #[test]
    fn damaged_files_are_reported() {
        let disk = SimulatedDisk::new();
        let files = ClusterFiles::new(disk.clone());
        assert!(files.joining().unwrap().is_none() && files.directory().unwrap().is_none());
        disk.tamper(JOINING, |bytes| bytes.extend_from_slice(b"12\n"));
        let error = files.joining().unwrap_err().to_string();
        assert!(error.contains("joining") && error.contains("damaged"), "{error}");
    }
}
