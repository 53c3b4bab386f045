//! Copy of the cluster's names at a machine, kept by its thread of the directory.

use crate::{
    Error,
    any_transport::AnyTransport,
    catalog::{Catalog, CopiedNames},
};
use std::time::{Duration, Instant};
use yesquel_model::ServerId;
use yesquel_transport::{Patience, block_on};
use yesquel_tree::Trees;

/// Shortest interval between two comparisons of the copy with the names of the home group.
const COPY_EVERY: Duration = Duration::from_secs(1);
/// Pause after a comparison for each entry that was compared. It is some 200 times the work, so that
/// a machine reads names for half a percent of the time. The time that the comparison took would also
/// count waits for a busy processor, after which copies would lag for a minute.
const PAUSE_PER_ENTRY: Duration = Duration::from_micros(600);
/// Longest interval.
const COPY_EVERY_MAX: Duration = Duration::from_secs(60);
/// Pause after a failure.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long the home group may take for the first answer. The thread has other work.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval in which the copy states its time though no name has changed.
const STATE_EVERY: Duration = Duration::from_secs(60);
/// Interval between two looks at the spare numbers, each of which is a forced log record.
const STOCK_EVERY: Duration = Duration::from_secs(600);

/// Keeps the copy of a machine at its first group.
#[derive(Debug)]
pub(crate) struct NameCopier {
    home_group: ServerId,
    group: ServerId,
    copy_at: Instant,
    /// When the copy states its time again. A client that has changed names and taken the change back
    /// between two comparisons uses no copy until then.
    state_at: Instant,
    stock_at: Instant,
    has_failed: bool,
}

impl NameCopier {
    /// `None`: the machine has the home group.
    pub(crate) fn new(home_group: ServerId, own: &[ServerId]) -> Option<NameCopier> {
        let group = *own.first()?;
        let now = Instant::now();
        let is_home = own.contains(&home_group);
        (!is_home).then_some(NameCopier {
            home_group,
            group,
            copy_at: now,
            state_at: now,
            stock_at: now,
            has_failed: false,
        })
    }

    /// Copies the names if it is time.
    pub(crate) fn copy_if_due(&mut self, trees: &Trees<AnyTransport>) {
        let begun = Instant::now();
        if begun < self.copy_at {
            return;
        }
        let copied = self.copy(trees);
        let ended = Instant::now();
        self.copy_at = ended
            + match &copied {
                Ok(compared) => {
                    let compared = u32::try_from(*compared).unwrap_or(u32::MAX);
                    PAUSE_PER_ENTRY.saturating_mul(compared).clamp(COPY_EVERY, COPY_EVERY_MAX)
                }
                Err(_) => AGAIN_AFTER,
            };
        match copied {
            Ok(_) => self.has_failed = false,
            // The catalog of the group is created when the group serves.
            Err(Error::NoMap(_)) => self.copy_at = ended + COPY_EVERY,
            Err(error) if !std::mem::replace(&mut self.has_failed, true) => {
                tracing::warn!(%error, "the names of the cluster cannot be copied to this machine");
            }
            Err(_) => {}
        }
    }

    /// Copies the names. Returns the number of entries that were compared.
    fn copy(&mut self, trees: &Trees<AnyTransport>) -> Result<usize, Error> {
        let catalog = Catalog::new(trees, self.home_group);
        let patience = Patience::begin(PATIENCE);
        block_on(catalog.probe())?;
        drop(patience);
        // First, so that a machine with a copy has spare numbers.
        if Instant::now() >= self.stock_at {
            block_on(trees.stock_spare_numbers(self.group))?;
            self.stock_at = Instant::now() + STOCK_EVERY;
        }
        let states_time = Instant::now() >= self.state_at;
        let CopiedNames { compared, changed } = block_on(catalog.copy_names(self.group, states_time))?;
        if changed > 0 {
            tracing::debug!(changed, "the names of the cluster were copied");
        }
        if states_time || changed > 0 {
            self.state_at = Instant::now() + STATE_EVERY;
        }
        Ok(compared)
    }
}
