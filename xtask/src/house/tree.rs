//! Source files, and the trees of modules that they make.

use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::facts::{Child, FileFacts, ModuleFacts};
use super::read::read;
use crate::Result;

/// The files that have been read, each once.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) files: Vec<File>,
    index: HashMap<PathBuf, usize>,
}

/// A source file.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) facts: FileFacts,
    /// Whether only tests compile it.
    pub(super) test: bool,
}

impl Sources {
    /// Reads a file, unless it has been read, and returns its number.
    fn load(&mut self, path: &Path, test: bool) -> Result<usize> {
        let path = without_dots(path);
        if let Some(&file) = self.index.get(&path) {
            self.files[file].test &= test;
            return Ok(file);
        }
        let wrong = |reason: String| format!("{}: {reason}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let facts = read(&text).map_err(wrong)?;
        self.index.insert(path.clone(), self.files.len());
        self.files.push(File { path, facts, test });
        Ok(self.files.len() - 1)
    }
}

/// A path with `folder/..` left out, so that a file has one path.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            component => plain.push(component),
        }
    }
    plain
}

/// The modules of a package's library and programs.
#[derive(Default)]
pub(super) struct ModuleTree {
    pub(super) modules: Vec<Module>,
    /// The name and the root module of the library, which programs name.
    pub(super) library: Option<(String, usize)>,
}

/// A module in its tree; modules are known by their position in [`ModuleTree::modules`].
pub(super) struct Module {
    pub(super) facts: Rc<ModuleFacts>,
    /// The file that holds it.
    pub(super) file: usize,
    pub(super) parent: Option<usize>,
    /// The root module of its crate.
    pub(super) root: usize,
    /// Whether only tests compile it.
    pub(super) test: bool,
    /// Child modules by name, without those that only tests compile.
    pub(super) children: Vec<(String, usize)>,
}

/// Where the files of a module's children are.
struct ModuleFolders {
    /// The folder of the file that holds the module.
    of_file: PathBuf,
    /// The folder of the module's own children.
    of_children: PathBuf,
    /// Whether the module is written inside another module's file.
    inline: bool,
}

impl ModuleTree {
    /// Adds a crate, reading the files of all its modules; returns its root.
    pub(super) fn add_crate(&mut self, sources: &mut Sources, root: &Path, test: bool) -> Result<usize> {
        self.add_file(sources, root, true, None, test)
    }

    /// Adds the module of a file. The file names of its children have its own
    /// name before them, unless it is `owner` of its folder, as `mod.rs` is.
    fn add_file(
        &mut self,
        sources: &mut Sources,
        path: &Path,
        owner: bool,
        parent: Option<usize>,
        test: bool,
    ) -> Result<usize> {
        let file = sources.load(path, test)?;
        let of_file = path.parent().unwrap_or(Path::new("")).to_owned();
        let of_children = if owner { of_file.clone() } else { path.with_extension("") };
        let facts = Rc::clone(&sources.files[file].facts.module);
        self.add(sources, facts, file, parent, test, &ModuleFolders { of_file, of_children, inline: false })
    }

    fn add(
        &mut self,
        sources: &mut Sources,
        facts: Rc<ModuleFacts>,
        file: usize,
        parent: Option<usize>,
        test: bool,
        folders: &ModuleFolders,
    ) -> Result<usize> {
        let module = self.modules.len();
        let test = test || facts.test;
        self.modules.push(Module {
            facts: Rc::clone(&facts),
            file,
            parent,
            root: parent.map_or(module, |parent| self.modules[parent].root),
            test,
            children: Vec::new(),
        });
        for child in &facts.children {
            let test = test || child.test;
            let id = match &child.inline {
                Some(inline) => {
                    let folder = child.path.as_deref().unwrap_or(&child.name);
                    let folders = ModuleFolders {
                        of_file: folders.of_file.clone(),
                        of_children: folders.of_children.join(folder),
                        inline: true,
                    };
                    self.add(sources, Rc::clone(inline), file, Some(module), test, &folders)?
                }
                None => {
                    let (path, owner) = file_of(child, folders);
                    self.add_file(sources, &path, owner, Some(module), test)?
                }
            };
            if !test {
                self.modules[module].children.push((child.name.clone(), id));
            }
        }
        Ok(module)
    }

    /// A module and the modules around it, innermost first.
    pub(super) fn ancestors(&self, module: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(module), |module| self.modules[*module].parent)
    }
}

/// The file of a child module, and whether it owns its folder.
fn file_of(child: &Child, folders: &ModuleFolders) -> (PathBuf, bool) {
    if let Some(path) = &child.path {
        let base = if folders.inline { &folders.of_children } else { &folders.of_file };
        return (base.join(path), true);
    }
    let name = child.name.trim_start_matches("r#");
    let plain = folders.of_children.join(format!("{name}.rs"));
    if plain.exists() { (plain, false) } else { (folders.of_children.join(name).join("mod.rs"), true) }
}
