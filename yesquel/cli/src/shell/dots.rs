//! Dot commands: what is for the shell and not for the database.

mod copies;
mod files;
mod indent;
mod names;
mod rows;
mod settings;
mod trees;

use super::{
    state::{Done, Fault, Shell},
    words::words,
};
use std::io::Write;

/// A dot command.
struct Dot {
    name: &'static str,
    takes: &'static str,
    does: &'static str,
    run: fn(&mut Shell, &[&str]) -> Done,
    /// Whether Tab completes its arguments to files, not to names of the schema.
    completes_files: bool,
}

impl Dot {
    const fn new(
        name: &'static str,
        takes: &'static str,
        does: &'static str,
        run: fn(&mut Shell, &[&str]) -> Done,
    ) -> Dot {
        Dot { name, takes, does, run, completes_files: false }
    }

    const fn with_files(self) -> Dot {
        Dot { completes_files: true, ..self }
    }
}

/// All of them, in the order of their names; of those that begin with what was
/// typed the first is meant.
const DOTS: &[Dot] = &[
    Dot::new("backup", "?DB? FILE", "Copy a database into a file or to an address", copies::backup)
        .with_files(),
    Dot::new("bail", "on|off", "End a script with its first error", settings::bail),
    Dot::new("cd", "FOLDER", "Go to another folder", files::cd),
    Dot::new("changes", "on|off", "Tell how many rows a statement has changed", settings::changes),
    Dot::new("clone", "FILE", "Copy the database into a new file or to a new address", copies::clone)
        .with_files(),
    Dot::new("databases", "", "Name the databases that are open, and where they are", names::databases),
    Dot::new(
        "dump",
        "?OPTIONS? ?TABLE ...?",
        "Print the database, or tables, as SQL (--data-only, --schema-only, --newlines, --nosys, --preserve-rowids)",
        copies::dump,
    ),
    Dot::new("echo", "on|off", "Print what is read before it is run", settings::echo),
    Dot::new("eqp", "on|off", "Show how each statement will be run", settings::eqp),
    Dot::new("exit", "?STATUS?", "End, with this exit status", exit),
    Dot::new("fullschema", "", "Print the CREATE statements, and what ANALYZE has found", names::full_schema),
    Dot::new("headers", "on|off", "Print the names of columns before the rows", settings::headers),
    Dot::new("help", "?COMMAND?", "Explain commands", help),
    Dot::new("history", "?COUNT?", "Print what was typed in this shell", history),
    Dot::new(
        "import",
        "?OPTIONS? FILE TABLE",
        "Read rows from a file, or from |program (--csv, --tabs, --ascii, --skip N, --schema S)",
        files::import,
    )
    .with_files(),
    Dot::new("indexes", "?TABLE?", "Name indexes", names::indexes),
    Dot::new("indices", "?TABLE?", "As .indexes", names::indexes),
    Dot::new("limit", "?LIMIT? ?VALUE?", "Show or set limits of SQLite", settings::limit),
    Dot::new(
        "mode",
        "?MODE? ?OPTIONS?",
        "How results are shown (--wrap N, --wordwrap on|off, --quote; insert TABLE)",
        settings::mode,
    ),
    Dot::new("nullvalue", "TEXT", "What stands for NULL", settings::null),
    Dot::new("once", "FILE|'|PROGRAM'", "Where the next result goes", files::once).with_files(),
    Dot::new("open", "?--readonly? ?ADDRESS?", "Open another database in place of this one", files::open),
    Dot::new("output", "?FILE|'|PROGRAM'?", "Where results go; nothing: to standard output", files::output)
        .with_files(),
    Dot::new(
        "parameter",
        "init|list|set NAME VALUE|unset NAME|clear",
        "Values for ?1, :name, @name and $name",
        settings::parameter,
    ),
    Dot::new("print", "TEXT ...", "Print this", print),
    Dot::new("prompt", "MAIN ?CONTINUE?", "What stands before what is typed", settings::prompt),
    Dot::new("quit", "", "End", exit),
    Dot::new("read", "FILE", "Run what is in a file, or what |program prints", files::read).with_files(),
    Dot::new(
        "restore",
        "?DB? FILE",
        "Replace all of a database by that of a file or an address",
        copies::restore,
    )
    .with_files(),
    Dot::new("save", "?DB? FILE", "As .backup", copies::backup).with_files(),
    Dot::new(
        "schema",
        "?OPTIONS? ?PATTERN?",
        "Print the CREATE statements (--indent, --nosys)",
        names::schema,
    ),
    Dot::new("separator", "COLUMN ?ROW?", "What is between columns, and between rows", settings::separator),
    Dot::new("shell", "COMMAND ...", "Run a command of the system", files::system),
    Dot::new("show", "", "Show what is set", settings::show),
    Dot::new(
        "stats",
        "?on|off?",
        "Tell the round trips, cache hits and bytes of each statement",
        trees::stats,
    ),
    Dot::new("system", "COMMAND ...", "As .shell", files::system),
    Dot::new("tables", "?PATTERN?", "Name tables and views", names::tables),
    Dot::new("timeout", "MS", "How long to wait for others", settings::timeout),
    Dot::new("timer", "on|off", "Tell how long a statement took", settings::timer),
    Dot::new("tree", "?TABLE|INDEX?", "Draw the tree of a table or an index", trees::tree),
    Dot::new("version", "", "Say which versions these are", version),
    Dot::new("width", "NUMBER ...", "Widths of columns; negative: to the right", settings::width),
];

