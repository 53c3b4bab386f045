//! Each rule on a small package in a folder of its own.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::cycles::Uses;
use super::packages::{Package, PackageTarget, TargetKind};
use super::print;
use super::survey::{Survey, survey, tree};
use super::tree::Sources;

/// Writes a package: its files, by their paths and texts.
fn package(folder: &Path, name: &str, files: &[(&str, &str)]) -> Package {
    let mut targets = Vec::new();
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    let target = |name: &str, kind, path: &str| PackageTarget {
        name: name.replace('-', "_"),
        kind,
        source: folder.join(path),
    };
    for (path, _) in files {
        match *path {
            "src/lib.rs" => targets.push(target(name, TargetKind::Library, path)),
            "src/main.rs" => targets.push(target("program", TargetKind::Program, path)),
            path if path.starts_with("examples/") => {
                targets.push(target("example", TargetKind::Other, path));
            }
            path if path.starts_with("tests/") => targets.push(target("tests", TargetKind::Test, path)),
            _ => {}
        }
    }
    let dependencies = ["yesquel", "yesquel-sqlite", "serval-model"].map(str::to_owned).to_vec();
    Package { name: name.to_owned(), folder: folder.to_owned(), targets, dependencies }
}

/// The arrows of a package with these files: `from -> to: names`, without `src/`.
#[track_caller]
fn arrows(files: &[(&str, &str)]) -> Vec<String> {
    let folder = TempDir::new().expect("a folder");
    let package = package(folder.path(), "some-package", files);
    let mut sources = Sources::default();
    let uses = Uses::of(&tree(&package, &mut sources).expect("sources"));
    let name = |file: usize| {
        let path = sources.files[file].path.strip_prefix(folder.path().join("src"));
        path.expect("a file of the package").display().to_string()
    };
    let arrows = uses.arrows.iter().map(|((from, to), names)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("{} -> {}: {}", name(*from), name(*to), names.join(", "))
    });
    let mut arrows: Vec<String> = arrows.collect();
    arrows.sort();
    arrows
}

/// The survey of one package with these files below `bench/`.
fn surveyed(name: &str, files: &[(&str, &str)]) -> Survey {
    let folder = TempDir::new().expect("a folder");
    let package = package(&folder.path().join("bench/stores"), name, files);
    survey(folder.path(), &[package]).expect("sources")
}

#[test]
fn an_import_and_a_path_in_code_make_arrows() {
    let files = [
        ("src/lib.rs", "mod a; mod b; mod c;"),
        ("src/a.rs", "use crate::b::B;\nfn f(b: &B) -> usize { crate::c::g(b) + crate::c::LIMIT }"),
        ("src/b.rs", "pub struct B; impl B { pub fn new() -> B { B } }"),
        ("src/c.rs", "pub const LIMIT: usize = 1; pub fn g(b: &super::b::B) -> usize { 0 }"),
    ];
    assert_eq!(arrows(&files), ["a.rs -> b.rs: B", "a.rs -> c.rs: LIMIT, g", "c.rs -> b.rs: B"]);
}

#[test]
fn groups_renames_and_self_in_groups_are_read() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        (
            "src/a.rs",
            "use crate::b::{self, One as First, inner::{Two, Three as _}};\nfn f() { b::four(); let _ = First; }",
        ),
        ("src/b.rs", "pub mod inner;\npub struct One; pub fn four() {}"),
        ("src/b/inner.rs", "pub struct Two; pub trait Three {}"),
    ];
    assert_eq!(arrows(&files), ["a.rs -> b.rs: One, four", "a.rs -> b/inner.rs: Three, Two"]);
}

#[test]
fn a_name_is_found_through_a_renamed_module() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        ("src/a.rs", "use crate::b as other;\nfn f() { other::g(); }"),
        ("src/b.rs", "pub fn g() {}"),
    ];
    assert_eq!(arrows(&files), ["a.rs -> b.rs: g"]);
}

