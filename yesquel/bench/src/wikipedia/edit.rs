//! An edit of an article by an editor without an account, in the traced order: a transaction that
//! saves the revision, and those of MediaWiki's deferred updates.

use super::{
    client::WikiClient,
    store::{Parameter, WikiError, WikiResult},
    text::{References, comment_hash, edited, hash, title},
    time,
};
use crate::Result;
use std::collections::HashSet;

/// Number of the content model and of the role of all texts.
const WIKITEXT: Parameter<'static> = Parameter::Integer(1);
const MAIN: Parameter<'static> = Parameter::Integer(1);

/// What an edit writes.
struct Edit<'a> {
    title: &'a str,
    /// Title of the article to which its new paragraph links.
    link: String,
    summary: String,
    time: String,
    /// A revision that was committed before.
    committed: i64,
}

/// A saved revision.
struct SavedRevision {
    page: i64,
    number: i64,
    text: String,
    comment: i64,
    actor: i64,
    /// The revision before, and its length in bytes.
    parent: i64,
    parent_length: i64,
}

impl WikiClient<'_> {
    /// Edits an article: its last paragraph then links to another article.
    pub(crate) fn edit(&mut self, article: u64, link: u64) -> Result<()> {
        let title_of_article = title(article);
        let edit = Edit {
            title: &title_of_article,
            link: title(link),
            summary: format!("change {} of {}", self.count, self.address),
            time: time::now(),
            committed: self.wiki.committed(article),
        };
        let saved = self.transaction(true, |client| client.save(&edit))?;
        self.wiki.commit(article, saved.number);
        let references = References::of(&saved.text).without(edit.title);
        self.transaction(true, |client| client.parse(&references))?;
        self.transaction(true, |client| {
            client.query("page-by-link", &[0.into(), edit.title.into()])?.only().map(drop)
        })?;
        self.update_links(&edit, &saved, &references)?;
        self.record_change(&edit, &saved)
    }

    /// Saves a new revision, within a transaction.
    fn save(&mut self, edit: &Edit<'_>) -> WikiResult<SavedRevision> {
        let title = || Parameter::from(edit.title);
        let rows = self.query("page", &[title()])?;
        let parent = self.revision_of(rows.only()?)?;
        parent.check_age(edit.committed)?;
        let page = parent.page;
        self.query("roles", &[])?.only()?;
        self.query("models", &[])?.only()?;
        self.query("restrictions", &[page.into()])?;
        self.query("linktarget", &[title()])?;
        self.query("cascading-sources", &[])?;
        let (address, hex) = (self.address.clone(), self.address_hex.clone());
        let range = format!("{}%", &hex[..4]);
        let of_range = [address.as_str().into(), range.into(), hex.as_str().into(), hex.as_str().into()];
        self.query("block", &of_range)?;
        let rows = self.query("revision-by-title", &[title()])?;
        let again = self.content_of(page, rows.only()?)?;
        if again.revision != parent.revision {
            return Err(WikiError::failed(format!(
                "{}: a transaction has read the last revisions {} and {}",
                edit.title, parent.revision, again.revision
            )));
        }
        let text = self.text_of(&again)?;
        self.query("page", &[title()])?.only()?;
        self.query("countable", &[page.into()])?;
        let text = edited(&text, &address, &edit.link);
        let (length, hash) = (text.len(), hash(text.as_bytes()));
        self.query("identical", &[page.into(), hash.as_str().into()])?;
        let rows = self.query("lock", &[page.into(), title()])?;
        if rows.only()?.integer("page_latest")? != parent.revision {
            // MediaWiki reports an edit conflict.
            return Err(WikiError::Conflict(format!("another edit of {}", edit.title)));
        }
        let comment = self.comment(&edit.summary)?;
        let rows = self.query("actor", &[address.as_str().into()])?;
        let actor = rows.only()?.integer("actor_id")?;
        let (time, hash) = (edit.time.as_str(), hash.as_str());
        let revision =
            [page.into(), parent.revision.into(), time.into(), length.into(), hash.into(), actor.into()];
        let number = self.execute("insert-revision", &revision)?;
        self.execute("insert-revision-comment", &[number.into(), comment.into()])?;
        let stored = self.execute("insert-text", &[text.as_str().into()])?;
        let content = [length.into(), hash.into(), WIKITEXT, format!("tt:{stored}").into()];
        let content = self.execute("insert-content", &content)?;
        self.execute("insert-slot", &[number.into(), MAIN, content.into(), number.into()])?;
        self.execute("insert-ip-change", &[number.into(), time.into(), hex.into()])?;
        self.execute("update-page", &[number.into(), time.into(), length.into(), page.into()])?;
        self.query("page-by-id", &[page.into()])?.only()?;
        let (parent, parent_length) = (parent.revision, parent.length);
        Ok(SavedRevision { page, number, text, comment, actor, parent, parent_length })
    }

    /// Finds or inserts a comment. Returns its number.
    fn comment(&mut self, summary: &str) -> WikiResult<i64> {
        let parameters = [comment_hash(summary).into(), summary.into()];
        let rows = self.query("comment", &parameters)?;
        match rows.iter().next() {
            Some(row) => row.integer("comment_id"),
            None => self.execute("insert-comment", &parameters),
        }
    }

    /// Updates the tables of links: deletes, and inserts, in a transaction each.
    fn update_links(
        &mut self,
        edit: &Edit<'_>,
        saved: &SavedRevision,
        references: &References<'_>,
    ) -> Result<()> {
        let page = || Parameter::from(saved.page);
        let wanted: HashSet<&str> = references.links.iter().copied().collect();
        let existing = self.transaction(true, |client| {
            let others = [
                "categories-of",
                "external-links-of",
                "images-of",
                "interwiki-links-of",
                "language-links-of",
            ];
            for name in others {
                client.query(name, &[page()])?;
            }
            let rows = client.query("links-of", &[page()])?;
            let existing: Vec<String> =
                rows.iter().map(|row| row.text("title").map(str::to_owned)).collect::<WikiResult<_>>()?;
            let removed: Vec<&str> =
                existing.iter().map(String::as_str).filter(|title| !wanted.contains(title)).collect();
            if !removed.is_empty() {
                client.execute_list("delete-links", &[page()], &removed)?;
            }
            Ok(existing.into_iter().collect::<HashSet<String>>())
        })?;
        let added: Vec<&str> =
            references.links.iter().copied().filter(|title| !existing.contains(*title)).collect();
        if !added.is_empty() {
            self.transaction(true, |client| {
                for title in &added {
                    client.execute("insert-link", &[(*title).into(), page()])?;
                }
                Ok(())
            })?;
        }
        self.transaction(true, |client| {
            client.query("properties-of", &[page()])?;
            client.query("templates-of", &[page()])?;
            client.query("linktarget", &[edit.title.into()])?;
            client.query("backlinks", &[])?;
            client.query("linktarget", &[edit.title.into()])?;
            client.query("cascading-backlinks", &[])?;
            client.execute("update-links-time", &[edit.time.as_str().into(), page()])?;
            Ok(())
        })
    }

    /// Records the edit in the recent changes and in the statistics.
    fn record_change(&mut self, edit: &Edit<'_>, saved: &SavedRevision) -> Result<()> {
        self.transaction(true, |client| {
            client.query("comment", &[comment_hash(&edit.summary).into(), edit.summary.as_str().into()])?;
            let address = client.address.clone();
            let change = [
                edit.time.as_str().into(),
                edit.title.into(),
                saved.page.into(),
                saved.number.into(),
                saved.parent.into(),
                address.into(),
                saved.parent_length.into(),
                saved.text.len().into(),
                saved.comment.into(),
                saved.actor.into(),
            ];
            client.execute("insert-change", &change).map(drop)
        })?;
        self.query("watchers", &[edit.title.into()])?;
        self.transaction(true, |client| {
            client.query("page-by-number", &[saved.page.into()])?.only().map(drop)
        })?;
        self.transaction(true, |client| client.execute("statistics", &[]).map(drop))
    }
}
