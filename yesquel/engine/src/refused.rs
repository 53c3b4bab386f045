//! Numbers that were refused: a copy of the request on the same connection gets the same refusal.
//! A refusal leaves no record, and its client goes on under another number: if a copy could be
//! voted yes, what the client took for refused could commit.

use crate::effects::{Caller, OWN_CONNECTION};
use std::collections::{BTreeMap, VecDeque};
use yesquel_model::{Refusal, TxnId};

/// Refusals kept for a client on a connection. Numbers of older ones are covered.
const KEPT: usize = 64;

/// A refusal, with the operation that it concerns.
pub(crate) type KeptRefusal = (Option<u64>, Refusal);

/// The refused numbers of a client on a connection.
#[derive(Debug, Default)]
struct RefusedOfClient {
    /// The newest at the end.
    latest: VecDeque<(u64, KeptRefusal)>,
    highest: u64,
    /// Numbers up to it take no vote here, unless they are among the latest.
    covered: u64,
}

/// Refused numbers by connection and client.
#[derive(Debug, Default)]
pub(crate) struct RefusedNumbers(BTreeMap<(u64, u64), RefusedOfClient>);

impl RefusedNumbers {
    /// Returns the refusal that the first copy of a request got.
    pub(crate) fn refusal(&self, caller: Caller, txn: TxnId) -> Option<KeptRefusal> {
        let of = self.0.get(&(caller.connection, txn.client)).filter(|of| txn.number <= of.highest)?;
        of.latest.iter().find(|(number, _)| *number == txn.number).map(|(_, refusal)| *refusal)
    }

    /// Whether a number takes no vote on a connection any more. It may have an end.
    pub(crate) fn covers(&self, connection: u64, txn: TxnId) -> bool {
        self.0.get(&(connection, txn.client)).is_some_and(|of| txn.number <= of.covered)
    }

    /// Notes a refusal.
    pub(crate) fn note(&mut self, caller: Caller, txn: TxnId, refusal: KeptRefusal) {
        // Calls of the own process come once.
        if caller.connection == OWN_CONNECTION || self.refusal(caller, txn).is_some() {
            return;
        }
        let of = self.0.entry((caller.connection, txn.client)).or_default();
        of.highest = of.highest.max(txn.number);
        of.latest.push_back((txn.number, refusal));
        if of.latest.len() > KEPT
            && let Some((number, _)) = of.latest.pop_front()
        {
            of.covered = of.covered.max(number);
        }
    }

    /// Forgets the numbers of a connection, which has ended.
    pub(crate) fn disconnected(&mut self, connection: u64) {
        self.0.retain(|(other, _), _| *other != connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_refusals_become_covered_numbers_of_their_connection_and_client() {
        let mut refused = RefusedNumbers::default();
        let caller = |connection| Caller { connection, request: 1 };
        let txn = |client, number| TxnId { client, number };
        let refusal = (Some(2), Refusal::OutOfMemory);
        for number in 1..=KEPT as u64 + 3 {
            refused.note(caller(1), txn(7, 2 * number), refusal);
            // A copy is refused again, and changes nothing.
            refused.note(caller(1), txn(7, 2 * number), refusal);
            refused.note(caller(OWN_CONNECTION), txn(8, 2 * number), refusal);
        }
        assert_eq!(refused.refusal(caller(1), txn(7, 8)), Some(refusal));
        assert!(!refused.covers(1, txn(7, 8)));
        // Of the three oldest it is only known that they take no vote.
        assert_eq!(refused.refusal(caller(1), txn(7, 6)), None);
        assert!(refused.covers(1, txn(7, 6)) && refused.covers(1, txn(7, 5)));
        assert_eq!(refused.refusal(caller(1), txn(7, 9)), None);
        assert_eq!(refused.refusal(caller(2), txn(7, 8)), None);
        assert!(!refused.covers(2, txn(7, 6)) && !refused.covers(1, txn(9, 6)));
        assert_eq!(refused.refusal(caller(OWN_CONNECTION), txn(8, 8)), None);
        refused.disconnected(1);
        assert!(refused.0.is_empty());
    }
}
