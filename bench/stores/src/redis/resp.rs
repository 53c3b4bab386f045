//! Redis' serialization protocol (RESP2), as far as this store's commands
//! need it: writing commands, and finding replies in a growing buffer.
//!
//! Own code because the measured path wants a reply taken apart where it
//! lies in the receive buffer, without a value tree; `docs/benchmarks.md`
//! has the numbers of the kept crates beside it.

/// Deepest nesting of arrays: none of our commands' replies has more than one
/// level; Redis' own limit is 32.
const DEPTH_MAX: usize = 8;

/// Longest bulk string: Redis' own default limit (`proto-max-bulk-len`).
pub(crate) const BULK_MAX: u64 = 512 << 20;

/// Elements of an array at most: what HGETALL of a million fields returns.
const ELEMENTS_MAX: u64 = 1 << 22;

/// Longest line of a status, error or length.
const LINE_MAX: usize = 64 << 10;

/// Appends a command's header: how many arguments follow, its name included.
pub(crate) fn command(out: &mut Vec<u8>, arguments: usize) {
    length(out, b'*', arguments);
}

/// Appends an argument.
pub(crate) fn argument(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn length(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// One part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// `+OK`
    Simple(&'a [u8]),
    /// `-ERR ...`
    Error(&'a [u8]),
    /// `:42`
    Integer(i64),
    /// `$5`
    Bulk(&'a [u8]),
    /// `$-1` or `*-1`
    Nil,
    /// `*2`: this many parts follow.
    Array(usize),
}

/// What is wrong with bytes that are not RESP2. The connection is useless
/// after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a Redis reply: {0}")]
pub(crate) struct Nonsense(&'static str);

fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Nonsense> {
    let searched = &bytes[..bytes.len().min(LINE_MAX)];
    match searched.iter().position(|&b| b == b'\r') {
        Some(end) if end + 1 < bytes.len() => {
            if bytes[end + 1] == b'\n' {
                Ok(Some(&bytes[..end]))
            } else {
                Err(Nonsense("a line does not end in CR LF"))
            }
        }
        None if bytes.len() >= LINE_MAX => Err(Nonsense("a line has no end")),
        _ => Ok(None),
    }
}

fn number(text: &[u8]) -> Result<i64, Nonsense> {
    std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).ok_or(Nonsense("a number is not one"))
}

fn small(text: &[u8], max: u64) -> Result<Option<usize>, Nonsense> {
    match number(text)? {
        -1 => Ok(None),
        n => match u64::try_from(n) {
            Ok(n) if n <= max => Ok(Some(n as usize)),
            _ => Err(Nonsense("a length is out of bounds")),
        },
    }
}

/// Reads the part at the start of `bytes`, and how many bytes it takes;
/// nothing while it has not wholly arrived.
pub(crate) fn part(bytes: &[u8]) -> Result<Option<(Part<'_>, usize)>, Nonsense> {
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
    if !b"+-:$*".contains(&kind) {
        return Err(Nonsense("an unknown type byte; is this a Redis server, and without TLS?"));
    }
    let Some(text) = line(rest)? else { return Ok(None) };
    let used = 1 + text.len() + 2;
    let part = match kind {
        b'+' => Part::Simple(text),
        b'-' => Part::Error(text),
        b':' => Part::Integer(number(text)?),
        b'*' => small(text, ELEMENTS_MAX)?.map_or(Part::Nil, Part::Array),
        _ => match small(text, BULK_MAX)? {
            None => Part::Nil,
            Some(length) => {
                let Some(body) = bytes.get(used..used + length + 2) else { return Ok(None) };
                if &body[length..] != b"\r\n" {
                    return Err(Nonsense("a string is longer than it says"));
                }
                return Ok(Some((Part::Bulk(&body[..length]), used + length + 2)));
            }
        },
    };
    Ok(Some((part, used)))
}

/// Finds the end of a reply that may still be arriving, and remembers how far
/// it has looked, so that bytes are looked at once however they arrive.
#[derive(Debug, Default, Clone)]
pub(crate) struct Scanner {
    /// Bytes known to belong to whole parts of the reply.
    scanned: usize,
    /// Parts still missing, by depth of nesting.
    open: [usize; DEPTH_MAX],
    depth: usize,
    begun: bool,
}

impl Scanner {
    /// Length of the reply at the start of `bytes`, once it is all there.
    /// Then the scanner is ready for the next reply.
    pub(crate) fn reply(&mut self, bytes: &[u8]) -> Result<Option<usize>, Nonsense> {
        if !self.begun {
            self.begun = true;
            self.depth = 0;
            self.scanned = 0;
            self.open[0] = 1;
        }
        loop {
            while self.open[self.depth] == 0 {
                if self.depth == 0 {
                    self.begun = false;
                    return Ok(Some(self.scanned));
                }
                self.depth -= 1;
            }
            let Some((part, used)) = part(&bytes[self.scanned..])? else { return Ok(None) };
            self.scanned += used;
            self.open[self.depth] -= 1;
            if let Part::Array(length) = part {
                if self.depth + 1 == DEPTH_MAX {
                    return Err(Nonsense("arrays are nested too deeply"));
                }
                self.depth += 1;
                self.open[self.depth] = length;
            }
        }
    }
}

/// The parts of a whole reply, in order.
#[derive(Debug, Clone)]
pub(crate) struct Parts<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;
    fn next(&mut self) -> Option<Part<'a>> {
        // A reply that was found whole has been checked part by part.
        let (part, used) = part(self.0).ok()??;
        self.0 = &self.0[used..];
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        command(&mut out, 2);
        argument(&mut out, b"HGETALL");
        argument(&mut out, b"user1");
        assert_eq!(out, b"*2\r\n$7\r\nHGETALL\r\n$5\r\nuser1\r\n");
    }

    #[test]
    fn replies_are_found_however_they_arrive() {
        let bytes: &[u8] = b"*3\r\n$2\r\nhi\r\n*2\r\n:-5\r\n$-1\r\n+OK\r\n-ERR no\r\n*0\r\n*-1\r\n";
        let ends = [bytes.len() - 18, bytes.len() - 9, bytes.len() - 5, bytes.len()];
        for cut in 1..=bytes.len() {
            let mut scanner = Scanner::default();
            let (mut start, mut found) = (0, Vec::new());
            let mut arrived = 0;
            while arrived < bytes.len() {
                arrived = (arrived + cut).min(bytes.len());
                while let Some(length) = scanner.reply(&bytes[start..arrived]).unwrap() {
                    start += length;
                    found.push(start);
                    if start == arrived {
                        break;
                    }
                }
            }
            assert_eq!(found, ends, "in pieces of {cut}");
        }
        let parts: Vec<_> = Parts(&bytes[..ends[0]]).collect();
        assert_eq!(
            parts,
            [
                Part::Array(3),
                Part::Bulk(b"hi"),
                Part::Array(2),
                Part::Integer(-5),
                Part::Nil,
                Part::Simple(b"OK")
            ]
        );
    }

    #[test]
    fn nonsense_is_refused_and_bounded() {
        let deep = b"*1\r\n".repeat(10);
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"$99999999999\r\n",
            b"*99999999\r\n",
            b"$-2\r\n",
            b":4x\r\n",
            b"$2\r\nabcd",
            b"+OK\rX",
            &deep,
            &[b'+'; LINE_MAX + 2],
        ] {
            assert!(Scanner::default().reply(bytes).is_err(), "{:?}", String::from_utf8_lossy(&bytes[..8]));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Scanner::default().reply(&bytes);
        }

        #[test]
        fn near_misses_do_not_panic(bytes in "[-+:$*0-9\r\na]{0,60}") {
            let mut scanner = Scanner::default();
            let bytes = bytes.as_bytes();
            for end in 0..=bytes.len() {
                if !matches!(scanner.reply(&bytes[..end]), Ok(None)) { break }
            }
        }
    }
}
