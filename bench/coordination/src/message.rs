//! What coordinator and clients say to each other, and its bytes: a frame is
//! its length (u32, little endian), a byte for its kind, and that many bytes: JSON, or a
//! report whose content is the concern of whoever made it.

use serde::{Deserialize, Serialize};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Version of the messages. Coordinator and clients must be of the same.
pub const PROTOCOL: u32 = 1;

/// Largest frame, bytes. A result with all its histograms has a few MB at most.
pub const FRAME_MAX: usize = 256 << 20;

/// Largest first frame of a connection, from somebody who may be anybody.
pub const HELLO_MAX: usize = 64 << 10;

/// What a client says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientFacts {
    /// Its host's name.
    pub host: String,
    /// Its process id.
    pub process: u32,
    /// Serval's version.
    pub version: String,
    /// Processors that it may use.
    pub processors: u64,
    /// Stores that it was built with.
    pub stores: Vec<String>,
}

impl ClientFacts {
    /// What people call it: `host (process 4711)`.
    pub fn name(&self) -> String {
        format!("{} (process {})", self.host, self.process)
    }
}

/// A client's part of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The phase's number, from 0.
    pub phase: u64,
    /// What is to be done, in words that experiment and client agree on.
    pub kind: String,
    /// The store.
    pub store: String,
    /// All properties.
    pub properties: Vec<(String, String)>,
    /// A program to be run, for phases that are one.
    pub command: Option<String>,
}

/// From the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ToClient {
    /// It belongs to the group.
    Welcome {
        /// Its number, from 0.
        client: u64,
        /// How long the coordinator may be silent, ms.
        timeout_ms: u64,
    },
    /// It does not.
    Refused {
        /// Why.
        why: String,
    },
    /// What does your clock say?
    Ask {
        /// When it was asked, ns by the coordinator's clock.
        asked: u64,
    },
    /// There is work.
    Prepare {
        /// The part of it.
        work: Work,
    },
    /// Can you begin then?
    Propose {
        /// Number of the proposal.
        attempt: u32,
        /// The instant, ns by the client's clock.
        at: u64,
    },
    /// All have agreed.
    Confirm {
        /// Number of the proposal.
        attempt: u32,
    },
    /// The measured part begins then, for all were found steady.
    Measure {
        /// The instant, ns by the client's clock.
        at: u64,
    },
    /// End the load, and hand over what it saw.
    Stop {
        /// Whether at once: consumers may else finish what is left.
        hurry: bool,
    },
    /// I am there.
    Beat,
    /// The group is over.
    Farewell,
}

/// From a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ToCoordinator {
    /// The first words.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The group's epoch.
        epoch: u64,
        /// What stands in the coordinator's node.
        token: String,
        /// Who it is.
        facts: ClientFacts,
    },
    /// My clock says so.
    Answer {
        /// As it was asked.
        asked: u64,
        /// ns by the client's clock.
        answered: u64,
    },
    /// I am ready for the phase.
    Entered,
    /// I can begin then.
    Agreed {
        /// Number of the proposal.
        attempt: u32,
    },
    /// My threads were let go.
    Began {
        /// ns by the client's clock.
        at: u64,
    },
    /// It was confirmed too late for me.
    Late,
    /// My part is done; what it saw came before this.
    Left,
    /// I cannot do it.
    Failed {
        /// Why.
        why: String,
    },
    /// I am there.
    Beat,
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<M> {
    /// A message.
    Message(M),
    /// What an interval saw.
    Interval(Vec<u8>),
    /// What a phase saw.
    Result(Vec<u8>),
}

const MESSAGE: u8 = 0;
const INTERVAL: u8 = 1;
const RESULT: u8 = 2;

/// Writes a frame.
///
/// # Errors
///
/// Those of the connection; a frame above [`FRAME_MAX`].
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

/// Bytes of a frame after which it is told that so much of it has come.
const PIECE: u64 = 1 << 20;

/// Reads a frame of `limit` bytes at most.
///
/// # Errors
///
/// Those of the connection (its end is `UnexpectedEof`); `InvalidData` for what is no frame.
pub async fn read<M: for<'a> Deserialize<'a>>(
    from: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> io::Result<Frame<M>> {
    read_noting(from, limit, || {}).await
}

/// The same; `heard` is called whenever another mebibyte has come and there is more: a long frame may take longer than
/// whoever sends it may be silent.
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
    let nonsense = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if length > limit || kind > RESULT {
        return Err(nonsense("what came is no message of Serval's".to_owned()));
    }
    // As it comes, so that who announces much and sends nothing costs nothing.
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
            .map_err(|error| nonsense(format!("a message that is none: {error}"))),
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
    fn frames_come_back_as_they_were() {
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
    fn of_a_long_frame_each_piece_is_heard() {
        let frame = Frame::Result(vec![7; 3 * PIECE as usize + 1]);
        let (all, mut count) = (bytes(&frame), 0);
        assert_eq!(
            now(read_noting::<ToCoordinator>(&mut &all[..], FRAME_MAX, || count += 1)).unwrap(),
            frame
        );
        assert_eq!(count, 3);
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_it_is_read() {
        let all = bytes(&Frame::Result(vec![0; 1001]));
        assert_eq!(
            now(read::<ToCoordinator>(&mut &all[..], 1000)).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = now(read::<ToCoordinator>(&mut &bytes[..], HELLO_MAX));
        }

        #[test]
        fn a_message_that_is_cut_is_no_message(cut in 0usize..40) {
            let all = bytes(&Frame::Message(ToCoordinator::Agreed { attempt: 3 }));
            let cut = cut.min(all.len() - 1);
            prop_assert!(now(read::<ToCoordinator>(&mut &all[..cut], HELLO_MAX)).is_err());
        }
    }
}
