//! The difference of two means: an interval, a p-value, and the smallest
//! detectable difference.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Mean of one side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean over runs.
    pub mean: f64,
    /// Its squared standard error.
    pub squared_error: f64,
    /// Number of runs; at least 2.
    pub runs: usize,
}

/// The difference of B and A.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// B − A.
    pub difference: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// Degrees of freedom of the standard error.
    pub freedom: f64,
}

impl Difference {
    /// Returns the difference of two independent sides. `None` if a side has fewer
    /// than two runs or a value is not finite.
    ///
    /// d = b − a, SE² = SE_A² + SE_B², and
    /// ν = (SE_A² + SE_B²)² / (SE_A⁴/(n_A−1) + SE_B⁴/(n_B−1)).
    ///
    /// ν is that of Welch, Biometrika 34 (1947), and Satterthwaite: the variances of the
    /// sides may differ. If neither side varies, ν = n_A + n_B − 2.
    pub fn of(a: &Mean, b: &Mean) -> Option<Difference> {
        let difference = b.mean - a.mean;
        let squared = a.squared_error + b.squared_error;
        if a.runs < 2 || b.runs < 2 || !difference.is_finite() || !squared.is_finite() || squared < 0.0 {
            return None;
        }
        let (n_a, n_b) = (a.runs as f64 - 1.0, b.runs as f64 - 1.0);
        // Shares of the sum, so that small numbers do not underflow when squared.
        let shares = (a.squared_error / squared, b.squared_error / squared);
        let freedom = if squared > 0.0 {
            (1.0 / (shares.0 * shares.0 / n_a + shares.1 * shares.1 / n_b)).clamp(n_a.min(n_b), n_a + n_b)
        } else {
            n_a + n_b
        };
        Some(Difference { difference, standard_error: squared.sqrt(), freedom })
    }

    fn student(&self) -> Option<StudentsT> {
        StudentsT::new(0.0, 1.0, self.freedom).ok()
    }

    /// Returns the t that is exceeded with probability `tail` (0 to 1/2).
    fn t(&self, tail: f64) -> f64 {
        self.student().map_or(f64::INFINITY, |student| student.inverse_cdf(1.0 - tail))
    }

    /// Returns the probability of a difference at least as large, in either direction, if the
    /// means are equal: p = 2 P(T_ν > |d| / SE), Student's t.
    pub fn p_value(&self) -> f64 {
        if self.difference == 0.0 {
            return 1.0;
        }
        if self.standard_error == 0.0 {
            return 0.0;
        }
        let t = self.difference.abs() / self.standard_error;
        self.student().map_or(1.0, |student| (2.0 * student.sf(t)).clamp(0.0, 1.0))
    }

    /// Returns the confidence interval d ± t_{ν,1−α/2} SE, which misses the true value with
    /// probability `alpha`.
    pub fn interval(&self, alpha: f64) -> (f64, f64) {
        let half = self.half_width(alpha);
        (self.difference - half, self.difference + half)
    }

    /// Returns t_{ν,1−α/2} SE: the |d| above which a difference is significant at α.
    pub fn half_width(&self, alpha: f64) -> f64 {
        if self.standard_error == 0.0 { 0.0 } else { self.t(alpha / 2.0) * self.standard_error }
    }

