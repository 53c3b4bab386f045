//! Which key an operation goes to.

use super::{Exponential, Hotspot, ScatteredZipf, ScrambledZipfian, Sequential, SkewedLatest, Uniform};
use crate::random::Random;

/// A distribution of keys, with YCSB's rules for keys that are not yet there
/// (`CoreWorkload.nextKeynum`). One a client.
#[derive(Debug, Clone)]
pub enum KeyChooser {
    /// Every key the same.
    Uniform(Uniform),
    /// YCSB's zipfian.
    Zipfian(ScrambledZipfian),
    /// Zipf's law itself.
    ScatteredZipf(ScatteredZipf),
    /// The newest first, Zipfian.
    Latest(SkewedLatest),
    /// The first part of the range is hot.
    Hotspot(Hotspot),
    /// The newest first, exponential.
    Exponential(Exponential),
    /// One after the other.
    Sequential(Sequential),
}

impl KeyChooser {
    /// The number of a key that exists: at most `newest`, the last
    /// acknowledged key.
    ///
    /// Exponential is redrawn while the key is below 0, the others while it is
    /// above `newest`. This ends, and after few draws, when the part of the
    /// range that is acknowledged has a fair share of the probability: `newest`
    /// must not be below [`lowest`](KeyChooser::lowest), where it would never
    /// end. The expected number of draws is one over that share: for uniform
    /// the acknowledged fraction of the range; for zipfian nearly the same,
    /// but for the luck of the hottest keys; for exponential
    /// 1 - e^(-gamma (newest+1)).
    #[inline]
    pub fn draw<R: Random + ?Sized>(&mut self, rng: &mut R, newest: u64) -> u64 {
        debug_assert!(newest >= self.lowest(), "no key up to {newest} can be drawn from {self:?}");
        loop {
            let key = match self {
                KeyChooser::Uniform(uniform) => uniform.draw(rng),
                KeyChooser::Zipfian(zipfian) => zipfian.draw(rng),
                KeyChooser::ScatteredZipf(zipf) => zipf.draw(rng),
                KeyChooser::Latest(latest) => latest.draw(rng, newest),
                KeyChooser::Hotspot(hotspot) => hotspot.draw(rng),
                KeyChooser::Sequential(sequential) => sequential.draw(),
                KeyChooser::Exponential(exponential) => {
                    // An infinite distance saturates, and is too far as well.
                    match newest.checked_sub(exponential.draw(rng) as u64) {
                        Some(key) => key,
                        None => continue,
                    }
                }
            };
            if key <= newest {
                return key;
            }
        }
    }

    /// The smallest key that can be drawn. While `newest` is below it there is
    /// nothing to draw.
    pub fn lowest(&self) -> u64 {
        match self {
            KeyChooser::Uniform(uniform) => uniform.min(),
            KeyChooser::Zipfian(zipfian) => zipfian.min(),
            KeyChooser::ScatteredZipf(zipf) => zipf.min(),
            KeyChooser::Hotspot(hotspot) => hotspot.lowest(),
            KeyChooser::Sequential(sequential) => sequential.min(),
            KeyChooser::Latest(_) | KeyChooser::Exponential(_) => 0,
        }
    }
}
