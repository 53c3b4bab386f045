//! Cost of a report of a long experiment: `serval report DIR --html FILE`.

use std::fs;
use std::process::Command;

use super::BenchContext;
use super::measure::{self, MedianRange, ResultTable};
use crate::Result;

/// Pages of an experiment of an hour and of a run of an hour, from stored results that an example
/// of the report's crate generates.
pub(super) fn report(bench: &BenchContext) -> Result<()> {
    let serval = bench.serval()?;
    let place = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let mut make = crate::cargo();
    make.args([
        "run",
        "--release",
        "--quiet",
        "--package",
        "serval-report",
        "--example",
        "stored_hour",
        "--",
    ]);
    bench.children.check(make.arg(place.path()))?;
    let mut table = ResultTable::new([
        "an hour in seconds, two operations",
        "s",
        "MB of page",
        "MiB of memory",
        "wanted",
    ]);
    for (folder, name, wanted) in [
        ("sweep", "2 stores, 8 points, 3 repeats of 75 s", "under 2 s, 3 MB"),
        ("run", "one run of 3,600 s", ""),
    ] {
        let (mut seconds, mut size, mut memory) = (Vec::new(), 0, 0);
        for pair in 0..bench.pairs {
            let page = place.path().join(format!("{folder}-{pair}.html"));
            let mut command = Command::new(&serval);
            command.arg("report").arg(place.path().join(folder)).arg("--html").arg(&page);
            let measured = measure::run(bench.children, &mut command)?;
            seconds.push(measured.wall_seconds);
            memory = memory.max(measured.memory_bytes_max);
            size = fs::metadata(&page).map_err(|error| format!("{}: {error}", page.display()))?.len();
        }
        let spread = MedianRange::of(&seconds).ok_or("nothing measured")?;
        table.row([
            name.to_owned(),
            format!("{spread:.2}"),
            format!("{:.2}", size as f64 / 1e6),
            format!("{:.0}", memory as f64 / f64::from(1 << 20)),
            wanted.to_owned(),
        ]);
    }
    print!("{table}");
    Ok(())
}