#[test]
fn a_reexport_is_followed_and_makes_no_arrow() {
    let files = [
        ("src/lib.rs", "mod a; mod b; pub use b::B;"),
        ("src/a.rs", "use crate::B;\nfn f() { B::new(); }"),
        ("src/b.rs", "mod deep; pub(crate) use deep::Deep as B;"),
        ("src/b/deep.rs", "pub struct Deep; impl Deep { pub fn new() {} }"),
    ];
    assert_eq!(arrows(&files), ["a.rs -> b/deep.rs: Deep"]);
}

#[test]
fn a_reexported_name_that_the_file_itself_uses_makes_an_arrow() {
    let files = [
        ("src/lib.rs", "mod b; pub use b::{B, C};\nfn f(b: &B) {}"),
        ("src/b.rs", "pub struct B; pub struct C;"),
    ];
    assert_eq!(arrows(&files), ["lib.rs -> b.rs: B"]);
}

#[test]
fn a_child_may_use_items_of_the_files_around_it() {
    let files = [
        ("src/lib.rs", "mod a; pub struct Root;"),
        ("src/a/mod.rs", "mod child; mod sister; use sister::S; pub struct A; mod inline { pub struct I; }"),
        (
            "src/a/child.rs",
            "use super::{A, S};\nuse super::inline::I;\nuse crate::{Root, a::A as Again};\nimpl super::A {}",
        ),
        ("src/a/sister.rs", "pub struct S;"),
    ];
    // S is the sister's, by whatever way it is named.
    assert_eq!(arrows(&files), ["a/child.rs -> a/sister.rs: S", "a/mod.rs -> a/sister.rs: S"]);
}

#[test]
fn tests_make_no_arrows() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        (
            "src/a.rs",
            "#[cfg(test)] use crate::b::B;\n#[cfg(test)] mod tests { use crate::b::B; fn f(_: B) {} }\n\
             #[cfg(all(test, unix))] fn g() -> crate::b::B { crate::b::B }\n#[test] fn h() { crate::b::B; }\n\
             struct A; impl A { #[cfg(test)] fn i() { crate::b::B; } }\n#[cfg(test)] mod far;",
        ),
        ("src/a/far.rs", "mod further;\nuse crate::b::B;"),
        ("src/a/far/further.rs", "use crate::b::B;"),
        ("src/b.rs", "pub struct B;"),
    ];
    assert_eq!(arrows(&files), Vec::<String>::new());
}

#[test]
fn a_condition_that_other_builds_meet_too_makes_arrows() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        (
            "src/a.rs",
            "#[cfg(any(test, feature = \"x\"))] use crate::b::B;\n#[cfg(not(test))] use crate::b::C;",
        ),
        ("src/b.rs", "pub struct B; pub struct C;"),
    ];
    assert_eq!(arrows(&files), ["a.rs -> b.rs: B, C"]);
}

#[test]
fn names_that_a_glob_brings_in_are_resolved() {
    let files = [
        ("src/lib.rs", "mod a; mod b; mod c;"),
        (
            "src/a.rs",
            "use crate::b::*;\nuse crate::c::State::*;\nfn f(_: B) { let g = 1; h(g); Unknown::new(); }",
        ),
        ("src/b.rs", "pub use crate::c::h; pub struct B; pub fn g() {}"),
        ("src/c.rs", "pub enum State { Up, Down } pub fn h(_: usize) {}"),
    ];
    // `g` is a variable, `State` is named by the glob itself.
    assert_eq!(arrows(&files), ["a.rs -> b.rs: B", "a.rs -> c.rs: State, h"]);
}

#[test]
fn a_glob_brings_in_no_private_imports() {
    let files = [
        ("src/lib.rs", "mod a; mod b; mod c; mod d;"),
        ("src/a.rs", "use crate::b::*;\nuse crate::c::*;\nfn f(_: D) {}"),
        ("src/b.rs", "use crate::d::D;"),
        ("src/c.rs", "pub struct D;"),
        ("src/d.rs", "pub struct D;"),
    ];
    assert_eq!(arrows(&files), ["a.rs -> c.rs: D", "b.rs -> d.rs: D"]);
}

