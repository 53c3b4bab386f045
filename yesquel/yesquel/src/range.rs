//! Conversion of Rust's range bounds.

use std::ops::{Bound, RangeBounds};
use yesquel_model::{Key, KeyRange};

/// Returns the key range between bounds.
pub(crate) fn range_of<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> KeyRange {
    let after = |key: &[u8]| {
        let mut next = Vec::with_capacity(key.len() + 1);
        next.extend_from_slice(key);
        next.push(0);
        Key::from(next)
    };
    let low = match range.start_bound() {
        Bound::Included(key) => key.as_ref().into(),
        Bound::Excluded(key) => after(key.as_ref()),
        Bound::Unbounded => Key::default(),
    };
    let high = match range.end_bound() {
        Bound::Included(key) => Some(after(key.as_ref())),
        Bound::Excluded(key) => Some(key.as_ref().into()),
        Bound::Unbounded => None,
    };
    KeyRange { low, high }
}
