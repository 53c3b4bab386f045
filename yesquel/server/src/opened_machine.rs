//! The groups of a machine, opened on its data folder.

use crate::{
    Core, DataFolder, Time,
    error::CoreError,
    machine_file::MachineIdentity,
    recovery::{RecoveredMachine, recover, recover_group},
};
use std::{sync::Arc, thread, time::Duration};
use yesquel_engine::EngineSettings;
use yesquel_log::disk::Folder;
use yesquel_model::ServerId;
use yesquel_node::{LogOptions, OpenedGroup, ReplySink};

/// Most groups of a machine: each has threads of its own, and exchanges reports with each group of
/// other machines.
pub const GROUPS_MAX: u16 = 16;

/// Machine with a data folder. Each group has its core with a log and a memory budget of its own.
#[derive(Debug)]
pub struct OpenedMachine {
    /// Shared with the threads of the logs.
    folder: Arc<DataFolder>,
    identity: MachineIdentity,
    settings: EngineSettings,
    options: LogOptions,
    cores: Vec<Core>,
}

/// Returns the settings of each of some groups that share the memory budget of a machine.
pub fn share_of_group(settings: EngineSettings, groups: usize) -> EngineSettings {
    let memory_bytes_max = match settings.memory_bytes_max {
        usize::MAX => usize::MAX,
        bytes => bytes / groups.max(1),
    };
    EngineSettings { memory_bytes_max, ..settings }
}

impl OpenedMachine {
    /// Opens the groups of a folder and recovers their checkpoints and logs. `settings` are those of the
    /// first group. A new folder gets `groups` of them; an older one may have more or fewer, and the
    /// memory budget is divided by the larger number.
    pub fn open<S: ReplySink + Send + Sync + 'static>(
        mut folder: DataFolder,
        settings: EngineSettings,
        options: LogOptions,
        groups: u16,
        mut time: impl Time + Clone + 'static,
        mut sink_of: impl FnMut(ServerId) -> S,
    ) -> Result<OpenedMachine, CoreError> {
        let settings = share_of_group(settings, folder.groups()?.len().max(usize::from(groups)));
        let RecoveredMachine { identity, groups } = recover(&mut folder, settings, options, groups)?;
        let now = time.now();
        let wait_ms = groups.iter().map(|opened| opened.core.engine().wait_ms(now)).max().unwrap_or_default();
        if wait_ms > 0 {
            tracing::info!(wait_ms, "waiting for the clock: the server did not end in order");
            // No request can arrive yet, so that nothing needs to interrupt this.
            thread::sleep(Duration::from_millis(wait_ms));
        }
        let cores = Vec::with_capacity(groups.len());
        let mut machine = OpenedMachine { folder: Arc::new(folder), identity, settings, options, cores };
        for opened in groups {
            let sink = sink_of(opened.core.engine().server());
            machine.start(opened, time.clone(), sink)?;
        }
        Ok(machine)
    }

    fn start(
        &mut self,
        opened: OpenedGroup<Folder>,
        time: impl Time + 'static,
        sink: impl ReplySink + Send + Sync + 'static,
    ) -> Result<(), CoreError> {
        self.cores.push(Core::start(opened, self.identity, Arc::clone(&self.folder), time, sink)?);
        Ok(())
    }

    /// Adds groups, which are empty.
    pub fn add_groups<S: ReplySink + Send + Sync + 'static>(
        &mut self,
        groups: &[ServerId],
        time: impl Time + Clone + 'static,
        mut sink_of: impl FnMut(ServerId) -> S,
    ) -> Result<(), CoreError> {
        self.folder.add_groups(groups)?;
        let disk = Folder::new(self.folder.path());
        for group in groups {
            let settings = EngineSettings { server: *group, ..self.settings };
            let opened = recover_group(&disk, self.identity.membership.cluster, settings, self.options)?;
            self.start(opened, time.clone(), sink_of(*group))?;
        }
        Ok(())
    }

    /// Takes the cores that were opened since the last call, the one of the lowest group first. The folder
    /// is locked until all of them, and this, are dropped.
    pub fn take_cores(&mut self) -> Vec<Core> {
        std::mem::take(&mut self.cores)
    }
}

impl Core {
    /// Opens the core of the first group of a data folder and recovers its checkpoint and log.
    pub fn open(
        folder: DataFolder,
        settings: EngineSettings,
        options: LogOptions,
        time: impl Time + Clone + 'static,
        reply_sink: impl ReplySink + Send + Sync + 'static,
    ) -> Result<Core, CoreError> {
        let sink = Arc::new(reply_sink);
        let mut opened =
            OpenedMachine::open(folder, settings, options, 1, time, |_| Arc::clone(&sink))?.take_cores();
        // A folder has at least one group.
        Ok(opened.swap_remove(0))
    }
}
