//! A client and its verbs.

use super::link::Turns;
use crate::{json, reconnecting::Reconnecting};
use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp};
use serval_model::{Client, FieldSelection, Outcome, Record, Reply, Status};

/// Maximum attempts of an update whose record another client changes in
/// between. Each failed attempt is another client's progress; this many in a row
/// mean that too many clients write one record.
const UPDATE_ATTEMPTS_MAX: usize = 1000;

/// Maximum records of a transaction: the server's default of
/// `--max-txn-ops`.
const BATCH_RECORDS_MAX: usize = 128;

/// Maximum bytes of a transaction's keys and values, with each key counted twice. The
/// server's default of `--max-request-bytes` is 1.5 MiB, which leaves room for the
/// rest of the request.
const BATCH_BYTES_MAX: usize = 1 << 20;

const THERE_IS_ONE: &str = "there is a record under this key already";

/// A client with its handle to a connection.
pub struct EtcdClient {
    link: Reconnecting<Turns>,
    /// The old and the new record.
    old: Record,
    new: Record,
}

/// Returns the server's key. The driver takes ownership of it, so each request allocates
/// one.
fn key_of(table: &str, key: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(table.len() + 1 + key.len());
    bytes.extend_from_slice(table.as_bytes());
    bytes.push(b'/');
    bytes.extend_from_slice(key.as_bytes());
    bytes
}

/// Returns the first key after all of a table's.
fn end_of(table: &str) -> Vec<u8> {
    let mut bytes = key_of(table, "");
    if let Some(last) = bytes.last_mut() {
        *last += 1;
    }
    bytes
}

fn document(record: &Record) -> Result<Vec<u8>, Outcome> {
    // An upper bound on the quotes, colons and commas of a field.
    let mut bytes = Vec::with_capacity(record.size() + 6 * record.len() + 2);
    json::write(record, &mut bytes)?;
    Ok(bytes)
}

/// Parses a value into a record.
fn take(item: &KeyValue, record: &mut Record) -> Result<(), Outcome> {
    json::read(item.value(), record).map_err(|error| {
        Outcome::failed(Status::UnexpectedState, format!("the value is no JSON object: {error}"))
    })
}

/// Parses the selected fields of a value.
fn pick(
    item: &KeyValue,
    fields: &FieldSelection,
    whole: &mut Record,
    out: &mut Record,
) -> Result<(), Outcome> {
    if fields.is_all() {
        return take(item, out);
    }
    whole.clear();
    take(item, whole)?;
    for (name, value) in whole.iter().filter(|(name, _)| fields.wants(name)) {
        out.push(name, value);
    }
    Ok(())
}

/// Writes a value if a condition on its key holds.
fn put_if(condition: Compare, key: Vec<u8>, value: Vec<u8>) -> Txn {
    Txn::new().when([condition]).and_then([TxnOp::put(key, value, None)])
}

impl EtcdClient {
    pub(super) fn new(link: Reconnecting<Turns>) -> Self {
        EtcdClient { link, old: Record::new(), new: Record::new() }
    }

    fn read_options(&self) -> Option<GetOptions> {
        self.link.connector().settings().serializable.then(|| GetOptions::new().with_serializable())
    }

    /// Returns whether the transaction's condition held.
    async fn commit(&mut self, transaction: Txn) -> Result<bool, Outcome> {
        let answer = self.link.run(async |records| records.txn(transaction).await).await?;
        Ok(answer.succeeded())
    }

