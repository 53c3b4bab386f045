//! The outcomes of transactions by the servers' logs, and the laws of two-phase commit on them.

use crate::cluster::LogFact;
use std::collections::{BTreeMap, BTreeSet};
use yesquel_model::{ServerId, Timestamp, TxnId};
use yesquel_wire::Decision;

/// Commit time of each transaction in any of the logs, `None` for an aborted one.
///
/// # Panics
///
/// If a transaction commits twice, if servers that voted disagree or have no outcome, or if one
/// commits without the vote of a participant.
pub fn outcomes(logs: &[Vec<LogFact>]) -> BTreeMap<TxnId, Option<Timestamp>> {
    let mut outcomes: BTreeMap<TxnId, Option<Timestamp>> = BTreeMap::new();
    let mut voters: BTreeMap<TxnId, BTreeSet<usize>> = BTreeMap::new();
    let mut participants_of: BTreeMap<TxnId, &[ServerId]> = BTreeMap::new();
    for (server, log) in logs.iter().enumerate() {
        let mut voted: BTreeMap<TxnId, Option<Decision>> = BTreeMap::new();
        for fact in log {
            match fact {
                LogFact::Committed(txn, at) => {
                    let old = outcomes.insert(*txn, Some(*at));
                    assert_eq!(old, None, "{txn} committed twice");
                }
                LogFact::VotedYes(txn, participants) => {
                    voted.entry(*txn).or_default();
                    participants_of.insert(*txn, participants);
                }
                // A decision about a forgotten transaction changes nothing.
                LogFact::Decided(txn, decision) => {
                    if let Some(known) = voted.get_mut(txn) {
                        known.get_or_insert(*decision);
                    }
                }
            }
        }
        for (txn, decision) in voted {
            voters.entry(txn).or_default().insert(server);
            let Some(decision) = decision else { panic!("{txn} has no outcome at server {server}") };
            let outcome = match decision {
                Decision::Commit(at) => Some(at),
                Decision::Abort => None,
            };
            let old = outcomes.insert(txn, outcome);
            assert!(
                old.is_none_or(|old| old == outcome),
                "{txn} ended as {old:?} and, at server {server}, as {outcome:?}"
            );
        }
    }
    for (txn, participants) in participants_of {
        let missing = participants.iter().find(|server| !voters[&txn].contains(&usize::from(server.0)));
        let committed = outcomes.get(&txn).copied().flatten();
        assert!(
            committed.is_none() || missing.is_none(),
            "{txn} committed at {committed:?} without the vote of {missing:?}"
        );
    }
    outcomes
}
