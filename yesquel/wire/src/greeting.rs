//! The greeting that client and server exchange before the first frame. `docs/yesquel/wire.md` has
//! the format.

use crate::{ByteReader, ByteWriter, Malformed};
use thiserror::Error;
use yesquel_model::{ClusterId, ClusterMembership, GroupEpoch, ServerId, Timestamp};

/// First bytes of both greetings; a peer that sends others speaks another protocol.
pub const MAGIC: [u8; 8] = *b"YESQUEL1";
/// Lowest and highest protocol version of this code.
pub const VERSIONS: (u16, u16) = (5, 5);
/// Bytes of a greeting after the magic and the length.
pub const GREETING_BYTES_MAX: usize = 4096;
/// Bytes of a credential.
pub const CREDENTIAL_BYTES_MAX: usize = 1024;

/// Bit of a client number that marks a lane: a connection beside the client's own, for requests
/// that may overtake others.
pub const LANE: u64 = 1 << 63;

/// Lowest bits of a lane's number: which lane of its client it is.
const LANE_BITS: u32 = 4;
/// Lanes that a client can have.
pub const LANES_MAX: u32 = 1 << LANE_BITS;

/// Returns the number with which a lane of a client greets.
pub fn lane(client: u64, lane: u64) -> u64 {
    LANE | client << LANE_BITS | lane & !(u64::MAX << LANE_BITS)
}

/// Returns whether a connection that has greeted with a number may send transactions of a client: it
/// is the client's, or one of its lanes.
pub fn may_send_for(greeted: u64, client: u64) -> bool {
    greeted == client || greeted & LANE != 0 && greeted >> LANE_BITS == lane(client, 0) >> LANE_BITS
}

/// Bits of a client number that mark a connection for notices. The lowest bits are the number in its
/// socket's name, see [`watcher`].
const WATCHER: u64 = LANE | 1 << 62;
const NAME_BITS: u32 = 20;

/// Returns the number with which a client greets on its connection for notices: a server sends
/// notices only if the socket's name that it sees is the same, so that no program is in between
/// which could delay them. `name` is the number that Linux has given the socket as its abstract
/// name.
pub fn watcher(client: u64, name: u32) -> u64 {
    (client << NAME_BITS) & !(u64::MAX << 62) | u64::from(name) | WATCHER
}

/// Returns whether a connection with this client number, from a socket with this name, gets notices.
pub fn is_watcher(client: u64, name: Option<u32>) -> bool {
    let named = client & !(u64::MAX << NAME_BITS);
    client & WATCHER == WATCHER && name.map(u64::from) == Some(named)
}

/// Returns the number in an abstract socket name that Linux has chosen: five hexadecimal digits.
pub fn name_number(abstract_name: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(abstract_name).ok().filter(|digits| digits.len() == 5)?;
    u32::from_str_radix(digits, 16).ok()
}

/// Bytes before the body: the magic and the body's length.
const HEAD_BYTES: usize = MAGIC.len() + 4;

/// Why bytes are no greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GreetingError {
    /// The magic is missing.
    #[error("the peer does not speak Yesquel's protocol")]
    Foreign,
    /// The greeting is too long.
    #[error("a greeting of {0} bytes; the limit is {GREETING_BYTES_MAX}")]
    TooLong(u32),
    /// The body is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// What a connection may send. A credential is for one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// An application: questions about outcomes and decisions concern its own transactions only.
    #[default]
    Client,
    /// Another server.
    Peer,
    /// A person who changes the cluster: what a client may send, and commands for machines. The
    /// credential is that of servers.
    Operator,
    /// A machine that asks to join the cluster. The credential is a token, and there is one message.
    Joiner,
}

/// The client's greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Lowest and highest version of the client.
    pub versions: (u16, u16),
    /// The client's number, which is unique. A new connection with the same number closes the older
    /// one first.
    pub client: u64,
    /// The shared secret of the role.
    pub credential: &'a [u8],
    /// The role.
    pub role: Role,
    /// The cluster that the client knows and no other one may serve it.
    pub cluster: Option<ClusterId>,
}

