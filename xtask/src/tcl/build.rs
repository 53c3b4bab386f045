//! SQLite's `testfixture`, made of the amalgamation that we slice and linked
//! with our trees.
//!
//! The C is compiled anew, for SQLite's tests look into it: as the product has
//! it, and with what SQLite's own makefile adds. The tests' own C sources are
//! of another version; the headers they see are those of the amalgamation.
//! Rust comes from the static library. That has the product's C in it too, and
//! the copy of `libsqlite3-sys`; the linker takes neither, for all that they
//! define is there already.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Result;
use crate::children::{Children, Running};
use crate::tcl::{JOBS, failed, printed};

/// Redirects plain names to Yesquel's trees.
const HOOK: &str = "yesquel/sqlite/tests/tcl/hook.c";

/// Options of the product that the tests' build omits.
const NOT_IN_TESTS: &[&str] = &[
    // They count memory.
    "SQLITE_DEFAULT_MEMSTATUS=0",
    // They know what LIKE and freed pages do without it.
    "SQLITE_LIKE_DOESNT_MATCH_BLOBS",
    "SQLITE_SECURE_DELETE",
];

/// What the makefile has by other ways than its list for testfixture.
const MORE: &[&str] =
    &["-DSQLITE_NO_SYNC=1", "-DSQLITE_ENABLE_RBU", "-DSQLITE_ENABLE_QRF_IN_TCL", "-DYESQUEL_TEST=1"];

/// Folders of the tests' headers, from the root of the sources.
const HEADERS: &[&str] = &[
    "src",
    "ext/misc",
    "ext/fts3",
    "ext/fts5",
    "ext/rtree",
    "ext/session",
    "ext/recover",
    "ext/intck",
    "ext/rbu",
    "ext/expert",
    "ext/qrf",
];

const TCL: &str = "/usr/include/tcl8.6";

/// Builds testfixture below `folder`, with the static library that Cargo builds
/// with these arguments, and returns its path.
pub(crate) fn testfixture(
    children: &Children,
    sources: &Path,
    folder: &Path,
    arguments: &[String],
) -> Result<PathBuf> {
    let (library, sliced) = library(children, arguments)?;
    let c = sliced.join("yesquel-sqlite3.c");
    let text = fs::read(&c).map_err(failed(&c))?;
    let text = String::from_utf8_lossy(&text);
    let headers = headers(&text)?;
    let gen_folder = folder.join("headers");
    fs::create_dir_all(&gen_folder).map_err(failed(&gen_folder))?;
    for (name, text) in &headers {
        let file = gen_folder.join(name);
        // Left as it is, it does not make its users old.
        if fs::read_to_string(&file).ok().as_ref() != Some(text) {
            fs::write(&file, text).map_err(failed(&file))?;
        }
    }

    let makefile = sources.join("main.mk");
    let makefile = fs::read_to_string(&makefile).map_err(failed(&makefile))?;
    let defines = sliced.join("yesquel-sqlite3.defines");
    let defines = fs::read_to_string(&defines).map_err(failed(&defines))?;
    let mut flags = flags(&makefile, &defines);
    flags.push(format!("-I{}", gen_folder.display()));
    flags.extend(HEADERS.iter().map(|header| format!("-I{}", sources.join(header).display())));
    flags.push(format!("-I{TCL}"));

    let objects = folder.join("objects");
    fs::create_dir_all(&objects).map_err(failed(&objects))?;
    let hook = crate::root().join(HOOK);
    let hook_text = fs::read_to_string(&hook).map_err(failed(&hook))?;
    let mut units = vec![
        CompilationUnit { source: c, object: objects.join("sqlite3.o"), depends: hash(&text), is_core: true },
        CompilationUnit {
            source: hook,
            object: objects.join("hook.o"),
            depends: hash(&hook_text),
            is_core: false,
        },
    ];
    let all_headers = hash(&headers);
    for source in test_sources(&makefile)? {
        let name = source.rsplit('/').next().unwrap_or_default().trim_end_matches(".c");
        let object = objects.join(format!("test-{name}.o"));
        units.push(CompilationUnit {
            source: sources.join(&source),
            object,
            depends: all_headers,
            is_core: false,
        });
    }
    compile(children, &units, &flags)?;

    let program = folder.join("testfixture");
    let mut link = Command::new("cc");
    link.arg("-o").arg(&program).args(units.iter().map(|unit| &unit.object)).arg(&library);
    link.args(["-ltcl8.6", "-lm", "-lz", "-ldl", "-lpthread"]);
    children.check(&mut link)?;
    Ok(program)
}

