//! Reads of several keys and leaves, of any trees and servers, in one round trip.

use super::{CachedAnswer, TreeTransaction};
use crate::{
    Tree, TreeError,
    cache::Goal,
    page::{Page, PageValue},
    search::{Fetched, PageRequest, check_key, referred_key},
    stored::{LookupAnswer, StoredValue},
};
use yesquel_client::{ReadReply, RequestError, ServerQuestions};
use yesquel_model::{NodeId, ServerId};
use yesquel_transport::Transport;
use yesquel_wire::{Answer, Direction, Question, Scan};

/// Questions of one message: their answers are far shorter than a message may be.
const QUESTIONS_MAX: usize = 256;

/// Number of entries that the values of one page refer to and that are fetched with it from other
/// servers.
const FOLLOWED_MAX: usize = 1_024;

/// Questions in messages, by server, and where their answers go.
struct Batches<'k> {
    messages: Vec<ServerQuestions<'k>>,
    /// The places of the answers, by message.
    places: Vec<Vec<usize>>,
    questions_max: usize,
}

impl<'k> Batches<'k> {
    fn new(questions_max: usize) -> Batches<'k> {
        Batches { messages: Vec::new(), places: Vec::new(), questions_max }
    }

    fn push(&mut self, server: ServerId, question: Question<'k>, place: usize) {
        let has_room =
            |(to, questions): &ServerQuestions<'_>| *to == server && questions.len() < self.questions_max;
        let at = self.messages.iter().position(has_room).unwrap_or_else(|| {
            self.messages.push((server, Vec::new()));
            self.places.push(Vec::new());
            self.messages.len() - 1
        });
        self.messages[at].1.push(question);
        self.places[at].push(place);
    }

    /// Pairs the answers with their places.
    fn answers<'r>(
        &self,
        replies: &'r [ReadReply],
        mut see: impl FnMut(usize, Answer<'r>) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        for (reply, places) in replies.iter().zip(&self.places) {
            let mut answers = reply.answers().ok_or(RequestError::UnexpectedAnswer)?.iter();
            for place in places {
                see(*place, answers.next().ok_or(RequestError::UnexpectedAnswer)?)?;
            }
        }
        Ok(())
    }
}

