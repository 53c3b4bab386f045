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
#[allow(dead_code, reason = "some tests only load checkpoints")]
pub(crate) fn start(settings: EngineSettings, written: &Written, log: &[Vec<u8>]) -> Engine {
    let mut engine = restore(settings, written);
    for record in &log[written.1..] {
        engine.replay(&LogRecord::decode(record).unwrap());
    }
    engine.replayed();
    engine
}

/// The records of a canonical form that another one does not have.
#[allow(dead_code, reason = "not all tests compare engines")]
fn records_beyond(canonical: &[u8], other: &[u8]) -> Vec<String> {
    let records = |mut bytes: &[u8]| {
        let mut records = Vec::new();
        while let Some((length, rest)) = bytes.split_first_chunk() {
            let (record, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
            records.push(format!("{:?}", LogRecord::decode(record).unwrap()));
            bytes = rest;
        }
        records
    };
    let other = records(other);
    records(canonical).into_iter().filter(|record| !other.contains(record)).collect()
}

/// Checks that two engines have the same replicated state.
#[allow(dead_code, reason = "not all tests compare engines")]
pub(crate) fn same(what: &str, made: &Engine, live: &Engine) {
    let (made, live) = (made.canonical(), live.canonical());
    if made != live {
        let (more, less) = (records_beyond(&made, &live), records_beyond(&live, &made));
        panic!("{what}: there is {more:#?} and not {less:#?}");
    }
}
