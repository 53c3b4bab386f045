//! Copies of the names at other groups, for clients that cannot reach the home group.
//!
//! ```text
//! n                    -> snapshot of the catalog that the copy has, or of a former one without changes
//!                         since, 8 bytes, big-endian; absent: the copy is not complete
//! n KEY                -> value of the catalog's entry `d NAME` or `m NUMBER NAME`
//! ```
//!
//! A copy is a hint, since it may be old: what it names exists, existed, or has another successor, and
//! what it does not name may exist.

use super::{Catalog, CatalogEntry, DATABASE, MAP};
use crate::{Error, any_transport::AnyTransport};
use std::cmp::Ordering;
use yesquel_model::{Key, ServerId, Timestamp};
use yesquel_tree::{TreeCursor, TreeTransaction};

/// First byte of the keys of a copy.
pub(super) const COPY: u8 = b'n';
/// Changes that a transaction makes in a copy, at most.
const CHANGES_MAX: usize = 1 << 12;

/// Entries of a catalog or of a copy, in order of their keys.
struct Entries<'t, 'a> {
    catalog: Catalog<'a>,
    transaction: &'t mut TreeTransaction<'a, AnyTransport>,
    cursor: TreeCursor,
    kind: u8,
}

impl<'t, 'a> Entries<'t, 'a> {
    /// Begins with the first entry of a kind.
    async fn begin(
        catalog: Catalog<'a>,
        transaction: &'t mut TreeTransaction<'a, AnyTransport>,
        kind: u8,
    ) -> Result<(Entries<'t, 'a>, Option<CatalogRow>), Error> {
        let mut cursor = transaction.cursor(catalog.tree());
        let first = cursor.seek(transaction, &catalog.key(vec![kind])).await;
        let entries = Entries { catalog, transaction, cursor, kind };
        let first = entries.row(catalog.at_home(first)?);
        Ok((entries, first))
    }

    async fn next(&mut self) -> Result<Option<CatalogRow>, Error> {
        let next = self.cursor.next(self.transaction).await;
        Ok(self.row(self.catalog.at_home(next)?))
    }

    /// Returns an entry with its key in the catalog.
    fn row(&self, entry: Option<(Key, Box<[u8]>)>) -> Option<CatalogRow> {
        let (key, value) = entry?;
        let prefix = self.catalog.key(Vec::new());
        let key = key.strip_prefix(&prefix[..]).filter(|key| key.first() == Some(&self.kind))?;
        Some((key.into(), value))
    }
}

/// Result of a comparison of names with their copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CopiedNames {
    /// Entries that were compared.
    pub(crate) compared: usize,
    /// Entries that were written or deleted.
    pub(crate) changed: usize,
}

type CatalogRow = (Box<[u8]>, Box<[u8]>);

/// Changes of a copy that are not written yet: the new value of a key, or `None` to delete it.
type PendingChanges = Vec<(Box<[u8]>, Option<Box<[u8]>>)>;