impl<T: Transport> TreeTransaction<'_, T> {
    /// Returns the values of keys, of any trees, in their order. All servers are asked in parallel:
    /// one round trip, unless a leaf was not where it was expected or a value is long.
    pub async fn get_many(&mut self, keys: &[(Tree, &[u8])]) -> Result<Vec<Option<Box<[u8]>>>, TreeError> {
        keys.iter().try_for_each(|(_, key)| check_key(key))?;
        let mut values: Vec<Option<Box<[u8]>>> = vec![None; keys.len()];
        // Those that need more than one look.
        let mut open = Vec::new();
        let mut batches = Batches::new(QUESTIONS_MAX);
        let mut leaves: Vec<Option<NodeId>> = vec![None; keys.len()];
        for (place, (tree, key)) in keys.iter().enumerate() {
            self.note_read(*tree, key);
            match self.known(*tree, key) {
                CachedAnswer::Value(value) => values[place] = value,
                // Those that are bulk loaded have a snapshot of their own.
                CachedAnswer::Leaf(leaf) if !self.is_bulk_loaded(tree.root) => {
                    leaves[place] = Some(leaf);
                    batches.push(leaf.server, Question::Lookup { node: leaf, key }, place);
                }
                CachedAnswer::Leaf(_) | CachedAnswer::Large(_) => open.push((place, None)),
            }
        }
        let replies = self.read_batches(&batches).await?;
        batches.answers(&replies, |place, answer| {
            match LookupAnswer::of(answer).ok_or(RequestError::UnexpectedAnswer)? {
                LookupAnswer::Absent => {}
                LookupAnswer::Stored(StoredValue::Whole(value)) => values[place] = Some(value),
                looked => open.push((place, Some(looked))),
            }
            Ok(())
        })?;
        for (place, looked) in open {
            let (tree, key) = keys[place];
            values[place] = match (looked, leaves[place]) {
                (Some(looked), Some(leaf)) => Box::pin(self.found(tree, key, leaf, looked)).await?,
                _ => Box::pin(self.get(tree, key)).await?,
            };
        }
        Ok(values)
    }

    /// Fetches the leaves of keys, of any trees, so that later reads and cursors there ask no server.
    /// All servers are asked in parallel. A leaf that is not where it was expected is fetched when it
    /// is read.
    pub async fn prefetch(&mut self, keys: &[(Tree, &[u8])]) -> Result<(), TreeError> {
        keys.iter().try_for_each(|(_, key)| check_key(key))?;
        let mut batches = Batches::new(1);
        let mut scans = Vec::new();
        let mut asked: Vec<NodeId> = Vec::new();
        for (tree, key) in keys {
            let goal = Goal::At(key);
            let leaf = self.trees.guess(tree.root, goal).leaf;
            let is_known = self.pages.get(leaf, goal).is_some() || asked.contains(&leaf);
            let is_own = self.is_empty_at_servers(*tree) || self.is_bulk_loaded(tree.root);
            if !is_known && !is_own {
                asked.push(leaf);
                let scan =
                    Scan { near: Some((*key).into()), bytes_max: PageRequest::BYTES_MAX, ..Scan::all() };
                batches.push(
                    leaf.server,
                    Question::Scan { node: leaf, scan: scan.clone().into() },
                    scans.len(),
                );
                scans.push((tree.root, leaf, goal, scan.range));
            }
        }
        let replies = self.read_batches(&batches).await?;
        let (trees, snapshot) = (self.trees, self.view.snapshot);
        batches.answers(&replies, |place, answer| {
            let (root, leaf, goal, range) = &scans[place];
            match trees.scanned(snapshot, *leaf, (range, Direction::Up), Some(answer))? {
                (Fetched::Leaf(page), _) if goal.is_in(&page.fence) => {
                    self.pages.keep(*root, page);
                }
                // An inner node is in the cache now.
                _ => {}
            }
            Ok(())
        })
    }

    /// Fetches the entries of another tree that the values of a page refer to, if they did not come with
    /// it because they are at other servers. All servers are asked in parallel.
    pub(super) async fn follow_elsewhere(&mut self, other: Tree, page: &Page) -> Result<(), TreeError> {
        let mut batches = Batches::new(QUESTIONS_MAX);
        let mut asked = Vec::new();
        for at in 0..page.cells.len() {
            let PageValue::Whole(value) = page.cells.value(at) else { continue };
            let Some(key) = referred_key(value) else { continue };
            // It came along.
            if self.pages.single(other.root, key).is_some() {
                continue;
            }
            if let CachedAnswer::Leaf(leaf) = self.known(other, key) {
                batches.push(leaf.server, Question::Lookup { node: leaf, key }, asked.len());
                asked.push(key);
            }
            if asked.len() == FOLLOWED_MAX {
                break;
            }
        }
        let replies = self.read_batches(&batches).await?;
        let mut singles = Vec::with_capacity(asked.len());
        batches.answers(&replies, |place, answer| {
            match LookupAnswer::of(answer).ok_or(RequestError::UnexpectedAnswer)? {
                LookupAnswer::Absent => singles.push((asked[place].into(), None)),
                LookupAnswer::Stored(stored) => singles.push((asked[place].into(), Some(stored))),
                // It is read by itself, which finds its leaf.
                LookupAnswer::Moved(_) => {}
            }
            Ok(())
        })?;
        self.pages.keep_singles(other.root, singles);
        Ok(())
    }

    async fn read_batches(&mut self, batches: &Batches<'_>) -> Result<Vec<ReadReply>, TreeError> {
        if batches.messages.is_empty() {
            return Ok(Vec::new());
        }
        self.asked += batches.messages.len() as u64;
        let replies = self.trees.client.read_all(&mut self.view, &batches.messages).await?;
        self.hold();
        Ok(replies)
    }
}
