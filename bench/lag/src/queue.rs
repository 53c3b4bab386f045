//! The way of sampled keys from producers to consumers. Neither waits for it.

use crate::journal::Item;
use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Bytes of a key, and of a field's name, that a queue carries at most.
pub const NAME_MAX: usize = 1024;

/// Takes items at one end and gives them at the other. Both ends return at once.
pub trait Queue: Send + Sync + fmt::Debug {
    /// Takes an item; false if it cannot.
    fn offer(&self, item: Item) -> bool;

    /// The next item, if there is one now.
    fn take(&self) -> Option<Item>;

    /// Whether it is known that all that was put into it before the first such question has been
    /// taken, by anybody. Returns at once; what is not known now may be later.
    fn drained(&self) -> bool;

    /// How many items it gave up after it had taken them.
    fn dropped(&self) -> u64 {
        0
    }

    /// How many items were there before this process began to take from it.
    fn earlier(&self) -> u64 {
        0
    }

    /// How many things in it were none of ours.
    fn foreign(&self) -> u64 {
        0
    }

    /// Waits until it has carried all that it took, so long at most.
    fn flush(&self, within: Duration) {
        let _ = within;
    }

    /// In words, for results.
    fn describe(&self) -> String;
}

/// A queue in memory, for producers and consumers of one process.
#[derive(Debug)]
pub struct InMemory {
    items: Mutex<VecDeque<Item>>,
    max: usize,
}

impl InMemory {
    /// A queue of so many items at most.
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

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}

/// An item as bytes, for queues outside of the process: JSON.
pub fn encode(item: &Item) -> Option<Vec<u8>> {
    if item.key.len() > NAME_MAX || item.field.len() > NAME_MAX {
        return None;
    }
    serde_json::to_vec(item).ok()
}

/// The item of bytes that anybody may have written.
pub fn decode(bytes: &[u8]) -> Option<Item> {
    // JSON may write a character as six.
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
    fn what_does_not_fit_is_refused_and_order_is_kept() {
        let queue = InMemory::new(2);
        assert_eq!(["a", "b", "c"].map(|key| queue.offer(item(key))), [true, true, false]);
        assert_eq!(queue.take().map(|item| item.key), Some("a".to_owned()));
        assert!(queue.offer(item("d")));
        let rest: Vec<String> = std::iter::from_fn(|| queue.take()).map(|item| item.key).collect();
        assert_eq!(rest, ["b", "d"]);
    }

    #[test]
    fn bytes_of_others_are_looked_at() {
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