#[test]
fn self_super_and_crate_are_followed() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        ("src/a.rs", "mod x; mod y;\nfn f() { self::x::g(); }"),
        ("src/a/x.rs", "pub fn g() { super::y::h(); super::super::b::i(); crate::b::j(); }"),
        ("src/a/y.rs", "pub fn h() {}"),
        ("src/b.rs", "pub fn i() {} pub fn j() {}"),
    ];
    assert_eq!(arrows(&files), ["a.rs -> a/x.rs: g", "a/x.rs -> a/y.rs: h", "a/x.rs -> b.rs: i, j"]);
}

#[test]
fn modules_are_found_in_all_their_places() {
    let files = [
        ("src/lib.rs", "mod a; #[path = \"elsewhere/odd.rs\"] mod b; mod inline { pub mod c; }"),
        ("src/a/mod.rs", "pub mod deep;\nuse crate::inline::c::C;"),
        ("src/a/deep.rs", "use crate::b::{B, next::N};"),
        ("src/elsewhere/odd.rs", "pub mod next; pub struct B;"),
        ("src/elsewhere/next.rs", "pub struct N;"),
        ("src/inline/c.rs", "pub struct C;"),
    ];
    assert_eq!(
        arrows(&files),
        [
            "a/deep.rs -> elsewhere/next.rs: N",
            "a/deep.rs -> elsewhere/odd.rs: B",
            "a/mod.rs -> inline/c.rs: C"
        ]
    );
}

#[test]
fn inline_modules_are_scopes_of_their_own() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        (
            "src/a.rs",
            "mod inner { use super::super::b::B; pub mod more { pub fn f() { super::g(); } } fn g() {} }\n\
             fn h() { inner::more::f(); B; }",
        ),
        ("src/b.rs", "pub struct B;"),
    ];
    assert_eq!(arrows(&files), ["a.rs -> b.rs: B"]);
}

#[test]
fn a_module_and_a_function_may_share_a_name() {
    let files = [
        ("src/lib.rs", "mod plan; pub use plan::plan; mod a;"),
        ("src/a.rs", "fn f() { crate::plan(); let plan = 1; plan; }"),
        ("src/plan.rs", "mod parts; pub use parts::parts;\npub fn plan() { parts::parts(); }"),
        ("src/plan/parts.rs", "pub fn parts() {}"),
    ];
    assert_eq!(arrows(&files), ["a.rs -> plan.rs: plan", "plan.rs -> plan/parts.rs: parts"]);
}

#[test]
fn a_program_uses_the_library_of_its_package() {
    let files = [
        ("src/lib.rs", "pub mod a; pub use a::A;"),
        ("src/a.rs", "pub struct A; pub fn f() {}"),
        ("src/main.rs", "use some_package::A;\nfn main() { ::some_package::a::f(); other_crate::g(); }"),
    ];
    assert_eq!(arrows(&files), ["main.rs -> a.rs: A, f"]);
}

#[test]
fn imports_inside_functions_count() {
    let files = [
        ("src/lib.rs", "mod a; mod b; mod c;"),
        ("src/a.rs", "fn f() { use crate::b::B; use crate::c; c::g(B); }"),
        ("src/b.rs", "pub struct B;"),
        ("src/c.rs", "pub fn g(_: crate::b::B) { use super::a; }"),
    ];
    assert_eq!(arrows(&files), ["a.rs -> b.rs: B", "a.rs -> c.rs: g", "c.rs -> b.rs: B"]);
}

