//! `cargo xtask mediawiki`: Debian's MediaWiki on Yesquel's servers, beside the same wiki on stock
//! SQLite (section 6.3 of the paper).
//!
//! Both wikis begin with the same databases. Threads view and edit their pages over HTTP; the two
//! sides take turns. At the end every acknowledged edit must be in its page and in the page's
//! history, once, and each text must be the one that a replay of the history makes.

mod checks;
mod http;
mod install;
mod load;
mod report;
mod site;
mod texts;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::Result;
use crate::children::Children;
use crate::library;
use crate::servers::yesquel::{Transport, YesquelServers};
use crate::setup::Missing;
use checks::PageState;
use load::Load;
use report::Figures;
use site::{WebServer, WikiFolder};

/// Number of pages.
const PAGES: usize = 200;

/// Longest slice of the time after which the other side has its turn.
const SLICE_MAX: Duration = Duration::from_secs(60);
/// Number of turns of each side, if that makes the slices no longer than [`SLICE_MAX`].
const TURNS_MIN: u32 = 4;

/// Time without an answer that fails the run.
const STALL_MAX: Duration = Duration::from_secs(10);

/// Interval in which PHP must use no processor time to be idle, and the time limit for that.
const IDLE: Duration = Duration::from_millis(200);
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Number of problems that are printed.
const PROBLEMS_SHOWN: usize = 20;

/// Share of edits in a soak, percent.
const SOAK_EDITS: u64 = 25;

#[derive(Args)]
pub(crate) struct MediawikiArguments {
    /// Duration of the load, half of it for each side
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = minutes)]
    minutes: f64,
    /// Number of Yesquel's servers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    servers: u8,
    /// Edits among the requests; the others are views
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u64).range(0..=100))]
    edits: u64,
    /// Number of threads, each of which has one request in flight
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,
    /// Reach the servers by Unix sockets, as on one machine [default: by TCP]
    #[arg(long)]
    sockets: bool,
    /// Seed of the pages and of the requests [default: the clock]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

fn minutes(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= 10_000.0 => Ok(minutes),
        _ => Err("a number of minutes above 0, 10000 at most".to_owned()),
    }
}

/// Installs MediaWiki and runs the load; returns whether all checks passed.
pub(crate) fn mediawiki(arguments: &MediawikiArguments, children: &Children) -> Result<bool> {
    install::provide(children, Missing::Install)?;
    run(arguments, children)
}

/// The same for a soak, where it is skipped if MediaWiki cannot be installed.
pub(crate) fn part(limit: Duration, children: &Children) -> Result<bool> {
    if let Err(reason) = install::provide(children, Missing::Install) {
        println!("    skipped: {reason}");
        return Ok(true);
    }
    let minutes = (limit.as_secs_f64() / 60.0).max(1.0);
    let arguments =
        MediawikiArguments { minutes, servers: 3, edits: SOAK_EDITS, threads: 8, sockets: false, seed: None };
    run(&arguments, children)
}

/// A wiki under load.
struct Side {
    name: &'static str,
    wiki: WikiFolder,
    web: WebServer,
    /// Pages before the first edit.
    before: Vec<PageState>,
    figures: Figures,
}

/// Yesquel's servers and program.
struct Cluster {
    servers: YesquelServers,
    program: PathBuf,
}

impl Side {
    fn start(children: &Children, name: &'static str, wiki: WikiFolder) -> Result<Side> {
        wiki.check_engine(children)?;
        let web = wiki.serve(children)?;
        let before = checks::pages(web.port, PAGES)?;
        Ok(Side { name, wiki, web, before, figures: Figures::default() })
    }

    /// Runs a slice of the load.
    fn run(
        &mut self,
        children: &Children,
        load: Load,
        slice: u64,
        time: Duration,
        cluster: Option<&Cluster>,
    ) -> Result<String> {
        let servers = || cluster.map_or(Ok(Duration::ZERO), |cluster| cluster.servers.cpu());
        let (php_before, servers_before) = (self.web.cpu()?, servers()?);
        let done = load::run(load, self.web.port, slice, time, children)?;
        wait_until_idle(&self.web)?;
        self.figures.php_cpu += self.web.cpu()?.saturating_sub(php_before);
        self.figures.server_cpu += servers()?.saturating_sub(servers_before);
        let said = format!(
            "{}: {} requests in {:.1} s, {} failed, longest stall {:.2} s",
            self.name,
            done.finished.len(),
            done.took.as_secs_f64(),
            done.failures.len(),
            report::stall(&done).as_secs_f64(),
        );
        self.figures.add(done);
        Ok(said)
    }

