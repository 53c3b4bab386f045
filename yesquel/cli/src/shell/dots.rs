//! Dot commands, which concern the shell rather than the database.

mod copies;
mod files;
mod indent;
mod names;
mod rows;
mod settings;
mod trees;

use super::{
    state::{Shell, ShellError, ShellResult},
    words::words,
};
use std::io::Write;

/// Dot command.
struct DotCommand {
    name: &'static str,
    takes: &'static str,
    does: &'static str,
    run: fn(&mut Shell, &[&str]) -> ShellResult,
    /// Whether Tab completes its arguments to file names instead of names of the schema.
    completes_files: bool,
}

impl DotCommand {
    const fn new(
        name: &'static str,
        takes: &'static str,
        does: &'static str,
        run: fn(&mut Shell, &[&str]) -> ShellResult,
    ) -> DotCommand {
        DotCommand { name, takes, does, run, completes_files: false }
    }

    const fn with_files(self) -> DotCommand {
        DotCommand { completes_files: true, ..self }
    }
}

/// All commands in order of their names; an abbreviation means the first one that it begins.
const DOT_COMMANDS: &[DotCommand] = &[
    DotCommand::new("backup", "?DB? FILE", "Copy a database into a file or to an address", copies::backup)
        .with_files(),
    DotCommand::new("bail", "on|off", "Stop a script at its first error", settings::bail),
    DotCommand::new("cd", "FOLDER", "Change the working directory", files::cd),
    DotCommand::new(
        "changes",
        "on|off",
        "Print the number of rows that each statement changes",
        settings::changes,
    ),
    DotCommand::new("clone", "FILE", "Copy the database into a new file or to a new address", copies::clone)
        .with_files(),
    DotCommand::new("databases", "", "List the open databases and their locations", names::databases),
    DotCommand::new(
        "dump",
        "?OPTIONS? ?TABLE ...?",
        "Print the database, or tables, as SQL (--data-only, --schema-only, --newlines, --nosys, --preserve-rowids)",
        copies::dump,
    ),
    DotCommand::new("echo", "on|off", "Print each statement before it runs", settings::echo),
    DotCommand::new("eqp", "on|off", "Print the query plan of each statement", settings::eqp),
    DotCommand::new("exit", "?STATUS?", "Exit with a status", exit),
    DotCommand::new(
        "fullschema",
        "",
        "Print the CREATE statements and the statistics of ANALYZE",
        names::full_schema,
    ),
    DotCommand::new("headers", "on|off", "Print the names of columns before the rows", settings::headers),
    DotCommand::new("help", "?COMMAND?", "Explain commands", help),
    DotCommand::new("history", "?COUNT?", "Print the history of this shell", history),
    DotCommand::new(
        "import",
        "?OPTIONS? FILE TABLE",
        "Read rows from a file, or from |program (--csv, --tabs, --ascii, --skip N, --schema S)",
        files::import,
    )
    .with_files(),
    DotCommand::new("indexes", "?TABLE?", "List indexes", names::indexes),
    DotCommand::new("indices", "?TABLE?", "Same as .indexes", names::indexes),
    DotCommand::new("limit", "?LIMIT? ?VALUE?", "Show or set limits of SQLite", settings::limit),
    DotCommand::new(
        "mode",
        "?MODE? ?OPTIONS?",
        "Set the format of results (--wrap N, --wordwrap on|off, --quote; insert TABLE)",
        settings::mode,
    ),
    DotCommand::new("nullvalue", "TEXT", "Set the text that stands for NULL", settings::null),
    DotCommand::new("once", "FILE|'|PROGRAM'", "Write the next result to a file or program", files::once)
        .with_files(),
    DotCommand::new(
        "open",
        "?--readonly? ?ADDRESS?",
        "Open another database instead of this one",
        files::open,
    ),
    DotCommand::new(
        "output",
        "?FILE|'|PROGRAM'?",
        "Write results to a file or program; no argument: standard output",
        files::output,
    )
    .with_files(),
    DotCommand::new(
        "parameter",
        "init|list|set NAME VALUE|unset NAME|clear",
        "Set the values of ?1, :name, @name and $name",
        settings::parameter,
    ),
    DotCommand::new("print", "TEXT ...", "Print text", print),
    DotCommand::new("prompt", "MAIN ?CONTINUE?", "Set the prompts", settings::prompt),
    DotCommand::new("quit", "", "Exit", exit),
    DotCommand::new(
        "read",
        "FILE",
        "Run the statements of a file, or of the output of |program",
        files::read,
    )
    .with_files(),
    DotCommand::new(
        "restore",
        "?DB? FILE",
        "Replace the contents of a database by those of a file or an address",
        copies::restore,
    )
    .with_files(),
    DotCommand::new("save", "?DB? FILE", "Same as .backup", copies::backup).with_files(),
    DotCommand::new(
        "schema",
        "?OPTIONS? ?PATTERN?",
        "Print the CREATE statements (--indent, --nosys)",
        names::schema,
    ),
    DotCommand::new(
        "separator",
        "COLUMN ?ROW?",
        "Set the separators of columns and rows",
        settings::separator,
    ),
    DotCommand::new("shell", "COMMAND ...", "Run a command of the operating system", files::system),
    DotCommand::new("show", "", "Show the settings", settings::show),
    DotCommand::new(
        "stats",
        "?on|off?",
        "Print the round trips, cache hits and bytes of each statement",
        trees::stats,
    ),
    DotCommand::new("system", "COMMAND ...", "Same as .shell", files::system),
    DotCommand::new("tables", "?PATTERN?", "List tables and views", names::tables),
    DotCommand::new("timeout", "MS", "Set the busy timeout, milliseconds", settings::timeout),
    DotCommand::new("timer", "on|off", "Print the duration of each statement", settings::timer),
    DotCommand::new("tree", "?TABLE|INDEX?", "Draw the tree of a table or an index", trees::tree),
    DotCommand::new("version", "", "Print the versions of Yesquel and SQLite", version),
    DotCommand::new(
        "width",
        "NUMBER ...",
        "Set the widths of columns; negative: right-aligned",
        settings::width,
    ),
];

