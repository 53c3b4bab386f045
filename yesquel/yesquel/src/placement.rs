//! Placement: the group at which a new database is created (SOSP'15, section 4.3).

use crate::{Error, Store};
use std::str::FromStr;
use thiserror::Error;
use yesquel_model::ServerId;

/// Where a new database is created. Its maps are created at the same group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// At the group of the server that the client is connected to.
    #[default]
    Local,
    /// At the group with the fewest databases.
    Spread,
    /// At the group that uses the least memory.
    Load,
    /// At this group.
    Group(ServerId),
}

/// The text is no placement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{0}' is no placement: write local, spread, load, or the number of a group")]
pub struct PlacementError(String);

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Placement, PlacementError> {
        match text {
            "local" => Ok(Placement::Local),
            "spread" => Ok(Placement::Spread),
            "load" => Ok(Placement::Load),
            _ => match text.parse() {
                Ok(group) => Ok(Placement::Group(ServerId(group))),
                Err(_) => Err(PlacementError(text.to_owned())),
            },
        }
    }
}

/// Returns the group with the least use; of several, the first one that follows `after` in a circle,
/// so that not all clients choose the same one.
fn least<U: Ord>(groups: impl IntoIterator<Item = (ServerId, U)>, after: ServerId) -> Option<ServerId> {
    let distance = |group: ServerId| group.0.wrapping_sub(after.0).wrapping_sub(1);
    groups.into_iter().map(|(group, uses)| (uses, distance(group), group)).min().map(|(.., group)| group)
}

impl Store {
    /// Chooses the group of a new database.
    pub(crate) fn place(&self, placement: Placement) -> Result<ServerId, Error> {
        let own = self.inner.server;
        let chosen = match placement {
            Placement::Local => Some(own),
            Placement::Group(group) => {
                let is_known = self.groups()?.contains(&group);
                return if is_known { Ok(group) } else { Err(Error::NoGroup(group.0)) };
            }
            Placement::Spread => {
                let counts = self.databases_by_group()?;
                let count = |group: &ServerId| counts.get(group).copied().unwrap_or_default();
                least(self.groups()?.into_iter().map(|group| (group, count(&group))), own)
            }
            Placement::Load => {
                // A group that does not answer takes no new database either.
                let used = |group| Some((group, self.status_of(group).ok()?.memory.bytes));
                least(self.groups()?.into_iter().filter_map(used), own)
            }
        };
        Ok(chosen.unwrap_or(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_used_group_is_chosen_and_equal_ones_in_turn() {
        let among = |uses: &[(u16, u64)], after| {
            least(uses.iter().map(|(group, uses)| (ServerId(*group), *uses)), ServerId(after))
                .map(|group| group.0)
        };
        assert_eq!(among(&[(0, 3), (1, 1), (2, 2)], 0), Some(1));
        for (after, chosen) in [(0, 1), (1, 2), (2, 0), (7, 0), (u16::MAX, 0)] {
            assert_eq!(among(&[(0, 1), (1, 1), (2, 1)], after), Some(chosen), "after {after}");
        }
        assert_eq!(among(&[], 0), None);
    }

    #[test]
    fn placements_have_names() {
        assert_eq!("spread".parse(), Ok(Placement::Spread));
        assert_eq!("17".parse(), Ok(Placement::Group(ServerId(17))));
        for wrong in ["", "Load", "-1", "65536"] {
            assert!(wrong.parse::<Placement>().is_err(), "{wrong}");
        }
    }
}
