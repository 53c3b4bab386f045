//! Checks replies, at once or after a wait.

use super::Run;
use crate::{
    reference::{Effect, Verdict},
    steps::{Do, KEYS, key},
};
use yesquel_model::{Conflict, KeyRange, NodeId, Refusal, Timestamp, TxnId};
use yesquel_wire::{
    Answer, ByteWriter, CellValue, Decision, Direction, Question, Questions, Reply, Request, Scan,
};

#[derive(Debug, Clone)]
pub(super) enum SentRequest {
    Read { snapshot: Timestamp, node: NodeId, key: Vec<u8> },
    Scan { snapshot: Timestamp, node: NodeId, scan: Scan },
    Commit { txn: TxnId, snapshot: Option<Timestamp>, writes: Vec<(NodeId, Do)> },
}

impl Run {
    /// Checks a reply, or that no reply is due.
    fn settle(&mut self, request: u64, asked: SentRequest, reply: Option<&[u8]>) {
        let reply = reply.map(|bytes| Reply::decode(bytes).unwrap());
        let is_too_old = |snapshot: Timestamp| !self.engine.is_kept(snapshot);
        match &asked {
            SentRequest::Read { snapshot, .. } | SentRequest::Scan { snapshot, .. }
                if is_too_old(*snapshot) =>
            {
                let refused =
                    matches!(reply, Some(Reply::Refused { refusal: Refusal::SnapshotTooOld { .. }, .. }));
                assert!(refused, "{asked:?}: {reply:?}");
            }
            SentRequest::Commit { snapshot: Some(snapshot), .. } if is_too_old(*snapshot) => {
                let refused =
                    matches!(reply, Some(Reply::Refused { refusal: Refusal::SnapshotTooOld { .. }, .. }));
                assert!(refused, "{asked:?}: {reply:?}");
            }
            SentRequest::Read { snapshot, node, key } => {
                let fence = self.reference.fence_of(*snapshot, *node).filter(|fence| fence.contains(key));
                let waits =
                    self.reference.waits_for(*snapshot, &KeyRange::single(key)).filter(|_| fence.is_some());
                let Some(reply) = reply else { return self.park(request, asked.clone(), waits) };
                assert_eq!(waits, None, "{asked:?}: {reply:?}");
                let Reply::Answers { snapshot: at, answers } = reply else { panic!("{asked:?}: {reply:?}") };
                assert_eq!(at, *snapshot);
                let value = self.reference.seen(*snapshot, key).map(|value| [value]);
                let expected = match (&fence, &value) {
                    // The new place is only a hint.
                    (None, _) => {
                        let answers: Vec<_> = answers.iter().collect();
                        assert!(matches!(answers[..], [Answer::Moved(_)]), "{asked:?}: {answers:?}");
                        return;
                    }
                    (_, None) => Answer::Absent,
                    (_, Some(value)) => Answer::Value(value),
                };
                assert_eq!(answers.iter().collect::<Vec<_>>(), [expected], "{asked:?}");
            }
            SentRequest::Scan { snapshot, node, scan } => {
                let fence = self.reference.fence_of(*snapshot, *node);
                let covered = fence.as_ref().map(|fence| scan.range.intersection(fence));
                let waits = covered.as_ref().and_then(|covered| self.reference.waits_for(*snapshot, covered));
                let Some(reply) = reply else { return self.park(request, asked.clone(), waits) };
                assert_eq!(waits, None, "{asked:?}: {reply:?}");
                let Reply::Answers { answers, .. } = reply else { panic!("{asked:?}: {reply:?}") };
                let all: Vec<_> = answers.iter().collect();
                let (Some(fence), Some(covered)) = (fence, covered) else {
                    assert_eq!(all, [Answer::Moved(None)]);
                    return;
                };
                let [Answer::Cells(cells)] = &all[..] else { panic!("{asked:?}: {all:?}") };
                assert_eq!(cells.fence, fence);
                let mut keys: Vec<Vec<u8>> = (0..KEYS).map(key).filter(|key| covered.contains(key)).collect();
                keys.sort();
                if scan.direction == Direction::Down {
                    keys.reverse();
                }
                let seen =
                    keys.iter().filter_map(|key| Some((key.clone(), self.reference.seen(*snapshot, key)?)));
                let seen: Vec<_> = seen.collect();
                assert_eq!(cells.more, seen.len() as u64 > scan.cells_max, "{asked:?}");
                let found: Vec<(Vec<u8>, u8)> = cells
                    .iter()
                    .map(|(key, value)| match value {
                        CellValue::Bytes([value]) => (key.to_vec(), *value),
                        other => panic!("{other:?}"),
                    })
                    .collect();
                assert_eq!(found, seen[..seen.len().min(scan.cells_max as usize)], "{asked:?}");
            }
            SentRequest::Commit { txn, snapshot, writes } => {
                let verdict = self.reference.judge(snapshot.unwrap_or(Timestamp::MAX), writes);
                match (reply, verdict) {
                    (None, Verdict::Waits(waits)) => self.park(request, asked.clone(), Some(waits)),
                    (Some(Reply::Committed(at)), Verdict::Commits) => {
                        assert!(at > self.highest, "{at} is not above {}", self.highest);
                        self.highest = at;
                        let effects = Effect::of_all(writes);
                        self.ended[0].push((*txn, Decision::Commit(at)));
                        self.reference.commit(at, effects);
                    }
                    (Some(Reply::Refused { operation, refusal }), Verdict::Refused(number, why)) => {
                        assert_eq!(operation, Some(number), "{asked:?}: {refusal:?}");
                        assert_eq!(word(&refusal), why, "{asked:?}: {refusal:?}");
                    }
                    (reply, verdict) => panic!("{asked:?}: {reply:?}, but should {verdict:?}"),
                }
            }
        }
    }

