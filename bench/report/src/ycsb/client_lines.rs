//! Other lines that YCSB's client prints. Scripts look for them.

use crate::ycsb::{Options, java::map_order};
use serval_model::java::string_hash;
use std::{path::Path, time::Duration};

/// The version of YCSB whose text this is.
const VERSION: &str = "0.18.0-SNAPSHOT";

/// Text on standard error before the workload is created. `arguments` are those of YCSB's client.
pub fn loading<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let arguments: String = arguments.into_iter().map(|argument| format!(" {argument}")).collect();
    format!("Command line:{arguments}\nYCSB Client {VERSION}\n\nLoading workload...\n")
}

/// Text on standard error when clients start; `time` limits the run.
pub fn starting(options: &Options<'_>, time: Option<Duration>) -> String {
    let time = time.map_or_else(String::new, |time| {
        format!("Maximum execution time specified as: {} secs\n", time.as_secs_f64())
    });
    let mut tracked: Vec<&str> = Vec::new();
    if !options.report_each_error {
        for name in options.tracked_errors {
            if !tracked.contains(&name.as_str()) {
                tracked.push(name);
            }
        }
    }
    // A Java set, in the order of its hashes.
    let tracked = map_order(tracked, |name| string_hash(name)).join(", ");
    format!(
        "Starting test.\n{time}DBWrapper: report latency for each error is {} and specific error codes to track for latency \
         are: [{tracked}]\n",
        options.report_each_error
    )
}

/// Text on standard error after a run with a time limit; `by_time` if the limit ended it.
pub fn time_over(by_time: bool) -> &'static str {
    if by_time {
        "Maximum time elapsed. Requesting stop for the workload.\nStop requested for workload. Now Joining!\n"
    } else {
        "Could not wait until max specified time, TerminatorThread interrupted.\n"
    }
}

/// Text on standard error for an insert of a load that failed after all retries.
pub fn gave_up(retries: u64) -> String {
    format!(
        "Error inserting, not retrying any more. number of attempts: {}Insertion Retry Limit: {retries}\n",
        retries.saturating_add(1)
    )
}

/// Text on standard output if values are verified.
pub const DATA_INTEGRITY: &str = "Data integrity is enabled.\n";

/// Text on standard output if there are fewer operations than clients: YCSB reduces the number of
/// clients.
pub const FEWER_THREADS: &str =
    "Warning: the threadcount is bigger than recordcount, the threadcount will be recordcount!\n";

/// Text on standard output for each measurement of the raw kinds: the destination of its times.
pub fn raw_destination(file: Option<&Path>) -> String {
    match file {
        None => "Raw data measurement: will output to stdout.\n".to_owned(),
        Some(path) => {
            format!("Raw data measurement: will output to result file: {}\n", path.display())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_lines_are_ycsbs() {
        // Copied from YCSB 0.17.0, except for the version.
        assert_eq!(
            loading(["-db", "site.ycsb.BasicDB", "-P", "workload", "-s", "-load"]),
            "Command line: -db site.ycsb.BasicDB -P workload -s -load\nYCSB Client 0.18.0-SNAPSHOT\n\nLoading workload...\n"
        );
        let plain = Options::default();
        let wrapper = "DBWrapper: report latency for each error is false and specific error codes to track for latency are";
        assert_eq!(starting(&plain, None), format!("Starting test.\n{wrapper}: []\n"));
        let tracked = ["NOT_FOUND", "ERROR", "ERROR", "BAD_REQUEST"].map(str::to_owned);
        let options = Options { tracked_errors: &tracked, ..plain };
        assert_eq!(
            starting(&options, Some(Duration::from_secs(90))),
            format!(
                "Starting test.\nMaximum execution time specified as: 90 secs\n{wrapper}: [BAD_REQUEST, NOT_FOUND, ERROR]\n"
            )
        );
        let each = Options { report_each_error: true, ..options };
        assert!(
            starting(&each, None)
                .ends_with("error is true and specific error codes to track for latency are: []\n")
        );
    }
}
