//! Database of a connection.

use crate::{
    address::{ConsistencyLevel, DatabaseAddress},
    code::ResultCode,
    schema::{META, SchemaIndex},
    session::SqlSession,
    stores::{StoreRef, store_of},
    trees::{DatabaseTrees, SCHEMA_ROOT, map_name, root_of},
};
use rustc_hash::FxHashMap;
use std::{cell::RefCell, rc::Rc, time::Duration};
use yesquel::{COOKIES_MAP, CancelCheck, Database, Error, Map, MapCopies, SCHEMA_MAP, ServerId, TreeId};

/// Index of the schema's cookie.
pub(crate) const COOKIE: usize = 1;
/// Index of a pseudo value that changes when others have written.
const DATA_VERSION: usize = 15;

/// Name of the copy of the meta values at a group other than the first one.
pub(crate) fn copy_name(group: ServerId) -> String {
    format!("{COOKIES_MAP}@{}", group.0)
}

/// Opens or creates the maps of the schema and of the meta values. `found`: those that exist.
pub(crate) fn schema_maps(
    database: &Database,
    found: [Option<Map>; 2],
    is_readonly: bool,
) -> Result<(Map, MapCopies), Error> {
    let [first, others @ ..] = database.groups() else {
        return Err(Error::NoDatabase(database.name().to_owned()));
    };
    let names: Vec<String> = others.iter().map(|group| copy_name(*group)).collect();
    // Found when the database was opened.
    let copies: Option<Vec<Map>> = names.iter().map(|name| database.cached_map(name)).collect();
    if let ([Some(schema), Some(cookies)], Some(copies)) = (found, copies) {
        return Ok((schema, MapCopies::new(cookies, copies)));
    }
    if is_readonly {
        return Err(Error::NoDatabase(database.name().to_owned()));
    }
    // All copies exist before anyone relies on one.
    let copies = names.iter().map(String::as_str).zip(others.iter().copied());
    let wanted: Vec<_> = [(SCHEMA_MAP, *first), (COOKIES_MAP, *first)].into_iter().chain(copies).collect();
    let maps = database.maps_at(&wanted)?;
    let [schema, cookies, copies @ ..] = maps.as_slice() else {
        return Err(Error::NoDatabase(database.name().to_owned()));
    };
    Ok((*schema, MapCopies::new(*cookies, copies.iter().copied())))
}

