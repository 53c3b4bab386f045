//! State of a connection at one store: one transaction for all its databases there.

mod groups;
mod growth;
mod leases;
mod reuse;
mod row_numbers;
mod sequence;

use crate::{
    IsolationLevel,
    access_pattern::{AccessPattern, AccessPatterns},
    code::ResultCode,
    last_error,
    schema::{COOKIES, META, MetaValues, SchemaCache, SchemaIndex},
    sequence::{ExpectedNumber, ExplicitNumber, TakenNumbers},
    stores::StoreRef,
};
pub(crate) use leases::LEASE_TIME;
use leases::SessionLeases;
use reuse::TransactionReuse;
use rustc_hash::FxHashMap;
use self_cell::self_cell;
use std::{collections::HashMap, fmt};
use yesquel::{
    CancelCheck, CancelGuard, Cursor, Database, Entry, Error, Map, Savepoint, ServerId, Timestamp,
    Transaction,
};

type CurrentTransaction<'a> = Option<Transaction<'a>>;

self_cell!(
    struct OpenTransaction {
        owner: Database,
        #[not_covariant]
        dependent: CurrentTransaction,
    }
);

/// Savepoint of the transaction.
struct OpenSavepoint {
    savepoint: Savepoint,
    /// Number of `changed` maps when it was opened.
    changed: usize,
}

/// Connection at a store.
pub(crate) struct SqlSession {
    /// Check by which the application cancels waits for a server.
    cancel_check: CancelCheck,
    database: Database,
    open: Option<OpenTransaction>,
    /// Number of the connection's databases in a transaction.
    databases_in_transaction: u32,
    /// Number of writes.
    writes: u64,
    /// Changes when earlier reads become invalid: at a new transaction, and at a rollback.
    moment: u64,
    savepoints: Vec<OpenSavepoint>,
    /// Meta-value maps of the schemas whose tables were written, at the groups of these tables.
    written: Vec<Map>,
    /// Changes of the sizes of databases.
    growths: Vec<growth::Growth>,
    /// Meta-value maps that were written themselves: all copies of each schema.
    changed: Vec<Map>,
    /// Whether the schemas written so far are guarded, since a commit that failed.
    is_guarded: bool,
    has_written: bool,
    /// Set when the transaction has failed and can only be rolled back.
    lost: Option<ResultCode>,
    leases: SessionLeases,
    reuse: TransactionReuse,
    isolation: IsolationLevel,
    /// Whether a transaction sees all commits that were acknowledged before it.
    sees_all_commits: bool,
    /// Groups of the connection's databases here.
    groups: Vec<ServerId>,
    schemas: SchemaCache,
    /// The schema has changed: the statement is prepared again and continues in the same
    /// transaction.
    reprepare_pending: bool,
    /// Set if read statements are in another transaction than the one they began in.
    is_another: bool,
    /// Counters of AUTOINCREMENT that no row names yet, by table, and the numbers taken from them.
    pub(crate) drawn: HashMap<(u64, Box<[u8]>), i64>,
    pub(crate) given: Vec<TakenNumbers>,
    /// Explicit numbers, which are reported to their counters before the commit.
    pub(crate) chosen: Vec<ExplicitNumber>,
    /// Number requested together with the first read.
    pub(crate) expected: Option<ExpectedNumber>,
    /// Number of entries that statements last read of each tree.
    taken: FxHashMap<u64, u64>,
    /// Access patterns of the transaction in trees.
    access_patterns: AccessPatterns,
    /// Trees for whose rows it took numbers, and when it began.
    pub(crate) numbered: Vec<u64>,
    pub(crate) began: u64,
    /// Dropped last: it may be the last reference to the store.
    pub(crate) shared: StoreRef,
}

impl fmt::Debug for SqlSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlSession").field("moment", &self.moment).finish_non_exhaustive()
    }
}

impl SqlSession {
    pub(crate) fn new(shared: StoreRef, database: Database, cancel_check: CancelCheck) -> SqlSession {
        SqlSession {
            cancel_check,
            database,
            open: None,
            databases_in_transaction: 0,
            writes: 0,
            moment: 0,
            savepoints: Vec::new(),
            written: Vec::new(),
            growths: Vec::new(),
            changed: Vec::new(),
            is_guarded: false,
            has_written: false,
            lost: None,
            leases: SessionLeases::default(),
            reuse: TransactionReuse::default(),
            isolation: IsolationLevel::default(),
            sees_all_commits: false,
            groups: Vec::new(),
            schemas: SchemaCache::default(),
            reprepare_pending: false,
            is_another: false,
            drawn: HashMap::new(),
            given: Vec::new(),
            chosen: Vec::new(),
            expected: None,
            taken: FxHashMap::default(),
            access_patterns: AccessPatterns::default(),
            numbered: Vec::new(),
            began: 0,
            shared,
        }
    }

