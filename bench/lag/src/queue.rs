//! Queue of sampled keys between producers and consumers. Neither end blocks.

use crate::journal::Item;
use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, PoisonError},
};

/// Maximum length of a key, and of a field's name, in a queue, bytes.
pub const NAME_MAX: usize = 1024;

/// A queue of items. No method blocks.
pub trait Queue: Send + Sync + fmt::Debug {
    /// Offers an item. Returns false if the queue cannot accept it.
    fn offer(&self, item: Item) -> bool;

    /// Takes the next available item.
    fn take(&self) -> Option<Item>;

    /// Returns whether all items that were offered before the first call have been taken, by any
    /// process. False may mean that it is not known yet.
    fn drained(&self) -> bool;
}

/// A queue in memory, for producers and consumers of one process.
#[derive(Debug)]
pub struct InMemory {
    items: Mutex<VecDeque<Item>>,
    max: usize,
}

impl InMemory {
    /// Returns a queue of at most `max` items.
    pub fn new(max: usize) -> InMemory {
        InMemory { items: Mutex::default(), max }
    }
}

impl Queue for InMemory {
    fn offer(&self, item: Item) -> bool {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = items.len() < self.max;
        if fits {
            items.push_back(item);
        }
        fits
    }

    fn take(&self) -> Option<Item> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn drained(&self) -> bool {
        self.items.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// Encodes an item as JSON, for queues outside the process.
pub fn encode(item: &Item) -> Option<Vec<u8>> {
    if item.key.len() > NAME_MAX || item.field.len() > NAME_MAX {
        return None;
    }
    serde_json::to_vec(item).ok()
}

/// Decodes an item from bytes that any program may have written.
pub fn decode(bytes: &[u8]) -> Option<Item> {
    // JSON may escape a character as six.
    if bytes.len() > 16 * NAME_MAX {
        return None;
    }
    let item: Item = serde_json::from_slice(bytes).ok()?;
    let short = item.key.len() <= NAME_MAX && item.field.len() <= NAME_MAX;
    (short && item.sent <= item.acknowledged).then_some(item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{journal::WriteKind, stamp::Stamp};

    fn item(key: &str) -> Item {
        Item {
            key: key.to_owned(),
            field: "field0".to_owned(),
            stamp: Stamp { writer: 1, version: 2 },
            kind: WriteKind::Insert,
            client: 0,
            sent: 5,
            acknowledged: 7,
        }
    }

    #[test]
    fn items_beyond_the_capacity_are_refused_and_order_is_kept() {
        let queue = InMemory::new(2);
        assert_eq!(["a", "b", "c"].map(|key| queue.offer(item(key))), [true, true, false]);
        assert_eq!(queue.take().map(|item| item.key), Some("a".to_owned()));
        assert!(queue.offer(item("d")));
        let rest: Vec<String> = std::iter::from_fn(|| queue.take()).map(|item| item.key).collect();
        assert_eq!(rest, ["b", "d"]);
    }

    #[test]
    fn foreign_bytes_are_validated() {
        let whole = encode(&item("user\u{1}ä")).unwrap();
        assert_eq!(decode(&whole), Some(item("user\u{1}ä")));
        let text = String::from_utf8(encode(&item("user")).unwrap()).unwrap();
        for bad in [
            String::new(),
            "user17".to_owned(),
            text.replace("\"sent\":5", "\"sent\":8"),
            text.replace("user", &"x".repeat(NAME_MAX + 1)),
            text.replace("user", &"x".repeat(20 * NAME_MAX)),
            text.replace("insert", "upsert"),
        ] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad:.40}");
        }
        assert_eq!(encode(&item(&"x".repeat(NAME_MAX + 1))), None);
    }
}
