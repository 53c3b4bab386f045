//! Creates the tables with all pages, as after an import: each has one revision.

use super::{
    client::{EDITORS, address},
    store::{Parameter, WikiError, WikiResult, WikiStore},
    text::{CATEGORY, NewPage, References, TEMPLATE, WikiPages, comment_hash, hash},
    time,
};
use crate::Result;
use std::{collections::HashMap, fmt::Write as _};

/// Pages of a transaction.
const PAGES_A_TRANSACTION: u64 = 100;
/// Rows that one INSERT has at most; a power of two, so that few lengths are prepared.
const ROWS_MAX: usize = 64;

/// Editors with an account, who have written the imported revisions.
const USERS: u64 = 100;
/// Different comments of the imported revisions.
const COMMENTS: u64 = 1_000;

/// One category in so many is hidden.
const CATEGORIES_A_HIDDEN: u64 = 10;

/// Time of the import, seconds since 1970: 2024-01-01.
const IMPORTED: u64 = 1_704_067_200;

/// A table with the columns that are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FilledTable {
    name: &'static str,
    columns: &'static [&'static str],
}

const ROLES: FilledTable = FilledTable { name: "slot_roles", columns: &["role_id", "role_name"] };
const MODELS: FilledTable = FilledTable { name: "content_models", columns: &["model_id", "model_name"] };
const USER: FilledTable = FilledTable {
    name: "user",
    columns: &["user_id", "user_name", "user_password", "user_newpassword", "user_email", "user_touched"],
};
const ACTOR: FilledTable = FilledTable { name: "actor", columns: &["actor_id", "actor_user", "actor_name"] };
const COMMENT: FilledTable =
    FilledTable { name: "comment", columns: &["comment_id", "comment_hash", "comment_text"] };
const LINKTARGET: FilledTable =
    FilledTable { name: "linktarget", columns: &["lt_id", "lt_namespace", "lt_title"] };
const PROPS: FilledTable =
    FilledTable { name: "page_props", columns: &["pp_page", "pp_propname", "pp_value"] };
const PAGE: FilledTable = FilledTable {
    name: "page",
    columns: &[
        "page_id",
        "page_namespace",
        "page_title",
        "page_is_redirect",
        "page_is_new",
        "page_random",
        "page_touched",
        "page_links_updated",
        "page_latest",
        "page_len",
        "page_content_model",
    ],
};
const REVISION: FilledTable = FilledTable {
    name: "revision",
    columns: &["rev_id", "rev_page", "rev_actor", "rev_timestamp", "rev_len", "rev_parent_id", "rev_sha1"],
};
const REVISION_COMMENT: FilledTable =
    FilledTable { name: "revision_comment_temp", columns: &["revcomment_rev", "revcomment_comment_id"] };
const SLOTS: FilledTable = FilledTable {
    name: "slots",
    columns: &["slot_revision_id", "slot_role_id", "slot_content_id", "slot_origin"],
};
const CONTENT: FilledTable = FilledTable {
    name: "content",
    columns: &["content_id", "content_size", "content_sha1", "content_model", "content_address"],
};
const TEXT: FilledTable = FilledTable { name: "text", columns: &["old_id", "old_text", "old_flags"] };
const PAGELINKS: FilledTable =
    FilledTable { name: "pagelinks", columns: &["pl_from", "pl_namespace", "pl_title", "pl_from_namespace"] };
const TEMPLATELINKS: FilledTable =
    FilledTable { name: "templatelinks", columns: &["tl_from", "tl_target_id", "tl_from_namespace"] };
const CATEGORYLINKS: FilledTable = FilledTable {
    name: "categorylinks",
    columns: &["cl_from", "cl_to", "cl_sortkey", "cl_timestamp", "cl_collation", "cl_type"],
};
const STATISTICS: FilledTable = FilledTable {
    name: "site_stats",
    columns: &[
        "ss_row_id",
        "ss_total_edits",
        "ss_good_articles",
        "ss_total_pages",
        "ss_users",
        "ss_active_users",
        "ss_images",
    ],
};

