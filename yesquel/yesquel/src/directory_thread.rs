//! Thread of a server that keeps its copy of the directory and performs commands for machines.

use crate::{
    Error,
    any_transport::AnyTransport,
    catalog::Catalog,
    directory::{Directory, DirectoryError, Joiner, MachineNumbers},
    directory_proofs::RenewedProofs,
    fatal::FatalError,
    name_copier::NameCopier,
    peers::Peers,
    stop_flag::StopFlag,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use yesquel_embedded::EmbeddedServer;
use yesquel_model::ServerId;
use yesquel_secrets::{Credentials, PresentSecrets, Secrets};
use yesquel_server::{ClusterFiles, Core, MachineIdentity, is_authentic, issue_token, token_digest};
use yesquel_transport::{Address, block_on};
use yesquel_tree::Trees;
use yesquel_wire::{
    JoinToken, Reply, Request,
    machines::{JoinRequest, JoinedMachine, MachineCommand, ManagementRefusal, ManagementReply},
    status::{DirectoryStatus, MachineState, MachineStatus},
};

/// Interval in which the thread looks for a later version of the directory.
const POLL: Duration = Duration::from_millis(100);
/// Interval in which the directory is read though no server has reported a later version: the one
/// that made it may have died.
const READ_EVERY: Duration = Duration::from_secs(10);
/// The same at the machine of the home group, which reads its own memory.
const READ_EVERY_AT_HOME: Duration = Duration::from_secs(1);
/// Pause after a failed read.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Longest time for which a token is valid, in milliseconds: 30 days.
const EXPIRES_MS_MAX: u64 = 30 * 86_400_000;

/// What the thread knows of its server.
#[derive(Debug)]
pub(crate) struct DirectoryOptions {
    /// Where others reach the server; `None`: they do not.
    pub(crate) address: Option<String>,
    pub(crate) secrets: Arc<PresentSecrets>,
    /// Files of its data folder.
    pub(crate) files: Option<ClusterFiles>,
    /// Ends the server.
    pub(crate) fatal: FatalError,
}

pub(crate) struct DirectoryThread {
    /// The groups of this machine.
    groups: Arc<[EmbeddedServer]>,
    /// The first one, which takes the commands.
    first: EmbeddedServer,
    /// Learns where the groups of other machines are.
    transport: AnyTransport,
    identity: MachineIdentity,
    trees: Trees<AnyTransport>,
    peers: Arc<Peers>,
    options: DirectoryOptions,
    /// `None`: this machine has the names.
    names: Option<NameCopier>,
    /// When to read the directory; `None`: when another server has a later version.
    read_at: Option<Instant>,
    has_failed: bool,
    /// Log records of each group on disk when that was noted last.
    log_ends: Vec<(ServerId, u64)>,
    /// The secrets with which the home group has proved the entries last, and the version of the
    /// directory then; `None`: it has not, or this is another group.
    proved: Option<(Arc<Secrets>, u64)>,
    /// Machines whose entries had no proof by an accepted credential at the last read.
    unproved: usize,
    /// Version and machines of the copy in the data folder.
    stored: (u64, Vec<MachineStatus>),
}

impl DirectoryThread {
    /// `groups` are those of this machine, `first` comes first.
    pub(crate) fn new(
        (groups, first, transport): (Arc<[EmbeddedServer]>, EmbeddedServer, AnyTransport),
        trees: Trees<AnyTransport>,
        peers: Arc<Peers>,
        options: DirectoryOptions,
    ) -> DirectoryThread {
        let identity = first.core().identity();
        // A cluster without a directory has nothing to read.
        let json = options.files.as_ref().and_then(|files| files.directory().ok().flatten());
        let read_at = json.is_some().then(Instant::now);
        let mut stored = Default::default();
        if let Some(directory) = json.and_then(|json| serde_json::from_slice::<DirectoryStatus>(&json).ok()) {
            stored = (directory.version, directory.machines.clone());
            // Clients that ask before it is read, or while the home group is down, get this copy.
            groups.iter().for_each(|group| group.core().install_directory(directory.clone()));
        }
        let mut own: Vec<ServerId> = groups.iter().map(EmbeddedServer::server).collect();
        // The first one speaks for the machine.
        own.sort_by_key(|group| *group != first.server());
        let names = NameCopier::new(identity.membership.home_group, &own);
        DirectoryThread {
            groups,
            first,
            transport,
            identity,
            trees,
            peers,
            options,
            names,
            read_at,
            has_failed: false,
            log_ends: Vec::new(),
            proved: None,
            unproved: 0,
            stored,
        }
    }

    fn core(&self) -> &Core {
        self.first.core()
    }

    /// The directory, by the secrets that are in force.
    fn directory<'a>(&'a self, secrets: &'a Secrets) -> Directory<'a> {
        let membership = self.identity.membership;
        let catalog = Catalog::new(&self.trees, membership.home_group);
        Directory { catalog, cluster: membership.cluster, credentials: secrets.peers.as_ref() }
    }

    /// Runs until the server ends.
    pub(crate) fn run(mut self, ending: &StopFlag) {
        // A call to the home group ends early when the server stops.
        let _guard = ending.cancel_calls();
        while !ending.is_set() {
            let commands = self.core().wait_for_commands(POLL);
            if ending.is_set() {
                return;
            }
            let now = Instant::now();
            let is_due = self.read_at.is_some_and(|at| at <= now) || self.must_renew_proofs();
            // After a failure only when the pause is over.
            if is_due || (!self.has_failed && self.core().is_directory_outdated()) {
                self.refresh_or_log();
            }
            if let Some(names) = &mut self.names {
                names.copy_if_due(&self.trees);
            }
            for command in commands {
                let reply = self.perform(&command.request);
                self.core().answer_command(&command, &encode_reply(&reply));
            }
        }
    }

    /// Whether the secrets have changed, and no attempt to prove the entries with them has failed.
    fn must_renew_proofs(&self) -> bool {
        let secrets = self.options.secrets.get();
        !self.has_failed && self.proved.as_ref().is_some_and(|(with, _)| !Arc::ptr_eq(with, &secrets))
    }

    fn refresh_or_log(&mut self) {
        match self.refresh() {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(%error, "the directory of the cluster cannot be read");
                }
                self.read_at = Some(Instant::now() + AGAIN_AFTER);
            }
        }
    }

    /// Reads the directory, and enters this machine if its entry is missing or old.
    fn refresh(&mut self) -> Result<(), Error> {
        let (secrets, is_home) = (self.options.secrets.get(), self.is_home());
        let (mut directory, mut unproved) = block_on(self.directory(&secrets).read())?;
        if is_home && self.renew_proofs(&secrets, directory.version)? {
            (directory, unproved) = block_on(self.directory(&secrets).read())?;
        }
        if directory.version > 0 && self.must_register(&directory) {
            let address = self.options.address.clone().unwrap_or_default();
            block_on(self.directory(&secrets).register(&self.identity, &self.own_groups(), &address))?;
            (directory, unproved) = block_on(self.directory(&secrets).read())?;
        }
        self.note_unproved(unproved);
        let read_every = if is_home { READ_EVERY_AT_HOME } else { READ_EVERY };
        self.read_at = (directory.version > 0).then(|| Instant::now() + read_every);
        self.check_own(&directory);
        self.note_log_ends(&directory)?;
        self.install(directory)
    }

    /// Proves the entries with the first credential that another accepted one has proved: once after each
    /// reload, and during a rotation when the directory has changed, because other machines may prove
    /// entries with the former credential until they have reloaded. An entry that only a removed
    /// credential proves is not renewed: a stolen credential may have proved it. Returns whether an entry
    /// has changed.
    fn renew_proofs(&mut self, secrets: &Arc<Secrets>, version: u64) -> Result<bool, Error> {
        let credentials = secrets.peers.as_ref().map_or(0, Credentials::count);
        let former = self.proved.replace((Arc::clone(secrets), version));
        let is_reloaded = former.as_ref().is_none_or(|(with, _)| !Arc::ptr_eq(with, secrets));
        let has_changed = former.as_ref().is_none_or(|(_, before)| *before != version);
        if credentials == 0 || (!is_reloaded && (credentials == 1 || !has_changed)) {
            return Ok(false);
        }
        let proved = block_on(self.directory(secrets).renew_proofs());
        if proved.is_err() {
            self.proved = former;
        }
        let RenewedProofs { entries, renewed, unproved } = proved?;
        if renewed > 0 || is_reloaded {
            tracing::info!(
                entries,
                renewed,
                unproved,
                "the first server credential proves the entries of the directory"
            );
        }
        Ok(renewed > 0)
    }

    /// Warns once when entries of machines count as absent.
    fn note_unproved(&mut self, unproved: usize) {
        if unproved > self.unproved {
            tracing::warn!(
                entries = unproved,
                "no accepted server credential proves entries of machines in the directory: they count as absent"
            );
        }
        self.unproved = unproved;
    }

    fn is_home(&self) -> bool {
        self.identity.group == self.identity.membership.home_group
    }

    /// The numbers of this machine's groups.
    fn own_groups(&self) -> Vec<ServerId> {
        self.groups.iter().map(EmbeddedServer::server).collect()
    }

    /// Notes the ends of the logs, by which an older copy of the folder is recognized.
    fn note_log_ends(&mut self, directory: &DirectoryStatus) -> Result<(), Error> {
        let MachineIdentity { machine, group, membership, start } = self.identity;
        let is_entered = directory.machines.iter().any(|entry| {
            let is_current = entry.state == MachineState::Serving && entry.incarnation == start.incarnation;
            entry.machine == machine && is_current
        });
        let log_ends = self.groups.iter().map(|group| (group.server(), group.core().synced().0));
        let log_ends: Vec<(ServerId, u64)> = log_ends.collect();
        // The home group's machine starts without its own directory.
        if group == membership.home_group || !is_entered || log_ends == self.log_ends {
            return Ok(());
        }
        block_on(self.directory(&self.options.secrets.get()).note_log_ends(&log_ends))?;
        self.log_ends = log_ends;
        Ok(())
    }

    /// Whether the entry of this machine is missing or older than the machine.
    fn must_register(&self, directory: &DirectoryStatus) -> bool {
        let own = directory.machines.iter().find(|entry| entry.machine == self.identity.machine);
        let Some(own) = own else { return true };
        let has_moved = self.options.address.as_ref().is_some_and(|address| *address != own.address);
        let incarnation = self.identity.start.incarnation;
        let has_other_groups = !own.all_groups().map(ServerId).eq(self.own_groups());
        own.state != MachineState::Removed
            && own.incarnation <= incarnation
            && (has_moved
                || has_other_groups
                || own.incarnation < incarnation
                || own.state == MachineState::Joining)
    }

    /// Ends the server if its machine was removed, or has been started again from a copy.
    fn check_own(&self, directory: &DirectoryStatus) {
        let machine = self.identity.machine;
        let Some(own) = directory.machines.iter().find(|entry| entry.machine == machine) else { return };
        if own.state == MachineState::Removed {
            self.options.fatal.set(Error::MachineRemoved { machine });
        } else if own.incarnation > self.identity.start.incarnation {
            let incarnation = own.incarnation;
            self.options.fatal.set(Error::StartedAgain { machine, incarnation });
        }
    }

    /// Uses a copy of the directory: tells clients, reports to the machines in it, and stores it.
    fn install(&mut self, directory: DirectoryStatus) -> Result<(), Error> {
        self.groups.iter().for_each(|group| group.core().install_directory(directory.clone()));
        let own = self.identity.machine;
        for machine in directory.machines.iter().filter(|machine| machine.machine != own) {
            let groups: Vec<ServerId> = machine.all_groups().map(ServerId).collect();
            match (machine.state, machine.address.parse::<Address>()) {
                (MachineState::Serving, Ok(address)) => {
                    self.peers.add(&groups, &address)?;
                    groups.iter().for_each(|group| self.transport.learn(*group, &address));
                }
                (MachineState::Removed, _) => self.peers.remove(ServerId(machine.group)),
                _ => {}
            }
        }
        let peers = self.peers.count();
        for group in &*self.groups {
            if peers > 0 {
                group.with_engine(|engine| engine.raise_grace(crate::peers::GRACE_MS));
            }
            group.core().set_peers(peers);
        }
        let version = (directory.version, directory.machines);
        if self.stored != version
            && let Some(files) = &self.options.files
        {
            // With the groups that are known without it.
            files.store_directory(&serde_json::to_vec(&self.core().directory()).unwrap_or_default())?;
            self.stored = version;
        }
        Ok(())
    }

    /// Performs a command.
    fn perform(&mut self, request: &[u8]) -> ManagementReply {
        let done = match Request::decode(request) {
            Ok(Request::Join { request }) => match serde_json::from_slice(request) {
                Ok(request) => self.join(&request),
                Err(_) => Err(ManagementRefusal::Unknown.into()),
            },
            Ok(Request::Manage { command }) => match serde_json::from_slice(command) {
                Ok(MachineCommand::Add { expires_in_ms }) => self.add(expires_in_ms),
                Ok(MachineCommand::Remove { machine }) => self.remove(machine),
                Err(_) => Err(ManagementRefusal::Unknown.into()),
            },
            _ => Err(ManagementRefusal::Unknown.into()),
        };
        done.unwrap_or_else(|error| {
            ManagementReply::Refused(match error {
                DirectoryError::Refused(refusal) => refusal,
                DirectoryError::Failed(error) => ManagementRefusal::Unavailable { why: error.to_string() },
            })
        })
    }

    fn add(&mut self, expires_in_ms: u64) -> Result<ManagementReply, DirectoryError> {
        let now_ms = self.core().wall_ms();
        let expires_ms = now_ms.saturating_add(expires_in_ms.min(EXPIRES_MS_MAX));
        let secrets = self.options.secrets.get();
        let is_encrypted = secrets.tls.is_some();
        if is_encrypted && secrets.peers.is_some() && secrets.peer_tls.is_none() {
            // It would connect to the new machine, and present the credential.
            return Err(ManagementRefusal::NoPeerEncryption.into());
        }
        let cluster = self.identity.membership.cluster;
        let token = issue_token(cluster, is_encrypted, expires_ms, secrets.peers.as_ref());
        let token = token.map_err(|error| Error::Internal(format!("no random numbers: {error}")))?;
        block_on(self.directory(&secrets).add_token(&token_digest(&token), expires_ms, now_ms))?;
        // The directory exists now: this machine enters itself.
        self.refresh()?;
        Ok(ManagementReply::Token(token.to_string()))
    }

    fn join(&mut self, request: &JoinRequest) -> Result<ManagementReply, DirectoryError> {
        let token: Option<JoinToken> = request.token.parse().ok();
        let folder = u128::from_str_radix(&request.nonce, 16).ok();
        let address = request.address.parse::<Address>().ok();
        let (Some(token), Some(folder), Some(_)) = (token, folder, address) else {
            return Err(ManagementRefusal::Unknown.into());
        };
        let membership = self.identity.membership;
        let secrets = self.options.secrets.get();
        if token.cluster != membership.cluster || !is_authentic(&token, secrets.peers.as_ref()) {
            return Err(ManagementRefusal::UnknownToken.into());
        }
        let known: Vec<ServerId> =
            self.core().directory().groups.iter().map(|known| ServerId(known.group)).collect();
        let MachineNumbers { machine, group } = block_on(self.directory(&secrets).join(Joiner {
            digest: token_digest(&token),
            expires_ms: token.expires_ms,
            folder,
            address: &request.address,
            known: &known,
            now_ms: self.core().wall_ms(),
        }))?;
        self.refresh()?;
        let to_hex =
            |peers: &Credentials| peers.to_lines().iter().map(|byte| format!("{byte:02x}")).collect();
        tracing::info!(machine, group = group.0, address = request.address, "a machine joins the cluster");
        Ok(ManagementReply::Joined(Box::new(JoinedMachine {
            cluster: membership.cluster.to_string(),
            home_group: membership.home_group.0,
            machine,
            group: group.0,
            peer_credential: secrets.peers.as_ref().map(to_hex),
            directory: self.core().directory(),
        })))
    }

    fn remove(&mut self, machine: u32) -> Result<ManagementReply, DirectoryError> {
        block_on(self.directory(&self.options.secrets.get()).remove(machine))?;
        tracing::info!(machine, "a machine was removed from the cluster");
        // After the reply: the machine may be this one.
        self.read_at = Some(Instant::now());
        self.core().wake_commands();
        Ok(ManagementReply::Removed)
    }
}

