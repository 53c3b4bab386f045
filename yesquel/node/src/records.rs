//! Records between the engine and the log.

use yesquel_engine::{Effects, LogRecord};
use yesquel_model::Timestamp;

/// Records that are not on disk yet, in the order of their numbers.
#[derive(Debug, Default)]
pub struct RecordBatch {
    pub(crate) log: Vec<u8>,
    /// End offset of each record.
    pub(crate) ends: Vec<usize>,
}

impl RecordBatch {
    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Iterates over the records' bytes.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let records: Vec<&[u8]> = starts.zip(&self.ends).map(|(start, end)| &self.log[start..*end]).collect();
        records.into_iter()
    }

    pub(crate) fn clear(&mut self) {
        self.log.clear();
        self.ends.clear();
    }

    /// Appends the records of a step.
    pub(crate) fn push(&mut self, effects: &Effects) {
        let before = self.log.len();
        self.log.extend_from_slice(&effects.log);
        self.ends.extend(effects.record_ends.iter().map(|end| before + end));
    }

    /// First timestamp at which a reader may see an effect of the records.
    pub(crate) fn first_seen(&self) -> Option<Timestamp> {
        LogRecord::first_seen(&self.log, &self.ends)
    }
}