    /// Returns the smallest true difference that is detected with probability
    /// `power`: max(t_{ν,1−α/2} SE, floor) + t_{ν,power} SE.
    ///
    /// `alpha` is the level of the test after any correction for multiple tests, and |d| must also exceed
    /// `floor`. Without a floor it is the classic one: Bloom, Evaluation Review 19 (1995). Like the
    /// standard error in it, it is an estimate.
    pub fn detectable(&self, alpha: f64, power: f64, floor: f64) -> f64 {
        if self.standard_error == 0.0 {
            return floor;
        }
        self.half_width(alpha).max(floor) + self.t(1.0 - power).max(0.0) * self.standard_error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(sample: &[f64]) -> Mean {
        let mean = crate::moments::mean(sample).unwrap();
        let squared_error = crate::moments::variance(sample).unwrap() / sample.len() as f64;
        Mean { mean, squared_error, runs: sample.len() }
    }

    #[test]
    fn values_agree_with_the_textbook() {
        // Computed by hand for equal variances and sizes, where Welch's ν is n_A + n_B − 2:
        // d = 1, SE = √(2.5/5 + 2.5/5) = 1, ν = 8, t = 1: p = 0.3466, t(0.975) = 2.3060.
        let a = of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        let b = of(&[2.0, 3.0, 4.0, 5.0, 6.0]);
        let difference = Difference::of(&a, &b).unwrap();
        assert!((difference.freedom - 8.0).abs() < 1e-9 && (difference.standard_error - 1.0).abs() < 1e-9);
        assert!((difference.p_value() - 0.34659).abs() < 1e-4, "{}", difference.p_value());
        let (low, high) = difference.interval(0.05);
        assert!((low - (1.0 - 2.30600)).abs() < 1e-4 && (high - 3.30600).abs() < 1e-4, "{low} {high}");
        // t(0.8, 8) = 0.88889.
        assert!((difference.detectable(0.05, 0.8, 0.0) - (2.30600 + 0.88889)).abs() < 1e-4);
        assert!((difference.detectable(0.05, 0.8, 4.0) - 4.88889).abs() < 1e-4);
    }

    #[test]
    fn the_example_in_the_document_is_correct() {
        let logs = |values: [f64; 5]| of(&values.map(f64::ln));
        let (a, b) = (logs([10.0, 10.2, 9.9, 10.1, 10.3]), logs([10.9, 11.1, 10.8, 11.2, 10.7]));
        let difference = Difference::of(&a, &b).unwrap();
        let near = |estimate: f64, expected: f64| {
            assert!((estimate / expected - 1.0).abs() < 1e-4, "{estimate} {expected}")
        };
        near(difference.difference, 0.079845);
        near(difference.standard_error, 0.0109870);
        near(difference.freedom, 7.72771);
        near(difference.p_value(), 0.00010303);
        let (low, high) = difference.interval(0.05);
        near(low.exp_m1(), 0.0558568);
        near(high.exp_m1(), 0.1110853);
        near(difference.detectable(0.005, 0.8, 0.0399).exp_m1(), 0.0538090);
    }

    #[test]
    fn sides_of_unequal_variance_have_fewer_degrees_of_freedom() {
        let quiet = Mean { mean: 0.0, squared_error: 1e-9, runs: 9 };
        let loud = Mean { mean: 1.0, squared_error: 1.0, runs: 5 };
        let freedom = Difference::of(&quiet, &loud).unwrap().freedom;
        assert!((freedom - 4.0).abs() < 1e-6, "{freedom}");
    }

    #[test]
    fn constant_samples_and_samples_that_are_not_finite() {
        let mean = |mean, runs| Mean { mean, squared_error: 0.0, runs };
        let same = Difference::of(&mean(1.0, 5), &mean(1.0, 5)).unwrap();
        assert_eq!(
            (same.p_value(), same.interval(0.05), same.detectable(0.05, 0.8, 0.1)),
            (1.0, (0.0, 0.0), 0.1)
        );
        assert_eq!(Difference::of(&mean(1.0, 5), &mean(2.0, 5)).unwrap().p_value(), 0.0);
        assert_eq!(Difference::of(&mean(1.0, 1), &mean(2.0, 5)), None);
        assert_eq!(Difference::of(&mean(f64::NAN, 5), &mean(2.0, 5)), None);
    }

    proptest! {
        #[test]
        fn interval_and_p_value_agree(a in prop::collection::vec(-1.0f64..1.0, 2..12), b in prop::collection::vec(-1.0f64..1.0, 2..12), alpha in 0.001f64..0.3) {
            let difference = Difference::of(&of(&a), &of(&b)).unwrap();
            let (low, high) = difference.interval(alpha);
            let p = difference.p_value();
            prop_assume!((p - alpha).abs() > 1e-6);
            prop_assert_eq!(low <= 0.0 && 0.0 <= high, p > alpha, "{} {} {}", p, low, high);
            prop_assert!(difference.detectable(alpha, 0.8, 0.0) >= difference.half_width(alpha));
        }
    }
}