    fn park(&mut self, request: u64, asked: SentRequest, waits: Option<Vec<TxnId>>) {
        let waits = waits.unwrap_or_else(|| panic!("{asked:?} waits for no transaction"));
        self.parked.push((request, waits, asked));
    }

    pub(super) fn ask(&mut self, request: &Request<'_>, asked: SentRequest) {
        let number = self.send(request);
        let replies = self.replies();
        assert!(replies.len() <= 1);
        let reply = replies.first().map(|(answered, bytes)| {
            assert_eq!(*answered, number);
            bytes.as_slice()
        });
        self.settle(number, asked, reply);
    }

    pub(super) fn question(&mut self, snapshot: Timestamp, question: &Question<'_>, asked: SentRequest) {
        let mut bytes = Vec::new();
        question.write(&mut ByteWriter(&mut bytes));
        let questions = Questions::decode(&bytes).unwrap();
        self.ask(&Request::Read { snapshot: Some(snapshot), seen: Timestamp::ZERO, questions }, asked);
    }

    /// Checks the replies of parked requests: each must be right at the time it arrives.
    pub(super) fn unpark(&mut self, decided: TxnId) {
        // Answered requests took effect in the order of the replies.
        for (request, reply) in self.replies() {
            let position = self.parked.iter().position(|(parked, ..)| *parked == request);
            let (_, _, asked) = self.parked.remove(position.expect("a waiting request"));
            self.settle(request, asked, Some(&reply));
        }
        for (request, mut waits, asked) in std::mem::take(&mut self.parked) {
            waits.retain(|txn| *txn != decided);
            if waits.is_empty()
                && let SentRequest::Commit { writes, .. } = &asked
            {
                // It was checked between the ones above, which may conflict with it now; it keeps
                // waiting if it conflicts with one that is still prepared.
                waits = self.reference.prepared_against(&Effect::of_all(writes));
            }
            if waits.is_empty() {
                self.settle(request, asked, None);
            } else {
                self.parked.push((request, waits, asked));
            }
        }
    }
}

pub(super) fn word(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Conflict(Conflict::Prepared { .. }) => "prepared",
        Refusal::Conflict(_) => "conflict",
        Refusal::Moved(_) => "moved",
        Refusal::Exists(_) => "exists",
        Refusal::Missing(_) => "missing",
        _ => "other",
    }
}
