//! The generalized harmonic number, by which Zipf's law is normalized:
//!
//! `zeta(n, theta) = 1/1^theta + 1/2^theta + ... + 1/n^theta`
//!
//! Example: zeta(3, 1) = 1 + 1/2 + 1/3 = 1.8333...
//!
//! YCSB adds the terms one by one, which takes ten minutes for 10^10 of them.
//! This module computes a long sum as an integral with corrections (Euler and
//! Maclaurin; NIST Digital Library of Mathematical Functions, 2.10(i)), in some
//! microseconds for any n. With f(x) = x^-theta, m = 32, B the Bernoulli numbers:
//!
//! ```text
//! sum f(k), k = m..n  =  integral of f from m to n  +  (f(m) + f(n)) / 2
//!                     +  sum B(2j)/(2j)! (f'(n) - f'(m)), f' of order 2j-1, j = 1, 2, ...
//! ```
//!
//! Seven corrections are used. The first one omitted is below
//! 2 (2 pi)^-16 theta (theta+1) ... (theta+14) m^(-theta-15), relative to a
//! sum of at least 1 less than 10^-20 for every theta above -1, so that only
//! rounding matters. Against sums in extended precision the relative error is
//! below 10^-14 (tested up to n = 10^6 directly, above against published
//! constants and 40-digit references; the contract is 10^-13).
//!
//! YCSB's constant for n = 10^10 and theta = 0.99, 26.46902820178302, contains
//! the rounding errors of ten billion additions. The sum is 26.46902820175148:
//! the constant is too large by 3.15 x 10^-11, relative 1.19 x 10^-12.

/// Up to this many terms, [`zeta`] adds them one by one in YCSB's order, so that
/// the last bit, and with it every draw, is the same. A power takes about 30 ns,
/// so the sum takes about 2 ms; the budget for start-up is 5 ms.
pub const DIRECT_TERMS: u64 = 1 << 16;

/// Terms of a long sum that are added one by one before the integral.
const HEAD: u64 = 32;

/// B(2j)/(2j)! for j = 1 to 7.
const BERNOULLI: [f64; 7] = [
    1.0 / 12.0,
    -1.0 / 720.0,
    1.0 / 30_240.0,
    -1.0 / 1_209_600.0,
    1.0 / 47_900_160.0,
    -691.0 / 1_307_674_368_000.0,
    1.0 / 74_724_249_600.0,
];

/// Returns the sum of `1/k^theta` for k from 1 to `n`; 0 for `n` = 0.
///
/// `theta` is any number above -1, including 1 (means need the range below 0).
/// Relative error below 10^-13. O(min(n, [`DIRECT_TERMS`])).
pub fn zeta(n: u64, theta: f64) -> f64 {
    if n <= DIRECT_TERMS { direct(0, n, theta, 0.0) } else { euler_maclaurin(n, theta) }
}

/// Returns `sum` plus the terms after number `from`, up to number `to`, in YCSB's
/// order of addition.
pub(crate) fn direct(from: u64, to: u64, theta: f64, mut sum: f64) -> f64 {
    for k in from..to {
        sum += 1.0 / libm::pow((k + 1) as f64, theta);
    }
    sum
}

fn euler_maclaurin(n: u64, theta: f64) -> f64 {
    let (m, n) = (HEAD as f64, n as f64);
    let (f_m, f_n) = (libm::pow(m, -theta), libm::pow(n, -theta));
    // The integral is (n^d - m^d)/d for d = 1 - theta, and its limit ln(n/m)
    // for d = 0. This form avoids cancellation near d = 0.
    let d = 1.0 - theta;
    let log = libm::log(n / m);
    let integral = libm::pow(m, d) * log * expm1_quotient(d * log);
    let tail = integral + (f_m + f_n) / 2.0 + (corrections(m, f_m, theta) - corrections(n, f_n, theta));
    direct(0, HEAD - 1, theta, 0.0) + tail
}

/// Returns the sum of `-B(2j)/(2j)!` times the derivative of order 2j-1 of
/// x^-theta, which is -theta (theta+1) ... (theta+2j-2) x^(-theta-2j+1).
fn corrections(x: f64, f_x: f64, theta: f64) -> f64 {
    let mut derivative = f_x * theta / x;
    let mut order = theta + 1.0;
    let mut sum = 0.0;
    for coefficient in BERNOULLI {
        sum += coefficient * derivative;
        derivative *= order * (order + 1.0) / (x * x);
        order += 2.0;
    }
    sum
}

