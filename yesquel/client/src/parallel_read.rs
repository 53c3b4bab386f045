//! Reads of several servers in one round trip.

use crate::{Client, ReadReply, ReadView, RequestError};
use std::{future::poll_fn, pin::Pin, task::Poll};
use yesquel_model::{Refusal, ServerId};
use yesquel_transport::{LossCause, LostCall, Transport};
use yesquel_wire::Question;

/// Questions for one server.
pub type ServerQuestions<'a> = (ServerId, Vec<Question<'a>>);

/// A read that was sent.
type SentRead<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, LostCall>> + 'a>>;

/// Whether a read at the client's estimate of the time is worth another attempt at a server's time:
/// the transaction has seen nothing yet.
fn is_repeatable(error: &RequestError) -> bool {
    match error {
        RequestError::Refused(refusal) => {
            matches!(refusal, Refusal::SnapshotTooOld { .. } | Refusal::TooFarAhead(_))
        }
        RequestError::Lost(lost) => lost.cause == LossCause::Disconnected,
        _ => false,
    }
}

impl<T: Transport> Client<T> {
    /// Reads nodes of several servers in a read view, in parallel; a server may occur more than
    /// once. Returns the answers in the order of the questions.
    ///
    /// In a view without a snapshot all servers read at the client's estimate of their present time,
    /// which is at or above all that it has seen. If a server cannot serve that, or the client has no
    /// estimate, the first server's time is the snapshot, and the others are asked after it.
    pub async fn read_all(
        &self,
        read_view: &mut ReadView,
        asked: &[ServerQuestions<'_>],
    ) -> Result<Vec<ReadReply>, RequestError> {
        let [(first, questions), others @ ..] = asked else { return Ok(Vec::new()) };
        if others.is_empty() {
            return Ok(vec![self.read_at(read_view, *first, questions).await?]);
        }
        if read_view.snapshot.is_some() {
            return self.read_in_parallel(read_view, asked).await;
        }
        // What the view has used without a snapshot decides which snapshots it may have.
        let estimate = self.in_flight.present(self.seen(), self.transport.uptime());
        if let Some(estimate) = estimate.filter(|_| read_view.used_at().is_none()) {
            // Servers keep its versions from now on.
            let _hold = self.hold(estimate);
            // Without the proofs, which wait for a snapshot that stays.
            let mut attempt = ReadView::from(Some(estimate));
            match self.read_in_parallel(&mut attempt, asked).await {
                Err(error) if is_repeatable(&error) => {}
                outcome => {
                    read_view.snapshot = attempt.snapshot;
                    return outcome;
                }
            }
        }
        let mut replies = vec![self.read_at(read_view, *first, questions).await?];
        let _hold = read_view.snapshot.map(|snapshot| self.hold(snapshot));
        if let Some(snapshot) = read_view.snapshot {
            self.in_flight.note_time(snapshot, self.transport.uptime());
        }
        replies.extend(self.read_in_parallel(read_view, others).await?);
        Ok(replies)
    }

    /// Reads at the view's snapshot.
    async fn read_in_parallel(
        &self,
        read_view: &mut ReadView,
        asked: &[ServerQuestions<'_>],
    ) -> Result<Vec<ReadReply>, RequestError> {
        let requests =
            asked.iter().map(|(server, questions)| self.read_request(read_view, *server, questions));
        let requests: Vec<Vec<u8>> = requests.collect();
        let mut sent: Vec<SentRead<'_>> = Vec::with_capacity(asked.len());
        for ((server, _), request) in asked.iter().zip(&requests) {
            if !sent.is_empty() {
                self.counters.overlapping();
            }
            sent.push(Box::pin(self.send_unordered(*server, request)));
        }
        let mut received: Vec<Option<Result<Vec<u8>, LostCall>>> = asked.iter().map(|_| None).collect();
        poll_fn(|context| {
            let mut is_pending = false;
            for (call, reply) in sent.iter_mut().zip(&mut received).filter(|(_, reply)| reply.is_none()) {
                match call.as_mut().poll(context) {
                    Poll::Ready(came) => *reply = Some(came),
                    Poll::Pending => is_pending = true,
                }
            }
            if is_pending { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        let replies = asked.iter().zip(received).map(|((server, questions), reply)| {
            let bytes = reply.ok_or(RequestError::UnexpectedAnswer)??;
            let reply = self.on_reply(read_view, *server, questions.len(), bytes)?;
            reply.ok_or(RequestError::UnexpectedAnswer)
        });
        let replies = replies.collect();
        // All requests had the questions of the same proofs.
        read_view.settle_answers();
        replies
    }
}
