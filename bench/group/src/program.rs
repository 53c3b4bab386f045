//! Programs that a phase runs. They have a time limit, end with the experiment, and their last lines are kept.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Number of last lines of output that are kept.
const LINES_MAX: usize = 40;

/// Longest line, bytes; longer ones are split.
const LINE_MAX: u64 = 2000;

/// Interval at which a program's end is polled for.
const POLL: Duration = Duration::from_millis(20);

/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// Default time limit of a program.
pub const TIMEOUT: Duration = Duration::from_secs(3600);

/// A program that `sh -c` runs.
#[derive(Debug, Clone)]
pub struct ShellCommand<'a> {
    /// The command line.
    pub command: &'a str,
    /// Environment variables, in addition to those of this process.
    pub environment: &'a [(&'a str, String)],
    /// Standard input.
    pub input: Vec<u8>,
    /// Time limit.
    pub timeout: Duration,
}

/// End of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEnd {
    /// The program exited.
    Exited(ExitStatus),
    /// The program exceeded its time limit and was killed.
    TimedOut,
    /// The experiment was interrupted and the program killed.
    Interrupted,
}

/// Outcome of a program.
#[derive(Debug, Clone)]
pub struct CommandOutcome {
    /// End of the program.
    pub ended: CommandEnd,
    /// Last lines of standard output and standard error, in the order of their arrival.
    pub output: Vec<String>,
}

impl CommandOutcome {
    /// Returns how the program failed, with its last line, which probably has the reason; `None` if it succeeded.
    pub fn failure(&self, timeout: Duration) -> Option<String> {
        let how = match self.ended {
            CommandEnd::Exited(status) if status.success() => return None,
            CommandEnd::Exited(status) => format!("ended with {status}"),
            CommandEnd::TimedOut => format!("took longer than {timeout:?} (timeout)"),
            CommandEnd::Interrupted => "was interrupted".to_owned(),
        };
        let last = self.output.last().map_or(String::new(), |line| format!("; its last line: {line}"));
        Some(how + &last)
    }
}

type OutputLines = Arc<Mutex<VecDeque<String>>>;

/// Reads the output of a program on a thread, and keeps the last lines.
fn collect_lines(from: impl Read + Send + 'static, lines: &OutputLines) -> thread::JoinHandle<()> {
    let lines = Arc::clone(lines);
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        // The limit splits a line that does not end.
        while let Ok(1..) = from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() == LINES_MAX {
                lines.pop_front();
            }
            lines.push_back(text);
        }
    })
}

/// Ends a program and all processes of its group.
fn end(child: &mut Child) {
    use rustix::process::{Pid, Signal, kill_process_group};
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    // A process that has ended needs no signal.
    let _ = kill_process_group(group, Signal::TERM);
    let terminated = Instant::now();
    while terminated.elapsed() < GRACE {
        if let Ok(Some(_)) = child.try_wait() {
            break;
        }
        thread::sleep(POLL);
    }
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

/// Runs a program to its end.
///
/// # Errors
///
/// The program cannot be started.
pub fn run(program: ShellCommand<'_>, interrupted: &dyn Fn() -> bool) -> io::Result<CommandOutcome> {
    let mut shell = Command::new("sh");
    shell.args(["-c", program.command]).envs(program.environment.iter().map(|(name, value)| (name, value)));
    // In a process group of its own, because Ctrl-C must reach the experiment only, which then ends the program.
    shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let mut child = shell.spawn()?;
    let lines = OutputLines::default();
    let input = child.stdin.take();
    // A program that does not read its input must not block this thread.
    thread::spawn(move || input.map(|mut to| to.write_all(&program.input)));
    let readers = [
        child.stdout.take().map(|from| collect_lines(from, &lines)),
        child.stderr.take().map(|from| collect_lines(from, &lines)),
    ];
    let ended = loop {
        if let Some(status) = child.try_wait()? {
            break CommandEnd::Exited(status);
        }
        let why = match (interrupted(), begun.elapsed() >= program.timeout) {
            (true, _) => CommandEnd::Interrupted,
            (false, true) => CommandEnd::TimedOut,
            (false, false) => {
                thread::sleep(POLL);
                continue;
            }
        };
        end(&mut child);
        break why;
    };
    // Limited, because a process that the program has left running may hold its output open.
    let ended_at = Instant::now();
    for reader in readers.into_iter().flatten() {
        while !reader.is_finished() && ended_at.elapsed() < Duration::from_millis(500) {
            thread::sleep(POLL);
        }
    }
    let output = lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
    Ok(CommandOutcome { ended, output })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(command: &str, timeout: Duration, interrupted: bool) -> CommandOutcome {
        let environment = [("SERVAL_TEST", "value".to_owned())];
        let input = b"one\ntwo\n".to_vec();
        run(ShellCommand { command, environment: &environment, input, timeout }, &|| interrupted).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_program_gets_its_input_and_its_output_is_kept() {
        let done = outcome("cat; echo $SERVAL_TEST; echo no >&2", LONG, false);
        assert_eq!(done.failure(LONG), None);
        let mut output = done.output;
        output.sort();
        assert_eq!(output, ["no", "one", "two", "value"]);
    }

    #[test]
    fn a_failure_has_the_last_line() {
        let failed = outcome("echo first; echo last; exit 3", LONG, false);
        assert_eq!(failed.failure(LONG).unwrap(), "ended with exit status: 3; its last line: last");
    }

    #[test]
    fn a_program_that_is_late_or_interrupted_ends_with_its_processes() {
        let late = outcome("sleep 1000 & sleep 1000", Duration::from_millis(1), false);
        assert_eq!(late.ended, CommandEnd::TimedOut);
        assert_eq!(outcome("sleep 1000", LONG, true).ended, CommandEnd::Interrupted);
    }

    #[test]
    fn the_end_of_long_output_is_kept() {
        let done = outcome("seq 1 1000", LONG, false);
        assert_eq!((done.output.len(), done.output.last().map(String::as_str)), (LINES_MAX, Some("1000")));
    }
}
