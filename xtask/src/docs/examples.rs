//! The commands that the pages for users show.
//!
//! Tests of `xtask`, of `serval` and of `yesquel` include this file: each checks
//! the commands of its own program.

use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block of a page.
pub(crate) struct Block {
    /// Line of the opening fence, from 1.
    pub(crate) line: usize,
    /// The info string of the opening fence: `sh`, `sh test`, `console`, `text`.
    pub(crate) info: String,
    pub(crate) text: String,
}

/// Returns the pages whose commands are checked: the READMEs, the first steps and the how-to pages.
pub(crate) fn pages(root: &Path) -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["README.md", "yesquel/README.md", "docs/get-started.md"]
        .into_iter()
        .map(|name| root.join(name))
        .filter(|path| path.exists())
        .collect();
    let folder = fs::read_dir(root.join("docs/how-to")).into_iter().flatten().flatten();
    pages.extend(folder.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "md")));
    pages.sort();
    pages
}

pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(info), None) => {
                let info = info.trim().to_owned();
                open = Some(Block { line: index + 1, info, text: String::new() });
            }
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    blocks
}

/// The words of each command of a shell block that begins with these words,
/// which are left out. In a `console` block commands follow `$ `.
pub(crate) fn commands(block: &Block, program: &[&str]) -> Vec<Vec<String>> {
    let kind = block.info.split(' ').next().unwrap_or_default();
    let joined = block.text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim_start);
    let lines = lines.filter_map(|line| match kind {
        "sh" => Some(line),
        "console" => line.strip_prefix("$ "),
        _ => None,
    });
    let is_of_program = |words: &Vec<String>| {
        words.len() >= program.len() && words.iter().zip(program).all(|(word, name)| word == name)
    };
    let ours = lines.flat_map(simple_commands).filter(is_of_program);
    ours.map(|mut words| words.split_off(program.len())).collect()
}

/// The commands of a line that a pipe, `;` or `&&` joins, each without what
/// redirects it.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut redirected = false;
    for c in line.chars().chain(['\n']) {
        if let Some(end) = quote {
            match c {
                c if c == end => quote = None,
                c => word.get_or_insert_default().push(c),
            }
            continue;
        }
        match c {
            '\'' | '"' => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            '#' if word.is_none() => break,
            ' ' | '\n' | '|' | ';' | '&' | '<' | '>' => {
                if let (Some(word), Some(command)) = (word.take(), commands.last_mut())
                    && !std::mem::take(&mut redirected)
                {
                    command.push(word);
                }
                match c {
                    '|' | ';' | '&' => commands.push(Vec::new()),
                    '<' | '>' => redirected = true,
                    _ => {}
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_shell_blocks() {
        let page = "```sh test\nserval run a \\\n  -p \"b c=d\" > out; serval x | less  # serval y\n```\n\
            ```console\n$ serval z\nserval is text\n```\n```text\nserval text\n```\n";
        let found: Vec<_> = blocks(page).iter().flat_map(|block| commands(block, &["serval"])).collect();
        assert_eq!(found, [vec!["run", "a", "-p", "b c=d"], vec!["x"], vec!["z"]]);
        assert_eq!(blocks(page)[0].info, "sh test");
        assert_eq!(blocks(page)[1].line, 5);
    }
}
