//! Quantiles of samples.

/// Returns the quantile of numbers in rising order, interpolated between two of
/// them.
///
/// With h = (n − 1) p: Q = x₍⌊h⌋₎ + (h − ⌊h⌋) (x₍⌊h⌋₊₁₎ − x₍⌊h⌋₎), x counted
/// from 0; p from 0 to 1. Definition 7 of Hyndman and Fan, The American
/// Statistician 50 (1996), as in R and NumPy. `None` for no values.
pub fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let h = last as f64 * p.clamp(0.0, 1.0);
    let below = (h.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let part = h - h.floor();
    // Two equal infinities have no difference.
    if part == 0.0 || sorted[below] == sorted[above] {
        return Some(sorted[below]);
    }
    Some(sorted[below] + part * (sorted[above] - sorted[below]))
}

/// Like [`quantile`], for numbers in any order.
pub fn quantile_of(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, p)
}

/// Returns the median.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile_of(values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_agree_with_r() {
        // quantile(c(1, 2, 4, 8, 16), c(0, .1, .5, .9, 1), type = 7)
        let values = [8.0, 1.0, 16.0, 4.0, 2.0];
        for (p, expected) in [(0.0, 1.0), (0.1, 1.4), (0.5, 4.0), (0.9, 12.8), (1.0, 16.0)] {
            assert!((quantile_of(&values, p).unwrap() - expected).abs() < 1e-12, "{p}");
        }
        assert_eq!((quantile(&[], 0.5), median(&[3.0])), (None, Some(3.0)));
    }

    proptest! {
        #[test]
        fn quantiles_increase_and_stay_within_the_sample(values in prop::collection::vec(-1e6f64..1e6, 1..50), p in 0.0f64..1.0, q in 0.0f64..1.0) {
            let (low, high) = (quantile_of(&values, p.min(q)).unwrap(), quantile_of(&values, p.max(q)).unwrap());
            prop_assert!(low <= high + 1e-9);
            prop_assert!(values.iter().any(|v| *v <= low) && values.iter().any(|v| *v >= high));
        }
    }
}
