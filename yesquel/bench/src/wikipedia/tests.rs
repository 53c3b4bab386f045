//! The laws of the workload, on Yesquel and on SQLite's own engine.

use super::*;
use crate::sql::SqlLocation;
use rusqlite::Connection;
use tempfile::TempDir;
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server};

/// Statements of a view: 16 queries as traced, and two transactions.
const STATEMENTS_OF_VIEW: u64 = 20;
/// Statements of an edit that replaces one link: as traced, without those that README.md leaves out.
const STATEMENTS_OF_EDIT: u64 = 71;

const PAGES: WikiPages = WikiPages { articles: 40, seed: 7 };

/// A wiki in a file or a folder, with another connection that looks at it.
struct SmallWiki {
    wiki: Wiki,
    target: String,
    _folder: TempDir,
}

impl SmallWiki {
    fn new(kind: &str) -> SmallWiki {
        let folder = TempDir::new().unwrap();
        let target = format!("{kind}:{}", folder.path().join("wiki").display());
        fill::fill(&mut *open(&target).unwrap(), PAGES).unwrap();
        let wiki = Wiki::new(PAGES, Popularity::Uniform { articles: PAGES.articles }, 0.0);
        SmallWiki { wiki, target, _folder: folder }
    }

    fn client(&self, thread: u64) -> WikiClient<'_> {
        WikiClient::new(&self.wiki, open(&self.target).unwrap(), thread).unwrap()
    }

    fn connection(&self) -> Connection {
        let (kind, rest) = self.target.split_once(':').unwrap();
        SqlLocation::of(kind, rest).unwrap().open().unwrap()
    }

    fn number(&self, query: &str) -> i64 {
        self.connection().query_row(query, [], |row| row.get(0)).unwrap()
    }
}

fn each_engine(test: impl Fn(&SmallWiki)) {
    for kind in ["folder", "sqlite"] {
        test(&SmallWiki::new(kind));
    }
}

#[test]
fn a_view_returns_the_text_by_the_traced_number_of_statements() {
    each_engine(|small| {
        let mut client = small.client(0);
        for article in 1..=PAGES.articles {
            let before = client.count;
            assert_eq!(client.view(article).unwrap(), PAGES.page(article).text);
            assert_eq!(client.count - before, STATEMENTS_OF_VIEW, "{}", small.target);
        }
        assert_eq!(client.conflicts, 0);
    });
}

#[test]
fn a_view_returns_what_the_last_edit_wrote() {
    each_engine(|small| {
        let (mut one, mut two) = (small.client(1), small.client(2));
        let before = one.count;
        one.edit(3, 5).unwrap();
        assert_eq!(one.count - before, STATEMENTS_OF_EDIT, "{}", small.target);
        two.edit(3, 6).unwrap();
        let text = one.view(3).unwrap();
        assert!(text.ends_with("\n\nEdited by 10.0.0.2, with [[Page_000006|a link]]."), "{text}");
        assert_eq!(small.number("SELECT count(*) FROM revision WHERE rev_page = 3"), 3);
        let latest = small.number("SELECT page_latest FROM page WHERE page_id = 3");
        assert_eq!(small.number("SELECT max(rev_id) FROM revision"), latest);
        assert_eq!(small.wiki.committed(3), latest);
        // The deferred updates.
        let links = "SELECT count(*) FROM pagelinks WHERE pl_from = 3";
        assert_eq!(
            small.number(links),
            text::References::of(&text).without("Page_000003").links.len() as i64
        );
        assert_eq!(small.number(&format!("{links} AND pl_title = 'Page_000006'")), 1);
        assert_eq!(small.number("SELECT count(*) FROM recentchanges WHERE rc_cur_id = 3"), 2);
        let edits = "SELECT ss_total_edits - ss_total_pages FROM site_stats";
        assert_eq!(small.number(edits), 2);
        assert_eq!(small.number("SELECT count(*) FROM ip_changes"), 2);
    });
}

#[test]
fn a_changed_text_is_found() {
    each_engine(|small| {
        let connection = small.connection();
        let changed = connection
            .execute("UPDATE text SET old_text = replace(old_text, 'Edited', 'edited') WHERE old_id = 2", []);
        assert_eq!(changed.unwrap(), 1);
        let mut client = small.client(0);
        client.view(1).unwrap();
        let error = client.view(2).unwrap_err().to_string();
        assert!(error.starts_with("the text of revision 2 has not the hash "), "{error}");
    });
}

