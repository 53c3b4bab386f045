//! Database of a connection.

use crate::{
    address::DatabaseAddress,
    code::ResultCode,
    schema::{MetaValues, SchemaIndex},
    session::SqlSession,
    stores::{StoreRef, store_of},
    trees::DatabaseTrees,
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use yesquel::{CancelCheck, Database, Error, Map};

/// Index of the schema's cookie.
const COOKIE: usize = 1;
/// Index of a pseudo value that changes when others have written.
const DATA_VERSION: usize = 15;

const SCHEMA_MAP: &str = "sql/schema";
const COOKIES_MAP: &str = "sql/cookies";

fn map_name(number: u64) -> String {
    format!("sql/{number}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttachState {
    Out,
    In,
}

/// Database of a connection: its main one or an attached one.
#[derive(Debug)]
pub(crate) struct AttachedDatabase {
    database: Database,
    schema: Map,
    cookies: Map,
    pub(crate) is_readonly: bool,
    state: AttachState,
    known: SchemaIndex,
    /// Dropped last, for it may hold the store.
    pub(crate) session: Rc<RefCell<SqlSession>>,
}

impl AttachedDatabase {
    /// Opens a database. `others` are the connection's other databases.
    pub(crate) fn open(
        address: &DatabaseAddress,
        (is_readonly, creates): (bool, bool),
        others: &[&AttachedDatabase],
        cancel_check: CancelCheck,
    ) -> Result<AttachedDatabase, Error> {
        let shared: StoreRef = store_of(address)?;
        let store = shared.store();
        let (database, found) = match store.database_with_maps(&address.name, [SCHEMA_MAP, COOKIES_MAP]) {
            Err(Error::NoDatabase(_)) if creates && !is_readonly => {
                (store.database_or_create_at(&address.name, address.placement)?, [None; 2])
            }
            found => found?,
        };
        let (schema, cookies) = match found {
            [Some(schema), Some(cookies)] => (schema, cookies),
            _ if is_readonly => return Err(Error::NoDatabase(address.name.clone())),
            _ => (database.map(SCHEMA_MAP)?, database.map(COOKIES_MAP)?),
        };
        let mut sessions = others.iter().map(|other| &other.session);
        let session = sessions.find(|session| session.borrow().shared.is(&shared)).cloned();
        let is_first = session.is_none();
        let session = session.unwrap_or_else(|| {
            Rc::new(RefCell::new(SqlSession::new(shared.clone(), database.clone(), cancel_check)))
        });
        session.borrow_mut().limit_staleness(address.staleness, is_first);
        let known = session.borrow_mut().schema(schema, cookies);
        Ok(AttachedDatabase {
            database,
            schema,
            cookies,
            is_readonly,
            state: AttachState::Out,
            known,
            session,
        })
    }

    /// Returns its trees, for tools.
    pub(crate) fn trees(&self) -> DatabaseTrees {
        DatabaseTrees::new(self.database.clone(), self.schema)
    }

    /// Returns an estimate of the number of pages of this size.
    pub(crate) fn pages(&self, page_bytes: u64) -> Result<u64, ResultCode> {
        let (trees, cookies) = (self.trees(), self.cookies);
        self.session.borrow_mut().pages(cookies, page_bytes, || trees.size(cookies))
    }

    pub(crate) fn cookies(&self) -> Map {
        self.cookies
    }

    /// Returns the map of a root page.
    pub(crate) fn map(&self, root: u32) -> Option<Map> {
        self.trees().map(root)
    }

    /// Begins a transaction. Returns the cached cookie of the schema: if it is outdated, the first
    /// request reports that. `only_reads`: for a statement that only reads, in a transaction of its
    /// own.
    pub(crate) fn begin(&mut self, only_reads: bool) -> Result<u32, ResultCode> {
        let mut session = self.session.borrow_mut();
        session.shared.check_process()?;
        session.begin_statement(only_reads)?;
        if self.state == AttachState::Out {
            session.enter(self.known);
            self.state = AttachState::In;
        }
        session.renew();
        Ok(session.assumed_values(self.known, self.cookies)?[COOKIE])
    }

    /// Returns the cached cookie of the schema.
    pub(crate) fn known_cookie(&self) -> Option<u32> {
        self.session.borrow().cached_values(self.known).map(|values| values[COOKIE])
    }

    /// Returns a meta value; fails if the schema differs from the one that `begin` returned, so
    /// that the statement is prepared again.
    pub(crate) fn meta(&mut self, index: usize) -> Result<u32, ResultCode> {
        let mut session = self.session.borrow_mut();
        if index == DATA_VERSION {
            return Ok(session.moment() as u32);
        }
        let values = session.values(self.known, self.cookies)?;
        Ok(values.get(index).copied().unwrap_or_default())
    }

    /// Verifies the meta values, for a caller that has not used any.
    pub(crate) fn prove(&mut self) -> Result<(), ResultCode> {
        self.session.borrow_mut().verified_values(self.known, self.cookies).map(drop)
    }

    pub(crate) fn set_meta(&mut self, index: usize, value: u32) -> Result<(), ResultCode> {
        let mut session = self.session.borrow_mut();
        let mut all = if index == COOKIE {
            session.values_to_follow(self.known, self.cookies)?
        } else {
            session.verified_values(self.known, self.cookies)?
        };
        let Some(place) = all.get_mut(index) else { return Ok(()) };
        *place = value;
        session.set_values(self.known, self.cookies, MetaValues::from(all))
    }

    /// Ends a transaction that was kept for a statement to be prepared again.
    pub(crate) fn end_kept_transaction(&mut self) {
        self.session.borrow_mut().end_kept_transaction();
    }

    /// Sets the cache size in bytes (`PRAGMA cache_size`).
    pub(crate) fn keep(&mut self, bytes: usize) {
        self.session.borrow_mut().keep(self.schema, bytes);
    }

    /// Keeps others from writing to these databases of a connection at this store, during the
    /// transaction that begins next. Waits for leases of others for `wait` at most.
    pub(crate) fn lease(&self, all: &[&AttachedDatabase], wait: Duration) -> Result<(), ResultCode> {
        let here = all.iter().filter(|other| Rc::ptr_eq(&self.session, &other.session));
        let mut cookies: Vec<Map> = here.map(|here| here.cookies).collect();
        cookies.sort_by_key(Map::tree);
        cookies.dedup();
        self.session.borrow_mut().take_lease(&cookies, wait)
    }

    /// Notes that a statement that has lost a race runs again.
    pub(crate) fn wants_turn(&mut self) {
        self.session.borrow_mut().wants_turn();
    }

    /// Commits. Waits for leases of others for `wait` at most.
    pub(crate) fn commit(&mut self, wait: Duration) -> Result<(), ResultCode> {
        self.session.borrow_mut().commit(wait)
    }

    /// Leaves the transaction, or stays in it for read statements.
    pub(crate) fn end(&mut self, keeps_transaction: bool) {
        if keeps_transaction {
            self.session.borrow_mut().settle();
        } else if self.state == AttachState::In {
            self.state = AttachState::Out;
            self.session.borrow_mut().leave(self.known);
        }
    }

    pub(crate) fn create(&mut self) -> Result<u32, ResultCode> {
        let (database, cookies) = (self.database.clone(), self.cookies);
        let mut session = self.session.borrow_mut();
        session.resized(cookies);
        let map = session.write(cookies, |transaction| transaction.create_map(&database, map_name))?;
        u32::try_from(map.tree()).ok().filter(|root| *root < 1 << 31).ok_or(ResultCode::FULL)
    }

    pub(crate) fn drop_tree(&mut self, root: u32) -> Result<(), ResultCode> {
        let (database, cookies) = (self.database.clone(), self.cookies);
        let mut session = self.session.borrow_mut();
        let name = map_name(u64::from(root));
        session.resized(cookies);
        session.write(cookies, |transaction| transaction.drop_map(&database, &name)).map(|_| ())
    }

    /// Deletes all entries of a tree; returns their number if `counts` is set.
    pub(crate) fn clear(&mut self, root: u32, counts: bool) -> Result<i64, ResultCode> {
        let map = self.map(root).ok_or(ResultCode::CORRUPT)?;
        let count = if counts { self.check(root)? } else { 0 };
        let (cookies, mut session) = (self.cookies, self.session.borrow_mut());
        session.shared.rows().suspect(map.tree());
        session.resized(cookies);
        session.write(cookies, |transaction| {
            transaction.delete_range::<&[u8]>(map, ..);
            Ok(())
        })?;
        Ok(count)
    }

    /// Reads a whole tree. Returns the number of entries if all are intact.
    pub(crate) fn check(&self, root: u32) -> Result<i64, ResultCode> {
        let map = self.map(root).ok_or(ResultCode::CORRUPT)?;
        let mut session = self.session.borrow_mut();
        let mut cursor = session.cursor(map)?;
        let (mut count, mut last) = (0, None);
        let mut found = session.with(|transaction| cursor.first(transaction))?;
        while let Some((key, _)) = found {
            if last.is_some_and(|last| last >= key) {
                return Err(ResultCode::CORRUPT);
            }
            count += 1;
            last = Some(key);
            found = session.with(|transaction| cursor.next(transaction))?;
        }
        Ok(count)
    }
}

impl Drop for AttachedDatabase {
    fn drop(&mut self) {
        self.end(false);
    }
}
