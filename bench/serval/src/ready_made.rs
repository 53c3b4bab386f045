//! The ready-made workload files of the folder `workloads`, for an installed program that has no clone
//! beside it.

/// A ready-made workload file.
pub(crate) struct ReadyMade {
    pub(crate) name: &'static str,
    /// One line.
    pub(crate) summary: &'static str,
    /// The file.
    pub(crate) text: &'static str,
}

macro_rules! file {
    ($name:literal, $summary:literal) => {
        ReadyMade {
            name: $name,
            summary: $summary,
            text: include_str!(concat!("../../../workloads/", $name)),
        }
    };
}

pub(crate) const READY_MADE: [ReadyMade; 7] = [
    file!("workloada", "update heavy: half reads, half updates, zipfian"),
    file!("workloadb", "read mostly: 95 % reads, 5 % updates, zipfian"),
    file!("workloadc", "read only, zipfian"),
    file!("workloadd", "read latest: 95 % reads of new records, 5 % inserts"),
    file!("workloade", "short ranges: 95 % scans, 5 % inserts, zipfian"),
    file!("workloadf", "read-modify-write: half reads, half read-modify-writes, zipfian"),
    file!("tsworkloada", "time series: 90 % inserts, 10 % reads"),
];

/// The file of a name, or of its path in a clone.
pub(crate) fn find(name: &str) -> Option<&'static ReadyMade> {
    let name = name.strip_prefix("workloads/").unwrap_or(name);
    READY_MADE.iter().find(|file| file.name == name)
}
