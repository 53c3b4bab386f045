//! What can be wrong with the parameters of a distribution.

/// Parameters that describe no distribution. The texts name the parameter,
/// its value and what is allowed; the caller adds the property it came from.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DistributionError {
    /// The end of a range lies below its start.
    #[error("the range from {min} to {max} is empty: its end must not lie below its start")]
    EmptyRange {
        /// The smallest number of the range.
        min: u64,
        /// The largest number of the range.
        max: u64,
    },
    /// More numbers in a range than the method can tell apart.
    #[error("the range from {min} to {max} is too long: at most {limit} numbers are possible")]
    LongRange {
        /// The smallest number of the range.
        min: u64,
        /// The largest number of the range.
        max: u64,
        /// The largest possible number of numbers.
        limit: u64,
    },
    /// The exponent is outside what the method can do.
    #[error("the exponent {value} is not possible: it must be {allowed}")]
    Exponent {
        /// The exponent asked for.
        value: f64,
        /// Which exponents the method takes, in words.
        allowed: &'static str,
    },
    /// A fraction is not in [0, 1].
    #[error("the {name} is {value}: it must lie between 0 and 1")]
    Fraction {
        /// What the fraction is of.
        name: &'static str,
        /// The value asked for.
        value: f64,
    },
    /// A percentile of the exponential distribution is not in (0, 100).
    #[error("the percentile {0} is not possible: it must be above 0 and below 100")]
    Percentile(f64),
    /// The width that the exponential distribution's percentile speaks of is
    /// not positive.
    #[error("the width {0} is not possible: it must be above 0")]
    Width(f64),
    /// A weight is negative or not a number.
    #[error("weight {index} is {value}: weights must be numbers, 0 or above")]
    Weight {
        /// The position of the weight, from 0.
        index: usize,
        /// The weight.
        value: f64,
    },
    /// No weight is above 0, or there is none.
    #[error("no weight is above 0: there is nothing to choose from")]
    NoWeight,
}

/// The number of numbers from `min` to `max`, both included.
pub(crate) fn items(min: u64, max: u64) -> Result<u64, DistributionError> {
    let Some(span) = max.checked_sub(min) else {
        return Err(DistributionError::EmptyRange { min, max });
    };
    span.checked_add(1).ok_or(DistributionError::LongRange { min, max, limit: u64::MAX })
}

/// A fraction, checked.
pub(crate) fn fraction(name: &'static str, value: f64) -> Result<f64, DistributionError> {
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(DistributionError::Fraction { name, value }) }
}
