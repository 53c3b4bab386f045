//! Source archives of Debian's packages, fetched by apt with separate lists, so that the machine's
//! own lists stay unchanged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::children::Children;

/// Fetches the upstream archive of a source package into `folder` and returns its path. The archive
/// is from the machine's own suites, or from the named one. apt verifies it by the signed lists.
pub(crate) fn archive(
    children: &Children,
    folder: &Path,
    (package, version): (&str, &str),
    suite: Option<&str>,
) -> Result<PathBuf> {
    let begins = format!("{package}_{version}.orig.tar.");
    let there = || {
        let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        files.filter(|file| file.is_file()).find(|file| {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(&begins) && !name.ends_with(".asc")
        })
    };
    if let Some(archive) = there() {
        return Ok(archive);
    }
    let apt = folder.join("apt");
    for part in ["parts", "lists/partial", "cache/archives/partial"] {
        let part = apt.join(part);
        fs::create_dir_all(&part).map_err(|error| format!("{}: {error}", part.display()))?;
    }
    let list = apt.join("parts/source.sources");
    let sources = configured(suite).ok_or("/etc/apt names no archive of Debian's")?;
    fs::write(&list, sources).map_err(|error| format!("{}: {error}", list.display()))?;
    let apt_get = || {
        let mut command = Command::new("apt-get");
        for (option, value) in [
            ("Dir::Etc::sourcelist", Path::new("/dev/null")),
            ("Dir::Etc::sourceparts", &apt.join("parts")),
            ("Dir::State::lists", &apt.join("lists")),
            ("Dir::Cache", &apt.join("cache")),
            // Otherwise apt's user may not read the folder.
            ("APT::Sandbox::User", Path::new("root")),
        ] {
            command.arg("-o").arg(format!("{option}={}", value.display()));
        }
        command.current_dir(folder);
        command
    };
    children.check(apt_get().args(["update", "--quiet", "--quiet"]))?;
    children.check(apt_get().args(["source", "--quiet", "--download-only", "--tar-only", package]))?;
    there().ok_or_else(|| {
        format!(
            "Debian's source of {package} is not of version {version} any more: put {begins}xz into {}, or change the \
             version that xtask wants",
            folder.display()
        )
    })
}

/// The machine's own lists, for sources.
fn configured(suite: Option<&str>) -> Option<String> {
    let mut files: Vec<PathBuf> = vec!["/etc/apt/sources.list".into()];
    let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    files.extend(parts.map(|part| part.path()));
    files.sort();
    let texts: Vec<String> = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    let stanzas: Vec<String> = texts.iter().flat_map(|text| stanzas(text, suite)).collect();
    (!stanzas.is_empty()).then(|| stanzas.join("\n"))
}

/// The archives of a list, of either form, as those of sources. Only the main
/// archive has every suite.
fn stanzas(text: &str, suite: Option<&str>) -> Vec<String> {
    let is_archive = |uri: &str| match suite {
        Some(_) => uri.trim_end_matches('/').ends_with("/debian"),
        None => uri.contains("debian"),
    };
    let of_sources = text
        .split("\n\n")
        .filter(|stanza| {
            stanza.lines().filter_map(|line| line.strip_prefix("URIs:")).any(|uri| is_archive(uri.trim()))
        })
        .map(|stanza| {
            let lines = stanza.trim().lines().filter(|line| !line.starts_with('#'));
            lines
                .map(|line| {
                    if line.starts_with("Types:") {
                        "Types: deb-src\n".to_owned()
                    } else if let (true, Some(suite)) = (line.starts_with("Suites:"), suite) {
                        format!("Suites: {suite}\n")
                    } else {
                        format!("{line}\n")
                    }
                })
                .collect()
        });
    let of_lines = text.lines().filter_map(|line| line.strip_prefix("deb ")).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().skip_while(|word| !word.contains("://")).collect();
        let (uri, rest) = words.split_first().filter(|(uri, _)| is_archive(uri))?;
        let (own, components) = rest.split_first()?;
        let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let suite = suite.unwrap_or(own);
        Some(format!(
            "Types: deb-src\nURIs: {uri}\nSuites: {suite}\nComponents: {}\nSigned-By: {key}\n",
            components.join(" ")
        ))
    });
    of_sources.chain(of_lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_packages_become_lists_of_sources() {
        let stanza =
            "Types: deb\n# when\nURIs: http://mirror.example/debian\nSuites: a b\nComponents: main\n";
        let expected = "Types: deb-src\nURIs: http://mirror.example/debian\nSuites: a b\nComponents: main\n";
        assert_eq!(stanzas(stanza, None), [expected]);
        assert_eq!(
            stanzas(&format!("Types: deb\nURIs: http://x.example/other\n\n{stanza}"), None),
            [expected]
        );
        let line = "# deb http://no.example/debian x main\ndeb [arch=amd64] http://mirror.example/debian a main extra\n";
        assert_eq!(
            stanzas(line, None),
            ["Types: deb-src\nURIs: http://mirror.example/debian\nSuites: a\nComponents: main extra\n\
              Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"]
        );
    }
    #[test]
    fn a_suite_is_looked_for_in_the_main_archive_only() {
        let main = "Types: deb\nURIs: http://mirror.example/debian\nSuites: a b\nComponents: main\n";
        let text = format!("{}\n{main}", main.replace("/debian", "/debian-security"));
        let expected = "Types: deb-src\nURIs: http://mirror.example/debian\nSuites: sid\nComponents: main\n";
        assert_eq!(stanzas(&text, Some("sid")), [expected]);
        let lines =
            "deb http://mirror.example/debian-security a main\ndeb http://mirror.example/debian a main\n";
        assert_eq!(
            stanzas(lines, Some("sid")),
            [format!("{expected}Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n")]
        );
    }
}
