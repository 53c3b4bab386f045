//! Limits, each with its reason. `docs/limits.md` lists them for users.

/// Bytes of a key. SQL's index keys hold whole strings; one that is longer
/// than this is no sensible index.
pub const KEY_BYTES_MAX: usize = 1 << 20;

/// Bytes of an end of a range of keys: what follows the longest key.
pub const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// Bytes of a value that a cell holds itself; the tree keeps a longer one in
/// pieces of this size.
pub const CELL_VALUE_BYTES_MAX: usize = 32 << 10;

/// Bytes of a value in a tree: more than SQLite's 10^9.
pub const VALUE_BYTES_MAX: u64 = 1 << 30;

/// How long a lease lasts unless it is taken again. Whoever died while he held
/// one is in nobody's way for longer.
pub const LEASE_MS_MAX: u64 = 60_000;

/// Leases that a server keeps.
pub const LEASES_MAX: usize = 4096;

/// How far a stamp from elsewhere may be ahead of a clock. Clocks kept by NTP
/// differ by milliseconds; one that is years ahead must not drag the others.
pub const CLOCK_AHEAD_MS_MAX: u64 = 500;
