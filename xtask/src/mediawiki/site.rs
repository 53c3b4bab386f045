//! A wiki: a folder with its databases and settings, and PHP's own server for it.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::Result;
use crate::children::Children;
use crate::cpu;
use crate::servers::process::{self, ServerProcess};

/// Where Debian's package keeps the program.
pub(super) const PROGRAM: &str = "/usr/share/mediawiki";

/// The databases of a wiki: pages, jobs, messages, and the parser's cache with the sessions.
pub(super) const DATABASES: [&str; 4] = ["wiki", "wiki_jobqueue", "wiki_l10n_cache", "wikicache"];

/// PHP processes that serve one wiki.
const WORKERS: &str = "8";

/// It takes 0.1 s on an idle machine.
const START_SECONDS_MAX: u64 = 20;
const END_SECONDS_MAX: u64 = 10;

/// Log of MediaWiki's exceptions, also of those after the answer.
const EXCEPTIONS: &str = "exceptions.log";
/// Log of MediaWiki's errors of databases.
const DATABASE_ERRORS: &str = "database-errors.log";

/// A wiki's folder. Dropping it removes it.
pub(super) struct WikiFolder {
    folder: TempDir,
    /// Folder of the library that replaces SQLite's.
    library: Option<PathBuf>,
}

impl WikiFolder {
    /// Creates the folder of a wiki that runs on this library, otherwise on the system's.
    pub(super) fn create(library: Option<PathBuf>) -> Result<WikiFolder> {
        let wiki = WikiFolder { folder: process::folder("mediawiki")?, library };
        // MediaWiki's own locks are files beside the databases.
        let locks = wiki.data().join("locks");
        fs::create_dir_all(&locks).map_err(|error| format!("{}: {error}", locks.display()))?;
        Ok(wiki)
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of the databases.
    pub(super) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// The file of a database, or the file with its address.
    pub(super) fn database(&self, name: &str) -> PathBuf {
        self.data().join(format!("{name}.sqlite"))
    }

    pub(super) fn settings(&self) -> PathBuf {
        self.path().join("LocalSettings.php")
    }

    /// Returns a command that runs PHP with this wiki's settings and library.
    pub(super) fn php(&self) -> Command {
        let mut command = Command::new("php");
        command.env("MW_CONFIG_FILE", self.settings()).env_remove("YESQUEL_CREDENTIAL_FILE");
        match &self.library {
            Some(library) => command.env("LD_LIBRARY_PATH", library),
            None => command.env_remove("LD_LIBRARY_PATH"),
        };
        command
    }

    /// Runs a statement in a database and returns the first column of its last row.
    pub(super) fn ask(&self, children: &Children, database: &str, statement: &str) -> Result<String> {
        let script = "$db = new PDO('sqlite:' . $argv[1]);\
                      $db->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);\
                      $rows = $db->query($argv[2])->fetchAll(PDO::FETCH_NUM); echo end($rows)[0];";
        let mut command = self.php();
        command.args(["-r", script]).arg(self.database(database)).arg(statement);
        Ok(children.printed(&mut command)?.trim().to_owned())
    }

    /// Returns an error unless the wiki's databases are in the engine that it is meant to run on.
    pub(super) fn check_engine(&self, children: &Children) -> Result<()> {
        for database in DATABASES {
            let place = self.ask(children, database, "SELECT file FROM pragma_database_list")?;
            if place.starts_with("yesquel:") != self.library.is_some() {
                return Err(format!("database {database} is open at {place}, by the wrong library"));
            }
        }
        Ok(())
    }

    /// Starts PHP's own server.
    pub(super) fn serve(&self, children: &Children) -> Result<WebServer> {
        process::on_a_port(None, children, |port| {
            let mut command = self.php();
            command.env("PHP_CLI_SERVER_WORKERS", WORKERS);
            command.args(["-S", &format!("{}:{port}", Ipv4Addr::LOCALHOST), "-t", PROGRAM]);
            let process = ServerProcess::start(children, "php", process::folder("php")?, &mut command)?;
            process.wait_until_ready(START_SECONDS_MAX, || {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
                stream.map(drop).map_err(|error| error.to_string())
            })?;
            Ok(WebServer { process, port })
        })
    }

    /// Returns what MediaWiki has logged: exceptions, and errors of databases.
    pub(super) fn logged(&self) -> Vec<String> {
        let log = |name: &str| fs::read_to_string(self.path().join(name)).unwrap_or_default();
        let mut logged = exceptions(&log(EXCEPTIONS));
        logged.extend(database_errors(&log(DATABASE_ERRORS)));
        logged
    }
}

/// Returns the first line of each exception in a log, without those that it has twice.
fn exceptions(log: &str) -> Vec<String> {
    // The first line begins with the date; lines of a statement and a stack trace do not.
    let mut first: Vec<&str> = log.lines().filter(|line| line.starts_with("20")).collect();
    first.dedup();
    first.into_iter().map(str::to_owned).collect()
}

/// Returns the first line of each error in a log.
fn database_errors(log: &str) -> impl Iterator<Item = String> {
    // It has the name of the wiki between tabs; lines of a statement and a stack trace have not.
    log.lines().filter(|line| line.contains("\twiki\t")).map(str::to_owned)
}

/// PHP's own server. Dropping it ends it.
pub(super) struct WebServer {
    process: ServerProcess,
    pub(super) port: u16,
}

impl WebServer {
    /// Returns the processor time of all its processes.
    pub(super) fn cpu(&self) -> Result<Duration> {
        cpu::of_group(self.process.pid())
    }

