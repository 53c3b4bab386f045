//! How often nodes are asked for, and where to split those that are asked for
//! too often (section 4.2 of the paper).
//!
//! A node counts its accesses of this second and the one before. From the
//! access on that is one too many the keys asked for are sampled; when the
//! second is over, the median of the sample is where the node should be split,
//! so that half of the load goes to either side. A key with most of the load
//! ends in a node of its own.

use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use yesquel_model::{Key, KeyRange, NodeId, limits::KEY_BYTES_MAX};

/// Keys that are sampled of a node in a second.
const SAMPLES_MAX: usize = 128;
/// Fewer tell nothing.
const SAMPLES_MIN: usize = 16;

/// Accesses of this second and the one before, with the second's number: 24
/// bits each, and 16.
#[derive(Debug, Default)]
pub(crate) struct Load(AtomicU64);

const COUNT_MAX: u64 = (1 << 24) - 1;

impl Clone for Load {
    fn clone(&self) -> Load {
        Load(AtomicU64::new(self.0.load(Relaxed)))
    }
}

impl Load {
    fn parts(&self) -> (u16, u64, u64) {
        let all = self.0.load(Relaxed);
        (all as u16, all >> 16 & COUNT_MAX, all >> 40)
    }

    /// Counts an access; how many there were in this second.
    pub(crate) fn touch(&self, second: u16) -> u64 {
        let (known, before, now) = self.parts();
        let (before, now) = match second.wrapping_sub(known) {
            0 => (before, (now + 1).min(COUNT_MAX)),
            1 => (now, 1),
            _ => (0, 1),
        };
        // Threads that read side by side may lose an access: a load that is a
        // few too low is no matter.
        self.0.store(u64::from(second) | before << 16 | now << 40, Relaxed);
        now
    }

    /// Accesses of this second.
    pub(crate) fn now(&self, second: u16) -> u64 {
        let (known, _, now) = self.parts();
        if known == second { now } else { 0 }
    }

    /// Accesses of the last whole second.
    pub(crate) fn rate(&self, second: u16) -> u64 {
        let (known, before, now) = self.parts();
        match second.wrapping_sub(known) {
            0 => before,
            1 => now,
            _ => 0,
        }
    }
}

/// The keys of nodes that are asked for too often.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    nodes: FxHashMap<NodeId, Sample>,
    /// Which second it is.
    pub(crate) second: u16,
}

#[derive(Debug, Default)]
struct Sample {
    keys: Vec<Key>,
    seen: u64,
}

impl Samples {
    /// A node was asked for a key once more, too often.
    pub(crate) fn note(&mut self, node: NodeId, key: &[u8]) {
        let sample = self.nodes.entry(node).or_default();
        sample.seen += 1;
        if sample.keys.len() < SAMPLES_MAX {
            sample.keys.push(key.into());
        } else if sample.seen.is_multiple_of(8) {
            // Spread over the second; which one goes is no matter.
            let at = (sample.seen / 8) as usize % SAMPLES_MAX;
            sample.keys[at] = key.into();
        }
    }

    /// The second is over: the nodes to be split, and where.
    pub(crate) fn take(&mut self, fence: impl Fn(NodeId) -> Option<KeyRange>) -> Vec<(NodeId, Key)> {
        let nodes = std::mem::take(&mut self.nodes);
        let mut splits: Vec<(NodeId, Key)> = nodes
            .into_iter()
            .filter_map(|(node, sample)| Some((node, split_key(sample.keys, &fence(node)?)?)))
            .collect();
        splits.sort_unstable_by_key(|(node, _)| *node);
        splits
    }
}

/// Where half of the load is on either side; `None` where no key is between.
fn split_key(mut keys: Vec<Key>, fence: &KeyRange) -> Option<Key> {
    keys.retain(|key| fence.contains(key));
    if keys.len() < SAMPLES_MIN {
        return None;
    }
    keys.sort_unstable();
    let median = keys.swap_remove(keys.len() / 2);
    if median != fence.low {
        return Some(median);
    }
    // The first key has half of the load: what follows it goes.
    let after = KeyRange::only(&median).high?;
    (after.len() <= KEY_BYTES_MAX && fence.contains(&after)).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_second_is_told() {
        let load = Load::default();
        assert_eq!(load.rate(7), 0);
        for _ in 0..5 {
            load.touch(7);
        }
        assert_eq!((load.rate(7), load.rate(8), load.rate(9)), (0, 5, 0));
        assert_eq!(load.touch(8), 1);
        assert_eq!((load.rate(8), load.rate(9)), (5, 1));
        // The number of the second goes round.
        let load = Load::default();
        load.touch(u16::MAX);
        load.touch(0);
        assert_eq!(load.rate(0), 1);
    }

    fn keys(of: &str) -> Vec<Key> {
        of.bytes().map(|key| Key::from([key])).collect()
    }

    #[test]
    fn a_node_is_split_at_half_of_its_load() {
        let at = |sample: &str, fence: KeyRange| split_key(keys(sample), &fence).map(|key| key.to_vec());
        assert_eq!(at("aaaaaaaabbbbccccdddd", KeyRange::all()), Some(b"b".to_vec()));
        assert_eq!(at("abcdefghijklmnop", KeyRange::all()), Some(b"i".to_vec()));
        // A key that has it all gets a node of its own: first what is below goes,
        // then what is above, and then there is nothing more to be done.
        let hot = "xxxxxxxxxxxxxxxxxxxx";
        assert_eq!(at(hot, KeyRange::all()), Some(b"x".to_vec()));
        assert_eq!(at(hot, KeyRange::from(*b"x")), Some(b"x\0".to_vec()));
        assert_eq!(at(hot, KeyRange::only(b"x")), None);
        assert_eq!(at("abc", KeyRange::all()), None);
    }

    #[test]
    fn a_sample_is_bounded() {
        let (mut samples, node) = (Samples::default(), NodeId::default());
        for number in 0..100_000u32 {
            samples.note(node, &number.to_be_bytes());
        }
        assert_eq!(samples.nodes[&node].keys.len(), SAMPLES_MAX);
        let splits = samples.take(|_| Some(KeyRange::all()));
        assert_eq!(splits.len(), 1);
        assert_eq!(samples.take(|_| Some(KeyRange::all())), []);
    }
}
