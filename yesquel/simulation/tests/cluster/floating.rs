//! Reads of watched leaves by transactions without a snapshot.

use crate::reference::{Attempt, Effect, History, Observation, State, apply};
use std::collections::BTreeMap;
use yesquel_model::Timestamp;

/// Reads of transactions that have ended without a snapshot, by transaction: there must be a time at
/// which all reads of one are right.
#[derive(Default)]
pub(crate) struct FloatingReads<'a> {
    open: BTreeMap<usize, Vec<&'a Observation>>,
    /// The place of each transaction among those whose commits were acknowledged.
    places: BTreeMap<usize, usize>,
    /// What was wrong at the last time.
    wrong: BTreeMap<usize, String>,
}

impl<'a> FloatingReads<'a> {
    pub(crate) fn new(
        history: &History,
        observations: impl Iterator<Item = &'a Observation>,
    ) -> FloatingReads<'a> {
        let places = history.committed.iter().enumerate().map(|(place, number)| (*number, place));
        let mut reads = FloatingReads { places: places.collect(), ..FloatingReads::default() };
        observations.for_each(|one| reads.open.entry(one.attempt).or_default().push(one));
        reads
    }

    /// Compares the reads with a state, and drops those that it explains. `later`: the commits after
    /// it, in their order.
    ///
    /// The state is not before a commit that was acknowledged at the transaction's server, or that a
    /// client has read there, before the first read. Of several servers' commits, those acknowledged
    /// before may be later than what the server has given out since. They are seen, too: the client
    /// got the notice of the vote.
    pub(crate) fn check(
        &mut self,
        history: &History,
        state: &State,
        later: &[(Timestamp, usize)],
        sent: &[Vec<Effect>],
    ) {
        let FloatingReads { open, places, wrong } = self;
        open.retain(|number, observations| {
            let Attempt { first, floating: Some(server), .. } = &history.attempts[*number] else {
                return true;
            };
            let least = first.acknowledged.get(server).copied().unwrap_or_default();
            if later.first().is_some_and(|(next, _)| *next <= least) {
                return true;
            }
            let is_acknowledged = |other| places.get(other).is_some_and(|place| *place < first.commits);
            let mut seen = None;
            for (_, other) in later.iter().filter(|(_, other)| is_acknowledged(other)) {
                let here = |effect| history.attempts[*other].sent_there(*server, effect);
                for effect in sent[*other].iter().flat_map(here) {
                    apply(seen.get_or_insert_with(|| state.clone()), &effect);
                }
            }
            let state = seen.as_ref().unwrap_or(state);
            match observations.iter().try_for_each(|observation| observation.agrees(state)) {
                Ok(()) => false,
                Err(what) => {
                    wrong.insert(*number, what);
                    true
                }
            }
        });
    }

    /// Checks that all reads were explained.
    pub(crate) fn end(&self, history: &History) {
        if let Some((number, observations)) = self.open.first_key_value() {
            let (attempt, wrong) = (&history.attempts[*number], self.wrong.get(number));
            panic!("{attempt:?} has read no snapshot: {wrong:?}, in {observations:?}");
        }
    }
}