    /// Returns what is wrong with the pages and the databases.
    fn problems(&self, children: &Children) -> Result<Vec<String>> {
        let after = checks::pages(self.web.port, PAGES)?;
        let mut problems = checks::edits(&self.before, &after, &self.figures.sent);
        problems.extend(checks::integrity(children, &self.wiki));
        Ok(problems.into_iter().map(|problem| format!("{}: {problem}", self.name)).collect())
    }

    /// Prints what MediaWiki has logged and which requests failed.
    fn print_errors(&self) {
        print_some(&format!("{}: failed requests", self.name), &self.figures.failures);
        print_some(&format!("{}: exceptions and errors of databases", self.name), &self.wiki.logged());
    }
}

/// Waits until PHP has done the updates that follow the last answers.
fn wait_until_idle(web: &WebServer) -> Result<()> {
    let deadline = Instant::now() + IDLE_MAX;
    let mut before = web.cpu()?;
    while Instant::now() < deadline {
        thread::sleep(IDLE);
        let now = web.cpu()?;
        if now == before {
            break;
        }
        before = now;
    }
    Ok(())
}

fn print_some(what: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    println!("{what}: {}", lines.len());
    for line in lines.iter().take(PROBLEMS_SHOWN) {
        println!("    {line}");
    }
}

/// Returns the number of turns of each side, and their length.
fn turns(minutes: f64) -> (u32, Duration) {
    let side = Duration::from_secs_f64(minutes * 30.0);
    let turns = ((side.as_secs_f64() / SLICE_MAX.as_secs_f64()).ceil() as u32).max(TURNS_MIN);
    (turns, side / turns)
}

fn run(arguments: &MediawikiArguments, children: &Children) -> Result<bool> {
    let by_clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let seed = arguments.seed.unwrap_or_else(by_clock);
    println!("    seed {seed}");
    let library = library::stand_in(children)?;
    let transport = if arguments.sockets { Transport::Sockets } else { Transport::Ports };
    let (servers, program) =
        YesquelServers::start_and_join(children, usize::from(arguments.servers), transport)?;
    let cluster = Cluster { servers, program };
    println!("    a wiki of {PAGES} pages on stock SQLite, and a copy at {} servers", arguments.servers);
    let wiki = install::stock(children, PAGES, seed)?;
    let copy = install::copy(children, &wiki, &cluster.servers, &cluster.program, library)?;
    let mut stock = Side::start(children, "stock SQLite", wiki)?;
    let mut yesquel = Side::start(children, "Yesquel", copy)?;
    let mut problems = checks::texts_differ(&stock.before, &yesquel.before);

    let Load { threads, .. } = take_turns(arguments, seed, children, (&mut stock, &mut yesquel), &cluster)?;
    for side in [&stock, &yesquel] {
        problems.extend(side.problems(children)?);
        side.print_errors();
    }
    problems.extend(checks::cluster(children, &cluster.servers, &cluster.program));
    let figures = &yesquel.figures;
    // Failures of stock SQLite are printed and do not fail the run.
    problems.extend(
        (!figures.failures.is_empty())
            .then(|| format!("{}: {} requests failed", yesquel.name, figures.failures.len())),
    );
    problems.extend((figures.stall > STALL_MAX).then(|| {
        format!("{}: no request was answered for {:.1} s", yesquel.name, figures.stall.as_secs_f64())
    }));
    println!("\n{}", report::table(&stock.figures, figures));
    println!("{threads} threads, {} % edits, {} servers", arguments.edits, arguments.servers);
    print_some("problems", &problems);
    if !problems.is_empty() {
        print!("{}", cluster.servers.logs());
    }
    Ok(problems.is_empty())
}

/// Runs the load on both sides in turn.
fn take_turns(
    arguments: &MediawikiArguments,
    seed: u64,
    children: &Children,
    (stock, yesquel): (&mut Side, &mut Side),
    cluster: &Cluster,
) -> Result<Load> {
    let load = Load { threads: arguments.threads, pages: PAGES, edit_percent: arguments.edits, seed };
    let (turns, time) = turns(arguments.minutes);
    for turn in 0..turns {
        let left = time * 2 * (turns - turn);
        println!("    turn {} of {turns}, {:.1} min left", turn + 1, left.as_secs_f64() / 60.0);
        let slice = u64::from(turn);
        println!("      {}", stock.run(children, load, slice, time, None)?);
        println!("      {}", yesquel.run(children, load, slice, time, Some(cluster))?);
    }
    Ok(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_several_and_short() {
        for (minutes, expected, seconds) in [(2.0, 4, 15), (20.0, 10, 60), (60.0, 30, 60), (61.0, 31, 59)] {
            let (turns, time) = turns(minutes);
            assert_eq!((turns, time.as_secs()), (expected, seconds), "{minutes}");
        }
    }
}
