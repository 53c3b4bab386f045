//! Cycles of files: files of one crate that name each other's items.

use std::collections::{BTreeMap, BTreeSet};

use super::names::Definition;
use super::tree::ModuleTree;

/// What the files of a package name.
#[derive(Default)]
pub(super) struct Uses {
    /// The names by which one file uses items that another one defines.
    pub(super) arrows: BTreeMap<(usize, usize), BTreeSet<String>>,
    /// Other crates, each with the file that names it and a line that does.
    pub(super) crates: BTreeMap<(usize, String), usize>,
}

impl Uses {
    /// Finds the uses in all code of a tree that other builds than tests compile.
    pub(super) fn of(tree: &ModuleTree) -> Uses {
        let mut uses = Uses::default();
        for (id, module) in tree.modules.iter().enumerate().filter(|(_, module)| !module.test) {
            let around: BTreeSet<usize> =
                tree.ancestors(id).map(|ancestor| tree.modules[ancestor].file).collect();
            let paths = module.facts.paths.iter().map(|(path, line)| (path, *line, false));
            let imports = module.facts.imports.iter();
            let imports = imports.map(|import| (&import.path, import.line, import.reexport));
            for (path, line, reexport) in paths.chain(imports) {
                for definition in tree.resolve(id, path) {
                    match definition {
                        Definition::Item { file, name } if !reexport && !around.contains(&file) => {
                            uses.arrows.entry((module.file, file)).or_default().insert(name);
                        }
                        Definition::Crate(name) => {
                            uses.crates.entry((module.file, name)).or_insert(line);
                        }
                        _ => {}
                    }
                }
            }
        }
        uses
    }

    /// Finds the cycles: sets of two or more files each of which reaches all
    /// others by arrows.
    pub(super) fn cycles(&self) -> Vec<BTreeSet<usize>> {
        let mut next: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (from, to) in self.arrows.keys() {
            next.entry(*from).or_default().push(*to);
        }
        let reached: BTreeMap<usize, BTreeSet<usize>> =
            next.keys().map(|&file| (file, reachable(file, &next))).collect();
        let reaches = |from: usize, to: usize| reached.get(&from).is_some_and(|files| files.contains(&to));
        let mut cycles: Vec<BTreeSet<usize>> = Vec::new();
        for (&file, files) in &reached {
            if reaches(file, file) && !cycles.iter().any(|cycle| cycle.contains(&file)) {
                cycles.push(files.iter().copied().filter(|&other| reaches(other, file)).collect());
            }
        }
        cycles
    }
}

/// The files that arrows lead to from a file, itself only if they lead back.
fn reachable(from: usize, next: &BTreeMap<usize, Vec<usize>>) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        open.extend(next.get(&file).into_iter().flatten().copied().filter(|to| reached.insert(*to)));
    }
    reached
}
