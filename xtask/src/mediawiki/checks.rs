//! What must hold at the end: every acknowledged edit is in its page and in the page's history,
//! once, and each text is the one that the history makes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::http;
use super::install::yesquel;
use super::load::{Edit, EditOutcome};
use super::site::{DATABASES, WikiFolder};
use super::texts;
use crate::Result;
use crate::children::Children;
use crate::servers::ServerHandle as _;
use crate::servers::yesquel::YesquelServers;

/// A revision in a page's history.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Revision {
    number: u64,
    /// The revision before it.
    parent: u64,
    summary: String,
}

/// A page as the wiki returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageState {
    text: String,
    /// In the order of their numbers.
    history: Vec<Revision>,
}

/// Reads all pages with their histories.
pub(super) fn pages(port: u16, pages: usize) -> Result<Vec<PageState>> {
    (0..pages).map(|page| Ok(PageState { text: raw(port, page)?, history: history(port, page)? })).collect()
}

/// Returns the differences in the texts of two wikis with the same pages.
pub(super) fn texts_differ(first: &[PageState], second: &[PageState]) -> Vec<String> {
    let pairs = first.iter().zip(second).enumerate();
    let differ = pairs.filter(|(_, (first, second))| first != second);
    differ.map(|(page, _)| format!("{} differs before the first edit", texts::title(page))).collect()
}

/// Returns the text of a page.
fn raw(port: u16, page: usize) -> Result<String> {
    let title = texts::title(page);
    let target = format!("/index.php?{}", http::form(&[("title", &title), ("action", "raw")]));
    let answer = http::get(port, &target)?;
    if answer.status == 200 {
        Ok(answer.body)
    } else {
        Err(format!("text of {title}: status {}: {}", answer.status, answer.body))
    }
}

