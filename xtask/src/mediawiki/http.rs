//! A client of HTTP/1.1 for PHP's own server, which closes the connection after each answer.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::Result;

/// Time limit of a read. It is above MediaWiki's busy timeout of 60 s, so that an error of the
/// database is seen as such.
const READ_MAX: Duration = Duration::from_secs(90);

/// Length of an answer above which it is refused, bytes.
const ANSWER_MAX: usize = 64 << 20;

/// Number of header fields that are parsed; MediaWiki sends about 15.
const HEADERS_MAX: usize = 64;

/// An answer, with a body that is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Requests a path with its query.
pub(super) fn get(port: u16, target: &str) -> Result<HttpAnswer> {
    exchange(port, &format!("GET {target} HTTP/1.1\r\n{}\r\n", headers(port)))
}

/// Sends a form.
pub(super) fn post(port: u16, target: &str, fields: &[(&str, &str)]) -> Result<HttpAnswer> {
    let form = form(fields);
    let request = format!(
        "POST {target} HTTP/1.1\r\n{}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        headers(port),
        form.len(),
    );
    exchange(port, &request)
}

/// Encodes fields as a query or the body of a form.
pub(super) fn form(fields: &[(&str, &str)]) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn headers(port: u16) -> String {
    format!("Host: 127.0.0.1:{port}\r\nUser-Agent: xtask\r\nConnection: close\r\n")
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}

fn exchange(port: u16, request: &str) -> Result<HttpAnswer> {
    let failed = |error: std::io::Error| format!("the web server did not answer: {error}");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, READ_MAX).map_err(failed)?;
    stream.set_read_timeout(Some(READ_MAX)).map_err(failed)?;
    stream.set_write_timeout(Some(READ_MAX)).map_err(failed)?;
    stream.write_all(request.as_bytes()).map_err(failed)?;
    read(&mut stream)
}

/// Start and length of an answer's body.
struct Frame {
    status: u16,
    begin: usize,
    /// `None`: the body ends with the connection.
    length: Option<usize>,
}

/// Reads an answer. Its body ends where `Content-Length` says, which MediaWiki sends if it goes on
/// with updates after the answer, otherwise with the connection.
fn read(source: &mut impl Read) -> Result<HttpAnswer> {
    let mut bytes = Vec::new();
    let mut frame = None;
    let mut piece = [0; 64 << 10];
    loop {
        if frame.is_none() {
            frame = parse(&bytes)?;
        }
        let end = frame.as_ref().and_then(|frame| Some(frame.begin + frame.length?));
        if end.is_some_and(|end| bytes.len() >= end) {
            break;
        }
        if bytes.len() > ANSWER_MAX {
            return Err(format!("the answer is longer than {ANSWER_MAX} bytes"));
        }
        match source.read(&mut piece) {
            Ok(0) if end.is_some() => return Err("the answer is cut off".to_owned()),
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("the web server did not answer: {error}")),
        }
    }
    let Some(Frame { status, begin, length }) = frame else {
        return Err("the web server closed the connection without an answer".to_owned());
    };
    let end = length.map_or(bytes.len(), |length| begin + length);
    Ok(HttpAnswer { status, body: String::from_utf8_lossy(&bytes[begin..end]).into_owned() })
}

/// Parses the head of an answer; `None` if it is not complete.
fn parse(bytes: &[u8]) -> Result<Option<Frame>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let parsed = answer.parse(bytes).map_err(|error| format!("the answer is not HTTP: {error}"))?;
    let httparse::Status::Complete(begin) = parsed else { return Ok(None) };
    let value = |name: &str| {
        let mut headers = answer.headers.iter();
        headers.find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    };
    if value("Transfer-Encoding").is_some() {
        return Err("the answer has a Transfer-Encoding, which PHP's own server does not send".to_owned());
    }
    let length = match value("Content-Length") {
        None => None,
        Some(text) => {
            let length = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse::<usize>().ok());
            let length = length.filter(|length| *length <= ANSWER_MAX);
            Some(length.ok_or("the answer's Content-Length is not a number that is small enough")?)
        }
    };
    Ok(Some(Frame { status: answer.code.unwrap_or_default(), begin, length }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that returns a byte at a time, as a slow network may.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            (to[0], self.0) = (*first, rest);
            Ok(1)
        }
    }

    fn answer(text: &str) -> Result<HttpAnswer> {
        read(&mut Slow(text.as_bytes()))
    }

    #[test]
    fn a_body_ends_with_its_length_or_with_the_connection() {
        let with_length = answer("HTTP/1.1 200 OK\r\nContent-length: 2\r\n\r\nhi, and more");
        assert_eq!(with_length, Ok(HttpAnswer { status: 200, body: "hi".to_owned() }));
        let without = answer("HTTP/1.1 500 No\r\nHost: x\r\n\r\nall of it");
        assert_eq!(without, Ok(HttpAnswer { status: 500, body: "all of it".to_owned() }));
    }

    #[test]
    fn an_incomplete_answer_is_an_error() {
        for (text, error) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", "cut off"),
            ("HTTP/1.1 200 OK\r\nHo", "without an answer"),
            ("", "without an answer"),
            ("no protocol at all\r\n\r\n", "not HTTP"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding"),
            ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "not a number"),
        ] {
            let found = answer(text).unwrap_err();
            assert!(found.contains(error), "{text:?}: {found}");
        }
    }

    #[test]
    fn fields_are_percent_encoded() {
        assert_eq!(
            form(&[("token", "+\\"), ("text", "\na b&c=é")]),
            "token=%2B%5C&text=%0Aa%20b%26c%3D%C3%A9"
        );
    }
}
