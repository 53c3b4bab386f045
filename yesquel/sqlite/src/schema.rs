//! Cached schemas of a connection's databases: their meta values, among them the cookie by which
//! SQLite detects a schema change.
//!
//! The cache is assumed to be valid, and the first request of a transaction verifies it
//! (`docs/yesquel/sql.md`).

use std::time::Duration;
use yesquel::{Database, Error, Map, MapCopies, Proof, Timestamp, Transaction};

/// Key of a schema's meta values.
pub(crate) const COOKIES: &[u8] = b"";

/// Number of cached meta values.
pub(crate) const META: usize = 9;

/// Age up to which a proof is reused. A server keeps a snapshot for a second after giving it.
const RECENT: Duration = Duration::from_millis(400);

/// Meta values, and their stored form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetaValues {
    pub(crate) all: [u32; META],
    /// Number of the database's groups if some have joined it, otherwise 0. It is stored behind
    /// SQLite's values, so that a failed proof brings it. A connection that knows fewer learns them.
    pub(crate) groups: u32,
    stored: Box<[u8]>,
}

impl MetaValues {
    pub(crate) fn new(all: [u32; META], groups: u32) -> MetaValues {
        let groups_stored = Some(groups).filter(|groups| *groups > 0);
        let stored = all.into_iter().chain(groups_stored).flat_map(u32::to_be_bytes).collect();
        MetaValues { all, groups, stored }
    }

    pub(crate) fn of(stored: Box<[u8]>) -> MetaValues {
        let mut all = [0; META];
        let mut values = stored.as_chunks().0.iter().map(|bytes| u32::from_be_bytes(*bytes));
        for (value, found) in all.iter_mut().zip(&mut values) {
            *value = found;
        }
        let groups = values.next().unwrap_or_default();
        MetaValues { all, groups, stored }
    }

    pub(crate) fn stored(&self) -> &[u8] {
        &self.stored
    }
}

/// Cached schema.
#[derive(Debug)]
struct CachedSchema {
    database: Database,
    /// Maps of the meta values, one at each group of the database.
    cookies: MapCopies,
    schema: Map,
    values: Option<MetaValues>,
    /// Moment at which the values were verified.
    verified_at: Option<u64>,
    /// Snapshot at which they were verified, and the store's uptime then.
    proved: Option<(Timestamp, Duration)>,
    /// A proof is requested in the open transaction.
    is_proof_requested: bool,
    /// Number of the connection's databases in a transaction.
    users: u32,
}

/// Schemas that a connection uses at a store.
#[derive(Debug, Default)]
pub(crate) struct SchemaCache(Vec<CachedSchema>);

/// Index of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SchemaIndex(usize);

impl SchemaCache {
    /// Returns the schema of a database by the maps of its schema table and meta values. All that open
    /// the database share it, and the copies that the last one has found.
    pub(crate) fn of(&mut self, database: &Database, schema: Map, cookies: &MapCopies) -> SchemaIndex {
        let place = self.0.iter().position(|known| known.cookies.first() == cookies.first());
        if let Some(place) = place {
            self.learn_copies(SchemaIndex(place), database, cookies);
            return SchemaIndex(place);
        }
        self.0.push(CachedSchema {
            database: database.clone(),
            cookies: cookies.clone(),
            schema,
            // Assume that nothing was written yet: the failed proof brings the true values.
            values: Some(MetaValues::of(Box::default())),
            verified_at: None,
            proved: None,
            is_proof_requested: false,
            users: 0,
        });
        SchemaIndex(self.0.len() - 1)
    }

    /// Notes a database, which groups have joined, and its copies of the meta values. Returns whether
    /// there are more than before.
    pub(crate) fn learn_copies(
        &mut self,
        SchemaIndex(which): SchemaIndex,
        database: &Database,
        cookies: &MapCopies,
    ) -> bool {
        let Some(known) = self.0.get_mut(which) else { return false };
        let is_more = cookies.all().len() > known.cookies.all().len();
        if is_more {
            (known.database, known.cookies) = (database.clone(), cookies.clone());
        }
        is_more
    }

    /// Returns a database and its copies of the meta values, as they were learned last.
    pub(crate) fn database(&self, SchemaIndex(which): SchemaIndex) -> Option<(&Database, &MapCopies)> {
        self.0.get(which).map(|known| (&known.database, &known.cookies))
    }

    /// Returns the number of groups of a database according to its meta values; zero: not known.
    pub(crate) fn groups_of(&self, SchemaIndex(which): SchemaIndex) -> usize {
        let values = self.0.get(which).and_then(|known| known.values.as_ref());
        values.map_or(0, |values| values.groups as usize)
    }

    /// Returns whether groups have joined a database since its copies were learned.
    pub(crate) fn misses_groups(&self, schema: SchemaIndex) -> bool {
        let known = self.0.get(schema.0);
        known.is_some_and(|known| self.groups_of(schema) > known.cookies.all().len())
    }

    /// Returns whether another schema was verified at a moment.
    pub(crate) fn another_is_verified(&self, SchemaIndex(which): SchemaIndex, moment: u64) -> bool {
        let mut others = self.0.iter().enumerate().filter(|(index, _)| *index != which);
        others.any(|(_, known)| known.verified_at == Some(moment))
    }

    /// Returns whether a tree holds a schema or its meta values.
    pub(crate) fn has(&self, tree: u64) -> bool {
        let is_of = |known: &CachedSchema| known.cookies.all().iter().any(|map| map.tree() == tree);
        self.0.iter().any(|known| known.schema.tree() == tree || is_of(known))
    }

    pub(crate) fn values(&self, SchemaIndex(which): SchemaIndex) -> Option<&MetaValues> {
        self.0.get(which)?.values.as_ref()
    }