    /// While the result exists, the application's check can cancel this thread's waits for servers.
    pub(crate) fn waits(&self) -> CancelGuard {
        self.cancel_check.begin()
    }

    /// Isolates the transactions that begin next at this level, or at a stricter one that another
    /// database of the connection wants.
    pub(crate) fn isolate(&mut self, isolation: IsolationLevel) {
        self.isolation = self.isolation.max(isolation);
    }

    /// Lets the transactions that begin next see all commits that were acknowledged before them.
    pub(crate) fn see_all_commits(&mut self) {
        self.sees_all_commits = true;
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn moment(&self) -> u64 {
        self.moment
    }

    /// Changes whenever the transaction's view changes, also by its own writes.
    pub(crate) fn version(&mut self) -> (u64, u64) {
        self.begun();
        (self.moment, self.writes)
    }

    /// Converts an error to a code and stores its message.
    pub(crate) fn code_of(&mut self, error: &Error) -> ResultCode {
        let code = match error {
            Error::NoMap(tree) if self.schemas.has(tree.number()) => {
                last_error::set(
                    ResultCode::IOERR,
                    "the database is not there any more: another one has dropped it",
                );
                return ResultCode::IOERR;
            }
            Error::NoMap(_) => {
                let words = "another transaction has dropped the table: roll back and begin again";
                last_error::set(ResultCode::BUSY_SNAPSHOT, words);
                ResultCode::BUSY_SNAPSHOT
            }
            error => {
                last_error::set(ResultCode::from(error), error);
                ResultCode::from(error)
            }
        };
        last_error::record_kind(error);
        if code == ResultCode::BUSY_SNAPSHOT {
            self.lost = Some(code);
            // A schema change has failed by a conflict: the next one takes a lease.
            self.leases.wanted = (!self.changed.is_empty()).then(|| (self.changed.clone(), None));
        }
        code
    }

    /// Runs a closure in the transaction, which it begins if necessary.
    pub(crate) fn with<T>(
        &mut self,
        act: impl for<'t> FnOnce(&mut Transaction<'t>) -> Result<T, Error>,
    ) -> Result<T, ResultCode> {
        self.shared.check_process()?;
        let _waits = self.waits();
        self.begun();
        if let Some(lost) = self.lost {
            return Err(lost);
        }
        let Some(open) = &mut self.open else { return Err(ResultCode::INTERNAL) };
        let (schemas, moment, shared) = (&mut self.schemas, self.moment, &self.shared);
        let outcome = open.with_dependent_mut(|_, running| {
            let transaction = running.as_mut()?;
            let outcome = act(transaction);
            // Mostly the outcome is known already.
            let is_right = if schemas.is_proof_requested() {
                schemas.take_proofs(transaction, moment, || shared.uptime())
            } else {
                Ok(true)
            };
            Some((outcome, is_right))
        });
        match outcome {
            // A missing table is a consequence of the outdated schema, too.
            Some((_, Ok(false))) if self.has_written => {
                self.lost = Some(ResultCode::BUSY_SNAPSHOT);
                Err(ResultCode::BUSY_SNAPSHOT)
            }
            // Rows were already returned.
            Some((_, Ok(false))) if self.is_another => Err(ResultCode::BUSY_SNAPSHOT),
            Some((_, Ok(false))) => {
                self.reprepare_pending = true;
                Err(ResultCode::SCHEMA)
            }
            Some((Ok(done), Ok(true))) => Ok(done),
            // If the whole database is gone, the schema's error says so.
            Some((_, Err(error)) | (Err(error), Ok(_))) => Err(self.code_of(&error)),
            None => Err(ResultCode::INTERNAL),
        }
    }

    /// Returns the cached meta values of a database in a transaction: the next request verifies
    /// them.
    pub(crate) fn assumed_values(
        &mut self,
        schema: SchemaIndex,
        cookies: Map,
    ) -> Result<[u32; META], ResultCode> {
        let Some(MetaValues { all, .. }) = self.schemas.values(schema) else {
            return self.verified_values(schema, cookies);
        };
        let all = *all;
        let moment = self.moment;
        if let Some(open) = &mut self.open {
            let schemas = &mut self.schemas;
            let asked = open.with_dependent_mut(|_, running| {
                running.as_mut().map_or(Ok(()), |transaction| schemas.request_proofs(transaction, moment))
            });
            asked.map_err(|error| self.code_of(&error))?;
        }
        Ok(all)
    }

