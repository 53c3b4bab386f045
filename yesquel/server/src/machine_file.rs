//! The file `machine` of a data folder: whose the folder is.

use crate::folder_error::{DataFolderError, FORMAT};
use std::{fmt, io};
use yesquel_log::disk::{Disk, DiskFile as _};
use yesquel_model::{ClusterId, ClusterMembership, ServerId};

/// Name of the file.
pub(crate) const MACHINE: &str = "machine";
/// Its name while it is written.
pub(crate) const MACHINE_UNFINISHED: &str = "machine-unfinished";

/// Content of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MachineFile {
    pub(crate) membership: ClusterMembership,
    /// Number of the machine in the cluster.
    pub(crate) machine: u32,
    /// Number of the last start.
    pub(crate) incarnation: u64,
    /// Random number of the last start.
    pub(crate) nonce: u128,
}

/// Returns random bytes.
fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())? {
        16 => Ok(bytes),
        _ => Err(io::Error::other("the system has too few random numbers")),
    }
}

/// Returns the UUID of a new cluster.
pub(crate) fn new_cluster() -> ClusterId {
    // The kernel fails only before its random generator is ready, at boot. Then the clusters in
    // memory, which no other one ever meets, have one UUID.
    ClusterId::from_random(random_bytes().unwrap_or_default())
}

fn hex(digits: &str) -> Option<u128> {
    u128::from_str_radix(digits, 16).ok()
}

/// Prefix of the names of groups' folders.
pub(crate) const GROUP_PREFIX: &str = "group-";

/// Name of a group's folder.
pub(crate) fn group_folder(group: ServerId) -> String {
    format!("{GROUP_PREFIX}{:05}", group.0)
}

/// The group whose folder has this name.
pub(crate) fn group_of_folder(name: &str) -> Option<ServerId> {
    let group = ServerId(name.strip_prefix(GROUP_PREFIX)?.parse().ok()?);
    (group_folder(group) == name).then_some(group)
}

impl MachineFile {
    /// Creates the first machine of a new cluster.
    pub(crate) fn of_new_cluster(home_group: ServerId) -> io::Result<MachineFile> {
        let cluster = ClusterId::from_random(random_bytes()?);
        MachineFile::of_group(home_group, ClusterMembership { cluster, home_group })
    }

    /// Creates the machine of a group. No other machine of the cluster hosts that group.
    pub(crate) fn of_group(group: ServerId, membership: ClusterMembership) -> io::Result<MachineFile> {
        let machine = u32::from(group.0) + 1;
        MachineFile { membership, machine, incarnation: 0, nonce: 0 }.next_start()
    }

    /// Returns the content for the next start.
    pub(crate) fn next_start(self) -> io::Result<MachineFile> {
        let nonce = u128::from_le_bytes(random_bytes()?);
        Ok(MachineFile { incarnation: self.incarnation.saturating_add(1), nonce, ..self })
    }

    fn parse(text: &str) -> Option<MachineFile> {
        let mut lines = text.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        value("format")?;
        let file = MachineFile {
            membership: ClusterMembership {
                cluster: value("cluster")?.parse().ok()?,
                home_group: ServerId(value("home-group")?.parse().ok()?),
            },
            machine: value("machine")?.parse().ok()?,
            incarnation: value("incarnation")?.parse().ok()?,
            nonce: value("nonce").filter(|digits| digits.len() == 32).and_then(hex)?,
        };
        lines.next().is_none().then_some(file)
    }

    /// Reads the file; `None`: there is none.
    pub(crate) fn read(disk: &impl Disk) -> Result<Option<MachineFile>, DataFolderError> {
        let path = disk.path().join(MACHINE);
        let bytes = match disk.read(MACHINE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(DataFolderError::Io { path, error }),
            Ok(bytes) => bytes,
        };
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let format = text.lines().next().and_then(|line| line.strip_prefix("format ")?.parse().ok());
        match (format, MachineFile::parse(text)) {
            (Some(FORMAT), Some(file)) => Ok(Some(file)),
            (Some(format), _) if format > FORMAT => Err(DataFolderError::OtherFormat { path, format }),
            _ => Err(DataFolderError::NoMachine { path }),
        }
    }

    /// Writes the file atomically.
    pub(crate) fn write(&self, disk: &impl Disk) -> Result<(), DataFolderError> {
        write_file(disk, MACHINE_UNFINISHED, MACHINE, &self.to_string())
    }
}

impl fmt::Display for MachineFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MachineFile { membership, machine, incarnation, nonce } = self;
        let ClusterMembership { cluster, home_group } = membership;
        writeln!(f, "format {FORMAT}\ncluster {cluster}\nhome-group {}\nmachine {machine}", home_group.0)?;
        writeln!(f, "incarnation {incarnation}\nnonce {nonce:032x}")
    }
}

/// Writes a file under another name, syncs it, and renames it.
pub(crate) fn write_file(
    disk: &impl Disk,
    unfinished: &str,
    name: &str,
    text: &str,
) -> Result<(), DataFolderError> {
    let write = || {
        if disk.names()?.iter().any(|name| name == unfinished) {
            disk.delete(unfinished)?;
        }
        let mut file = disk.create(unfinished)?;
        file.write_at(0, text.as_bytes())?;
        file.sync()?;
        disk.rename(unfinished, name)
    };
    write().map_err(|error| DataFolderError::Io { path: disk.path().join(unfinished), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_one_text() {
        let file = MachineFile::of_new_cluster(ServerId(3)).unwrap();
        assert_eq!((file.machine, file.incarnation), (4, 1));
        let text = file.to_string();
        assert_eq!(MachineFile::parse(&text), Some(file));
        for (at, _) in text.char_indices() {
            assert_eq!(MachineFile::parse(&text[..at]).filter(|_| at + 1 < text.len()), None, "{at}");
        }
        assert_eq!(MachineFile::parse(&format!("{text}more")), None);
        let next = file.next_start().unwrap();
        assert_eq!((next.membership, next.incarnation), (file.membership, 2));
        assert_ne!(next.nonce, file.nonce);
    }
}
