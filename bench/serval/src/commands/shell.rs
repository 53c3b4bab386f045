//! `serval shell`: single operations by hand, with the commands and answers
//! of YCSB's shell.

use super::{java_flags, resolved, run_properties, tell_warnings};
use crate::{args::ShellArgs, failure::Failure};
use rustyline::{DefaultEditor, error::ReadlineError};
use serval_model::{
    Outcome, Purpose, Reply, Schema,
    properties::{Faults, Reader},
};
use serval_plan::{
    names,
    session::{ShellRequest, ShellVerb, open},
};
use serval_workload::core::properties as core;
use std::{
    io::{BufRead, IsTerminal, Read},
    path::PathBuf,
    time::Instant,
};

const HELP: &str = "\
Commands:
  read key [field1 field2 ...] - Read a record
  scan key recordcount [field1 field2 ...] - Scan starting at key
  insert key name1=value1 [name2=value2 ...] - Insert a new record
  update key name1=value1 [name2=value2 ...] - Update a record
  delete key - Delete a record
  table [tablename] - Get or [set] the name of the table
  help - Show this
  quit - Quit
Values with spaces: name=\"some value\".";

/// Longest line that is read from a pipe: a record of a large field.
const LINE_MAX: u64 = 256 << 20;

/// Where lines come from: a terminal with history and editing, or a pipe.
enum Lines {
    Terminal(Box<DefaultEditor>, Option<PathBuf>),
    Pipe(std::io::StdinLock<'static>),
}

impl Lines {
    fn new() -> Lines {
        if std::io::stdin().is_terminal()
            && let Ok(mut editor) = DefaultEditor::new()
        {
            let home = std::env::var_os("XDG_STATE_HOME")
                .map(PathBuf::from)
                .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")));
            let history = home.map(|folder| folder.join("serval").join("shell_history"));
            if let Some(path) = &history {
                // No history yet is no fault.
                let _ = editor.load_history(path);
            }
            return Lines::Terminal(Box::new(editor), history);
        }
        Lines::Pipe(std::io::stdin().lock())
    }

    /// The next line, as it came; `None` at the end.
    fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        match self {
            Lines::Terminal(editor, _) => loop {
                match editor.readline("> ") {
                    Ok(line) => {
                        let _ = editor.add_history_entry(line.trim());
                        return Ok(Some(line.into_bytes()));
                    }
                    // Ctrl-C clears the line, as in other shells.
                    Err(ReadlineError::Interrupted) => {}
                    Err(ReadlineError::Eof) => return Ok(None),
                    Err(error) => return Err(std::io::Error::other(error)),
                }
            },
            Lines::Pipe(input) => {
                let mut line = Vec::new();
                let read = input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? as u64;
                if read == LINE_MAX {
                    let problem = format!("a line is longer than {LINE_MAX} bytes");
                    return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, problem));
                }
                Ok((read > 0).then_some(line))
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if let Lines::Terminal(editor, Some(path)) = self {
            // A history that cannot be kept is not worth an error.
            let _ = path.parent().map(std::fs::create_dir_all);
            let _ = editor.save_history(path);
        }
    }
}

/// Splits a line into words; double quotes keep spaces together.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '"' => (quoted, any) = (!quoted, true),
            c if c.is_whitespace() && !quoted => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            c => {
                word.push(c);
                any = true;
            }
        }
    }
    if any {
        words.push(word);
    }
    words
}

/// What a line asks for.
#[derive(Debug, PartialEq)]
enum ShellLine {
    Nothing,
    Help,
    Quit,
    Table(Option<String>),
    Ask(String, ShellVerb),
    Wrong(String),
}

fn fields(words: &[String]) -> Result<Vec<(String, String)>, String> {
    let pairs = words.iter().map(|word| match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("Error: '{word}' should be name=value")),
    });
    pairs.collect()
}

fn parse(line: &str) -> ShellLine {
    let words = words(line);
    let Some((command, rest)) = words.split_first() else { return ShellLine::Nothing };
    let wrong = |syntax: &str| ShellLine::Wrong(format!("Error: syntax is \"{syntax}\""));
    match (command.as_str(), rest) {
        ("help" | "?", []) => ShellLine::Help,
        ("quit" | "exit", []) => ShellLine::Quit,
        ("table", []) => ShellLine::Table(None),
        ("table", [name]) => ShellLine::Table(Some(name.clone())),
        ("table", _) => wrong("table tablename"),
        ("read", [key, fields @ ..]) => ShellLine::Ask(key.clone(), ShellVerb::Read(fields.to_vec())),
        ("read", _) => wrong("read keyname [field1 field2 ...]"),
        ("scan", [key, count, fields @ ..]) => match count.parse() {
            Ok(count) => ShellLine::Ask(key.clone(), ShellVerb::Scan(count, fields.to_vec())),
            Err(_) => wrong("scan keyname scanlength [field1 field2 ...]"),
        },
        ("scan", _) => wrong("scan keyname scanlength [field1 field2 ...]"),
        ("insert" | "update", [key, first, more @ ..]) => {
            let pairs: Vec<String> = std::iter::once(first).chain(more).cloned().collect();
            match fields(&pairs) {
                Ok(fields) if command == "insert" => ShellLine::Ask(key.clone(), ShellVerb::Insert(fields)),
                Ok(fields) => ShellLine::Ask(key.clone(), ShellVerb::Update(fields)),
                Err(problem) => ShellLine::Wrong(problem),
            }
        }
        ("insert" | "update", _) => wrong(&format!("{command} keyname name1=value1 [name2=value2 ...]")),
        ("delete", [key]) => ShellLine::Ask(key.clone(), ShellVerb::Delete),
        ("delete", _) => wrong("delete keyname"),
        _ => ShellLine::Wrong(format!("Error: unknown command \"{command}\". Type \"help\" for help")),
    }
}

