//! The choice of an article.

use super::text::unit;
use yesquel_seeds::Random;

/// Exponent of Zipf's law: article of rank `k` has a weight of `1 / k`, about as Wikipedia's views.
const EXPONENT: f64 = 1.0;

/// Multiplier that distributes the ranks over the articles; made coprime to their number.
const STEP: u64 = 2_654_435_761;

/// Distribution of views and edits over the articles.
#[derive(Debug)]
pub(crate) enum Popularity {
    /// Uniform, as in the paper.
    Uniform { articles: u64 },
    /// Zipf's law. Articles of neighbouring ranks have distant numbers.
    Zipf {
        /// Sums of the weights of the ranks up to each one.
        sums: Vec<f64>,
        step: u64,
    },
}

impl Popularity {
    pub(crate) fn zipf(articles: u64) -> Popularity {
        let mut sum = 0.0;
        let weights = (1..=articles).map(|rank| (rank as f64).powf(-EXPONENT));
        let sums = weights.map(|weight| {
            sum += weight;
            sum
        });
        let mut step = STEP % articles.max(1);
        while greatest_common_divisor(step, articles) != 1 {
            step += 1;
        }
        Popularity::Zipf { sums: sums.collect(), step }
    }

    /// Draws the number of an article, from 1 on.
    pub(crate) fn article(&self, random: &mut Random) -> u64 {
        match self {
            Popularity::Uniform { articles } => random.next(*articles) + 1,
            Popularity::Zipf { sums, step } => {
                let wanted = unit(random) * sums.last().copied().unwrap_or_default();
                let rank = sums.partition_point(|sum| *sum <= wanted).min(sums.len().saturating_sub(1));
                rank as u64 * step % sums.len() as u64 + 1
            }
        }
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(popularity: &Popularity, articles: usize) -> Vec<u32> {
        let mut random = Random::new(1);
        let mut counts = vec![0; articles];
        for _ in 0..100_000 {
            counts[popularity.article(&mut random) as usize - 1] += 1;
        }
        counts
    }

    #[test]
    fn ranks_have_the_weights_of_the_law() {
        for articles in [100, 101, 1] {
            let mut counts = counts(&Popularity::zipf(articles), articles as usize);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let sum: f64 = (1..=articles).map(|rank| 1.0 / rank as f64).sum();
            for rank in [1, articles.min(2), articles.min(10)] {
                let expected = 100_000.0 / sum / rank as f64;
                let ratio = f64::from(counts[rank as usize - 1]) / expected;
                assert!((0.85..1.15).contains(&ratio), "rank {rank} of {articles}: {ratio}");
            }
        }
    }

    #[test]
    fn uniform_articles_are_alike() {
        let counts = counts(&Popularity::Uniform { articles: 10 }, 10);
        assert!(counts.iter().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
    }
}
