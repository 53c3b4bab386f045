//! The part of a plan that each client performs.

use serval_model::Share;
use serval_plan::properties as p;

/// The part of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientPart {
    /// Index of the client among those that take part, from 0.
    pub place: u64,
    /// Number of clients that take part.
    pub of: u64,
    /// Whether the client reads sampled keys instead of working on the plan. `place` and `of` then count the
    /// clients that do so.
    pub consumes: bool,
    /// Properties of the client that override the plan's.
    pub properties: Vec<(String, String)>,
}

impl ClientPart {
    /// Returns even parts for all of `count` clients.
    pub fn even(count: usize) -> Vec<Option<ClientPart>> {
        let of = count as u64;
        (0..of).map(|place| Some(ClientPart { place, of, consumes: false, properties: Vec::new() })).collect()
    }

    /// Returns the same parts, with the last `consumers` of them reading sampled keys; the others divide
    /// the work.
    pub(crate) fn with_consumers(
        mut parts: Vec<Option<ClientPart>>,
        consumers: usize,
    ) -> Vec<Option<ClientPart>> {
        let all = parts.iter().flatten().count();
        let producers = all.saturating_sub(consumers);
        for (nth, part) in parts.iter_mut().flatten().enumerate() {
            part.consumes = nth >= producers;
            (part.place, part.of) = match part.consumes {
                true => ((nth - producers) as u64, (all - producers) as u64),
                false => (nth as u64, producers as u64),
            };
        }
        parts
    }

    /// Returns its name for users.
    pub(crate) fn label(&self) -> String {
        if self.consumes {
            return format!("consumer {}", Share::new(self.place, self.of).unwrap_or_default());
        }
        self.share()
    }

    /// Returns its share of the work: its own if the plan gave it one.
    pub(crate) fn share(&self) -> String {
        if self.consumes {
            return Share::WHOLE.to_string();
        }
        let own = self.properties.iter().find(|(name, _)| name == p::SHARE.name);
        own.map_or_else(
            || Share::new(self.place, self.of).unwrap_or_default().to_string(),
            |(_, share)| share.clone(),
        )
    }
}
