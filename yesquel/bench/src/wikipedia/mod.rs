//! A wiki as Wikipedia's, by the statements that MediaWiki makes for a page view and for an edit
//! (section 6.3 of the paper): `yesquel/bench/wikipedia` has the traced statements and the tables.
//!
//! | | the paper | here |
//! |---|---|---|
//! | pages | 190,000 of Simple English Wikipedia, 430 MB | as many made ones, log-normal sizes with the same mean |
//! | statements of a view | at least 13, and one for each link | 16, and four that begin and end transactions |
//! | links of a page | a query each | one query with a list, as MediaWiki 1.39 has it |
//! | popularity | uniform | Zipf's law, or uniform |
//! | edits | none | a part of the pages |

mod client;
mod edit;
mod fill;
#[cfg(feature = "mariadb")]
mod maria;
mod popularity;
mod rows;
mod statements;
mod store;
mod text;
mod time;
mod view;

use crate::{
    Result, cluster,
    measure::{LoadSchedule, ThreadWork, measure},
    sql::SqlLocation,
};
use client::{PageCount, Wiki, WikiClient};
use popularity::Popularity;
use serde_json::{Value, json};
use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};
use store::{SqliteWiki, WikiStore};
use text::WikiPages;
use yesquel::{Store, status::RequestStatus};

/// Limit of the articles: titles have six digits.
pub(crate) const ARTICLES_MAX: u64 = 999_999;

/// Parameters of the workload.
#[derive(Debug)]
pub(crate) struct WikipediaPlan {
    pub(crate) target: String,
    /// Number of articles, `1..=ARTICLES_MAX`.
    pub(crate) pages: u64,
    /// Seed of the texts and of the choices.
    pub(crate) seed: u64,
    /// Part of the pages that are edited, 0 to 1.
    pub(crate) edits: f64,
    /// Whether articles are chosen uniformly; otherwise by Zipf's law.
    pub(crate) uniform: bool,
    /// Connections, each with a thread.
    pub(crate) threads: u32,
    pub(crate) warm_up: Duration,
    pub(crate) end: RunEnd,
    /// Pages a second of all threads together; 0: as fast as answers come.
    pub(crate) rate: f64,
    /// Which of several processes it is: its choices follow from it.
    pub(crate) process: u64,
}

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunEnd {
    After(Duration),
    /// After this number of pages of all threads together, divided evenly. Nothing is left out.
    Pages(u64),
}

/// Parses a part, 0 to 1.
pub(crate) fn part(text: &str) -> std::result::Result<f64, String> {
    let part: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..=1.0).contains(&part) { Ok(part) } else { Err(format!("{text} is not within 0 to 1")) }
}

/// Opens a connection to a wiki's database.
fn open(target: &str) -> Result<Box<dyn WikiStore>> {
    match target.split_once(':') {
        #[cfg(feature = "mariadb")]
        Some(("mariadb", address)) => Ok(Box::new(maria::MariaWiki::connect(address)?)),
        #[cfg(not(feature = "mariadb"))]
        Some(("mariadb", _)) => Err("this program was built without its feature 'mariadb'".into()),
        Some((kind, rest)) if let Some(place) = SqlLocation::of(kind, rest) => {
            Ok(Box::new(SqliteWiki::new(place.open()?)?))
        }
        _ => Err(format!(
            "a wiki is at sql:ADDRESS, folder:FOLDER, sqlite:FILE or mariadb:ADDRESS, not at '{target}'"
        )
        .into()),
    }
}

/// Servers of the target, for their counters; none if it is not Yesquel's.
struct Servers(Option<Store>);

impl Servers {
    fn of(target: &str) -> Result<Servers> {
        let Some(("sql", addresses)) = target.split_once(':') else { return Ok(Servers(None)) };
        Ok(Servers(Some(cluster::connect(addresses)?)))
    }