/// Returns the history of a page, which the wiki sends in parts.
fn history(port: u16, page: usize) -> Result<Vec<Revision>> {
    let title = texts::title(page);
    let mut revisions = Vec::new();
    let mut from = None;
    loop {
        let mut fields = vec![
            ("action", "query"),
            ("format", "json"),
            ("formatversion", "2"),
            ("prop", "revisions"),
            ("rvprop", "ids|comment"),
            ("rvlimit", "max"),
            ("rvdir", "newer"),
            ("titles", title.as_str()),
        ];
        fields.extend(from.as_deref().map(|from| ("rvcontinue", from)));
        let answer = http::get(port, &format!("/api.php?{}", http::form(&fields)))?;
        let (part, next) = history_part(&answer.body)
            .filter(|_| answer.status == 200)
            .ok_or_else(|| format!("history of {title}: status {}: {}", answer.status, answer.body))?;
        revisions.extend(part);
        match next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    revisions.sort_by_key(|revision| revision.number);
    Ok(revisions)
}

/// Parses a part of a history: its revisions, and where the next part begins.
fn history_part(json: &str) -> Option<(Vec<Revision>, Option<String>)> {
    let value: Value = serde_json::from_str(json).ok()?;
    let revisions = value["query"]["pages"][0]["revisions"].as_array()?;
    let revision = |value: &Value| {
        Some(Revision {
            number: value["revid"].as_u64()?,
            parent: value["parentid"].as_u64()?,
            summary: value["comment"].as_str()?.to_owned(),
        })
    };
    let next = value["continue"]["rvcontinue"].as_str().map(str::to_owned);
    Some((revisions.iter().map(revision).collect::<Option<_>>()?, next))
}

/// Compares the pages of a wiki with the edits that were sent, and returns what is wrong.
pub(super) fn edits(before: &[PageState], after: &[PageState], edits: &[Edit]) -> Vec<String> {
    let mut sent: Vec<BTreeMap<&str, &EditOutcome>> = vec![BTreeMap::new(); before.len()];
    for edit in edits {
        if let Some(page) = sent.get_mut(edit.page) {
            page.insert(&edit.mark, &edit.outcome);
        }
    }
    let pages = before.iter().zip(after).zip(&sent).enumerate();
    let problems = pages.flat_map(|(page, ((before, after), sent))| {
        let title = texts::title(page);
        page_problems(before, after, sent).into_iter().map(move |problem| format!("{title}: {problem}"))
    });
    problems.collect()
}

/// Compares one page with the edits of it, by their marks.
fn page_problems(before: &PageState, after: &PageState, sent: &BTreeMap<&str, &EditOutcome>) -> Vec<String> {
    let mut problems = Vec::new();
    if after.history.get(..before.history.len()) != Some(&before.history) {
        return vec!["the history does not begin with that before the first edit".to_owned()];
    }
    let new = &after.history[before.history.len()..];
    let mut found: BTreeSet<&str> = BTreeSet::new();
    let mut text = before.text.clone();
    let mut last = before.history.last().map_or(0, |revision| revision.number);
    for revision in new {
        let Revision { number, parent, summary } = revision;
        if !found.insert(summary) {
            problems.push(format!("edit {summary} is in the history more than once"));
        }
        match sent.get(summary.as_str()) {
            None => problems.push(format!("revision {number}, '{summary}', is of no edit")),
            Some(EditOutcome::Conflict) => problems.push(format!("edit {summary} was refused, and saved")),
            Some(EditOutcome::Saved { revision }) if revision != number => {
                problems.push(format!("edit {summary} was acknowledged as {revision}, and is {number}"));
            }
            Some(EditOutcome::Saved { .. } | EditOutcome::Unknown) => {}
        }
        if *parent != last {
            problems.push(format!("revision {number} follows {parent}, not {last}"));
        }
        last = *number;
        text += &Edit::line(summary);
    }
    let saved = sent.iter().filter(|(_, outcome)| matches!(outcome, EditOutcome::Saved { .. }));
    let lost = saved.filter(|(mark, _)| !found.contains(*mark));
    problems.extend(lost.map(|(mark, _)| format!("edit {mark} was acknowledged, and is lost")));
    if text != after.text {
        problems.push(format!(
            "the text is not that of its history: {} bytes, {} expected, equal up to byte {}",
            after.text.len(),
            text.len(),
            text.bytes().zip(after.text.bytes()).take_while(|(expected, found)| expected == found).count(),
        ));
    }
    problems
}

/// Checks all databases of a wiki by SQLite's `integrity_check`.
pub(super) fn integrity(children: &Children, wiki: &WikiFolder) -> Vec<String> {
    let check = |database: &str| match wiki.ask(children, database, "PRAGMA integrity_check") {
        Ok(said) if said == "ok" => None,
        Ok(said) => Some(format!("integrity_check of {database}: {said}")),
        Err(reason) => Some(format!("integrity_check of {database}: {reason}")),
    };
    DATABASES.into_iter().filter_map(check).collect()
}

/// Checks the trees of the servers, and the rows in them.
pub(super) fn cluster(children: &Children, servers: &YesquelServers, program: &Path) -> Vec<String> {
    let mut check = yesquel(program, "cluster");
    check.arg("check").arg(servers.address()).args(["--sql", "--quiet"]);
    children.check(&mut check).err().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(number: u64, parent: u64, summary: &str) -> Revision {
        Revision { number, parent, summary: summary.to_owned() }
    }

    fn edit(mark: &str, outcome: EditOutcome) -> Edit {
        Edit { page: 0, mark: mark.to_owned(), outcome }
    }

    fn before() -> Vec<PageState> {
        vec![PageState { text: "text".to_owned(), history: vec![revision(4, 0, "Imported")] }]
    }

    /// The page after two saved edits.
    fn after() -> Vec<PageState> {
        let history = vec![revision(4, 0, "Imported"), revision(7, 4, "a"), revision(9, 7, "b")];
        vec![PageState { text: "text\n* line a\n* line b".to_owned(), history }]
    }

    fn sent() -> Vec<Edit> {
        vec![
            edit("b", EditOutcome::Saved { revision: 9 }),
            edit("a", EditOutcome::Saved { revision: 7 }),
            edit("c", EditOutcome::Conflict),
            edit("d", EditOutcome::Unknown),
        ]
    }

    #[track_caller]
    fn assert_problem(after: &[PageState], sent: &[Edit], problem: &str) {
        let found = edits(&before(), after, sent);
        assert!(found.iter().any(|found| found.contains(problem)), "{found:?}");
    }

    #[test]
    fn pages_with_all_edits_are_right() {
        assert_eq!(edits(&before(), &after(), &sent()), Vec::<String>::new());
        // An edit without an answer may have been saved.
        let mut unanswered = sent();
        unanswered[0].outcome = EditOutcome::Unknown;
        assert_eq!(edits(&before(), &after(), &unanswered), Vec::<String>::new());
    }

    #[test]
    fn a_lost_edit_is_found() {
        let mut lost = after();
        lost[0].history.pop();
        lost[0].text = "text\n* line a".to_owned();
        assert_problem(&lost, &sent(), "edit b was acknowledged, and is lost");
        // The revision is there, its text is not.
        let mut lost = after();
        lost[0].text = "text\n* line b".to_owned();
        assert_problem(&lost, &sent(), "not that of its history: 13 bytes, 22 expected, equal up to byte 12");
    }

    #[test]
    fn an_edit_that_is_there_twice_or_was_refused_is_found() {
        let mut twice = after();
        twice[0].history.push(revision(11, 9, "a"));
        assert_problem(&twice, &sent(), "edit a is in the history more than once");
        let mut refused = sent();
        refused[1].outcome = EditOutcome::Conflict;
        assert_problem(&after(), &refused, "edit a was refused, and saved");
        assert_problem(&after(), &sent()[..1], "revision 7, 'a', is of no edit");
    }

    #[test]
    fn a_history_that_forks_or_has_other_numbers_is_found() {
        let mut forked = after();
        forked[0].history[2].parent = 4;
        assert_problem(&forked, &sent(), "revision 9 follows 4, not 7");
        let mut renamed = sent();
        renamed[0].outcome = EditOutcome::Saved { revision: 10 };
        assert_problem(&after(), &renamed, "edit b was acknowledged as 10, and is 9");
        let mut rewritten = after();
        rewritten[0].history[0].number = 3;
        assert_problem(&rewritten, &sent(), "does not begin with that before");
    }

    #[test]
    fn a_history_comes_in_parts() {
        let part = r#"{"continue":{"rvcontinue":"2026|7","continue":"||"},"query":{"pages":[
            {"revisions":[{"revid":4,"parentid":0,"comment":"Imported"}]}]}}"#;
        let parsed = history_part(part);
        assert_eq!(parsed, Some((vec![revision(4, 0, "Imported")], Some("2026|7".to_owned()))));
        assert_eq!(history_part(r#"{"query":{"pages":[{"missing":true}]}}"#), None);
    }
}
