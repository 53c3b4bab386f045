//! The file `machine` of a data folder: whose the folder is.

use crate::folder_error::{DataFolderError, FORMAT, FORMAT_OF_SEVERAL};
use std::{fmt, io};
use yesquel_log::disk::{Disk, DiskFile as _};
use yesquel_model::{ClusterId, ClusterMembership, ServerId};

/// Name of the file.
pub(crate) const MACHINE: &str = "machine";
/// Its name while it is written.
pub(crate) const MACHINE_UNFINISHED: &str = "machine-unfinished";

/// A start of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineStart {
    /// Number of the start.
    pub incarnation: u64,
    /// Random number of the start, which a copy of the data folder does not have.
    pub nonce: u128,
}

/// Content of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineFile {
    pub(crate) membership: ClusterMembership,
    /// Number of the machine in the cluster.
    pub(crate) machine: u32,
    /// The groups, the lowest first, if there are several: the folders of others do not count. Empty:
    /// the one that has a folder.
    pub(crate) groups: Vec<ServerId>,
    /// The last start.
    pub(crate) start: MachineStart,
    /// A start that the directory may know already.
    pub(crate) next: Option<MachineStart>,
}

/// A machine of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineIdentity {
    /// The cluster.
    pub membership: ClusterMembership,
    /// Number of the machine.
    pub machine: u32,
    /// Its first group, which is the lowest one.
    pub group: ServerId,
    /// Its last start.
    pub start: MachineStart,
}

/// Returns random bytes.
pub(crate) fn random_bytes() -> io::Result<[u8; 16]> {
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

/// Parses a nonce, of 32 hexadecimal digits.
pub(crate) fn parse_nonce(digits: &str) -> Option<u128> {
    let is_hex = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u128::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

impl MachineStart {
    /// Returns a later start, with a fresh nonce.
    pub(crate) fn following(self) -> io::Result<MachineStart> {
        let nonce = u128::from_le_bytes(random_bytes()?);
        Ok(MachineStart { incarnation: self.incarnation.saturating_add(1), nonce })
    }
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
    /// Creates the first machine of a new cluster, which hosts this number of groups.
    pub(crate) fn of_new_cluster(home_group: ServerId, groups: u16) -> io::Result<MachineFile> {
        let cluster = ClusterId::from_random(random_bytes()?);
        let last = home_group.0.saturating_add(groups.max(1) - 1);
        let groups = if groups > 1 { (home_group.0..=last).map(ServerId).collect() } else { Vec::new() };
        let file = MachineFile::of_group(home_group, ClusterMembership { cluster, home_group })?;
        Ok(MachineFile { groups, ..file })
    }

    /// Creates the machine of a group. No other machine of the cluster hosts that group.
    pub(crate) fn of_group(group: ServerId, membership: ClusterMembership) -> io::Result<MachineFile> {
        let (machine, start, groups) = (u32::from(group.0) + 1, MachineStart::default(), Vec::new());
        MachineFile { membership, machine, groups, start, next: None }.next_start()
    }

    /// Returns the content for the next start.
    pub(crate) fn next_start(self) -> io::Result<MachineFile> {
        Ok(MachineFile { start: self.start.following()?, next: None, ..self })
    }

    /// Returns the machine, which has a group.
    pub(crate) fn identity(&self, group: ServerId) -> MachineIdentity {
        let MachineFile { membership, machine, start, .. } = *self;
        MachineIdentity { membership, machine, group, start }
    }

    fn parse(text: &str) -> Option<MachineFile> {
        let mut lines = text.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let format: u32 = value("format")?.parse().ok()?;
        let file = MachineFile {
            membership: ClusterMembership {
                cluster: value("cluster")?.parse().ok()?,
                home_group: ServerId(value("home-group")?.parse().ok()?),
            },
            machine: value("machine")?.parse().ok()?,
            start: MachineStart {
                incarnation: value("incarnation")?.parse().ok()?,
                nonce: parse_nonce(value("nonce")?)?,
            },
            groups: match format {
                FORMAT_OF_SEVERAL => several_groups(value("groups")?)?,
                _ => Vec::new(),
            },
            next: None,
        };
        let Some(line) = lines.next() else { return Some(file) };
        let incarnation = line.strip_prefix("next-incarnation ")?.parse().ok()?;
        let nonce = parse_nonce(lines.next()?.strip_prefix("next-nonce ")?)?;
        let next = Some(MachineStart { incarnation, nonce });
        lines.next().is_none().then_some(MachineFile { next, ..file })
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
            (Some(FORMAT | FORMAT_OF_SEVERAL), Some(file)) => Ok(Some(file)),
            (Some(format), _) if format > FORMAT_OF_SEVERAL => {
                Err(DataFolderError::OtherFormat { path, format })
            }
            _ => Err(DataFolderError::NoMachine { path }),
        }
    }

    /// Writes the file atomically.
    pub(crate) fn write(&self, disk: &impl Disk) -> Result<(), DataFolderError> {
        write_file(disk, MACHINE_UNFINISHED, MACHINE, self.to_string().as_bytes())
    }
}

/// Parses the numbers of several groups, which rise.
fn several_groups(text: &str) -> Option<Vec<ServerId>> {
    let groups: Option<Vec<ServerId>> =
        text.split(' ').map(|group| group.parse().ok().map(ServerId)).collect();
    groups.filter(|groups| groups.len() > 1 && groups.is_sorted_by(|group, next| group < next))
}

impl fmt::Display for MachineFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MachineFile { membership, machine, groups, start, next } = self;
        let MachineStart { incarnation, nonce } = start;
        let ClusterMembership { cluster, home_group } = membership;
        let format = if groups.is_empty() { FORMAT } else { FORMAT_OF_SEVERAL };
        writeln!(f, "format {format}\ncluster {cluster}\nhome-group {}\nmachine {machine}", home_group.0)?;
        writeln!(f, "incarnation {incarnation}\nnonce {nonce:032x}")?;
        if !groups.is_empty() {
            f.write_str("groups")?;
            groups.iter().try_for_each(|group| write!(f, " {}", group.0))?;
            writeln!(f)?;
        }
        match next {
            Some(MachineStart { incarnation, nonce }) => {
                writeln!(f, "next-incarnation {incarnation}\nnext-nonce {nonce:032x}")
            }
            None => Ok(()),
        }
    }
}

