//! A database, as one connection has it.

use crate::{
    address::Address,
    session::{COOKIES, Code, Session},
    stores::{Shared, store_of},
    trees::Trees,
};
use std::{cell::RefCell, rc::Rc};
use yesquel::{Database, Error, Map};

/// Meta values that are kept.
const META: usize = 9;
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
    /// The meta values, and of what moment.
    known: Option<(u64, [u32; META])>,
    /// Dropped last, for the store goes with it.
    pub(crate) session: Rc<RefCell<Session>>,
}

impl Side {
    /// Opens a database. `others` are those that the connection has.
    pub(crate) fn open(
        address: &Address,
        (is_readonly, creates): (bool, bool),
        others: &[&Side],
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
        let known = others.iter().map(|other| &other.session);
        let session = known.into_iter().find(|session| session.borrow().shared.is(&shared)).cloned();
        let session =
            session.unwrap_or_else(|| Rc::new(RefCell::new(Session::new(shared.clone(), database.clone()))));
        Ok(Side { database, schema, cookies, is_readonly, state: State::Out, known: None, session })
    }

    /// What may be asked of its trees beside SQL.
    pub(crate) fn trees(&self) -> Trees {
        Trees::new(self.database.clone(), self.schema)
    }

    /// Bytes of all that is in its trees, as far as servers tell.
    pub(crate) fn size(&self) -> u64 {
        self.trees().size().unwrap_or_default()
    }

    pub(crate) fn cookies(&self) -> Map {
        self.cookies
    }

    /// The map of a root page.
    pub(crate) fn map(&self, root: u32) -> Option<Map> {
        if root == SCHEMA_ROOT { Some(self.schema) } else { self.database.map_by_number(u64::from(root)) }
    }

    /// Is in a transaction; returns the schema's cookie.
    pub(crate) fn begin(&mut self) -> Result<u32, Code> {
        if self.state == State::Out {
            self.session.borrow_mut().enter();
            self.state = State::In;
        }
        self.session.borrow_mut().renew();
        Ok(self.values()?[COOKIE])
    }

    fn values(&mut self) -> Result<[u32; META], Code> {
        let mut session = self.session.borrow_mut();
        if let Some((moment, values)) = self.known
            && moment == session.moment()
            && moment > 0
        {
            return Ok(values);
        }
        let cookies = self.cookies;
        let stored = session.with(|transaction| transaction.get(cookies, COOKIES))?.unwrap_or_default();
        let mut values = [0; META];
        for (value, bytes) in values.iter_mut().zip(stored.as_chunks().0) {
            *value = u32::from_be_bytes(*bytes);
        }
        self.known = Some((session.moment(), values));
        Ok(values)
    }

    pub(crate) fn meta(&mut self, index: usize) -> u32 {
        if index == DATA_VERSION {
            return self.session.borrow().moment() as u32;
        }
        // They were read when the transaction began, but for one that went back.
        self.values().ok().and_then(|values| values.get(index).copied()).unwrap_or_default()
    }

    pub(crate) fn set_meta(&mut self, index: usize, value: u32) -> Result<(), Code> {
        let mut values = self.values()?;
        let Some(place) = values.get_mut(index) else { return Ok(()) };
        *place = value;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_be_bytes()).collect();
        let (cookies, mut session) = (self.cookies, self.session.borrow_mut());
        session.changes(cookies);
        session.write(cookies, |transaction| transaction.put(cookies, COOKIES, &bytes))?;
        self.known = Some((session.moment(), values));
        Ok(())
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
            self.session.borrow_mut().leave();
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
