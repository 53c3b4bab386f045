//! Metrics of a server in a process of its own.

use crate::support::Process;
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

/// Address of a server's metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetricsAddress(SocketAddr);

impl MetricsAddress {
    /// Returns the address that a server with `--metrics 127.0.0.1:0` has written to its log.
    pub(crate) fn of(process: &Process) -> MetricsAddress {
        let said = process.said();
        let line = said.lines().find(|line| line.contains("/metrics")).unwrap();
        let port = line.split("127.0.0.1:").nth(1).unwrap();
        let port = port.split(|sign: char| !sign.is_ascii_digit()).next().unwrap();
        MetricsAddress(format!("127.0.0.1:{port}").parse().unwrap())
    }

    /// Reads the metrics, by name and labels.
    pub(crate) fn read(self) -> BTreeMap<String, f64> {
        let mut stream = TcpStream::connect(self.0).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        let values = text.lines().filter(|line| line.starts_with("yesquel_"));
        let value = |line: &str| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        };
        values.map(value).collect()
    }
}
