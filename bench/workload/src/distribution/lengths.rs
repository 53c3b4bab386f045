//! How long a field or a scan is.

use super::{LengthHistogram, Uniform, Zipfian};
use crate::random::Random;

/// A distribution of lengths.
#[derive(Debug, Clone, PartialEq)]
pub enum LengthChooser {
    /// Always the same.
    Constant(u64),
    /// Every length of a range the same.
    Uniform(Uniform),
    /// Short ones often, by Gray's formula.
    Zipfian(Zipfian),
    /// A histogram file, drawn as YCSB does.
    Histogram(LengthHistogram),
    /// A histogram file, drawn as it says.
    ExactHistogram(LengthHistogram),
}

impl LengthChooser {
    /// A length.
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

    /// The mean of the draws; of a histogram that is drawn as in YCSB, YCSB's
    /// idea of it ([`LengthHistogram::mean`]). Up to some milliseconds.
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