fn show(kind: &ShellVerb, outcome: &Outcome, reply: &Reply) {
    let lead = match kind {
        ShellVerb::Read(_) => "Return code",
        ShellVerb::Delete => "Return result",
        _ => "Result",
    };
    anstream::println!("{lead}: {}", outcome.status.name());
    if let Some(message) = &outcome.message {
        anstream::println!("{message}");
    }
    let records = reply.records();
    match kind {
        ShellVerb::Read(_) => {
            for (name, value) in records.iter().flat_map(|record| record.iter()) {
                anstream::println!("{name}={}", String::from_utf8_lossy(value));
            }
        }
        ShellVerb::Scan(..) if outcome.is_ok() => {
            const LINE: &str = "--------------------------------";
            anstream::println!("{}", if records.is_empty() { "0 records" } else { LINE });
            for (index, record) in records.iter().enumerate() {
                anstream::println!("Record {index}");
                for (name, value) in record.iter() {
                    anstream::println!("{name}={}", String::from_utf8_lossy(value));
                }
                anstream::println!("{LINE}");
            }
        }
        _ => {}
    }
}

/// `serval shell STORE`.
pub(crate) fn shell(args: &ShellArgs) -> Result<(), Failure> {
    let mut properties = run_properties(&args.properties)?;
    let info = resolved(&args.store, &mut properties)?;
    java_flags(info, &args.java, &mut properties);
    let (faults, warnings) = names(&properties, info, None, false);
    if !faults.is_empty() {
        return Err(Faults(faults).into());
    }
    tell_warnings(&warnings);
    let mut reader = Reader::new(&properties);
    let mut table = args.table.clone().unwrap_or_else(|| reader.text(&core::TABLE));
    let prefix = reader.text(&core::FIELD_NAME_PREFIX);
    let fields = (0..reader.count(&core::FIELD_COUNT)).map(|i| format!("{prefix}{i}")).collect();
    reader.finish()?;
    let session = open(info.name, &properties)?;
    // Records by hand: what is not there yet is made.
    session.store().prepare(&Schema { table: table.clone(), fields }, Purpose::Load)?;
    let mut lines = Lines::new();
    let terminal = matches!(lines, Lines::Terminal(..));
    if terminal {
        anstream::println!("Connected to {}. Type \"help\" for help.", info.name);
    }
    let asked: std::cell::RefCell<Option<(ShellVerb, Instant)>> = std::cell::RefCell::default();
    let unreadable = std::cell::Cell::new(None);
    let mut questions = || loop {
        let line = match lines.next() {
            Ok(line) => line?,
            Err(error) => {
                unreadable.set(Some(error));
                return None;
            }
        };
        let line = match std::str::from_utf8(&line) {
            Ok(line) => parse(line),
            // Other bytes than were meant must not get into a store.
            Err(_) => {
                let shown = serval_report::text::printable(&String::from_utf8_lossy(&line), 60);
                ShellLine::Wrong(format!("Error: this line is not UTF-8: {}", shown.trim()))
            }
        };
        match line {
            ShellLine::Nothing => {}
            ShellLine::Help => anstream::println!("{HELP}"),
            ShellLine::Quit => return None,
            ShellLine::Table(name) => {
                table = name.unwrap_or_else(|| table.clone());
                anstream::println!("Using table \"{table}\"");
            }
            ShellLine::Wrong(problem) => anstream::println!("{problem}"),
            ShellLine::Ask(key, operation) => {
                *asked.borrow_mut() = Some((operation.clone(), Instant::now()));
                return Some(ShellRequest { operation, table: table.clone(), key });
            }
        }
    };
    let mut answer = |outcome: Outcome, reply: &Reply| {
        if let Some((kind, since)) = asked.borrow_mut().take() {
            let took = since.elapsed();
            show(&kind, &outcome, reply);
            anstream::println!("{} ms", took.as_millis());
        }
    };
    session.store().ask(&mut questions, &mut answer)?;
    match unreadable.take() {
        None => Ok(()),
        Some(error) => Err(Failure::usage(format!("standard input: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_as_ycsbs_commands() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        for (line, expected) in [
            ("", ShellLine::Nothing),
            ("  ", ShellLine::Nothing),
            ("quit", ShellLine::Quit),
            ("table x", ShellLine::Table(Some("x".into()))),
            ("read user1", ShellLine::Ask("user1".into(), ShellVerb::Read(vec![]))),
            ("read user1 f g", ShellLine::Ask("user1".into(), ShellVerb::Read(vec!["f".into(), "g".into()]))),
            ("scan a 5", ShellLine::Ask("a".into(), ShellVerb::Scan(5, vec![]))),
            (
                "insert k a=1 b=\"x y\" c=",
                ShellLine::Ask(
                    "k".into(),
                    ShellVerb::Insert(vec![pair("a", "1"), pair("b", "x y"), pair("c", "")]),
                ),
            ),
            ("update k a=b=c", ShellLine::Ask("k".into(), ShellVerb::Update(vec![pair("a", "b=c")]))),
            ("delete k", ShellLine::Ask("k".into(), ShellVerb::Delete)),
        ] {
            assert_eq!(parse(line), expected, "{line}");
        }
        for line in
            ["read", "scan a", "scan a b", "insert k", "insert k novalue", "delete", "jump", "table a b"]
        {
            assert!(matches!(parse(line), ShellLine::Wrong(_)), "{line}");
        }
    }
}