/// Rows that are not inserted yet, by their tables in the order of the first row.
#[derive(Default)]
struct PendingRows {
    tables: Vec<FilledTable>,
    rows: HashMap<FilledTable, Vec<Vec<Parameter<'static>>>>,
}

impl PendingRows {
    fn add(&mut self, table: FilledTable, row: Vec<Parameter<'static>>) {
        let rows = self.rows.entry(table).or_default();
        if rows.is_empty() && !self.tables.contains(&table) {
            self.tables.push(table);
        }
        rows.push(row);
    }

    /// Inserts all rows in a transaction.
    fn store(&mut self, store: &mut dyn WikiStore) -> WikiResult<()> {
        store.begin(true)?;
        for table in self.tables.drain(..) {
            let mut rest: &[Vec<Parameter<'static>>] = self.rows.get(&table).map_or(&[], Vec::as_slice);
            while !rest.is_empty() {
                // The largest power of two.
                let count = (1 << rest.len().ilog2()).min(ROWS_MAX);
                let (some, more) = rest.split_at(count);
                store.execute(&insert(table, count), &some.concat())?;
                rest = more;
            }
        }
        self.rows.clear();
        store.commit()
    }
}

/// Returns the INSERT of some rows.
fn insert(table: FilledTable, rows: usize) -> String {
    let row = format!("({})", vec!["?"; table.columns.len()].join(","));
    let mut text = format!("INSERT INTO {} ({}) VALUES ", table.name, table.columns.join(","));
    for number in 0..rows {
        let _ = write!(text, "{}{row}", if number > 0 { "," } else { "" });
    }
    text
}

/// Creates the tables and inserts all pages.
///
/// # Errors
///
/// If a table exists, or the database refuses a statement.
pub(crate) fn fill(store: &mut dyn WikiStore, pages: WikiPages) -> Result<()> {
    for statement in store.dialect().schema() {
        store.define(&statement)?;
    }
    let mut pending = PendingRows::default();
    let templates = add_names(&mut pending, pages);
    pending.store(store)?;
    for number in 1..=pages.count() {
        let page = pages.page(number);
        add_page(&mut pending, number, &page)?;
        if page.namespace == 0 {
            add_links(&mut pending, number, &page, &templates)?;
        }
        if number.is_multiple_of(PAGES_A_TRANSACTION) {
            pending.store(store)?;
        }
    }
    // The last row says that all others are there.
    let (count, articles) = (signed(pages.count())?, signed(pages.articles)?);
    let users = signed(USERS)?;
    pending.add(
        STATISTICS,
        vec![1.into(), count.into(), articles.into(), count.into(), users.into(), users.into(), 0.into()],
    );
    Ok(pending.store(store)?)
}

/// Returns an error unless the database has all of these pages.
pub(crate) fn check(store: &mut dyn WikiStore, pages: WikiPages) -> Result<()> {
    let found = store.query("SELECT ss_total_pages FROM site_stats WHERE ss_row_id = ?", &[1.into()])?;
    let expected = vec![vec![super::store::WikiValue::Integer(signed(pages.count())?)]];
    if found == expected {
        return Ok(());
    }
    Err(format!("the wiki has {found:?} pages, not {expected:?}: fill it with the same --pages").into())
}

fn signed(number: u64) -> WikiResult<i64> {
    i64::try_from(number).map_err(|error| WikiError::failed(format!("{number}: {error}")))
}

/// Adds what pages refer to by numbers. Returns the numbers of the templates.
fn add_names(pending: &mut PendingRows, pages: WikiPages) -> HashMap<String, i64> {
    let imported = || Parameter::from(time::timestamp(IMPORTED));
    pending.add(ROLES, vec![1.into(), "main".into()]);
    pending.add(MODELS, vec![1.into(), "wikitext".into()]);
    for user in (1..).take(USERS as usize) {
        let name = format!("Editor {user}");
        let touched = imported();
        pending.add(USER, vec![user.into(), name.clone().into(), "".into(), "".into(), "".into(), touched]);
        pending.add(ACTOR, vec![user.into(), user.into(), name.into()]);
    }
    for editor in 0..EDITORS {
        let actor = Parameter::Integer((USERS + 1 + editor).cast_signed());
        pending.add(ACTOR, vec![actor, Parameter::Null, address(editor).0.into()]);
    }
    for comment in (1..).take(COMMENTS as usize) {
        let text = format!("import {comment}");
        pending.add(COMMENT, vec![comment.into(), comment_hash(&text).into(), text.into()]);
    }
    let mut templates = HashMap::new();
    let all = (pages.articles + 1..=pages.count()).map(|number| pages.page(number));
    for (number, page) in (1_i64..).zip(all.filter(|page| page.namespace == TEMPLATE)) {
        pending.add(LINKTARGET, vec![number.into(), TEMPLATE.into(), page.title.clone().into()]);
        templates.insert(page.title, number);
    }
    templates
}

fn add_page(pending: &mut PendingRows, number: u64, page: &NewPage) -> WikiResult<()> {
    let id = signed(number)?;
    let (length, hash) = (page.text.len(), hash(page.text.as_bytes()));
    let imported = || Parameter::from(time::timestamp(IMPORTED + number));
    // MediaWiki draws it; it only has to be distributed.
    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64 / u64::MAX as f64;
    pending.add(
        PAGE,
        vec![
            id.into(),
            page.namespace.into(),
            page.title.clone().into(),
            0.into(),
            1.into(),
            Parameter::Real(random),
            imported(),
            imported(),
            id.into(),
            length.into(),
            "wikitext".into(),
        ],
    );
    let actor = Parameter::Integer((1 + number % USERS).cast_signed());
    pending.add(
        REVISION,
        vec![id.into(), id.into(), actor, imported(), length.into(), 0.into(), hash.clone().into()],
    );
    let comment = Parameter::Integer((1 + number % COMMENTS).cast_signed());
    pending.add(REVISION_COMMENT, vec![id.into(), comment]);
    pending.add(SLOTS, vec![id.into(), 1.into(), id.into(), id.into()]);
    pending.add(CONTENT, vec![id.into(), length.into(), hash.into(), 1.into(), format!("tt:{id}").into()]);
    pending.add(TEXT, vec![id.into(), page.text.clone().into(), "utf-8".into()]);
    if page.namespace == CATEGORY && number.is_multiple_of(CATEGORIES_A_HIDDEN) {
        pending.add(PROPS, vec![id.into(), "hiddencat".into(), "".into()]);
    }
    Ok(())
}

fn add_links(
    pending: &mut PendingRows,
    number: u64,
    page: &NewPage,
    templates: &HashMap<String, i64>,
) -> WikiResult<()> {
    let id = signed(number)?;
    let references = References::of(&page.text).without(&page.title);
    for title in references.links {
        pending.add(PAGELINKS, vec![id.into(), 0.into(), title.to_owned().into(), 0.into()]);
    }
    for title in references.templates {
        let target = templates.get(title);
        let target = target.ok_or_else(|| WikiError::failed(format!("there is no template {title}")))?;
        pending.add(TEMPLATELINKS, vec![id.into(), (*target).into(), 0.into()]);
    }
    for title in references.categories {
        pending.add(
            CATEGORYLINKS,
            vec![
                id.into(),
                title.to_owned().into(),
                page.title.to_uppercase().into(),
                time::timestamp(IMPORTED + number).into(),
                "uppercase".into(),
                "page".into(),
            ],
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_insert_has_all_rows() {
        let table = FilledTable { name: "t", columns: &["a", "b"] };
        assert_eq!(insert(table, 1), "INSERT INTO t (a,b) VALUES (?,?)");
        assert_eq!(insert(table, 3), "INSERT INTO t (a,b) VALUES (?,?),(?,?),(?,?)");
    }
}
