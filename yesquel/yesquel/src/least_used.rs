//! Choice of a group by what groups hold already.

use yesquel_model::ServerId;

/// Name of the map of a SQL database that holds its schema.
pub const SCHEMA_MAP: &str = "sql/schema";
/// Name of the map that holds the schema's meta values, and prefix of those of its copies.
pub const COOKIES_MAP: &str = "sql/cookies";

/// Whether a map holds a part of a schema. Such maps are small and seldom read, and do not count as
/// use of a group.
pub(crate) fn is_of_schema(map: &str) -> bool {
    map == SCHEMA_MAP || map.starts_with(COOKIES_MAP)
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
pub(crate) fn least<U: Ord>(
    groups: impl IntoIterator<Item = (ServerId, U)>,
    after: ServerId,
) -> Option<ServerId> {
    let distance = |group: ServerId| group.0.wrapping_sub(after.0).wrapping_sub(1);
    groups.into_iter().map(|(group, uses)| (uses, distance(group), group)).min().map(|(.., group)| group)
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
        let mut trees = Vec::new();
        for expected in [7, 0, 4, 7, 0, 4, 7] {
            assert_eq!(group_of_tree(&groups, trees.iter().copied()), Some(ServerId(expected)), "{trees:?}");
            trees.push(ServerId(expected));
        }
        // Trees at other groups do not count.
        assert_eq!(group_of_tree(&groups[..1], trees), Some(ServerId(4)));
    }
}
