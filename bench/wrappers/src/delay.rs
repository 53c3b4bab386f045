//! Artificial delays of operations.

use std::time::Duration;

/// Distribution of an artificial delay.
#[derive(Debug, Clone, Copy)]
pub struct Delay {
    /// The mean.
    pub mean: Duration,
    /// `constant`, `uniform` (from 0 to twice the mean) or `exponential`.
    pub spread: &'static str,
}

impl Delay {
    /// Sleeps for the next delay.
    pub fn sleep(self, random: &mut SplitMix) {
        if !self.mean.is_zero() {
            std::thread::sleep(self.draw(random));
        }
    }

    /// Draws the next delay, by inversion of the distribution.
    pub fn draw(self, random: &mut SplitMix) -> Duration {
        match self.spread {
            "uniform" => self.mean.mul_f64(2.0 * random.fraction()),
            // 1 - u is never 0, so the longest delay is 37 times the mean.
            "exponential" => self.mean.mul_f64(-(1.0 - random.fraction()).ln()),
            _ => self.mean,
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014). Delays must differ between clients
/// and repeat between runs; the client's number suffices as seed.
#[derive(Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// Returns a number in [0, 1).
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(spread: &'static str, seed: u64) -> Vec<f64> {
        let delay = Delay { mean: Duration::from_millis(1), spread };
        let mut random = SplitMix(seed);
        (0..100_000).map(|_| delay.draw(&mut random).as_secs_f64() * 1e3).collect()
    }

    #[test]
    fn delays_have_the_configured_mean_and_shape() {
        for spread in ["constant", "uniform", "exponential"] {
            let draws = draws(spread, 1);
            let count = draws.len() as f64;
            let mean = draws.iter().sum::<f64>() / count;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            let expected = match spread {
                "constant" => 0.0,
                "uniform" => 4.0 / 12.0,
                _ => 1.0,
            };
            // Ten standard errors at 100,000 draws.
            assert!((mean - 1.0).abs() < 0.03, "{spread}: mean {mean}");
            assert!((variance - expected).abs() < 0.1, "{spread}: variance {variance}");
        }
    }

    #[test]
    fn clients_draw_different_delays_and_runs_repeat() {
        assert_eq!(draws("exponential", 3), draws("exponential", 3));
        assert_ne!(draws("exponential", 3), draws("exponential", 4));
    }

    #[test]
    fn the_longest_mean_does_not_overflow() {
        let delay = Delay { mean: Duration::from_nanos(u64::MAX), spread: "exponential" };
        let mut random = SplitMix(0);
        assert!((0..10_000).all(|_| delay.draw(&mut random) < Duration::MAX));
    }
}
