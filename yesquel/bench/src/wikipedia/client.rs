//! A client of the wiki: runs traced statements and transactions, and reads revisions with their
//! texts.
//!
//! Checked for each text: it has the hash and the size that its revision, its content and its page
//! name. Checked for each article: its revision is not older than one that this process had
//! committed before the transaction began.

use super::{
    popularity::Popularity,
    rows::{NamedRow, Rows},
    statements::Statements,
    store::{Parameter, WikiError, WikiResult, WikiStore},
    text::{References, TEMPLATE, WikiPages, hash},
};
use crate::Result;
use std::{
    borrow::Cow,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use yesquel_seeds::Random;

/// Limit for the runs of one transaction; each one before the last has lost against another one.
const ATTEMPTS_MAX: u32 = 1_000;

/// Editors without an account; each has an address, and an actor in the database.
pub(crate) const EDITORS: u64 = 256;

/// Returns the address of an editor, in two forms.
pub(crate) fn address(editor: u64) -> (String, String) {
    let number = editor % EDITORS;
    (format!("10.0.0.{number}"), format!("0A0000{number:02X}"))
}

/// The wiki, for all threads of a process.
#[derive(Debug)]
pub(crate) struct Wiki {
    pub(crate) pages: WikiPages,
    pub(crate) popularity: Popularity,
    /// Part of the pages that are edited, 0 to 1; the others are viewed.
    pub(crate) edits: f64,
    /// The last revision of each article that is known to be committed; 0: as imported.
    revisions: Vec<AtomicU64>,
    pub(crate) viewed: PageCount,
    pub(crate) edited: PageCount,
}

/// Number of pages, and of the statements that they took.
#[derive(Debug, Default)]
pub(crate) struct PageCount {
    pub(crate) pages: AtomicU64,
    pub(crate) statements: AtomicU64,
}

impl Wiki {
    pub(crate) fn new(pages: WikiPages, popularity: Popularity, edits: f64) -> Wiki {
        let revisions = (0..pages.articles).map(|_| AtomicU64::new(0)).collect();
        let (viewed, edited) = Default::default();
        Wiki { pages, popularity, edits, revisions, viewed, edited }
    }

    fn revision(&self, article: u64) -> Option<&AtomicU64> {
        self.revisions.get(usize::try_from(article).ok()?.checked_sub(1)?)
    }

    /// Returns a revision of an article that each transaction sees which begins from now on, or a
    /// later one.
    pub(crate) fn committed(&self, article: u64) -> i64 {
        self.revision(article).map_or(0, |revision| revision.load(Relaxed).cast_signed())
    }

    /// Records that a revision of an article was committed.
    pub(crate) fn commit(&self, article: u64, revision: i64) {
        if let Some(known) = self.revision(article) {
            known.fetch_max(revision.cast_unsigned(), Relaxed);
        }
    }
}

/// A connection that views and edits pages.
pub(crate) struct WikiClient<'a> {
    pub(super) wiki: &'a Wiki,
    store: Box<dyn WikiStore>,
    statements: Statements,
    pub(super) random: Random,
    /// Its own address.
    pub(super) address: String,
    /// The same in hexadecimal digits, as the database has it.
    pub(super) address_hex: String,
    /// Statements so far, with those that begin and end transactions.
    pub(crate) count: u64,
    /// Transactions that were run again.
    pub(crate) conflicts: u64,
}

/// The last revision of a page.
#[derive(Debug)]
pub(super) struct PageRevision {
    pub(super) page: i64,
    pub(super) revision: i64,
    pub(super) length: i64,
    hash: String,
    /// Address of the text.
    address: String,
}

impl PageRevision {
    /// Returns an error unless the revision is this one or a later one.
    pub(super) fn check_age(&self, committed: i64) -> WikiResult<()> {
        if self.revision >= committed {
            return Ok(());
        }
        Err(WikiError::failed(format!(
            "page {}: read revision {}, but {committed} was committed before",
            self.page, self.revision
        )))
    }
}

impl<'a> WikiClient<'a> {
    /// Creates the client of a thread.
    pub(crate) fn new(wiki: &'a Wiki, store: Box<dyn WikiStore>, thread: u64) -> Result<WikiClient<'a>> {
        let statements = Statements::of(store.dialect())?;
        let (address, address_hex) = address(thread);
        let random = Random::new(wiki.pages.seed.wrapping_add(thread + 1));
        Ok(WikiClient { wiki, store, statements, random, address, address_hex, count: 0, conflicts: 0 })
    }

    /// Runs a transaction, again after conflicts.
    pub(super) fn transaction<T>(
        &mut self,
        writes: bool,
        mut body: impl FnMut(&mut Self) -> WikiResult<T>,
    ) -> Result<T> {
        let mut last = String::new();
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt(writes, &mut body) {
                Ok(value) => return Ok(value),
                Err(WikiError::Conflict(why)) => {
                    self.store.rollback()?;
                    self.conflicts += 1;
                    last = why;
                }
                Err(error) => {
                    // The first error says more than one of the end.
                    let _ = self.store.rollback();
                    return Err(error.into());
                }
            }
        }
        Err(format!("a transaction has lost {ATTEMPTS_MAX} times, the last time by {last}").into())
    }

