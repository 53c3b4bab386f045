//! A script's source text, and errors with their position: `file:line:column: what`.
//!
//! Lua records the line of an instruction, but no column. Its messages often quote
//! a word of the line; if the line has that word just once, its column is the
//! error's. Otherwise the position is the line.

use std::path::PathBuf;

/// Name of the script in Lua, which truncates long names in messages.
pub(crate) const CHUNK: &str = "script";

/// A script's file.
#[derive(Debug, Clone)]
pub(crate) struct ScriptSource {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl ScriptSource {
    /// Returns an error's message with its position.
    pub(crate) fn explain(&self, error: &mlua::Error) -> String {
        let (text, trace) = innermost(error);
        // Lua's own messages start with the position. Those of host functions have a
        // stack trace; its first line of the script made the call.
        let own = text.find(&format!("{CHUNK}:")).filter(|at| *at == 0).and_then(|_| place(&text));
        let (line, message) = match own {
            Some((line, rest)) => (Some(line), rest.to_owned()),
            None => (first_line(trace.as_deref().unwrap_or(&text)), text.clone()),
        };
        // The stack trace names internals of Serval.
        let message = message.split("\nstack traceback:").next().unwrap_or_default().trim();
        let path = self.path.display();
        match line {
            None => format!("{path}: {message}"),
            Some(line) => match self.column(line, message) {
                Some(column) => format!("{path}:{line}:{column}: {message}"),
                None => format!("{path}:{line}: {message}"),
            },
        }
    }

    /// Returns the column, from 1, of the last word that a message quotes.
    fn column(&self, line: usize, message: &str) -> Option<usize> {
        let line = self.text.lines().nth(line.checked_sub(1)?)?;
        let mut quoted = message.split('\'');
        let word = quoted.by_ref().skip(1).step_by(2).last().filter(|word| !word.is_empty())?;
        let boundary = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let bare = word.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let mut places = line.match_indices(word).filter(|(at, _)| {
            !bare
                || (boundary(line[..*at].chars().next_back())
                    && boundary(line[at + word.len()..].chars().next()))
        });
        let (at, _) = places.next()?;
        places.next().is_none().then(|| line[..at].chars().count() + 1)
    }
}

/// Returns the message of the root error, and the stack trace of the innermost host
/// function.
fn innermost(error: &mlua::Error) -> (String, Option<String>) {
    match error {
        mlua::Error::CallbackError { traceback, cause } => {
            let (text, inner) = innermost(cause);
            (text, inner.or_else(|| Some(traceback.clone())))
        }
        mlua::Error::SyntaxError { message, .. } => (message.clone(), None),
        mlua::Error::RuntimeError(message) => (message.clone(), None),
        mlua::Error::MemoryError(_) => ("needs more memory than a script may have".into(), None),
        mlua::Error::BadArgument { cause, .. } => innermost(cause),
        mlua::Error::FromLuaConversionError { from, to, message } => {
            // Replaces the name of the Rust type.
            let to = if to.contains("str") || to == "String" { "a text of UTF-8" } else { to };
            let why = message.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
            (format!("a {from} is given where {to} is wanted{why}"), None)
        }
        other => (other.to_string(), None),
    }
}

/// Splits a message that starts with its position into line and rest.
fn place(text: &str) -> Option<(usize, &str)> {
    let (line, rest) = text.strip_prefix(CHUNK)?.strip_prefix(':')?.split_once(':')?;
    Some((line.parse().ok()?, rest.trim_start()))
}

/// Returns the first line of the script in a stack trace.
fn first_line(trace: &str) -> Option<usize> {
    trace.lines().find_map(|line| place(line.trim_start()).map(|(line, _)| line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(text: &str, error: mlua::Error) -> String {
        ScriptSource { path: "a.lua".into(), text: text.into() }.explain(&error)
    }

    #[test]
    fn a_word_that_occurs_once_determines_the_column() {
        let error = |text: &str| mlua::Error::RuntimeError(text.into());
        let message = "script:2: attempt to call a nil value (global 'raed')\nstack traceback:\n\t[C]: in ?";
        assert_eq!(
            explained("x\n  raed(key)\n", error(message)),
            "a.lua:2:3: attempt to call a nil value (global 'raed')"
        );
        assert_eq!(explained("\nb + b", error("script:2: bad (global 'b')")), "a.lua:2: bad (global 'b')");
        assert_eq!(explained("\nab + b", error("script:2: bad (global 'b')")), "a.lua:2:6: bad (global 'b')");
        assert_eq!(explained("", error("no place")), "a.lua: no place");
    }

    #[test]
    #[allow(clippy::arc_with_non_send_sync, reason = "it is what the crate's errors hold")]
    fn errors_of_host_functions_have_the_place_of_the_call() {
        let cause = std::sync::Arc::new(mlua::Error::RuntimeError("no such thing".into()));
        let traceback =
            "stack traceback:\n\t[C]: in ?\n\tscript:7: in function 'step'\n\tscript:9: in x".into();
        assert_eq!(explained("", mlua::Error::CallbackError { traceback, cause }), "a.lua:7: no such thing");
    }
}
