//! Title and description at the top of an experiment file.

use super::reader::{TomlSource, TomlTable};

/// Title and description of an experiment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heading {
    /// Title of the experiment.
    pub title: String,
    /// Purpose of the experiment.
    pub about: String,
    /// The published figure or table that the experiment reproduces.
    pub figure: String,
    /// The finding of the publication.
    pub saw: String,
}

impl Heading {
    /// Makes a heading without a description.
    pub fn titled(title: String) -> Heading {
        Heading { title, ..Heading::default() }
    }

    /// Reads the heading. The default title is the name of the file.
    pub(super) fn read(source: &TomlSource<'_>, root: &TomlTable<'_, '_>) -> Heading {
        let title = root.text("title").filter(|title| !title.trim().is_empty());
        let stem = || source.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = |key| root.text(key).unwrap_or_default();
        Heading {
            title: title.unwrap_or_else(stem),
            about: text("about"),
            figure: text("figure"),
            saw: text("saw"),
        }
    }

    /// Returns the non-empty parts of the description, each with its label.
    pub fn description(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("stands for", &self.figure), ("about", &self.about), ("it saw", &self.saw)];
        all.into_iter().filter(|(_, words)| !words.is_empty()).map(|(label, words)| (label, words.as_str()))
    }
}
