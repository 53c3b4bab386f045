//! Options in the style of SQLite's own shell: with one dash or two, and with output formats as
//! options of their own.

use super::settings::OutputMode;
use std::ffi::OsString;

/// Options with a value.
const VALUED: [&str; 6] = ["cmd", "init", "null", "nullvalue", "separator", "newline"];
/// Options without a value.
const PLAIN: [&str; 8] = ["bail", "batch", "echo", "readonly", "stats", "headers", "help", "version"];

/// Translates an option of SQLite's shell, with one dash or two.
fn translated(typed: &str) -> Option<Vec<String>> {
    let name = typed.strip_prefix('-')?;
    let name = name.strip_prefix('-').unwrap_or(name);
    let same = |name: &str| Some(vec![format!("--{name}")]);
    match name {
        "header" => same("headers"),
        "noheader" | "noheaders" => same("no-headers"),
        "nullvalue" => same("null"),
        // With this option rows end with a plain newline, unlike with `.mode csv`.
        "csv" => Some(vec!["--mode=csv".to_owned(), "--newline=\n".to_owned()]),
        _ if VALUED.contains(&name) || PLAIN.contains(&name) => same(name),
        _ if OutputMode::ALL.iter().any(|(_, mode, _)| *mode == name) => Some(vec![format!("--mode={name}")]),
        _ => None,
    }
}

/// Translates the options of `yesquel shell` among the arguments.
pub(crate) fn options_of_sqlite3(typed: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut typed = typed.peekable();
    let mut all: Vec<OsString> = typed.by_ref().take(1).collect();
    if typed.peek().is_none_or(|command| command != "shell") {
        all.extend(typed);
        return all;
    }
    all.extend(typed.by_ref().take(1));
    while let Some(word) = typed.next() {
        if word == "--" {
            all.push(word);
            break;
        }
        match word.to_str().and_then(translated) {
            Some(options) => {
                let takes_value = VALUED.iter().any(|name| options == [format!("--{name}")]);
                all.extend(options.into_iter().map(OsString::from));
                if takes_value {
                    all.extend(typed.next());
                }
            }
            None => all.push(word),
        }
    }
    all.extend(typed);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_sqlite3() {
        let typed = |line: &str| {
            let words = line.split(' ').map(OsString::from);
            let words = options_of_sqlite3(words).into_iter().map(|word| word.into_string().unwrap());
            words.collect::<Vec<String>>().join(" ").replace('\n', "\\n")
        };
        for (sqlite3, here) in [
            ("y shell -header -csv a.db", "y shell --headers --mode=csv --newline=\\n a.db"),
            ("y shell --json -noheader a.db", "y shell --mode=json --no-headers a.db"),
            ("y shell -cmd -csv -nullvalue -x a.db", "y shell --cmd -csv --null -x a.db"),
            ("y shell -separator ; -bail -- -csv", "y shell --separator ; --bail -- -csv"),
            ("y shell --mode csv -h", "y shell --mode csv -h"),
            ("y tree -csv", "y tree -csv"),
            ("y", "y"),
        ] {
            assert_eq!(typed(sqlite3), here, "{sqlite3}");
        }
    }
}
