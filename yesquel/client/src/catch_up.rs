//! Seeing what other clients have committed, by `docs/yesquel/cluster/time.md`, "strict".

use crate::{Client, RequestError};
use yesquel_model::ServerId;
use yesquel_transport::{LossCause, Transport};
use yesquel_wire::{Participants, Reply, Request};

impl<T: Transport> Client<T> {
    /// After this call, this client's new snapshots contain all commits at these servers that were
    /// acknowledged, to any client, before the call. The servers are asked in parallel; each waits for
    /// the ends of transactions that have voted there before and have other participants.
    pub async fn catch_up(&self, servers: &[ServerId]) -> Result<(), RequestError> {
        let mut sent = Vec::with_capacity(servers.len());
        let mut sorted = servers.to_vec();
        sorted.sort_unstable();
        let asked = Participants::encode(&sorted);
        // It was encoded in order just now.
        let asked = Participants::decode(&asked).unwrap_or(Participants::NONE);
        for server in servers {
            if !sent.is_empty() {
                self.counters.overlapping();
            }
            let request = Request::Present { asked, seen: self.seen(), votes_until: None };
            let request = Client::<T>::bytes_of(&request);
            // Sent now, and awaited below.
            sent.push((*server, self.send(*server, request.clone()), request));
        }
        let mut caught_up = Ok(());
        for (server, reply, request) in sent {
            let reply = match reply.await {
                Err(lost) if lost.cause == LossCause::Disconnected => self.send(server, request).await,
                reply => reply,
            };
            let outcome = reply.map_err(RequestError::from).and_then(|reply| match Reply::decode(&reply)? {
                Reply::Present(at) => {
                    self.note_seen(at);
                    Ok(())
                }
                Reply::Refused { refusal, .. } => Err(refusal.into()),
                _ => Err(RequestError::UnexpectedAnswer),
            });
            caught_up = caught_up.and(outcome);
        }
        caught_up
    }
}
