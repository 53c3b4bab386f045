//! The client's side of a group, as a state machine.
//!
//! It begins what was confirmed to it before the instant, and nothing else. It
//! ends its load when the coordinator says so, and also when it has heard
//! nothing of the coordinator for the timeout: a store must not be loaded by what
//! nobody counts.

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The coordinator said something, if only that it is there.
    Heard,
    /// There is work: a phase.
    Prepare,
    /// All is ready for it: plan made, store open, threads connected.
    Ready,
    /// The coordinator proposes to begin at an instant, ns by this
    /// machine's clock.
    Proposed {
        /// Number of the proposal.
        attempt: u32,
        /// The instant.
        at: u64,
    },
    /// All have agreed to this proposal.
    Confirmed {
        /// Number of the proposal.
        attempt: u32,
    },
    /// The load is over, and what it saw is handed over.
    Finished,
    /// The coordinator asks for the end.
    Stop,
    /// The coordinator is not to be reached any more, or leads another group.
    Gone,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Tell the coordinator that all is ready.
    Enter,
    /// Agree to this proposal.
    Agree(u32),
    /// Let the threads go at this instant, ns.
    Go(u64),
    /// Tell the coordinator that the start was missed.
    Late,
    /// End the load; what it saw is handed over.
    End,
    /// Tell the coordinator that this client has done its part.
    Leave,
    /// End the load, and forget what it saw: nobody counts it.
    Abandon,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Idle,
    Preparing,
    Entered,
    Agreed {
        attempt: u32,
        at: u64,
    },
    Running,
    /// Told to end before it began: it has to leave all the same.
    Ending,
    Abandoned,
}

/// A client of a group, seen by itself.
#[derive(Debug)]
pub struct Member {
    standing: Standing,
    heard: u64,
    timeout: u64,
}

impl Member {
    /// One that has just joined. `timeout`: how long the coordinator may be
    /// silent, ns.
    pub fn new(timeout: u64, now: u64) -> Member {
        Member { standing: Standing::Idle, heard: now, timeout }
    }

    /// Something happened.
    pub fn on(&mut self, event: Event, now: u64, actions: &mut Vec<Action>) {
        if self.standing == Standing::Abandoned {
            return;
        }
        if !matches!(event, Event::Ready | Event::Finished | Event::Gone) {
            // What comes after a long sleep comes too late.
            self.tick(now, actions);
            if self.standing == Standing::Abandoned {
                return;
            }
            self.heard = self.heard.max(now);
        }
        self.standing = match (event, self.standing) {
            (Event::Prepare, Standing::Idle) => Standing::Preparing,
            (Event::Ready, Standing::Preparing) => {
                actions.push(Action::Enter);
                Standing::Entered
            }
            (Event::Proposed { attempt, at }, Standing::Entered | Standing::Agreed { .. }) if at > now => {
                actions.push(Action::Agree(attempt));
                Standing::Agreed { attempt, at }
            }
            (Event::Confirmed { attempt }, Standing::Agreed { attempt: agreed, at }) if attempt == agreed => {
                if now < at {
                    actions.push(Action::Go(at));
                    Standing::Running
                } else {
                    actions.push(Action::Late);
                    Standing::Ending
                }
            }
            (Event::Finished, standing) if standing != Standing::Idle => {
                actions.push(Action::Leave);
                Standing::Idle
            }
            (Event::Stop, Standing::Running) => {
                actions.push(Action::End);
                Standing::Running
            }
            // One that gets ready just then does not enter any more.
            (Event::Stop, Standing::Preparing | Standing::Entered | Standing::Agreed { .. }) => {
                actions.push(Action::End);
                Standing::Ending
            }
            (Event::Gone, _) => {
                actions.push(Action::Abandon);
                Standing::Abandoned
            }
            (_, standing) => standing,
        };
    }

    /// When [`Member::tick`] is wanted at the latest, ns.
    pub fn wake_at(&self) -> u64 {
        match self.standing {
            Standing::Abandoned => u64::MAX,
            _ => self.heard.saturating_add(self.timeout),
        }
    }

    /// Looks at the time.
    pub fn tick(&mut self, now: u64, actions: &mut Vec<Action>) {
        if now.saturating_sub(self.heard) >= self.timeout && self.standing != Standing::Abandoned {
            actions.push(Action::Abandon);
            self.standing = Standing::Abandoned;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(events: &[Event]) -> Vec<Action> {
        let (mut member, mut actions) = (Member::new(1000, 0), Vec::new());
        events.iter().for_each(|event| member.on(event.clone(), 1, &mut actions));
        actions
    }

    #[test]
    fn one_that_is_told_to_end_leaves_wherever_it_stands() {
        let (prepare, ready, stop, finished) = (Event::Prepare, Event::Ready, Event::Stop, Event::Finished);
        // The word of its being ready and that of the end may cross.
        let crossed = after(&[prepare.clone(), stop.clone(), ready.clone(), finished.clone()]);
        assert_eq!(crossed, [Action::End, Action::Leave]);
        let entered = after(&[prepare.clone(), ready.clone(), stop.clone(), finished.clone()]);
        assert_eq!(entered, [Action::Enter, Action::End, Action::Leave]);
        let early = after(&[prepare.clone(), stop, finished.clone()]);
        assert_eq!(early, [Action::End, Action::Leave]);
        // What has nothing to do is done before the others have entered.
        assert_eq!(after(&[prepare, ready, finished.clone()]), [Action::Enter, Action::Leave]);
        assert_eq!(after(&[finished]), []);
    }
}