    /// Ends it in order, so that it closes its databases.
    pub(super) fn end(self) {
        self.process.end_with(Signal::INT, END_SECONDS_MAX);
    }
}

/// Returns settings for a wiki in this folder, from those of MediaWiki's installer.
pub(super) fn settings(installed: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "{installed}
$wgServer = 'http://127.0.0.1:' . ( $_SERVER['SERVER_PORT'] ?? 80 );
# The messages are in a database, too.
$wgCacheDirectory = false;
# By default an address may edit eight times a minute.
$wgRateLimits = [];
$wgShowExceptionDetails = true;
$wgDebugLogGroups['exception'] = '{folder}/{EXCEPTIONS}';
$wgDBerrorLog = '{folder}/{DATABASE_ERRORS}';
"
    )
}

/// Settings with which requests begin transactions by BEGIN IMMEDIATE.
pub(super) const IMMEDIATE: &str = "
$wgDBservers = [ [
	'type' => 'sqlite', 'host' => '', 'user' => '', 'password' => '', 'dbname' => $wgDBname,
	'load' => 1, 'flags' => DBO_DEFAULT, 'trxMode' => 'IMMEDIATE',
] ];
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_one_line() {
        let lost = "2026-11-27 02:10:32 vm wiki: [c87b] /api.php   RuntimeException: Could not acquire lock";
        let locked = "2026-11-27 02:10:33 vm wiki: [988a] /index.php   DBQueryError: Error 5";
        let log = format!("{lost}\n#0 /usr(1): a()\n{lost}\n{locked}\nFunction: b\nQuery: UPDATE t\n");
        assert_eq!(exceptions(&log), [lost, locked]);
    }

    #[test]
    fn an_error_of_a_database_is_one_line() {
        let locked = "Fri Nov 27 2:10:33 UTC 2026\tvm\twiki\tError 5 from a(), database is locked";
        let log = format!("{locked}\n#0 /usr(1): a()\n");
        assert_eq!(database_errors(&log).collect::<Vec<_>>(), [locked]);
    }

    #[test]
    fn settings_follow_the_installer() {
        let settings = settings("<?php\n$wgDBname = 'wiki';", Path::new("/folder"));
        assert!(settings.starts_with("<?php\n"));
        assert!(settings.contains("$wgDBerrorLog = '/folder/database-errors.log';"), "{settings}");
    }
}