/// The server's greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Welcome {
    /// The client is accepted.
    Served {
        /// The protocol version.
        version: u16,
        /// The server.
        server: ServerId,
        /// Requests that may be in flight.
        requests_max: u32,
        /// The server's clock.
        now: Timestamp,
        /// The server's cluster.
        membership: ClusterMembership,
        /// Epoch of the server's group.
        epoch: GroupEpoch,
        /// The other groups that the machine hosts, and their epochs. Requests to them go by the same
        /// connection.
        others: Vec<(ServerId, GroupEpoch)>,
    },
    /// The client is not accepted.
    Refused(Denial),
}

/// Why a client is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Denial {
    /// Client and server have no version in common.
    #[error(
        "the server speaks versions {lowest} to {highest} of the protocol, this client {} to {}: use a client and a server of the same release",
        VERSIONS.0,
        VERSIONS.1
    )]
    Version {
        /// The server's lowest version.
        lowest: u16,
        /// The server's highest version.
        highest: u16,
    },
    /// The credential is wrong.
    #[error("the server rejects this credential: present one of its credential file")]
    Credential,
    /// The server has the maximum number of connections.
    #[error(
        "the server has the maximum of {0} connections: close some, or start it with a larger --clients-max"
    )]
    TooManyConnections(u32),
    /// The client knows another cluster.
    #[error(
        "the server belongs to cluster {0}, which is not that of the client: use the address of a server of one cluster"
    )]
    OtherCluster(ClusterId),
    /// The server accepts no client now.
    #[error("the server is not ready: {0}")]
    NotReady(String),
}