    async fn try_read(
        &mut self,
        table: &str,
        key: &str,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Result<Outcome, Outcome> {
        let (key, options) = (key_of(table, key), self.read_options());
        let answer = self.link.run(async |records| records.get(key, options).await).await?;
        let Some(item) = answer.kvs().first() else { return Ok(Outcome::NOT_FOUND) };
        pick(item, fields, &mut self.old, reply.begin_record())?;
        Ok(Outcome::OK)
    }

    async fn try_scan(
        &mut self,
        table: &str,
        start_key: &str,
        limit: i64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Result<Outcome, Outcome> {
        let options = self.read_options().unwrap_or_default();
        // The default order is by the keys' bytes.
        let options = options.with_range(end_of(table)).with_limit(limit);
        let start = key_of(table, start_key);
        let answer = self.link.run(async |records| records.get(start, Some(options)).await).await?;
        for item in answer.kvs() {
            pick(item, fields, &mut self.old, reply.begin_record())?;
        }
        Ok(Outcome::OK)
    }

    async fn replace(&mut self, table: &str, key: &str, fields: &Record) -> Result<Outcome, Outcome> {
        let (key, value) = (key_of(table, key), document(fields)?);
        let is_there = Compare::create_revision(key.as_slice(), CompareOp::Greater, 0);
        let done = self.commit(put_if(is_there, key, value)).await?;
        Ok(if done { Outcome::OK } else { Outcome::NOT_FOUND })
    }

    async fn merge(&mut self, table: &str, key: &str, fields: &Record) -> Result<Outcome, Outcome> {
        for _ in 0..UPDATE_ATTEMPTS_MAX {
            let name = key_of(table, key);
            let answer = self.link.run(async |records| records.get(name, None).await).await?;
            let Some(item) = answer.kvs().first() else { return Ok(Outcome::NOT_FOUND) };
            self.old.clear();
            take(item, &mut self.old)?;
            json::merge(&self.old, fields, &mut self.new);
            let unchanged = Compare::mod_revision(item.key(), CompareOp::Equal, item.mod_revision());
            let transaction = put_if(unchanged, key_of(table, key), document(&self.new)?);
            if self.commit(transaction).await? {
                return Ok(Outcome::OK);
            }
            // Another client has changed or deleted it.
        }
        let words = format!("{UPDATE_ATTEMPTS_MAX} times in a row another client changed the record");
        Err(Outcome::failed(Status::ServiceUnavailable, words))
    }

    async fn try_insert(&mut self, table: &str, key: &str, record: &Record) -> Result<Outcome, Outcome> {
        let (key, value) = (key_of(table, key), document(record)?);
        let is_free = Compare::create_revision(key.as_slice(), CompareOp::Equal, 0);
        let done = self.commit(put_if(is_free, key, value)).await?;
        Ok(if done { Outcome::OK } else { Outcome::error(THERE_IS_ONE) })
    }

    /// Writes records in as few atomic transactions as the server's limits
    /// allow. Stops at the first that fails.
    async fn try_batch(&mut self, table: &str, records: &[(String, Record)]) -> Result<Outcome, Outcome> {
        // Encodes all values first, so that an invalid one fails the batch before
        // any write.
        let documents: Vec<Vec<u8>> =
            records.iter().map(|(_, record)| document(record)).collect::<Result<_, _>>()?;
        let (mut conditions, mut writes, mut bytes) = (Vec::new(), Vec::new(), 0);
        for ((key, _), value) in records.iter().zip(documents) {
            let key = key_of(table, key);
            let more = 2 * key.len() + value.len();
            if !writes.is_empty() && (writes.len() == BATCH_RECORDS_MAX || bytes + more > BATCH_BYTES_MAX) {
                self.write_batch(std::mem::take(&mut conditions), std::mem::take(&mut writes)).await?;
                bytes = 0;
            }
            bytes += more;
            conditions.push(Compare::create_revision(key.as_slice(), CompareOp::Equal, 0));
            writes.push(TxnOp::put(key, value, None));
        }
        if !writes.is_empty() {
            self.write_batch(conditions, writes).await?;
        }
        Ok(Outcome::OK)
    }

    async fn write_batch(&mut self, conditions: Vec<Compare>, writes: Vec<TxnOp>) -> Result<(), Outcome> {
        let one = writes.len() == 1;
        if self.commit(Txn::new().when(conditions).and_then(writes)).await? {
            return Ok(());
        }
        Err(Outcome::error(if one {
            THERE_IS_ONE
        } else {
            "there is a record under one of these keys already"
        }))
    }
}

/// Merges both variants of a result; clears the reply of a failure.
fn either(result: Result<Outcome, Outcome>, reply: Option<&mut Reply>) -> Outcome {
    result.unwrap_or_else(|outcome| {
        if let Some(reply) = reply {
            reply.clear();
        }
        outcome
    })
}

impl Client for EtcdClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        let result = self.try_read(table, key, fields, reply).await;
        either(result, Some(reply))
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        let result = if self.link.connector().settings().merge {
            self.merge(table, key, fields).await
        } else {
            self.replace(table, key, fields).await
        };
        either(result, None)
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        either(self.try_insert(table, key, record).await, None)
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        // A limit of 0 means none.
        if count == 0 {
            return Outcome::OK;
        }
        let limit = i64::try_from(count).unwrap_or(i64::MAX);
        let result = self.try_scan(table, start_key, limit, fields, reply).await;
        either(result, Some(reply))
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        let key = key_of(table, key);
        match self.link.run(async |records| records.delete(key, None).await).await {
            Ok(answer) if answer.deleted() == 0 => Outcome::NOT_FOUND,
            Ok(_) => Outcome::OK,
            Err(outcome) => outcome,
        }
    }

    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        either(self.try_batch(table, records).await, None)
    }
}
