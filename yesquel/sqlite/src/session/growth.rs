//! Bytes by which the transaction changes the sizes of databases.

use super::SqlSession;
use crate::{code::ResultCode, size::DatabaseSize};
use yesquel::{Error, Map};

/// Change of a database's size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    /// Map of meta values, which stands for the database.
    cookies: Map,
    bytes: i64,
    /// Whether trees were created, cleared or dropped, so that the sum is not known.
    is_unknown: bool,
}

impl SqlSession {
    fn growth(&mut self, cookies: Map) -> &mut Growth {
        let known = self.growths.iter().position(|growth| growth.cookies == cookies);
        let index = known.unwrap_or_else(|| {
            self.growths.push(Growth { cookies, bytes: 0, is_unknown: false });
            self.growths.len() - 1
        });
        &mut self.growths[index]
    }

    /// Notes that an entry of some bytes was replaced by one of others; 0: there is none.
    pub(crate) fn replaced(&mut self, cookies: Map, before: usize, after: usize) {
        let growth = self.growth(cookies);
        growth.bytes =
            growth.bytes.saturating_add_unsigned(after as u64).saturating_sub_unsigned(before as u64);
    }

    /// Notes that a whole tree is new, empty, or gone.
    pub(crate) fn resized(&mut self, cookies: Map) {
        self.growth(cookies).is_unknown = true;
    }

    /// Ends the transaction: its changes belong to the estimates if it was committed.
    pub(super) fn end_growths(&mut self, is_committed: bool) {
        let estimates = (is_committed && !self.growths.is_empty()).then(|| self.shared.sizes()).flatten();
        if let Some(mut estimates) = estimates {
            for growth in &self.growths {
                if growth.is_unknown {
                    estimates.remove(&growth.cookies.tree());
                } else if let Some(estimate) = estimates.get_mut(&growth.cookies.tree()) {
                    estimate.grow(growth.bytes);
                }
            }
        }
        self.growths.clear();
    }

    /// Returns an estimate of a database's pages, its own writes included. `ask` asks the server.
    pub(crate) fn pages(
        &mut self,
        cookies: Map,
        page_bytes: u64,
        ask: impl FnOnce() -> Result<DatabaseSize, Error>,
    ) -> Result<u64, ResultCode> {
        self.shared.check_process()?;
        let own = self.growths.iter().find(|growth| growth.cookies == cookies);
        let own = own.map_or(0, |growth| growth.bytes);
        let size = match self.shared.known_size(cookies.tree()) {
            Some(size) => size,
            None => {
                let _waits = self.waits();
                let requested = self.shared.uptime();
                let size = ask().map_err(|error| self.code_of(&error))?;
                self.shared.note_size(cookies.tree(), size, requested);
                size
            }
        };
        Ok(size.pages(own, page_bytes))
    }
}
