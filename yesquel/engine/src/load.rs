//! The load of nodes, and where to split nodes over the limit (section 4.2 of the paper).
//!
//! A node counts its accesses in this second and the previous one. Once the count exceeds the
//! limit, the keys of further accesses are sampled. At the end of the second the median of the
//! sample is the split key, so that half of the load goes to either side. A key with most of the
//! load ends up in a node of its own.

use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use yesquel_model::{Key, KeyRange, NodeId, limits::KEY_BYTES_MAX};

/// Sampled keys of a node in a second.
const SAMPLES_MAX: usize = 128;
/// Fewer samples are not significant.
const SAMPLES_MIN: usize = 16;

/// Accesses in this second and the previous one, 24 bits each, and the number of the second, 16
/// bits.
#[derive(Debug, Default)]
pub(crate) struct NodeLoad(AtomicU64);

const COUNT_MAX: u64 = (1 << 24) - 1;

impl Clone for NodeLoad {
    fn clone(&self) -> NodeLoad {
        NodeLoad(AtomicU64::new(self.0.load(Relaxed)))
    }
}

impl NodeLoad {
    fn parts(&self) -> (u16, u64, u64) {
        let all = self.0.load(Relaxed);
        (all as u16, all >> 16 & COUNT_MAX, all >> 40)
    }

    /// Counts an access. Returns the count of this second.
    pub(crate) fn touch(&self, second: u16) -> u64 {
        let (known, before, now) = self.parts();
        let (before, now) = match second.wrapping_sub(known) {
            0 => (before, (now + 1).min(COUNT_MAX)),
            1 => (now, 1),
            _ => (0, 1),
        };
        // Concurrent readers may lose a few accesses, which does not matter.
        self.0.store(u64::from(second) | before << 16 | now << 40, Relaxed);
        now
    }

    /// Accesses in this second.
    pub(crate) fn now(&self, second: u16) -> u64 {
        let (known, _, now) = self.parts();
        if known == second { now } else { 0 }
    }

    /// Accesses in the last whole second.
    pub(crate) fn rate(&self, second: u16) -> u64 {
        let (known, before, now) = self.parts();
        match second.wrapping_sub(known) {
            0 => before,
            1 => now,
            _ => 0,
        }
    }
}

/// Sampled keys of the nodes over the load limit.
#[derive(Debug, Default)]
pub(crate) struct HotKeySamples {
    nodes: FxHashMap<NodeId, LoadSample>,
    /// Number of the second.
    pub(crate) second: u16,
}

#[derive(Debug, Default)]
struct LoadSample {
    keys: Vec<Key>,
    seen: u64,
}

impl HotKeySamples {
    /// Samples an access of a node over the limit.
    pub(crate) fn note(&mut self, node: NodeId, key: &[u8]) {
        let sample = self.nodes.entry(node).or_default();
        sample.seen += 1;
        if sample.keys.len() < SAMPLES_MAX {
            sample.keys.push(key.into());
        } else if sample.seen.is_multiple_of(8) {
            // Spreads the sample over the second; which key is replaced does not matter.
            let at = (sample.seen / 8) as usize % SAMPLES_MAX;
            sample.keys[at] = key.into();
        }
    }

    /// Ends the second: returns the nodes to split, and the split keys.
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

/// The key with half of the load on either side; `None` if no key divides the node.
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
    // The first key has half of the load: everything after it moves.
    let after = KeyRange::single(&median).high?;
    (after.len() <= KEY_BYTES_MAX && fence.contains(&after)).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_that_of_the_last_whole_second() {
        let load = NodeLoad::default();
        assert_eq!(load.rate(7), 0);
        for _ in 0..5 {
            load.touch(7);
        }
        assert_eq!((load.rate(7), load.rate(8), load.rate(9)), (0, 5, 0));
        assert_eq!(load.touch(8), 1);
        assert_eq!((load.rate(8), load.rate(9)), (5, 1));
        // The number of the second wraps around.
        let load = NodeLoad::default();
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
        // A key with all the load gets a node of its own: first the keys below move away, then
        // those above, and then nothing is left to do.
        let hot = "xxxxxxxxxxxxxxxxxxxx";
        assert_eq!(at(hot, KeyRange::all()), Some(b"x".to_vec()));
        assert_eq!(at(hot, KeyRange::from(*b"x")), Some(b"x\0".to_vec()));
        assert_eq!(at(hot, KeyRange::single(b"x")), None);
        assert_eq!(at("abc", KeyRange::all()), None);
    }

    #[test]
    fn a_sample_is_bounded() {
        let (mut samples, node) = (HotKeySamples::default(), NodeId::default());
        for number in 0..100_000u32 {
            samples.note(node, &number.to_be_bytes());
        }
        assert_eq!(samples.nodes[&node].keys.len(), SAMPLES_MAX);
        let splits = samples.take(|_| Some(KeyRange::all()));
        assert_eq!(splits.len(), 1);
        assert_eq!(samples.take(|_| Some(KeyRange::all())), []);
    }
}