#[test]
fn arguments_of_macros_and_attributes_are_read() {
    let files = [
        ("src/lib.rs", "mod a; mod b; #[macro_use] mod c;"),
        (
            "src/a.rs",
            "use crate::c::shown;\n#[derive(Parser)]\nstruct A {\n    #[arg(value_parser = crate::b::parse)]\n    x: u8,\n}\n\
             fn f() { println!(\"{}\", crate::b::LIMIT); crate::c::shown!(1); }\n\
             thread_local! { static SEEN: u8 = const { crate::b::FIRST }; }",
        ),
        (
            "src/b.rs",
            "pub fn parse() {} pub const LIMIT: u8 = 1; pub const FIRST: u8 = 0; use crate::a::SEEN;",
        ),
        ("src/c.rs", "macro_rules! shown { ($x:expr) => { $crate::b::LIMIT + $x } }\npub(crate) use shown;"),
    ];
    assert_eq!(
        arrows(&files),
        [
            "a.rs -> b.rs: FIRST, LIMIT, parse",
            "a.rs -> c.rs: shown",
            "b.rs -> a.rs: SEEN",
            "c.rs -> b.rs: LIMIT"
        ]
    );
}

#[test]
fn imports_that_name_each_other_end() {
    let files = [
        ("src/lib.rs", "mod a; mod b; use nowhere::nowhere;"),
        ("src/a.rs", "pub use crate::b::*;\nfn f() { missing(); }"),
        ("src/b.rs", "pub use crate::a::*; pub use crate::a::X; fn g(_: X) {}"),
    ];
    assert_eq!(arrows(&files), Vec::<String>::new());
}

#[test]
fn cycles_are_found_with_the_arrows_inside() {
    let survey = surveyed(
        "some-package",
        &[
            ("src/lib.rs", "mod a; mod b; mod c; mod d; mod e; mod f;"),
            ("src/a.rs", "use crate::b::B; pub struct A;"),
            ("src/b.rs", "use crate::c::C; pub struct B;"),
            ("src/c.rs", "use crate::{a::A, d::D}; pub struct C;"),
            // Used by a cycle, and using none.
            ("src/d.rs", "pub struct D;"),
            ("src/e.rs", "use crate::f::F; pub struct E;"),
            // The parent's use of the child, and the child's use of the parent's file.
            ("src/f.rs", "mod g; use g::G; use crate::e::E; pub struct F;"),
            ("src/f/g.rs", "use super::F; pub struct G;"),
        ],
    );
    assert!(print::text(&survey).contains(
        "Cycles of files: 2\n\
         some-package: 3 files, 3 arrows\n  \
           src/a.rs -> src/b.rs: B\n  \
           src/b.rs -> src/c.rs: C\n  \
           src/c.rs -> src/a.rs: A\n\
         some-package: 2 files, 2 arrows\n  \
           src/e.rs -> src/f.rs: F\n  \
           src/f.rs -> src/e.rs: E\n"
    ));
    let document = print::document(&survey);
    assert_eq!(document["cycles"][0]["files"][2], "src/c.rs");
    assert_eq!(document["cycles"][1]["arrows"][0]["names"][0], "F");
}

#[test]
fn lines_of_tests_are_counted_apart() {
    let survey = surveyed(
        "some-package",
        &[
            ("tests/all.rs", "mod support;\n#[path = \"../src/both.rs\"] mod both;\nfn i() {}\n"),
            (
                "src/lib.rs",
                "//! Module.\n\n/// Adds.\npub fn add() {\n    one();\n}\n\n#[cfg(test)]\nmod more;\nmod whole; mod both;\n\n\
                 /// Documented.\n#[cfg(test)]\n#[allow(unused)]\nfn helper() {\n\n}\n\
                 #[cfg(test)]\nmod tests {\n    // Comment.\n    fn f() {}\n}\n",
            ),
            ("src/more.rs", "fn g() {}\n"),
            ("src/both.rs", "fn k() {}\n"),
            ("src/whole.rs", "#![cfg(test)]\nfn h() {}\n"),
            ("tests/support/mod.rs", "fn j() {}\n"),
            ("examples/one.rs", "#[path = \"../tests/support/mod.rs\"]\nmod support;\nfn main() {}\n"),
        ],
    );
    let package = &survey.packages[0];
    assert_eq!((package.code, package.tests), (4 + 1 + 3, 3 + 2 + 4 + 4 + 1 + 2 + 1));
    assert_eq!(package.group, "bench");
}

