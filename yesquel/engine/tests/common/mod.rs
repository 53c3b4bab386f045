//! Helpers for tests with restarts.

use yesquel_engine::{Checkpoint, Engine, EngineSettings, LogRecord};

/// The records of a checkpoint, and the last log record that it covers.
pub(crate) type Written = (Vec<Vec<u8>>, usize);

pub(crate) fn write(checkpoint: &mut Checkpoint) -> Written {
    let mut records = Vec::new();
    let written: Result<(), ()> = checkpoint.write(|record| {
        records.push(record.to_vec());
        Ok(())
    });
    written.unwrap();
    (records, checkpoint.lsn() as usize)
}

/// Starts an engine from a checkpoint and the log after it.
pub(crate) fn start(settings: EngineSettings, (records, lsn): &Written, log: &[Vec<u8>]) -> Engine {
    let mut engine = Engine::new(settings);
    for record in records {
        engine.replay(&LogRecord::decode(record).unwrap());
    }
    engine.restored(*lsn as u64);
    for record in &log[*lsn..] {
        engine.replay(&LogRecord::decode(record).unwrap());
    }
    engine.replayed();
    engine
}
