//! Messages between coordinator and clients, and their encoding. A frame is a
//! length (u32, little endian), a byte for its kind, and that many bytes: JSON, or
//! a report that this module does not interpret.

use serde::{Deserialize, Serialize};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Version of the messages. Coordinator and clients must have the same.
pub const PROTOCOL: u32 = 1;

/// Largest frame, bytes. A result with all its histograms has a few MB at most.
pub const FRAME_MAX: usize = 256 << 20;

/// Largest first frame of a connection, bytes: the sender is not identified yet.
pub const HELLO_MAX: usize = 64 << 10;

/// Facts about a client process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientFacts {
    /// Name of the host.
    pub host: String,
    /// Process id.
    pub process: u32,
    /// Version of Serval.
    pub version: String,
    /// Number of processors that the process may use.
    pub processors: u64,
    /// Stores that the process was built with.
    pub stores: Vec<String>,
}

impl ClientFacts {
    /// Returns the client's name in messages: `host (process 4711)`.
    pub fn name(&self) -> String {
        format!("{} (process {})", self.host, self.process)
    }
}

/// A client's part of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The phase's number, from 0.
    pub phase: u64,
    /// Kind of work, a word that experiment and client agree on.
    pub kind: String,
    /// The store.
    pub store: String,
    /// All properties.
    pub properties: Vec<(String, String)>,
    /// Program to run, for phases that run one.
    pub command: Option<String>,
}

/// Messages of the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ToClient {
    /// The client is in the group.
    Welcome {
        /// Number of the client, from 0.
        client: u64,
        /// Longest silence of the coordinator, ms.
        timeout_ms: u64,
    },
    /// The client is not in the group.
    Refused {
        /// Reason.
        why: String,
    },
    /// Requests the time of the client's clock.
    Ask {
        /// Time of the request, ns of the coordinator's clock.
        asked: u64,
    },
    /// Work for a phase.
    Prepare {
        /// The client's part.
        work: Work,
    },
    /// Proposes a start.
    Propose {
        /// Number of the proposal.
        attempt: u32,
        /// The instant, ns of the client's clock.
        at: u64,
    },
    /// All clients have agreed.
    Confirm {
        /// Number of the proposal.
        attempt: u32,
    },
    /// Sets the start of the measured part: all clients are in steady state.
    Measure {
        /// The instant, ns of the client's clock.
        at: u64,
    },
    /// Asks the client to end the load and send its result.
    Stop {
        /// Whether at once; otherwise consumers may finish what is left.
        hurry: bool,
    },
    /// Heartbeat.
    Beat,
    /// The group is over.
    Farewell,
}

/// Messages of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ToCoordinator {
    /// First message of a connection.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The group's epoch.
        epoch: u64,
        /// Token from the coordinator's node.
        token: String,
        /// Facts about the client.
        facts: ClientFacts,
    },
    /// Answers a question about the clock.
    Answer {
        /// `asked` of the question.
        asked: u64,
        /// ns of the client's clock.
        answered: u64,
    },
    /// The client is ready for the phase.
    Entered,
    /// The client agrees to a start.
    Agreed {
        /// Number of the proposal.
        attempt: u32,
    },
    /// The client has started its threads.
    Began {
        /// ns of the client's clock.
        at: u64,
    },
    /// The confirmation arrived after the start.
    Late,
    /// The client's part is done; its result was sent before.
    Left,
    /// The client has failed.
    Failed {
        /// Reason.
        why: String,
    },
    /// Heartbeat.
    Beat,
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<M> {
    /// A message.
    Message(M),
    /// Measurements of an interval.
    Interval(Vec<u8>),
    /// Result of a phase.
    Result(Vec<u8>),
}

const MESSAGE: u8 = 0;
const INTERVAL: u8 = 1;
const RESULT: u8 = 2;

