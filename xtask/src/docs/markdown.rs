//! Markdown of the pages: anchors, escapes, lines, links.

use std::collections::BTreeMap;

/// Longest line of a written page, characters. A little less than the limit of pages, as a mark may
/// be kept at the end of a line.
const WIDTH: usize = 96;

/// Gives a page's headings the anchors that GitHub and mdBook give them.
#[derive(Default)]
pub(crate) struct Slugs {
    given: BTreeMap<String, usize>,
}

impl Slugs {
    /// The anchor of the next heading, whose text has no marks of Markdown.
    pub(crate) fn next(&mut self, heading: &str) -> String {
        let slug: String = heading
            .trim()
            .chars()
            .filter_map(|c| match c {
                c if c.is_whitespace() => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
                _ => None,
            })
            .collect();
        let count = self.given.entry(slug.clone()).or_default();
        *count += 1;
        if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
    }
}

/// Text with a backslash before each character that Markdown would read.
pub(crate) fn escaped(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let is_word = |index: Option<usize>| {
        index.and_then(|index| characters.get(index)).is_some_and(|c| c.is_alphanumeric() || *c == '_')
    };
    let mut escaped = String::with_capacity(text.len());
    for (index, &c) in characters.iter().enumerate() {
        let inside_a_word = is_word(index.checked_sub(1)) && is_word(Some(index + 1));
        if matches!(c, '\\' | '*' | '<' | '[' | '`') || (c == '_' && !inside_a_word) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Returns a paragraph in lines of at most [`WIDTH`] characters, after an empty line.
///
/// A word that Markdown would read as the mark of a list, a heading or a quotation at the start of
/// a line stays on the line before.
pub(crate) fn wrapped(text: &str) -> String {
    let mut lines = String::from("\n");
    let mut length = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if length == 0 {
            length = width;
        } else if length + 1 + width <= WIDTH || is_mark(word) {
            lines.push(' ');
            length += 1 + width;
        } else {
            lines.push('\n');
            length = width;
        }
        lines.push_str(word);
    }
    lines
}

/// Whether a word at the start of a line means something to Markdown.
fn is_mark(word: &str) -> bool {
    let number = word.trim_end_matches(['.', ')']);
    let numbered = number.len() < word.len() && number.chars().all(|c| c.is_ascii_digit());
    numbered || word.starts_with(['#', '>']) || word.chars().all(|c| matches!(c, '-' | '+' | '='))
}

#[cfg(test)]
pub(crate) mod read {
    //! Reading pages, for the tests.

    use super::Slugs;
    use std::collections::BTreeSet;

    /// A page without its fenced blocks, whose lines are left empty.
    pub(crate) fn without_fences(text: &str) -> String {
        let mut fence = None;
        let mut kept = String::with_capacity(text.len());
        for line in text.lines() {
            let mark = line.trim_start();
            match fence {
                None if mark.starts_with("```") => fence = Some("```"),
                Some(end) if mark.starts_with(end) => fence = None,
                None => kept.push_str(line),
                Some(_) => {}
            }
            kept.push('\n');
        }
        kept
    }

    /// Text without its code spans.
    pub(crate) fn without_code(text: &str) -> String {
        let mut kept = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('`') {
            let ticks = rest[start..].bytes().take_while(|byte| *byte == b'`').count();
            let after = &rest[start + ticks..];
            kept.push_str(&rest[..start]);
            rest = match after.find(&"`".repeat(ticks)) {
                Some(end) => &after[end + ticks..],
                None => after,
            };
        }
        kept + rest
    }

    /// The targets of links and pictures, with their lines.
    pub(crate) fn links(text: &str) -> Vec<(usize, String)> {
        let text = without_code(&without_fences(text));
        let mut links = Vec::new();
        for (mark, end) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
            for (start, _) in text.match_indices(mark) {
                let target = &text[start + mark.len()..];
                let target = target.split(end).next().unwrap_or_default();
                links.push((text[..start].lines().count().max(1), target.to_owned()));
            }
        }
        links
    }

    /// The anchors of a page.
    pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
        let mut slugs = Slugs::default();
        let text = without_fences(text);
        let headings = text.lines().filter(|line| line.starts_with('#'));
        headings.map(|heading| slugs.next(&heading.trim_start_matches('#').replace(['`', '*'], ""))).collect()
    }

    /// The cells of tables, with their lines.
    pub(crate) fn cells(text: &str) -> Vec<(usize, String)> {
        let text = without_fences(text).replace("\\|", "\u{a6}");
        let rows = text.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
        let cells = rows.flat_map(|(index, row)| {
            row.trim_matches('|').split('|').map(move |cell| (index + 1, cell.trim().to_owned()))
        });
        cells.collect()
    }

    /// The lines of prose that are longer than `width`, by number: neither of
    /// tables nor of code, and not longer for the sake of one word.
    pub(crate) fn long_lines(text: &str, width: usize) -> Vec<usize> {
        let text = without_fences(text);
        let lines = text.lines().enumerate();
        let prose = lines.filter(|(_, line)| !line.starts_with('|') && !line.starts_with("    "));
        let long = prose.filter(|(_, line)| line.chars().count() > width && line.trim().contains(' '));
        long.map(|(index, _)| index + 1).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_get_the_anchors_that_links_name() {
        let mut slugs = Slugs::default();
        assert_eq!(slugs.next("The law"), "the-law");
        assert_eq!(slugs.next("redis.host"), "redishost");
        assert_eq!(slugs.next("The law"), "the-law-1");
        assert_eq!(slugs.next("Which key, how long a value?"), "which-key-how-long-a-value");
    }

    #[test]
    fn characters_that_markdown_reads_are_escaped() {
        assert_eq!(escaped("a set '_indices' of <tab>, y_id"), "a set '\\_indices' of \\<tab>, y_id");
    }

    #[test]
    fn no_line_begins_with_a_mark() {
        let (long, longer) = ("x".repeat(95), "y".repeat(96));
        assert_eq!(wrapped(&format!("{long} - {longer}")), format!("\n{long} -\n{longer}"));
        assert_eq!(wrapped("a b"), "\na b");
    }

    #[test]
    fn links_in_code_are_no_links() {
        let text = "[a](b.md) and `[c](d)`\n```sh\n[e](f)\n```\n[g\nh](i.md#j)\n<img src=\"k.svg\">\n";
        let targets: Vec<_> = read::links(text).into_iter().map(|(_, target)| target).collect();
        assert_eq!(targets, ["b.md", "i.md#j", "k.svg"]);
        assert_eq!(read::long_lines("a b\n| a b c |\n```\na b c\n```\na b c\n", 4), [6]);
        assert_eq!(read::cells("```\n| a |\n```\n| b | c |\n"), [(4, "b".to_owned()), (4, "c".to_owned())]);
        assert!(read::anchors("# A `b`\n## A b\n").contains("a-b-1"));
    }
}