#[test]
fn long_functions_are_listed_by_their_lines() {
    let body = |lines: usize| "    f();\n".repeat(lines);
    let text = format!(
        "struct S;\nimpl S {{\n    fn method() {{\n        fn inner() {{\n{}        }}\n    }}\n}}\n\
         fn short() {{\n{}}}\n#[cfg(test)]\nmod tests {{\nfn long() {{\n{}}}\n}}\n",
        body(101),
        body(100),
        body(104),
    );
    let survey = surveyed("some-package", &[("src/lib.rs", &text)]);
    let found: Vec<_> = survey.functions.iter().map(|f| (f.name.as_str(), f.line, f.lines, f.test)).collect();
    assert_eq!(found, [("long", 213, 104, true), ("S::method", 3, 103, false), ("inner", 4, 101, false)]);
}

#[test]
fn long_files_are_listed_by_their_code_outside_tests() {
    let long = "fn f() {}\n".repeat(601);
    let tested = format!("{}#[cfg(test)]\nmod tests {{\n{long}}}\n", "fn f() {}\n".repeat(600));
    let files = [("src/lib.rs", "mod a; mod b;"), ("src/a.rs", &long), ("src/b.rs", &tested)];
    let survey = surveyed("some-package", &files);
    assert_eq!(survey.files, [("bench/stores/src/a.rs".into(), 601)]);
}

#[test]
fn a_type_name_with_two_definitions_is_listed_unless_it_is_conventional() {
    let survey = surveyed(
        "some-package",
        &[
            ("src/lib.rs", "mod a; mod b;\npub struct Part; struct Once; struct Error;"),
            ("src/a.rs", "enum Part { One }\nfn f() {\n    struct Seat;\n}\ntrait Seat {}\nenum Error {}"),
            ("src/b.rs", "#[cfg(test)] mod tests { type Once = u8; }"),
        ],
    );
    assert_eq!(survey.types.keys().collect::<Vec<_>>(), ["Part", "Seat"]);
    let parts = survey.types["Part"].iter().map(|place| format!("{} {}", place.kind, place.file.display()));
    let expected = ["enum bench/stores/src/a.rs", "struct bench/stores/src/lib.rs"];
    assert_eq!(parts.collect::<Vec<_>>(), expected);
}

#[test]
fn a_product_that_imports_the_other_is_named() {
    let files = [
        ("src/lib.rs", "mod a; mod sqlite; mod yesquel_tree;"),
        // A module's name decides nothing, nor does a test's import.
        (
            "src/a.rs",
            "use crate::yesquel_tree::T;\n\n#[cfg(test)] use yesquel::Id;\nfn f() { yesquel::g(); vec![yesquel_old]; }",
        ),
        ("src/sqlite/mod.rs", "use yesquel_sqlite::is_linked;"),
        ("src/yesquel_tree/mod.rs", "use yesquel::Id; pub struct T;\nuse yesquel_sqlite::Place;"),
    ];
    assert_eq!(
        surveyed("serval-stores", &files).mixed,
        [
            "bench/stores/src/a.rs:4 names yesquel",
            "bench/stores/src/yesquel_tree/mod.rs:2 names yesquel_sqlite"
        ]
    );
    let files = [("src/lib.rs", "pub use serval_model::Key;")];
    assert_eq!(
        surveyed("yesquel-tree", &files).mixed,
        ["yesquel-tree depends on serval-model", "bench/stores/src/lib.rs:1 names serval_model"]
    );
    assert_eq!(surveyed("xtask", &files).mixed, Vec::<String>::new());
}

#[test]
fn an_unreadable_file_is_named_with_its_line() {
    let folder = TempDir::new().expect("a folder");
    let package = package(folder.path(), "some-package", &[("src/lib.rs", "\nfn f( {}\n")]);
    let error = survey(folder.path(), &[package]).err().expect("an error");
    assert!(error.contains("lib.rs: line "), "{error}");
}
