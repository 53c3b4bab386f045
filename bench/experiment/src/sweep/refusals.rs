//! Refusal of curves whose open store does not support their operations, before it is loaded.

use super::{conduct::SweepConductor, curves::Renewal};
use crate::{error::ConductError, file::StatePolicy};
use serval_model::{OperationKind, properties::Faults};
use serval_plan::{Plan, perform::refuse};
use serval_workload::core::Phase;

/// Reason why records cannot be removed; the end of a message.
pub(super) const NO_DELETE: &str =
    "has no delete, so its records cannot be removed: give the store a 'restore' command";

impl SweepConductor<'_> {
    /// Refuses curves that need an operation that their store does not support.
    pub(super) fn refuse(&mut self) -> Result<(), ConductError> {
        let mut faults = Faults::default();
        for curve in &self.experiment.curves {
            let records = &mut self.records[curve.dataset];
            if records.state.loaded {
                continue;
            }
            let properties = curve.properties.clone();
            let plan = Plan::strict(properties, Phase::Run, curve.info)?;
            // A store that cannot be opened is reported when its curve runs.
            let Ok(session) = records.session(self.stores) else { continue };
            let deletes = session.store().capabilities().contains(OperationKind::Delete);
            faults.take(refuse(&plan, session));
            let by_delete =
                matches!(records.dataset.renewal, Renewal::Server) && records.dataset.restore.is_none();
            if self.experiment.file.run.state == StatePolicy::Reload && by_delete && !deletes {
                let name = &curve.store;
                faults.push(format!("state = \"reload\": {name} {NO_DELETE}"));
            }
        }
        faults.0.dedup();
        Ok(faults.or(())?)
    }
}
