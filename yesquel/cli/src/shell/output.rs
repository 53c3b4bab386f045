//! Output of results: standard output, a file, or a program.

use std::{
    fs::File,
    io::{self, BufWriter, IsTerminal, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

enum To {
    Standard(BufWriter<io::Stdout>),
    Error(BufWriter<io::Stderr>),
    File(BufWriter<File>),
    Program(Child, BufWriter<ChildStdin>),
}

pub(super) struct ResultOutput {
    to: To,
    /// Whether to return to standard output after the next statement.
    is_once: bool,
}

impl Default for ResultOutput {
    fn default() -> ResultOutput {
        ResultOutput { to: To::Standard(BufWriter::with_capacity(1 << 16, io::stdout())), is_once: false }
    }
}

/// Returns a command that runs a line by the system's shell.
pub(super) fn system(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line);
    command
}

impl ResultOutput {
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self.to, To::Standard(_)) && io::stdout().is_terminal()
    }

    /// Redirects to a file, to a `|program`, or with `None` to standard output.
    pub(super) fn set(&mut self, to: Option<&str>, is_once: bool) -> io::Result<()> {
        self.reset()?;
        let Some(to) = to else { return Ok(()) };
        self.to = match to.strip_prefix('|') {
            None if to == "stderr" => To::Error(BufWriter::new(io::stderr())),
            Some(line) => {
                let mut child = system(line).stdin(Stdio::piped()).spawn()?;
                let input = child.stdin.take().ok_or_else(|| io::Error::other("it has no input"))?;
                To::Program(child, BufWriter::new(input))
            }
            None => To::File(BufWriter::new(File::create(Path::new(to))?)),
        };
        self.is_once = is_once;
        Ok(())
    }

    /// Ends the output of a statement.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        self.flush()?;
        if self.is_once { self.reset() } else { Ok(()) }
    }

    /// Returns to standard output.
    pub(super) fn reset(&mut self) -> io::Result<()> {
        let before = std::mem::take(self);
        match before.to {
            To::Standard(mut out) => out.flush(),
            To::Error(mut out) => out.flush(),
            To::File(mut out) => out.flush(),
            To::Program(mut child, mut out) => {
                let flushed = out.flush();
                drop(out);
                child.wait()?;
                // The program may have closed its input.
                flushed.or_else(|error| match error.kind() {
                    io::ErrorKind::BrokenPipe => Ok(()),
                    _ => Err(error),
                })
            }
        }
    }
}

impl Write for ResultOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            To::Standard(out) => out.write(bytes),
            To::Error(out) => out.write(bytes),
            To::File(out) => out.write(bytes),
            To::Program(_, out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Standard(out) => out.flush(),
            To::Error(out) => out.flush(),
            To::File(out) => out.flush(),
            To::Program(_, out) => out.flush(),
        }
    }
}
