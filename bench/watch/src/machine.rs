//! CPU usage of the whole machine.

/// CPU time of the machine since its start, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Time in use, including time that the host gave to other guests (steal).
    pub(crate) busy: u64,
    /// Total time, idle included.
    pub(crate) all: u64,
}

impl Machine {
    /// Returns the share of processor time in use since `earlier`, 0 to 1; `None`
    /// if no time has passed.
    pub fn busy_since(&self, earlier: &Machine) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        Some((self.busy.saturating_sub(earlier.busy) as f64 / all as f64).min(1.0))
    }
}