/// The static library, and the folder in which the amalgamation was sliced for
/// it.
fn library(children: &Children, arguments: &[String]) -> Result<(PathBuf, PathBuf)> {
    let mut command = crate::cargo();
    command.arg("build").args(arguments);
    command.args(["--message-format", "json-render-diagnostics"]).stdout(Stdio::piped());
    let messages = printed(children, &mut command)?;
    let messages: Vec<Value> = messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |reason: &str, package: &str, message: &Value| {
        message["reason"] == reason && message["package_id"].as_str().is_some_and(|id| id.contains(package))
    };
    let sliced = messages.iter().find(|message| of("build-script-executed", "yesquel/sqlite#", message));
    let sliced = sliced.and_then(|message| message["out_dir"].as_str());
    let made = messages.iter().rev().find(|message| of("compiler-artifact", "libyesquel#", message));
    let made = made.and_then(|message| message["filenames"].as_array()).into_iter().flatten();
    let library = made.filter_map(Value::as_str).find(|file| file.ends_with(".a"));
    match (library, sliced) {
        (Some(library), Some(sliced)) => Ok((library.into(), sliced.into())),
        _ => Err("cargo does not say where libyesquel's static library is".to_owned()),
    }
}

/// A source file, with what determines whether its object is outdated.
struct CompilationUnit {
    source: PathBuf,
    object: PathBuf,
    /// Digest of its inputs, besides its flags.
    depends: u64,
    /// SQLite itself, not one of the tests' sources.
    is_core: bool,
}

/// Compiles what has changed.
fn compile(children: &Children, units: &[CompilationUnit], flags: &[String]) -> Result<()> {
    let stamp = |unit: &CompilationUnit| {
        (unit.object.with_extension("stamp"), format!("{:016x}", hash(&(unit.depends, flags))))
    };
    let is_old = |unit: &&CompilationUnit| {
        let (file, stamp) = stamp(unit);
        !unit.object.is_file() || fs::read_to_string(file).ok() != Some(stamp)
    };
    let old: Vec<&CompilationUnit> = units.iter().filter(is_old).collect();
    if old.is_empty() {
        return Ok(());
    }
    eprintln!("    {} C sources are compiled", old.len());
    let mut running: Vec<(&CompilationUnit, Running)> = Vec::new();
    let mut waiting = old.into_iter();
    loop {
        while running.len() < JOBS
            && let Some(unit) = waiting.next()
        {
            running.push((unit, children.start(&mut cc(unit, flags))?));
        }
        if running.is_empty() {
            return Ok(());
        }
        let (unit, first) = running.remove(0);
        let status = first.wait()?.status;
        if !status.success() {
            return Err(format!("{}: cc failed: {status}", unit.source.display()));
        }
        let (file, stamp) = stamp(unit);
        fs::write(&file, stamp).map_err(failed(&file))?;
    }
}

fn cc(unit: &CompilationUnit, flags: &[String]) -> Command {
    let mut command = Command::new("cc");
    // The tests' own sources are many, and run briefly.
    command.arg(if unit.is_core { "-O1" } else { "-O0" });
    command.args(["-g1", "-w", "-c", "-o"]).arg(&unit.object).args(flags);
    // In the amalgamation the declarations of variables define them.
    let visible = if unit.is_core { "" } else { "extern" };
    command.arg(format!("-DSQLITE_PRIVATE={visible}")).arg(format!("-DSQLITE_API={visible}"));
    command.arg(&unit.source);
    command
}

/// How testfixture is compiled: as the makefile says, and with the product's
/// features.
fn flags(makefile: &str, defines: &str) -> Vec<String> {
    let own = makefile.lines().filter_map(|line| {
        let (_, flags) = line.strip_prefix("TESTFIXTURE_FLAGS ")?.split_once('=')?;
        Some(
            flags.split_whitespace().filter(|flag| !flag.starts_with("-DSQLITE_PRIVATE=")).map(str::to_owned),
        )
    });
    let mut flags: Vec<String> = own.flatten().collect();
    flags.extend(MORE.iter().map(|&flag| flag.to_owned()));
    for define in defines.lines().filter(|define| !NOT_IN_TESTS.contains(define)) {
        let flag = format!("-D{define}");
        if !flags.contains(&flag) {
            flags.push(flag);
        }
    }
    flags
}

