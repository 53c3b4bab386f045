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

/// Loads a checkpoint.
pub(crate) fn restore(settings: EngineSettings, (records, lsn): &Written) -> Engine {
    let mut engine = Engine::new(settings);
    for record in records {
        engine.replay(&LogRecord::decode(record).unwrap());
    }
    engine.restored(*lsn as u64);
    engine
}

/// Starts an engine from a checkpoint and the log after it.
pub(crate) fn start(settings: EngineSettings, written: &Written, log: &[Vec<u8>]) -> Engine {
    let mut engine = restore(settings, written);
    for record in &log[written.1..] {
        engine.replay(&LogRecord::decode(record).unwrap());
    }
    engine.replayed();
    engine
}
