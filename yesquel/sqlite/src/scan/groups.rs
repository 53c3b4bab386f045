//! Moves in groups of long keys, whose order is not that of the tree (`long_keys`).

use super::{ALL, TreeScan};
use crate::{
    code::ResultCode,
    key::above,
    long_keys::{KeyGroup, LongEntry, PREFIX_BYTES, cut, is_long, may_be_cut},
    record::key_of,
    seek::Seek,
};

/// End of a group at which the cursor enters it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entrance {
    First,
    Last,
}

impl TreeScan {
    /// Returns the whole key at the cursor.
    pub(super) fn whole_key(&self) -> &[u8] {
        let long = self.group.as_ref().and_then(|group| group.entry());
        long.map_or(&self.key, |entry| &entry.key)
    }

    /// Reads the group of a prefix.
    fn load_group(&mut self, prefix: &[u8]) -> Result<KeyGroup, ResultCode> {
        self.announce(ALL);
        let mut entries = Vec::new();
        let mut is_there = self.go(|cursor, transaction| cursor.seek(transaction, prefix))?;
        while is_there && self.key.starts_with(prefix) {
            let key = if may_be_cut(&self.key) { self.key_of_record()? } else { self.key.clone() };
            let stored = (std::mem::take(&mut self.key), std::mem::take(&mut self.value));
            entries.push(LongEntry { key, stored });
            is_there = self.go(|cursor, transaction| cursor.next(transaction))?;
        }
        Ok(KeyGroup::new(entries))
    }

    /// Returns the key of the record at the cursor, which another client may have damaged.
    fn key_of_record(&self) -> Result<Box<[u8]>, ResultCode> {
        let form = self.form.as_ref().ok_or(ResultCode::INTERNAL)?;
        let mut key = Vec::new();
        key_of(self.record(), &form.columns, form.encoding, &mut key).ok_or(ResultCode::CORRUPT)?;
        let is_same = key.get(..PREFIX_BYTES) == self.key.get(..PREFIX_BYTES);
        if is_same { Ok(key.into()) } else { Err(ResultCode::CORRUPT) }
    }

    /// After a move in the tree: enters the group of the entry, if it belongs to one. Returns
    /// whether the cursor is on an entry.
    pub(super) fn enter(&mut self, is_there: bool, entrance: Entrance) -> Result<bool, ResultCode> {
        if !is_there || self.form.is_none() || !is_long(&self.key) {
            return Ok(is_there);
        }
        let prefix = self.key[..PREFIX_BYTES].to_vec();
        let mut group = self.load_group(&prefix)?;
        match entrance {
            Entrance::First => group.first(),
            Entrance::Last => group.last(),
        };
        self.stay(group)
    }

    /// Moves to the position in a group.
    fn stay(&mut self, group: KeyGroup) -> Result<bool, ResultCode> {
        let (key, value) = group.entry().map(|entry| entry.stored.clone()).ok_or(ResultCode::CORRUPT)?;
        self.read(key, value);
        self.group = Some(Box::new(group));
        Ok(true)
    }

    /// Moves by one entry from a position in a group; `None` outside of groups.
    pub(super) fn step_in_group(&mut self, entrance: Entrance) -> Result<Option<bool>, ResultCode> {
        let Some(mut group) = self.group.take() else { return Ok(None) };
        let stays = match entrance {
            Entrance::First => group.next(),
            Entrance::Last => group.previous(),
        };
        if stays {
            return self.stay(*group).map(Some);
        }
        let prefix = self.key.get(..PREFIX_BYTES).ok_or(ResultCode::INTERNAL)?.to_vec();
        self.leave_group(&prefix, entrance).map(Some)
    }

    /// Moves to the entry after a group, or to the one before.
    fn leave_group(&mut self, prefix: &[u8], entrance: Entrance) -> Result<bool, ResultCode> {
        if entrance == Entrance::Last {
            return self.seek_below(prefix);
        }
        let beyond = above(prefix);
        self.announce_few();
        self.seek_there(&beyond)
    }

    /// Writes an entry with a long key.
    pub(super) fn put_long(&mut self, whole: Vec<u8>, value: &[u8]) -> Result<(), ResultCode> {
        let key = cut(&whole).unwrap_or_else(|| whole.clone());
        // Older versions did not cut keys: the entry at the cursor may be the same under another key.
        if *self.key != *key && !self.is_written && *self.whole_key() == *whole {
            self.delete()?;
        }
        self.put(&key, value)?;
        // The position is restored by the whole key.
        let stored = (key.into(), Box::default());
        self.group = Some(Box::new(KeyGroup::new(vec![LongEntry { key: whole.into(), stored }])));
        Ok(())
    }

    /// Seeks a key that has a whole prefix, or keys that begin with it.
    pub(super) fn seek_long(&mut self, key: &[u8], seek: Seek) -> Result<bool, ResultCode> {
        let prefix = &key[..PREFIX_BYTES];
        let mut group = self.load_group(prefix)?;
        let (is_there, entrance) = match seek {
            Seek::Exact | Seek::GreaterOrEqual => (group.seek(key, false), Entrance::First),
            Seek::Greater => (group.seek(key, true), Entrance::First),
            Seek::Less => (group.seek_below(key, false), Entrance::Last),
            Seek::LessOrEqual => (group.seek_below(key, true), Entrance::Last),
        };
        if is_there { self.stay(group) } else { self.leave_group(prefix, entrance) }
    }
}
