//! What the kernel has not sent yet, or the peer's kernel has not acknowledged.

#![allow(unsafe_code, reason = "the system call has no safe form")]

use rustix::ioctl::{Getter, Opcode, ioctl};
use std::{io, os::fd::BorrowedFd};

/// `SIOCOUTQ`, of Linux on the machines that share its generic numbers.
const SIOCOUTQ: Opcode = 0x5411;

/// Bytes in the send queue of a TCP socket.
pub(super) fn bytes(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the system call writes one int and nothing else.
    let bytes: i32 = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new()) }?;
    Ok(u32::try_from(bytes).unwrap_or_default())
}