/// The sources of the tests' own commands, as the makefile lists them.
fn test_sources(makefile: &str) -> Result<Vec<String>> {
    let (mut sources, mut is_list) = (Vec::<String>::new(), false);
    for line in makefile.lines() {
        is_list = is_list || line.starts_with("TESTSRC =") || line.starts_with("TESTSRC +=");
        if is_list {
            let words = line.split_whitespace().filter_map(|word| word.strip_prefix("$(TOP)/"));
            sources.extend(words.filter(|word| word.ends_with(".c")).map(str::to_owned));
            is_list = line.trim_end().ends_with('\\');
        }
    }
    if sources.len() < 50 {
        return Err(format!("SQLite's makefile names only {} sources of tests", sources.len()));
    }
    sources.extend(["src/tclsqlite.c".to_owned(), "ext/qrf/qrf.c".to_owned()]);
    Ok(sources)
}

/// The headers that stand in an amalgamation, each with those that it includes.
fn headers(amalgamation: &str) -> Result<Vec<(String, String)>> {
    let mut open: Vec<&str> = Vec::new();
    let mut headers: Vec<(String, String)> = Vec::new();
    for line in amalgamation.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_marker = line.starts_with("/*****") && line.ends_with("*/");
        if let (true, [_, "Begin", "file", name, ..]) = (is_marker, &words[..]) {
            open.push(name);
            if name.ends_with(".h") && !headers.iter().any(|(known, _)| known == name) {
                headers.push(((*name).to_owned(), needs(name)));
            }
        }
        for (name, text) in &mut headers {
            if open.contains(&name.as_str()) {
                // The amalgamation defines here what it had declared.
                let declared = line.strip_suffix(" = SQLITE_VERSION;").map(|start| format!("{start};"));
                text.push_str(declared.as_deref().unwrap_or(line));
                text.push('\n');
            }
        }
        if let (true, [_, "End", "of", name, _, ..]) = (is_marker, &words[..])
            && open.last() == Some(name)
        {
            open.pop();
        }
    }
    match headers.iter().any(|(name, _)| name == "sqliteInt.h") {
        true => Ok(headers),
        false => Err("the sliced amalgamation has no sqliteInt.h".to_owned()),
    }
}

/// What the amalgamation has included before.
fn needs(header: &str) -> String {
    let needs = match header {
        "btreeInt.h" | "vdbeInt.h" | "fts3Int.h" => "sqliteInt.h",
        "sqlite3ext.h" => "sqlite3.h",
        _ => return String::new(),
    };
    format!("#include \"{needs}\"\n")
}

fn hash(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_makefiles_and_the_products() {
        let makefile = "TESTFIXTURE_FLAGS  = -DSQLITE_TEST=1 -DA\nTESTFIXTURE_FLAGS += -DSQLITE_PRIVATE=\"\" -DB\nX = 1\n";
        let flags = flags(makefile, "B\nC=2\nSQLITE_SECURE_DELETE\n");
        assert_eq!(flags[..3], ["-DSQLITE_TEST=1", "-DA", "-DB"]);
        assert_eq!(flags.last().map(String::as_str), Some("-DC=2"));
        assert_eq!(flags.len(), 3 + MORE.len() + 1);
    }

    #[test]
    fn headers_are_taken_with_what_they_include() {
        let text = "/***** Begin file sqliteInt.h *****/\na\n/***** Include hash.h in the middle *****/\n\
                    /***** Begin file hash.h *****/\nb\n/***** End of hash.h *****/\nc\n\
                    /***** End of sqliteInt.h *****/\n/***** Begin file vdbe.c *****/\nd\n/***** End of vdbe.c *****/\n";
        let headers = headers(text).unwrap();
        assert_eq!(
            headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["sqliteInt.h", "hash.h"]
        );
        assert_eq!(headers[1].1, "/***** Begin file hash.h *****/\nb\n/***** End of hash.h *****/\n");
        assert!(
            headers[0].1.contains("\nb\n")
                && headers[0].1.contains("\nc\n")
                && !headers[0].1.contains("\nd\n")
        );
    }
}
