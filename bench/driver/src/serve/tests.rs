//! Flush reports of a store with a write buffer.

use super::*;
use serval_model::{FieldSelection, Record};
use std::collections::VecDeque;

/// Stores nothing, and reports a flush with every second insert and at the end.
struct Buffering {
    execution: Execution,
}

struct BufferingClient {
    inserts: u64,
    flushes: VecDeque<Flush>,
}

impl Store for Buffering {
    type Local = ();
    type Client = BufferingClient;
    fn execution(&self) -> Execution {
        self.execution
    }
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }
    async fn connect(&self, (): &(), _: usize) -> Result<BufferingClient, StoreError> {
        Ok(BufferingClient { inserts: 0, flushes: VecDeque::new() })
    }
}

impl BufferingClient {
    fn flush(&mut self, writes: u64) {
        self.flushes.push_back(Flush { outcome: Outcome::OK, took_ns: 5, ago_ns: 0, writes, lost: 0 });
    }
}

impl Client for BufferingClient {
    async fn read(&mut self, _: &str, _: &str, _: &FieldSelection, _: &mut Reply) -> Outcome {
        Outcome::NOT_FOUND
    }
    async fn update(&mut self, _: &str, _: &str, _: &Record) -> Outcome {
        Outcome::OK
    }
    async fn insert(&mut self, _: &str, _: &str, _: &Record) -> Outcome {
        self.inserts += 1;
        if self.inserts.is_multiple_of(2) {
            self.flush(2);
        }
        Outcome { status: Status::BatchedOk, message: None }
    }
    async fn scan(&mut self, _: &str, _: &str, _: u64, _: &FieldSelection, _: &mut Reply) -> Outcome {
        Outcome::OK
    }
    async fn delete(&mut self, _: &str, _: &str) -> Outcome {
        Outcome::OK
    }
    fn buffers(&self) -> bool {
        true
    }
    fn flushed(&mut self) -> Option<Flush> {
        self.flushes.pop_front()
    }
    async fn close(&mut self) -> Outcome {
        self.flush(self.inserts % 2);
        Outcome::OK
    }
}

/// The output of a driver, for a reader in the test.
#[derive(Clone, Default)]
struct Written(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Flushed writes reported with each answer to three inserts and the end of a client.
fn reported(execution: Execution, reports_flushes: bool) -> Vec<Vec<u64>> {
    let mut asked = Vec::new();
    for (id, kind) in [request::OPEN, request::INSERT, request::INSERT, request::INSERT, request::CLOSE]
        .into_iter()
        .enumerate()
    {
        frame::put_frame(&mut asked, kind, |out| {
            frame::put_u32(out, id as u32);
            frame::put_u32(out, 7);
            if kind == request::INSERT {
                frame::put_bytes(out, b"t");
                frame::put_bytes(out, b"k");
                frame::put_record(out, &Record::new());
            }
        });
    }
    let (store, written) = (Buffering { execution }, Written::default());
    let input = io::Cursor::new(asked);
    match execution {
        Execution::Threads => {
            in_turn(&store, reports_flushes, FrameBuffer::default(), input, written.clone())
        }
        Execution::EventLoops => {
            at_once(store, reports_flushes, FrameBuffer::default(), input, written.clone())
        }
    }
    .unwrap();
    let bytes = written.0.lock().unwrap().clone();
    let (mut frames, mut input) = (FrameBuffer::default(), &bytes[..]);
    let mut answers = Vec::new();
    while let Some(answer) = next(&mut input, &mut frames).unwrap() {
        let (_, mut body) = FrameBody::of(&answer).unwrap();
        assert_eq!(body.u32().unwrap() as usize, answers.len());
        frame::answer(&mut body, 0, &mut Reply::new()).unwrap();
        let mut flushes = VecDeque::new();
        frame::flushes(&mut body, &mut flushes).unwrap();
        body.end().unwrap();
        answers.push(flushes.into_iter().map(|flush| flush.writes).collect());
    }
    answers
}

#[test]
fn flushes_are_reported_with_the_next_answer_to_clients_that_support_them() {
    for execution in [Execution::Threads, Execution::EventLoops] {
        let none: Vec<u64> = Vec::new();
        let expected = [none.clone(), none.clone(), vec![2], none.clone(), vec![1]];
        assert_eq!(reported(execution, true), expected, "{execution:?}");
        assert_eq!(reported(execution, false), vec![none; 5], "{execution:?}");
    }
}