/// Returns `(e^x - 1)/x`; 1 at 0.
pub(crate) fn expm1_quotient(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        libm::expm1(x) / x
    } else {
        // The series; the remaining terms are below 10^-17.
        1.0 + x / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::{DIRECT_TERMS, direct, euler_maclaurin, zeta};

    const THETAS: [f64; 11] = [-0.99, -0.01, 0.01, 0.5, 0.99, 0.999_999_9, 1.0, 1.000_000_1, 1.5, 3.0, 25.0];

    fn relative(found: f64, expected: f64) -> f64 {
        ((found - expected) / expected).abs()
    }

    /// Returns Neumaier's compensated sum, whose error does not grow with n.
    fn compensated(n: u64, theta: f64) -> f64 {
        let (mut sum, mut lost) = (0.0f64, 0.0);
        for k in 1..=n {
            let term = libm::pow(k as f64, -theta);
            let next = sum + term;
            lost += if sum.abs() >= term { (sum - next) + term } else { (term - next) + sum };
            sum = next;
        }
        sum + lost
    }

    #[test]
    fn both_methods_agree_with_compensated_sums() {
        for theta in THETAS {
            for n in [33, 40, 1000, 65_536, 65_537, 1_000_000] {
                let expected = compensated(n, theta);
                let error = relative(euler_maclaurin(n, theta), expected);
                assert!(error < 1e-14, "n={n} theta={theta} error={error:e}");
                let error = relative(zeta(n, theta), expected);
                assert!(error < 1e-13, "n={n} theta={theta} error={error:e}");
            }
        }
    }

    #[test]
    fn short_sums_are_exact() {
        assert_eq!(zeta(0, 0.99), 0.0);
        assert_eq!(zeta(1, 0.99), 1.0);
        assert_eq!(zeta(4, 0.0), 4.0);
        assert_eq!(zeta(3, 1.0), 1.0 + 1.0 / 2.0 + 1.0 / 3.0);
        assert_eq!(direct(2, 3, 1.0, 1.5), zeta(3, 1.0));
    }

    #[test]
    fn long_sums_agree_with_references() {
        // Computed with 40 digits as zeta(theta) - zeta(theta, n + 1), mpmath 1.3.
        for (n, theta, expected) in [
            (10_000_000_000, 0.99, 26.469_028_201_751_48),
            (10_000_000_001, 0.99, 26.469_028_201_877_375),
            (1_000_000_000_000, 0.99, 32.402_160_877_913_18),
            (1_000_000_000_000, 0.5, 1_999_998.539_645_991_3),
            (1_000_000_000_000, 1.0, 28.208_236_780_830_582),
            (1_000_000_000_000, 1.5, 2.612_373_348_685_488_3),
            (1 << 52, 0.99, 43.972_011_823_854_56),
            (1 << 52, 1.0, 36.620_869_054_018_69),
            (1 << 52, 3.0, 1.202_056_903_159_594_2),
        ] {
            let error = relative(zeta(n, theta), expected);
            assert!(error < 1e-14, "n={n} theta={theta} error={error:e}");
        }
        // Theta = 0: the number of terms; theta = -1: their sum.
        assert!(relative(zeta(1 << 40, 0.0), (1u64 << 40) as f64) < 1e-14);
        assert!(relative(euler_maclaurin(1_000_000, -1.0), 500_000_500_000.0) < 1e-14);
    }

    #[test]
    fn the_constant_of_ycsb_has_the_documented_error() {
        let error = (26.469_028_201_783_02 - zeta(10_000_000_000, 0.99)) / zeta(10_000_000_000, 0.99);
        assert!((error - 1.19e-12).abs() < 0.01e-12, "{error:e}");
    }

    #[test]
    fn the_methods_agree_where_they_meet() {
        for theta in THETAS {
            let step = zeta(DIRECT_TERMS + 1, theta) - zeta(DIRECT_TERMS, theta);
            let term = libm::pow((DIRECT_TERMS + 1) as f64, -theta);
            assert!((step - term).abs() < 1e-13 * zeta(DIRECT_TERMS, theta), "theta={theta}");
        }
    }
}