    /// Returns the requests to each group so far, in the order of the groups.
    fn requests(&self) -> Result<Vec<RequestStatus>> {
        let Some(store) = &self.0 else { return Ok(Vec::new()) };
        let of = |group| Ok(store.status_of(group)?.requests);
        cluster::groups(store)?.into_iter().map(of).collect()
    }

    /// Returns the requests to all groups so far.
    fn all_requests(&self) -> Result<RequestStatus> {
        self.0.as_ref().map_or_else(|| Ok(RequestStatus::default()), cluster::requests)
    }
}

/// Creates the wiki.
pub(crate) fn load(plan: &WikipediaPlan) -> Result<Value> {
    let begun = Instant::now();
    let pages = WikiPages { articles: plan.pages, seed: plan.seed };
    fill::fill(&mut *open(&plan.target)?, pages)?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(json!({ "pages": pages.count(), "seconds": seconds }))
}

/// A thread's client, and the number of pages that it still has to view or edit.
struct WikiWorker<'a> {
    client: WikiClient<'a>,
    left: Option<u64>,
}

impl ThreadWork for WikiWorker<'_> {
    fn step(&mut self) -> Result<u64> {
        let wiki = self.client.wiki;
        let article = wiki.popularity.article(&mut self.client.random);
        let before = self.client.count;
        let count = if text::unit(&mut self.client.random) < wiki.edits {
            let link = wiki.popularity.article(&mut self.client.random);
            self.client.edit(article, link)?;
            &wiki.edited
        } else {
            self.client.view(article)?;
            &wiki.viewed
        };
        count.pages.fetch_add(1, Relaxed);
        count.statements.fetch_add(self.client.count - before, Relaxed);
        self.left = self.left.map(|left| left - 1);
        Ok(1)
    }

    fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    fn take_aborts(&mut self) -> u64 {
        std::mem::take(&mut self.client.conflicts)
    }
}

/// Views and edits pages.
pub(crate) fn run(plan: &WikipediaPlan) -> Result<Value> {
    let pages = WikiPages { articles: plan.pages, seed: plan.seed };
    fill::check(&mut *open(&plan.target)?, pages)?;
    let popularity = match plan.uniform {
        true => Popularity::Uniform { articles: plan.pages },
        false => Popularity::zipf(plan.pages),
    };
    let wiki = Wiki::new(pages, popularity, plan.edits);
    let servers = Servers::of(&plan.target)?;
    let (threads, process) = (u64::from(plan.threads), plan.process);
    let worker = |thread: u32| -> Result<WikiWorker<'_>> {
        let thread = u64::from(thread);
        let client = WikiClient::new(&wiki, open(&plan.target)?, process * threads + thread)?;
        let left = match plan.end {
            RunEnd::After(_) => None,
            RunEnd::Pages(pages) => Some(pages / threads + u64::from(thread < pages % threads)),
        };
        Ok(WikiWorker { client, left })
    };
    let schedule = LoadSchedule {
        threads: plan.threads,
        warm_up: if matches!(plan.end, RunEnd::Pages(_)) { Duration::ZERO } else { plan.warm_up },
        measured: match plan.end {
            RunEnd::After(measured) => Some(measured),
            RunEnd::Pages(_) => None,
        },
        rate: plan.rate,
    };
    let before = servers.requests()?;
    let mut result = measure(&schedule, worker, || servers.all_requests())?;
    let after = servers.requests()?;
    // With those of the warm-up.
    let by_group = after.iter().zip(&before).map(|(after, before)| {
        after.reads + after.commits + after.prepares - before.reads - before.commits - before.prepares
    });
    result["requests_by_group"] = by_group.collect();
    result["statements_of_view"] = mean(&wiki.viewed);
    result["statements_of_edit"] = mean(&wiki.edited);
    Ok(result)
}

/// Returns the statements of a page, or null without a page.
fn mean(count: &PageCount) -> Value {
    let (pages, statements) = (count.pages.load(Relaxed), count.statements.load(Relaxed));
    if pages == 0 { Value::Null } else { json!(statements as f64 / pages as f64) }
}

#[cfg(test)]
mod tests;
