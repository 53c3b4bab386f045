//! Checkpoint files, and what an engine makes of their records.

use crate::{
    damage::damage,
    disk::Memory,
    engine::{self, Run},
    input::Input,
    log::told,
};
use yesquel_engine::{Engine, Record, Settings};
use yesquel_log::{LogError, checkpoint};

/// A checkpoint that was written as the input says and then changed as it says
/// comes back as it was, or is refused with the place.
pub fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let disk = Memory::default();
    let is_of_engine = input.flag();
    let (lsn, records) = if is_of_engine { of_engine(&mut input) } else { of_anybody(&mut input) };
    let filled = checkpoint::write(&disk, lsn, |take| records.iter().try_for_each(|record| take(record)));
    filled.expect("the disk takes it");
    assert_eq!(checkpoint::list(&disk).expect("the disk has it"), [lsn]);
    // The one before may still be there.
    let is_forged = damage(&disk, &mut input, |input| format!("checkpoint-{:020}", input.byte()));
    let known = checkpoint::list(&disk).expect("the disk has it");
    assert!(known.is_sorted());
    let Some(last) = known.last() else { return };
    let mut found = Vec::new();
    let outcome = checkpoint::read(&disk, *last, |record| {
        found.push(record.to_vec());
        Ok(())
    });
    match outcome {
        Ok(()) if is_forged => replay(&found),
        Ok(()) => {
            assert_eq!(*last, lsn);
            assert!(found == records, "{found:?}, not {records:?}");
            if is_of_engine {
                let mut engine = Engine::new(Settings::default());
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
            if let LogError::Damaged { lsn, .. } = &error {
                assert_eq!(lsn, last, "{error}");
            }
            told(&disk, &error);
        }
    }
}

/// Records that no engine wrote are not understood, or done as they are.
fn replay(records: &[Vec<u8>]) {
    let mut engine = Engine::new(Settings::default());
    for record in records {
        if let Ok(decoded) = Record::decode(record) {
            let mut again = Vec::new();
            decoded.write(&mut again);
            assert_eq!(&again, record, "{decoded:?}");
            engine.replay(&decoded);
        }
    }
    engine.replayed();
    assert_eq!(engine.lsn(), records.iter().filter(|record| Record::decode(record).is_ok()).count() as u64);
}

/// What an engine writes after some steps.
fn of_engine(input: &mut Input<'_>) -> (u64, Vec<Vec<u8>>) {
    let mut run = Run::new(input);
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
