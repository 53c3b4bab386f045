//! The survey: what `cargo xtask house` finds in the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::cycles::Uses;
use super::facts::FileFacts;
use super::packages::{Package, TargetKind, packages};
use super::products::mixed;
use super::tree::{ModuleTree, Sources};
use crate::Result;

/// Lines between the braces of a function above which it is listed.
pub(super) const LONG_FUNCTION: usize = 100;

/// Lines of code outside tests above which a file is listed.
pub(super) const LONG_FILE: usize = 600;

/// Type names that are not listed, although several crates define them:
/// * by the convention of Rust, a crate's own `Error`, `Result` and `Config`;
/// * one per SQL store, with the same meaning: `PreparedStore`, `PreparedStatement`;
/// * the terms of both products, which do not import each other: `Client`, `Random`, `Reply`,
///   `Store`.
const CONVENTIONAL_TYPES: [&str; 9] =
    ["Client", "Config", "Error", "PreparedStatement", "PreparedStore", "Random", "Reply", "Result", "Store"];

/// Result of a survey. Paths are relative to the workspace.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) packages: Vec<PackageLines>,
    pub(super) cycles: Vec<Cycle>,
    /// Functions of more than [`LONG_FUNCTION`] lines, the longest first.
    pub(super) functions: Vec<LongFunction>,
    /// Files of more than [`LONG_FILE`] lines, the longest first.
    pub(super) files: Vec<(PathBuf, usize)>,
    /// Type names with more than one definition, each with all of them, except
    /// [`CONVENTIONAL_TYPES`].
    pub(super) types: BTreeMap<String, Vec<TypePlace>>,
    /// Packages that name a package of the other product, each with the place.
    pub(super) mixed: Vec<String>,
}

/// Lines of code of a package.
pub(super) struct PackageLines {
    pub(super) name: String,
    /// The first folder of its path: `bench`, `yesquel`, `xtask`.
    pub(super) group: String,
    pub(super) code: usize,
    pub(super) tests: usize,
}

/// Files of a package that name each other's items.
pub(super) struct Cycle {
    pub(super) package: String,
    /// Paths in the package's folder.
    pub(super) files: BTreeSet<String>,
    pub(super) arrows: Vec<Arrow>,
}

/// The uses of one file's items in another file.
pub(super) struct Arrow {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) names: BTreeSet<String>,
}

pub(super) struct LongFunction {
    pub(super) name: String,
    pub(super) file: PathBuf,
    pub(super) line: usize,
    pub(super) lines: usize,
    pub(super) test: bool,
}

pub(super) struct TypePlace {
    pub(super) kind: &'static str,
    pub(super) file: PathBuf,
    pub(super) line: usize,
}

/// Surveys the workspace.
pub(super) fn workspace() -> Result<Survey> {
    let (root, packages) = packages()?;
    survey(&root, &packages)
}

/// Surveys these packages below a folder.
pub(super) fn survey(root: &Path, packages: &[Package]) -> Result<Survey> {
    let mut sources = Sources::default();
    let mut survey = Survey::default();
    for package in packages {
        let uses = Uses::of(&tree(package, &mut sources)?);
        survey.cycles.extend(uses.cycles().iter().map(|files| cycle(package, files, &uses, &sources)));
        survey.mixed.extend(mixed(package, &uses, |file| below(root, &sources.files[file].path)));
        survey.packages.push(PackageLines::none(root, package));
    }
    for file in &sources.files {
        // A file may belong to another package than the one that includes it.
        let inside = |package: &Package| file.path.starts_with(&package.folder);
        let package = packages.iter().position(inside);
        // An example may include a file of the tests.
        let is_test = |package: usize| file.path.starts_with(packages[package].folder.join("tests"));
        let test = file.test || package.is_some_and(is_test);
        let code = if test { 0 } else { file.facts.code };
        if let Some(package) = package {
            survey.packages[package].code += code;
            survey.packages[package].tests += file.facts.code + file.facts.test_code - code;
        }
        survey.add_file(&below(root, &file.path), &file.facts, test);
    }
    let is_conventional = |name: &str| CONVENTIONAL_TYPES.contains(&name);
    survey.types.retain(|name, places| places.len() > 1 && !is_conventional(name));
    survey.types.values_mut().for_each(|places| places.sort_by(|a, b| a.file.cmp(&b.file)));
    survey.files.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    survey.functions.sort_by(|a, b| b.lines.cmp(&a.lines).then_with(|| a.file.cmp(&b.file)));
    Ok(survey)
}

/// A path without the folder that it begins with.
fn below(folder: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(folder).unwrap_or(path).to_owned()
}

impl Survey {
    /// Adds what a file has of long functions and types, and the file if it is long.
    fn add_file(&mut self, path: &Path, facts: &FileFacts, test: bool) {
        if facts.code > LONG_FILE && !test {
            self.files.push((path.to_owned(), facts.code));
        }
        let long = facts.functions.iter().filter(|function| function.lines > LONG_FUNCTION);
        self.functions.extend(long.map(|function| LongFunction {
            name: function.name.clone(),
            file: path.to_owned(),
            line: function.line,
            lines: function.lines,
            test: function.test || test,
        }));
        for name in facts.types.iter().filter(|_| !test) {
            let place = TypePlace { kind: name.kind, file: path.to_owned(), line: name.line };
            self.types.entry(name.name.clone()).or_default().push(place);
        }
    }
}

impl PackageLines {
    /// A package whose lines are still to be counted.
    fn none(root: &Path, package: &Package) -> PackageLines {
        let folder = below(root, &package.folder);
        let group = folder.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        PackageLines { name: package.name.clone(), group, code: 0, tests: 0 }
    }
}

/// Reads all files of a package; the tree is that of its library and programs.
/// Files of its tests, examples and build script only have their lines counted.
pub(super) fn tree(package: &Package, sources: &mut Sources) -> Result<ModuleTree> {
    let mut tree = ModuleTree::default();
    for target in &package.targets {
        match target.kind {
            TargetKind::Library => {
                let root = tree.add_crate(sources, &target.source, false)?;
                tree.library = Some((target.name.clone(), root));
            }
            TargetKind::Program => {
                tree.add_crate(sources, &target.source, false)?;
            }
            TargetKind::Other | TargetKind::Test => {
                let test = target.kind == TargetKind::Test;
                ModuleTree::default().add_crate(sources, &target.source, test)?;
            }
        }
    }
    Ok(tree)
}

fn cycle(package: &Package, files: &BTreeSet<usize>, uses: &Uses, sources: &Sources) -> Cycle {
    let name = |file: usize| below(&package.folder, &sources.files[file].path).display().to_string();
    let inside = uses.arrows.iter().filter(|((from, to), _)| files.contains(from) && files.contains(to));
    let arrows =
        inside.map(|((from, to), names)| Arrow { from: name(*from), to: name(*to), names: names.clone() });
    let mut arrows: Vec<Arrow> = arrows.collect();
    arrows.sort_by(|a, b| (&a.from, &a.to).cmp(&(&b.from, &b.to)));
    Cycle { package: package.name.clone(), files: files.iter().map(|file| name(*file)).collect(), arrows }
}