/// Writes a frame.
///
/// # Errors
///
/// Errors of the connection; `InvalidInput` for a frame above [`FRAME_MAX`].
pub async fn write<M: Serialize>(out: &mut (impl AsyncWrite + Unpin), frame: &Frame<M>) -> io::Result<()> {
    let json;
    let (kind, bytes) = match frame {
        Frame::Message(message) => {
            json = serde_json::to_vec(message)?;
            (MESSAGE, &json)
        }
        Frame::Interval(bytes) => (INTERVAL, bytes),
        Frame::Result(bytes) => (RESULT, bytes),
    };
    if bytes.len() > FRAME_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a report of {} bytes; {FRAME_MAX} can be sent", bytes.len()),
        ));
    }
    let mut head = [0; 5];
    head[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    head[4] = kind;
    out.write_all(&head).await?;
    out.write_all(bytes).await?;
    out.flush().await
}

/// Bytes between two calls of `heard` while a long frame arrives.
const PIECE: u64 = 1 << 20;

/// Reads a frame of `limit` bytes at most.
///
/// # Errors
///
/// Errors of the connection (its end is `UnexpectedEof`); `InvalidData` for bytes that are not a frame.
pub async fn read<M: for<'a> Deserialize<'a>>(
    from: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> io::Result<Frame<M>> {
    read_noting(from, limit, || {}).await
}

/// As [`read`], and calls `heard` after each mebibyte of an incomplete frame: a long frame may take
/// longer than its sender may be silent.
///
/// # Errors
///
/// As [`read`].
pub async fn read_noting<M: for<'a> Deserialize<'a>>(
    from: &mut (impl AsyncRead + Unpin),
    limit: usize,
    mut heard: impl FnMut(),
) -> io::Result<Frame<M>> {
    let mut head = [0; 5];
    from.read_exact(&mut head).await?;
    let [a, b, c, d, kind] = head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if length > limit || kind > RESULT {
        return Err(invalid("not a message of Serval's".to_owned()));
    }
    // Allocated as it arrives: an announced length alone costs no memory.
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let piece = PIECE.min((length - bytes.len()) as u64);
        if (&mut *from).take(piece).read_to_end(&mut bytes).await? < piece as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if bytes.len() < length {
            heard();
        }
    }
    match kind {
        MESSAGE => serde_json::from_slice(&bytes)
            .map(Frame::Message)
            .map_err(|error| invalid(format!("not a message of Serval's: {error}"))),
        INTERVAL => Ok(Frame::Interval(bytes)),
        _ => Ok(Frame::Result(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn now<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(future)
    }

    fn bytes(frame: &Frame<ToCoordinator>) -> Vec<u8> {
        let mut out = Vec::new();
        now(write(&mut out, frame)).unwrap();
        out
    }

    #[test]
    fn frames_survive_a_round_trip() {
        let frames = [
            Frame::Message(ToCoordinator::Answer { asked: u64::MAX, answered: 1 }),
            Frame::Interval(vec![1, 2, 3]),
            Frame::Result(Vec::new()),
        ];
        let all: Vec<u8> = frames.iter().flat_map(bytes).collect();
        let mut rest = &all[..];
        for frame in frames {
            assert_eq!(now(read::<ToCoordinator>(&mut rest, 1000)).unwrap(), frame);
        }
        assert_eq!(
            now(read::<ToCoordinator>(&mut rest, 1000)).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn each_piece_of_a_long_frame_counts_as_a_sign_of_life() {
        let frame = Frame::Result(vec![7; 3 * PIECE as usize + 1]);
        let (all, mut count) = (bytes(&frame), 0);
        assert_eq!(
            now(read_noting::<ToCoordinator>(&mut &all[..], FRAME_MAX, || count += 1)).unwrap(),
            frame
        );
        assert_eq!(count, 3);
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_its_body_is_read() {
        let all = bytes(&Frame::Result(vec![0; 1001]));
        assert_eq!(
            now(read::<ToCoordinator>(&mut &all[..], 1000)).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = now(read::<ToCoordinator>(&mut &bytes[..], HELLO_MAX));
        }

        #[test]
        fn a_truncated_message_is_refused(cut in 0usize..40) {
            let all = bytes(&Frame::Message(ToCoordinator::Agreed { attempt: 3 }));
            let cut = cut.min(all.len() - 1);
            prop_assert!(now(read::<ToCoordinator>(&mut &all[..cut], HELLO_MAX)).is_err());
        }
    }
}
