//! Texts of pages: wikitext with the sizes and links of an encyclopedia, which follows from a seed;
//! what a text links to; and its hash.

use sha1::{Digest, Sha1};
use std::collections::HashSet;
use yesquel_seeds::Random;

/// Bytes of the median page. With [`SIZE_SPREAD`] the mean is 2.3 KB: the paper's Simple English
/// Wikipedia has 190,000 pages of 430 MB (section 6.3). It gives no distribution; sizes of
/// Wikipedia's pages are about log-normal.
const SIZE_MEDIAN: f64 = 1_300.0;
/// Standard deviation of the logarithm of a page's size.
const SIZE_SPREAD: f64 = 1.07;
const SIZE_MIN: f64 = 200.0;
const SIZE_MAX: f64 = 262_144.0;

/// One word in so many is a link to another page: about 20 links in the mean page.
const WORDS_A_LINK: u64 = 15;
/// One link in so many leads to a page that does not exist.
const LINKS_A_MISSING_PAGE: u64 = 8;
/// Categories of a page.
const CATEGORIES_OF_PAGE: u64 = 2;
/// Templates; each page has one, as the traced page.
const TEMPLATES: u64 = 20;
/// Pages for each category.
const PAGES_A_CATEGORY: u64 = 100;

/// Begins the paragraph that an edit replaces.
const EDITED: &str = "\n\nEdited by ";

/// Words of the texts. Not all of them are ASCII.
const WORDS: [&str; 32] = [
    "the",
    "of",
    "and",
    "in",
    "river",
    "city",
    "century",
    "language",
    "species",
    "which",
    "was",
    "is",
    "a",
    "first",
    "music",
    "war",
    "system",
    "théâtre",
    "energy",
    "known",
    "as",
    "Køln",
    "between",
    "東京",
    "its",
    "population",
    "island",
    "history",
    "chemical",
    "Ελλάδα",
    "football",
    "mountain",
];

/// The wiki's pages: articles, their templates and their categories. All have a page of the wiki,
/// and their first revisions, contents and texts have the number of the page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WikiPages {
    /// Number of articles, at least 1; they are the pages `1..=articles`.
    pub(crate) articles: u64,
    pub(crate) seed: u64,
}

/// A page at its creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewPage {
    pub(crate) namespace: i64,
    /// Without its namespace.
    pub(crate) title: String,
    pub(crate) text: String,
}

/// Namespaces of MediaWiki.
pub(crate) const TEMPLATE: i64 = 10;
pub(crate) const CATEGORY: i64 = 14;

impl WikiPages {
    pub(crate) fn categories(&self) -> u64 {
        (self.articles / PAGES_A_CATEGORY).max(CATEGORIES_OF_PAGE)
    }

    /// Number of all pages.
    pub(crate) fn count(&self) -> u64 {
        self.articles + TEMPLATES + self.categories()
    }

    /// Returns a page by its number, `1..=count`.
    pub(crate) fn page(&self, number: u64) -> NewPage {
        if number <= self.articles {
            return NewPage { namespace: 0, title: title(number), text: self.article(number) };
        }
        let number = number - self.articles;
        if number <= TEMPLATES {
            let title = template(number - 1);
            let text = format!("''This page is in the list {title}, which has a notice.''");
            return NewPage { namespace: TEMPLATE, title, text };
        }
        let title = category(number - TEMPLATES - 1);
        let text = format!("Pages of {title}.");
        NewPage { namespace: CATEGORY, title, text }
    }

    fn random(&self, article: u64) -> Random {
        // Neighbouring seeds and articles begin far apart.
        Random::new(self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(article))
    }

    /// Returns the text of an article.
    fn article(&self, article: u64) -> String {
        let mut random = self.random(article);
        let size = (SIZE_MEDIAN * (SIZE_SPREAD * normal(&mut random)).exp()).clamp(SIZE_MIN, SIZE_MAX);
        let mut text =
            format!("{{{{{}}}}} '''{}''' is a page.", template(random.next(TEMPLATES)), title(article));
        let mut section = 0;
        while (text.len() as f64) < size {
            text += "\n\n";
            if random.next(4) == 0 {
                section += 1;
                text += &format!("== Section {section} ==\n");
            }
            for _ in 0..2 + random.next(4) {
                self.sentence(&mut text, &mut random);
            }
        }
        text += "\n";
        let first = random.next(self.categories());
        for number in 0..CATEGORIES_OF_PAGE {
            text += &format!("[[Category:{}]] ", category((first + number) % self.categories()));
        }
        let link = random.next(self.articles) + 1;
        edited(text.trim_end(), "the import", &title(link))
    }

    fn sentence(&self, text: &mut String, random: &mut Random) {
        for _ in 0..6 + random.next(18) {
            let word = WORDS[random.next(WORDS.len() as u64) as usize];
            if random.next(WORDS_A_LINK) != 0 {
                text.push_str(word);
            } else {
                let page = random.next(self.articles) + 1;
                let missing = random.next(LINKS_A_MISSING_PAGE) == 0;
                let page = if missing { format!("Missing_{page:06}") } else { title(page) };
                text.push_str(&format!("[[{page}|{word}]]"));
            }
            text.push(' ');
        }
        text.pop();
        text.push_str(". ");
    }
}

/// Returns a number of the standard normal distribution (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - unit(random)).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(random)).cos()
}

/// Returns a number in `[0, 1)`.
pub(crate) fn unit(random: &mut Random) -> f64 {
    random.next(1 << 31) as f64 / (1_u64 << 31) as f64
}

/// Returns the title of an article, as in the database.
pub(crate) fn title(article: u64) -> String {
    format!("Page_{article:06}")
}

fn template(number: u64) -> String {
    format!("List_{number}")
}

