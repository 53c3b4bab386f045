//! The kernel's table of TCP sockets, by the `sock_diag` interface of netlink.

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_TCP},
    inet::{ExtensionFlags, InetRequest, SocketId, StateFlags, nlas::Nla},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};
use std::{collections::HashMap, io};

/// Traffic of a connection since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketBytes {
    /// Identifies the socket uniquely; inodes are reused.
    pub cookie: u64,
    /// Bytes sent and acknowledged by the peer.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

/// Sockets by inode, as in `/proc/PID/fd`.
pub type Sockets = HashMap<u32, SocketBytes>;

/// Buffer size of one reply; the kernel fills at most 32 KiB at a time.
const ANSWER_MAX: usize = 64 << 10;

/// Offsets of `tcpi_bytes_acked` and `tcpi_bytes_received` in `tcp_info`, since Linux 4.1; later
/// kernels only append fields.
const ACKED_AT: usize = 120;
const RECEIVED_AT: usize = 128;

fn number(info: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(info.get(at..at + 8)?.try_into().ok()?))
}

fn request(family: u8, socket_id: SocketId) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    // A listening socket has no traffic, and a socket in TIME_WAIT belongs to no process.
    let states = StateFlags::all() - StateFlags::LISTEN - StateFlags::TIME_WAIT;
    let request =
        InetRequest { family, protocol: IPPROTO_TCP, extensions: ExtensionFlags::INFO, states, socket_id };
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Parses the sockets of one reply. Returns whether it was the last.
fn take(mut bytes: &[u8], sockets: &mut Sockets) -> io::Result<bool> {
    let odd = |error| io::Error::new(io::ErrorKind::InvalidData, format!("sock_diag: {error}"));
    while !bytes.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(bytes).map_err(odd)?;
        match message.payload {
            NetlinkPayload::Done(done) if done.code < 0 => {
                return Err(io::Error::from_raw_os_error(done.code.saturating_neg()));
            }
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                let info = response.nlas.iter().find_map(|nla| match nla {
                    Nla::TcpInfo(info) => Some(info),
                    _ => None,
                });
                let counts =
                    info.and_then(|info| Some((number(info, ACKED_AT)?, number(info, RECEIVED_AT)?)));
                if let Some((sent, received)) = counts {
                    let cookie = u64::from_ne_bytes(response.header.socket_id.cookie);
                    sockets.insert(response.header.inode, SocketBytes { cookie, sent, received });
                }
            }
            _ => (),
        }
        // Messages are padded to four bytes.
        let length = (message.header.length as usize).next_multiple_of(4);
        if length == 0 {
            break;
        }
        bytes = bytes.get(length..).unwrap_or_default();
    }
    Ok(false)
}

/// All TCP sockets of this network namespace, IPv4 and IPv6.
pub(crate) fn sockets() -> io::Result<Sockets> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut sockets = Sockets::new();
    let mut answer = Vec::with_capacity(ANSWER_MAX);
    for (family, any) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
        socket.send(&request(family, any), 0)?;
        loop {
            answer.clear();
            let length = socket.recv(&mut answer, 0)?;
            if length == 0 || take(&answer, &mut sockets)? {
                break;
            }
        }
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_answers_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0u16..30) {
            let _ = take(&bytes, &mut Sockets::new());
            // As in a message of sock_diag, which contains its true length.
            if bytes.len() >= 16 {
                let length = bytes.len() as u32;
                bytes[..4].copy_from_slice(&length.to_ne_bytes());
                bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
                let _ = take(&bytes, &mut Sockets::new());
            }
        }
    }
}
