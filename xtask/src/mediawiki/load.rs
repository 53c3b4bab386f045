//! Threads that view and edit pages, and what they have seen.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::http::{self, HttpAnswer};
use super::texts::{self, Random, Zipf};
use crate::Result;
use crate::children::Children;

/// The load of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) threads: u64,
    pub(super) pages: usize,
    /// Edits among the requests, percent.
    pub(super) edit_percent: u64,
    pub(super) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    View,
    Edit,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct FinishedRequest {
    pub(super) kind: RequestKind,
    /// Time of the answer, since the start of the slice.
    pub(super) at: Duration,
    /// Response time.
    pub(super) took: Duration,
}

/// Result of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EditOutcome {
    /// Acknowledged, with the number of the new revision.
    Saved { revision: u64 },
    /// Refused, because another edit of the page came between its read and its write.
    Conflict,
    /// Anything else: it may have been saved or not.
    Unknown,
}

/// An edit that was sent: it appends a line to a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) page: usize,
    /// Text that no other edit has. It is in the line and the summary.
    pub(super) mark: String,
    pub(super) outcome: EditOutcome,
}

impl Edit {
    /// Returns what an edit with this mark appends.
    pub(super) fn line(mark: &str) -> String {
        format!("\n* line {mark}")
    }
}

/// What the threads of a slice have seen.
#[derive(Debug, Default)]
pub(super) struct Slice {
    pub(super) took: Duration,
    pub(super) finished: Vec<FinishedRequest>,
    pub(super) edits: Vec<Edit>,
    /// Requests without a proper answer, with the reason.
    pub(super) failures: Vec<String>,
}

impl Slice {
    fn add(&mut self, other: Slice) {
        self.finished.extend(other.finished);
        self.edits.extend(other.edits);
        self.failures.extend(other.failures);
    }
}

/// Runs the load for a time. The same slice has the same requests at both sides, as far as their
/// speed allows.
pub(super) fn run(load: Load, port: u16, slice: u64, time: Duration, children: &Children) -> Result<Slice> {
    let started = Instant::now();
    let law = Zipf::new(load.pages);
    let threads: Vec<thread::Result<Slice>> = thread::scope(|scope| {
        let started: Vec<_> = (0..load.threads)
            .map(|number| {
                let thread = LoadThread {
                    load,
                    port,
                    number,
                    slice,
                    random: Random::new(load.seed, &[slice, number]),
                    law: &law,
                    started,
                    seen: Slice::default(),
                };
                scope.spawn(move || thread.run(time, children))
            })
            .collect();
        started.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut all = Slice { took: started.elapsed(), ..Slice::default() };
    for thread in threads {
        all.add(thread.map_err(|_panic| "a thread of the load panicked".to_owned())?);
    }
    if children.interrupted().is_some() {
        return Err("interrupted".to_owned());
    }
    all.finished.sort_by_key(|finished| finished.at);
    Ok(all)
}

struct LoadThread<'a> {
    load: Load,
    port: u16,
    number: u64,
    /// The number of the slice.
    slice: u64,
    random: Random,
    law: &'a Zipf,
    started: Instant,
    seen: Slice,
}

impl LoadThread<'_> {
    fn run(mut self, time: Duration, children: &Children) -> Slice {
        while self.started.elapsed() < time && children.interrupted().is_none() {
            if self.random.below(100) < self.load.edit_percent {
                self.edit();
            } else {
                self.view();
            }
        }
        self.seen
    }

    fn view(&mut self) {
        let title = texts::title(self.law.page(&mut self.random));
        let begun = Instant::now();
        let answer = http::get(self.port, &format!("/index.php?{}", http::form(&[("title", &title)])));
        self.finish(RequestKind::View, begun);
        if let Err(reason) = answer.and_then(|answer| viewed(&answer)) {
            self.seen.failures.push(format!("view of {title}: {reason}"));
        }
    }

    fn edit(&mut self) {
        let done = self.seen.edits.len() as u64;
        let page = edited_page(self.load, self.number, self.slice + done);
        let mark = format!("{}-{}-{done}", self.slice, self.number);
        let begun = Instant::now();
        let answer = save(self.port, page, &mark);
        self.finish(RequestKind::Edit, begun);
        let outcome = answer.and_then(|answer| edited(&answer)).unwrap_or_else(|reason| {
            self.seen.failures.push(format!("edit {mark} of {}: {reason}", texts::title(page)));
            EditOutcome::Unknown
        });
        self.seen.edits.push(Edit { page, mark, outcome });
    }

    fn finish(&mut self, kind: RequestKind, begun: Instant) {
        let at = self.started.elapsed();
        self.seen.finished.push(FinishedRequest { kind, at, took: begun.elapsed() });
    }
}

