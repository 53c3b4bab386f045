//! The tests: Debian's source package of SQLite, and what is in its archive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::children::Children;
use crate::setup::Missing;
use crate::tcl::failed;

/// The one that is nearest to the SQLite that we contain.
const VERSION: &str = "3.53.4";
const SUITE: &str = "sid";
const SHA256: &str = "05366adc8ee80c6b1faa71285b49d133c2121238ca58934b077fdeb95934abd4";

/// SQLite's source tree below `folder`, fetched if it is not there.
pub(crate) fn provide(children: &Children, folder: &Path, missing: Missing) -> Result<PathBuf> {
    let tree = folder.join(format!("sqlite3-{VERSION}"));
    if tree.join("main.mk").is_file() {
        return Ok(tree);
    }
    let archive = folder.join(format!("sqlite3_{VERSION}.orig.tar.xz"));
    if !archive.is_file() {
        if missing == Missing::Report {
            return Err(format!("no {}", archive.display()));
        }
        fetch(children, folder)?;
    }
    let sum = output(children, Command::new("sha256sum").arg(&archive))?;
    if sum.split_whitespace().next() != Some(SHA256) {
        return Err(format!("{}: its SHA-256 is not {SHA256}", archive.display()));
    }
    // Another name until it is whole.
    let whole = folder.join("unpacked");
    let _ = fs::remove_dir_all(&whole);
    fs::create_dir_all(&whole).map_err(failed(&whole))?;
    children.check(Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(&whole))?;
    fs::rename(whole.join(format!("sqlite3-{VERSION}")), &tree).map_err(failed(&tree))?;
    Ok(tree)
}

/// Fetches the source package with lists of its own: those of the machine stay
/// as they are.
fn fetch(children: &Children, folder: &Path) -> Result<()> {
    let apt = folder.join("apt");
    for part in ["parts", "lists/partial", "cache/archives/partial"] {
        let part = apt.join(part);
        fs::create_dir_all(&part).map_err(failed(&part))?;
    }
    let list = apt.join("parts/source.sources");
    let configured =
        configured().ok_or("/etc/apt names no archive of Debian's: the tests of SQLite come from one")?;
    fs::write(&list, configured).map_err(failed(&list))?;
    let with_lists = |program: &str| {
        let mut command = Command::new(program);
        for (option, value) in [
            ("Dir::Etc::sourcelist", Path::new("/dev/null")),
            ("Dir::Etc::sourceparts", &apt.join("parts")),
            ("Dir::State::lists", &apt.join("lists")),
            ("Dir::Cache", &apt.join("cache")),
            // It may not read our folder otherwise.
            ("APT::Sandbox::User", Path::new("root")),
        ] {
            command.arg("-o").arg(format!("{option}={}", value.display()));
        }
        command.current_dir(folder);
        command
    };
    children.check(with_lists("apt-get").args(["update", "--quiet", "--quiet"]))?;
    let shown = output(children, with_lists("apt-cache").args(["showsrc", "sqlite3"]))?;
    let versions = shown.lines().filter_map(|line| line.strip_prefix("Version: "));
    let version = versions.into_iter().find(|version| version.starts_with(&format!("{VERSION}-"))).ok_or_else(|| {
        format!(
            "Debian's {SUITE} has no sqlite3 {VERSION} any more: put sqlite3_{VERSION}.orig.tar.xz into {}, or \
             change the version in xtask/src/tcl/source.rs",
            folder.display()
        )
    })?;
    let package = format!("sqlite3={version}");
    children.check(with_lists("apt-get").args([
        "source",
        "--quiet",
        "--download-only",
        "--tar-only",
        &package,
    ]))
}

/// The machine's own archive of Debian's, for the sources of the suite.
fn configured() -> Option<String> {
    let mut files: Vec<PathBuf> = vec!["/etc/apt/sources.list".into()];
    let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    files.extend(parts.map(|part| part.path()));
    files.sort();
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| sources(&text))
}

/// A list for the suite's sources, from one that names an archive.
fn sources(text: &str) -> Option<String> {
    let is_archive = |uri: &str| uri.trim_end_matches('/').ends_with("/debian");
    let list = |uri: &str, key: &str| {
        format!("Types: deb-src\nURIs: {uri}\nSuites: {SUITE}\nComponents: main\nSigned-By: {key}\n")
    };
    let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let one_line = text.lines().filter_map(|line| line.strip_prefix("deb ")).find_map(|line| {
        line.split_whitespace().find(|word| word.contains("://")).filter(|uri| is_archive(uri))
    });
    if let Some(uri) = one_line {
        return Some(list(uri, keyring));
    }
    text.split("\n\n").find_map(|stanza| {
        let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let uri = field("URIs:").filter(|uri| is_archive(uri))?;
        Some(list(uri, field("Signed-By:").unwrap_or(keyring)))
    })
}

/// What a command prints.
fn output(children: &Children, command: &mut Command) -> Result<String> {
    crate::tcl::printed(children, command.stdout(Stdio::piped()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_that_of_the_machine() {
        let expected = "Types: deb-src\nURIs: http://mirror.example/debian\nSuites: sid\nComponents: main\n\
                        Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n";
        let stanzas = "Types: deb\nURIs: http://mirror.example/debian-security\nSuites: x\n\n\
                       Types: deb\n# a comment\nURIs: http://mirror.example/debian\nSuites: bookworm\n\
                       Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n";
        assert_eq!(sources(stanzas).as_deref(), Some(expected));
        let lines = "deb-src http://other.example/debian x main\ndeb [arch=amd64] http://mirror.example/debian x main\n";
        assert_eq!(sources(lines).as_deref(), Some(expected));
        assert_eq!(sources("deb http://mirror.example/ubuntu x main\n"), None);
    }
}
