//! Paths in tokens that are not parsed: macros' arguments and attributes.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use super::facts::NamePath;

/// Calls `found` with each path in the tokens and its line, also in groups.
///
/// These are not paths: field and method names after a dot, lifetimes, and the rest of a path that
/// a macro's variable begins (`$module::Store`). `$crate` is `crate`.
pub(super) fn each_path(tokens: &TokenStream, found: &mut impl FnMut(NamePath, usize)) {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => each_path(&group.stream(), found),
            TokenTree::Ident(first) => {
                let before = Before::of(&tokens[..at]);
                let mut path = vec![first.to_string()];
                while let Some(TokenTree::Ident(next)) = tokens.get(at + 3)
                    && is_colons(&tokens[at + 1..])
                {
                    path.push(next.to_string());
                    at += 3;
                }
                if before == Before::Colons {
                    path.insert(0, String::new());
                }
                if before != Before::Member && (before != Before::Dollar || path[0] == "crate") {
                    found(path, first.span().start().line);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// The token before the first segment of a path.
#[derive(PartialEq, Eq)]
enum Before {
    Dollar,
    Colons,
    /// A dot, a lifetime's quote, or the end of a path's earlier part.
    Member,
    Other,
}

impl Before {
    fn of(tokens: &[TokenTree]) -> Before {
        let punct = |back: usize| match tokens.len().checked_sub(back).map(|at| &tokens[at]) {
            Some(TokenTree::Punct(punct)) => punct.as_char(),
            _ => ' ',
        };
        match punct(1) {
            '$' => Before::Dollar,
            '\'' => Before::Member,
            '.' if punct(2) != '.' => Before::Member,
            ':' if punct(2) == ':' => {
                // `<T as Trait>::name`, `name::<T>::new`, `[T]::len`.
                let inside = match tokens.len().checked_sub(3).map(|at| &tokens[at]) {
                    Some(TokenTree::Punct(punct)) => punct.as_char() == '>',
                    Some(TokenTree::Ident(ident)) => !is_keyword(&ident.to_string()),
                    Some(TokenTree::Group(group)) => group.delimiter() != Delimiter::Brace,
                    _ => false,
                };
                if inside { Before::Member } else { Before::Colons }
            }
            _ => Before::Other,
        }
    }
}

/// Keywords after which a path may begin with `::`.
fn is_keyword(word: &str) -> bool {
    matches!(word, "as" | "for" | "impl" | "dyn" | "in" | "return" | "mut" | "else" | "match" | "if")
}

fn is_colons(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(first), TokenTree::Punct(second), ..]
        if first.as_char() == ':' && first.spacing() == Spacing::Joint && second.as_char() == ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_and_members_are_not() {
        let tokens: TokenStream = "\"{}\", a::b::c(x.field, y.call::<T>()), &'static d, $crate::e::F, \
             $module::Store, ::out::G, 0..limit, <H as I>::j, k::<L>::m"
            .parse()
            .expect("tokens");
        let mut paths = Vec::new();
        each_path(&tokens, &mut |path, _| paths.push(path.join("::")));
        let expected =
            ["a::b::c", "x", "y", "T", "d", "crate::e::F", "::out::G", "limit", "H", "as", "I", "k", "L"];
        assert_eq!(paths, expected);
    }
}
