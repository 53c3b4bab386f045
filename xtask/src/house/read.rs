//! Reads one source file into its facts.

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, Fields, ForeignItem, Ident, ImplItem, ImplItemFn, Item, ItemFn, ItemImpl, ItemMod,
    ItemTrait, ItemUse, Macro, Meta, PatIdent, Signature, Token, TraitItem, TraitItemFn, Type, UseTree,
    Visibility,
};

use super::facts::{Child, FileFacts, FunctionFacts, Import, ModuleFacts, NamePath, TypeName};
use super::lines::CodeLines;
use super::tokens::each_path;
use crate::Result;

/// Reads a source file; an error names the line.
pub(super) fn read(text: &str) -> Result<FileFacts> {
    // Spans are positions in all text that a thread has read. Those of earlier
    // files are no longer used, and looking a line up is quicker without them.
    proc_macro2::extra::invalidate_current_thread_spans();
    let tokens: TokenStream =
        text.parse().map_err(|error: proc_macro2::LexError| at(error.span(), "unreadable token"))?;
    let lines = CodeLines::of(&tokens, text.lines().count());
    let file: syn::File = syn::parse2(tokens).map_err(|error| at(error.span(), &error.to_string()))?;
    let mut reader = SyntaxReader { lines, ..SyntaxReader::default() };
    let test = only_tests_compile(&file.attrs);
    let module = reader.module(test, |reader| {
        if test {
            reader.lines.mark_test(1..=text.lines().count());
        }
        reader.visit_file(&file);
    });
    let (code, test_code) = reader.lines.counts();
    Ok(FileFacts {
        module: Rc::new(module),
        code,
        test_code,
        functions: reader.functions,
        types: reader.types,
    })
}

fn at(span: Span, reason: &str) -> String {
    format!("line {}: {reason}", span.start().line)
}

/// Walks a syntax tree and notes what it says.
#[derive(Default)]
struct SyntaxReader {
    lines: CodeLines,
    functions: Vec<FunctionFacts>,
    types: Vec<TypeName>,
    /// The module that is being read.
    module: ModuleFacts,
    /// The type or trait whose methods are being read.
    owner: Option<String>,
    /// Names that patterns bind, for each function around the present place.
    bound: Vec<HashSet<String>>,
}

impl SyntaxReader {
    /// Reads a module's contents by `read_contents`.
    fn module(&mut self, test: bool, read_contents: impl FnOnce(&mut SyntaxReader)) -> ModuleFacts {
        let test = test || self.module.test;
        let outer = std::mem::replace(&mut self.module, ModuleFacts { test, ..ModuleFacts::default() });
        read_contents(self);
        std::mem::replace(&mut self.module, outer)
    }

    /// Reads something with attributes by `read`, as a test's when only tests
    /// compile it.
    fn with_attributes(
        &mut self,
        attributes: &[Attribute],
        end: Option<Span>,
        read: impl FnOnce(&mut SyntaxReader),
    ) {
        let outside = self.module.test;
        if only_tests_compile(attributes) {
            self.module.test = true;
            if let (Some(first), Some(end)) = (attributes.first(), end) {
                self.lines.mark_test(first.pound_token.span.start().line..=end.end().line);
            }
        }
        read(self);
        self.module.test = outside;
    }

    /// Notes the names that an item defines.
    fn define(&mut self, item: &Item) {
        let mut names = BTreeSet::new();
        if let Some((ident, kind)) = named(item) {
            let (name, line) = (ident.to_string(), ident.span().start().line);
            self.types.extend(kind.map(|kind| TypeName { name: name.clone(), kind, line }));
            names.insert(name);
        }
        match item {
            Item::ForeignMod(item) => names.extend(item.items.iter().filter_map(|item| match item {
                ForeignItem::Fn(item) => Some(item.sig.ident.to_string()),
                ForeignItem::Static(item) => Some(item.ident.to_string()),
                ForeignItem::Type(item) => Some(item.ident.to_string()),
                _ => None,
            })),
            Item::Macro(item) if item.ident.is_none() => names.extend(defined_by_macro(&item.mac.tokens)),
            _ => {}
        }
        // No path from elsewhere leads into a function.
        if self.bound.is_empty() {
            self.module.items.extend(names);
        }
    }

