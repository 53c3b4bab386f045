//! What was measured in a run.

/// What was measured in a run, within the measured time.
#[derive(Debug, Clone, PartialEq)]
pub struct VirtualResult {
    /// Statements that ended.
    pub statements: u64,
    /// Length of the measured time.
    pub seconds: f64,
    /// Connections.
    pub connections: usize,
    /// Mean response time in microseconds.
    pub mean_us: f64,
    /// Median of the response times in microseconds.
    pub p50_us: f64,
    /// Response time that 1 % of the statements exceed, in microseconds.
    pub p99_us: f64,
    /// Part of the time in which each server's processor is used.
    pub server_use: Vec<f64>,
    /// Mean part of the time in which a client's processor is used.
    pub client_use: f64,
    /// Reads and writes of each server.
    pub requests: Vec<u64>,
    /// Mean bytes of a read with its reply; zero: there was none.
    pub read_bytes: f64,
    /// Mean bytes of a commit, vote or decision with its reply; zero: there was none.
    pub write_bytes: f64,
    /// Mean requests that a server takes each time it looks for messages.
    pub batch: f64,
    /// Mean requests that a connection has when a server looks for messages.
    pub connection_batch: f64,
}

impl VirtualResult {
    /// Statements a second.
    pub fn throughput(&self) -> f64 {
        self.statements as f64 / self.seconds
    }

    /// Requests of the busiest server over the mean; 1 without requests.
    pub fn busiest(&self) -> f64 {
        let (most, sum) = (self.requests.iter().max().copied(), self.requests.iter().sum::<u64>());
        match (most, sum) {
            (Some(most), 1..) => most as f64 * self.requests.len() as f64 / sum as f64,
            _ => 1.0,
        }
    }
}
