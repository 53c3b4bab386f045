//! Corrections for multiple tests.

/// Returns p-values adjusted by Holm's step-down method. If all tests with an adjusted
/// value of at most α are called different, the probability of any false alarm is at most
/// α, whatever the dependence of the tests.
///
/// With p₍₁₎ ≤ … ≤ p₍ₘ₎: p̃₍ₖ₎ = max over j ≤ k of min(1, (m − j + 1) p₍ⱼ₎).
/// Holm, Scandinavian Journal of Statistics 6 (1979).
///
/// Returns values in the order of `p_values`. A value that is not a number counts as 1.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let m = p_values.len();
    let value = |index: usize| if p_values[index].is_nan() { 1.0 } else { p_values[index] };
    let mut order: Vec<usize> = (0..m).collect();
    order.sort_by(|&a, &b| value(a).total_cmp(&value(b)));
    let mut adjusted = vec![1.0; m];
    let mut largest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max(((m - rank) as f64 * value(index)).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_agree_with_r() {
        // p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[f64::NAN, 0.02]), [1.0, 0.04]);
        assert!(holm(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn corrections_lie_between_none_and_bonferroni(p_values in prop::collection::vec(0.0f64..1.0, 1..20)) {
            let adjusted = holm(&p_values);
            for (p, adjusted) in p_values.iter().zip(&adjusted) {
                prop_assert!(p <= adjusted && *adjusted <= (p * p_values.len() as f64).min(1.0) + 1e-12);
            }
        }
    }
}
