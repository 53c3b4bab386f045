//! A database, as one connection has it.

use crate::{
    address::Address,
    code::Code,
    schema::{Schema, Values},
    session::Session,
    stores::{Shared, store_of},
    trees::Trees,
};
use std::{cell::RefCell, rc::Rc};
use yesquel::{Database, Error, Map, Patience};

/// That of the schema's cookie.
const COOKIE: usize = 1;
/// One that is no value of the database: it changes when others have written.
const DATA_VERSION: usize = 15;
/// The root of the schema table.
const SCHEMA_ROOT: u32 = 1;

const SCHEMA_MAP: &str = "sql/schema";
const COOKIES_MAP: &str = "sql/cookies";

fn map_name(number: u64) -> String {
    format!("sql/{number}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Out,
    In,
}

/// A database of a connection.
#[derive(Debug)]
pub(crate) struct Side {
    database: Database,
    schema: Map,
    cookies: Map,
    pub(crate) is_readonly: bool,
    state: State,
    known: Schema,
    /// Dropped last, for the store goes with it.
    pub(crate) session: Rc<RefCell<Session>>,
}

impl Side {
    /// Opens a database. `others` are those that the connection has.
    pub(crate) fn open(
        address: &Address,
        (is_readonly, creates): (bool, bool),
        others: &[&Side],
        patience: Patience,
    ) -> Result<Side, Error> {
        let shared: Shared = store_of(address)?;
        let store = shared.store();
        let database = match (is_readonly, creates) {
            (false, true) => store.database_or_create(&address.name)?,
            _ => store.database(&address.name)?,
        };
        let (schema, cookies) = if is_readonly {
            let found = (database.existing_map(SCHEMA_MAP)?, database.existing_map(COOKIES_MAP)?);
            match found {
                (Some(schema), Some(cookies)) => (schema, cookies),
                _ => return Err(Error::NoDatabase(address.name.clone())),
            }
        } else {
            (database.map(SCHEMA_MAP)?, database.map(COOKIES_MAP)?)
        };
        let mut sessions = others.iter().map(|other| &other.session);
        let session = sessions.find(|session| session.borrow().shared.is(&shared)).cloned();
        let session = session.unwrap_or_else(|| {
            Rc::new(RefCell::new(Session::new(shared.clone(), database.clone(), patience)))
        });
        let known = session.borrow_mut().schema(schema, cookies);
        Ok(Side { database, schema, cookies, is_readonly, state: State::Out, known, session })
    }

    /// What may be asked of its trees beside SQL.
    pub(crate) fn trees(&self) -> Trees {
        Trees::new(self.database.clone(), self.schema)
    }

    /// Bytes of all that is in its trees, as far as servers tell.
    pub(crate) fn size(&self) -> u64 {
        let _waits = self.session.borrow().waits();
        self.trees().size().unwrap_or_default()
    }

    pub(crate) fn cookies(&self) -> Map {
        self.cookies
    }

    /// The map of a root page.
    pub(crate) fn map(&self, root: u32) -> Option<Map> {
        if root == SCHEMA_ROOT { Some(self.schema) } else { self.database.map_by_number(u64::from(root)) }
    }

    /// Is in a transaction; returns the schema's cookie, as far as it is known: if
    /// it is another one, the first request says so.
    pub(crate) fn begin(&mut self) -> Result<u32, Code> {
        let mut session = self.session.borrow_mut();
        session.shared.check_process()?;
        if self.state == State::Out {
            session.enter(self.known);
            self.state = State::In;
        }
        session.renew();
        Ok(session.likely_values(self.known, self.cookies)?[COOKIE])
    }

    /// The schema's cookie as far as it is known.
    pub(crate) fn known_cookie(&self) -> Option<u32> {
        self.session.borrow().known_values(self.known).map(|values| values[COOKIE])
    }

    /// A meta value. By another schema than the one that `begin` told of nothing
    /// more is to be done: the statement is prepared again.
    pub(crate) fn meta(&mut self, index: usize) -> Result<u32, Code> {
        let mut session = self.session.borrow_mut();
        if index == DATA_VERSION {
            return Ok(session.moment() as u32);
        }
        let values = session.values(self.known, self.cookies)?;
        Ok(values.get(index).copied().unwrap_or_default())
    }

    /// Has the values be those of the transaction, for one who was not told of
    /// any.
    pub(crate) fn prove(&mut self) -> Result<(), Code> {
        self.session.borrow_mut().right_values(self.known, self.cookies).map(drop)
    }

    pub(crate) fn set_meta(&mut self, index: usize, value: u32) -> Result<(), Code> {
        let mut session = self.session.borrow_mut();
        let mut all = if index == COOKIE {
            session.values_to_follow(self.known, self.cookies)?
        } else {
            session.right_values(self.known, self.cookies)?
        };
        let Some(place) = all.get_mut(index) else { return Ok(()) };
        *place = value;
        session.set_values(self.known, self.cookies, Values::from(all))
    }

    /// What was to go on when a statement is prepared again does so no more.
    pub(crate) fn let_go(&mut self) {
        self.session.borrow_mut().let_go();
    }

    /// Of what is read so many bytes are kept (`PRAGMA cache_size`).
    pub(crate) fn keep(&mut self, bytes: usize) {
        self.session.borrow_mut().keep(self.schema, bytes);
    }

    /// Keeps others from writing until the transaction ends that begins now.
    pub(crate) fn lease(&mut self) -> Result<(), Code> {
        self.session.borrow_mut().take_lease(self.cookies)
    }

    pub(crate) fn commit(&mut self) -> Result<(), Code> {
        self.session.borrow_mut().commit()
    }

    /// Is in no transaction any more, or goes on with another.
    pub(crate) fn end(&mut self, goes_on: bool) {
        if goes_on {
            self.session.borrow_mut().settle();
        } else if self.state == State::In {
            self.state = State::Out;
            self.session.borrow_mut().leave(self.known);
        }
    }

    pub(crate) fn create(&mut self) -> Result<u32, Code> {
        let (database, cookies) = (self.database.clone(), self.cookies);
        let mut session = self.session.borrow_mut();
        let map = session.write(cookies, |transaction| transaction.create_map(&database, map_name))?;
        u32::try_from(map.tree()).ok().filter(|root| *root < 1 << 31).ok_or(Code::FULL)
    }

    pub(crate) fn drop_tree(&mut self, root: u32) -> Result<(), Code> {
        let (database, cookies) = (self.database.clone(), self.cookies);
        let mut session = self.session.borrow_mut();
        let name = map_name(u64::from(root));
        session.write(cookies, |transaction| transaction.drop_map(&database, &name)).map(|_| ())
    }

    /// Deletes all of a tree; returns how many there were, if it is asked.
    pub(crate) fn clear(&mut self, root: u32, counts: bool) -> Result<i64, Code> {
        let map = self.map(root).ok_or(Code::CORRUPT)?;
        let count = if counts { self.check(root)? } else { 0 };
        let (cookies, mut session) = (self.cookies, self.session.borrow_mut());
        session.shared.rows().suspect(map.tree());
        session.write(cookies, |transaction| {
            transaction.delete_range::<&[u8]>(map, ..);
            Ok(())
        })?;
        Ok(count)
    }

    /// Walks through a tree: how many entries there are, if all is well.
    pub(crate) fn check(&self, root: u32) -> Result<i64, Code> {
        let map = self.map(root).ok_or(Code::CORRUPT)?;
        let mut session = self.session.borrow_mut();
        let mut cursor = session.cursor(map)?;
        let (mut count, mut last) = (0, None);
        let mut found = session.with(|transaction| cursor.first(transaction))?;
        while let Some((key, _)) = found {
            if last.is_some_and(|last| last >= key) {
                return Err(Code::CORRUPT);
            }
            count += 1;
            last = Some(key);
            found = session.with(|transaction| cursor.next(transaction))?;
        }
        Ok(count)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.end(false);
    }
}
