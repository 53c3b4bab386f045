//! Start of a machine that the directory knows: a copy of its data folder is refused.
//! `docs/yesquel/cluster/directory.md` has the rules.

use crate::{
    Error,
    any_transport::AnyTransport,
    catalog::Catalog,
    client_number::client_number,
    directory::Directory,
    directory_starts::{EnteredStart, lacking},
    peers::{PeerAccess, socket_options},
    stop_flag::StopFlag,
};
use std::time::Duration;
use yesquel_client::Client;
use yesquel_model::ServerId;
use yesquel_secrets::{Credentials, Secrets};
use yesquel_server::{ClusterFiles, DataFolder, LogEnds, MachineIdentity, MachineStart};
use yesquel_transport::{Address, ConnectError, SocketTransport, block_on};
use yesquel_tree::Trees;
use yesquel_wire::status::{DirectoryStatus, MachineState, MachineStatus};

/// Pause between attempts to reach the home group.
const PAUSE: Duration = Duration::from_millis(200);

/// Adds what a data folder knows of its cluster: the other servers, and their credential. Returns
/// whether the folder has a copy of the directory.
pub(crate) fn add_stored(
    folder: &DataFolder,
    own: &[ServerId],
    peers: &mut PeerAccess,
) -> Result<bool, Error> {
    let files = folder.cluster_files();
    let secrets = peers.secrets.get();
    if secrets.peers.is_none()
        && let Some(stored) = stored_credentials(&files, secrets.peer_tls.is_some())?
    {
        peers.secrets.replace(|former| Ok(Secrets { peers: Some(stored), ..former.clone() }))?;
    }
    let Some(json) = files.directory()? else { return Ok(false) };
    let directory: DirectoryStatus = serde_json::from_slice(&json).map_err(|_| files.damaged_directory())?;
    let is_own = |machine: &MachineStatus, group: u16| machine.all_groups().any(|hosted| hosted == group);
    let gone = |group: u16| {
        let is_gone = |state| matches!(state, MachineState::Joining | MachineState::Removed);
        directory.machines.iter().any(|machine| is_own(machine, group) && is_gone(machine.state))
    };
    let machines = directory
        .machines
        .iter()
        .flat_map(|machine| machine.all_groups().map(|group| (group, &machine.address)).collect::<Vec<_>>());
    let groups = directory.groups.iter().map(|group| (group.group, &group.address));
    for (group, address) in machines.chain(groups).filter(|(group, _)| !gone(*group)) {
        let is_known = peers.servers.iter().any(|(known, _)| known.0 == group);
        let (group, address) = (ServerId(group), address.parse());
        if let (false, false, Ok(address)) = (is_known, own.contains(&group), address) {
            peers.servers.push((group, address));
        }
    }
    Ok(true)
}

/// Reads the credentials of the cluster's servers, which the machine got when it joined.
pub(crate) fn stored_credentials(
    files: &ClusterFiles,
    encrypts_to_peers: bool,
) -> Result<Option<Credentials>, Error> {
    let Some((path, is_encrypted)) = files.peer_credential()? else { return Ok(None) };
    if is_encrypted && !encrypts_to_peers {
        return Err(Error::ExposedCredential);
    }
    Ok(Some(Credentials::read(&path)?))
}

/// What the directory knows of a machine that starts.
#[derive(Debug, Clone)]
pub(crate) struct EnteredMachine {
    pub(crate) start: MachineStart,
    /// Records of its groups' logs that were on disk some seconds before it ended.
    pub(crate) log_ends: Vec<(ServerId, u64)>,
}

/// A machine that starts, and its way to the home group.
pub(crate) struct CheckedStart {
    identity: MachineIdentity,
    peers: PeerAccess,
    trees: Trees<AnyTransport>,
    ending: StopFlag,
}

impl CheckedStart {
    pub(crate) fn new(
        identity: MachineIdentity,
        peers: &PeerAccess,
        ending: &StopFlag,
    ) -> Result<CheckedStart, Error> {
        let client = client_number();
        let groups = peers.servers.iter().map(|(group, address)| (*group, address));
        let options = socket_options(peers, None);
        let transport = SocketTransport::to_groups(groups, client, identity.membership, options)?;
        let trees = Trees::new(Client::new(AnyTransport::Sockets(transport), client));
        Ok(CheckedStart { identity, peers: peers.clone(), trees, ending: ending.clone() })
    }