/// Prepends the magic and the length to a body.
fn enclose(body: impl FnOnce(&mut ByteWriter<'_>)) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&[0; 4]);
    body(&mut ByteWriter(&mut bytes));
    let length = (bytes.len() - HEAD_BYTES) as u32;
    bytes[MAGIC.len()..HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Returns the body and total length of the greeting at the start of some bytes; `None` if it is
/// incomplete.
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
    /// Encodes the greeting.
    pub fn encode(&self) -> Vec<u8> {
        enclose(|writer| {
            writer.number(u64::from(self.versions.0)).number(u64::from(self.versions.1));
            writer.fixed(self.client).bytes(self.credential);
            writer.byte(match self.role {
                Role::Client => CLIENT,
                Role::Peer => PEER,
                Role::Operator => OPERATOR,
                Role::Joiner => JOINER,
            });
            writer.flag(self.cluster.is_some());
            if let Some(ClusterId(cluster)) = self.cluster {
                writer.0.extend_from_slice(&cluster);
            }
        })
    }

    /// Decodes the greeting at the start of some bytes and returns its length; `None` if it is
    /// incomplete. Later versions may append fields.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Hello<'a>, usize)>, GreetingError> {
        let Some((body, length)) = enclosed(bytes)? else { return Ok(None) };
        let mut reader = ByteReader::new(body);
        let versions = (version(&mut reader)?, version(&mut reader)?);
        let (client, before) = (reader.fixed()?, reader);
        let credential = reader.bytes()?;
        if credential.len() > CREDENTIAL_BYTES_MAX {
            return Err(before.malformed("a credential over the limit").into());
        }
        let role = match reader.byte() {
            // Earlier releases send no role.
            Err(_) | Ok(CLIENT) => Role::Client,
            Ok(PEER) => Role::Peer,
            Ok(OPERATOR) => Role::Operator,
            Ok(JOINER) => Role::Joiner,
            Ok(_) => return Err(before.malformed("an unknown role").into()),
        };
        // Earlier releases name no cluster.
        let names_cluster = !reader.is_done() && reader.flag()?;
        let cluster = if names_cluster { Some(cluster(&mut reader)?) } else { None };
        Ok(Some((Hello { versions, client, credential, role, cluster }, length)))
    }
}

const CLIENT: u8 = 0;
const PEER: u8 = 1;
const OPERATOR: u8 = 2;
const JOINER: u8 = 3;

fn version(reader: &mut ByteReader<'_>) -> Result<u16, Malformed> {
    let before = *reader;
    u16::try_from(reader.number()?).map_err(|_| before.malformed("a version beyond 16 bits"))
}

fn cluster(reader: &mut ByteReader<'_>) -> Result<ClusterId, Malformed> {
    let (high, low) = (reader.fixed()?, reader.fixed()?);
    Ok(ClusterId((u128::from(low) << 64 | u128::from(high)).to_le_bytes()))
}

const SERVED: u8 = 0;
const VERSION: u8 = 1;
const CREDENTIAL: u8 = 2;
const TOO_MANY: u8 = 3;
const NOT_READY: u8 = 4;
const OTHER_CLUSTER: u8 = 5;

impl Welcome {
    /// Encodes the greeting.
    pub fn encode(&self) -> Vec<u8> {
        enclose(|writer| {
            match self {
                Welcome::Served { version, server, requests_max, now, membership, epoch, others } => {
                    writer.byte(SERVED).number(u64::from(*version)).number(u64::from(server.0));
                    writer.number(u64::from(*requests_max)).timestamp(*now);
                    writer.0.extend_from_slice(&membership.cluster.0);
                    writer.number(u64::from(membership.home_group.0)).epoch(*epoch);
                    writer.number(others.len() as u64);
                    for (group, epoch) in others {
                        writer.number(u64::from(group.0)).epoch(*epoch);
                    }
                    writer
                }
                Welcome::Refused(Denial::Version { lowest, highest }) => {
                    writer.byte(VERSION).number(u64::from(*lowest)).number(u64::from(*highest))
                }
                Welcome::Refused(Denial::Credential) => writer.byte(CREDENTIAL),
                Welcome::Refused(Denial::TooManyConnections(most)) => {
                    writer.byte(TOO_MANY).number(u64::from(*most))
                }
                Welcome::Refused(Denial::OtherCluster(cluster)) => {
                    writer.byte(OTHER_CLUSTER).0.extend_from_slice(&cluster.0);
                    writer
                }
                Welcome::Refused(Denial::NotReady(why)) => writer.byte(NOT_READY).bytes(why.as_bytes()),
            };
        })
    }

    /// Decodes the greeting at the start of some bytes and returns its length; `None` if it is
    /// incomplete.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Welcome, usize)>, GreetingError> {
        let Some((body, length)) = enclosed(bytes)? else { return Ok(None) };
        let mut reader = ByteReader::new(body);
        let before = reader;
        let most = |reader: &mut ByteReader<'_>| {
            let before = *reader;
            u32::try_from(reader.number()?).map_err(|_| before.malformed("a number beyond 32 bits"))
        };
        let welcome = match reader.byte()? {
            SERVED => Welcome::Served {
                version: version(&mut reader)?,
                server: reader.server()?,
                requests_max: most(&mut reader)?,
                now: reader.timestamp()?,
                membership: ClusterMembership {
                    cluster: cluster(&mut reader)?,
                    home_group: reader.server()?,
                },
                epoch: reader.epoch()?,
                others: other_groups(&mut reader)?,
            },
            OTHER_CLUSTER => Welcome::Refused(Denial::OtherCluster(cluster(&mut reader)?)),
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
            _ => return Err(before.malformed("an unknown answer").into()),
        };
        Ok(Some((welcome, length)))
    }
}

/// Reads the further groups of a machine.
fn other_groups(reader: &mut ByteReader<'_>) -> Result<Vec<(ServerId, GroupEpoch)>, Malformed> {
    // Earlier releases have one group a machine, and name no others.
    let count = if reader.is_done() { 0 } else { reader.number()? };
    // The bytes, of which a greeting has few, end before a wrong count.
    (0..count).map(|_| Ok((reader.server()?, reader.epoch()?))).collect()
}

