//! Limits and their reasons. `docs/limits.md` lists them for users.

/// Bytes of a key. SQL's index keys hold whole strings, and an index over longer strings is not
/// sensible.
pub const KEY_BYTES_MAX: usize = 1 << 20;

/// Bytes of a bound of a key range: the successor of the longest key.
pub const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// Bytes of a value inside a cell. The tree stores a longer value in pieces of this size.
pub const CELL_VALUE_BYTES_MAX: usize = 32 << 10;

/// Bytes of a value in a tree: more than SQLite's 10^9.
pub const VALUE_BYTES_MAX: u64 = 1 << 30;

/// Longest time of a lease without renewal, so that a client that died blocks others for no longer.
pub const LEASE_MS_MAX: u64 = 60_000;

/// Leases of a server.
pub const LEASES_MAX: usize = 4096;

/// How far a timestamp from another machine may be ahead of the clock. Clocks with NTP differ by
/// milliseconds, and a clock that is years ahead must not drag the others along.
pub const CLOCK_AHEAD_MS_MAX: u64 = 500;
/// Distance ahead of physical time, in milliseconds, up to which a request is held until its
/// timestamp is within [`CLOCK_AHEAD_MS_MAX`]; beyond it is refused.
pub const CLOCK_HELD_MS_MAX: u64 = 1_000;
