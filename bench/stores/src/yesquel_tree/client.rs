//! A client and its verbs.

use crate::framed;
use serval_model::{Client, FieldSelection, Outcome, Record, Reply, Status, StoreError};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use yesquel::{Database, Error, Map};

/// Maximum bytes of a batch's transaction. For each outdated cached node, a whole
/// transaction is sent again, so a long one over many leaves would be sent many
/// times.
const TRANSACTION_BYTES_MAX: usize = 1 << 20;

/// Maximum overhead of a write in a request, besides key and value, bytes.
const WRITE_BYTES: usize = 64;

/// A client.
#[derive(Debug)]
pub struct YesquelTreeClient {
    /// `None` once closed.
    database: Option<Database>,
    /// The table of the last operation; workloads use one.
    table: Option<(String, Map)>,
    /// Buffer for the value to write.
    frame: Vec<u8>,
    /// Where to report a failure of the disk; `None` with a server, which may
    /// restart.
    is_lost: Option<Arc<AtomicBool>>,
    /// Why no operation can succeed any more.
    lost: Option<String>,
    name: String,
}

impl YesquelTreeClient {
    pub(super) fn new(
        database: Database,
        is_lost: Option<Arc<AtomicBool>>,
        name: String,
    ) -> YesquelTreeClient {
        YesquelTreeClient {
            database: Some(database),
            table: None,
            frame: Vec::new(),
            is_lost,
            lost: None,
            name,
        }
    }

    /// Runs a verb on the table's map and converts its result.
    fn run(
        &mut self,
        table: &str,
        verb: impl FnOnce(&Database, Map, &mut Vec<u8>) -> Result<Outcome, Error>,
    ) -> Outcome {
        let Some(database) = &self.database else { return Outcome::error("the client is closed") };
        let known = self.table.as_ref().filter(|(name, _)| name == table);
        let map = match known {
            Some((_, map)) => *map,
            // A missing map must not be created.
            None => match database.existing_map(table) {
                Ok(Some(map)) => {
                    self.table = Some((table.to_owned(), map));
                    map
                }
                Ok(None) => {
                    return Outcome::failed(Status::BadRequest, format!("there is no table '{table}'"));
                }
                Err(error) => return failure(&error),
            },
        };
        verb(database, map, &mut self.frame).unwrap_or_else(|error| {
            match (&error, &self.is_lost) {
                // The map may be created again.
                (Error::NoMap(_), _) => self.table = None,
                // Within a process, a commit fails with an unknown outcome only then.
                (Error::DiskFailed(_) | Error::DiskFull(_) | Error::OutcomeUnknown(_), Some(is_lost)) => {
                    is_lost.store(true, Relaxed);
                    self.lost = Some(error.to_string());
                }
                _ => {}
            }
            failure(&error)
        })
    }
}

impl Client for YesquelTreeClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        self.run(table, |database, map, _| match database.get(map, key.as_bytes())? {
            None => Ok(Outcome::NOT_FOUND),
            Some(value) => Ok(framed::answer(key.as_bytes(), &value, fields, reply.begin_record())),
        })
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        let key = key.as_bytes();
        self.run(table, |database, map, frame| {
            database.run(|transaction| {
                let Some(old) = transaction.get(map, key)? else { return Ok(Outcome::NOT_FOUND) };
                let merged = framed::merge(frame, key, &old, fields);
                if merged.is_ok() {
                    transaction.put(map, key, frame)?;
                }
                Ok(merged)
            })
        })
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        self.run(table, |database, map, frame| {
            framed::encode(frame, record);
            database.run(|transaction| transaction.insert(map, key.as_bytes(), frame))?;
            Ok(Outcome::OK)
        })
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        self.run(table, |database, map, _| {
            database.run(|transaction| {
                // The transaction may have been retried with another snapshot.
                reply.clear();
                for entry in transaction.range(map, start_key..).limit(count) {
                    let (key, value) = entry?;
                    let outcome = framed::answer(&key, &value, fields, reply.begin_record());
                    if !outcome.is_ok() {
                        return Ok(outcome);
                    }
                }
                Ok(Outcome::OK)
            })
        })
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        self.run(table, |database, map, _| {
            database.run(|transaction| transaction.delete(map, key.as_bytes()))?;
            Ok(Outcome::OK)
        })
    }

    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        self.run(table, |database, map, frame| {
            let mut rest = records;
            while !rest.is_empty() {
                let (now, later) = rest.split_at(fitting(rest));
                database.run(|transaction| {
                    now.iter().try_for_each(|(key, record)| {
                        framed::encode(frame, record);
                        transaction.insert(map, key.as_bytes(), frame)
                    })
                })?;
                rest = later;
            }
            Ok(Outcome::OK)
        })
    }

    fn lost(&self) -> Option<StoreError> {
        let problem = self.lost.as_ref()?;
        Some(StoreError::new(
            &self.name,
            format!("{problem}; the folder takes no more writes until it is opened again"),
        ))
    }

    async fn close(&mut self) -> Outcome {
        self.table = None;
        self.database = None;
        Outcome::OK
    }
}

/// Returns the number of records of the next transaction, at least one.
fn fitting(records: &[(String, Record)]) -> usize {
    let mut bytes = 0;
    let fits = |(key, record): &&(String, Record)| {
        bytes += key.len() + framed::size(record) + WRITE_BYTES;
        bytes <= TRANSACTION_BYTES_MAX
    };
    records.iter().take_while(fits).count().max(1)
}

/// Converts Yesquel's error to an outcome.
fn failure(error: &Error) -> Outcome {
    let status = match error {
        Error::Conflict(_) => {
            let words = "100 times in a row another client has changed the record";
            return Outcome::failed(Status::ServiceUnavailable, words);
        }
        Error::TooLong { .. } | Error::Name { .. } | Error::NoMap(_) | Error::NoDatabase(_) => {
            Status::BadRequest
        }
        Error::OutOfMemory(_)
        | Error::DiskFailed(_)
        | Error::DiskFull(_)
        | Error::Unavailable(_)
        | Error::HomeGroupUnreachable(_)
        | Error::OutcomeUnknown(_)
        | Error::Connect(_) => Status::ServiceUnavailable,
        _ => Status::Error,
    };
    Outcome::failed(status, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_split_into_transactions_of_a_megabyte() {
        let of = |bytes: usize| ("k".to_owned(), Record::from_iter([("f", &*vec![0; bytes])]));
        assert_eq!(fitting(&[of(2 << 20), of(1)]), 1);
        assert_eq!(fitting(&[of(500_000), of(500_000), of(500_000)]), 2);
        assert_eq!(fitting(&[of(1), of(1), of(1)]), 3);
    }
}