/// Returns the highest version that both sides speak.
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
    fn a_lane_sends_for_its_client_only() {
        let clients = [1, 2, 17, 0x0123_4567_89ab_cdef, LANE >> 4, (LANE >> 4) - 1];
        for client in clients {
            let lanes: std::collections::BTreeSet<u64> = (0..16).map(|number| lane(client, number)).collect();
            assert_eq!(lanes.len(), 16);
            for other in clients {
                assert_eq!(may_send_for(other, client), other == client);
                assert!(
                    lanes
                        .iter()
                        .all(|lane| lane & LANE != 0 && may_send_for(*lane, other) == (other == client))
                );
            }
        }
    }

    #[test]
    fn greetings_round_trip_and_wait_for_their_last_byte() {
        let roles = [Role::Client, Role::Peer, Role::Operator, Role::Joiner];
        for (cluster, role) in
            [None, Some(ClusterId([7; 16]))].into_iter().flat_map(|cluster| roles.map(|role| (cluster, role)))
        {
            let (versions, client) = ((1, 7), u64::MAX);
            let hello = Hello { versions, client, credential: b"secret", role, cluster };
            let bytes = hello.encode();
            assert_eq!(Hello::decode(&bytes), Ok(Some((hello, bytes.len()))));
            for length in 0..bytes.len() {
                assert_eq!(Hello::decode(&bytes[..length]), Ok(None));
            }
        }
        let served = |others: &[u16]| Welcome::Served {
            version: 1,
            server: ServerId(3),
            requests_max: 4096,
            now: Timestamp::from_ms(1_000),
            membership: ClusterMembership { cluster: ClusterId([9; 16]), home_group: ServerId(300) },
            epoch: GroupEpoch { era: 2, index: u64::MAX },
            others: others.iter().map(|group| (ServerId(*group), GroupEpoch::FIRST)).collect(),
        };
        for welcome in [
            served(&[]),
            served(&[4, u16::MAX]),
            Welcome::Refused(Denial::OtherCluster(ClusterId([1; 16]))),
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
    fn wrong_greetings_are_refused_at_their_first_byte() {
        assert_eq!(Hello::decode(b"G"), Err(GreetingError::Foreign));
        assert_eq!(Hello::decode(b"YESQUEL2"), Err(GreetingError::Foreign));
        assert_eq!(Hello::decode(b"YESQUEL1\xff\xff\0\0"), Err(GreetingError::TooLong(0xffff)));
    }

    #[test]
    fn the_highest_common_version_is_chosen() {
        assert_eq!(common_version((1, 9)), Ok(5));
        assert_eq!(common_version((6, 9)), Err(Denial::Version { lowest: 5, highest: 5 }));
        assert_eq!(common_version((0, 4)), Err(Denial::Version { lowest: 5, highest: 5 }));
    }

    /// Version 3, byte for byte: its greetings are understood well enough to refuse them.
    #[test]
    fn the_greetings_of_version_3_are_refused_by_their_version() {
        let hello = enclose(|writer| {
            writer.number(3).number(3).fixed(7).bytes(b"secret").byte(CLIENT);
        });
        let (hello, length) = Hello::decode(&hello).unwrap().unwrap();
        assert_eq!((hello.versions, hello.cluster, length), ((3, 3), None, 12 + 2 + 8 + 7 + 1));
        assert_eq!(common_version(hello.versions), Err(Denial::Version { lowest: 5, highest: 5 }));
        // A server of version 3 answers a client of this one with its versions.
        let welcome = enclose(|writer| {
            writer.byte(VERSION).number(3).number(3);
        });
        let refused = Welcome::Refused(Denial::Version { lowest: 3, highest: 3 });
        assert_eq!(Welcome::decode(&welcome), Ok(Some((refused, welcome.len()))));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
            let _ = Hello::decode(&bytes);
            let _ = Welcome::decode(&bytes);
            let enclosed = enclose(|writer| writer.0.extend_from_slice(&bytes));
            let _ = Hello::decode(&enclosed);
            let _ = Welcome::decode(&enclosed);
        }
    }
}
