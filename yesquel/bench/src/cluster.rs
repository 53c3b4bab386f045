//! Databases of the loads, which have all groups of the cluster.

use crate::Result;
use yesquel::{Address, Database, Map, Placement, ServerId, SocketOptions, Store, status::RequestStatus};

/// Name of the database and of its map.
const NAME: &str = "bench";

/// Parses addresses separated by commas.
pub(crate) fn addresses(text: &str) -> Result<Vec<Address>> {
    Ok(text.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?)
}

/// Connects to one of these servers, separated by commas.
pub(crate) fn connect(text: &str) -> Result<Store> {
    Ok(Store::connect_any(&addresses(text)?, SocketOptions::default())?)
}

/// Returns the database of the loads and its map, created if they do not exist.
pub(crate) fn database(store: &Store) -> Result<(Database, Map)> {
    let database = store.database_or_create_at(NAME, &Placement::Tables)?;
    let map = database.map(NAME)?;
    Ok((database, map))
}

/// Returns the groups of the cluster.
pub(crate) fn groups(store: &Store) -> Result<Vec<ServerId>> {
    Ok(store.directory()?.groups.iter().map(|group| ServerId(group.group)).collect())
}

/// Returns the request counts of all groups so far.
pub(crate) fn requests(store: &Store) -> Result<RequestStatus> {
    let mut sum = RequestStatus::default();
    for group in groups(store)? {
        let of = store.status_of(group)?.requests;
        sum = RequestStatus {
            reads: sum.reads + of.reads,
            questions: sum.questions + of.questions,
            commits: sum.commits + of.commits,
            prepares: sum.prepares + of.prepares,
            conflicts: sum.conflicts + of.conflicts,
            moved: sum.moved + of.moved,
            waits: sum.waits + of.waits,
            recoveries: sum.recoveries + of.recoveries,
            wrong_group: sum.wrong_group + of.wrong_group,
        };
    }
    Ok(sum)
}
