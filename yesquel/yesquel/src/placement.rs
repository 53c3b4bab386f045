//! Placement: the groups of a new database, and of a new tree in a database with several groups
//! (SOSP'15, section 4.3).

use crate::{Error, Store};
use std::{collections::BTreeSet, str::FromStr};
use thiserror::Error;
use yesquel_model::ServerId;

/// Where a new database is created. Its maps are created at the same group, unless it has several
/// groups, over which they are distributed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
    /// At all groups of the cluster. The first one is that of the server that the client is
    /// connected to.
    Tables,
    /// At these groups.
    Groups(Vec<ServerId>),
}

/// The text is no placement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "'{0}' is no placement: write local, spread, load, tables, or the numbers of groups, like 2 or 0,2,5"
)]
pub struct PlacementError(String);

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Placement, PlacementError> {
        match text {
            "local" => Ok(Placement::Local),
            "spread" => Ok(Placement::Spread),
            "load" => Ok(Placement::Load),
            "tables" => Ok(Placement::Tables),
            _ => {
                let groups: Option<Vec<ServerId>> =
                    text.split(',').map(|group| group.parse().ok().map(ServerId)).collect();
                let groups = groups.filter(|groups| has_no_duplicates(groups));
                match groups.as_deref() {
                    Some([group]) => Ok(Placement::Group(*group)),
                    Some(groups) => Ok(Placement::Groups(groups.to_vec())),
                    None => Err(PlacementError(text.to_owned())),
                }
            }
        }
    }
}

fn has_no_duplicates(groups: &[ServerId]) -> bool {
    groups.iter().collect::<BTreeSet<_>>().len() == groups.len()
}

/// Chooses the group of a new tree in a database with these groups, given the groups of its other
/// trees: the one with the fewest, so that the tables of a database are distributed however many
/// processes create them. Of several, the first after the database's first group, which has its
/// schema.
pub(crate) fn group_of_tree(
    groups: &[ServerId],
    trees: impl IntoIterator<Item = ServerId>,
) -> Option<ServerId> {
    let mut uses: Vec<(ServerId, usize)> = groups.iter().map(|group| (*group, 0)).collect();
    for at in trees {
        uses.iter_mut().filter(|(group, _)| *group == at).for_each(|(_, count)| *count += 1);
    }
    least(uses, *groups.first()?)
}

/// Returns the group with the least use; of several, the first one that follows `after` in a circle,
/// so that not all clients choose the same one.
fn least<U: Ord>(groups: impl IntoIterator<Item = (ServerId, U)>, after: ServerId) -> Option<ServerId> {
    let distance = |group: ServerId| group.0.wrapping_sub(after.0).wrapping_sub(1);
    groups.into_iter().map(|(group, uses)| (uses, distance(group), group)).min().map(|(.., group)| group)
}

impl Store {
    /// Chooses the groups of a new database. The first one has its schema.
    pub(crate) fn place(&self, placement: &Placement) -> Result<Vec<ServerId>, Error> {
        let own = self.inner.server;
        let chosen = match placement {
            Placement::Local => Some(own),
            Placement::Group(group) => return self.known(std::slice::from_ref(group)),
            Placement::Groups(groups) => return self.known(groups),
            Placement::Tables => {
                let mut groups = self.groups()?;
                groups.retain(|group| *group != own);
                groups.sort();
                groups.insert(0, own);
                return Ok(groups);
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
        Ok(vec![chosen.unwrap_or(own)])
    }

    /// Returns the groups if the server knows all of them.
    fn known(&self, groups: &[ServerId]) -> Result<Vec<ServerId>, Error> {
        let known = self.groups()?;
        match groups.iter().find(|group| !known.contains(group)) {
            Some(group) => Err(Error::NoGroup(group.0)),
            None => Ok(groups.to_vec()),
        }
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
    fn a_tree_goes_to_the_group_with_the_fewest_trees() {
        let groups = [4, 0, 7].map(ServerId);
        let mut trees = vec![ServerId(4)];
        for expected in [7, 0, 7, 0, 4, 7, 0] {
            assert_eq!(group_of_tree(&groups, trees.iter().copied()), Some(ServerId(expected)), "{trees:?}");
            trees.push(ServerId(expected));
        }
        // Trees at other groups do not count.
        assert_eq!(group_of_tree(&groups[..1], trees), Some(ServerId(4)));
    }

    #[test]
    fn placements_have_names() {
        assert_eq!("spread".parse(), Ok(Placement::Spread));
        assert_eq!("tables".parse(), Ok(Placement::Tables));
        assert_eq!("17".parse(), Ok(Placement::Group(ServerId(17))));
        assert_eq!("5,0".parse(), Ok(Placement::Groups([5, 0].map(ServerId).to_vec())));
        for wrong in ["", "Load", "-1", "65536", "1,", "1,1", "1, 2"] {
            assert!(wrong.parse::<Placement>().is_err(), "{wrong}");
        }
    }
}