    fn attempt<T>(
        &mut self,
        writes: bool,
        body: &mut impl FnMut(&mut Self) -> WikiResult<T>,
    ) -> WikiResult<T> {
        self.count += 1;
        self.store.begin(writes)?;
        let value = body(self)?;
        self.count += 1;
        self.store.commit()?;
        Ok(value)
    }

    /// Runs a statement that returns rows.
    pub(super) fn query(&mut self, name: &'static str, parameters: &[Parameter<'_>]) -> WikiResult<Rows> {
        self.query_list(name, parameters, &[])
    }

    /// Runs a statement with a list, which follows the other parameters.
    pub(super) fn query_list(
        &mut self,
        name: &'static str,
        parameters: &[Parameter<'_>],
        list: &[&str],
    ) -> WikiResult<Rows> {
        self.count += 1;
        let statement = self.statements.get(name)?;
        let all = with_list(parameters, list);
        let rows = self.store.query(&statement.text(list.len()), &all)?;
        Ok(Rows::new(name, statement, rows))
    }

    /// Runs a statement that returns no rows. Returns the number of the row that it inserted.
    pub(super) fn execute(&mut self, name: &'static str, parameters: &[Parameter<'_>]) -> WikiResult<i64> {
        self.execute_list(name, parameters, &[])
    }

    /// The same with a list.
    pub(super) fn execute_list(
        &mut self,
        name: &'static str,
        parameters: &[Parameter<'_>],
        list: &[&str],
    ) -> WikiResult<i64> {
        self.count += 1;
        let statement = self.statements.get(name)?;
        self.store.execute(&statement.text(list.len()), &with_list(parameters, list))
    }

    /// Reads the revision that a row of the page names, and its content.
    pub(super) fn revision_of(&mut self, page: NamedRow<'_>) -> WikiResult<PageRevision> {
        let (number, latest) = (page.integer("page_id")?, page.integer("page_latest")?);
        let rows = self.query("revision", &[latest.into()])?;
        let revision = rows.only()?;
        let found = self.content_of(number, revision)?;
        if (revision.integer("rev_page")?, found.length) != (number, page.integer("page_len")?) {
            return Err(WikiError::failed(format!("page {number} and its revision {latest} differ")));
        }
        Ok(found)
    }

    /// Reads the content of a revision.
    pub(super) fn content_of(&mut self, page: i64, revision: NamedRow<'_>) -> WikiResult<PageRevision> {
        let (number, length) = (revision.integer("rev_id")?, revision.integer("rev_len")?);
        let hash = revision.text("rev_sha1")?.to_owned();
        let rows = self.query("slots", &[number.into()])?;
        let content = rows.only()?;
        if (content.text("content_sha1")?, content.integer("content_size")?) != (&hash, length) {
            return Err(WikiError::failed(format!("revision {number} and its content differ")));
        }
        let address = content.text("content_address")?.to_owned();
        Ok(PageRevision { page, revision: number, length, hash, address })
    }

    /// Reads the text of a revision, and checks it.
    pub(super) fn text_of(&mut self, revision: &PageRevision) -> WikiResult<String> {
        let number = revision.address.strip_prefix("tt:").and_then(|number| number.parse::<i64>().ok());
        let number = number
            .ok_or_else(|| WikiError::failed(format!("'{}' is no address of a text", revision.address)))?;
        let rows = self.query("text", &[number.into()])?;
        let text = rows.only()?.text("old_text")?;
        if hash(text.as_bytes()) != revision.hash || text.len() as i64 != revision.length {
            return Err(WikiError::failed(format!(
                "the text of revision {} has not the hash {}",
                revision.revision, revision.hash
            )));
        }
        Ok(text.to_owned())
    }

    /// Runs the statements of a parse: reads the templates, and which of the linked pages exist.
    pub(super) fn parse(&mut self, references: &References<'_>) -> WikiResult<()> {
        for name in &references.templates {
            let rows = self.query("page-by-link", &[TEMPLATE.into(), (*name).into()])?;
            let revision = self.revision_of(rows.only()?)?;
            self.text_of(&revision)?;
        }
        if !references.links.is_empty() {
            self.query_list("links", &[], &references.links)?;
        }
        Ok(())
    }
}

fn with_list<'p, 'a>(parameters: &'p [Parameter<'a>], list: &[&'a str]) -> Cow<'p, [Parameter<'a>]> {
    if list.is_empty() {
        return Cow::Borrowed(parameters);
    }
    parameters.iter().cloned().chain(list.iter().map(|text| (*text).into())).collect()
}
