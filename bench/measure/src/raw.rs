//! Every single time, for custom statistics.
//!
//! Threads fill chunks and send full ones to a collecting thread, so that the measured path
//! neither writes files nor waits for them.

use crate::times::Times;
use serval_model::{Metric, Status};
use std::{
    io::{self, Write},
    sync::mpsc,
    thread::JoinHandle,
};

/// Samples per chunk: 160 KiB, sent every few thousand operations.
const CHUNK: usize = 4096;

/// Sample of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawSample {
    /// The metric.
    pub metric: Metric,
    /// The status with which the operation ended.
    pub status: Status,
    /// The client, from 0.
    pub client: u32,
    /// The end, ns since the start of the run.
    pub end_ns: u64,
    /// The times.
    pub times: Times,
}

/// A log of raw samples. Creates its writers.
#[derive(Debug, Clone)]
pub struct RawLog {
    sender: mpsc::Sender<Vec<RawSample>>,
}

/// One thread's writer of a [`RawLog`]. Sends its last chunk when dropped.
#[derive(Debug)]
pub struct RawWriter {
    sender: mpsc::Sender<Vec<RawSample>>,
    chunk: Vec<RawSample>,
}

impl RawLog {
    /// Creates a log that a thread of its own writes to `out` as CSV, one sample per line. The
    /// thread ends when the log and all its writers are dropped.
    pub fn to_csv(
        mut out: impl Write + Send + 'static,
        custom: Vec<String>,
    ) -> (RawLog, JoinHandle<io::Result<()>>) {
        let (sender, receiver) = mpsc::channel::<Vec<RawSample>>();
        let thread = std::thread::spawn(move || {
            let custom: Vec<&str> = custom.iter().map(String::as_str).collect();
            writeln!(out, "operation,status,client,end_ns,service_ns,response_ns")?;
            for chunk in receiver {
                for s in chunk {
                    let (operation, status) = (s.metric.name(&custom), s.status.name());
                    let Times { service, response } = s.times;
                    writeln!(out, "{operation},{status},{},{},{service},{response}", s.client, s.end_ns)?;
                }
            }
            out.flush()
        });
        (RawLog { sender }, thread)
    }

    /// Creates a log that keeps its samples in memory, as YCSB's raw measurement type does: 40
    /// bytes per operation.
    pub fn to_memory() -> (RawLog, JoinHandle<Vec<RawSample>>) {
        let (sender, receiver) = mpsc::channel::<Vec<RawSample>>();
        let thread = std::thread::spawn(move || receiver.into_iter().flatten().collect());
        (RawLog { sender }, thread)
    }

    /// Creates a writer for one thread.
    pub fn writer(&self) -> RawWriter {
        RawWriter { sender: self.sender.clone(), chunk: Vec::with_capacity(CHUNK) }
    }
}

impl RawWriter {
    /// Adds a sample.
    pub fn push(&mut self, sample: RawSample) {
        self.chunk.push(sample);
        if self.chunk.len() == CHUNK {
            let full = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
            // The collecting thread ends early only if its file fails, and reports that.
            let _ = self.sender.send(full);
        }
    }
}

impl Drop for RawWriter {
    fn drop(&mut self) {
        let _ = self.sender.send(std::mem::take(&mut self.chunk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);
    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn sample(end_ns: u64) -> RawSample {
        let times = Times { service: 1, response: 2 };
        RawSample { metric: Metric::READ, status: Status::Ok, client: 3, end_ns, times }
    }

    #[test]
    fn nothing_is_lost_between_threads_and_the_file() {
        let out = Shared::default();
        let (log, thread) = RawLog::to_csv(out.clone(), Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let mut writer = log.writer();
                scope.spawn(move || (0..CHUNK as u64 + 7).for_each(|i| writer.push(sample(i))));
            }
        });
        drop(log);
        thread.join().unwrap().unwrap();
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1 + 3 * (CHUNK + 7));
        assert!(text.lines().nth(1).unwrap().starts_with("READ,OK,3,"));
    }

    #[test]
    fn a_full_disk_is_reported() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (log, thread) = RawLog::to_csv(Full, Vec::new());
        let mut writer = log.writer();
        (0..3 * CHUNK as u64).for_each(|i| writer.push(sample(i)));
        drop((writer, log));
        assert_eq!(thread.join().unwrap().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
