//! Steps of a server's start before it opens its log: it joins a cluster, or the directory checks
//! that its data folder is no copy.

use crate::{
    EngineSettings, Error, JoinOptions, StopFlag,
    checked_start::{CheckedStart, EnteredMachine, add_stored},
    join::join,
    peers::PeerAccess,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use yesquel_server::{DataFolder, MachineIdentity};
use yesquel_transport::Address;

/// A server that starts.
pub(crate) struct ServerStart {
    pub(crate) folder: Option<DataFolder>,
    pub(crate) settings: EngineSettings,
    pub(crate) peers: PeerAccess,
    /// The machine, and what the directory knows of it.
    entered: Option<(MachineIdentity, EnteredMachine)>,
    /// Why the directory has not admitted the start, for [`reason`].
    pub(crate) refused: Arc<Mutex<Option<Error>>>,
}

/// Options of a start.
pub(crate) struct StartOptions<'a> {
    pub(crate) join: Option<&'a JoinOptions>,
    pub(crate) has_group_of_folder: bool,
    pub(crate) accepts_loss: bool,
    /// Number of groups that the machine has at least.
    pub(crate) groups: u16,
    pub(crate) ending: &'a StopFlag,
}

impl ServerStart {
    /// Prepares a start, before the server listens: a machine with the same number may answer at its
    /// address.
    pub(crate) fn new(
        folder: Option<DataFolder>,
        settings: EngineSettings,
        peers: &PeerAccess,
        options: &StartOptions<'_>,
    ) -> Result<ServerStart, Error> {
        let mut start =
            ServerStart { folder, settings, peers: peers.clone(), entered: None, refused: Arc::default() };
        let Some(folder) = &start.folder else { return Ok(start) };
        match folder.identity()? {
            Some(identity) => {
                folder.cluster_files().end_join()?;
                start.adopt(identity, options.has_group_of_folder)?;
                start.check(identity, options.ending)?;
            }
            None if options.join.is_none() && folder.cluster_files().joining()?.is_some() => {
                return Err(Error::UnfinishedJoin(folder.path().to_owned()));
            }
            None => {}
        }
        Ok(start)
    }

    /// Takes what the data folder says of its group and of the cluster.
    fn adopt(&mut self, identity: MachineIdentity, has_group_of_folder: bool) -> Result<bool, Error> {
        if has_group_of_folder {
            self.settings.server = identity.group;
        }
        let Some(folder) = &self.folder else { return Ok(false) };
        add_stored(folder, &folder.groups()?, &mut self.peers)
    }

    /// Asks the home group about the machine. The home group itself starts without that.
    fn check(&mut self, identity: MachineIdentity, ending: &StopFlag) -> Result<(), Error> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let is_home = identity.membership.home_group == identity.group;
        if is_home || folder.cluster_files().directory()?.is_none() {
            return Ok(());
        }
        let entered = CheckedStart::new(identity, &self.peers, ending)?.entered(folder)?;
        self.entered = entered.map(|entered| (identity, entered));
        Ok(())
    }

    /// Joins a cluster with a new data folder. Prepares the entry of the start in the directory, which is
    /// made when the log is open. Others will reach the server at the address.
    pub(crate) fn enter(
        &mut self,
        options: &StartOptions<'_>,
        address: Option<&Address>,
    ) -> Result<(), Error> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        if let Some(options_of_join) = options.join
            && folder.identity()?.is_none()
        {
            let address = address.ok_or(Error::NoAddress)?;
            join(folder, options_of_join, &self.peers, address, options.ending)?;
            if let Some(identity) = folder.identity()? {
                self.adopt(identity, true)?;
                self.entered =
                    Some((identity, EnteredMachine { start: identity.start, log_ends: Vec::new() }));
            }
        }
        let (Some((identity, entered)), Some(folder)) = (self.entered.take(), &mut self.folder) else {
            return Ok(());
        };
        let start = CheckedStart::new(identity, &self.peers, options.ending)?;
        start.grow(folder, options.groups.into())?;
        let (address, accepts_loss) = (address.map(Address::to_string), options.accepts_loss);
        let refused = Arc::clone(&self.refused);
        folder.admit_by(move |folder, log_ends| {
            let older = entered.log_ends.iter().find_map(|(group, known)| {
                let (_, log_end) = log_ends.iter().find(|(own, _)| own == group)?;
                (log_end < known).then_some((group.0, *log_end, *known))
            });
            let admitted = match older.filter(|_| !accepts_loss) {
                Some((group, log_end, known)) => {
                    let (folder, machine) = (folder.path().to_owned(), identity.machine);
                    Err(Error::OlderCopy { folder, machine, group, log_end, known })
                }
                None => start.enter(folder, entered.start, address.as_deref(), log_ends),
            };
            admitted.map_err(|error| *lock(&refused) = Some(error)).ok()
        });
        Ok(())
    }
}

fn lock(refused: &Mutex<Option<Error>>) -> MutexGuard<'_, Option<Error>> {
    refused.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns why the directory has not admitted a start, or another error of it.
pub(crate) fn reason(refused: &Mutex<Option<Error>>, error: Error) -> Error {
    lock(refused).take().unwrap_or(error)
}
