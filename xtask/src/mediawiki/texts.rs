//! The wiki's pages: titles, texts with the sizes and links of an encyclopedia, and the choice of a
//! page. All of it follows from a seed.

/// Bytes of the median page. With [`SIZE_SPREAD`] the mean is 2.3 KB, as of Simple English
/// Wikipedia's pages (section 6.3 of the paper: 190,000 pages, 430 MB).
const SIZE_MEDIAN: f64 = 1_300.0;

/// Standard deviation of the logarithm of a page's size.
const SIZE_SPREAD: f64 = 1.07;

const SIZE_MIN: f64 = 200.0;
const SIZE_MAX: f64 = 65_536.0;

/// One word in so many is a link to another page.
const WORDS_A_LINK: u64 = 15;

/// One link in so many leads to a page that does not exist.
const LINKS_A_MISSING_PAGE: u64 = 8;

/// Words of the texts. Not all of them are ASCII.
const WORDS: &[&str] = &[
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
    "located",
    "between",
    "東京",
    "its",
    "population",
    "island",
    "by",
    "from",
    "history",
    "chemical",
    "element",
    "state",
    "with",
    "Ελλάδα",
    "football",
    "team",
    "won",
    "railway",
    "species",
    "mountain",
    "north",
    "south",
    "film",
    "director",
];

/// A sequence of random numbers that its seed determines (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Creates the sequence of a seed and of some numbers that distinguish its uses.
    pub(super) fn new(seed: u64, uses: &[u64]) -> Random {
        let mut random = Random(seed);
        for number in uses {
            random = Random(random.next() ^ number);
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..end`; `end` is above 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        // The bias of the remainder is below 2^-50 for the few thousand values that are drawn here.
        self.next() % end
    }

    /// Returns a number in `[0, 1)`.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number of the standard normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Zipf's law with exponent 1 over pages: page `k`, counted from 1, has a weight of `1 / k`.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    /// Sums of the weights of the pages up to each one.
    sums: Vec<f64>,
}

impl Zipf {
    /// Creates the law over this number of pages.
    pub(super) fn new(pages: usize) -> Zipf {
        let weights = (1..=pages).map(|page| 1.0 / page as f64);
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Zipf { sums: sums.collect() }
    }

    /// Draws a page.
    pub(super) fn page(&self, random: &mut Random) -> usize {
        let wanted = random.unit() * self.sums.last().copied().unwrap_or_default();
        self.sums.partition_point(|sum| *sum <= wanted).min(self.sums.len().saturating_sub(1))
    }
}

/// Returns the title of a page, as in URLs: a wiki redirects from a title with spaces.
pub(super) fn title(page: usize) -> String {
    format!("Page_{page:03}")
}

/// Returns the text of a page, as wikitext.
pub(super) fn text(page: usize, pages: usize, seed: u64) -> String {
    let mut random = Random::new(seed, &[page as u64]);
    let size = (SIZE_MEDIAN * (SIZE_SPREAD * random.normal()).exp()).clamp(SIZE_MIN, SIZE_MAX);
    let mut text = format!("'''{}''' is a page.", title(page));
    let mut section = 0;
    while (text.len() as f64) < size {
        if random.below(4) == 0 {
            section += 1;
            text += &format!("\n\n== Section {section} ==\n");
        } else {
            text += "\n\n";
        }
        for sentence in 0..2 + random.below(4) {
            if sentence > 0 {
                text.push(' ');
            }
            text += &self::sentence(pages, &mut random);
        }
    }
    text
}

fn sentence(pages: usize, random: &mut Random) -> String {
    let words: Vec<String> = (0..6 + random.below(18))
        .map(|_| {
            let word = WORDS[random.below(WORDS.len() as u64) as usize];
            if random.below(WORDS_A_LINK) != 0 {
                return word.to_owned();
            }
            let missing = random.below(LINKS_A_MISSING_PAGE) == 0;
            let page = random.below(pages as u64) as usize + if missing { pages } else { 0 };
            format!("[[{}|{word}]]", title(page))
        })
        .collect();
    format!("{}.", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_mean_size_of_an_encyclopedia() {
        let sizes: Vec<usize> = (0..2_000).map(|page| text(page, 200, 1).len()).collect();
        let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
        assert!((2_000.0..2_900.0).contains(&mean), "{mean}");
        assert!(sizes.iter().all(|size| (200..70_000).contains(size)));
        assert!(sizes.iter().any(|size| *size > 10_000));
    }

    #[test]
    fn a_text_follows_from_its_seed_and_is_kept_by_a_wiki() {
        assert_eq!(text(3, 200, 1), text(3, 200, 1));
        assert_ne!(text(3, 200, 1), text(3, 200, 2));
        // A wiki removes white space at the end of a page.
        assert!((0..200).map(|page| text(page, 200, 1)).all(|text| text.trim_end() == text));
    }

    #[test]
    fn pages_are_drawn_by_the_law() {
        let (law, mut random) = (Zipf::new(100), Random::new(1, &[]));
        let mut counts = [0_u32; 100];
        for _ in 0..100_000 {
            counts[law.page(&mut random)] += 1;
        }
        // The harmonic sum of 100 is 5.187.
        let expected = |page: usize| 100_000.0 / 5.187 / (page + 1) as f64;
        for page in [0, 1, 9, 99] {
            let ratio = f64::from(counts[page]) / expected(page);
            assert!((0.8..1.2).contains(&ratio), "page {page}: {ratio}");
        }
    }
}
