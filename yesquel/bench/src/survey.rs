//! How the load of a server is spread over the leaves of the map, second by
//! second: what load splits are for (section 4.2).

use crate::{Result, target::Shared};
use std::{
    thread,
    time::{Duration, Instant},
};

const SECOND: Duration = Duration::from_secs(1);

/// Looks once a second, for so long.
pub(crate) fn run(target: &str, time: Duration) -> Result<serde_json::Value> {
    let Shared::Yesquel(database, map) = Shared::connect(target)? else {
        return Err("only Yesquel's servers tell of their nodes".into());
    };
    let (begun, mut seconds) = (Instant::now(), Vec::new());
    while begun.elapsed() + SECOND <= time {
        let due = SECOND * (seconds.len() as u32 + 1);
        thread::sleep(due.saturating_sub(begun.elapsed()));
        let nodes = database.store().nodes(map)?.nodes;
        // A node tells of the last whole second.
        let mut loads: Vec<u64> = nodes.iter().filter(|node| node.leaf).map(|node| node.load).collect();
        loads.sort_unstable_by_key(|load| std::cmp::Reverse(*load));
        seconds.push(loads);
    }
    Ok(serde_json::json!({ "seconds": seconds }))
}
