//! Installs a wiki on stock SQLite, and copies it to Yesquel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::http;
use super::site::{self, DATABASES, PROGRAM, WikiFolder};
use super::texts;
use crate::Result;
use crate::children::Children;
use crate::programs;
use crate::servers::process;
use crate::servers::yesquel::YesquelServers;
use crate::setup::Missing;

/// Commands that succeed where the packages are installed.
const NEEDED: &[(&[&str], &[&str])] = &[
    (&["test", "-f", "/usr/share/mediawiki/maintenance/install.php"], &["mediawiki"]),
    (
        &[
            "php",
            "-r",
            "exit(array_diff(['pdo_sqlite', 'mbstring', 'xml'], get_loaded_extensions()) ? 1 : 0);",
        ],
        &["php-cli", "php-sqlite3", "php-mbstring", "php-xml"],
    ),
];

/// Makes sure that MediaWiki and PHP are installed.
pub(super) fn provide(children: &Children, missing: Missing) -> Result<()> {
    programs::needed(children, NEEDED, missing)
}

/// Installs a wiki on stock SQLite and imports its pages.
pub(super) fn stock(children: &Children, pages: usize, seed: u64) -> Result<WikiFolder> {
    let wiki = WikiFolder::create(None)?;
    let mut install = wiki.php();
    install.arg(Path::new(PROGRAM).join("maintenance/install.php"));
    install.args(["--dbtype", "sqlite", "--dbname", "wiki", "--server", "http://127.0.0.1"]);
    install.args(["--scriptpath", "", "--pass", "Xtask-pass-12345", "--dbpath"]).arg(wiki.data());
    install.arg("--confpath").arg(wiki.path()).args(["Benchmark", "Admin"]);
    quietly(children, &mut install)?;
    let installed = read(&wiki.settings())?;
    write(&wiki.settings(), &site::settings(&installed, wiki.path()))?;
    import_pages(children, &wiki, pages, seed)?;
    view_all(children, &wiki, pages)?;
    // MediaWiki's installer does this for the other databases.
    let mode = wiki.ask(children, "wiki", "PRAGMA journal_mode=WAL")?;
    if mode != "wal" {
        return Err(format!("the wiki's database is in journal mode {mode}, not WAL"));
    }
    Ok(wiki)
}

/// Creates the pages.
fn import_pages(children: &Children, wiki: &WikiFolder, pages: usize, seed: u64) -> Result<()> {
    let folder = wiki.path().join("pages");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut import = wiki.php();
    import.arg(Path::new(PROGRAM).join("maintenance/importTextFiles.php")).arg("--rc");
    for page in 0..pages {
        let file = folder.join(format!("{}.txt", texts::title(page)));
        write(&file, &texts::text(page, pages, seed))?;
        import.arg(file);
    }
    quietly(children, &mut import)
}

/// Views each page once, so that both wikis begin with the same caches.
fn view_all(children: &Children, wiki: &WikiFolder, pages: usize) -> Result<()> {
    let server = wiki.serve(children)?;
    for page in 0..pages {
        let title = texts::title(page);
        let answer = http::get(server.port, &format!("/index.php?{}", http::form(&[("title", &title)])))?;
        if answer.status != 200 {
            return Err(format!("{title}: status {}: {}", answer.status, answer.body));
        }
    }
    server.end();
    Ok(())
}

/// Copies a wiki to databases of these servers.
pub(super) fn copy(
    children: &Children,
    stock: &WikiFolder,
    servers: &YesquelServers,
    program: &Path,
    library: PathBuf,
) -> Result<WikiFolder> {
    let wiki = WikiFolder::create(Some(library))?;
    for name in DATABASES {
        let address = servers.database(name);
        let mut import = yesquel(program, "import");
        children.check(import.arg("--quiet").arg(stock.database(name)).arg(&address))?;
        children.check(yesquel(program, "address-file").arg(&address).arg(wiki.database(name)))?;
    }
    let (old, new) = (stock.path().display().to_string(), wiki.path().display().to_string());
    let settings = read(&stock.settings())?.replace(&old, &new);
    write(&wiki.settings(), &(settings + site::IMMEDIATE))?;
    Ok(wiki)
}

/// Returns a command of Yesquel's program.
pub(super) fn yesquel(program: &Path, command: &str) -> Command {
    let mut yesquel = Command::new(program);
    yesquel.arg(command).env_remove("YESQUEL_CREDENTIAL_FILE");
    yesquel
}

/// Runs a command whose output is shown only if it fails.
fn quietly(children: &Children, command: &mut Command) -> Result<()> {
    let folder = process::folder("mediawiki")?;
    process::set_up(children, folder.path(), command)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
