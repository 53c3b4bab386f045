//! Fuzz target for checkpoint files, and the engine that reads their records.

use crate::{
    damage::damage,
    disk::MemoryDisk,
    engine::{self, EngineRun},
    input::Input,
    log::check_error,
};
use yesquel_engine::{Engine, EngineSettings, LogRecord};
use yesquel_log::{LogError, LogIdentity, LogPoint, checkpoint};

/// Writes a checkpoint and changes it, as the input says. It must read back unchanged, or be
/// refused with the position.
pub fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let disk = MemoryDisk::default();
    let is_of_engine = input.flag();
    let (lsn, records) = if is_of_engine { of_engine(&mut input) } else { of_anybody(&mut input) };
    let (identity, covered) =
        (LogIdentity::default(), LogPoint { position: lsn, index: lsn + 7, term: input.byte().into() });
    let filled = checkpoint::write(&disk, identity, covered, |take| {
        records.iter().try_for_each(|record| take(record))
    });
    filled.expect("the disk takes it");
    assert_eq!(checkpoint::list(&disk).expect("the disk has it"), [lsn]);
    // The previous one may still exist.
    let is_forged = damage(&disk, &mut input, |input| format!("checkpoint-{:020}", input.byte()));
    let known = checkpoint::list(&disk).expect("the disk has it");
    assert!(known.is_sorted());
    let Some(last) = known.last() else { return };
    let mut found = Vec::new();
    let outcome = checkpoint::read(&disk, identity, *last, |record| {
        found.push(record.to_vec());
        Ok(())
    });
    match outcome {
        Ok(_) if is_forged => replay(&found),
        Ok(point) => {
            assert_eq!(point, covered);
            assert!(found == records, "{found:?}, not {records:?}");
            if is_of_engine {
                let mut engine = Engine::new(EngineSettings::default());
                records.iter().for_each(|record| engine::replay(&mut engine, record));
                engine.replayed();
                if let Err(wrong) = engine.audit() {
                    panic!("{wrong}");
                }
            } else {
                replay(&found);
            }
        }
        Err(error) => {
            if let LogError::Damaged { position, .. } = &error {
                assert_eq!(position, last, "{error}");
            }
            check_error(&disk, &error);
        }
    }
}

/// Records that no engine wrote must be refused or applied.
fn replay(records: &[Vec<u8>]) {
    let mut engine = Engine::new(EngineSettings::default());
    for record in records {
        if let Ok(decoded) = LogRecord::decode(record) {
            let mut again = Vec::new();
            decoded.write(&mut again);
            // Kinds of earlier versions are written as present ones.
            assert_eq!(LogRecord::decode(&again).as_ref(), Ok(&decoded), "{record:?}");
            engine.replay(&decoded);
        }
    }
    engine.replayed();
    assert_eq!(
        engine.lsn(),
        records.iter().filter(|record| LogRecord::decode(record).is_ok()).count() as u64
    );
}

/// Returns the records of an engine after some steps.
fn of_engine(input: &mut Input<'_>) -> (u64, Vec<Vec<u8>>) {
    let mut run = EngineRun::new(input);
    for _ in 0..input.below(60) {
        run.step(input);
    }
    let (lsn, records) = run.records();
    (lsn.max(1), records)
}

fn of_anybody(input: &mut Input<'_>) -> (u64, Vec<Vec<u8>>) {
    let lsn = 1 + u64::from(input.byte());
    let records = (0..input.below(12)).map(|_| {
        let length = input.short() % 600;
        input.bytes(length).to_vec()
    });
    (lsn, records.collect())
}
