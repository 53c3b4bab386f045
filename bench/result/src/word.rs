//! Enumerated words in documents.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An enumerated value, or a word that this version does not know, since
/// later versions add words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word<T> {
    /// A known value.
    Known(T),
    /// A word of another version.
    Other(String),
}

impl<T: Copy> Word<T> {
    /// Returns the value; `None` for a word of another version.
    pub fn known(&self) -> Option<T> {
        match self {
            Word::Known(value) => Some(*value),
            Word::Other(_) => None,
        }
    }
}

impl<T: Default> Default for Word<T> {
    fn default() -> Self {
        Word::Known(T::default())
    }
}

impl<T> From<T> for Word<T> {
    fn from(value: T) -> Self {
        Word::Known(value)
    }
}

impl<T: PartialEq> PartialEq<T> for Word<T> {
    fn eq(&self, other: &T) -> bool {
        matches!(self, Word::Known(value) if value == other)
    }
}

impl<T: fmt::Display> fmt::Display for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Known(value) => value.fmt(f),
            Word::Other(word) => f.write_str(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::document::EndedBy;

    #[test]
    fn unknown_words_survive_a_round_trip() {
        type Word = super::Word<EndedBy>;
        let read = |text: &str| serde_json::from_str::<Word>(text).unwrap();
        for (text, wanted) in [
            ("\"count\"", Word::Known(EndedBy::Count)),
            ("\"interrupted\"", Word::Known(EndedBy::Interrupted)),
            ("\"lightning\"", Word::Other("lightning".to_owned())),
            ("\"\"", Word::Other(String::new())),
        ] {
            assert_eq!(read(text), wanted);
            assert_eq!(serde_json::to_string(&wanted).unwrap(), text);
            assert_eq!(format!("\"{wanted}\""), text);
        }
        assert!(read("\"failed\"") == EndedBy::Failed && read("\"x\"") != EndedBy::Failed);
        assert!(serde_json::from_str::<Word>("3").is_err());
    }
}
