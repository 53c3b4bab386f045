//! Mean and variance.

/// Returns the mean.
///
/// m = Σ xᵢ / n. `None` for no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the variance of a population, estimated from a sample.
///
/// s² = Σ (xᵢ − m)² / (n − 1), where m is the mean: unbiased (Bessel).
/// Computed in two passes for precision. `None` for fewer than two values.
pub fn variance(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    (values.len() > 1).then(|| squares / (values.len() - 1) as f64)
}

/// Mean and variance of a stream of numbers.
///
/// With dₙ = xₙ − mₙ₋₁: mₙ = mₙ₋₁ + dₙ / n and Mₙ = Mₙ₋₁ + dₙ (xₙ − mₙ).
/// Welford, Technometrics 4 (1962).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunningMoments {
    count: u64,
    mean: f64,
    squares: f64,
}

impl RunningMoments {
    /// Adds a number.
    pub fn push(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }

    /// Returns the number of numbers.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns their mean; 0 for no numbers.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns M / n, the mean square distance from their mean: the variance of these
    /// numbers, not of a population that they are a sample of. 0 for no numbers.
    pub fn spread(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.squares / self.count as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_of_a_known_sample() {
        assert_eq!(mean(&[2.0, 4.0, 9.0]), Some(5.0));
        assert_eq!(variance(&[2.0, 4.0, 9.0]), Some(13.0));
        assert_eq!((mean(&[]), variance(&[1.0])), (None, None));
        assert_eq!(RunningMoments::default().spread(), 0.0);
    }

    proptest! {
        #[test]
        fn running_moments_equal_those_of_the_sample(values in prop::collection::vec(-1e3f64..1e3, 2..60)) {
            let mut running = RunningMoments::default();
            values.iter().for_each(|&v| running.push(v));
            prop_assert!((running.mean() - mean(&values).unwrap()).abs() < 1e-9);
            let n = values.len() as f64;
            prop_assert!((running.spread() - variance(&values).unwrap() * (n - 1.0) / n).abs() < 1e-6);
        }
    }
}
