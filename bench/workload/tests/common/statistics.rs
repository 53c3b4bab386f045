//! Goodness of fit.
//!
//! All tests use fixed seeds, so each passes always or never. The threshold on p
//! is a millionth: a change of seed does not break a correct law, and a wrong
//! one is detected. With 200,000 draws, a probability of 1/10 that is off by 2 %
//! has p below 10^-6.

/// The law is rejected below this p-value.
pub(crate) const P: f64 = 1e-6;

/// Draws by cell, compared with the probabilities of the cells.
pub(crate) struct Fit {
    pub(crate) label: String,
    pub(crate) observed: Vec<u64>,
    pub(crate) probabilities: Vec<f64>,
}

impl Fit {
    pub(crate) fn new(label: impl Into<String>, probabilities: Vec<f64>) -> Self {
        Fit { label: label.into(), observed: vec![0; probabilities.len()], probabilities }
    }

    pub(crate) fn count(&mut self, cell: usize) {
        self.observed[cell] += 1;
    }

    /// Returns the p-value of Pearson's chi-square test. Merges neighbouring cells with
    /// few expected draws.
    pub(crate) fn p(&self) -> f64 {
        let total: u64 = self.observed.iter().sum();
        let sum: f64 = self.probabilities.iter().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{}: the probabilities add up to {sum}", self.label);
        let (mut chi, mut cells) = (0.0, 0);
        let (mut seen, mut expected) = (0.0, 0.0);
        let mut rest = 1.0;
        for (observed, probability) in self.observed.iter().zip(&self.probabilities) {
            seen += *observed as f64;
            expected += probability * total as f64;
            rest -= probability;
            let last = rest * (total as f64) < 8.0;
            if expected >= 8.0 && !last {
                chi += (seen - expected) * (seen - expected) / expected;
                cells += 1;
                (seen, expected) = (0.0, 0.0);
            }
        }
        if expected > 0.0 {
            chi += (seen - expected) * (seen - expected) / expected;
            cells += 1;
        } else if seen > 0.0 {
            return 0.0;
        }
        if cells < 2 { 1.0 } else { upper_gamma(f64::from(cells - 1) / 2.0, chi / 2.0) }
    }

    pub(crate) fn check(&self) {
        let p = self.p();
        assert!(p > P, "{}: p = {p:e}", self.label);
    }
}

/// Whether the number of hits fits a probability within `sigmas`.
pub(crate) fn within(sigmas: f64, hits: u64, draws: u64, probability: f64) -> bool {
    let expected = draws as f64 * probability;
    let deviation = (expected * (1.0 - probability)).sqrt();
    (hits as f64 - expected).abs() <= sigmas * deviation
}

/// Returns the regularized upper incomplete gamma function Q(a, x): by its series below
/// a + 1, by its continued fraction above (NIST DLMF 8.7, 8.9).
pub(crate) fn upper_gamma(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let front = libm::exp(a * libm::log(x) - x - libm::lgamma(a));
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-16 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return 1.0 - front * sum;
    }
    // Lentz's method.
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut fraction = d;
    for i in 1..100_000 {
        let an = -f64::from(i) * (f64::from(i) - a);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * fraction
}
