//! Names that ZooKeeper's servers accept for a node.

/// Returns whether the servers accept `name` for a node. Java sees a character
/// above U+FFFF as two surrogates, which the servers reject.
pub(super) fn is_node_name(name: &str) -> bool {
    if matches!(name, "" | "." | "..") {
        return false;
    }
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'/') {
        return true;
    }
    name.chars().all(|char| {
        !matches!(char, '/' | '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{d7ff}'..='\u{f8ff}' | '\u{fff0}'..)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_names_that_servers_accept() {
        for name in ["user1", " ", "a b", "...", ".a", "Ä", "世界", "\u{d7fe}", "\u{f900}", "\u{ffef}", "~"]
        {
            assert!(is_node_name(name), "{name:?}");
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "/",
            "\n",
            "\x7f",
            "\u{80}",
            "\u{9f}",
            "\u{e000}",
            "\u{fff0}",
            "🦁",
            "a\u{ffff}",
        ] {
            assert!(!is_node_name(name), "{name:?}");
        }
    }
}
