//! What a connection knows of the schemas of its databases: their meta values,
//! the cookie among them, by which SQLite knows that a schema is another one.
//!
//! They are taken to be as they were, and the first request of a transaction has
//! it proved (`docs/yesquel/sql.md`).

use std::time::{Duration, Instant};
use yesquel::{Error, Map, Proof, Timestamp, Transaction};

/// The key under which a schema's cookies stand.
pub(crate) const COOKIES: &[u8] = b"";

/// Meta values that are kept.
pub(crate) const META: usize = 9;

/// A server keeps what a snapshot needs for a second after it was given.
const RECENT: Duration = Duration::from_millis(400);

/// Meta values, and as they are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) all: [u32; META],
    stored: Box<[u8]>,
}

impl Values {
    pub(crate) fn of(stored: Box<[u8]>) -> Values {
        let mut all = [0; META];
        for (value, bytes) in all.iter_mut().zip(stored.as_chunks().0) {
            *value = u32::from_be_bytes(*bytes);
        }
        Values { all, stored }
    }

    pub(crate) fn stored(&self) -> &[u8] {
        &self.stored
    }
}

impl From<[u32; META]> for Values {
    fn from(all: [u32; META]) -> Values {
        Values { all, stored: all.iter().flat_map(|value| value.to_be_bytes()).collect() }
    }
}

/// What is known of one.
#[derive(Debug)]
struct Known {
    cookies: Map,
    schema: Map,
    values: Option<Values>,
    /// The moment at which they were right.
    right_at: Option<u64>,
    /// The snapshot of that moment, and when it was.
    proved: Option<(Timestamp, Instant)>,
    /// It is to be proved of the transaction that is open.
    is_asked: bool,
    /// Databases of the connection that are in a transaction.
    users: u32,
}

/// Those that a connection has at a store.
#[derive(Debug, Default)]
pub(crate) struct Schemas(Vec<Known>);

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schema(usize);

impl Schemas {
    /// That of a database, whose schema table and meta values are there.
    pub(crate) fn of(&mut self, schema: Map, cookies: Map) -> Schema {
        let place = self.0.iter().position(|known| known.cookies == cookies);
        Schema(place.unwrap_or_else(|| {
            // Like one in which nothing was written: what else it is comes with
            // the answer that it is not.
            let values = Some(Values::of(Box::default()));
            let known =
                Known { cookies, schema, values, right_at: None, proved: None, is_asked: false, users: 0 };
            self.0.push(known);
            self.0.len() - 1
        }))
    }

    /// Whether a tree is that of a schema itself, or of its values.
    pub(crate) fn has(&self, tree: u64) -> bool {
        self.0.iter().any(|known| known.schema.tree() == tree || known.cookies.tree() == tree)
    }

    pub(crate) fn values(&self, Schema(which): Schema) -> Option<&Values> {
        self.0.get(which)?.values.as_ref()
    }

    /// The values, if they are right at a moment.
    pub(crate) fn right(&self, Schema(which): Schema, moment: u64) -> Option<&Values> {
        let known = self.0.get(which)?;
        known.values.as_ref().filter(|_| known.right_at == Some(moment))
    }

    /// These are right.
    pub(crate) fn know(&mut self, Schema(which): Schema, values: Values, moment: u64) {
        if let Some(known) = self.0.get_mut(which) {
            // Of what moment they are for others is not known here.
            (known.values, known.right_at, known.proved) = (Some(values), Some(moment), None);
        }
    }

    /// One more database of a schema is in a transaction.
    pub(crate) fn enter(&mut self, Schema(which): Schema) {
        self.0.get_mut(which).into_iter().for_each(|known| known.users += 1);
    }

    /// One less.
    pub(crate) fn leave(&mut self, Schema(which): Schema) {
        self.0.get_mut(which).into_iter().for_each(|known| known.users = known.users.saturating_sub(1));
    }

    /// Has it proved of a transaction that all is as it is known, where it is
    /// used.
    pub(crate) fn ask(&mut self, transaction: &mut Transaction<'_>, moment: u64) -> Result<(), Error> {
        for known in &mut self.0 {
            if known.users > 0
                && !known.is_asked
                && known.right_at != Some(moment)
                && let Some(values) = &known.values
            {
                transaction.prove(known.cookies, COOKIES, values.stored(), known.schema)?;
                known.is_asked = true;
            }
        }
        Ok(())
    }

    /// Whether anything was asked and not heard of.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.iter().any(|known| known.is_asked)
    }

    /// Hears what has come of it; whether all is as it was known.
    pub(crate) fn hear(&mut self, transaction: &mut Transaction<'_>, moment: u64) -> Result<bool, Error> {
        let mut is_right = true;
        for known in self.0.iter_mut().filter(|known| known.is_asked) {
            match transaction.proof(known.cookies, known.schema)? {
                None => continue,
                Some(Proof::Holds) => {}
                Some(Proof::Fails(stored)) => {
                    is_right = false;
                    known.values = Some(Values::of(stored));
                }
            }
            (known.right_at, known.is_asked) = (Some(moment), false);
            known.proved = transaction.snapshot().map(|snapshot| (snapshot, Instant::now()));
        }
        Ok(is_right)
    }

    /// A snapshot at which all that is to be proved was proved, so short a time
    /// ago that the server knows what has become of it since.
    pub(crate) fn proved_since(&self) -> Option<Timestamp> {
        let mut oldest = None;
        for known in self.0.iter().filter(|known| known.is_asked) {
            let (snapshot, at) = known.proved?;
            if at.elapsed() > RECENT {
                return None;
            }
            oldest = oldest.into_iter().chain([snapshot]).min();
        }
        oldest
    }

    /// The transaction is no more.
    pub(crate) fn transaction_ends(&mut self) {
        self.0.iter_mut().for_each(|known| known.is_asked = false);
    }

    /// What was written of some is taken back; all others are as they were, at
    /// another moment.
    pub(crate) fn taken_back(&mut self, changed: &[Map], moment: u64) {
        for known in &mut self.0 {
            if changed.contains(&known.cookies) {
                (known.values, known.right_at, known.proved) = (None, None, None);
            } else if known.right_at == Some(moment) {
                known.right_at = Some(moment + 1);
            }
        }
    }
}
