//! Shared by benchmarks: measuring a command, comparing two sides, tables.
//!
//! # Comparing two sides
//!
//! A machine drifts: its temperature, clock rate and other load change. Sides measured one after
//! the other would be measured on different machines. So measurements alternate, A B A B, and are
//! compared in pairs, since the ratio of a pair contains little drift. With `a_i` and `b_i` the
//! measurements of pair `i` (in the same unit), the result is the median of `a_i / b_i`. One
//! disturbed pair changes it little.
//!
//! Example: A = 10, 11, 12 and B = 5, 5.5, 10 (the last disturbed by other load). The ratios are 2,
//! 2, 1.2, their median 2. The ratio of the medians, 11 / 5.5, is 2 as well, but the ratio of the
//! means, 11 / 6.83 = 1.61, is not.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use crate::Result;
use crate::children::{Children, line};

/// Output and cost of a command.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
    /// Time from its start to its end.
    pub(crate) wall_seconds: f64,
    /// User CPU time of all its threads, and of the children that it waited for.
    pub(crate) user_seconds: f64,
    /// System CPU time, likewise.
    pub(crate) system_seconds: f64,
    /// Peak resident memory.
    pub(crate) memory_bytes_max: u64,
}

impl Measured {
    /// Returns the user and system CPU time, s.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}

/// Runs a command to its end and measures it. The error of a failed command contains its standard
/// error.
pub(crate) fn run(children: &Children, command: &mut Command) -> Result<Measured> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut running = children.start(command)?;
    let (stdout, stderr) = match running.child() {
        Some(child) => (child.stdout.take(), child.stderr.take()),
        None => (None, None),
    };
    // Read both pipes at the same time: a child blocks when one of them is full.
    let stderr = thread::spawn(move || read_all(stderr));
    let stdout = read_all(stdout);
    running.wait_for_end()?;
    let wall_seconds = started.elapsed().as_secs_f64();
    let used = running.wait()?;
    let stderr = stderr.join().map_err(|_panic| "the reader of standard error panicked".to_owned())?;
    let unreadable = |error: io::Error| format!("the output of `{}`: {error}", line(command));
    let (stdout, stderr) = (stdout.map_err(unreadable)?, stderr.map_err(unreadable)?);
    if !used.status.success() {
        return Err(format!("`{}` failed: {}\n{}", line(command), used.status, stderr.trim_end()));
    }
    Ok(Measured {
        stdout,
        stderr,
        wall_seconds,
        user_seconds: used.rusage.utime.as_secs_f64(),
        system_seconds: used.rusage.stime.as_secs_f64(),
        memory_bytes_max: used.rusage.maxrss,
    })
}

fn read_all(pipe: Option<impl Read>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Median, minimum and maximum of some measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MedianRange {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl MedianRange {
    /// Returns `None` if there are no values. With an even number, the median is the mean of the
    /// two middle values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let median =
            if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper };
        Some(Self { median, min: *sorted.first()?, max: *sorted.last()? })
    }
}

/// Writes `median (min to max)`, with the decimals of the format.
impl fmt::Display for MedianRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = f.precision().unwrap_or(3);
        let Self { median, min, max } = self;
        write!(f, "{median:.decimals$} ({min:.decimals$} to {max:.decimals$})")
    }
}

/// Measurements of two sides, pair by pair.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PairedMeasurements {
    /// At least one pair; all values are positive.
    pairs: Vec<(f64, f64)>,
}

impl PairedMeasurements {
    /// Returns the measurements of the first side.
    pub(crate) fn a(&self) -> MedianRange {
        self.spread(|(a, _)| a)
    }

    /// Returns the measurements of the second side.
    pub(crate) fn b(&self) -> MedianRange {
        self.spread(|(_, b)| b)
    }

    /// Returns the ratio of each pair, first side over second.
    pub(crate) fn ratio(&self) -> MedianRange {
        self.spread(|(a, b)| a / b)
    }

    fn spread(&self, value: impl Fn((f64, f64)) -> f64) -> MedianRange {
        let values: Vec<f64> = self.pairs.iter().copied().map(value).collect();
        MedianRange::of(&values).unwrap_or(MedianRange { median: f64::NAN, min: f64::NAN, max: f64::NAN })
    }
}

/// Measures two sides alternately, A B A B, after a discarded pair that fills caches. A measurement
/// that is not positive is an error, since it has no ratio.
pub(crate) fn alternate(
    pairs: u32,
    mut a: impl FnMut() -> Result<f64>,
    mut b: impl FnMut() -> Result<f64>,
) -> Result<PairedMeasurements> {
    if pairs == 0 {
        return Err("no pairs to measure".to_owned());
    }
    let mut measured = Vec::new();
    for pair in 0..=pairs {
        let sides = (positive(a()?)?, positive(b()?)?);
        if pair > 0 {
            measured.push(sides);
        }
    }
    Ok(PairedMeasurements { pairs: measured })
}

