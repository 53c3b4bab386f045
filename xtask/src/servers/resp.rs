//! The part of Redis's protocol (RESP 2) that sends one command at a time, so that no step depends
//! on the client under test.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// A bulk reply beyond this is taken for a broken one; INFO is a few KiB.
const REPLY_BYTES_MAX: usize = 1 << 20;

pub(crate) struct RespConnection {
    stream: BufReader<TcpStream>,
}

impl RespConnection {
    /// Connects to loopback; `timeout` bounds the connecting and each wait for
    /// a reply.
    pub(crate) fn open(port: u16, timeout: Duration) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and returns its reply as text: strings and numbers as
    /// they are, nil as the empty string. An error reply is an error.
    pub(crate) fn ask(&mut self, words: &[&str]) -> io::Result<String> {
        let request = encode(words);
        self.stream.get_mut().write_all(&request)?;
        read_reply(&mut self.stream)
    }
}

fn encode(words: &[&str]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    request.into_bytes()
}

fn read_reply(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.take(REPLY_BYTES_MAX as u64).read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let kind = line.get(..1).unwrap_or_default();
    let rest = line.get(1..).unwrap_or_default();
    match kind {
        "+" | ":" => Ok(rest.to_owned()),
        "-" => Err(io::Error::other(rest.to_owned())),
        "$" if rest == "-1" => Ok(String::new()),
        "$" => {
            let length = rest
                .parse::<usize>()
                .ok()
                .filter(|&length| length <= REPLY_BYTES_MAX)
                .ok_or_else(|| unexpected(line))?;
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(length);
            String::from_utf8(bytes).map_err(|error| io::Error::other(error.to_string()))
        }
        _ => Err(unexpected(line)),
    }
}

fn unexpected(line: &str) -> io::Error {
    io::Error::other(format!("unexpected reply {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_arrays_of_bulk_strings() {
        assert_eq!(encode(&["GET", "schlüssel"]), "*2\r\n$3\r\nGET\r\n$10\r\nschlüssel\r\n".as_bytes());
    }

    #[test]
    fn replies_are_read_or_refused() {
        let reply = |text: &str| read_reply(&mut text.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(reply("+PONG\r\n"), Ok("PONG".to_owned()));
        assert_eq!(reply(":12\r\n"), Ok("12".to_owned()));
        assert_eq!(reply("$4\r\na\r\nb\r\n"), Ok("a\r\nb".to_owned()));
        assert_eq!(reply("$-1\r\n"), Ok(String::new()));
        assert_eq!(reply("-ERR no\r\n"), Err("ERR no".to_owned()));
        for broken in ["", "+PO", "$9\r\nabc\r\n", "$99999999999\r\n", "*1\r\n", "\r\n"] {
            assert!(reply(broken).is_err(), "{broken:?}");
        }
    }
}