    /// Asks the home group until it answers: the others start when it serves.
    fn until_answered<T>(&self, mut ask: impl FnMut(Directory<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let _guard = self.ending.cancel_calls();
        let (membership, mut has_told) = (self.identity.membership, false);
        let secrets = self.peers.secrets.get();
        loop {
            let catalog = Catalog::new(&self.trees, membership.home_group);
            match ask(Directory { catalog, cluster: membership.cluster, credentials: secrets.peers.as_ref() })
            {
                Ok(answer) => return Ok(answer),
                Err(error) if self.ending.is_set() => return Err(error),
                Err(error) => {
                    if let Some(error) = self.final_failure() {
                        return Err(error.into());
                    }
                    if !std::mem::replace(&mut has_told, true) {
                        let home_group = membership.home_group.0;
                        tracing::warn!(home_group, %error, "waiting for the home group, which has the directory");
                    }
                    self.ending.pause(PAUSE);
                }
            }
        }
    }

    /// Returns why the home group cannot be connected to, if a later attempt fails in the same way.
    fn final_failure(&self) -> Option<ConnectError> {
        let membership = self.identity.membership;
        let (_, address) = self.peers.servers.iter().find(|(group, _)| *group == membership.home_group)?;
        self.connect(address).err().filter(ConnectError::is_final)
    }

    fn connect(&self, address: &Address) -> Result<SocketTransport, ConnectError> {
        let options = socket_options(&self.peers, Some(self.identity.membership.cluster));
        SocketTransport::connect(std::slice::from_ref(address), client_number(), options)
    }

    /// Returns what the directory knows. Fails if the folder is a copy, the machine was removed, or it
    /// answers at its address.
    pub(crate) fn entered(&self, folder: &DataFolder) -> Result<Option<EnteredMachine>, Error> {
        let (machine, known) = (self.identity.machine, folder.known_starts()?);
        match self.until_answered(|directory| block_on(directory.entered(machine, &known)))? {
            // A machine of `--peer` enters itself later.
            EnteredStart::Absent => Ok(None),
            EnteredStart::Removed => Err(Error::MachineRemoved { machine }),
            EnteredStart::Other { incarnation } => {
                let folder = folder.path().to_owned();
                Err(Error::CopiedFolder { folder, machine, incarnation })
            }
            EnteredStart::Known { start, address, log_ends } => match address.parse() {
                Ok(address) if start.incarnation > 0 && self.answers(&address) => {
                    Err(Error::MachineRuns { machine, address })
                }
                _ => Ok(Some(EnteredMachine { start, log_ends })),
            },
        }
    }

    /// Whether this machine answers at an address.
    fn answers(&self, address: &Address) -> bool {
        let connection = self.connect(address);
        connection.is_ok_and(|connection| connection.servers().next() == Some(self.identity.group))
    }

    /// Adds groups to the folder until it has so many, with numbers from the directory.
    pub(crate) fn grow(&self, folder: &DataFolder, count: usize) -> Result<(), Error> {
        let (machine, own) = (self.identity.machine, folder.groups()?);
        let known: Vec<ServerId> = self.peers.servers.iter().map(|(group, _)| *group).collect();
        let grow = |directory: Directory<'_>| Ok(block_on(directory.grow(machine, &own, (count, &known)))?);
        let grown = self.until_answered(grow)?;
        let new = lacking(folder.path(), &own, &grown)?;
        if !new.is_empty() {
            folder.add_groups(&new)?;
        }
        new.iter().for_each(|group| tracing::info!(group = group.0, "the machine hosts a further group"));
        Ok(())
    }

    /// Enters the start after the one that the directory knows, of a machine with these logs.
    pub(crate) fn enter(
        &self,
        folder: &mut DataFolder,
        before: MachineStart,
        address: Option<&str>,
        log_ends: &LogEnds,
    ) -> Result<MachineStart, Error> {
        let (machine, start) = (self.identity.machine, folder.propose_start(before)?);
        let enter = |directory: Directory<'_>| {
            block_on(directory.enter_start(machine, before, start, (address, log_ends)))
        };
        if self.until_answered(enter)? {
            return Ok(start);
        }
        let (folder, incarnation) = (folder.path().to_owned(), start.incarnation);
        Err(Error::CopiedFolder { folder, machine, incarnation })
    }
}