    /// Returns the cached meta values.
    pub(crate) fn cached_values(&self, schema: SchemaIndex) -> Option<[u32; META]> {
        self.schemas.values(schema).map(|values| values.all)
    }

    /// Returns the verified meta values; `SCHEMA` if the transaction has already returned others.
    pub(crate) fn values(&mut self, schema: SchemaIndex, cookies: Map) -> Result<[u32; META], ResultCode> {
        self.begun();
        if let Some(values) = self.schemas.verified(schema, self.moment) {
            return Ok(values.all);
        }
        if self.schemas.values(schema).is_some() {
            self.with(|transaction| transaction.ask_proofs())?;
            if let Some(values) = self.schemas.verified(schema, self.moment) {
                return Ok(values.all);
            }
        }
        let stored = self.with(|transaction| transaction.get(cookies, COOKIES))?.unwrap_or_default();
        let values = MetaValues::of(stored);
        let all = values.all;
        self.schemas.store(schema, values, self.moment);
        Ok(all)
    }

    /// Returns the verified meta values, whatever was returned before.
    pub(crate) fn verified_values(
        &mut self,
        schema: SchemaIndex,
        cookies: Map,
    ) -> Result<[u32; META], ResultCode> {
        let reprepare_pending = self.reprepare_pending;
        match self.values(schema, cookies) {
            Err(ResultCode::SCHEMA) => {
                self.reprepare_pending = reprepare_pending;
                self.values(schema, cookies)
            }
            outcome => outcome,
        }
    }

    /// Returns the verified meta values; the caller increments the cookie. A caller that
    /// has incremented an outdated cookie in memory must roll back.
    pub(crate) fn values_to_follow(
        &mut self,
        schema: SchemaIndex,
        cookies: Map,
    ) -> Result<[u32; META], ResultCode> {
        let reprepare_pending = self.reprepare_pending;
        self.values(schema, cookies).map_err(|code| {
            if code != ResultCode::SCHEMA {
                return code;
            }
            self.reprepare_pending = reprepare_pending;
            self.lost = Some(ResultCode::BUSY_SNAPSHOT);
            ResultCode::BUSY_SNAPSHOT
        })
    }

    /// Sets the meta values in the transaction, in all copies.
    pub(crate) fn set_values(&mut self, schema: SchemaIndex, all: [u32; META]) -> Result<(), ResultCode> {
        if self.schemas.misses_groups(schema) {
            // A copy would be missed.
            return Err(ResultCode::INTERNAL);
        }
        let groups = self.schemas.values(schema).map_or(0, |values| values.groups);
        let values = MetaValues::new(all, groups);
        let Some((_, cookies)) = self.schemas.database(schema) else { return Err(ResultCode::INTERNAL) };
        for map in cookies.clone().all() {
            if !self.changed.contains(map) {
                self.changed.push(*map);
            }
            self.write(*map, |transaction| transaction.put(*map, COOKIES, values.stored()))?;
        }
        self.schemas.store(schema, values, self.moment);
        Ok(())
    }

    /// Ends a transaction that was kept for a statement to be prepared again.
    pub(crate) fn end_kept_transaction(&mut self) {
        if std::mem::take(&mut self.reprepare_pending) && self.databases_in_transaction == 0 {
            self.drop_transaction(false);
        }
    }

    pub(crate) fn begun(&mut self) {
        // A caller outside of statements needs the present state.
        self.reuse_or_end(false);
        if self.open.is_none() {
            self.take_wanted_lease();
            self.catch_up();
            self.note_began();
            self.began = self.shared.rows().now();
            let lease = self.leases.held.as_ref().map(|(lease, _)| lease);
            let mut open = OpenTransaction::new(self.database.clone(), |database| Some(database.begin()));
            let (kept, only_reads) = (self.access_patterns.kept(), self.reuse.only_reads());
            let isolation = self.isolation;
            open.with_dependent_mut(|_, running| {
                let Some(transaction) = running else { return };
                transaction.use_watched(only_reads);
                transaction.keep_up_to(kept);
                if isolation == IsolationLevel::Serializable {
                    transaction.serializable();
                }
                if let Some(lease) = lease {
                    transaction.releases(lease);
                }
            });
            self.moment += 1;
            let (schemas, moment) = (&mut self.schemas, self.moment);
            // A schema of another store cannot be verified here, and was never cached.
            let _ = open.with_dependent_mut(|_, running| {
                running.as_mut().map_or(Ok(()), |transaction| schemas.request_proofs(transaction, moment))
            });
            self.open = Some(open);
        }
    }