    fn item_module(&mut self, item: &ItemMod) {
        let inline = item.content.as_ref().map(|(_brace, items)| {
            Rc::new(self.module(false, |reader| items.iter().for_each(|item| reader.visit_item(item))))
        });
        let path = item.attrs.iter().find_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
                _ => None,
            },
            _ => None,
        });
        let test = self.module.test;
        self.module.children.push(Child { name: item.ident.to_string(), path, inline, test });
    }

    fn item_use(&mut self, item: &ItemUse) {
        let mut prefix = NamePath::new();
        if item.leading_colon.is_some() {
            prefix.push(String::new());
        }
        let reexport = match &item.vis {
            Visibility::Public(_) => true,
            Visibility::Restricted(restricted) => !restricted.path.is_ident("self"),
            Visibility::Inherited => false,
        };
        let line = item.use_token.span.start().line;
        each_import(&item.tree, &mut prefix, &mut |path, name| {
            self.module.imports.push(Import { path, name, reexport, line });
        });
    }

    /// Reads a function; its body may be missing in a trait.
    fn function(
        &mut self,
        signature: &Signature,
        body: Option<&Block>,
        read: impl FnOnce(&mut SyntaxReader),
    ) {
        let mut bound = Bound::default();
        bound.visit_signature(signature);
        if let Some(body) = body {
            bound.visit_block(body);
            let name = match &self.owner {
                Some(owner) => format!("{owner}::{}", signature.ident),
                None => signature.ident.to_string(),
            };
            let braces = body.brace_token.span;
            self.functions.push(FunctionFacts {
                name,
                line: signature.fn_token.span.start().line,
                lines: (braces.close().start().line - braces.open().start().line).saturating_sub(1),
                test: self.module.test,
            });
        }
        self.bound.push(bound.0);
        // Functions in a method's body are not the type's.
        let owner = self.owner.take();
        read(self);
        self.owner = owner;
        self.bound.pop();
    }

    fn path(&mut self, path: NamePath, line: usize) {
        let bound = |name: &String| path.len() == 1 && self.bound.iter().any(|names| names.contains(name));
        if !self.module.test && path[0] != "Self" && !bound(&path[0]) {
            self.module.paths.entry(path).or_insert(line);
        }
    }
}

