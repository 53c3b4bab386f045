//! The survey as text and as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::survey::{LONG_FILE, LONG_FUNCTION, LongFunction, Survey};

/// The survey as text.
pub(super) fn text(survey: &Survey) -> String {
    [lines(survey), cycles(survey), functions(survey), files(survey), types(survey), mixed(survey)].join("\n")
}

fn lines(survey: &Survey) -> String {
    let row = |name: &str, code: usize, tests: usize| format!("{name:<24} {code:>8} {tests:>8}\n");
    let mut text = format!("{:<24} {:>8} {:>8}\n", "Lines of code", "code", "tests");
    let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for package in &survey.packages {
        text += &row(&package.name, package.code, package.tests);
        for name in [package.group.as_str(), "total"] {
            let group = groups.entry(name).or_default();
            *group = (group.0 + package.code, group.1 + package.tests);
        }
    }
    let total = groups.remove_entry("total").into_iter();
    for (name, (code, tests)) in groups.into_iter().chain(total) {
        text += &row(&format!("= {name}"), code, tests);
    }
    text
}

fn cycles(survey: &Survey) -> String {
    let mut text = format!("Cycles of files: {}\n", survey.cycles.len());
    for cycle in &survey.cycles {
        text += &format!("{}: {} files, {} arrows\n", cycle.package, cycle.files.len(), cycle.arrows.len());
        for arrow in &cycle.arrows {
            let names: Vec<&str> = arrow.names.iter().map(String::as_str).collect();
            text += &format!("  {} -> {}: {}\n", arrow.from, arrow.to, names.join(", "));
        }
    }
    text
}

fn functions(survey: &Survey) -> String {
    let mut text = String::new();
    for (test, what) in [(false, "outside tests"), (true, "in tests")] {
        let functions: Vec<&LongFunction> =
            survey.functions.iter().filter(|function| function.test == test).collect();
        text += &format!("Functions of more than {LONG_FUNCTION} lines {what}: {}\n", functions.len());
        for function in functions {
            let place = format!("{}:{}", function.file.display(), function.line);
            text += &format!("  {:>5}  {place}  {}\n", function.lines, function.name);
        }
    }
    text
}

fn files(survey: &Survey) -> String {
    let mut text = format!("Files of more than {LONG_FILE} lines of code: {}\n", survey.files.len());
    for (file, lines) in &survey.files {
        text += &format!("  {lines:>5}  {}\n", file.display());
    }
    text
}

fn types(survey: &Survey) -> String {
    let mut text = format!("Type names defined more than once: {}\n", survey.types.len());
    let mut types: Vec<_> = survey.types.iter().collect();
    types.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
    for (name, places) in types {
        text += &format!("  {name}: {}\n", places.len());
        for place in places {
            text += &format!("    {} {}:{}\n", place.kind, place.file.display(), place.line);
        }
    }
    text
}

fn mixed(survey: &Survey) -> String {
    let mut text = format!("Products mixed: {}\n", survey.mixed.len());
    for place in &survey.mixed {
        text += &format!("  {place}\n");
    }
    text
}

/// The survey as JSON.
pub(super) fn document(survey: &Survey) -> Value {
    let lines = survey.packages.iter().map(|package| {
        json!({"crate": package.name, "group": package.group, "code": package.code, "tests": package.tests})
    });
    let cycles = survey.cycles.iter().map(|cycle| {
        let arrows = cycle.arrows.iter();
        let arrows = arrows.map(|arrow| json!({"from": arrow.from, "to": arrow.to, "names": arrow.names}));
        json!({"crate": cycle.package, "files": cycle.files, "arrows": arrows.collect::<Value>()})
    });
    let functions = survey.functions.iter().map(|function| {
        json!({
            "name": function.name,
            "file": function.file,
            "line": function.line,
            "lines": function.lines,
            "test": function.test,
        })
    });
    let files = survey.files.iter().map(|(file, lines)| json!({"file": file, "lines": lines}));
    let types = survey.types.iter().map(|(name, places)| {
        let places = places.iter();
        let places = places.map(|place| json!({"kind": place.kind, "file": place.file, "line": place.line}));
        json!({"name": name, "places": places.collect::<Value>()})
    });
    json!({
        "lines": lines.collect::<Value>(),
        "cycles": cycles.collect::<Value>(),
        "functions": functions.collect::<Value>(),
        "files": files.collect::<Value>(),
        "types": types.collect::<Value>(),
        "mixed": survey.mixed,
    })
}