    /// Writes to tables at the group of this map of their schema's meta values.
    pub(crate) fn write<T>(
        &mut self,
        cookies: Map,
        act: impl for<'t> FnOnce(&mut Transaction<'t>) -> Result<T, Error>,
    ) -> Result<T, ResultCode> {
        self.has_written = true;
        self.writes += 1;
        if !self.written.contains(&cookies) {
            self.written.push(cookies);
            self.is_guarded = false;
        }
        self.with(act)
    }

    /// Notes that one more database is in the transaction.
    pub(crate) fn enter(&mut self, schema: SchemaIndex) {
        self.schemas.enter(schema);
        self.databases_in_transaction += 1;
    }

    /// Notes that one database fewer is in the transaction.
    pub(crate) fn leave(&mut self, schema: SchemaIndex) {
        self.schemas.leave(schema);
        self.databases_in_transaction = self.databases_in_transaction.saturating_sub(1);
        if self.databases_in_transaction == 0 && !self.is_kept() && !self.keep_for_reuse() {
            self.drop_transaction(false);
        }
    }

    /// Returns whether the transaction stays open for a statement to be prepared again.
    fn is_kept(&self) -> bool {
        self.reprepare_pending && !self.has_written && self.lost.is_none()
    }

    fn drop_transaction(&mut self, is_committed: bool) {
        if self.shared.is_of_parent() {
            // After a fork, the child must not end its parent's transaction.
            std::mem::forget((self.open.take(), std::mem::take(&mut self.leases), self.expected.take()));
            self.numbered.clear();
            self.given.clear();
        }
        if let Some(mut open) = self.open.take() {
            let _waits = self.waits();
            open.with_dependent_mut(|_, running| running.take().map(Transaction::rollback));
        }
        self.reprepare_pending = false;
        self.is_another = self.databases_in_transaction > 0;
        self.schemas.transaction_ends();
        if !is_committed {
            self.schemas.rolled_back(&self.changed, self.moment);
        }
        self.end_lease();
        self.end_reuse(is_committed);
        // Earlier reads belong to a snapshot that is no longer held.
        self.moment += 1;
        self.end_sequences(is_committed);
        self.end_growths(is_committed);
        self.access_patterns.clear();
        if !self.numbered.is_empty() {
            let mut rows = self.shared.rows();
            self.numbered.drain(..).for_each(|tree| rows.leave(tree, is_committed));
        }
        self.savepoints.clear();
        self.written.clear();
        self.changed.clear();
        self.is_guarded = false;
        self.has_written = false;
        self.lost = None;
    }

    /// Ends the transaction for its statements; read statements that are still open continue in a
    /// new one.
    pub(crate) fn settle(&mut self) {
        self.savepoints.clear();
    }

    /// Commits if the schemas by which it was written have not changed since a snapshot, or since
    /// its own.
    fn commit_guarded(&mut self, since: Option<Timestamp>) -> Result<(), Error> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let (written, changed) = (&self.written, &self.changed);
        let is_guarded = std::mem::replace(&mut self.is_guarded, true);
        let is_serializable = self.isolation == IsolationLevel::Serializable && !written.is_empty();
        let schemas = &self.schemas;
        open.with_dependent_mut(|_, running| {
            let Some(transaction) = running else { return Ok(()) };
            if !is_guarded {
                schemas.guard_written(transaction, written, changed);
                // What was read depends on the schemas of databases that are not written, too.
                for cookies in schemas.in_use().filter(|_| is_serializable) {
                    let mut all = cookies.all().iter();
                    if !all.any(|copy| written.contains(copy) || changed.contains(copy)) {
                        transaction.guard(cookies.first(), COOKIES..=COOKIES);
                    }
                }
            }
            match since {
                Some(since) => transaction.try_commit_since(since),
                None => transaction.try_commit(),
            }
            .map(|_| ())
        })
    }

    /// Commits the writes of all databases of the connection here; `BUSY` if another connection's
    /// lease does not allow it now.
    fn try_commit(&mut self) -> Result<(), ResultCode> {
        if let Some(lost) = self.lost {
            return Err(lost);
        }
        // Includes rows that constraints have rejected, as in SQLite.
        self.report_explicit_numbers()?;
        if !self.has_written {
            return Ok(());
        }
        self.shared.check_process()?;
        let _waits = self.waits();
        let is_asked = self.schemas.is_proof_requested();
        let outcome = match is_asked.then(|| self.schemas.proved_since(self.shared.uptime())) {
            // The transaction has read nothing that a proof could go with.
            Some(Some(since)) => match self.commit_guarded(Some(since)) {
                Err(Error::Conflict(_) | Error::SnapshotTooOld(_) | Error::Disconnected(_)) => {
                    self.with(|transaction| transaction.ask_proofs())?;
                    self.commit_guarded(None)
                }
                outcome => outcome,
            },
            Some(None) => {
                // The schema is not verified yet.
                self.with(|transaction| transaction.ask_proofs())?;
                self.commit_guarded(None)
            }
            None => self.commit_guarded(None),
        };
        match outcome {
            Ok(()) => {
                self.lease_committed();
                self.drop_transaction(true);
                Ok(())
            }
            Err(error) => {
                let code = self.code_of(&error);
                if code != ResultCode::BUSY {
                    // Only a rollback is left.
                    self.lost = Some(code);
                }
                Err(code)
            }
        }
    }

    pub(crate) fn rollback(&mut self) {
        if !self.is_kept() {
            self.drop_transaction(false);
        }
    }

    /// Sets the cache size of a database, in bytes.
    pub(crate) fn keep(&mut self, schema: Map, bytes: usize) {
        self.access_patterns.keep(schema.tree(), bytes);
        let kept = self.access_patterns.kept();
        if let Some(open) = &mut self.open {
            open.with_dependent_mut(|_, running| {
                running.as_mut().map(|transaction| transaction.keep_up_to(kept))
            });
        }
    }

    /// Returns the access pattern of a tree.
    pub(crate) fn access_pattern(&mut self, map: Map) -> &mut AccessPattern {
        self.access_patterns.of(map.tree())
    }

    /// Returns the number of entries that a scan of a tree probably reads.
    pub(crate) fn taken(&self, map: Map) -> Option<u64> {
        self.taken.get(&map.tree()).copied()
    }

    /// Records the number of entries that a scan has read.
    pub(crate) fn has_taken(&mut self, map: Map, entries: u64) {
        self.taken.insert(map.tree(), entries);
    }

    /// Returns the number of savepoints.
    pub(crate) fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    /// Opens savepoints until there are `count`.
    pub(crate) fn open_savepoints(&mut self, count: usize) -> Result<(), ResultCode> {
        while self.savepoints.len() < count {
            let savepoint = self.with(|transaction| Ok(transaction.savepoint()))?;
            self.savepoints.push(OpenSavepoint { savepoint, changed: self.changed.len() });
        }
        Ok(())
    }

    /// Releases a savepoint and the later ones, or rolls back to it; to the beginning without a
    /// number.
    pub(crate) fn savepoint(&mut self, is_rollback: bool, number: Option<usize>) -> Result<(), ResultCode> {
        let keep = number.map_or(0, |number| if is_rollback { number + 1 } else { number });
        // A failed transaction is rolled back as a whole by its owner.
        if is_rollback && self.open.is_some() && self.lost.is_none() {
            let to = number.map(|number| self.savepoints.get(number).map(|to| (to.savepoint, to.changed)));
            // A savepoint that was never opened has nothing to roll back.
            if to != Some(None) {
                let (to, changed) = to.flatten().unzip();
                self.with(|transaction| match to {
                    Some(to) => transaction.rollback_to(to),
                    None => {
                        transaction.rollback_all();
                        Ok(())
                    }
                })?;
                self.schemas.rolled_back(&self.changed, self.moment);
                // Schemas whose changes are undone are guarded again, and so are all whose guards are
                // undone: those of a commit that failed after the savepoint.
                self.changed.truncate(changed.unwrap_or(0));
                self.is_guarded = false;
                self.moment += 1;
                let mut rows = self.shared.rows();
                self.numbered.iter().for_each(|tree| rows.suspect(*tree));
            }
        }
        if let (false, Some(open), Some(gone)) = (is_rollback, &mut self.open, self.savepoints.get(keep)) {
            // The savepoint exists, or the whole transaction is gone.
            open.with_dependent_mut(|_, running| {
                running.as_mut().map(|running| running.release(gone.savepoint))
            });
        }
        self.savepoints.truncate(keep);
        self.chosen_until(is_rollback, number);
        Ok(())
    }

    pub(crate) fn cursor(&mut self, map: Map) -> Result<Cursor, ResultCode> {
        self.with(|transaction| Ok(transaction.cursor(map)))
    }
}

/// Result of a cursor's move.
pub(crate) type MoveResult = Option<Entry>;
