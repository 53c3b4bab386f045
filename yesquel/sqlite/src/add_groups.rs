//! Groups that join a database: each gets a copy of the schema's meta values
//! (`docs/yesquel/sql.md`).

use crate::{
    attached_database::{COOKIE, copy_name, schema_maps},
    schema::{COOKIES, MetaValues},
    session::LEASE_TIME,
};
use std::time::Duration;
use yesquel::{AddedGroups, COOKIES_MAP, Database, Error, Placement, SCHEMA_MAP, Store};

/// Longest wait for leases of others.
const WAIT_MAX: Duration = Duration::from_secs(86_400);
/// Maximum number of attempts. Only transactions that create databases or schemas, and changes of
/// machines, let one fail.
const ATTEMPTS_MAX: usize = 100;

/// Adds groups to a database, chosen by a placement, and returns it with its groups. Tables that are
/// created from then on may be placed at them; existing tables stay. Waits for leases of others for
/// `wait` at most.
///
/// It is a change of the schema: transactions that have written and not committed fail as after any
/// other.
pub fn add_groups(
    store: &Store,
    name: &str,
    placement: &Placement,
    wait: Duration,
) -> Result<Database, Error> {
    let (until, mut attempts) = (store.uptime() + wait.min(WAIT_MAX), 0);
    loop {
        match try_to_add(store, name, placement, until) {
            Ok(true) => return store.database(name),
            // Others have just added groups, created a map, or removed a machine.
            Ok(false) | Err(Error::Conflict(_) | Error::Exists) if attempts < ATTEMPTS_MAX => attempts += 1,
            Ok(false) => {
                let why = format!("the groups of '{name}' change all the time: try again later");
                return Err(Error::Unavailable(why));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether the database has the groups: it is unchanged if others have changed its groups, or
/// created its schema, meanwhile.
fn try_to_add(store: &Store, name: &str, placement: &Placement, until: Duration) -> Result<bool, Error> {
    let (database, found) = store.database_with_maps(name, [SCHEMA_MAP, COOKIES_MAP])?;
    if found.contains(&None) {
        let mut transaction = database.begin();
        transaction.add_groups(&database, placement)?;
        // A client that creates the schema from now on conflicts.
        if transaction.maps(&database)?.iter().any(|(map, _)| map == COOKIES_MAP) {
            return Ok(false);
        }
        return transaction.commit().map(|_| true);
    }
    let (_, cookies) = schema_maps(&database, found, true)?;
    let mut copies = cookies.all().to_vec();
    // Others do not write meanwhile.
    let mut lease = database.lease_to_take(copies.iter().map(|copy| (*copy, COOKIES..=COOKIES)))?;
    lease.take(LEASE_TIME, until.saturating_sub(store.uptime()))?;
    let mut transaction = lease.begin();
    let AddedGroups { before, added } = transaction.add_groups(&database, placement)?;
    if added.is_empty() {
        return Ok(true);
    }
    if before != database.groups() {
        // There are more copies.
        return Ok(false);
    }
    let values = MetaValues::of(transaction.get(cookies.first(), COOKIES)?.unwrap_or_default());
    for group in &added {
        copies.push(transaction.create_map_at(&database, *group, &copy_name(*group))?);
    }
    let mut all = values.all;
    all[COOKIE] = all[COOKIE].wrapping_add(1);
    let values = MetaValues::new(all, u32::try_from(copies.len()).unwrap_or(u32::MAX));
    for copy in &copies {
        transaction.put(*copy, COOKIES, values.stored())?;
    }
    transaction.commit().map(|_| true)
}
