//! Client of a driver: sends verbs as requests.

use super::{
    DriverShared,
    frame::{self, AnswerHead, request},
    link::{DriverLink, TooLong},
};
use serval_model::{Client, FieldSelection, Flush, Outcome, Record, Reply, Status, StoreError};
use std::{collections::VecDeque, rc::Rc, sync::Arc};

/// One client of a driver.
#[derive(Debug)]
pub struct DriverClient {
    pub(super) link: Rc<DriverLink>,
    pub(super) shared: Arc<DriverShared>,
    pub(super) slot: u32,
    pub(super) number: u32,
    pub(super) batches: bool,
    /// Service time of the last request, if it was answered.
    pub(super) service_ns: Option<u64>,
    /// Flushes of the driver's buffer that were not reported yet.
    pub(super) flushes: VecDeque<Flush>,
}

impl DriverClient {
    /// Sends a request and reads its answer, with at most `records_max` records.
    pub(super) async fn call(
        &mut self,
        kind: u8,
        records_max: u64,
        reply: &mut Reply,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Outcome {
        self.service_ns = None;
        if let Err(TooLong) = self.link.send(self.slot, kind, body) {
            let max = frame::FRAME_MAX >> 20;
            return Outcome::failed(
                Status::BadRequest,
                format!("the request is too long: the driver protocol allows {max} MiB"),
            );
        }
        let flushes = &mut self.flushes;
        let answered = self.link.answer(self.slot, |body| {
            let AnswerHead { status, service_ns, message } = frame::answer(body, records_max, reply)?;
            let message = if message.is_empty() || status.is_ok() { None } else { Some(message.into()) };
            frame::flushes(body, flushes)?;
            Ok((Outcome { status, message }, service_ns))
        });
        match answered.await {
            Ok((outcome, service_ns)) => {
                self.service_ns = Some(service_ns);
                outcome
            }
            Err(broken) => Outcome::failed(Status::ServiceUnavailable, &*broken),
        }
    }

    async fn write(&mut self, kind: u8, table: &str, key: &str, record: &Record) -> Outcome {
        let number = self.number;
        self.call(kind, 0, &mut Reply::new(), |out| {
            put_head(out, number, table, key);
            frame::put_record(out, record);
        })
        .await
    }
}

/// Appends the start of every verb's body after the id.
fn put_head(out: &mut Vec<u8>, client: u32, table: &str, key: &str) {
    frame::put_u32(out, client);
    frame::put_bytes(out, table.as_bytes());
    frame::put_bytes(out, key.as_bytes());
}

impl Client for DriverClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        let number = self.number;
        let outcome = self.call(request::READ, 1, reply, |out| {
            put_head(out, number, table, key);
            frame::put_fields(out, fields);
        });
        outcome.await
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        self.write(request::UPDATE, table, key, fields).await
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        self.write(request::INSERT, table, key, record).await
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        let number = self.number;
        let outcome = self.call(request::SCAN, count, reply, |out| {
            put_head(out, number, table, start_key);
            frame::put_u64(out, count);
            frame::put_fields(out, fields);
        });
        outcome.await
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        let number = self.number;
        self.call(request::DELETE, 0, &mut Reply::new(), |out| {
            put_head(out, number, table, key);
        })
        .await
    }

    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        let number = self.number;
        if records.is_empty() {
            return Outcome::OK;
        }
        if self.batches {
            return self
                .call(request::INSERT_BATCH, 0, &mut Reply::new(), |out| {
                    frame::put_u32(out, number);
                    frame::put_bytes(out, table.as_bytes());
                    frame::put_u32(out, records.len() as u32);
                    for (key, record) in records {
                        frame::put_bytes(out, key.as_bytes());
                        frame::put_record(out, record);
                    }
                })
                .await;
        }
        // Sum of the service times.
        let mut service_ns = Some(0);
        for (key, record) in records {
            let outcome = self.insert(table, key, record).await;
            service_ns = service_ns.zip(self.service_ns).map(|(sum, own)| sum + own);
            self.service_ns = service_ns;
            if !outcome.is_ok() {
                return outcome;
            }
        }
        Outcome::OK
    }

    fn service_ns(&self) -> Option<u64> {
        self.service_ns
    }

    fn buffers(&self) -> bool {
        !self.flushes.is_empty()
    }

    fn flushed(&mut self) -> Option<Flush> {
        self.flushes.pop_front()
    }

    fn lost(&self) -> Option<StoreError> {
        // Without waiting for its exit status, because other clients are being measured.
        Some(self.shared.broken(&self.link.broken()?))
    }

    async fn close(&mut self) -> Outcome {
        let number = self.number;
        self.call(request::CLOSE, 0, &mut Reply::new(), |out| frame::put_u32(out, number)).await
    }
}
