//! A client and its verbs.

use super::{MongodbState, limit::MongoLimit};
use futures_util::TryStreamExt;
use mongodb::{
    Collection,
    bson::{
        Binary, Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc, raw::CStr, spec::BinarySubtype,
    },
    error::Error,
    options::FindOptions,
};
use serval_model::{Client, FieldSelection, Outcome, Record, Reply, Status};
use std::{rc::Rc, time::Duration};

/// Field of the key.
pub(super) const KEY: &str = "_id";

/// A client. Takes a connection from the loop's pool for each operation.
#[derive(Debug)]
pub struct MongodbClient {
    shared: Rc<MongodbState>,
    /// Collection of the last operation's table; workloads use one.
    collection: Option<(String, Collection<RawDocumentBuf>)>,
    upsert: bool,
    limit: MongoLimit,
    /// Result of a query; owns its data.
    found: Reply,
}

impl MongodbClient {
    pub(super) fn new(shared: Rc<MongodbState>, upsert: bool, timeout: Option<Duration>) -> Self {
        MongodbClient {
            shared,
            collection: None,
            upsert,
            limit: MongoLimit::new(timeout),
            found: Reply::new(),
        }
    }

    fn collection(&mut self, table: &str) -> Result<Collection<RawDocumentBuf>, Outcome> {
        match &self.collection {
            Some((name, collection)) if name == table => Ok(collection.clone()),
            _ => {
                let Some(database) = self.shared.database() else {
                    return Err(Outcome::error("the client is closed"));
                };
                let collection = database.collection(table);
                self.collection = Some((table.to_owned(), collection.clone()));
                Ok(collection)
            }
        }
    }

    /// Moves the documents of a query into the reply. Returns their number.
    async fn query(
        &mut self,
        collection: Collection<RawDocumentBuf>,
        filter: Document,
        options: FindOptions,
        reply: &mut Reply,
    ) -> Result<u64, Outcome> {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let work = async move {
            let mut cursor = collection.find(filter).with_options(options).batch().await?;
            let mut count = 0;
            while let Some(batch) = cursor.try_next().await? {
                for document in batch.doc_slices()? {
                    if let RawBsonRef::Document(document) = document? {
                        take_record(document, found.begin_record())?;
                        count += 1;
                    }
                }
            }
            Ok((count, found))
        };
        let (count, found) = self.limit.wait(work).await?;
        self.found = std::mem::replace(reply, found);
        Ok(count)
    }

    async fn try_update(&mut self, table: &str, key: &str, fields: &Record) -> Result<u64, Outcome> {
        let collection = self.collection(table)?;
        if fields.is_empty() {
            // Nothing to set; check only that the record exists.
            let mut options = one(&FieldSelection::default());
            options.projection = Some(doc! { KEY: 1 });
            return self.query(collection, doc! { KEY: key }, options, &mut Reply::new()).await;
        }
        let set: Document = fields.iter().map(|(name, value)| (name.to_owned(), binary(value))).collect();
        let filter = doc! { KEY: key };
        let update = async move { collection.update_one(filter, doc! { "$set": set }).await };
        Ok(self.limit.wait(update).await?.matched_count)
    }

    async fn try_insert(&mut self, table: &str, key: &str, record: &Record) -> Result<(), Outcome> {
        let collection = self.collection(table)?;
        let document = document(key, record)?;
        if self.upsert {
            let filter = doc! { KEY: key };
            let replace = async move { collection.replace_one(filter, &document).upsert(true).await };
            self.limit.wait(replace).await.map(drop)
        } else {
            self.limit.wait(async move { collection.insert_one(&document).await }).await.map(drop)
        }
    }

    async fn try_insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Result<(), Outcome> {
        if self.upsert {
            for (key, record) in records {
                self.try_insert(table, key, record).await?;
            }
            return Ok(());
        }
        let documents: Result<Vec<_>, _> =
            records.iter().map(|(key, record)| document(key, record)).collect();
        let documents = documents?;
        if documents.is_empty() {
            return Ok(());
        }
        let collection = self.collection(table)?;
        self.limit.wait(async move { collection.insert_many(&documents).await }).await.map(drop)
    }
}