/// Their names, for whoever completes them.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    DOTS.iter().map(|dot| dot.name)
}

/// Whether what stands behind it is the name of a table, and no file's.
pub(super) fn takes_names(name: &str) -> bool {
    DOTS.iter().find(|dot| dot.name.starts_with(name)).is_some_and(|dot| !dot.completes_files)
}

/// What was wrong with what was typed.
fn wrong<T>(words: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Said(words.into()))
}

/// How a command is to be typed.
fn usage<T>(name: &str) -> Result<T, Fault> {
    let takes = DOTS.iter().find(|dot| dot.name == name).map_or("", |dot| dot.takes);
    wrong(format!("it is .{name} {takes}"))
}

impl Shell {
    /// Runs a dot command.
    pub(super) fn dot(&mut self, line: &str) -> Done {
        let line = line.strip_prefix('.').unwrap_or(line);
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((name, rest)) = words.split_first() else {
            return wrong("a command is missing; .help lists them");
        };
        // Who types the beginning of .help wants help.
        let name = if "help".starts_with(name) && !name.is_empty() { &"help" } else { name };
        let exact = DOTS.iter().find(|dot| dot.name == *name);
        let found = exact.or_else(|| DOTS.iter().find(|dot| dot.name.starts_with(name)));
        let Some(dot) = found else {
            return wrong(format!("there is no command .{name}; .help lists them"));
        };
        let done = (dot.run)(self, rest);
        // What .once is for has come, unless this was it.
        if dot.name == "once" {
            self.out.flush()?
        } else {
            self.out.settle()?
        }
        done
    }
}

fn exit(shell: &mut Shell, words: &[&str]) -> Done {
    let status = match words {
        [] => None,
        [status, ..] => match status.parse::<i64>() {
            // As the system takes them.
            Ok(status) => Some((status & 0xff) as u8),
            Err(_) => return usage("exit"),
        },
    };
    shell.leave(status);
    Ok(())
}

fn print(shell: &mut Shell, words: &[&str]) -> Done {
    Ok(writeln!(shell.out, "{}", words.join(" "))?)
}

fn version(shell: &mut Shell, _: &[&str]) -> Done {
    writeln!(shell.out, "Yesquel {}", env!("CARGO_PKG_VERSION"))?;
    let source: String = shell.connection().query_row("SELECT sqlite_source_id()", [], |row| row.get(0))?;
    Ok(writeln!(shell.out, "SQLite {} {source}", rusqlite::version())?)
}

fn history(shell: &mut Shell, words: &[&str]) -> Done {
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

fn help(shell: &mut Shell, words: &[&str]) -> Done {
    let wanted = words.first().map(|word| word.trim_start_matches('.'));
    let found: Vec<&Dot> =
        DOTS.iter().filter(|dot| wanted.is_none_or(|wanted| dot.name.starts_with(wanted))).collect();
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
        for (_, name, what) in super::settings::Mode::ALL {
            writeln!(shell.out, "    {name:<24} {what}")?;
        }
    }
    Ok(())
}

/// `on` or `off`, as people write it.
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
        assert!(DOTS.is_sorted_by_key(|dot| dot.name));
        assert!(DOTS.iter().all(|dot| !dot.does.is_empty() && !dot.does.ends_with('.')));
    }
}