#[test]
fn an_old_revision_is_found() {
    each_engine(|small| {
        small.wiki.commit(2, 1_000_000);
        let mut client = small.client(0);
        client.view(1).unwrap();
        for error in [client.view(2).unwrap_err(), client.edit(2, 1).unwrap_err()] {
            assert_eq!(
                error.to_string(),
                "page 2: read revision 2, but 1000000 was committed before",
                "{}",
                small.target
            );
        }
    });
}

#[test]
fn threads_edit_the_same_pages() {
    each_engine(|small| {
        let plan = WikipediaPlan {
            target: small.target.clone(),
            pages: PAGES.articles,
            seed: PAGES.seed,
            edits: 0.5,
            uniform: false,
            threads: 4,
            warm_up: Duration::ZERO,
            end: RunEnd::Pages(81),
            rate: 0.0,
            process: 0,
        };
        let result = run(&plan).unwrap();
        assert_eq!(result["operations"], 81, "{result}");
        assert_eq!(result["statements_of_view"].as_f64(), Some(STATEMENTS_OF_VIEW as f64));
        let edits = small.number("SELECT ss_total_edits - ss_total_pages FROM site_stats");
        assert!((20..62).contains(&edits), "{edits}");
        assert_eq!(small.number("SELECT count(*) FROM recentchanges"), edits);
        assert_eq!(small.number("SELECT count(*) FROM revision") - PAGES.count() as i64, edits);
        // Each revision has the one before as its parent: no edit is lost.
        let lost = "SELECT count(*) FROM (SELECT rev_parent_id FROM revision \
                    WHERE rev_parent_id > 0 GROUP BY rev_parent_id HAVING count(*) > 1)";
        assert_eq!(small.number(lost), 0);
    });
}

#[test]
fn a_wiki_of_another_size_is_refused() {
    let small = SmallWiki::new("sqlite");
    let more = WikiPages { articles: 41, ..PAGES };
    let error = fill::check(&mut *open(&small.target).unwrap(), more).unwrap_err().to_string();
    assert!(error.ends_with("fill it with the same --pages"), "{error}");
    assert!(open("redis:a:1").is_err());
}

#[test]
fn a_part_is_within_0_and_1() {
    assert_eq!((part("0.25"), part("1")), (Ok(0.25), Ok(1.0)));
    assert!(["1.5", "-1", "NaN", "x"].iter().all(|text| part(text).is_err()));
}

/// Requests of a view of a small wiki whose leaves the client has found: some of the 16 queries read
/// an index and its table.
const REQUESTS_OF_VIEW: f64 = 20.0;

#[test]
fn a_view_takes_known_round_trips() {
    for groups in [1, 3] {
        let address: Address = "127.0.0.1:0".parse().unwrap();
        let listen = ListenOptions { addresses: vec![address], groups, ..ListenOptions::default() };
        let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
        let target = format!("sql:{}", server.addresses()[0]);
        fill::fill(&mut *open(&target).unwrap(), PAGES).unwrap();
        let wiki = Wiki::new(PAGES, Popularity::zipf(PAGES.articles), 0.0);
        let mut client = WikiClient::new(&wiki, open(&target).unwrap(), 0).unwrap();
        let servers = Servers::of(&target).unwrap();
        assert_eq!(servers.requests().unwrap().len(), usize::from(groups));
        let mut views = || {
            let before = servers.all_requests().unwrap();
            for article in 1..=PAGES.articles {
                client.view(article).unwrap();
            }
            let after = servers.all_requests().unwrap();
            let commits = after.commits + after.prepares - before.commits - before.prepares;
            ((after.reads - before.reads) as f64 / PAGES.articles as f64, commits)
        };
        // The first views find the leaves, which the server may still split by commits of its own.
        let seen: Vec<(f64, u64)> = (0..10).map(|_| views()).collect();
        assert!(seen.contains(&(REQUESTS_OF_VIEW, 0)), "{groups} groups: {seen:?}");
        assert!(seen.iter().all(|(requests, _)| *requests >= REQUESTS_OF_VIEW), "{groups} groups: {seen:?}");
    }
}
