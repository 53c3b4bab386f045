//! Transactions with another participant, and questions for outcomes.

use super::{OTHER, Run, US, answers::word};
use crate::{
    reference::{Effect, PreparedTxn, Verdict},
    steps::{Do, encode},
};
use yesquel_model::{Conflict, Refusal, Timestamp};
use yesquel_wire::{Decision, Operations, Participants, Reply, Request, TransactionOutcome, Vote};

impl Run {
    pub(super) fn prepare(&mut self, snapshot: usize, writes: &[Do]) {
        let Some(snapshot) = self.pick(snapshot) else { return };
        let writes = self.reference.address(writes, false);
        let bytes = encode(&writes);
        let operations = Operations::decode(&bytes).unwrap();
        let participants = Participants::encode(&[US, OTHER]);
        let participants = Participants::decode(&participants).unwrap();
        let (txn, seen) = (self.txn(), Timestamp::ZERO);
        let verdict = self.reference.judge(snapshot, &writes);
        let too_old = !self.engine.is_kept(snapshot);
        let request = self.send(&Request::Prepare {
            txn,
            birth: self.birth(),
            waits: false,
            snapshot: Some(snapshot),
            seen,
            participants,
            lease: 0,
            staged: None,
            operations,
        });
        let reply = self.one_reply(request);
        match (Reply::decode(&reply).unwrap(), verdict) {
            (Reply::Refused { refusal: Refusal::SnapshotTooOld { .. }, .. }, _) => assert!(too_old),
            (Reply::Voted(at), Verdict::Commits) => {
                assert!(!too_old && at > self.highest);
                self.highest = at;
                let effects = Effect::of_all(&writes);
                self.reference.prepared.push(PreparedTxn { txn, at, effects });
            }
            (
                Reply::Refused { refusal: Refusal::Conflict(Conflict::Prepared { by, .. }), .. },
                Verdict::Waits(waits),
            ) => {
                assert!(waits.contains(&by));
            }
            (Reply::Refused { operation, refusal }, Verdict::Refused(number, why)) => {
                assert_eq!((operation, word(&refusal)), (Some(number), why));
            }
            (reply, verdict) => panic!("{writes:?}: {reply:?}, but should {verdict:?}"),
        }
    }

    pub(super) fn decide(&mut self, which: usize, commit: bool, late: u64, recovery: bool) {
        if self.reference.prepared.is_empty() {
            return;
        }
        let PreparedTxn { txn, at, effects } =
            self.reference.prepared.remove(which % self.reference.prepared.len());
        // The other server's vote may be later.
        let at = Timestamp(at.0 + late);
        if recovery {
            self.engine.recover(self.now, txn, &mut self.effects);
            let asked = std::mem::take(&mut self.effects.vote_queries);
            let [ask] = &asked[..] else { panic!("{asked:?}") };
            assert_eq!((ask.server, ask.txn, &*ask.participants), (OTHER, txn, &[US, OTHER][..]));
            let vote = if commit { Vote::Yes { at, participants: Participants::NONE } } else { Vote::No };
            self.engine.on_vote(self.now, ask, &vote, &mut self.effects);
        } else {
            let decision = if commit { Decision::Commit(at) } else { Decision::Abort };
            let participants = Participants::encode(&[US, OTHER]);
            let participants = Participants::decode(&participants).unwrap();
            let birth = self.birth();
            let request = self.send(&Request::Decide { txn, birth, participants, decision });
            let reply =
                self.effects.replies.iter().position(|reply| reply.caller.request == request).unwrap();
            self.effects.replies.remove(reply);
        }
        self.ended[1].push((txn, if commit { Decision::Commit(at) } else { Decision::Abort }));
        if commit {
            self.highest = self.highest.max(at);
            self.reference.commit(at, effects);
        }
        self.unpark(txn);
    }

    /// Sends a request that writes nothing, as after a lost reply.
    fn reply_to(&mut self, request: &Request<'_>) -> Vec<u8> {
        let number = self.send(request);
        self.one_reply(number)
    }

    pub(super) fn again(&mut self, which: usize, several: bool) {
        let ended = &self.ended[usize::from(several)];
        let Some((txn, decision)) = which.checked_rem(ended.len()).map(|which| ended[which]) else { return };
        let (seen, operations, birth) = (Timestamp::ZERO, Operations::NONE, self.birth());
        let (question, again) = if several {
            let participants = Participants::NONE;
            let prepare = Request::Prepare {
                txn,
                birth,
                waits: false,
                snapshot: None,
                seen,
                participants,
                lease: 0,
                staged: None,
                operations,
            };
            (Request::Resolve { txn, birth, participants, is_voter: false }, prepare)
        } else {
            (
                Request::Outcome { txn, birth },
                Request::Commit { txn, birth, snapshot: None, seen, lease: 0, staged: None, operations },
            )
        };
        let reply = self.reply_to(&question);
        let expected = if several {
            Reply::Vote(Vote::Decided(decision))
        } else {
            Reply::Outcome(TransactionOutcome::Decided(decision))
        };
        assert_eq!(Reply::decode(&reply).unwrap(), expected);
        let reply = self.reply_to(&again);
        let reply = Reply::decode(&reply).unwrap();
        match decision {
            _ if several => assert_eq!(reply, Reply::Vote(Vote::Decided(decision))),
            Decision::Commit(at) => assert_eq!(reply, Reply::Committed(at)),
            Decision::Abort => assert!(given_up(&reply), "{reply:?}"),
        }
    }

    pub(super) fn unborn(&mut self, several: bool) {
        let txn = self.txn();
        let (birth, participants) = (self.birth(), Participants::NONE);
        let question = match several {
            true => Request::Resolve { txn, birth, participants, is_voter: false },
            false => Request::Outcome { txn, birth },
        };
        let reply = self.reply_to(&question);
        let no = [Reply::Vote(Vote::No), Reply::Outcome(TransactionOutcome::Decided(Decision::Abort))];
        assert_eq!(Reply::decode(&reply).unwrap(), no[usize::from(!several)]);
        let (seen, operations) = (Timestamp::ZERO, Operations::NONE);
        let (snapshot, lease, staged, waits) = (None, 0, None, false);
        let request = match several {
            true => Request::Prepare {
                txn,
                birth,
                waits,
                snapshot,
                seen,
                participants,
                lease,
                staged,
                operations,
            },
            false => Request::Commit { txn, birth, snapshot, seen, lease, staged, operations },
        };
        let reply = self.reply_to(&request);
        let reply = Reply::decode(&reply).unwrap();
        assert!(reply == Reply::Vote(Vote::Decided(Decision::Abort)) || given_up(&reply), "{reply:?}");
    }
}

fn given_up(reply: &Reply<'_>) -> bool {
    matches!(reply, Reply::Refused { refusal: Refusal::GivenUp(_), .. })
}
