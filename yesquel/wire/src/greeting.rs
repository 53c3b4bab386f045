//! The greeting: what a client and a server say before the first frame.
//! `docs/yesquel/wire.md` has the format.

use crate::{Malformed, Reader, Writer};
use thiserror::Error;
use yesquel_model::{ServerId, Timestamp};

/// What both begin with: whoever says something else speaks another protocol.
pub const MAGIC: [u8; 8] = *b"YESQUEL1";
/// The versions that this code speaks, the lowest and the highest.
pub const VERSIONS: (u16, u16) = (2, 2);
/// Bytes of a greeting behind the magic and its length.
pub const GREETING_BYTES_MAX: usize = 4096;
/// Bytes of a credential.
pub const CREDENTIAL_BYTES_MAX: usize = 1024;

/// The bit of numbers by which clients greet with connections beside their own.
/// These bring requests only that may overtake others.
pub const LANE: u64 = 1 << 63;

/// Bytes before the body: the magic and the body's length.
const HEAD_BYTES: usize = MAGIC.len() + 4;

/// What cannot be a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GreetingError {
    /// It begins with something else.
    #[error("it does not speak Yesquel's protocol")]
    Foreign,
    /// It is longer than greetings are.
    #[error("a greeting of {0} bytes, and the most is {GREETING_BYTES_MAX}")]
    TooLong(u32),
    /// What is in it is no greeting.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// What a client says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The lowest and the highest version that it speaks.
    pub versions: (u16, u16),
    /// Its number, which no other client has. When it comes again the older
    /// connection is closed first.
    pub client: u64,
    /// What shows that it may.
    pub credential: &'a [u8],
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Welcome {
    /// It is served.
    Served {
        /// By this version.
        version: u16,
        /// By whom.
        server: ServerId,
        /// Requests that it may have under way.
        requests_max: u32,
        /// What the server's clock says.
        now: Timestamp,
    },
    /// It is not.
    Refused(Denial),
}

/// Why a client is not served.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Denial {
    /// The two have no version in common.
    #[error(
        "the server speaks versions {lowest} to {highest} of the protocol, this client {} to {}: use a client and a server of the same release",
        VERSIONS.0,
        VERSIONS.1
    )]
    Version {
        /// The server's lowest.
        lowest: u16,
        /// Its highest.
        highest: u16,
    },
    /// The credential is not the server's.
    #[error("the server does not take this credential: give the one that it was started with")]
    Credential,
    /// It has as many connections as it may have.
    #[error(
        "the server has {0} connections, as many as it takes: close some, or start it with a larger --clients-max"
    )]
    TooManyConnections(u32),
    /// It does not serve anybody now.
    #[error("the server is not ready: {0}")]
    NotReady(String),
}

/// Puts the magic and the length before a body.
fn enclose(body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&[0; 4]);
    body(&mut Writer(&mut bytes));
    let length = (bytes.len() - HEAD_BYTES) as u32;
    bytes[MAGIC.len()..HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// The body of the greeting that some bytes begin with, and how long it is in
/// all; `None` where more must come.
fn enclosed(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, GreetingError> {
    let begun = bytes.len().min(MAGIC.len());
    if bytes[..begun] != MAGIC[..begun] {
        return Err(GreetingError::Foreign);
    }
    let length = bytes.get(MAGIC.len()..).and_then(|rest| rest.first_chunk());
    let Some(length) = length.map(|length| u32::from_le_bytes(*length)) else { return Ok(None) };
    if length as usize > GREETING_BYTES_MAX {
        return Err(GreetingError::TooLong(length));
    }
    let end = HEAD_BYTES + length as usize;
    Ok(bytes.get(HEAD_BYTES..end).map(|body| (body, end)))
}

impl<'a> Hello<'a> {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        enclose(|writer| {
            writer.number(u64::from(self.versions.0)).number(u64::from(self.versions.1));
            writer.fixed(self.client).bytes(self.credential);
        })
    }

    /// The greeting that some bytes begin with, and how many it takes; `None`
    /// where more must come. Later versions may say more.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Hello<'a>, usize)>, GreetingError> {
        let Some((body, length)) = enclosed(bytes)? else { return Ok(None) };
        let mut reader = Reader::new(body);
        let versions = (version(&mut reader)?, version(&mut reader)?);
        let (client, before) = (reader.fixed()?, reader);
        let credential = reader.bytes()?;
        if credential.len() > CREDENTIAL_BYTES_MAX {
            return Err(before.malformed("a credential that is too long").into());
        }
        Ok(Some((Hello { versions, client, credential }, length)))
    }
}

fn version(reader: &mut Reader<'_>) -> Result<u16, Malformed> {
    let before = *reader;
    u16::try_from(reader.number()?).map_err(|_| before.malformed("a version beyond 16 bits"))
}