fn encode_reply(reply: &ManagementReply) -> Vec<u8> {
    // Numbers and strings always convert to JSON.
    let json = serde_json::to_vec(reply).unwrap_or_default();
    let mut bytes = Vec::new();
    Reply::Report(&json).write(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ListenOptions, PeerOptions, Server, Store,
        client_number::client_number,
        directory_entries::{MachineEntry, machine_key},
    };
    use std::{fs, thread};
    use yesquel_client::Client;
    use yesquel_engine::EngineSettings;
    use yesquel_secrets::SecretFiles;
    use yesquel_server::LogOptions;
    use yesquel_transport::SocketOptions;
    use yesquel_wire::greeting::Role;

    /// A stolen credential of servers may have proved an entry before it was removed.
    #[test]
    fn an_entry_that_a_removed_credential_proves_is_not_renewed() {
        let place = tempfile::tempdir().unwrap();
        let (file, address) = (place.path().join("servers"), Address::Unix(place.path().join("socket")));
        let files = SecretFiles { peer_credentials: Some(file.clone()), ..SecretFiles::default() };
        let [old, new] = [b"old", b"new"].map(Credentials::from);
        let peers = PeerOptions { credential: Some(old.clone()), ..PeerOptions::default() };
        let listen = ListenOptions { addresses: vec![address.clone()], peers, ..ListenOptions::default() };
        let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
        let credential = b"old"[..].into();
        let options =
            SocketOptions { credential, role: Role::Operator, lanes: 0, ..SocketOptions::default() };
        // The directory exists, and this machine has entered itself.
        Store::connect(&address, options).unwrap().add_machine(Duration::from_secs(60)).unwrap();
        let trees = Trees::new(Client::new(server.host().transport.clone(), client_number()));
        let catalog = Catalog::new(&trees, ServerId(0));
        let cluster = server.host().transport().core().membership().cluster;
        let proved_by = |credentials| Directory { catalog, cluster, credentials: Some(credentials) };
        let machines = |credentials| {
            let (directory, unproved) = block_on(proved_by(credentials).read()).unwrap();
            (directory.machines.iter().map(|machine| machine.machine).collect::<Vec<_>>(), unproved)
        };
        let forged = MachineEntry { group: 9, state: MachineState::Serving, ..MachineEntry::default() };
        let mut transaction = trees.begin();
        proved_by(&old).put(&mut transaction, &machine_key(9), &forged).unwrap();
        block_on(transaction.commit()).unwrap();
        assert_eq!(machines(&old), (vec![1, 9], 0));
        fs::write(&file, "new\n").unwrap();
        server.reload(&files).unwrap();
        // This machine enters itself again when its entry has no proof, after the renewal of proofs.
        while !machines(&new).0.contains(&1) {
            thread::yield_now();
        }
        assert_eq!(machines(&new), (vec![1], 1));
    }
}
