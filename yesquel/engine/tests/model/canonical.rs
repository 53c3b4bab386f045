//! Comparison of engines by their canonical forms.

use yesquel_engine::{Engine, LogRecord};

/// The records of a canonical form that another one does not have.
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
pub(crate) fn same(what: &str, made: &Engine, live: &Engine) {
    let (made, live) = (made.canonical(), live.canonical());
    if made != live {
        let (more, less) = (records_beyond(&made, &live), records_beyond(&live, &made));
        panic!("{what}: there is {more:#?} and not {less:#?}");
    }
}