fn category(number: u64) -> String {
    format!("Subject_{number}")
}

/// Returns the text after an edit, which replaces the last paragraph.
pub(crate) fn edited(text: &str, editor: &str, link: &str) -> String {
    let before = text.rfind(EDITED).map_or(text, |at| &text[..at]);
    format!("{before}{EDITED}{editor}, with [[{link}|a link]].")
}

/// What a text refers to; each title once, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct References<'a> {
    /// Titles of articles.
    pub(crate) links: Vec<&'a str>,
    pub(crate) categories: Vec<&'a str>,
    pub(crate) templates: Vec<&'a str>,
}

impl<'a> References<'a> {
    /// Finds the references of a text: `[[title|words]]`, `[[Category:title]]`, `{{title}}`.
    pub(crate) fn of(text: &'a str) -> References<'a> {
        let links = distinct(enclosed(text, "[[", "]]"));
        let (categories, links) = links.into_iter().partition(|title| title.starts_with("Category:"));
        let categories: Vec<&str> = categories;
        References {
            links,
            categories: categories.into_iter().filter_map(|title| title.strip_prefix("Category:")).collect(),
            templates: distinct(enclosed(text, "{{", "}}")),
        }
    }

    /// Removes the links of a page to itself, which MediaWiki neither looks up nor stores.
    pub(crate) fn without(mut self, title: &str) -> References<'a> {
        self.links.retain(|link| *link != title);
        self
    }
}

/// Returns the titles between marks, without the words of a link.
fn enclosed<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(open).skip(1).filter_map(move |rest| {
        let (inner, _) = rest.split_once(close)?;
        inner.split('|').next()
    })
}

fn distinct<'a>(titles: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    titles.filter(|title| seen.insert(*title)).collect()
}

/// Returns MediaWiki's hash of a text: its SHA-1 with 31 digits of base 36.
pub(crate) fn hash(text: &[u8]) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let digest: [u8; 20] = Sha1::digest(text).into();
    let mut number = [0_u32; 5];
    for (word, bytes) in number.iter_mut().zip(digest.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    let mut digits = [0_u8; 31];
    for digit in digits.iter_mut().rev() {
        let mut rest = 0_u64;
        for word in &mut number {
            let value = rest << 32 | u64::from(*word);
            *word = (value / 36) as u32;
            rest = value % 36;
        }
        *digit = DIGITS[rest as usize];
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

/// Returns a number by which the database finds a comment with this text, as MediaWiki's CRC-32.
pub(crate) fn comment_hash(text: &str) -> i64 {
    let digest: [u8; 20] = Sha1::digest(text.as_bytes()).into();
    i64::from(i32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: WikiPages = WikiPages { articles: 2_000, seed: 1 };

    #[test]
    fn pages_have_the_mean_size_and_links_of_an_encyclopedia() {
        let texts: Vec<String> = (1..=PAGES.articles).map(|number| PAGES.page(number).text).collect();
        let mean = texts.iter().map(String::len).sum::<usize>() as f64 / texts.len() as f64;
        // 430 MB / 190,000 is 2,263.
        assert!((2_050.0..2_650.0).contains(&mean), "{mean}");
        assert!(texts.iter().any(|text| text.len() > 10_000));
        let links = texts.iter().map(|text| References::of(text).links.len()).sum::<usize>();
        let mean = links as f64 / texts.len() as f64;
        assert!((12.0..25.0).contains(&mean), "{mean}");
    }

    #[test]
    fn a_text_follows_from_its_seed() {
        assert_eq!(PAGES.page(3), PAGES.page(3));
        assert_ne!(PAGES.page(3).text, PAGES.page(4).text);
        assert_ne!(PAGES.page(3).text, WikiPages { seed: 2, ..PAGES }.page(3).text);
    }

    #[test]
    fn each_number_is_a_page_and_references_exist() {
        let pages = WikiPages { articles: 300, seed: 3 };
        let all: Vec<NewPage> = (1..=pages.count()).map(|number| pages.page(number)).collect();
        let names: HashSet<(i64, &str)> = all.iter().map(|page| (page.namespace, &*page.title)).collect();
        assert_eq!(names.len(), all.len());
        let mut missing = 0;
        for page in &all[..300] {
            let found = References::of(&page.text);
            assert_eq!((found.templates.len(), found.categories.len()), (1, 2), "{}", page.text);
            assert!(names.contains(&(TEMPLATE, found.templates[0])));
            assert!(found.categories.iter().all(|title| names.contains(&(CATEGORY, *title))));
            assert!(!found.links.is_empty());
            missing += found.links.iter().filter(|title| !names.contains(&(0, **title))).count();
        }
        assert!(missing > 100, "{missing}");
    }

    #[test]
    fn an_edit_replaces_the_last_paragraph() {
        let first = PAGES.page(1).text;
        let once = edited(&first, "10.0.0.1", "Page_000007");
        let twice = edited(&once, "10.0.0.2", "Page_000008");
        assert!(twice.ends_with("\n\nEdited by 10.0.0.2, with [[Page_000008|a link]]."));
        assert_eq!(once.len(), twice.len());
        assert_eq!(twice.matches(EDITED).count(), 1);
    }

    #[test]
    fn references_are_found_once() {
        let text = "{{A}} [[B|b]] [[C]] [[B]] [[Category:D]] {{A}} [[ unclosed";
        let found = References::of(text);
        assert_eq!((found.links, found.categories, found.templates), (vec!["B", "C"], vec!["D"], vec!["A"]));
    }

    /// From MediaWiki's own rows of the trace.
    #[test]
    fn a_hash_is_mediawikis() {
        assert_eq!(hash(b"All about databases."), "nwu28ec1t1of9evp7qtxkgyuj2ozghc");
        assert_eq!(hash(b"").len(), 31);
    }
}