impl<'a> Catalog<'a> {
    /// Asks the home group for something.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        self.get(&mut self.trees.begin(), Vec::new()).await.map(drop)
    }

    /// Returns the copy at a group.
    pub(crate) fn copied_at(self, group: ServerId) -> Catalog<'a> {
        Catalog { copy: Some(group), ..self }
    }

    /// Returns the snapshot of the catalog that a copy states; `None`: there is no complete copy.
    pub(crate) async fn copied_until(&self) -> Result<Option<Timestamp>, Error> {
        let found = self.get_near(&mut self.trees.begin(), Vec::new()).await?;
        let time = found.and_then(|value| value.as_ref().try_into().ok().map(u64::from_be_bytes));
        Ok(time.map(Timestamp))
    }

    /// Makes the copy at a group, whose catalog must exist, as the names of the home group are at present.
    /// With `states_time` the copy states the snapshot though nothing has changed.
    ///
    /// It compares all names with the copy and holds none in memory but those that differ. A transaction
    /// has [`CHANGES_MAX`] changes at most; between two of them the copy is not complete.
    pub(crate) async fn copy_names(&self, group: ServerId, states_time: bool) -> Result<CopiedNames, Error> {
        let copy = self.copied_at(group);
        let mut is_complete = copy.copied_until().await?.is_some() && !states_time;
        let [mut at_home, mut at_copy] = [self.trees.begin(), self.trees.begin()];
        let (mut pending, mut done) = (PendingChanges::new(), CopiedNames::default());
        for kind in [DATABASE, MAP] {
            let (mut names, mut name) = Entries::begin(*self, &mut at_home, kind).await?;
            let (mut copies, mut copied) = Entries::begin(copy, &mut at_copy, kind).await?;
            loop {
                // A client may have written anything into the catalog.
                if let Some((key, value)) = &name
                    && !matches!(
                        CatalogEntry::decode(key, value, self.group),
                        Some(CatalogEntry::Database { .. } | CatalogEntry::Map { .. })
                    )
                {
                    name = names.next().await?;
                    continue;
                }
                let order = match (&name, &copied) {
                    (None, None) => break,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some((name, _)), Some((copied, _))) => name.cmp(copied),
                };
                done.compared += 1;
                let (row, copied_row) = match order {
                    Ordering::Less => (name.take(), None),
                    Ordering::Greater => (None, copied.take()),
                    Ordering::Equal => (name.take(), copied.take()),
                };
                if row.is_some() {
                    name = names.next().await?;
                }
                if copied_row.is_some() {
                    copied = copies.next().await?;
                }
                match (row, copied_row) {
                    (Some(row), copied_row) if copied_row.as_ref() != Some(&row) => {
                        pending.push((row.0, Some(row.1)));
                    }
                    (None, Some((key, _))) => pending.push((key, None)),
                    _ => {}
                }
                if pending.len() >= CHANGES_MAX {
                    done.changed += pending.len();
                    copy.write_changes(&mut pending, None).await?;
                    is_complete = false;
                }
            }
        }
        let snapshot = at_home.snapshot().unwrap_or_default();
        done.changed += pending.len();
        if !pending.is_empty() || !is_complete {
            copy.write_changes(&mut pending, Some(snapshot)).await?;
        }
        Ok(done)
    }

    /// Returns whether the copy at a group has exactly the names of the home group.
    pub(crate) async fn is_copied(&self, group: ServerId) -> Result<bool, Error> {
        let copy = self.copied_at(group);
        match copy.copied_until().await {
            Ok(Some(_)) => {}
            // The group has no catalog.
            Ok(None) | Err(Error::NoMap(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
        let [mut at_home, mut at_copy] = [self.trees.begin(), self.trees.begin()];
        for kind in [DATABASE, MAP] {
            if self.list(&mut at_home, &[kind]).await? != copy.list(&mut at_copy, &[kind]).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes changes to a copy. Those before the last ones make it incomplete until then.
    async fn write_changes(
        &self,
        changes: &mut PendingChanges,
        until: Option<Timestamp>,
    ) -> Result<(), Error> {
        let mut transaction = self.trees.begin();
        for (key, value) in changes.drain(..) {
            let key = self.key(key.into_vec());
            match value {
                Some(value) => transaction.put(self.tree(), &key, &value)?,
                None => transaction.delete(self.tree(), &key)?,
            }
        }
        let key = self.key(Vec::new());
        match until {
            Some(until) => transaction.put(self.tree(), &key, &until.0.to_be_bytes())?,
            None => transaction.delete(self.tree(), &key)?,
        }
        transaction.commit().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ListenOptions, Server, catalog::map_key, client_number::client_number};
    use yesquel_client::Client;
    use yesquel_engine::EngineSettings;
    use yesquel_server::LogOptions;
    use yesquel_transport::block_on;
    use yesquel_tree::Trees;

    const HOME: ServerId = ServerId(0);
    const OTHER: ServerId = ServerId(1);

    /// Tests with a catalog and an empty copy at another group.
    fn with_catalog(test: impl FnOnce(Catalog<'_>)) {
        let listen = ListenOptions { groups: 2, ..ListenOptions::default() };
        let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
        let trees = Trees::new(Client::new(server.host().transport.clone(), client_number()));
        test(Catalog::new(&trees, HOME));
    }

    fn put(catalog: &Catalog<'_>, entries: &[(Vec<u8>, Option<&[u8]>)]) {
        let mut transaction = catalog.trees.begin();
        for (key, value) in entries {
            match value {
                Some(value) => transaction.put(catalog.tree(), key, value).unwrap(),
                None => transaction.delete(catalog.tree(), key).unwrap(),
            }
        }
        block_on(transaction.commit()).unwrap();
    }

    #[test]
    fn a_copy_becomes_equal_in_pieces() {
        with_catalog(|catalog| {
            let copied = || block_on(catalog.copy_names(OTHER, false)).unwrap().changed;
            let is_copied = || block_on(catalog.is_copied(OTHER)).unwrap();
            let until = || block_on(catalog.copied_at(OTHER).copied_until()).unwrap();
            assert!(!is_copied());
            // An empty catalog has a copy, too.
            assert_eq!((copied(), is_copied()), (0, true));
            let maps = 2 * CHANGES_MAX + 9;
            let names: Vec<String> = (0..maps).map(|map| format!("map {map}")).collect();
            let root = [1; 16];
            let mut entries: Vec<_> = names.iter().map(|name| (map_key(7, name), Some(&root[..]))).collect();
            entries.push((b"dshop".to_vec(), Some(&[7; 8])));
            put(&catalog, &entries);
            let before = until();
            assert_eq!((is_copied(), copied(), is_copied()), (false, maps + 1, true));
            assert!(before < until());
            let before = until();
            assert_eq!((copied(), until()), (0, before), "nothing is written without a change");
            assert_eq!(block_on(catalog.copy_names(OTHER, true)).unwrap().changed, 0);
            assert!(before < until());
            put(
                &catalog,
                &[
                    (map_key(7, "map 0"), None),
                    (map_key(7, "map 1"), Some(&[2; 16])),
                    (b"dother".to_vec(), Some(&[8; 8])),
                    (b"zzz".to_vec(), None),
                ],
            );
            assert_eq!((is_copied(), copied(), is_copied()), (false, 3, true));
            // Another client has written into the copy.
            put(
                &catalog.copied_at(OTHER),
                &[(b"ndshop".to_vec(), Some(b"x")), (b"nmx".to_vec(), Some(b"x"))],
            );
            assert_eq!((is_copied(), copied(), is_copied()), (false, 2, true));
        });
    }

    /// Entries that are none of names stay at the home group.
    #[test]
    fn entries_that_are_no_names_are_not_copied() {
        with_catalog(|catalog| {
            put(
                &catalog,
                &[
                    (b"dshop".to_vec(), Some(b"no number")),
                    (b"m1".to_vec(), Some(&[1; 16])),
                    (b"M\0\0\0\x01".to_vec(), Some(b"{}")),
                    (b"dright".to_vec(), Some(&[7; 8])),
                ],
            );
            assert_eq!(block_on(catalog.copy_names(OTHER, false)).unwrap().changed, 1);
        });
    }

    #[test]
    fn spare_numbers_are_stocked_once() {
        with_catalog(|catalog| {
            let stock = || block_on(catalog.trees.stock_spare_numbers(OTHER)).unwrap();
            assert!(stock() && !stock());
        });
    }
}
