//! Resolves a path in a module to a definition, by the rules of Rust's name resolution.
//!
//! Namespaces are merged: where a module and a function share a name, the path names both. The
//! visibility of items is ignored, that of imports is respected.

use super::tree::{Module, ModuleTree};

/// The definition that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Definition {
    Module(usize),
    /// An item of the file that defines it. The names inside an item (variants,
    /// methods, associated constants) count as the item.
    Item {
        file: usize,
        name: String,
    },
    /// Another crate.
    Crate(String),
}

/// Names that are being looked up through imports, each with its module.
type Trail = Vec<(usize, String)>;

impl ModuleTree {
    /// Finds what a path in the module `from` names; re-exports are followed.
    pub(super) fn resolve(&self, from: usize, path: &[String]) -> Vec<Definition> {
        self.resolve_on(from, path, &mut Trail::new())
    }

    fn resolve_on(&self, from: usize, path: &[String], trail: &mut Trail) -> Vec<Definition> {
        let Some((first, mut rest)) = path.split_first() else {
            return Vec::new();
        };
        let mut found = match first.as_str() {
            "crate" => vec![Definition::Module(self.modules[from].root)],
            "self" => vec![Definition::Module(from)],
            "super" => self.parent(from),
            "" => match rest.split_first() {
                Some((name, after)) => {
                    rest = after;
                    vec![self.crate_named(name)]
                }
                None => Vec::new(),
            },
            name => {
                let found = self.look_up(from, name, from, trail);
                if found.is_empty() { vec![self.crate_named(name)] } else { found }
            }
        };
        for name in rest {
            let inside = found.iter().flat_map(|definition| match definition {
                Definition::Module(module) if name == "super" => self.parent(*module),
                Definition::Module(module) if name == "self" => vec![Definition::Module(*module)],
                Definition::Module(module) => self.look_up(*module, name, from, trail),
                _ => Vec::new(),
            });
            let inside: Vec<_> = inside.collect();
            if inside.is_empty() {
                found.retain(|definition| !matches!(definition, Definition::Module(_)));
                return found;
            }
            found = inside;
        }
        found
    }

    fn parent(&self, module: usize) -> Vec<Definition> {
        self.modules[module].parent.map(Definition::Module).into_iter().collect()
    }

    fn crate_named(&self, name: &str) -> Definition {
        match &self.library {
            Some((library, root)) if library == name => Definition::Module(*root),
            _ => Definition::Crate(name.to_owned()),
        }
    }

    /// Finds a name in a module as the module `viewer` sees it.
    fn look_up(&self, module: usize, name: &str, viewer: usize, trail: &mut Trail) -> Vec<Definition> {
        let Module { facts, file, children, .. } = &self.modules[module];
        let mut found = Vec::new();
        if facts.items.contains(name) {
            found.push(Definition::Item { file: *file, name: name.to_owned() });
        }
        let children = children.iter().filter(|(child, _)| child == name);
        found.extend(children.map(|(_, child)| Definition::Module(*child)));
        // Imports of modules that name each other lead back here.
        if trail.iter().any(|(on, what)| *on == module && what == name) {
            return found;
        }
        trail.push((module, name.to_owned()));
        let inside = self.ancestors(viewer).any(|ancestor| ancestor == module);
        let seen = || facts.imports.iter().filter(|import| import.reexport || inside);
        for import in seen().filter(|import| import.name.as_deref() == Some(name)) {
            found.extend(self.resolve_on(module, &import.path, trail));
        }
        // What is named hides what `*` brings in.
        if found.is_empty() {
            for import in seen().filter(|import| import.name.is_none()) {
                for definition in self.resolve_on(module, &import.path, trail) {
                    if let Definition::Module(of) = definition {
                        found.extend(self.look_up(of, name, module, trail));
                    }
                }
            }
        }
        trail.pop();
        found
    }
}
