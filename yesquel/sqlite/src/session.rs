//! What a connection has at one store: a transaction for all databases there.

mod rows;
mod sequence;

use crate::{
    code::Code,
    habit::{Habit, Habits},
    schema::{COOKIES, META, Schema, Schemas, Values},
    sequence::{Chosen, Expected, Given},
    stores::Shared,
    told,
};
use rustc_hash::FxHashMap;
use self_cell::self_cell;
use std::{
    collections::HashMap,
    fmt,
    time::{Duration, Instant},
};
use yesquel::{
    Cursor, Database, Entry, Error, Lease, Map, Patience, Patient, Savepoint, Timestamp, Transaction,
};

type Running<'a> = Option<Transaction<'a>>;

self_cell!(
    struct Open {
        owner: Database,
        #[not_covariant]
        dependent: Running,
    }
);

/// A connection at a store.
pub(crate) struct Session {
    /// Who says whether it goes on waiting for a server.
    patience: Patience,
    database: Database,
    open: Option<Open>,
    /// Databases of the connection that are in a transaction.
    sides: u32,
    /// Counts writes.
    writes: u64,
    /// Counts what makes what was read once of no more worth: transactions, and
    /// going back in them.
    moment: u64,
    savepoints: Vec<Savepoint>,
    /// Where cookies stand of schemas whose tables were written.
    written: Vec<Map>,
    /// Where they were written themselves.
    changed: Vec<Map>,
    /// The schemas are guarded.
    is_guarded: bool,
    has_written: bool,
    /// The transaction has lost, and can only be rolled back.
    lost: Option<Code>,
    /// Others are kept from writing.
    lease: Option<(Lease, Instant)>,
    schemas: Schemas,
    /// The schema has turned out to be another one: the statement is prepared
    /// again, and goes on in the same transaction.
    goes_on: bool,
    /// Statements that read are in a transaction that they did not begin in.
    is_another: bool,
    /// A schema was changed in vain: the next time others are asked to wait.
    wants_lease: Option<Map>,
    /// Counters of AUTOINCREMENT that no row names yet, by table; and what was
    /// given of those.
    pub(crate) drawn: HashMap<(u64, Box<[u8]>), i64>,
    pub(crate) given: Vec<Given>,
    /// Numbers that the application has chosen, of which their counters hear before
    /// the commit.
    pub(crate) chosen: Vec<Chosen>,
    /// One that was asked for beside what was read first.
    pub(crate) expected: Option<Expected>,
    /// How many entries statements have taken of trees, the last time.
    taken: FxHashMap<u64, u64>,
    /// Whether what the transaction seeks in trees lies side by side.
    habits: Habits,
    /// Trees for whose rows it was given numbers, and when it began.
    pub(crate) numbered: Vec<u64>,
    pub(crate) began: u64,
    /// Dropped last: who goes with it finds nobody else who has the store.
    pub(crate) shared: Shared,
}

