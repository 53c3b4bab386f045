//! Spare numbers of issuers. A group takes them from the home group in advance, and gives them out
//! while the home group cannot be reached.
//!
//! The group's tree with number zero says which numbers the group has, and a counter of the group which
//! of them it has given out. The counter only rises, and each range is above the ones before, so that no
//! number is given out twice, also to clients that know a former range.

use crate::{ISSUER_NUMBERS, Tree, TreeError, Trees, numbers};
use std::sync::{Mutex, MutexGuard, PoisonError};
use yesquel_model::{LocalId, NodeId, ServerId, TreeId};
use yesquel_transport::Transport;

/// Key of the range that a group has, in its tree with number zero.
const SPARE_NUMBERS_KEY: &[u8] = b"i";
/// Counter of the numbers that the group has given out.
const SPARE_NUMBERS: LocalId = LocalId(3);
/// Numbers of a range, one for each process that writes long values while the home group is down, and one
/// more for each 65,536 nodes of them. Of 2^48 numbers a machine has few in advance.
const SPARES: u64 = 1 << 16;

/// The numbers that a group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SpareRange {
    first: u64,
    end: u64,
}

impl SpareRange {
    /// Decodes a value that any client may have written.
    fn decode(value: &[u8]) -> Option<SpareRange> {
        let ([first, end], []) = value.as_chunks() else { return None };
        let [first, end] = [first, end].map(|bytes| u64::from_be_bytes(*bytes));
        (first > 0 && first < end).then_some(SpareRange { first, end })
    }

    fn encode(self) -> Vec<u8> {
        [self.first.to_be_bytes(), self.end.to_be_bytes()].concat()
    }
}

/// Where a client takes spare numbers.
#[derive(Debug, Default)]
pub(crate) struct SpareSource(Mutex<Option<ServerId>>);

impl SpareSource {
    fn group(&self) -> MutexGuard<'_, Option<ServerId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tree_of(group: ServerId) -> Tree {
    Tree::at(NodeId::root(TreeId::default(), group))
}

fn counter_of(group: ServerId) -> NodeId {
    NodeId { tree: TreeId::default(), server: group, local: SPARE_NUMBERS }
}

impl<T: Transport> Trees<T> {
    /// Lets the client take numbers for new nodes from those that a group has in advance; `None`: from
    /// the home group.
    pub fn use_spare_numbers(&self, group: Option<ServerId>) {
        *self.spare_source.group() = group;
    }

    /// Takes a number for an issuer from the chosen group; `None`: none was chosen, or the group has none
    /// left.
    pub(crate) async fn spare_number(&self) -> Result<Option<u64>, TreeError> {
        let chosen = *self.spare_source.group();
        let Some(group) = chosen else { return Ok(None) };
        let found = self.get(tree_of(group), SPARE_NUMBERS_KEY).await?;
        let Some(range) = found.and_then(|value| SpareRange::decode(&value)) else { return Ok(None) };
        let number = self.client.take(counter_of(group), 1, range.first - 1).await?;
        // A range that was replaced meanwhile is below the number: this one is lost.
        Ok((number < range.end).then_some(number))
    }

    /// Takes spare numbers from the home group for a group of this machine if less than half of a range
    /// is left. The catalog of the group must exist. Returns whether it has taken some.
    pub async fn stock_spare_numbers(&self, group: ServerId) -> Result<bool, TreeError> {
        let found = self.get(tree_of(group), SPARE_NUMBERS_KEY).await?;
        let known = found.and_then(|value| SpareRange::decode(&value));
        let next = self.client.take(counter_of(group), 0, 0).await?;
        if known.is_some_and(|known| known.end.saturating_sub(next.max(known.first)) > SPARES / 2) {
            return Ok(false);
        }
        let first = self.client.take(numbers::counter(&self.client, ISSUER_NUMBERS), SPARES, 0).await?;
        let range = SpareRange { first, end: first.saturating_add(SPARES) };
        let mut transaction = self.begin();
        transaction.put(tree_of(group), SPARE_NUMBERS_KEY, &range.encode())?;
        transaction.commit().await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_checked() {
        let range = SpareRange { first: 7, end: 9 };
        assert_eq!(SpareRange::decode(&range.encode()), Some(range));
        for wrong in [&[][..], &[0; 16], &[1; 16], &range.encode()[1..]] {
            assert_eq!(SpareRange::decode(wrong), None, "{wrong:?}");
        }
    }
}
