//! Shell on a terminal: line editing, completion and history.

use super::{
    dots,
    input::{InputItem, PendingInput},
    state::{Shell, TRANSIENT},
};
use crate::failure::CliError;
use rusqlite::Connection;
use rustyline::{
    Config, Context, Editor, Helper,
    completion::{Completer, FilenameCompleter, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::Validator,
};
use std::{cell::RefCell, fs, io::Write, os::unix::fs::PermissionsExt, path::PathBuf, rc::Rc};

/// Maximum number of statements in the history.
const HISTORY_MAX: usize = 2_000;
/// Maximum number of completions, for a database may have any number of names.
const NAMES_MAX: usize = 500;

/// Returns the path of the history: YESQUEL_HISTORY, or a file in the state folder.
fn history_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("YESQUEL_HISTORY") {
        return (!path.is_empty()).then(|| path.into());
    }
    let home = std::env::home_dir();
    let old = home.as_ref().map(|home| home.join(".yesquel_history")).filter(|path| path.exists());
    if old.is_some() {
        return old;
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(home?.join(".local/state")));
    state.map(|state| state.join("yesquel/shell_history"))
}

/// Completes words.
struct NameCompleter {
    connection: Rc<RefCell<Connection>>,
    files: FilenameCompleter,
    keywords: Vec<String>,
}

impl Helper for NameCompleter {}
impl Highlighter for NameCompleter {}
impl Validator for NameCompleter {}
impl Hinter for NameCompleter {
    type Hint = String;
}

/// Returns the start of the word before the cursor.
fn word_at(line: &str) -> usize {
    line.rfind(|sign: char| !(sign.is_alphanumeric() || sign == '_'))
        .map_or(0, |at| at + line[at..].chars().next().map_or(1, char::len_utf8))
}

impl NameCompleter {
    /// Returns names of tables, views, indexes and columns with a prefix.
    fn of_database(&self, start: &str, tables_only: bool) -> Vec<String> {
        let Ok(connection) = self.connection.try_borrow() else { return Vec::new() };
        let pattern = format!("{}%", start.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_"));
        let columns = if tables_only {
            ""
        } else {
            " UNION SELECT i.name FROM sqlite_schema AS s JOIN pragma_table_info(s.name) AS i \
             WHERE s.type IN ('table', 'view') AND i.name LIKE ?1 ESCAPE '\\'"
        };
        let sql = format!(
            "SELECT name FROM pragma_table_list WHERE name LIKE ?1 ESCAPE '\\' \
             AND (name NOT LIKE 'sqlite\\_%' ESCAPE '\\' OR ?1 LIKE 's%') \
             UNION SELECT name FROM sqlite_schema WHERE type = 'index' AND name LIKE ?1 ESCAPE '\\' \
             AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'{columns} ORDER BY 1 LIMIT {NAMES_MAX}"
        );
        let names = connection.prepare(&sql).and_then(|mut found| {
            found.query_map([pattern], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
        });
        // If the query fails there are no completions.
        names.unwrap_or_default()
    }
}

impl Completer for NameCompleter {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..pos];
        if before.starts_with('.') {
            let Some((command, _)) = before.split_once(char::is_whitespace) else {
                let found = dots::names().filter(|name| name.starts_with(&before[1..]));
                return Ok((1, found.map(|name| pair(name.to_owned())).collect()));
            };
            if !dots::takes_names(&command[1..]) {
                return self.files.complete(line, pos, context);
            }
        }
        let start = word_at(before);
        let word = &before[start..];
        if word.is_empty() && !before.ends_with(['.', ' ', '(', ',']) {
            return Ok((start, Vec::new()));
        }
        let mut found: Vec<Pair> =
            self.of_database(word, before.starts_with('.')).into_iter().map(pair).collect();
        if !word.is_empty() && !before.starts_with('.') {
            let is_small = word.chars().all(char::is_lowercase);
            let own = self.keywords.iter().filter(|keyword| {
                keyword.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
            });
            found.extend(own.map(|word| pair(if is_small { word.to_lowercase() } else { word.clone() })));
        }
        Ok((start, found))
    }
}

fn pair(name: String) -> Pair {
    Pair { display: name.clone(), replacement: name }
}

type LineEditor = Editor<NameCompleter, FileHistory>;

fn editor(shell: &Shell) -> rustyline::Result<LineEditor> {
    let config = Config::builder()
        .max_history_size(HISTORY_MAX)?
        .history_ignore_space(true)
        .completion_type(rustyline::CompletionType::List)
        .build();
    let mut editor = Editor::with_config(config)?;
    let connection = Rc::clone(shell.shared());
    let names =
        NameCompleter { connection, files: FilenameCompleter::new(), keywords: yesquel_sqlite::keywords() };
    editor.set_helper(Some(names));
    Ok(editor)
}

/// Saves the history, readable by its owner only.
fn keep(editor: &mut LineEditor, path: &PathBuf) {
    // A history that cannot be saved is not worth an error.
    let _ = path.parent().map(fs::create_dir_all);
    if editor.append_history(path).is_ok() {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
    }
}

/// Prints the greeting.
fn greet(shell: &mut Shell) -> Result<(), CliError> {
    let dim = anstyle::Style::new().dimmed();
    let mut out = anstream::stdout();
    writeln!(out, "Yesquel {}, with SQLite {}", env!("CARGO_PKG_VERSION"), rusqlite::version())?;
    if shell.name == TRANSIENT {
        writeln!(out, "Connected to trees in memory, which go with the shell; .open ADDRESS opens others.")?;
    } else {
        writeln!(out, "Connected to {}", shell.name)?;
    }
    writeln!(out, "{dim}.help lists commands; Ctrl-C stops a statement, Ctrl-D ends.{dim:#}")?;
    Ok(())
}

/// Reads from a terminal until the end of input.
pub(super) fn talk(shell: &mut Shell) -> Result<(), CliError> {
    let mut editor = editor(shell).map_err(|error| CliError::Output(std::io::Error::other(error)))?;
    let path = history_path();
    if let Some(path) = &path {
        // A missing history is no error.
        let _ = editor.load_history(path);
    }
    greet(shell)?;
    let mut pending = PendingInput::default();
    while !shell.is_over() {
        let prompt = if pending.is_empty() { &shell.settings.prompt } else { &shell.settings.continuation };
        let line = match editor.readline(prompt.as_str()) {
            Ok(line) => line,
            // The unfinished statement is dropped, as in other shells.
            Err(ReadlineError::Interrupted) => {
                pending.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(ReadlineError::Io(error)) => return Err(CliError::Output(error)),
            Err(error) => return Err(CliError::Output(std::io::Error::other(error))),
        };
        // A statement recalled from the history may have several lines.
        let mut items = Vec::new();
        for line in line.split('\n') {
            items.extend(pending.take(line.as_bytes()));
        }
        for item in items {
            let (InputItem::DotCommand(text) | InputItem::Sql(text)) = &item;
            let _ = editor.add_history_entry(text.as_str());
            shell.history.push(text.clone());
            // Save before the statements run: they may take long, and the terminal may close
            // meanwhile.
            if let Some(path) = &path {
                keep(&mut editor, path);
            }
            shell.run_item(&item, pending.began())?;
            if shell.is_over() {
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::word_at;

    #[test]
    fn a_word_begins_after_a_separator() {
        assert_eq!(word_at("SELECT na"), 7);
        assert_eq!(word_at("na"), 0);
        assert_eq!(word_at("t.na"), 2);
        assert_eq!(word_at("x = 'é"), 5);
        assert_eq!(word_at("€a"), 3);
    }
}
