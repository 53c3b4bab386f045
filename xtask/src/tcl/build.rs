//! SQLite's `testfixture`, built from the product's slice of the amalgamation and
//! linked with Yesquel's trees.
//!
//! The C sources are compiled again, with the product's options and those that
//! SQLite's makefile adds for tests. The tests' own C sources are of another
//! version, so they are compiled with headers taken from the amalgamation. The Rust
//! code comes from the static library. The library also contains the product's C
//! code and the copy of `libsqlite3-sys`; the linker skips both, as their symbols
//! are already defined.

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
    // Tests count memory.
    "SQLITE_DEFAULT_MEMSTATUS=0",
    // Tests expect LIKE and freed pages without these options.
    "SQLITE_LIKE_DOESNT_MATCH_BLOBS",
    "SQLITE_SECURE_DELETE",
];

/// Flags that the makefile adds outside its list for testfixture.
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
        // An unchanged file is not written, so that its users stay up to date.
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

/// Builds the static library. Returns its path and the folder of its sliced
/// amalgamation.
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
        _ => Err("cargo's messages do not name libyesquel's static library".to_owned()),
    }
}

/// A source file and its object, with the digest of its inputs.
struct CompilationUnit {
    source: PathBuf,
    object: PathBuf,
    /// Digest of its inputs, besides its flags.
    depends: u64,
    /// Whether it is SQLite itself, not a source of the tests.
    is_core: bool,
}

/// Compiles the units that have changed.
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
    eprintln!("    compiling {} C sources", old.len());
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
    // The tests' sources are many, and take little of the run time.
    command.arg(if unit.is_core { "-O1" } else { "-O0" });
    command.args(["-g1", "-w", "-c", "-o"]).arg(&unit.object).args(flags);
    // In the amalgamation, declarations of variables are definitions.
    let visible = if unit.is_core { "" } else { "extern" };
    command.arg(format!("-DSQLITE_PRIVATE={visible}")).arg(format!("-DSQLITE_API={visible}"));
    command.arg(&unit.source);
    command
}

/// Returns testfixture's compiler flags: the makefile's, and the product's
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

/// Returns the sources of the tests' own commands that the makefile lists.
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
        return Err(format!(
            "SQLite's makefile names only {} sources of tests; at least 50 were expected",
            sources.len()
        ));
    }
    sources.extend(["src/tclsqlite.c".to_owned(), "ext/qrf/qrf.c".to_owned()]);
    Ok(sources)
}

/// Returns the headers in an amalgamation, each with the headers that it includes.
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
                // The amalgamation has a definition in place of the declaration.
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

/// Returns the `#include` of a header that the amalgamation has before this one.
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
    fn flags_come_from_the_makefile_and_the_product() {
        let makefile = "TESTFIXTURE_FLAGS  = -DSQLITE_TEST=1 -DA\nTESTFIXTURE_FLAGS += -DSQLITE_PRIVATE=\"\" -DB\nX = 1\n";
        let flags = flags(makefile, "B\nC=2\nSQLITE_SECURE_DELETE\n");
        assert_eq!(flags[..3], ["-DSQLITE_TEST=1", "-DA", "-DB"]);
        assert_eq!(flags.last().map(String::as_str), Some("-DC=2"));
        assert_eq!(flags.len(), 3 + MORE.len() + 1);
    }

    #[test]
    fn headers_contain_the_headers_that_they_include() {
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