const SERVED: u8 = 0;
const VERSION: u8 = 1;
const CREDENTIAL: u8 = 2;
const TOO_MANY: u8 = 3;
const NOT_READY: u8 = 4;

impl Welcome {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        enclose(|writer| {
            match self {
                Welcome::Served { version, server, requests_max, now } => writer
                    .byte(SERVED)
                    .number(u64::from(*version))
                    .number(u64::from(server.0))
                    .number(u64::from(*requests_max))
                    .timestamp(*now),
                Welcome::Refused(Denial::Version { lowest, highest }) => {
                    writer.byte(VERSION).number(u64::from(*lowest)).number(u64::from(*highest))
                }
                Welcome::Refused(Denial::Credential) => writer.byte(CREDENTIAL),
                Welcome::Refused(Denial::TooManyConnections(most)) => {
                    writer.byte(TOO_MANY).number(u64::from(*most))
                }
                Welcome::Refused(Denial::NotReady(why)) => writer.byte(NOT_READY).bytes(why.as_bytes()),
            };
        })
    }

    /// The greeting that some bytes begin with, and how many it takes; `None`
    /// where more must come.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Welcome, usize)>, GreetingError> {
        let Some((body, length)) = enclosed(bytes)? else { return Ok(None) };
        let mut reader = Reader::new(body);
        let before = reader;
        let most = |reader: &mut Reader<'_>| {
            let before = *reader;
            u32::try_from(reader.number()?).map_err(|_| before.malformed("a number beyond 32 bits"))
        };
        let welcome = match reader.byte()? {
            SERVED => Welcome::Served {
                version: version(&mut reader)?,
                server: reader.server()?,
                requests_max: most(&mut reader)?,
                now: reader.timestamp()?,
            },
            VERSION => Welcome::Refused(Denial::Version {
                lowest: version(&mut reader)?,
                highest: version(&mut reader)?,
            }),
            CREDENTIAL => Welcome::Refused(Denial::Credential),
            TOO_MANY => Welcome::Refused(Denial::TooManyConnections(most(&mut reader)?)),
            NOT_READY => {
                let why = String::from_utf8_lossy(reader.bytes()?).into_owned();
                Welcome::Refused(Denial::NotReady(why))
            }
            _ => return Err(before.malformed("an answer that is not known").into()),
        };
        Ok(Some((welcome, length)))
    }
}

/// The highest version that both speak.
pub fn common_version(theirs: (u16, u16)) -> Result<u16, Denial> {
    let (lowest, highest) = VERSIONS;
    let both = highest.min(theirs.1);
    if both >= lowest.max(theirs.0) { Ok(both) } else { Err(Denial::Version { lowest, highest }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn greetings_come_back_and_wait_for_their_last_byte() {
        let hello = Hello { versions: (1, 7), client: u64::MAX, credential: b"secret" };
        let bytes = hello.encode();
        assert_eq!(Hello::decode(&bytes), Ok(Some((hello, bytes.len()))));
        for length in 0..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..length]), Ok(None));
        }
        let served = Welcome::Served {
            version: 1,
            server: ServerId(3),
            requests_max: 4096,
            now: Timestamp::from_ms(1_000),
        };
        for welcome in [
            served,
            Welcome::Refused(Denial::Version { lowest: 2, highest: 3 }),
            Welcome::Refused(Denial::Credential),
            Welcome::Refused(Denial::TooManyConnections(1_000)),
            Welcome::Refused(Denial::NotReady("its disk is full".to_owned())),
        ] {
            let mut bytes = welcome.encode();
            let length = bytes.len();
            for length in 0..length {
                assert_eq!(Welcome::decode(&bytes[..length]), Ok(None));
            }
            // The first frame may follow at once.
            bytes.push(7);
            assert_eq!(Welcome::decode(&bytes), Ok(Some((welcome, length))));
        }
    }

    #[test]
    fn what_is_no_greeting_is_refused_at_its_first_byte() {
        assert_eq!(Hello::decode(b"G"), Err(GreetingError::Foreign));
        assert_eq!(Hello::decode(b"YESQUEL2"), Err(GreetingError::Foreign));
        assert_eq!(Hello::decode(b"YESQUEL1\xff\xff\0\0"), Err(GreetingError::TooLong(0xffff)));
    }

    #[test]
    fn the_highest_version_that_both_speak_is_taken() {
        assert_eq!(common_version((1, 9)), Ok(2));
        assert_eq!(common_version((3, 9)), Err(Denial::Version { lowest: 2, highest: 2 }));
        assert_eq!(common_version((0, 1)), Err(Denial::Version { lowest: 2, highest: 2 }));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes: Vec<u8>) {
            let _ = Hello::decode(&bytes);
            let _ = Welcome::decode(&bytes);
            let enclosed = enclose(|writer| writer.0.extend_from_slice(&bytes));
            let _ = Hello::decode(&enclosed);
            let _ = Welcome::decode(&enclosed);
        }
    }
}