    /// Returns the values if they are verified at a moment.
    pub(crate) fn verified(&self, SchemaIndex(which): SchemaIndex, moment: u64) -> Option<&MetaValues> {
        let known = self.0.get(which)?;
        known.values.as_ref().filter(|_| known.verified_at == Some(moment))
    }

    /// Stores verified values.
    pub(crate) fn store(&mut self, SchemaIndex(which): SchemaIndex, values: MetaValues, moment: u64) {
        if let Some(known) = self.0.get_mut(which) {
            // They are not verified for other transactions.
            (known.values, known.verified_at, known.proved) = (Some(values), Some(moment), None);
        }
    }

    /// Notes that one more database of a schema is in a transaction.
    pub(crate) fn enter(&mut self, SchemaIndex(which): SchemaIndex) {
        self.0.get_mut(which).into_iter().for_each(|known| known.users += 1);
    }

    /// Returns the meta values' maps of the schemas in the transaction.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &MapCopies> {
        self.0.iter().filter(|known| known.users > 0).map(|known| &known.cookies)
    }

    /// Guards the schemas by which a transaction has written, unless it changes them: one copy of each,
    /// at a group that it writes anyway.
    pub(crate) fn guard_written(&self, transaction: &mut Transaction<'_>, written: &[Map], changed: &[Map]) {
        let mut guarded = Vec::<Map>::new();
        for cookies in written.iter().filter(|cookies| !changed.contains(cookies)) {
            match self.in_use().find(|copies| copies.all().contains(cookies)) {
                Some(copies) if copies.all().len() > 1 => {
                    if !guarded.contains(&copies.first()) {
                        guarded.push(copies.first());
                        transaction.guard_at_any(copies, *cookies, COOKIES..=COOKIES);
                    }
                }
                _ => transaction.guard(*cookies, COOKIES..=COOKIES),
            }
        }
    }

    /// Returns all copies of the schemas of which `written` has some: the one that a commit guards is at
    /// any group which it writes.
    pub(crate) fn copies_of(&self, written: &[Map]) -> Vec<Map> {
        let copies = |cookies: &Map| match self.in_use().find(|copies| copies.all().contains(cookies)) {
            Some(copies) => copies.all().to_vec(),
            None => vec![*cookies],
        };
        written.iter().flat_map(copies).collect()
    }

    /// Notes that one database fewer is in a transaction.
    pub(crate) fn leave(&mut self, SchemaIndex(which): SchemaIndex) {
        self.0.get_mut(which).into_iter().for_each(|known| known.users = known.users.saturating_sub(1));
    }

    /// Requests proofs that the schemas in use are as cached. Of a database with several groups, the
    /// group that is read first proves it: a schema change writes all copies of the meta values.
    pub(crate) fn request_proofs(
        &mut self,
        transaction: &mut Transaction<'_>,
        moment: u64,
    ) -> Result<(), Error> {
        for known in &mut self.0 {
            if known.users > 0
                && !known.is_proof_requested
                && known.verified_at != Some(moment)
                && let Some(values) = &known.values
            {
                match known.cookies.all() {
                    [cookies] => transaction.prove(*cookies, COOKIES, values.stored(), known.schema)?,
                    _ => transaction.prove_at_any(&known.cookies, COOKIES, values.stored(), known.schema)?,
                }
                known.is_proof_requested = true;
            }
        }
        Ok(())
    }

    /// Returns whether a proof is requested and has no outcome yet.
    pub(crate) fn is_proof_requested(&self) -> bool {
        self.0.iter().any(|known| known.is_proof_requested)
    }

    /// Takes the outcomes of proofs, at an uptime of the store. Returns whether all schemas are as cached.
    pub(crate) fn take_proofs(
        &mut self,
        transaction: &mut Transaction<'_>,
        moment: u64,
        uptime: impl Fn() -> Duration,
    ) -> Result<bool, Error> {
        let mut is_right = true;
        for known in self.0.iter_mut().filter(|known| known.is_proof_requested) {
            match transaction.proof(known.cookies.first(), known.schema)? {
                None => continue,
                Some(Proof::Holds) => {}
                Some(Proof::Fails(stored)) => {
                    is_right = false;
                    known.values = Some(MetaValues::of(stored));
                }
            }
            (known.verified_at, known.is_proof_requested) = (Some(moment), false);
            known.proved = transaction.snapshot().map(|snapshot| (snapshot, uptime()));
        }
        Ok(is_right)
    }

    /// Returns a snapshot at which all schemas in use were verified, if that is recent enough for
    /// the server to check what has changed since.
    pub(crate) fn proved_since(&self, uptime: Duration) -> Option<Timestamp> {
        let mut oldest = None;
        for known in self.0.iter().filter(|known| known.is_proof_requested) {
            let (snapshot, at) = known.proved?;
            if uptime.saturating_sub(at) > RECENT {
                return None;
            }
            oldest = oldest.into_iter().chain([snapshot]).min();
        }
        oldest
    }

    /// Notes the end of the transaction.
    pub(crate) fn transaction_ends(&mut self) {
        self.0.iter_mut().for_each(|known| known.is_proof_requested = false);
    }

    /// Notes a rollback: the schemas written need a new proof, and all others are as verified, now
    /// at another moment.
    pub(crate) fn rolled_back(&mut self, changed: &[Map], moment: u64) {
        for known in &mut self.0 {
            if changed.contains(&known.cookies.first()) {
                (known.values, known.verified_at, known.proved) = (None, None, None);
            } else if known.verified_at == Some(moment) {
                known.verified_at = Some(moment + 1);
            }
        }
    }
}
