//! Random sequences of all verbs, compared with a map.

use crate::{Differences, Executor, FIELDS, Fields, Handle, Subject, schema};
use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError, TestRunner},
};
use serval_model::{Outcome, Purpose, Status, Store};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum SequenceStep {
    Read(String, Vec<&'static str>),
    Update(String, Fields),
    Insert(String, Fields),
    Batch(Vec<(String, Fields)>),
    Scan(String, u64, Vec<&'static str>),
    Delete(String),
}

/// Returns whether servers differ in accepting these bytes as text: invalid UTF-8 that
/// starts with a valid first byte. Cassandra accepts lone surrogates, code points above
/// U+10FFFF, and E0 00 80.
fn is_disputed(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_err_and(|error| !matches!(bytes.get(error.valid_up_to()), Some(0x80..=0xBF | 0xF8..)))
}

/// Returns sequences of operations on few keys, so that they conflict.
fn steps() -> impl Strategy<Value = Vec<SequenceStep>> {
    let key = || prop::sample::select(&["a", "ab", "b", "'", "é", "日"][..]).prop_map(String::from);
    let names = || prop::sample::subsequence(&FIELDS[..], 0..=4);
    let value = || {
        prop_oneof![
            Just(Vec::new()),
            ".{0,12}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..12),
        ]
        .prop_filter("servers disagree whether it is text", |bytes| !is_disputed(bytes))
    };
    let some = move || {
        (prop::sample::subsequence(&FIELDS[..], 1..=4), prop::collection::vec(value(), 4))
            .prop_map(|(names, values)| names.into_iter().map(String::from).zip(values).collect::<Fields>())
    };
    let step = prop_oneof![
        (key(), names()).prop_map(|(k, n)| SequenceStep::Read(k, n)),
        (key(), some()).prop_map(|(k, f)| SequenceStep::Update(k, f)),
        (key(), some()).prop_map(|(k, f)| SequenceStep::Insert(k, f)),
        prop::collection::vec((key(), some()), 0..4).prop_map(SequenceStep::Batch),
        (key(), 0..8u64, names()).prop_map(|(k, c, n)| SequenceStep::Scan(k, c, n)),
        key().prop_map(SequenceStep::Delete),
    ];
    prop::collection::vec(step, 0..40)
}

/// Runs random sequences of all verbs and compares each answer with a `BTreeMap`.
pub fn any_sequence_of_operations_agrees_with_a_map<S: Store, E: Executor>(subject: &Subject<S, E>) {
    subject.store.prepare(&schema(), Purpose::Load).unwrap();
    // No file of failures: each run draws new sequences and shrinks failures.
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&steps(), |steps| {
        subject.with_another_client(0, async |client| {
            for key in ["a", "ab", "b", "'", "é", "日"] {
                client.delete(key).await;
            }
            let mut model = BTreeMap::new();
            for step in steps {
                if matches!(step, SequenceStep::Scan(..)) && !subject.scans() {
                    continue;
                }
                agree(client, &mut model, &step, subject.differences).await?;
            }
            Ok(())
        })
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

fn selected(fields: &Fields, names: &[&str]) -> Fields {
    let wanted = fields.iter().filter(|(n, _)| names.is_empty() || names.contains(&n.as_str()));
    wanted.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Checks that a step with a value that the store rejects changes nothing, except for
/// the records of a batch before the value.
async fn refuse<S: Store>(
    client: &mut Handle<S>,
    model: &mut BTreeMap<String, Fields>,
    step: &SequenceStep,
    differences: Differences,
) -> Result<(), TestCaseError> {
    let outcome = match step {
        SequenceStep::Update(key, fields) => {
            let outcome = client.update(key, fields).await;
            // A store may check for the record first.
            if outcome.status == Status::NotFound && !model.contains_key(key) {
                return Ok(());
            }
            outcome
        }
        SequenceStep::Insert(key, fields) => {
            let outcome = client.insert(key, fields).await;
            // A store may check for the key first.
            if outcome.status == Status::Error && model.contains_key(key) {
                return Ok(());
            }
            outcome
        }
        SequenceStep::Batch(records) => {
            let batch: Vec<_> = records.iter().map(|(k, f)| (k.as_str(), f.clone())).collect();
            let outcome = client.insert_batch(&batch).await;
            prop_assert!(!outcome.is_ok(), "{:?}", step);
            for (key, fields) in records {
                if differences.atomic_batch || !differences.takes(fields) {
                    break;
                }
                let (status, after) = differences.insert_existing.after(model.get(key), fields);
                model.insert(key.clone(), after);
                if status != Status::Ok {
                    break;
                }
            }
            return Ok(());
        }
        SequenceStep::Read(..) | SequenceStep::Scan(..) | SequenceStep::Delete(_) => return Ok(()),
    };
    prop_assert_eq!(outcome.status, Status::BadRequest, "{:?}", step);
    Ok(())
}

async fn agree<S: Store>(
    client: &mut Handle<S>,
    model: &mut BTreeMap<String, Fields>,
    step: &SequenceStep,
    differences: Differences,
) -> Result<(), TestCaseError> {
    let refused = match step {
        SequenceStep::Update(_, fields) | SequenceStep::Insert(_, fields) => !differences.takes(fields),
        SequenceStep::Batch(records) => records.iter().any(|(_, fields)| !differences.takes(fields)),
        SequenceStep::Read(..) | SequenceStep::Scan(..) | SequenceStep::Delete(_) => false,
    };
    if refused {
        return refuse(client, model, step, differences).await;
    }
    match step {
        SequenceStep::Read(key, names) => {
            // Some stores cannot distinguish a record without the named fields from no record.
            let expected = model.get(key).map(|fields| selected(fields, names));
            let found = client.read(key, names).await;
            if expected.as_ref().is_some_and(Fields::is_empty) && !differences.empty_records {
                prop_assert!(found.is_none_or(|fields| fields.is_empty()));
            } else {
                prop_assert_eq!(found, expected, "{:?}", step);
            }
        }
        SequenceStep::Update(key, change) => {
            let outcome = client.update(key, change).await;
            if !model.contains_key(key) && differences.update_missing_is_not_found {
                prop_assert_eq!(outcome.status, Status::NotFound, "{:?}", step);
            } else {
                prop_assert_eq!(outcome, Outcome::OK, "{:?}", step);
                model.entry(key.clone()).or_default().extend(change.clone());
            }
        }
        SequenceStep::Insert(key, fields) => {
            let outcome = client.insert(key, fields).await;
            let (status, after) = differences.insert_existing.after(model.get(key), fields);
            prop_assert_eq!(outcome.status, status, "{:?}", step);
            model.insert(key.clone(), after);
        }
        SequenceStep::Batch(records) => {
            let mut after = model.clone();
            let mut expected = Status::Ok;
            for (key, fields) in records {
                let (status, fields) = differences.insert_existing.after(after.get(key), fields);
                after.insert(key.clone(), fields);
                expected = status;
                if expected != Status::Ok {
                    break;
                }
            }
            let batch: Vec<_> = records.iter().map(|(k, f)| (k.as_str(), f.clone())).collect();
            let outcome = client.insert_batch(&batch).await;
            prop_assert_eq!(outcome.is_ok(), expected.is_ok(), "{:?}", step);
            if expected.is_ok() || !differences.atomic_batch {
                *model = after;
            }
        }
        SequenceStep::Scan(start, count, names) => {
            let found = client.scan(start, *count, names).await;
            let limit = *count as usize;
            if differences.ordered_scan {
                let all = model.range(start.clone()..).map(|(_, fields)| selected(fields, names));
                let expected: Vec<_> = all.clone().take(limit).collect();
                // As for a read.
                let visible: Vec<_> = all.filter(|fields| !fields.is_empty()).take(limit).collect();
                if differences.empty_records || found != visible {
                    prop_assert_eq!(found, expected, "{:?}", step);
                }
            } else {
                prop_assert!(found.len() <= limit.min(model.len()), "{:?}", step);
                for fields in found {
                    let known = model.values().any(|other| selected(other, names) == fields);
                    prop_assert!(known, "{:?} found {:?}", step, fields);
                }
            }
        }
        SequenceStep::Delete(key) => {
            let outcome = client.delete(key).await;
            match model.remove(key) {
                Some(_) => prop_assert_eq!(outcome, Outcome::OK, "{:?}", step),
                None => prop_assert!(differences.deletes_nothing(&outcome), "{:?}: {:?}", step, outcome),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_disputed;

    #[test]
    fn disputed_text_is_recognised() {
        let disputed: [&[u8]; 5] =
            [b"\xE0\0\x80", b"a\xF4\x90\x80\x80", b"\xED\xA0\x80", b"\xC0\x80", b"\xE6\x97"];
        assert!(disputed.iter().all(|bytes| is_disputed(bytes)));
        let clear: [&[u8]; 5] = [b"", "日".as_bytes(), b"a\x80", "é\u{fffd}".as_bytes(), b"\xFF\xE0\0\x80"];
        assert!(clear.iter().all(|bytes| !is_disputed(bytes)));
    }
}
