//! Identity of a cluster and of its groups.

use crate::ServerId;
use std::{fmt, str::FromStr};

/// UUID of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ClusterId(pub [u8; 16]);

impl ClusterId {
    /// Makes a random UUID (version 4) of random bytes.
    pub const fn from_random(mut bytes: [u8; 16]) -> ClusterId {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        ClusterId(bytes)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// The cluster of a machine, and where the cluster's directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ClusterMembership {
    /// The cluster.
    pub cluster: ClusterId,
    /// The group that holds the directory and the counters of the cluster.
    pub home_group: ServerId,
}

/// Version of a group's configuration, which grows with each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupEpoch {
    /// Rises when the group is recovered from fewer replicas than a majority.
    pub era: u32,
    /// Index of the log record that made the configuration.
    pub index: u64,
}

impl GroupEpoch {
    /// Below the epoch of each group: the sender of a request knows none.
    pub const UNKNOWN: GroupEpoch = GroupEpoch { era: 0, index: 0 };
    /// Epoch of a new group.
    pub const FIRST: GroupEpoch = GroupEpoch { era: 0, index: 1 };
}

impl fmt::Display for GroupEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.era, self.index)
    }
}

/// Error of a text that is no UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no UUID, such as 01234567-89ab-4cde-8f01-23456789abcd")]
pub struct NoUuid;

impl FromStr for ClusterId {
    type Err = NoUuid;

    fn from_str(text: &str) -> Result<ClusterId, NoUuid> {
        let has_dashes = text.char_indices().all(|(at, c)| (c == '-') == [8, 13, 18, 23].contains(&at));
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let is_hex = digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        if !has_dashes || !is_hex || digits.len() != 32 {
            return Err(NoUuid);
        }
        u128::from_str_radix(&digits, 16).map(|bits| ClusterId(bits.to_be_bytes())).map_err(|_| NoUuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_one_text() {
        let id = ClusterId::from_random([0xff; 16]);
        assert_eq!(id.to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(id.to_string().parse(), Ok(id));
        let zero = ClusterId::default();
        assert_eq!(zero.to_string().parse(), Ok(zero));
        for text in [
            "",
            "ffffffffffff4fffbfffffffffffffff",
            "FFFFFFFF-ffff-4fff-bfff-ffffffffffff",
            "ffffffff-ffff-4fff-bfff-fffffffffff",
            "ffffffff-ffff-4fff-bfff-fffffffffffff",
            "+fffffff-ffff-4fff-bfff-ffffffffffff",
            "\u{e4}fffffff-ffff-4fff-bfff-ffffffffffff",
        ] {
            assert_eq!(text.parse::<ClusterId>(), Err(NoUuid), "{text}");
        }
    }
}
