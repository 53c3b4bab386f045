//! What the clients of a round do: transactions of maps, or of SQL at one of four levels.

use std::fmt;
use yesquel_histories::ConsistencyModel;

/// Number of rounds after which each load was there: maps at one level, and SQL at one.
pub(crate) const LOADS: u64 = 2;

/// Options of the connections of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SqlLevel {
    /// `isolation=serializable`
    pub(crate) is_serializable: bool,
    /// `consistency=strict`
    pub(crate) is_strict: bool,
}

/// What the clients of a round do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundLoad {
    /// Transactions over maps, of one map a group.
    Maps { is_serializable: bool },
    /// Transactions of SQL over the tables of one database.
    Sql(SqlLevel),
}

impl RoundLoad {
    /// Returns the load of a round, counted from one. Maps and SQL take turns. The level of the first
    /// round of SQL follows from the seed, and four such rounds have all levels.
    pub(crate) fn of(seed: u64, round: u64) -> RoundLoad {
        let turn = round.saturating_sub(1) / LOADS;
        if !round.is_multiple_of(LOADS) {
            return RoundLoad::Maps { is_serializable: !turn.is_multiple_of(2) };
        }
        let level = seed.wrapping_add(turn) % 4;
        RoundLoad::Sql(SqlLevel { is_serializable: level / 2 == 1, is_strict: level % 2 == 1 })
    }

    /// Returns what the history of the round must satisfy.
    pub(crate) fn model(self) -> ConsistencyModel {
        let level = match self {
            RoundLoad::Maps { is_serializable } => SqlLevel { is_serializable, is_strict: false },
            RoundLoad::Sql(level) => level,
        };
        match (level.is_serializable, level.is_strict) {
            (false, false) => ConsistencyModel::StrongSessionSnapshotIsolation,
            (false, true) => ConsistencyModel::StrongSnapshotIsolation,
            (true, false) => ConsistencyModel::StrongSessionSerializable,
            (true, true) => ConsistencyModel::StrictSerializable,
        }
    }
}

impl fmt::Display for RoundLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            RoundLoad::Maps { .. } => "maps",
            RoundLoad::Sql(_) => "SQL",
        };
        write!(f, "{kind}, {}", self.model().name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_rounds_have_all_levels_of_both_loads() {
        for seed in [0, 7, u64::MAX] {
            let loads: Vec<RoundLoad> = (1..=8).map(|round| RoundLoad::of(seed, round)).collect();
            let is_of_sql = |load: &&RoundLoad| matches!(load, RoundLoad::Sql(_));
            let mut levels: Vec<_> = loads.iter().filter(is_of_sql).map(|load| load.model().name()).collect();
            levels.sort_unstable();
            levels.dedup();
            assert_eq!(levels.len(), 4, "{loads:?}");
            for is_serializable in [false, true] {
                assert!(loads.contains(&RoundLoad::Maps { is_serializable }));
            }
        }
    }
}
