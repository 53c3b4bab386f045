//! Isotonic regression.

/// Returns the isotonic regression: the nondecreasing values closest to the
/// points.
///
/// Minimizes Σ wᵢ (ŷᵢ − yᵢ)² under ŷᵢ ≤ ŷⱼ wherever xᵢ < xⱼ, and ŷᵢ = ŷⱼ
/// where xᵢ = xⱼ. `points` are pairs (x, y) in any order. `weights` has one weight per
/// point, not negative; without weights all are 1. Returns ŷ of each point
/// in the order of `points`. Points without weight get the value of their
/// block.
///
/// Pool adjacent violators: decreasing neighbours are merged into one block with
/// their weighted mean, until none decrease. Ayer, Brunk, Ewing, Reid, Silverman,
/// Annals of Mathematical Statistics 26 (1955); Best and Chakravarti,
/// Mathematical Programming 47 (1990) for the linear time.
///
/// # Panics
/// If the numbers of weights and points differ.
pub fn isotonic(points: &[(f64, f64)], weights: Option<&[f64]>) -> Vec<f64> {
    if let Some(weights) = weights {
        assert_eq!(weights.len(), points.len(), "one weight a point");
    }
    let weight = |index: usize| weights.map_or(1.0, |weights| weights[index].max(0.0));
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|&a, &b| points[a].0.total_cmp(&points[b].0));
    // Points with equal x form one block from the start.
    let mut blocks: Vec<PooledBlock> = Vec::with_capacity(points.len());
    let mut last_x = f64::NAN;
    for index in order {
        let (x, y) = points[index];
        let block = PooledBlock { mean: y, weight: weight(index), members: vec![index] };
        match blocks.last_mut() {
            Some(last) if x == last_x => last.take(block),
            _ => blocks.push(block),
        }
        last_x = x;
    }
    let mut rising: Vec<PooledBlock> = Vec::with_capacity(blocks.len());
    for mut block in blocks {
        while let Some(before) = rising.pop_if(|before| before.mean > block.mean) {
            let after = std::mem::replace(&mut block, before);
            block.take(after);
        }
        rising.push(block);
    }
    let mut fitted = vec![0.0; points.len()];
    for block in rising {
        for member in block.members {
            fitted[member] = block.mean;
        }
    }
    fitted
}

struct PooledBlock {
    mean: f64,
    weight: f64,
    members: Vec<usize>,
}

impl PooledBlock {
    fn take(&mut self, other: PooledBlock) {
        let weight = self.weight + other.weight;
        self.mean = if weight > 0.0 {
            (self.mean * self.weight + other.mean * other.weight) / weight
        } else {
            (self.mean + other.mean) / 2.0
        };
        self.weight = weight;
        self.members.extend(other.members);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decreasing_values_are_pooled() {
        let points = [(1.0, 1.0), (2.0, 3.0), (3.0, 2.0), (4.0, 6.0), (5.0, 4.0), (6.0, 5.0)];
        assert_eq!(isotonic(&points, None), [1.0, 2.5, 2.5, 5.0, 5.0, 5.0]);
        let weighted = isotonic(&points, Some(&[1.0, 3.0, 1.0, 1.0, 1.0, 1.0]));
        assert_eq!(weighted, [1.0, 2.75, 2.75, 5.0, 5.0, 5.0]);
        assert!(isotonic(&[], None).is_empty());
    }

    #[test]
    fn order_does_not_matter_and_one_x_has_one_value() {
        assert_eq!(isotonic(&[(3.0, 2.0), (1.0, 1.0), (2.0, 3.0)], None), [2.5, 1.0, 2.5]);
        assert_eq!(isotonic(&[(1.0, 5.0), (1.0, 1.0), (2.0, 4.0)], None), [3.0, 3.0, 4.0]);
        assert_eq!(isotonic(&[(1.0, 5.0), (2.0, 1.0)], Some(&[0.0, 1.0])), [1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn the_fit_is_isotonic_keeps_the_sum_and_is_the_closest(
            values in prop::collection::vec((0.0f64..10.0, 0.1f64..5.0), 1..30), other in prop::collection::vec(0.0f64..10.0, 30)) {
            let points: Vec<_> = values.iter().enumerate().map(|(i, v)| (i as f64, v.0)).collect();
            let weights: Vec<_> = values.iter().map(|v| v.1).collect();
            let fitted = isotonic(&points, Some(&weights));
            prop_assert!(fitted.windows(2).all(|pair| pair[0] <= pair[1] + 1e-12));
            let sum = |ys: &[f64]| ys.iter().zip(&weights).map(|(y, w)| y * w).sum::<f64>();
            let given: Vec<_> = points.iter().map(|p| p.1).collect();
            prop_assert!((sum(&fitted) - sum(&given)).abs() < 1e-6);
            let distance = |ys: &[f64]| ys.iter().zip(&given).zip(&weights).map(|((a, b), w)| w * (a - b).powi(2)).sum::<f64>();
            // No other nondecreasing line is closer.
            let mut other = other[..given.len()].to_vec();
            other.sort_by(f64::total_cmp);
            prop_assert!(distance(&fitted) <= distance(&other) + 1e-9);
        }
    }
}
