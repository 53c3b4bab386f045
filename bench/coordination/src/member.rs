//! The client's side of a group, as a state machine.
//!
//! A client starts only at an instant that was confirmed before the instant. It
//! ends its load when the coordinator asks, and when the coordinator has been
//! silent for the timeout: a load that no result counts must not run.

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberEvent {
    /// A message from the coordinator, such as a heartbeat.
    Heard,
    /// The coordinator sent the work of a phase.
    Prepare,
    /// The client is ready for the phase: plan made, store open, threads connected.
    Ready,
    /// The coordinator proposes a start, ns of this machine's clock.
    Proposed {
        /// Number of the proposal.
        attempt: u32,
        /// The instant.
        at: u64,
    },
    /// All clients have agreed to this proposal.
    Confirmed {
        /// Number of the proposal.
        attempt: u32,
    },
    /// The load has ended, and its result was sent.
    Finished,
    /// The coordinator asks for the end of the load.
    Stop,
    /// The coordinator cannot be reached, or leads another group.
    Gone,
}

/// Action that the client must perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberAction {
    /// Report to the coordinator that the client is ready.
    Enter,
    /// Agree to this proposal.
    Agree(u32),
    /// Start the load at this instant, ns.
    Go(u64),
    /// Report to the coordinator that the start was missed.
    Late,
    /// End the load; the result is still sent.
    End,
    /// Report to the coordinator that this client's part is done.
    Leave,
    /// End the load and drop its result.
    Abandon,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberStage {
    Idle,
    Preparing,
    Entered,
    Agreed {
        attempt: u32,
        at: u64,
    },
    Running,
    /// Asked to end before the start; the client must still leave.
    Ending,
    Abandoned,
}

/// A client's own view of its part in a group.
#[derive(Debug)]
pub struct Member {
    stage: MemberStage,
    heard: u64,
    timeout: u64,
}

impl Member {
    /// Returns the state of a client that has just joined. `timeout` is the longest
    /// silence of the coordinator, ns.
    pub fn new(timeout: u64, now: u64) -> Member {
        Member { stage: MemberStage::Idle, heard: now, timeout }
    }

    /// Handles an event.
    pub fn on(&mut self, event: MemberEvent, now: u64, actions: &mut Vec<MemberAction>) {
        if self.stage == MemberStage::Abandoned {
            return;
        }
        if !matches!(event, MemberEvent::Ready | MemberEvent::Finished | MemberEvent::Gone) {
            // An event after a freeze may come too late.
            self.tick(now, actions);
            if self.stage == MemberStage::Abandoned {
                return;
            }
            self.heard = self.heard.max(now);
        }
        self.stage = match (event, self.stage) {
            (MemberEvent::Prepare, MemberStage::Idle) => MemberStage::Preparing,
            (MemberEvent::Ready, MemberStage::Preparing) => {
                actions.push(MemberAction::Enter);
                MemberStage::Entered
            }
            (MemberEvent::Proposed { attempt, at }, MemberStage::Entered | MemberStage::Agreed { .. })
                if at > now =>
            {
                actions.push(MemberAction::Agree(attempt));
                MemberStage::Agreed { attempt, at }
            }
            (MemberEvent::Confirmed { attempt }, MemberStage::Agreed { attempt: agreed, at })
                if attempt == agreed =>
            {
                if now < at {
                    actions.push(MemberAction::Go(at));
                    MemberStage::Running
                } else {
                    actions.push(MemberAction::Late);
                    MemberStage::Ending
                }
            }
            (MemberEvent::Finished, stage) if stage != MemberStage::Idle => {
                actions.push(MemberAction::Leave);
                MemberStage::Idle
            }
            (MemberEvent::Stop, MemberStage::Running) => {
                actions.push(MemberAction::End);
                MemberStage::Running
            }
            // A client that becomes ready at this moment does not enter.
            (
                MemberEvent::Stop,
                MemberStage::Preparing | MemberStage::Entered | MemberStage::Agreed { .. },
            ) => {
                actions.push(MemberAction::End);
                MemberStage::Ending
            }
            (MemberEvent::Gone, _) => {
                actions.push(MemberAction::Abandon);
                MemberStage::Abandoned
            }
            (_, stage) => stage,
        };
    }

    /// Returns when [`Member::tick`] must be called at the latest, ns.
    pub fn wake_at(&self) -> u64 {
        match self.stage {
            MemberStage::Abandoned => u64::MAX,
            _ => self.heard.saturating_add(self.timeout),
        }
    }

    /// Checks the timeout.
    pub fn tick(&mut self, now: u64, actions: &mut Vec<MemberAction>) {
        if now.saturating_sub(self.heard) >= self.timeout && self.stage != MemberStage::Abandoned {
            actions.push(MemberAction::Abandon);
            self.stage = MemberStage::Abandoned;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(events: &[MemberEvent]) -> Vec<MemberAction> {
        let (mut member, mut actions) = (Member::new(1000, 0), Vec::new());
        events.iter().for_each(|event| member.on(event.clone(), 1, &mut actions));
        actions
    }

    #[test]
    fn a_stop_request_ends_a_member_in_any_stage() {
        let (prepare, ready, stop, finished) =
            (MemberEvent::Prepare, MemberEvent::Ready, MemberEvent::Stop, MemberEvent::Finished);
        // "Ready" and "stop" may cross.
        let crossed = after(&[prepare.clone(), stop.clone(), ready.clone(), finished.clone()]);
        assert_eq!(crossed, [MemberAction::End, MemberAction::Leave]);
        let entered = after(&[prepare.clone(), ready.clone(), stop.clone(), finished.clone()]);
        assert_eq!(entered, [MemberAction::Enter, MemberAction::End, MemberAction::Leave]);
        let early = after(&[prepare.clone(), stop, finished.clone()]);
        assert_eq!(early, [MemberAction::End, MemberAction::Leave]);
        // A client without work finishes before the others have entered.
        assert_eq!(after(&[prepare, ready, finished.clone()]), [MemberAction::Enter, MemberAction::Leave]);
        assert_eq!(after(&[finished]), []);
    }
}