/// How long others are kept from writing by one that died.
const LEASE_TIME: Duration = Duration::from_secs(10);

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("moment", &self.moment).finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(shared: Shared, database: Database, patience: Patience) -> Session {
        Session {
            patience,
            database,
            open: None,
            sides: 0,
            writes: 0,
            moment: 0,
            savepoints: Vec::new(),
            written: Vec::new(),
            changed: Vec::new(),
            is_guarded: false,
            has_written: false,
            lost: None,
            lease: None,
            schemas: Schemas::default(),
            goes_on: false,
            is_another: false,
            wants_lease: None,
            drawn: HashMap::new(),
            given: Vec::new(),
            chosen: Vec::new(),
            expected: None,
            taken: FxHashMap::default(),
            habits: Habits::default(),
            numbered: Vec::new(),
            began: 0,
            shared,
        }
    }

    /// As long as this is there, the thread waits for servers as the application
    /// wants it to.
    pub(crate) fn waits(&self) -> Patient {
        self.patience.begin()
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn moment(&self) -> u64 {
        self.moment
    }

    /// Changes with all that the transaction sees, its own writes among it.
    pub(crate) fn version(&mut self) -> (u64, u64) {
        self.begun();
        (self.moment, self.writes)
    }

    /// What an error comes to. Its text is kept for whoever asks.
    pub(crate) fn told(&mut self, error: &Error) -> Code {
        let code = match error {
            Error::NoMap(tree) if self.schemas.has(tree.number()) => {
                told::say(Code::IOERR, "the database is not there any more: another one has dropped it");
                return Code::IOERR;
            }
            Error::NoMap(_) => {
                let words = "another transaction has dropped the table: roll back and begin again";
                told::say(Code::BUSY_SNAPSHOT, words);
                Code::BUSY_SNAPSHOT
            }
            error => {
                told::say(Code::from(error), error);
                Code::from(error)
            }
        };
        told::because(error);
        if code == Code::BUSY_SNAPSHOT {
            self.lost = Some(code);
            self.wants_lease = self.changed.first().copied();
        }
        code
    }

    /// Does something in the transaction, which begins now if it has not.
    pub(crate) fn with<T>(
        &mut self,
        act: impl for<'t> FnOnce(&mut Transaction<'t>) -> Result<T, Error>,
    ) -> Result<T, Code> {
        if let Some(lost) = self.lost {
            return Err(lost);
        }
        self.shared.check_process()?;
        let _waits = self.waits();
        self.begun();
        let Some(open) = &mut self.open else { return Err(Code::INTERNAL) };
        let (schemas, moment) = (&mut self.schemas, self.moment);
        let outcome = open.with_dependent_mut(|_, running| {
            let transaction = running.as_mut()?;
            let outcome = act(transaction);
            // Mostly it was heard before.
            let is_right = if schemas.is_asked() { schemas.hear(transaction, moment) } else { Ok(true) };
            Some((outcome, is_right))
        });
        match outcome {
            // Also where a table is gone: it is by what the schema was.
            Some((_, Ok(false))) if self.has_written => {
                self.lost = Some(Code::BUSY_SNAPSHOT);
                Err(Code::BUSY_SNAPSHOT)
            }
            // It has told of rows already.
            Some((_, Ok(false))) if self.is_another => Err(Code::BUSY_SNAPSHOT),
            Some((_, Ok(false))) => {
                self.goes_on = true;
                Err(Code::SCHEMA)
            }
            Some((Ok(done), Ok(true))) => Ok(done),
            // Where all of the database is gone the schema's error says so.
            Some((_, Err(error)) | (Err(error), Ok(_))) => Err(self.told(&error)),
            None => Err(Code::INTERNAL),
        }
    }

    /// The schema of a database.
    pub(crate) fn schema(&mut self, schema: Map, cookies: Map) -> Schema {
        self.schemas.of(schema, cookies)
    }

    /// The meta values of a database in a transaction, as they were last: the next
    /// request tells whether they still are.
    pub(crate) fn likely_values(&mut self, schema: Schema, cookies: Map) -> Result<[u32; META], Code> {
        let Some(Values { all, .. }) = self.schemas.values(schema) else {
            return self.right_values(schema, cookies);
        };
        let all = *all;
        let moment = self.moment;
        if let Some(open) = &mut self.open {
            let schemas = &mut self.schemas;
            let asked = open.with_dependent_mut(|_, running| {
                running.as_mut().map_or(Ok(()), |transaction| schemas.ask(transaction, moment))
            });
            asked.map_err(|error| self.told(&error))?;
        }
        Ok(all)
    }

    /// As they were last.
    pub(crate) fn known_values(&self, schema: Schema) -> Option<[u32; META]> {
        self.schemas.values(schema).map(|values| values.all)
    }

    /// As they are; `SCHEMA` if whoever is in the transaction was told of others.
    pub(crate) fn values(&mut self, schema: Schema, cookies: Map) -> Result<[u32; META], Code> {
        self.begun();
        if let Some(values) = self.schemas.right(schema, self.moment) {
            return Ok(values.all);
        }
        if self.schemas.values(schema).is_some() {
            self.with(|transaction| transaction.ask_proofs())?;
            if let Some(values) = self.schemas.right(schema, self.moment) {
                return Ok(values.all);
            }
        }
        let stored = self.with(|transaction| transaction.get(cookies, COOKIES))?.unwrap_or_default();
        let values = Values::of(stored);
        let all = values.all;
        self.schemas.know(schema, values, self.moment);
        Ok(all)
    }

    /// As they are, whatever anybody was told.
    pub(crate) fn right_values(&mut self, schema: Schema, cookies: Map) -> Result<[u32; META], Code> {
        let goes_on = self.goes_on;
        match self.values(schema, cookies) {
            Err(Code::SCHEMA) => {
                self.goes_on = goes_on;
                self.values(schema, cookies)
            }
            outcome => outcome,
        }
    }

    /// As they are, for the cookie that comes next. Who has counted on from
    /// another one, and has set it in memory, must roll back.
    pub(crate) fn values_to_follow(&mut self, schema: Schema, cookies: Map) -> Result<[u32; META], Code> {
        let goes_on = self.goes_on;
        self.values(schema, cookies).map_err(|code| {
            if code != Code::SCHEMA {
                return code;
            }
            self.goes_on = goes_on;
            self.lost = Some(Code::BUSY_SNAPSHOT);
            Code::BUSY_SNAPSHOT
        })
    }

    /// They are others from now on, by the transaction.
    pub(crate) fn set_values(&mut self, schema: Schema, cookies: Map, values: Values) -> Result<(), Code> {
        if !self.changed.contains(&cookies) {
            self.changed.push(cookies);
        }
        self.write(cookies, |transaction| transaction.put(cookies, COOKIES, values.stored()))?;
        self.schemas.know(schema, values, self.moment);
        Ok(())
    }

    /// What was to go on when a statement is prepared again does so no more.
    pub(crate) fn let_go(&mut self) {
        if std::mem::take(&mut self.goes_on) && self.sides == 0 {
            self.drop_transaction(false);
        }
    }

    pub(crate) fn begun(&mut self) {
        if self.open.is_none() {
            if let Some(cookies) = self.wants_lease.take()
                && self.lease.is_none()
            {
                // Whoever else has it will have ended when this one is committed,
                // or this one loses again.
                let _ = self.take_lease(cookies);
            }
            self.began = self.shared.rows().now();
            let lease = self.lease.as_ref().map(|(lease, _)| lease);
            let mut open = Open::new(self.database.clone(), |database| Some(database.begin()));
            let kept = self.habits.kept();
            open.with_dependent_mut(|_, running| {
                let Some(transaction) = running else { return };
                transaction.keep_up_to(kept);
                if let Some(lease) = lease {
                    transaction.under(lease);
                }
            });
            self.moment += 1;
            let (schemas, moment) = (&mut self.schemas, self.moment);
            // What cannot be asked is of another store, and never was known.
            let _ = open.with_dependent_mut(|_, running| {
                running.as_mut().map_or(Ok(()), |transaction| schemas.ask(transaction, moment))
            });
            self.open = Some(open);
        }
    }

    /// Writes something, in tables of the schema whose cookie stands there.
    pub(crate) fn write<T>(
        &mut self,
        cookies: Map,
        act: impl for<'t> FnOnce(&mut Transaction<'t>) -> Result<T, Error>,
    ) -> Result<T, Code> {
        self.has_written = true;
        self.writes += 1;
        if !self.written.contains(&cookies) {
            self.written.push(cookies);
        }
        self.with(act)
    }

    /// One more of its databases is in a transaction.
    pub(crate) fn enter(&mut self, schema: Schema) {
        self.schemas.enter(schema);
        self.sides += 1;
    }

    /// One less.
    pub(crate) fn leave(&mut self, schema: Schema) {
        self.schemas.leave(schema);
        self.sides = self.sides.saturating_sub(1);
        if self.sides == 0 && !self.stays() {
            self.drop_transaction(false);
        }
    }

    /// Whether the transaction is to go on when a statement is prepared again.
    fn stays(&self) -> bool {
        self.goes_on && !self.has_written && self.lost.is_none()
    }

    fn drop_transaction(&mut self, is_committed: bool) {
        if self.shared.is_of_parent() {
            // Who goes on with it, and is not to be told of an end.
            std::mem::forget((self.open.take(), self.lease.take(), self.expected.take()));
            self.numbered.clear();
            self.given.clear();
        }
        if let Some(mut open) = self.open.take() {
            let _waits = self.waits();
            open.with_dependent_mut(|_, running| running.take().map(Transaction::rollback));
        }
        self.goes_on = false;
        self.is_another = self.sides > 0;
        self.schemas.transaction_ends();
        if !is_committed {
            self.schemas.taken_back(&self.changed, self.moment);
        }
        if self.lease.is_some() {
            let _waits = self.waits();
            self.lease = None;
        }
        // What was read is of a snapshot that is no more.
        self.moment += 1;
        self.end_sequences(is_committed);
        self.habits.clear();
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

    /// Keeps others from writing in the tables of a schema until the
    /// transaction ends, which must not have begun: what has been read so far is
    /// read anew.
    pub(crate) fn take_lease(&mut self, cookies: Map) -> Result<(), Code> {
        self.shared.check_process()?;
        if self.lease.is_some() || self.has_written {
            return Ok(());
        }
        let _waits = self.waits();
        let lease = self.database.lease(cookies, COOKIES..=COOKIES, LEASE_TIME, Duration::ZERO);
        let lease = lease.map_err(|error| self.told(&error))?;
        self.drop_transaction(false);
        self.lease = Some((lease, Instant::now()));
        Ok(())
    }

    /// Has the lease last longer, if there is one.
    pub(crate) fn renew(&mut self) {
        let patience = self.patience;
        if let Some((lease, since)) = &mut self.lease
            && since.elapsed() > LEASE_TIME / 3
            && {
                let _waits = patience.begin();
                lease.renew(LEASE_TIME).is_ok()
            }
        {
            *since = Instant::now();
        }
    }

    /// The transaction ends for its statements, and goes on for others that
    /// read.
    pub(crate) fn settle(&mut self) {
        self.savepoints.clear();
    }

    /// Commits it, if nobody has changed the schema by which it was written, since
    /// a snapshot, or its own.
    fn commit_guarded(&mut self, since: Option<Timestamp>) -> Result<(), Error> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let (written, changed) = (&self.written, &self.changed);
        let is_guarded = std::mem::replace(&mut self.is_guarded, true);
        open.with_dependent_mut(|_, running| {
            let Some(transaction) = running else { return Ok(()) };
            if !is_guarded {
                for cookies in written.iter().filter(|cookies| !changed.contains(cookies)) {
                    transaction.guard(*cookies, COOKIES..=COOKIES);
                }
            }
            match since {
                Some(since) => transaction.try_commit_since(since),
                None => transaction.try_commit(),
            }
            .map(|_| ())
        })
    }

    /// Commits what all databases of the connection have written here.
    pub(crate) fn commit(&mut self) -> Result<(), Code> {
        if let Some(lost) = self.lost {
            return Err(lost);
        }
        // Also of rows that constraints have kept out, as ever.
        self.tell_chosen()?;
        if !self.has_written {
            return Ok(());
        }
        self.shared.check_process()?;
        let _waits = self.waits();
        let outcome = match self.schemas.is_asked().then(|| self.schemas.proved_since()) {
            // It has read nothing.
            Some(Some(since)) => match self.commit_guarded(Some(since)) {
                Err(Error::Conflict(_) | Error::SnapshotTooOld(_) | Error::Disconnected(_)) => {
                    self.with(|transaction| transaction.ask_proofs())?;
                    self.commit_guarded(None)
                }
                outcome => outcome,
            },
            Some(None) => {
                // Nobody has said so far that the schema is this one.
                self.with(|transaction| transaction.ask_proofs())?;
                self.commit_guarded(None)
            }
            None => self.commit_guarded(None),
        };
        match outcome {
            Ok(()) => {
                self.drop_transaction(true);
                Ok(())
            }
            Err(error) => {
                let code = self.told(&error);
                if code != Code::BUSY {
                    // There is nothing to be done but to roll it back.
                    self.lost = Some(code);
                }
                Err(code)
            }
        }
    }

    pub(crate) fn rollback(&mut self) {
        if !self.stays() {
            self.drop_transaction(false);
        }
    }

    /// A database is to keep so many bytes of what is read.
    pub(crate) fn keep(&mut self, schema: Map, bytes: usize) {
        self.habits.keep(schema.tree(), bytes);
        let kept = self.habits.kept();
        if let Some(open) = &mut self.open {
            open.with_dependent_mut(|_, running| {
                running.as_mut().map(|transaction| transaction.keep_up_to(kept))
            });
        }
    }

    /// How it seeks in a tree.
    pub(crate) fn habit(&mut self, map: Map) -> &mut Habit {
        self.habits.of(map.tree())
    }

    /// How many entries are likely to be wanted of a tree, from where they are
    /// sought.
    pub(crate) fn taken(&self, map: Map) -> Option<u64> {
        self.taken.get(&map.tree()).copied()
    }

    /// So many were.
    pub(crate) fn has_taken(&mut self, map: Map, entries: u64) {
        self.taken.insert(map.tree(), entries);
    }

    /// How many savepoints there are.
    pub(crate) fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    /// Sees to it that there are so many savepoints.
    pub(crate) fn open_savepoints(&mut self, count: usize) -> Result<(), Code> {
        while self.savepoints.len() < count {
            let savepoint = self.with(|transaction| Ok(transaction.savepoint()))?;
            self.savepoints.push(savepoint);
        }
        Ok(())
    }

    /// Forgets a savepoint and those after it, or goes back to it; to the
    /// beginning, if it is none.
    pub(crate) fn savepoint(&mut self, is_rollback: bool, number: Option<usize>) -> Result<(), Code> {
        let keep = number.map_or(0, |number| if is_rollback { number + 1 } else { number });
        // One that has lost is rolled back whole, by whoever began it.
        if is_rollback && self.open.is_some() && self.lost.is_none() {
            let to = number.map(|number| self.savepoints.get(number).copied());
            // One that was not opened has nothing to take back.
            if to != Some(None) {
                self.with(|transaction| match to.flatten() {
                    Some(to) => transaction.rollback_to(to),
                    None => {
                        transaction.rollback_all();
                        Ok(())
                    }
                })?;
                self.schemas.taken_back(&self.changed, self.moment);
                self.moment += 1;
                let mut rows = self.shared.rows();
                self.numbered.iter().for_each(|tree| rows.suspect(*tree));
            }
        }
        if let (false, Some(open), Some(gone)) = (is_rollback, &mut self.open, self.savepoints.get(keep)) {
            // It is there, or all of the transaction has gone.
            open.with_dependent_mut(|_, running| running.as_mut().map(|running| running.release(*gone)));
        }
        self.savepoints.truncate(keep);
        self.chosen_until(is_rollback, number);
        Ok(())
    }

    pub(crate) fn cursor(&mut self, map: Map) -> Result<Cursor, Code> {
        self.with(|transaction| Ok(transaction.cursor(map)))
    }
}

/// What a cursor comes to.
pub(crate) type Found = Option<Entry>;