/// Returns the page that a thread edits at a step: it edits pages of its own in turn.
///
/// MediaWiki has a lock file for the links of a page. A request that has begun by BEGIN IMMEDIATE
/// waits for it, and the request that has it waits for BEGIN IMMEDIATE: a deadlock of 15 s with
/// stock SQLite, where MediaWiki gives up, and of 10 s with Yesquel, where the lease of the silent
/// request expires. It takes two edits of one page at a time.
fn edited_page(load: Load, thread: u64, step: u64) -> usize {
    let own = (load.pages as u64).saturating_sub(thread).div_ceil(load.threads).max(1);
    (thread + load.threads * (step % own)) as usize
}

/// Appends a line to a page.
fn save(port: u16, page: usize, mark: &str) -> Result<HttpAnswer> {
    let fields = [
        ("action", "edit"),
        ("format", "json"),
        ("title", &texts::title(page)),
        ("appendtext", &Edit::line(mark)),
        ("summary", mark),
        // The token of clients without an account.
        ("token", "+\\"),
    ];
    http::post(port, "/api.php", &fields)
}

/// Checks the answer of a view.
fn viewed(answer: &HttpAnswer) -> Result<()> {
    if answer.status == 200 && answer.body.trim_end().ends_with("</html>") {
        Ok(())
    } else {
        Err(unexpected(answer))
    }
}

/// Parses the answer of an edit.
fn edited(answer: &HttpAnswer) -> Result<EditOutcome> {
    let value: Value = serde_json::from_str(&answer.body).map_err(|_error| unexpected(answer))?;
    let saved = &value["edit"];
    match (saved["result"].as_str(), saved["newrevid"].as_u64(), value["error"]["code"].as_str()) {
        _ if answer.status != 200 => Err(unexpected(answer)),
        (Some("Success"), Some(revision), None) => Ok(EditOutcome::Saved { revision }),
        (None, None, Some("editconflict")) => Ok(EditOutcome::Conflict),
        _ => Err(unexpected(answer)),
    }
}

/// Describes an answer in a line.
fn unexpected(answer: &HttpAnswer) -> String {
    let text: Vec<&str> = answer.body.split_whitespace().collect();
    let text: String = text.join(" ").chars().take(500).collect();
    format!("status {}: {text}", answer.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> HttpAnswer {
        HttpAnswer { status, body: body.to_owned() }
    }

    #[test]
    fn no_two_threads_edit_one_page() {
        for (threads, pages) in [(8, 200), (7, 200), (64, 200), (1, 3)] {
            let load = Load { threads, pages, edit_percent: 25, seed: 1 };
            let mut editors = vec![None; pages];
            for thread in 0..threads {
                for step in 0..1_000 {
                    let editor = editors[edited_page(load, thread, step)].get_or_insert(thread);
                    assert_eq!(*editor, thread);
                }
                // The same page comes again after all others of the thread.
                let fewest = pages as u64 / threads;
                let first = edited_page(load, thread, 5);
                assert!((6..5 + fewest).all(|step| edited_page(load, thread, step) != first));
            }
            assert!(editors.iter().all(Option::is_some), "{threads} threads edit all pages");
        }
    }

    #[test]
    fn only_a_whole_page_is_viewed() {
        assert_eq!(viewed(&answer(200, "<html>a</html>\n")), Ok(()));
        for wrong in [answer(500, "<html></html>"), answer(200, "<html>cut"), answer(200, "")] {
            assert!(viewed(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_edit_is_saved_refused_or_unknown() {
        let saved = r#"{"edit":{"result":"Success","pageid":2,"oldrevid":5,"newrevid":6}}"#;
        assert_eq!(edited(&answer(200, saved)), Ok(EditOutcome::Saved { revision: 6 }));
        let conflict = r#"{"error":{"code":"editconflict","info":"Edit conflict."}}"#;
        assert_eq!(edited(&answer(200, conflict)), Ok(EditOutcome::Conflict));
        for (status, body) in [
            (500, saved),
            (200, r#"{"edit":{"result":"Failure"}}"#),
            (200, r#"{"edit":{"result":"Success","nochange":""}}"#),
            (200, r#"{"error":{"code":"internal_api_error_DBQueryError"}}"#),
            (200, "<html></html>"),
        ] {
            assert!(edited(&answer(status, body)).is_err(), "{body}");
        }
    }
}
