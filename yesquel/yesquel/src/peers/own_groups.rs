//! Thread by which the groups of this machine ask each other and exchange reports, without sockets.

use super::{PeerLink, QUEUED_MAX, REPORT_EVERY};
use crate::stop_flag::StopFlag;
use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Instant,
};
use yesquel_embedded::EmbeddedServer;
use yesquel_node::PeerQuery;
use yesquel_transport::Transport;

/// What the thread does.
pub(super) enum OwnTask {
    /// Asks a question of the group with an index.
    Ask(usize, PeerQuery),
    /// Takes the reply to such a question.
    Answer(usize, PeerQuery, Vec<u8>),
    /// Ends.
    End,
}

/// The groups of this machine.
pub(super) struct OwnGroups {
    groups: Arc<[EmbeddedServer]>,
    /// Where replies arrive: a group may give them under its lock, when no other may be locked.
    answers: SyncSender<OwnTask>,
}

impl OwnGroups {
    /// Starts the thread.
    pub(super) fn start(groups: &Arc<[EmbeddedServer]>) -> io::Result<PeerLink<OwnTask>> {
        let (tasks, receiver) = sync_channel(QUEUED_MAX);
        let own = OwnGroups { groups: Arc::clone(groups), answers: tasks.clone() };
        let ending = StopFlag::default();
        let ends = ending.clone();
        let thread = thread::Builder::new().name("yesquel-groups".to_owned());
        let thread = Some(thread.spawn(move || own.run(&receiver, &ends))?);
        Ok(PeerLink { tasks: Some(tasks), thread, ending })
    }

    fn run(self, tasks: &Receiver<OwnTask>, ending: &StopFlag) {
        let mut report_at = Instant::now();
        loop {
            let task = tasks.recv_timeout(report_at.saturating_duration_since(Instant::now()));
            if ending.is_set() {
                return;
            }
            match task {
                Ok(OwnTask::Ask(asker, query)) => self.ask(asker, query),
                Ok(OwnTask::Answer(asker, query, reply)) => {
                    if let Some(group) = self.groups.get(asker) {
                        group.core().on_peer_reply(&query, &reply);
                    }
                }
                Ok(OwnTask::End) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if report_at <= Instant::now() {
                report_at = Instant::now() + REPORT_EVERY;
                self.report();
            }
        }
    }

    fn ask(&self, asker: usize, query: PeerQuery) {
        let Some(asked) = self.groups.iter().find(|group| group.server() == query.server()) else { return };
        let (answers, request) = (self.answers.clone(), query.bytes());
        let handler = move |reply: Result<&[u8], _>| {
            if let Ok(reply) = reply {
                // The engine asks again if the queue is full.
                drop(answers.try_send(OwnTask::Answer(asker, query, reply.to_vec())));
            }
        };
        asked.send(asked.server(), &request, Box::new(handler));
    }

    /// Gives the report of each group to all others. They have one clock, which is not compared.
    fn report(&self) {
        for from in &*self.groups {
            let (report, _) = from.core().begin_report();
            for to in self.groups.iter().filter(|to| to.server() != from.server()) {
                to.core().take_report(&report);
            }
        }
    }
}