/// Group of a new tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreePlace {
    /// Chosen by the placement.
    Any,
    /// That of the table that this connection has just created.
    LastTable,
    /// That of the table with this root page.
    Table(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttachState {
    Out,
    In,
}

/// Database of a connection: its main one or an attached one.
#[derive(Debug)]
pub(crate) struct AttachedDatabase {
    /// As it was opened. The session knows groups that have joined since.
    database: Database,
    schema: Map,
    /// The first copy of the meta values. The session knows the others.
    cookies: Map,
    pub(crate) is_readonly: bool,
    state: AttachState,
    known: SchemaIndex,
    /// Maps of root pages, if the database has several groups. A tree never changes its group.
    roots: RefCell<FxHashMap<u32, Map>>,
    /// The last table that was created here.
    last_table: Option<Map>,
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
        let find = || store.database_with_maps(&address.name, [SCHEMA_MAP, COOKIES_MAP]);
        let (mut database, found) = match find() {
            Err(Error::NoDatabase(_)) if creates && !is_readonly => {
                (store.database_or_create_at(&address.name, &address.placement)?, [None; 2])
            }
            found => found?,
        };
        let (schema, cookies) = match schema_maps(&database, found, is_readonly) {
            // Since then groups have joined, or it was dropped and created again.
            Err(Error::NoDatabase(_)) if !is_readonly => {
                let found;
                (database, found) = find()?;
                schema_maps(&database, found, is_readonly)?
            }
            maps => maps?,
        };
        let mut sessions = others.iter().map(|other| &other.session);
        let session = sessions.find(|session| session.borrow().shared.is(&shared)).cloned();
        let is_first = session.is_none();
        let session = session.unwrap_or_else(|| {
            Rc::new(RefCell::new(SqlSession::new(shared.clone(), database.clone(), cancel_check)))
        });
        session.borrow_mut().limit_staleness(address.staleness, is_first);
        session.borrow_mut().isolate(address.isolation);
        if address.consistency > ConsistencyLevel::Session {
            session.borrow_mut().see_all_commits();
        }
        let known = session.borrow_mut().schema(&database, schema, &cookies);
        Ok(AttachedDatabase {
            database,
            schema,
            cookies: cookies.first(),
            is_readonly,
            state: AttachState::Out,
            known,
            roots: RefCell::default(),
            last_table: None,
            session,
        })
    }

    /// Returns its trees, for tools.
    pub(crate) fn trees(&self) -> DatabaseTrees {
        let session = self.session.borrow();
        let database = session.database_of(self.known).unwrap_or(&self.database);
        DatabaseTrees::new(database.clone(), self.schema)
    }

    /// Returns an estimate of the number of pages of this size.
    pub(crate) fn pages(&self, page_bytes: u64) -> Result<u64, ResultCode> {
        let (trees, mut session) = (self.trees(), self.session.borrow_mut());
        let cookies = session.copies(self.known).cloned().ok_or(ResultCode::INTERNAL)?;
        session.pages(self.cookies, page_bytes, || trees.size(&cookies))
    }

    /// Returns the map of the meta values, which stands for the database.
    pub(crate) fn cookies(&self) -> Map {
        self.cookies
    }

    /// Returns the copy of the meta values that a write to a map guards: the one at its group, so
    /// that the guard takes no other group into the commit.
    pub(crate) fn cookies_at(&self, map: Map) -> Map {
        let session = self.session.borrow();
        session.copies(self.known).map_or(self.cookies, |copies| copies.at(map.group()))
    }

    /// Returns the map of a root page.
    pub(crate) fn map(&self, root: u32) -> Result<Map, ResultCode> {
        if root == SCHEMA_ROOT {
            return Ok(self.schema);
        }
        if let Some(map) = self.roots.borrow().get(&root) {
            return Ok(*map);
        }
        let cached = {
            let session = self.session.borrow();
            let database = session.database_of(self.known).ok_or(ResultCode::INTERNAL)?;
            if let [_] = database.groups() {
                return self.schema.with_number(u64::from(root)).ok_or(ResultCode::CORRUPT);
            }
            database.cached_map(&map_name(u64::from(root)))
        };
        let map = match cached {
            Some(map) => map,
            None => self.find_map(root)?,
        };
        self.roots.borrow_mut().insert(root, map);
        Ok(map)
    }

    /// Finds the map of a root page that another client has created.
    fn find_map(&self, root: u32) -> Result<Map, ResultCode> {
        let mut session = self.session.borrow_mut();
        let (name, database) = (map_name(u64::from(root)), &self.database);
        // A tree keeps its group, so that a copy of the names which has it is right.
        let named = || {
            let found = database.existing_map(&name);
            found.map(|found| found.map(|map| vec![(name.clone(), map)]))
        };
        let all = session.with(|transaction| {
            if database.is_from_copy()
                && let Some(named) = named()?
            {
                return Ok(named);
            }
            match transaction.maps(database) {
                Err(error @ Error::HomeGroupUnreachable(_)) => named()?.ok_or(error),
                all => all,
            }
        })?;
        let mut roots = self.roots.borrow_mut();
        roots.extend(all.into_iter().filter_map(|(name, map)| Some((root_of(&name)?, map))));
        if let Some(map) = roots.get(&root) {
            return Ok(*map);
        }
        // The table was dropped if the schema has changed.
        session.with(|transaction| transaction.ask_proofs())?;
        Err(ResultCode::CORRUPT)
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
        drop(session);
        let cookies = self.cookies;
        Ok(self.with_all_groups(|session, known| session.assumed_values(known, cookies))?[COOKIE])
    }

    /// Returns meta values, and learns before it the groups that have joined the database according to
    /// them.
    fn with_all_groups(
        &self,
        values: impl Fn(&mut SqlSession, SchemaIndex) -> Result<[u32; META], ResultCode>,
    ) -> Result<[u32; META], ResultCode> {
        let mut session = self.session.borrow_mut();
        let all = values(&mut session, self.known)?;
        if !session.misses_groups(self.known) {
            return Ok(all);
        }
        drop(session);
        self.learn_groups()?;
        // The transaction may be another one.
        let mut session = self.session.borrow_mut();
        let all = values(&mut session, self.known)?;
        if session.misses_groups(self.known) { Err(session.lose_to_groups()) } else { Ok(all) }
    }

    /// Learns the groups that have joined the database.
    fn learn_groups(&self) -> Result<(), ResultCode> {
        let mut session = self.session.borrow_mut();
        session.shared.check_process()?;
        let opened = {
            let _waits = session.waits();
            let store = self.database.store();
            let (name, maps) = (self.database.name(), [SCHEMA_MAP, COOKIES_MAP]);
            let opened = store.database_with_groups(name, maps, session.groups_of(self.known));
            opened.and_then(|(database, found)| Ok((schema_maps(&database, found, true)?, database)))
        };
        let ((schema, cookies), database) = opened.map_err(|error| session.code_of(&error))?;
        if schema != self.schema {
            // Dropped, and created again.
            let dropped = TreeId::new(self.schema.tree()).unwrap_or_default();
            return Err(session.code_of(&Error::NoMap(dropped)));
        }
        session.learn_groups(self.known, &database, &cookies);
        Ok(())
    }

    /// Returns the cached cookie of the schema.
    pub(crate) fn known_cookie(&self) -> Option<u32> {
        self.session.borrow().cached_values(self.known).map(|values| values[COOKIE])
    }

    /// Returns a meta value; fails if the schema differs from the one that `begin` returned, so
    /// that the statement is prepared again.
    pub(crate) fn meta(&mut self, index: usize) -> Result<u32, ResultCode> {
        if index == DATA_VERSION {
            return Ok(self.session.borrow().moment() as u32);
        }
        let cookies = self.cookies;
        let values = self.with_all_groups(|session, known| session.values(known, cookies))?;
        Ok(values.get(index).copied().unwrap_or_default())
    }

    /// Verifies the meta values, for a caller that has not used any.
    pub(crate) fn prove(&mut self) -> Result<(), ResultCode> {
        let cookies = self.cookies;
        self.with_all_groups(|session, known| session.verified_values(known, cookies)).map(drop)
    }

    pub(crate) fn set_meta(&mut self, index: usize, value: u32) -> Result<(), ResultCode> {
        let cookies = self.cookies;
        let mut all = self.with_all_groups(|session, known| {
            if index == COOKIE {
                session.values_to_follow(known, cookies)
            } else {
                session.verified_values(known, cookies)
            }
        })?;
        let Some(place) = all.get_mut(index) else { return Ok(()) };
        *place = value;
        self.session.borrow_mut().set_values(self.known, all)
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
        let here = || all.iter().filter(|other| Rc::ptr_eq(&self.session, &other.session));
        for here in here() {
            if self.session.borrow().misses_groups(here.known) {
                here.learn_groups()?;
            }
        }
        let mut session = self.session.borrow_mut();
        let copies = here().filter_map(|here| session.copies(here.known));
        let cookies: Vec<Map> = copies.flat_map(|copies| copies.all().iter().copied()).collect();
        session.take_lease(&cookies, wait)
    }

    /// Notes that the caller waits for no lease any more.
    pub(crate) fn stop_waiting(&self) {
        self.session.borrow_mut().stop_waiting();
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

    /// Creates a tree. Returns its root page.
    pub(crate) fn create(&mut self, place: TreePlace) -> Result<u32, ResultCode> {
        let beside = match place {
            TreePlace::Any => None,
            TreePlace::LastTable => self.last_table,
            TreePlace::Table(root) => Some(self.map(root)?),
        };
        let (database, cookies) = (self.database.clone(), self.cookies);
        let mut session = self.session.borrow_mut();
        session.resized(cookies);
        let map = session
            .write(cookies, |transaction| transaction.create_map_beside(&database, beside, map_name))?;
        drop(session);
        let root = u32::try_from(map.tree()).ok().filter(|root| *root < 1 << 31).ok_or(ResultCode::FULL)?;
        self.roots.borrow_mut().insert(root, map);
        if place == TreePlace::Any {
            self.last_table = Some(map);
        }
        Ok(root)
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
        let map = self.map(root)?;
        let guarded = self.cookies_at(map);
        let count = if counts { self.check(root)? } else { 0 };
        let mut session = self.session.borrow_mut();
        session.shared.rows().suspect(map.tree());
        session.resized(self.cookies);
        session.write(guarded, |transaction| {
            transaction.delete_range::<&[u8]>(map, ..);
            Ok(())
        })?;
        Ok(count)
    }

    /// Reads a whole tree. Returns the number of entries if all are intact.
    pub(crate) fn check(&self, root: u32) -> Result<i64, ResultCode> {
        let map = self.map(root)?;
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
