use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Keys that share their first bytes, or all of them but the length, around the length of a head.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..3u8, 0..12)
}

/// Values of all forms, also empty ones, shorter and longer than the previous ones.
fn value() -> impl Strategy<Value = Option<(Vec<u8>, bool)>> {
    prop::option::weighted(0.8, (prop::collection::vec(any::<u8>(), 0..40), any::<bool>()))
}

#[derive(Debug, Clone)]
enum Step {
    /// Some time later.
    Put(u64, Vec<u8>, Option<(Vec<u8>, bool)>),
    /// So long before the last write.
    Late(u64, Vec<u8>, Option<(Vec<u8>, bool)>),
    /// A range moves to the other node, as in a split.
    Move(Vec<u8>, Vec<u8>),
    /// So long before the last write is the oldest snapshot, and so long after that the next one;
    /// the fence.
    Collect(u64, u64, Vec<u8>, Vec<u8>),
    /// A checkpoint holds the node, so that it is copied.
    Copy,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3u64, key(), value()).prop_map(|(later, key, value)| Step::Put(later, key, value)),
        1 => (1..5u64, key(), value()).prop_map(|(before, key, value)| Step::Late(before, key, value)),
        1 => (key(), key()).prop_map(|(low, high)| Step::Move(low, high)),
        1 => (0..20u64, 0..20u64, key(), key()).prop_map(|(before, between, low, high)| {
            Step::Collect(before, between.saturating_sub(5), low, high)
        }),
        1 => Just(Step::Copy),
    ]
}

type Stored = Option<(Vec<u8>, bool)>;

/// The reference: a map of lists, each key's versions by time.
#[derive(Debug, Default, Clone)]
struct Model(BTreeMap<Vec<u8>, Vec<(u64, Stored)>>);

impl Model {
    fn write(&mut self, key: &[u8], at: u64, value: Stored) {
        let versions = self.0.entry(key.to_vec()).or_default();
        let is_newest = versions.last().is_none_or(|(last, _)| *last <= at);
        if is_newest && versions.last().is_some_and(|(last, _)| *last == at) {
            versions.pop();
        }
        let place =
            if is_newest { versions.len() } else { versions.partition_point(|(known, _)| *known < at) };
        versions.insert(place, (at, value));
    }

    fn end(&mut self, key: &[u8], at: u64) {
        let versions = self.0.get_mut(key).unwrap();
        versions.retain(|(known, _)| *known <= at);
        if versions.last().is_none_or(|(_, value)| value.is_some()) {
            self.write(key, at, None);
        }
    }

    /// Returns the long values that are collected.
    fn collect(&mut self, low: u64, next: u64, now: u64, within: &KeyRange) -> Vec<Vec<u8>> {
        let mut gone = Vec::new();
        for versions in self.0.values_mut() {
            let ends: Vec<u64> = versions.iter().skip(1).map(|(at, _)| *at).chain([u64::MAX]).collect();
            let (mut ends, mut is_first) = (ends.into_iter(), true);
            versions.retain(|(at, value)| {
                let end = ends.next().unwrap();
                // The newest version is always kept, an old deletion only where it hides something.
                let is_seen =
                    std::iter::once(low).chain(next..=now + 1).any(|seen| (*at..end).contains(&seen));
                let is_kept = end == u64::MAX || is_seen && (value.is_some() || !is_first);
                is_first &= !is_kept;
                gone.extend(value.clone().filter(|(_, large)| !is_kept && *large));
                is_kept
            });
        }
        self.0.retain(|key, versions| {
            let ended = if within.contains(key) { low } else { next };
            !matches!(versions[..], [(at, None)] if at <= ended)
        });
        gone.into_iter().map(|(bytes, _)| bytes).collect()
    }

    fn of(cells: &NodeCells) -> Model {
        let stored =
            |value: Option<VersionValue<'_>>| value.map(|value| (value.bytes.to_vec(), value.is_large));
        let versions = |cell: Cell<'_>| {
            let mut versions: Vec<_> = cell.versions().map(|(at, value)| (at.0, stored(value))).collect();
            versions.reverse();
            versions
        };
        Model(cells.iter().map(|cell| (cell.key.to_vec(), versions(cell))).collect())
    }

    fn seen(&self, key: &[u8], at: u64) -> Option<Vec<u8>> {
        let versions = self.0.get(key)?;
        versions.iter().rev().find(|(known, _)| *known <= at)?.1.as_ref().map(|(bytes, _)| bytes.clone())
    }
}

