//! Reads of several servers in one round trip.

use crate::{Client, ReadReply, ReadView, RequestError};
use std::{future::poll_fn, pin::Pin, task::Poll};
use yesquel_model::{Refusal, ServerId};
use yesquel_transport::{LossCause, LostCall, Transport};
use yesquel_wire::{ByteWriter, Question, Request};

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
            return self.read_in_parallel(read_view, asked, true).await;
        }
        if let Some(estimate) = self.in_flight.present(self.seen(), self.transport.uptime()) {
            // Servers keep its versions from now on.
            let _hold = self.hold(estimate);
            read_view.snapshot = Some(estimate);
            // Proofs wait for a snapshot that stays.
            match self.read_in_parallel(read_view, asked, false).await {
                Err(error) if is_repeatable(&error) => read_view.snapshot = None,
                outcome => return outcome,
            }
        }
        let mut replies = vec![self.read_at(read_view, *first, questions).await?];
        let hold = read_view.snapshot.map(|snapshot| self.hold(snapshot));
        if let Some(snapshot) = read_view.snapshot {
            self.in_flight.note_time(snapshot, self.transport.uptime());
        }
        replies.extend(self.read_in_parallel(read_view, others, true).await?);
        drop(hold);
        Ok(replies)
    }

    /// Reads at the view's snapshot.
    async fn read_in_parallel(
        &self,
        read_view: &mut ReadView,
        asked: &[ServerQuestions<'_>],
        has_proofs: bool,
    ) -> Result<Vec<ReadReply>, RequestError> {
        // Open proofs go with the first message to their server.
        let is_first = |at: usize, server| asked.iter().take(at).all(|(earlier, _)| *earlier != server);
        let requests = asked.iter().enumerate().map(|(at, (server, questions))| {
            let proves = has_proofs && is_first(at, *server);
            let mut request = Vec::with_capacity(128);
            Request::write_questions(
                &mut ByteWriter(&mut request),
                read_view.snapshot,
                self.seen(),
                |writer| {
                    questions.iter().for_each(|question| question.write(writer));
                    let proofs = read_view.questions(*server).filter(|_| proves);
                    proofs.for_each(|question| question.write(writer));
                },
            );
            request
        });
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
        let replies = asked.iter().zip(received).enumerate().map(|(at, ((server, questions), reply))| {
            let bytes = reply.ok_or(RequestError::UnexpectedAnswer)??;
            let proves = has_proofs && is_first(at, *server);
            self.take_answers(read_view, *server, questions.len(), proves, bytes)
        });
        replies.collect()
    }
}
