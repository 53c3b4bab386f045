//! The facts about a source file that the survey uses, without its syntax tree.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Facts of one source file.
pub(super) struct FileFacts {
    /// The module that the file is.
    pub(super) module: Rc<ModuleFacts>,
    /// Lines of code outside items that only tests compile.
    pub(super) code: usize,
    /// Lines of code inside such items.
    pub(super) test_code: usize,
    /// Functions and methods with a body.
    pub(super) functions: Vec<FunctionFacts>,
    /// Types that are compiled outside tests.
    pub(super) types: Vec<TypeName>,
}

/// Facts about a module, without items that only tests compile.
#[derive(Default)]
pub(super) struct ModuleFacts {
    /// Whether only tests compile it.
    pub(super) test: bool,
    /// Names of the items that it defines. Rust's namespaces are merged.
    pub(super) items: BTreeSet<String>,
    /// Its `use` declarations, also those inside functions.
    pub(super) imports: Vec<Import>,
    /// The paths that its code names, each with the first line that does.
    pub(super) paths: BTreeMap<NamePath, usize>,
    /// Its child modules, in whatever file they are.
    pub(super) children: Vec<Child>,
}

/// Segments of a path; the first is empty when the path begins with `::`.
pub(super) type NamePath = Vec<String>;

/// One name, or all names, that a `use` declaration brings into a module.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) path: NamePath,
    /// The name given to it; `None` is `*`, all names of the module.
    pub(super) name: Option<String>,
    /// Whether other modules than descendants see it.
    pub(super) reexport: bool,
    pub(super) line: usize,
}

/// A module inside a module.
pub(super) struct Child {
    pub(super) name: String,
    /// The value of a `#[path]` attribute.
    pub(super) path: Option<String>,
    /// The module itself if it is written in place, not in a file of its own.
    pub(super) inline: Option<Rc<ModuleFacts>>,
    pub(super) test: bool,
}

/// A function or method.
pub(super) struct FunctionFacts {
    /// Its name, after that of its type or trait.
    pub(super) name: String,
    pub(super) line: usize,
    /// Lines between the braces of its body.
    pub(super) lines: usize,
    /// Whether only tests compile it.
    pub(super) test: bool,
}

/// A type by name.
pub(super) struct TypeName {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) line: usize,
}
