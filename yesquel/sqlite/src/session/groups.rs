//! Groups of a connection's databases, and those that join them while it is open.

use super::SqlSession;
use crate::{code::ResultCode, last_error, schema::SchemaIndex};
use yesquel::{Database, Map, MapCopies, ServerId};

impl SqlSession {
    /// Returns the schema of a database, whose groups the connection uses.
    pub(crate) fn schema(&mut self, database: &Database, schema: Map, cookies: &MapCopies) -> SchemaIndex {
        self.use_groups(database.groups());
        self.schemas.of(database, schema, cookies)
    }

    fn use_groups(&mut self, groups: &[ServerId]) {
        for group in groups {
            if !self.groups.contains(group) {
                self.groups.push(*group);
            }
        }
    }

    /// Asks the groups for the present, before a transaction begins. If they do not tell, the
    /// transaction fails.
    pub(super) fn catch_up(&mut self) {
        if !self.sees_all_commits {
            return;
        }
        let _waits = self.waits();
        if let Err(error) = self.database.store().catch_up(&self.groups) {
            self.lost = Some(self.code_of(&error));
        }
    }

    /// Returns a database with its groups, as they were learned last.
    pub(crate) fn database_of(&self, schema: SchemaIndex) -> Option<&Database> {
        self.schemas.database(schema).map(|(database, _)| database)
    }

    /// Returns the copies of a database's meta values.
    pub(crate) fn copies(&self, schema: SchemaIndex) -> Option<&MapCopies> {
        self.schemas.database(schema).map(|(_, cookies)| cookies)
    }

    /// Returns whether groups have joined a database since they were learned.
    pub(crate) fn misses_groups(&self, schema: SchemaIndex) -> bool {
        self.schemas.misses_groups(schema)
    }

    /// Returns the number of groups that a database has according to its meta values.
    pub(crate) fn groups_of(&self, schema: SchemaIndex) -> usize {
        self.schemas.groups_of(schema)
    }

    /// Notes the groups of a database, and its copies of the meta values.
    pub(crate) fn learn_groups(&mut self, schema: SchemaIndex, database: &Database, cookies: &MapCopies) {
        self.use_groups(database.groups());
        if !self.schemas.learn_copies(schema, database, cookies) || self.open.is_none() {
            return;
        }
        // BEGIN IMMEDIATE has leases at the former groups only. Leases that the connection takes to win a
        // race need not be everywhere.
        let has_lease = self.leases.held.is_some() && self.leases.is_explicit;
        let has_read = self.schemas.another_is_verified(schema, self.moment)
            || self.is_another
            || self.has_written
            || !self.savepoints.is_empty();
        if has_lease || (self.sees_all_commits && has_read) {
            self.lose_to_groups();
        } else if self.sees_all_commits {
            // It has asked the former groups only for the present. Nothing was returned: another
            // transaction takes its place.
            let reprepare_pending = self.reprepare_pending;
            self.drop_transaction(false);
            (self.is_another, self.reprepare_pending) = (false, reprepare_pending);
        }
    }

    /// Notes that the transaction can only be rolled back, because of groups that have joined. Returns
    /// the code.
    pub(crate) fn lose_to_groups(&mut self) -> ResultCode {
        let code = ResultCode::BUSY_SNAPSHOT;
        last_error::set(code, "groups have joined the database: roll back and begin again");
        self.lost = Some(code);
        code
    }
}
