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
}

/// All of them, in the order of their names; of those that begin with what was
/// typed the first is meant.
const DOTS: &[Dot] = &[
    Dot {
        name: "backup",
        takes: "?DB? FILE",
        does: "Copy a database into a file or to an address",
        run: copies::backup,
    },
    Dot { name: "bail", takes: "on|off", does: "End a script with its first error", run: settings::bail },
    Dot { name: "cd", takes: "FOLDER", does: "Go to another folder", run: files::cd },
    Dot {
        name: "changes",
        takes: "on|off",
        does: "Tell how many rows a statement has changed",
        run: settings::changes,
    },
    Dot {
        name: "clone",
        takes: "FILE",
        does: "Copy the database into a new file or to a new address",
        run: copies::clone,
    },
    Dot {
        name: "databases",
        takes: "",
        does: "Name the databases that are open, and where they are",
        run: names::databases,
    },
    Dot {
        name: "dump",
        takes: "?OPTIONS? ?TABLE ...?",
        does: "Print the database, or tables, as SQL (--data-only, --schema-only, --newlines, --nosys, --preserve-rowids)",
        run: copies::dump,
    },
    Dot { name: "echo", takes: "on|off", does: "Print what is read before it is run", run: settings::echo },
    Dot { name: "eqp", takes: "on|off", does: "Show how each statement will be run", run: settings::eqp },
    Dot { name: "exit", takes: "?STATUS?", does: "End, with this exit status", run: exit },
    Dot {
        name: "fullschema",
        takes: "",
        does: "Print the CREATE statements, and what ANALYZE has found",
        run: names::full_schema,
    },
    Dot {
        name: "headers",
        takes: "on|off",
        does: "Print the names of columns before the rows",
        run: settings::headers,
    },
    Dot { name: "help", takes: "?COMMAND?", does: "Explain commands", run: help },
    Dot { name: "history", takes: "?COUNT?", does: "Print what was typed in this shell", run: history },
    Dot {
        name: "import",
        takes: "?OPTIONS? FILE TABLE",
        does: "Read rows from a file, or from |program (--csv, --tabs, --ascii, --skip N, --schema S)",
        run: files::import,
    },
    Dot { name: "indexes", takes: "?TABLE?", does: "Name indexes", run: names::indexes },
    Dot { name: "indices", takes: "?TABLE?", does: "As .indexes", run: names::indexes },
    Dot {
        name: "limit",
        takes: "?LIMIT? ?VALUE?",
        does: "Show or set limits of SQLite",
        run: settings::limit,
    },
    Dot {
        name: "mode",
        takes: "?MODE? ?OPTIONS?",
        does: "How results are shown (--wrap N, --wordwrap on|off, --quote; insert TABLE)",
        run: settings::mode,
    },
    Dot { name: "nullvalue", takes: "TEXT", does: "What stands for NULL", run: settings::null },
    Dot { name: "once", takes: "FILE|'|PROGRAM'", does: "Where the next result goes", run: files::once },
    Dot {
        name: "open",
        takes: "?--readonly? ?ADDRESS?",
        does: "Open another database in place of this one",
        run: files::open,
    },
    Dot {
        name: "output",
        takes: "?FILE|'|PROGRAM'?",
        does: "Where results go; nothing: to standard output",
        run: files::output,
    },
    Dot {
        name: "parameter",
        takes: "init|list|set NAME VALUE|unset NAME|clear",
        does: "Values for ?1, :name, @name and $name",
        run: settings::parameter,
    },
    Dot { name: "print", takes: "TEXT ...", does: "Print this", run: print },
    Dot {
        name: "prompt",
        takes: "MAIN ?CONTINUE?",
        does: "What stands before what is typed",
        run: settings::prompt,
    },
    Dot { name: "quit", takes: "", does: "End", run: exit },
    Dot {
        name: "read",
        takes: "FILE",
        does: "Run what is in a file, or what |program prints",
        run: files::read,
    },
    Dot {
        name: "restore",
        takes: "?DB? FILE",
        does: "Replace all of a database by that of a file or an address",
        run: copies::restore,
    },
    Dot { name: "save", takes: "?DB? FILE", does: "As .backup", run: copies::backup },
    Dot {
        name: "schema",
        takes: "?OPTIONS? ?PATTERN?",
        does: "Print the CREATE statements (--indent, --nosys)",
        run: names::schema,
    },
    Dot {
        name: "separator",
        takes: "COLUMN ?ROW?",
        does: "What is between columns, and between rows",
        run: settings::separator,
    },
    Dot { name: "shell", takes: "COMMAND ...", does: "Run a command of the system", run: files::system },
    Dot { name: "show", takes: "", does: "Show what is set", run: settings::show },
    Dot {
        name: "stats",
        takes: "?on|off?",
        does: "Tell the round trips, cache hits and bytes of each statement",
        run: trees::stats,
    },
    Dot { name: "system", takes: "COMMAND ...", does: "As .shell", run: files::system },
    Dot { name: "tables", takes: "?PATTERN?", does: "Name tables and views", run: names::tables },
    Dot { name: "timeout", takes: "MS", does: "How long to wait for others", run: settings::timeout },
    Dot { name: "timer", takes: "on|off", does: "Tell how long a statement took", run: settings::timer },
    Dot {
        name: "tree",
        takes: "?TABLE|INDEX?",
        does: "Draw the tree of a table or an index",
        run: trees::tree,
    },
    Dot { name: "version", takes: "", does: "Say which versions these are", run: version },
    Dot {
        name: "width",
        takes: "NUMBER ...",
        does: "Widths of columns; negative: to the right",
        run: settings::width,
    },
];

/// Their names, for whoever completes them.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    DOTS.iter().map(|dot| dot.name)
}

/// Whether what stands behind it is the name of a table, and no file's.
pub(super) fn takes_names(name: &str) -> bool {
    DOTS.iter().find(|dot| dot.name.starts_with(name)).is_some_and(|dot| !dot.takes.contains("FILE"))
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