/// Returns their names, for completion.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    DOT_COMMANDS.iter().map(|dot| dot.name)
}

/// Returns whether the argument is the name of a table.
pub(super) fn takes_names(name: &str) -> bool {
    DOT_COMMANDS.iter().find(|dot| dot.name.starts_with(name)).is_some_and(|dot| !dot.completes_files)
}

/// Returns a failure with a message.
fn wrong<T>(words: impl Into<String>) -> Result<T, ShellError> {
    Err(ShellError::Said(words.into()))
}

/// Returns a failure that shows the usage.
fn usage<T>(name: &str) -> Result<T, ShellError> {
    let takes = DOT_COMMANDS.iter().find(|dot| dot.name == name).map_or("", |dot| dot.takes);
    wrong(format!("it is .{name} {takes}"))
}

impl Shell {
    /// Runs a dot command.
    pub(super) fn dot(&mut self, line: &str) -> ShellResult {
        let line = line.strip_prefix('.').unwrap_or(line);
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((name, rest)) = words.split_first() else {
            return wrong("a command is missing; .help lists them");
        };
        // Any abbreviation of .help means help.
        let name = if "help".starts_with(name) && !name.is_empty() { &"help" } else { name };
        let exact = DOT_COMMANDS.iter().find(|dot| dot.name == *name);
        let found = exact.or_else(|| DOT_COMMANDS.iter().find(|dot| dot.name.starts_with(name)));
        let Some(dot) = found else {
            return wrong(format!("there is no command .{name}; .help lists them"));
        };
        let done = (dot.run)(self, rest);
        // The output for .once was written, unless this was the .once.
        if dot.name == "once" {
            self.out.flush()?
        } else {
            self.out.settle()?
        }
        done
    }
}

fn exit(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let status = match words {
        [] => None,
        [status, ..] => match status.parse::<i64>() {
            // Exit statuses have eight bits.
            Ok(status) => Some((status & 0xff) as u8),
            Err(_) => return usage("exit"),
        },
    };
    shell.leave(status);
    Ok(())
}

fn print(shell: &mut Shell, words: &[&str]) -> ShellResult {
    Ok(writeln!(shell.out, "{}", words.join(" "))?)
}

fn version(shell: &mut Shell, _: &[&str]) -> ShellResult {
    writeln!(shell.out, "Yesquel {}", env!("CARGO_PKG_VERSION"))?;
    let source: String = shell.connection().query_row("SELECT sqlite_source_id()", [], |row| row.get(0))?;
    Ok(writeln!(shell.out, "SQLite {} {source}", rusqlite::version())?)
}

fn history(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let count = match words {
        [] => usize::MAX,
        [count] => match count.parse() {
            Ok(count) => count,
            Err(_) => return usage("history"),
        },
        _ => return usage("history"),
    };
    let from = shell.history.len().saturating_sub(count);
    let lines = shell.history[from..].join("\n");
    Ok(writeln!(shell.out, "{lines}")?)
}

fn help(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let wanted = words.first().map(|word| word.trim_start_matches('.'));
    let found: Vec<&DotCommand> =
        DOT_COMMANDS.iter().filter(|dot| wanted.is_none_or(|wanted| dot.name.starts_with(wanted))).collect();
    if found.is_empty() {
        return wrong(format!("there is no command .{}", wanted.unwrap_or_default()));
    }
    let name = anstyle::Style::new().bold();
    let is_terminal =
        shell.out.is_terminal() && anstream::stdout().current_choice() != anstream::ColorChoice::Never;
    for dot in found {
        let line = format!(".{} {}", dot.name, dot.takes);
        let line = format!("{:<28}", line.trim_end());
        if is_terminal {
            writeln!(shell.out, "{name}{line}{name:#} {}", dot.does)?;
        } else {
            writeln!(shell.out, "{line} {}", dot.does)?;
        }
    }
    if let Some("mode") = wanted {
        for (_, name, what) in super::settings::OutputMode::ALL {
            writeln!(shell.out, "    {name:<24} {what}")?;
        }
    }
    Ok(())
}

/// Parses `on` or `off` and their synonyms.
fn switch(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "1" => Some(true),
        "off" | "no" | "false" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_in_order_and_have_help() {
        assert!(DOT_COMMANDS.is_sorted_by_key(|dot| dot.name));
        assert!(DOT_COMMANDS.iter().all(|dot| !dot.does.is_empty() && !dot.does.ends_with('.')));
    }
}
