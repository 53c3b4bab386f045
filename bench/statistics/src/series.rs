//! Autocorrelation of series.

/// Factor c of the threshold for relevant lags: Politis and White recommend 2.
const THRESHOLD: f64 = 2.0;

/// Returns the autocorrelation at lags 0 to `lags`.
///
/// ρ(k) = R(k) / R(0) with R(k) = n⁻¹ Σ_{t=1}^{n−k} (x_t − m)(x_{t+k} − m), m the
/// mean. Brockwell and Davis, "Time Series: Theory and Methods" (1991), 1.4. It is 0 at lags
/// of n and above, and for a constant series, except for ρ(0) = 1.
pub fn autocorrelation(series: &[f64], lags: usize) -> Vec<f64> {
    let covariances = autocovariance(series, lags);
    let whole = covariances[0];
    let rest = covariances[1..].iter().map(|r| if whole > 0.0 { r / whole } else { 0.0 });
    std::iter::once(1.0).chain(rest).collect()
}

/// Returns R(0) to R(lags), as in [`autocorrelation`].
fn autocovariance(series: &[f64], lags: usize) -> Vec<f64> {
    let n = series.len();
    let mean = series.iter().sum::<f64>() / n.max(1) as f64;
    let off: Vec<f64> = series.iter().map(|x| x - mean).collect();
    let at = |lag: usize| off[lag.min(n)..].iter().zip(&off).map(|(a, b)| a * b).sum::<f64>();
    (0..=lags).map(|lag| at(lag) / n.max(1) as f64).collect()
}

/// Returns the block length for the circular block bootstrap of a mean, estimated from
/// the series; from 1 to min(3 √n, n/3), rounded up.
///
/// b = (2 G² / D)^{1/3} n^{1/3} with
///
/// | symbol | meaning |
/// |---|---|
/// | R(k) | autocovariance at lag k, as in [`autocorrelation`] |
/// | G | Σ_{k=−M}^{M} λ(k/M) \|k\| R(k) |
/// | D | (4/3) g², g = Σ_{k=−M}^{M} λ(k/M) R(k) |
/// | λ(t) | 1 for \|t\| ≤ 1/2, 2 (1 − \|t\|) up to 1, then 0: a flat top |
/// | M | 2 m̂, at most ⌈√n⌉ + K |
/// | m̂ | the smallest m such that \|ρ(m + k)\| < 2 √(log₁₀ n / n) for k = 1 … K |
/// | K | max(5, ⌊√log₁₀ n⌋) |
///
/// Politis and White, Econometric Reviews 23 (2004), with the D of the correction:
/// Patton, Politis and White, Econometric Reviews 28 (2009).
pub fn block_length(series: &[f64]) -> f64 {
    let n = series.len();
    if n < 4 {
        return 1.0;
    }
    let size = n as f64;
    let longest = (3.0 * size.sqrt()).min(size / 3.0).ceil();
    let in_a_row = 5.max(size.log10().sqrt().floor() as usize);
    let lag_max = (size.sqrt().ceil() as usize + in_a_row).min(n - 1);
    let covariance = autocovariance(series, lag_max + in_a_row);
    if covariance[0].partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
        return 1.0;
    }
    let bound = THRESHOLD * (size.log10() / size).sqrt() * covariance[0];
    let small = |lag: usize| covariance[lag].abs() < bound;
    let insignificant = |m: &usize| (1..=in_a_row).all(|k| small(m + k));
    let last = (0..=lag_max).find(insignificant).unwrap_or(lag_max).max(1);
    let width = (2 * last).min(lag_max);
    let (mut big_g, mut small_g) = (0.0, covariance[0]);
    for (k, covariance) in covariance.iter().enumerate().take(width + 1).skip(1) {
        let t = k as f64 / width as f64;
        let top = if t <= 0.5 { 1.0 } else { 2.0 * (1.0 - t) };
        big_g += 2.0 * top * k as f64 * covariance;
        small_g += 2.0 * top * covariance;
    }
    let d = 4.0 / 3.0 * small_g * small_g;
    let length = (2.0 * big_g * big_g / d * size).cbrt();
    // A spectrum of zero at frequency zero sets no upper bound on the block length.
    if length.is_finite() { length.clamp(1.0, longest) } else { longest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// x_t = φ x_{t−1} + e_t.
    fn ar1(phi: f64, n: usize, seed: u64) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut x = 0.0;
        let mut next = || {
            let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            x = phi * x + normal;
            x
        };
        (0..n + 100).map(|_| next()).skip(100).collect()
    }

    fn mean_length(phi: f64, n: usize) -> f64 {
        (0..50).map(|seed| block_length(&ar1(phi, n, seed))).sum::<f64>() / 50.0
    }

    #[test]
    fn autocorrelation_of_ar1_decays_geometrically() {
        let rho = autocorrelation(&ar1(0.6, 50_000, 1), 4);
        for (lag, rho) in rho.iter().enumerate() {
            assert!((rho - 0.6f64.powi(lag as i32)).abs() < 0.03, "{lag}: {rho}");
        }
        assert_eq!(autocorrelation(&[2.0, 2.0, 2.0], 2), [1.0, 0.0, 0.0]);
        assert_eq!(autocorrelation(&[1.0, 2.0], 5)[2..], [0.0; 4]);
    }

    #[test]
    fn block_lengths_agree_with_theory() {
        // For AR(1): G = 2 φ / ((1 − φ)² (1 − φ²)) σ², g = σ² / (1 − φ)², so that
        // b = (3/2 (2 φ / (1 − φ²))²)^{1/3} n^{1/3}.
        let theory = |phi: f64, n: f64| (1.5 * (2.0 * phi / (1.0 - phi * phi)).powi(2) * n).cbrt();
        for phi in [0.3, 0.6] {
            let (estimate, theory) = (mean_length(phi, 2_000), theory(phi, 2_000.0));
            assert!((estimate / theory - 1.0).abs() < 0.25, "{phi}: {estimate} for {theory}");
        }
        let independent = mean_length(0.0, 2_000);
        assert!(independent < 4.0, "{independent}");
    }

    #[test]
    fn short_and_constant_series_have_blocks_of_one() {
        assert_eq!(block_length(&[]), 1.0);
        assert_eq!(block_length(&[1.0, 2.0, 3.0]), 1.0);
        assert_eq!(block_length(&[5.0; 100]), 1.0);
        assert_eq!(block_length(&[f64::NAN; 100]), 1.0);
    }

    proptest! {
        #[test]
        fn block_lengths_stay_within_their_bounds(series in prop::collection::vec(-1e6f64..1e6, 0..120)) {
            let length = block_length(&series);
            let n = series.len() as f64;
            prop_assert!(length >= 1.0 && length <= (3.0 * n.sqrt()).min(n / 3.0).ceil().max(1.0), "{length}");
        }
    }
}
