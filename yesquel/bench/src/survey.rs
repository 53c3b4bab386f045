//! Distribution of a server's load over the leaves of the map, second by second, which load splits
//! should balance (section 4.2).

use crate::{Result, target::ThreadConnections};
use std::{
    thread,
    time::{Duration, Instant},
};

const SECOND: Duration = Duration::from_secs(1);

/// Samples the load once a second for `time`.
pub(crate) fn run(target: &str, time: Duration) -> Result<serde_json::Value> {
    let ThreadConnections::Yesquel(database, map) = ThreadConnections::connect(target)? else {
        return Err("only Yesquel's servers tell of their nodes".into());
    };
    let (begun, mut seconds) = (Instant::now(), Vec::new());
    while begun.elapsed() + SECOND <= time {
        let due = SECOND * (seconds.len() as u32 + 1);
        thread::sleep(due.saturating_sub(begun.elapsed()));
        let nodes = database.store().nodes(map)?.nodes;
        // A node reports the last whole second.
        let mut loads: Vec<u64> = nodes.iter().filter(|node| node.leaf).map(|node| node.load).collect();
        loads.sort_unstable_by_key(|load| std::cmp::Reverse(*load));
        seconds.push(loads);
    }
    Ok(serde_json::json!({ "seconds": seconds }))
}
