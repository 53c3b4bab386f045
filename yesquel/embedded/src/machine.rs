//! The groups of a machine in this process.

use crate::{EmbeddedServer, PendingCalls, ReplyRouter};
use yesquel_engine::EngineSettings;
use yesquel_model::ServerId;
use yesquel_server::{
    Core, CoreError, DataFolder, LogOptions, OpenedMachine, ReplySink, Time, share_of_group,
};

/// Machine of this process that has a data folder. The servers of its groups share the folder, which is
/// locked until this and all of them are dropped.
#[derive(Debug)]
pub struct EmbeddedMachine<T, S> {
    opened: OpenedMachine,
    time: T,
    others: S,
}

/// Makes servers of cores, whose pending calls come in the same order.
fn servers(cores: Vec<Core>, pending: Vec<PendingCalls>) -> Vec<EmbeddedServer> {
    let cores = cores.into_iter().zip(pending);
    cores.map(|(core, pending)| EmbeddedServer::around(core.group(), core, pending)).collect()
}

impl EmbeddedServer {
    /// Creates the groups of a machine in memory, with the following numbers. `others` takes the replies
    /// to requests from sockets.
    pub fn machine_in_memory(
        settings: EngineSettings,
        groups: u16,
        time: impl Time + Clone + 'static,
        others: impl ReplySink + Clone + Send + Sync + 'static,
    ) -> Vec<EmbeddedServer> {
        let settings = share_of_group(settings, groups.into());
        let numbers = settings.server.0..=settings.server.0.saturating_add(groups.max(1) - 1);
        let groups = numbers.map(|group| {
            let settings = EngineSettings { server: ServerId(group), ..settings };
            EmbeddedServer::in_memory_with(settings, time.clone(), others.clone())
        });
        groups.collect()
    }
}

impl<T: Time + Clone + 'static, S: ReplySink + Clone + Send + Sync + 'static> EmbeddedMachine<T, S> {
    /// Opens the groups of a data folder, see [`OpenedMachine::open`]. `others` takes the replies to
    /// requests from sockets.
    pub fn open(
        folder: DataFolder,
        settings: EngineSettings,
        options: LogOptions,
        groups: u16,
        (time, others): (T, S),
    ) -> Result<(EmbeddedMachine<T, S>, Vec<EmbeddedServer>), CoreError> {
        let mut all = Vec::new();
        let sink_of = |_| route(&mut all, &others);
        let mut opened = OpenedMachine::open(folder, settings, options, groups, time.clone(), sink_of)?;
        let servers = servers(opened.take_cores(), all);
        Ok((EmbeddedMachine { opened, time, others }, servers))
    }

    /// Adds groups, which are empty. Returns their servers.
    pub fn add_groups(&mut self, groups: &[ServerId]) -> Result<Vec<EmbeddedServer>, CoreError> {
        let (mut all, others) = (Vec::new(), &self.others);
        self.opened.add_groups(groups, self.time.clone(), |_| route(&mut all, others))?;
        Ok(servers(self.opened.take_cores(), all))
    }
}

/// Returns the sink of a group's replies, and notes its pending calls.
fn route<S: Clone>(all: &mut Vec<PendingCalls>, others: &S) -> ReplyRouter<S> {
    let pending = PendingCalls::default();
    all.push(pending.clone());
    ReplyRouter { pending, others: others.clone() }
}