fn put(cells: &mut NodeCells, key: &[u8], at: u64, value: &Stored) {
    let value = value.as_ref().map(|(bytes, is_large)| VersionValue { bytes, is_large: *is_large });
    match cells.find(key) {
        Ok(position) => cells.write(position, Timestamp(at), value),
        Err(position) => cells.insert(position, key, Timestamp(at), value),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Two nodes against two references, through everything that happens to cells.
    #[test]
    fn cells_match_a_map_of_versions(steps in prop::collection::vec(step(), 1..60)) {
        let (mut cells, mut other) = (NodeCells::default(), NodeCells::default());
        let (mut model, mut other_model) = (Model::default(), Model::default());
        // No write has a time below the mark.
        let (mut now, mut low, mut next) = (10, 0, 0);
        for step in steps {
            match step {
                Step::Put(later, key, value) => {
                    now += later;
                    put(&mut cells, &key, now, &value);
                    model.write(&key, now, value);
                }
                Step::Late(before, key, value) => {
                    // Two versions of one time belong to one transaction, which is not late.
                    let at = (now - before).max(low + 1);
                    let known = model.0.get(&key).is_some_and(|versions| versions.iter().any(|(known, _)| *known == at));
                    if at <= now && !known {
                        put(&mut cells, &key, at, &value);
                        model.write(&key, at, value);
                    }
                }
                Step::Move(from, to) => {
                    now += 1;
                    let range = KeyRange::new(from, to);
                    let covered = cells.covered(&range);
                    other.copy(&cells, covered.clone());
                    covered.for_each(|position| cells.end(position, Timestamp(now)));
                    let keys: Vec<_> = model.0.keys().filter(|key| range.contains(key)).cloned().collect();
                    for key in keys {
                        other_model.0.insert(key.clone(), model.0[&key].clone());
                        model.end(&key, now);
                    }
                }
                Step::Collect(before, between, from, to) => {
                    low = low.max(now.saturating_sub(before));
                    next = (low + between).min(now).max(next).max(low);
                    let fence = KeyRange::new(from, to);
                    let readable = Readable { low: Timestamp(low), next: Timestamp(next) };
                    let mut gone = Vec::new();
                    cells.collect(readable, cells.covered(&fence), |_, value| gone.push(value.to_vec()));
                    prop_assert_eq!(gone, model.collect(low, next, now, &fence));
                }
                Step::Copy => {
                    let memory = cells.memory();
                    cells = cells.clone();
                    prop_assert_eq!(cells.memory(), memory);
                }
            }
            prop_assert_eq!((cells.audit(), other.audit()), (Ok(()), Ok(())));
            prop_assert_eq!(&Model::of(&cells).0, &model.0);
            prop_assert_eq!(&Model::of(&other).0, &other_model.0);
            let garbage = model.0.values().any(|versions| versions.len() > 1 || versions[0].1.is_none());
            prop_assert_eq!(cells.has_garbage(), garbage);
        }
        for key in model.0.keys() {
            for at in 0..now + 2 {
                let seen = cells.get(key).and_then(|cell| cell.seen_at(Timestamp(at)));
                prop_assert_eq!(seen.map(|value| value.bytes.to_vec()), model.seen(key, at));
            }
        }
    }

    /// Numbers of any distribution: even, clustered, far apart.
    #[test]
    fn a_search_finds_the_position_of_a_key(
        numbers in prop::collection::vec((any::<u64>(), 0..64u32), 1..200),
        goals in prop::collection::vec((any::<u64>(), 0..64u32), 1..50),
    ) {
        let number = |(number, shift): (u64, u32)| number >> shift;
        let mut sorted: Vec<u64> = numbers.into_iter().map(number).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut cells = NodeCells::default();
        for number in &sorted {
            cells.insert(cells.len(), &number.to_be_bytes(), Timestamp(1), None);
        }
        for goal in goals.into_iter().map(number).chain(sorted.iter().copied()) {
            prop_assert_eq!(cells.find(&goal.to_be_bytes()), sorted.binary_search(&goal));
        }
    }

    #[test]
    fn keys_are_found_singly_and_in_ranges(
        keys in prop::collection::btree_set(key(), 0..80),
        goals in prop::collection::vec(key(), 1..20),
        ends in (key(), key()),
    ) {
        let mut cells = NodeCells::default();
        for key in &keys {
            cells.insert(cells.len(), key, Timestamp(1), Some(VersionValue::whole(b"v")));
        }
        for goal in goals {
            let before = keys.range(..goal.clone()).count();
            let expected = if keys.contains(&goal) { Ok(before) } else { Err(before) };
            prop_assert_eq!(cells.find(&goal), expected);
            prop_assert_eq!(cells.get(&goal).map(|cell| cell.key), keys.get(&goal).map(|key| &key[..]));
        }
        let range = KeyRange::new(ends.0, ends.1);
        let covered: Vec<_> = cells.range(cells.covered(&range)).map(|cell| cell.key.to_vec()).collect();
        let expected: Vec<_> = keys.iter().filter(|key| range.contains(key)).cloned().collect();
        prop_assert_eq!(covered, expected);
    }
}

fn whole(bytes: &[u8]) -> Option<VersionValue<'_>> {
    Some(VersionValue::whole(bytes))
}

