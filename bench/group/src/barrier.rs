//! Clients that were started one by one and meet at a barrier before a load or run, as in YCSB++
//! (`docs/coordination.md`).

use crate::settings;
use serval_coordination::barrier::{Barrier, BarrierError, Meeting};
use serval_model::properties::{Faults, units::counted};
use serval_plan::{
    Plan, PlanError,
    session::{OpenStore, Ran, Session},
};
use serval_result::group::GroupResult;
use serval_runner::{Control, Gate, Observer, RunError, RunOptions, clock};
use serval_workload::Workload;
use std::sync::{Arc, Mutex, PoisonError};

/// Time from the opening of the barrier to the start, ns, so that all threads of a client can wake.
const LEAD_NS: u64 = 1_000_000;

/// An open store whose runs begin and end at a barrier.
pub struct AtBarrier<'a> {
    inner: &'a dyn Session,
    meeting: Meeting,
    say: fn(&str),
}

impl<'a> AtBarrier<'a> {
    /// Returns a session for a plan whose properties name a barrier; `None` if they do not. `say` shows messages to
    /// the user.
    ///
    /// # Errors
    ///
    /// These properties have faults.
    pub fn of(inner: &'a dyn Session, plan: &Plan, say: fn(&str)) -> Result<Option<AtBarrier<'a>>, Faults> {
        let meeting = settings::meeting(&plan.properties, plan.phase_name())?;
        Ok(meeting.map(|meeting| AtBarrier { inner, meeting, say }))
    }
}

fn failed(error: BarrierError) -> PlanError {
    match error {
        BarrierError::Interrupted => RunError::Interrupted.into(),
        error => PlanError::Group(error.to_string()),
    }
}

impl Session for AtBarrier<'_> {
    fn store(&self) -> &dyn OpenStore {
        self.inner.store()
    }

    fn run(
        &self,
        workload: &Arc<dyn Workload>,
        options: &RunOptions,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Ran, PlanError> {
        let say = self.say;
        let barrier = Arc::new(Barrier::new(self.meeting.clone()).map_err(failed)?);
        let refused: Arc<Mutex<Option<BarrierError>>> = Arc::default();
        let mut options = options.clone();
        let (entering, asked, why) = (Arc::clone(&barrier), control.clone(), Arc::clone(&refused));
        let (size, place) = (self.meeting.size, self.meeting.place.clone());
        options.gate = Some(Gate::new(move || {
            say(&format!("waiting at the barrier {place} for {}", counted(size as u64, "client")));
            match entering.enter(&|| asked.interrupted()) {
                Ok(names) => {
                    say(&format!("all clients joined: {}", names.join(", ")));
                    Some(clock::now() + LEAD_NS)
                }
                Err(error) => {
                    *why.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    None
                }
            }
        }));
        let made = self.inner.run(workload, &options, control, observer);
        if let Some(error) = refused.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(failed(error));
        }
        let mut ran = made?;
        // The other clients measure for the same time. If nothing bounds it, this client waits for
        // them as long as they live.
        let within = options.time.map(|_| self.meeting.wait);
        let trouble = match barrier.leave(within, &|| control.interrupted()) {
            Ok(died) if died.is_empty() => None,
            Ok(died) => {
                Some(format!("clients that were at the barrier died before its end: {}", died.join(", ")))
            }
            // An interrupted client needs no report on the others.
            Err(BarrierError::Interrupted) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(trouble) = trouble {
            say(&trouble);
            ran.group.get_or_insert_with(GroupResult::default).troubles.push(trouble);
        }
        Ok(ran)
    }

    fn beside(&self) -> Option<Box<dyn Session + Send>> {
        self.inner.beside()
    }
}