fn positive(value: f64) -> Result<f64> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(format!("measured {value}, which is not a positive number"))
    }
}

/// A text table: the first column and text are left-aligned, numbers right-aligned.
#[derive(Clone, Debug)]
pub(crate) struct ResultTable<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> ResultTable<COLUMNS> {
    /// Creates a table with these column heads and no rows.
    pub(crate) fn new(heads: [&str; COLUMNS]) -> Self {
        Self { rows: vec![heads.map(str::to_owned)] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells);
    }

    fn width(&self, column: usize) -> usize {
        let widths = self.rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default()
    }

    /// Returns whether every cell of a column below its head starts like a number.
    fn is_numeric(&self, column: usize) -> bool {
        let number = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        self.rows.len() > 1 && self.rows[1..].iter().all(|row| number(&row[column]))
    }
}

impl<const COLUMNS: usize> fmt::Display for ResultTable<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let mut text = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = self.width(column);
                if column > 0 {
                    text += "  ";
                }
                text += &if column > 0 && self.is_numeric(column) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                };
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

/// Description of the machine.
#[derive(Clone, Debug)]
pub(crate) struct MachineDescription {
    cpu: String,
    cpus: usize,
    memory_bytes: u64,
    kernel: String,
}

impl MachineDescription {
    /// Reads /proc; missing values are `unknown`.
    pub(crate) fn read() -> Self {
        let file = |path| fs::read_to_string(path).unwrap_or_default();
        let memory_kib: u64 = field(&file("/proc/meminfo"), "MemTotal")
            .and_then(|value| value.split(' ').next()?.parse().ok())
            .unwrap_or_default();
        let kernel = file("/proc/sys/kernel/osrelease").trim().to_owned();
        Self {
            cpu: field(&file("/proc/cpuinfo"), "model name").unwrap_or_else(unknown),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib * 1024,
            kernel: if kernel.is_empty() { unknown() } else { kernel },
        }
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// Returns the value of the first `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

impl fmt::Display for MachineDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gibibytes = self.memory_bytes as f64 / f64::from(1 << 30);
        write!(f, "{}, {} CPUs, {gibibytes:.1} GiB, Linux {}", self.cpu, self.cpus, self.kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        let median = |values: &[f64]| MedianRange::of(values).map(|spread| spread.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn sides_alternate_and_the_first_pair_is_discarded() {
        let order = std::cell::RefCell::new(String::new());
        let mut a = [99.0, 10.0, 11.0, 12.0].into_iter();
        let mut b = [1.0, 5.0, 5.5, 10.0].into_iter();
        let pairs = alternate(
            3,
            || {
                order.borrow_mut().push('A');
                a.next().ok_or_else(|| "too many".to_owned())
            },
            || {
                order.borrow_mut().push('B');
                b.next().ok_or_else(|| "too many".to_owned())
            },
        )
        .unwrap();
        assert_eq!(order.into_inner(), "ABABABAB");
        assert_eq!(format!("{:.1}", pairs.ratio()), "2.0 (1.2 to 2.0)");
        assert_eq!((pairs.a().median, pairs.b().median), (11.0, 5.5));
    }

    #[test]
    fn a_measurement_that_is_not_positive_is_an_error() {
        assert!(alternate(0, || Ok(1.0), || Ok(1.0)).is_err());
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(alternate(1, || Ok(1.0), || Ok(wrong)).is_err());
        }
    }

    #[test]
    fn a_command_is_measured() {
        let children = Children::default();
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo $i";
        let measured = run(&children, Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(measured.stdout, "100000\n");
        assert!(measured.cpu_seconds() > 0.0 && measured.wall_seconds > 0.0);
        assert!(measured.memory_bytes_max > 100_000);
    }

    #[test]
    fn waiting_takes_no_cpu_time() {
        let children = Children::default();
        let measured = run(&children, Command::new("sleep").arg("0.2")).unwrap();
        assert!(measured.wall_seconds >= 0.2);
        assert!(measured.cpu_seconds() < 0.1);
    }

    #[test]
    fn a_failure_contains_all_of_standard_error() {
        let children = Children::default();
        // More than a pipe holds, on the pipe that is read second.
        let script = "head -c 300000 /dev/zero | tr '\\0' x >&2; echo the reason >&2; exit 3";
        let error = run(&children, Command::new("sh").args(["-c", script])).unwrap_err();
        assert!(error.contains("exit status: 3"));
        assert!(error.ends_with("the reason"));
    }

    #[test]
    fn numbers_are_right_aligned() {
        let mut table = ResultTable::new(["side", "seconds"]);
        table.row(["a".to_owned(), "1.50".to_owned()]);
        table.row(["longer".to_owned(), "12.25".to_owned()]);
        assert_eq!(
            table.to_string(),
            "side    seconds\n\
             a          1.50\n\
             longer    12.25\n"
        );
    }
}