#[test]
fn a_cells_overhead_is_small() {
    let mut cells = NodeCells::default();
    let room = |cells: &NodeCells| {
        cells.heads.capacity() * HEAD
            + cells.rows.capacity() * size_of::<VersionRef>()
            + cells.bytes.capacity()
    };
    for number in 0..1_000u64 {
        cells.insert(cells.len(), &number.to_be_bytes(), Timestamp(1), whole(&[7; 100]));
        let count = cells.len();
        assert_eq!(cells.memory(), count * 124);
        assert!(room(&cells) <= count * 124 * 9 / 8 + 4 * 124);
    }
    // Half of them moves away, and their memory with them.
    let mut other = NodeCells::default();
    other.copy(&cells, 0..500);
    assert_eq!(room(&other), other.memory());
    (0..500).for_each(|position| cells.end(position, Timestamp(2)));
    cells.collect(Readable::from(Timestamp(2)), 0..cells.len(), |_, _| {});
    assert_eq!((cells.len(), cells.memory()), (500, 500 * 124));
    assert!(room(&cells) <= 500 * 124 * 9 / 8 + 4 * 124);
}

/// Each growth of a node copies all its bytes: writes of the same cells must not copy much more than
/// they write, and a collection returns the spare capacity.
#[test]
fn rewritten_cells_are_seldom_copied() {
    const VALUE: [u8; 1_000] = [7; 1_000];
    let mut cells = NodeCells::default();
    for number in 0..40u64 {
        cells.insert(cells.len(), &number.to_be_bytes(), Timestamp(1), whole(&VALUE));
    }
    let (mut copied, mut written) = (0, 0);
    for at in 2..400 {
        let (capacity, length) = (cells.bytes.capacity(), cells.bytes.len());
        cells.write(at % 40, Timestamp(at as u64), whole(&VALUE));
        copied += if cells.bytes.capacity() > capacity { length } else { 0 };
        written += VALUE.len();
        assert!(cells.bytes.capacity() <= cells.bytes.len() * 4 / 3 + 2 * VALUE.len());
    }
    assert!(copied <= 6 * written, "{copied} bytes copied, {written} written");
    cells.collect(Readable::from(Timestamp(400)), 0..cells.len(), |_, _| {});
    assert!(cells.bytes.capacity() <= spare(40 * VALUE.len()));
    // Few older versions do not make it worth while to drop their bytes.
    for at in 400..406 {
        cells.write(at % 40, Timestamp(at as u64), whole(&VALUE));
    }
    cells.collect(Readable::from(Timestamp(406)), 0..cells.len(), |_, _| {});
    assert!(cells.dead > 0);
    assert!(cells.bytes.capacity() <= spare(cells.bytes.len()));
    assert_eq!(cells.audit(), Ok(()));
}

#[test]
fn unreferenced_bytes_are_compacted() {
    let mut cells = NodeCells::default();
    for number in 0..10u64 {
        cells.insert(cells.len(), &number.to_be_bytes(), Timestamp(1), whole(b""));
    }
    // Each write is longer than the previous one, and no snapshot sees the previous one.
    for length in 1..2_000 {
        cells.write(length % 10, Timestamp(length as u64 + 1), whole(&vec![7; length]));
        cells.collect(Readable::from(Timestamp(length as u64 + 1)), 0..cells.len(), |_, _| {});
        assert_eq!(cells.audit(), Ok(()));
        assert!(cells.dead * 4 <= cells.bytes.len());
    }
}

#[test]
fn versions_can_arrive_late() {
    let mut cells = NodeCells::default();
    cells.insert(0, b"key", Timestamp(1), whole(b"a"));
    cells.write(0, Timestamp(8), None);
    cells.write(0, Timestamp(5), whole(b"b"));
    let seen = [0, 1, 5, 8].map(|at| cells.cell(0).seen_at(Timestamp(at)));
    assert_eq!(seen, [None, whole(b"a"), whole(b"b"), None]);
}

#[test]
fn two_writes_of_a_transaction_are_one_version() {
    let mut cells = NodeCells::default();
    cells.insert(0, b"key", Timestamp(1), whole(b"a"));
    cells.write(0, Timestamp(2), whole(b"b"));
    cells.write(0, Timestamp(2), None);
    let versions: Vec<_> = cells.cell(0).versions().collect();
    assert_eq!(versions, [(Timestamp(2), None), (Timestamp(1), whole(b"a"))]);
}

#[test]
fn a_cell_ended_before_its_first_version_has_only_its_end() {
    let mut cells = NodeCells::default();
    cells.insert(0, b"key", Timestamp(8), whole(b"a"));
    cells.end(0, Timestamp(6));
    assert_eq!(cells.cell(0).versions().collect::<Vec<_>>(), [(Timestamp(6), None)]);
}
