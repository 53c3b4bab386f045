//! Just enough of CQL's protocol (version 4) to see that nodes answer and to change a password.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A node's answers are a few bytes; a larger one is from another server.
const REPLY_BYTES_MAX: usize = 1 << 16;

/// How many replicas must answer.
#[derive(Clone, Copy)]
pub(super) enum Level {
    One = 1,
    All = 5,
}

/// A connection to a node.
pub(super) struct CqlConnection {
    stream: TcpStream,
}

const ERROR: u8 = 0x00;
const STARTUP: u8 = 0x01;
const READY: u8 = 0x02;
const AUTHENTICATE: u8 = 0x03;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const AUTH_RESPONSE: u8 = 0x0F;
const AUTH_SUCCESS: u8 = 0x10;

impl CqlConnection {
    pub(super) fn open(address: SocketAddr, user: Option<(&str, &str)>) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        let mut connection = Self { stream };
        let mut startup = 1_u16.to_be_bytes().to_vec();
        for text in ["CQL_VERSION", "3.0.0"] {
            startup.extend((text.len() as u16).to_be_bytes());
            startup.extend(text.as_bytes());
        }
        match (connection.ask(STARTUP, &startup)?, user) {
            (READY, _) => Ok(connection),
            (AUTHENTICATE, Some((user, password))) => {
                let credentials = format!("\0{user}\0{password}");
                let mut body = (credentials.len() as u32).to_be_bytes().to_vec();
                body.extend(credentials.as_bytes());
                match connection.ask(AUTH_RESPONSE, &body)? {
                    AUTH_SUCCESS => Ok(connection),
                    other => Err(unexpected(other)),
                }
            }
            (other, _) => Err(unexpected(other)),
        }
    }

    /// Runs a statement.
    pub(super) fn query(&mut self, cql: &str, level: Level) -> io::Result<()> {
        let mut body = (cql.len() as u32).to_be_bytes().to_vec();
        body.extend(cql.as_bytes());
        body.extend([0, level as u8, 0]);
        match self.ask(QUERY, &body)? {
            RESULT => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Sends a frame and returns the kind of the answer; an error is one.
    fn ask(&mut self, kind: u8, body: &[u8]) -> io::Result<u8> {
        let mut frame = vec![4, 0, 0, 0, kind];
        frame.extend((body.len() as u32).to_be_bytes());
        frame.extend(body);
        self.stream.write_all(&frame)?;
        let mut header = [0; 9];
        self.stream.read_exact(&mut header)?;
        let [_, _, _, _, answer, length @ ..] = header;
        let length = u32::from_be_bytes(length) as usize;
        if length > REPLY_BYTES_MAX {
            return Err(unexpected(answer));
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        match (answer, body.get(6..)) {
            // A number and a text with its length.
            (ERROR, Some(words)) => Err(io::Error::other(String::from_utf8_lossy(words).into_owned())),
            _ => Ok(answer),
        }
    }
}

fn unexpected(kind: u8) -> io::Error {
    io::Error::other(format!("unexpected answer of kind {kind:#x}"))
}
