//! Placement: the groups of a new database (SOSP'15, section 4.3).

use crate::{Error, Store, least_used::least};
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

    /// Returns the groups, each once, if the server knows all of them; its own for none.
    fn known(&self, groups: &[ServerId]) -> Result<Vec<ServerId>, Error> {
        let (known, mut chosen) = (self.groups()?, Vec::new());
        for group in groups {
            if !known.contains(group) {
                return Err(Error::NoGroup(group.0));
            }
            if !chosen.contains(group) {
                chosen.push(*group);
            }
        }
        if chosen.is_empty() {
            chosen.push(self.inner.server);
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
