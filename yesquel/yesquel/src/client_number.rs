//! Numbers of clients.

/// Returns a unique client number.
pub(crate) fn client_number() -> u64 {
    let mut bytes = [0; 8];
    // The kernel fails only before its random generator is ready, at boot. Any number is better
    // then than zero, which means no client.
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    // The highest bit marks lanes, which are additional connections of a client.
    let number = u64::from_le_bytes(bytes) & !yesquel_wire::greeting::LANE;
    if filled == Ok(8) && number != 0 { number } else { u64::from(std::process::id()) << 32 | 1 }
}