/// Writes a file under another name, syncs it, and renames it.
pub(crate) fn write_file(
    disk: &impl Disk,
    unfinished: &str,
    name: &str,
    content: &[u8],
) -> Result<(), DataFolderError> {
    write_created(disk, (unfinished, name), content, || disk.create(unfinished))
}

/// Like [`write_file`], for a file that only the owner of the folder may read.
pub(crate) fn write_private_file(
    disk: &impl Disk,
    unfinished: &str,
    name: &str,
    content: &[u8],
) -> Result<(), DataFolderError> {
    write_created(disk, (unfinished, name), content, || disk.create_private(unfinished))
}

fn write_created<D: Disk>(
    disk: &D,
    (unfinished, name): (&str, &str),
    content: &[u8],
    create: impl FnOnce() -> io::Result<D::File>,
) -> Result<(), DataFolderError> {
    let write = || {
        if disk.names()?.iter().any(|name| name == unfinished) {
            disk.delete(unfinished)?;
        }
        let mut file = create()?;
        file.write_at(0, content)?;
        file.sync()?;
        disk.rename(unfinished, name)
    };
    write().map_err(|error| DataFolderError::Io { path: disk.path().join(unfinished), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the text of a file with and without a start that was interrupted.
    fn check_text(file: &MachineFile) {
        let next = Some(file.start.following().unwrap());
        let starting = MachineFile { next, ..file.clone() };
        let shorter = file.to_string().len();
        for file in [file, &starting] {
            let text = file.to_string();
            assert_eq!(MachineFile::parse(&text).as_ref(), Some(file));
            for (at, _) in text.char_indices() {
                // Without the last end of a line it means the same, as do all lines but those of the next start.
                let is_whole = at + 1 >= text.len() || (shorter - 1..=shorter).contains(&at);
                assert_eq!(MachineFile::parse(&text[..at]).as_ref() == Some(file), at + 1 >= text.len());
                assert!(
                    is_whole || MachineFile::parse(&text[..at]).is_none() || file.groups.len() > 1,
                    "{at}"
                );
            }
            assert_eq!(MachineFile::parse(&format!("{text}more")), None);
        }
        let next = starting.clone().next_start().unwrap();
        assert_eq!((next.membership, next.start.incarnation, next.next), (file.membership, 2, None));
        assert_eq!(next.groups, file.groups);
        assert_ne!(next.start.nonce, file.start.nonce);
    }

    #[test]
    fn the_file_has_one_text() {
        let file = MachineFile::of_new_cluster(ServerId(3), 1).unwrap();
        assert_eq!((file.machine, file.start.incarnation), (4, 1));
        assert!(file.to_string().starts_with("format 2\n"));
        check_text(&file);
    }

    /// An earlier release would serve one group of the folder, so its format is another one.
    #[test]
    fn several_groups_are_another_format() {
        let file = MachineFile::of_new_cluster(ServerId(0), 3).unwrap();
        assert_eq!(file.groups, [0, 1, 2].map(ServerId));
        let text = file.to_string();
        assert!(text.starts_with("format 3\n") && text.ends_with("\ngroups 0 1 2\n"), "{text}");
        check_text(&file);
        for wrong in ["groups", "groups 0", "groups 1 0", "groups 1 1", "groups 0 65536"] {
            assert_eq!(MachineFile::parse(&text.replace("groups 0 1 2", wrong)), None, "{wrong}");
        }
    }
}