impl<'ast> Visit<'ast> for SyntaxReader {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, end) = extent(item);
        self.with_attributes(attributes, end, |reader| {
            if !reader.module.test {
                reader.define(item);
            }
            match item {
                Item::Mod(item) => reader.item_module(item),
                Item::Use(item) if !reader.module.test => reader.item_use(item),
                Item::Use(_) => {}
                item => visit::visit_item(reader, item),
            }
        });
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, Some(&item.block), |reader| visit::visit_item_fn(reader, item));
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let owner = self.owner.replace(type_name(&item.self_ty));
        visit::visit_item_impl(self, item);
        self.owner = owner;
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        let owner = self.owner.replace(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.owner = owner;
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let (attributes, end): (&[Attribute], _) = match item {
            ImplItem::Const(item) => (&item.attrs, Some(item.semi_token.span)),
            ImplItem::Fn(item) => (&item.attrs, Some(item.block.brace_token.span.close())),
            _ => (&[], None),
        };
        self.with_attributes(attributes, end, |reader| visit::visit_impl_item(reader, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, Some(&item.block), |reader| visit::visit_impl_item_fn(reader, item));
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let (attributes, end): (&[Attribute], _) = match item {
            TraitItem::Fn(TraitItemFn { attrs, default: Some(body), .. }) => {
                (attrs, Some(body.brace_token.span.close()))
            }
            TraitItem::Fn(item) => (&item.attrs, item.semi_token.as_ref().map(|token| token.span)),
            _ => (&[], None),
        };
        self.with_attributes(attributes, end, |reader| visit::visit_trait_item(reader, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        let body = item.default.as_ref();
        self.function(&item.sig, body, |reader| visit::visit_trait_item_fn(reader, item));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let leading = path.leading_colon.as_ref().map(|_| String::new());
        let names = path.segments.iter().map(|segment| segment.ident.to_string());
        if let Some(first) = path.segments.first() {
            self.path(leading.into_iter().chain(names).collect(), first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.visit_path(&item.path);
        each_path(&item.tokens, &mut |path, line| self.path(path, line));
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let Meta::List(list) = &attribute.meta else { return };
        each_path(&list.tokens, &mut |path, line| {
            // One word is the attribute's own, as `default` of serde's.
            if path.len() > 1 {
                self.path(path, line);
            }
        });
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// The names that patterns in a function bind. In a pattern a constant looks
/// like a variable, but for its capital.
#[derive(Default)]
struct Bound(HashSet<String>);

impl<'ast> Visit<'ast> for Bound {
    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        let name = pattern.ident.to_string();
        if !name.starts_with(char::is_uppercase) {
            self.0.insert(name);
        }
        visit::visit_pat_ident(self, pattern);
    }
}

/// Calls `found` with the path and the name of each leaf of a `use`.
fn each_import(tree: &UseTree, prefix: &mut NamePath, found: &mut impl FnMut(NamePath, Option<String>)) {
    let mut leaf = |name: &Ident, rename: &Ident| {
        let mut path = prefix.clone();
        let mut rename = rename.to_string();
        // `use a::b::{self}` is `use a::b`.
        if name != "self" || path.is_empty() {
            path.push(name.to_string());
        } else if rename == "self" {
            rename.clone_from(&path[path.len() - 1]);
        }
        found(path, Some(rename));
    };
    match tree {
        UseTree::Name(name) => leaf(&name.ident, &name.ident),
        UseTree::Rename(rename) => leaf(&rename.ident, &rename.rename),
        UseTree::Glob(_) => found(prefix.clone(), None),
        UseTree::Group(group) => group.items.iter().for_each(|tree| each_import(tree, prefix, found)),
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            each_import(&path.tree, prefix, found);
            prefix.pop();
        }
    }
}

/// The name that an item defines, and of a type its kind.
fn named(item: &Item) -> Option<(&Ident, Option<&'static str>)> {
    Some(match item {
        Item::Const(item) => (&item.ident, None),
        Item::Enum(item) => (&item.ident, Some("enum")),
        Item::Fn(item) => (&item.sig.ident, None),
        Item::Macro(item) => (item.ident.as_ref()?, None),
        Item::Static(item) => (&item.ident, None),
        Item::Struct(item) => (&item.ident, Some("struct")),
        Item::Trait(item) => (&item.ident, Some("trait")),
        Item::TraitAlias(item) => (&item.ident, Some("trait")),
        Item::Type(item) => (&item.ident, Some("type")),
        Item::Union(item) => (&item.ident, Some("union")),
        _ => return None,
    })
}

/// Names after the keywords of items in the arguments of a macro such as
/// `thread_local!`, which passes items through.
fn defined_by_macro(tokens: &TokenStream) -> BTreeSet<String> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let defines = |word: &Ident| {
        ["const", "enum", "fn", "static", "struct", "trait", "type"].iter().any(|keyword| word == keyword)
    };
    let names = tokens.windows(2).filter_map(|pair| match pair {
        [TokenTree::Ident(keyword), TokenTree::Ident(name)] if defines(keyword) => Some(name.to_string()),
        _ => None,
    });
    names.collect()
}

/// An item's attributes, and where it ends.
fn extent(item: &Item) -> (&[Attribute], Option<Span>) {
    match item {
        Item::Const(item) => (&item.attrs, Some(item.semi_token.span)),
        Item::Enum(item) => (&item.attrs, Some(item.brace_token.span.close())),
        Item::ExternCrate(item) => (&item.attrs, Some(item.semi_token.span)),
        Item::Fn(item) => (&item.attrs, Some(item.block.brace_token.span.close())),
        Item::ForeignMod(item) => (&item.attrs, Some(item.brace_token.span.close())),
        Item::Impl(item) => (&item.attrs, Some(item.brace_token.span.close())),
        Item::Macro(item) => (&item.attrs, Some(item.mac.delimiter.span().close())),
        Item::Mod(item) => {
            let brace = item.content.as_ref().map(|(brace, _)| brace.span.close());
            (&item.attrs, brace.or(item.semi.as_ref().map(|token| token.span)))
        }
        Item::Static(item) => (&item.attrs, Some(item.semi_token.span)),
        Item::Struct(item) => {
            let end = match &item.fields {
                Fields::Named(fields) => Some(fields.brace_token.span.close()),
                _ => item.semi_token.as_ref().map(|token| token.span),
            };
            (&item.attrs, end)
        }
        Item::Trait(item) => (&item.attrs, Some(item.brace_token.span.close())),
        Item::TraitAlias(item) => (&item.attrs, Some(item.semi_token.span)),
        Item::Type(item) => (&item.attrs, Some(item.semi_token.span)),
        Item::Union(item) => (&item.attrs, Some(item.fields.brace_token.span.close())),
        Item::Use(item) => (&item.attrs, Some(item.semi_token.span)),
        _ => (&[], None),
    }
}

/// The last name of a type that an `impl` is for.
fn type_name(of: &Type) -> String {
    match of {
        Type::Path(path) => path.path.segments.last().map_or_else(String::new, |last| last.ident.to_string()),
        Type::Reference(reference) => type_name(&reference.elem),
        _ => "_".to_owned(),
    }
}

/// Whether an item with these attributes is compiled for tests only.
fn only_tests_compile(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().is_ok_and(|condition| needs_test(&condition))
        }
        // `#[test]`, `#[tokio::test]`.
        meta => meta.path().segments.last().is_some_and(|last| last.ident == "test"),
    })
}

/// Whether a condition of `cfg` holds in tests only.
fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let parts = parts.unwrap_or_default();
            (list.path.is_ident("all") && parts.iter().any(needs_test))
                || (list.path.is_ident("any") && !parts.is_empty() && parts.iter().all(needs_test))
        }
        Meta::NameValue(_) => false,
    }
}
