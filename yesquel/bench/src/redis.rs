//! Minimal Redis client: one blocking connection, and requests encoded by hand.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
};

/// Sorted set with all keys.
const INDEX: &[u8] = b"index";

pub(crate) struct RespClient {
    reader: BufReader<TcpStream>,
    request: Vec<u8>,
    value: Vec<u8>,
}

fn command(request: &mut Vec<u8>, parts: &[&[u8]]) {
    request.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
    for part in parts {
        request.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        request.extend_from_slice(part);
        request.extend_from_slice(b"\r\n");
    }
}

impl RespClient {
    pub(crate) fn connect(address: &str) -> io::Result<RespClient> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(RespClient { reader: BufReader::new(stream), request: Vec::new(), value: Vec::new() })
    }

    fn send(&mut self) -> io::Result<()> {
        self.reader.get_mut().write_all(&self.request)?;
        self.request.clear();
        Ok(())
    }

    /// Reads one reply. Returns whether it has a value.
    fn reply(&mut self) -> io::Result<bool> {
        let mut line = Vec::with_capacity(32);
        self.reader.read_until(b'\n', &mut line)?;
        match line.first() {
            Some(b'+' | b':') => Ok(true),
            Some(b'$') => {
                let length: i64 = std::str::from_utf8(&line[1..])
                    .ok()
                    .and_then(|text| text.trim_end().parse().ok())
                    .ok_or_else(|| io::Error::other("no length"))?;
                if length < 0 {
                    return Ok(false);
                }
                self.value.resize(length as usize + 2, 0);
                self.reader.read_exact(&mut self.value)?;
                Ok(true)
            }
            _ => Err(io::Error::other(String::from_utf8_lossy(&line).into_owned())),
        }
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> io::Result<bool> {
        command(&mut self.request, &[b"GET", key]);
        self.send()?;
        self.reply()
    }

    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        command(&mut self.request, &[b"SET", key, value]);
        self.send()?;
        self.reply().map(drop)
    }

    /// Reads many keys by one command. Returns the number found.
    pub(crate) fn get_many(&mut self, keys: &[[u8; 8]]) -> io::Result<usize> {
        let parts: Vec<&[u8]> =
            [b"MGET".as_slice()].into_iter().chain(keys.iter().map(|key| &key[..])).collect();
        command(&mut self.request, &parts);
        self.send()?;
        let mut line = Vec::with_capacity(32);
        self.reader.read_until(b'\n', &mut line)?;
        if line != format!("*{}\r\n", keys.len()).as_bytes() {
            return Err(io::Error::other(String::from_utf8_lossy(&line).into_owned()));
        }
        self.replies(keys.len())
    }

    fn replies(&mut self, count: usize) -> io::Result<usize> {
        let mut found = 0;
        for _ in 0..count {
            found += usize::from(self.reply()?);
        }
        Ok(found)
    }

    /// Pipelines many writes.
    pub(crate) fn set_all(&mut self, keys: &[[u8; 8]], value: &[u8]) -> io::Result<()> {
        for key in keys {
            command(&mut self.request, &[b"SET", key, value]);
        }
        self.send()?;
        for _ in keys {
            self.reply()?;
        }
        Ok(())
    }

    /// Pipelines many reads.
    pub(crate) fn get_all(&mut self, keys: &[[u8; 8]]) -> io::Result<usize> {
        for key in keys {
            command(&mut self.request, &[b"GET", key]);
        }
        self.send()?;
        self.replies(keys.len())
    }

    /// Pipelines many reads, each with a write.
    pub(crate) fn get_and_set_all(&mut self, keys: &[[u8; 8]], value: &[u8]) -> io::Result<()> {
        for key in keys {
            command(&mut self.request, &[b"GET", key]);
            command(&mut self.request, &[b"SET", key, value]);
        }
        self.send()?;
        self.replies(keys.len() * 2).map(drop)
    }

    /// Pipelines additions to the sorted set.
    pub(crate) fn index_all(&mut self, numbers: std::ops::Range<u64>) -> io::Result<()> {
        let count = (numbers.end - numbers.start) as usize;
        for number in numbers {
            command(
                &mut self.request,
                &[b"ZADD", INDEX, number.to_string().as_bytes(), &number.to_be_bytes()],
            );
        }
        self.send()?;
        self.replies(count).map(drop)
    }

    /// Pipelines range queries on the sorted set, each from a key on with a limit.
    pub(crate) fn ranges(&mut self, ranges: impl Iterator<Item = (u64, u64)>) -> io::Result<()> {
        let mut count = 0;
        for (first, limit) in ranges {
            let (first, limit) = (first.to_string(), limit.to_string());
            let parts: [&[u8]; 7] =
                [b"ZRANGEBYSCORE", INDEX, first.as_bytes(), b"+inf", b"LIMIT", b"0", limit.as_bytes()];
            command(&mut self.request, &parts);
            count += 1;
        }
        self.send()?;
        for _ in 0..count {
            let mut line = Vec::with_capacity(32);
            self.reader.read_until(b'\n', &mut line)?;
            let found = line.strip_prefix(b"*").and_then(|rest| std::str::from_utf8(rest).ok());
            let found: usize = found
                .and_then(|text| text.trim_end().parse().ok())
                .ok_or_else(|| io::Error::other(String::from_utf8_lossy(&line).into_owned()))?;
            self.replies(found)?;
        }
        Ok(())
    }
}