impl Client for MongodbClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        match self.collection(table) {
            Ok(collection) => found(self.query(collection, doc! { KEY: key }, one(fields), reply).await),
            Err(outcome) => outcome,
        }
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        found(self.try_update(table, key, fields).await)
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        self.try_insert(table, key, record).await.err().unwrap_or(Outcome::OK)
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        if count == 0 {
            // For MongoDB, 0 means no limit.
            return Outcome::OK;
        }
        let collection = match self.collection(table) {
            Ok(collection) => collection,
            Err(outcome) => return outcome,
        };
        let mut options = one(fields);
        options.sort = Some(doc! { KEY: 1 });
        options.limit = Some(i64::try_from(count).unwrap_or(i64::MAX));
        // One batch, as far as its size allows.
        options.batch_size = Some(count.min(i32::MAX as u64 - 1) as u32);
        let filter = doc! { KEY: { "$gte": start_key } };
        self.query(collection, filter, options, reply).await.err().unwrap_or(Outcome::OK)
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        let deleted = match self.collection(table) {
            Ok(collection) => {
                let filter = doc! { KEY: key };
                let delete = async move { collection.delete_one(filter).await };
                self.limit.wait(delete).await.map(|result| result.deleted_count)
            }
            Err(outcome) => Err(outcome),
        };
        found(deleted)
    }

    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        self.try_insert_batch(table, records).await.err().unwrap_or(Outcome::OK)
    }

    async fn close(&mut self) -> Outcome {
        self.collection = None;
        self.limit.close();
        self.shared.leave().await;
        Outcome::OK
    }
}

/// Returns the outcome of an operation that must have matched its record.
fn found(documents: Result<u64, Outcome>) -> Outcome {
    match documents {
        Ok(0) => Outcome::NOT_FOUND,
        Ok(_) => Outcome::OK,
        Err(outcome) => outcome,
    }
}

/// Returns the options of a query for one document.
fn one(fields: &FieldSelection) -> FindOptions {
    let mut options = FindOptions::default();
    // A negative limit returns one batch and leaves no cursor open.
    options.limit = Some(-1);
    options.projection = (!fields.is_all()).then(|| projection(fields));
    options
}

/// Returns the projection of the selected fields, without the key.
fn projection(fields: &FieldSelection) -> Document {
    let mut projection = doc! { KEY: 0 };
    projection.extend(fields.iter().map(|name| (name.to_owned(), Bson::Int32(1))));
    projection
}

fn binary(value: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: value.to_vec() })
}

/// Converts a record to YCSB's document.
fn document(key: &str, record: &Record) -> Result<RawDocumentBuf, Outcome> {
    let mut document = RawDocumentBuf::new();
    document.append(mongodb::bson::cstr!("_id"), key);
    for (name, value) in record.iter() {
        let name = <&CStr>::try_from(name).map_err(|_| {
            Outcome::failed(Status::BadRequest, format!("a field's name cannot have a NUL: {name:?}"))
        })?;
        document
            .append(name, mongodb::bson::raw::RawBinaryRef { subtype: BinarySubtype::Generic, bytes: value });
    }
    Ok(document)
}

/// Copies a document's fields: bytes, as YCSB writes them, and text of other
/// tools. Ignores other types, as YCSB does.
fn take_record(document: &RawDocument, record: &mut Record) -> Result<(), Error> {
    for element in document.iter() {
        match element? {
            (name, RawBsonRef::Binary(value)) => record.push(name.as_str(), value.bytes),
            (name, RawBsonRef::String(value)) if name.as_str() != KEY => {
                record.push(name.as_str(), value.as_bytes());
            }
            _ => {}
        }
    }
    Ok(())
}
