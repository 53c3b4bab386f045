//! Invalid parameters of distributions.

/// Parameters that define no distribution. The message names the parameter, its
/// value and the allowed values; the caller adds the property.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DistributionError {
    /// The end of a range is below its start.
    #[error("the range from {min} to {max} is empty: its end must not lie below its start")]
    EmptyRange {
        /// The smallest number of the range.
        min: u64,
        /// The largest number of the range.
        max: u64,
    },
    /// A range has more numbers than the method supports.
    #[error("the range from {min} to {max} is too long: at most {limit} numbers are possible")]
    LongRange {
        /// The smallest number of the range.
        min: u64,
        /// The largest number of the range.
        max: u64,
        /// The most numbers supported.
        limit: u64,
    },
    /// The method does not support the exponent.
    #[error("the exponent {value} is not possible: it must be {allowed}")]
    Exponent {
        /// The exponent.
        value: f64,
        /// The exponents that the method supports, as text.
        allowed: &'static str,
    },
    /// A fraction is not in [0, 1].
    #[error("the {name} is {value}: it must lie between 0 and 1")]
    Fraction {
        /// Name of the fraction.
        name: &'static str,
        /// The value.
        value: f64,
    },
    /// A percentile of the exponential distribution is not in (0, 100).
    #[error("the percentile {0} is not possible: it must be above 0 and below 100")]
    Percentile(f64),
    /// The width to which the exponential distribution's percentile refers is not
    /// positive.
    #[error("the width {0} is not possible: it must be above 0")]
    Width(f64),
    /// A weight is negative or not a number.
    #[error("weight {index} is {value}: weights must be numbers, 0 or above")]
    Weight {
        /// Index of the weight, from 0.
        index: usize,
        /// The weight.
        value: f64,
    },
    /// No weight is above 0, or there are no weights.
    #[error("no weight is above 0: there is nothing to choose from")]
    NoWeight,
}

/// Returns the number of integers from `min` to `max`, inclusive.
pub(crate) fn items(min: u64, max: u64) -> Result<u64, DistributionError> {
    let Some(span) = max.checked_sub(min) else {
        return Err(DistributionError::EmptyRange { min, max });
    };
    span.checked_add(1).ok_or(DistributionError::LongRange { min, max, limit: u64::MAX })
}

/// Returns the fraction if it is in [0, 1].
pub(crate) fn fraction(name: &'static str, value: f64) -> Result<f64, DistributionError> {
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(DistributionError::Fraction { name, value }) }
}
