//! Numbers of new rows, in a transaction.

use super::SqlSession;
use crate::{code::ResultCode, key::row_of, row_numbers::NextNumber};
use yesquel::{Error, Map};

impl SqlSession {
    /// Returns the number of a new row of a map, above `above`; `None` if they are used up.
    pub(crate) fn new_row(&mut self, map: Map, above: i64) -> Result<Option<i64>, ResultCode> {
        let tree = map.tree();
        self.shared.check_process()?;
        self.begun();
        if self.schemas.has(tree) {
            // SQLite reads the schema in the order of its rows, and an index must be behind its table,
            // which another process may have created. Schema changes conflict in any case.
            return Ok(self.last_row(map)?.checked_add(1));
        }
        let mut last = None;
        loop {
            let is_user = self.numbered.contains(&tree);
            let next = self.shared.rows().next(tree, above, last, (self.began, is_user));
            match next {
                NextNumber::Number(number) => {
                    if !is_user {
                        self.numbered.push(tree);
                        self.shared.rows().enter(tree);
                    }
                    return Ok(Some(number));
                }
                NextNumber::Last => last = Some(self.last_row(map)?),
                NextNumber::Take { above: i64::MAX, .. } => return Ok(None),
                NextNumber::Take { count, above } => {
                    let most = (i64::MAX - above) as u64;
                    let count = if self.database().store().host().is_some() { 1 } else { count.min(most) };
                    let _waits = self.waits();
                    // A map that this transaction creates has no counter yet.
                    let given = match self.database().row_ids(map, count, above as u64) {
                        Err(Error::NoMap(_)) => (above as u64 + 1)..(above as u64 + 1 + count),
                        given => given.map_err(|error| self.code_of(&error))?,
                    };
                    let (Ok(start), Ok(end)) = (i64::try_from(given.start), i64::try_from(given.end)) else {
                        return Ok(None);
                    };
                    // In an embedded store no other process takes numbers, so that gaps are free.
                    let is_alone = self.database().store().host().is_some();
                    self.shared.rows().given(tree, start..end, is_alone);
                }
            }
        }
    }

    /// Returns the number of a map's last row, as the transaction sees it; 0 if there is none.
    fn last_row(&mut self, map: Map) -> Result<i64, ResultCode> {
        let mut cursor = self.cursor(map)?;
        let found = self.with(|transaction| {
            cursor.limit(1);
            cursor.last(transaction)
        })?;
        Ok(found.and_then(|(key, _)| row_of(&key)).unwrap_or(0))
    }
}
