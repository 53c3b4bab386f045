//! The length of a field or a scan.

use super::{LengthHistogram, Uniform, Zipfian};
use crate::random::Random;

/// A distribution of lengths.
#[derive(Debug, Clone, PartialEq)]
pub enum LengthChooser {
    /// One fixed length.
    Constant(u64),
    /// All lengths of a range equally likely.
    Uniform(Uniform),
    /// Short lengths often, by Gray's formula.
    Zipfian(Zipfian),
    /// A histogram file, drawn as in YCSB.
    Histogram(LengthHistogram),
    /// A histogram file, drawn by the exact law.
    ExactHistogram(LengthHistogram),
}

impl LengthChooser {
    /// Draws a length.
    #[inline]
    pub fn draw<R: Random + ?Sized>(&mut self, rng: &mut R) -> u64 {
        match self {
            LengthChooser::Constant(length) => *length,
            LengthChooser::Uniform(uniform) => uniform.draw(rng),
            LengthChooser::Zipfian(zipfian) => zipfian.next(rng),
            LengthChooser::Histogram(histogram) => histogram.draw(rng),
            LengthChooser::ExactHistogram(histogram) => histogram.draw_exact(rng),
        }
    }

    /// Returns the mean of the draws. For a histogram drawn as in YCSB it is YCSB's mean
    /// ([`LengthHistogram::mean`]). Takes up to some milliseconds.
    pub fn mean(&self) -> f64 {
        match self {
            LengthChooser::Constant(length) => *length as f64,
            LengthChooser::Uniform(uniform) => uniform.mean(),
            LengthChooser::Zipfian(zipfian) => zipfian.mean(),
            LengthChooser::Histogram(histogram) => histogram.mean(),
            LengthChooser::ExactHistogram(histogram) => histogram.mean_exact(),
        }
    }
}
