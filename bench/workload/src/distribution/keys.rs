//! Choosers of keys.

use super::{Exponential, Hotspot, ScatteredZipf, ScrambledZipfian, Sequential, SkewedLatest, Uniform};
use crate::random::Random;

/// A distribution of keys, with YCSB's rules for keys that do not exist yet (`CoreWorkload.nextKeynum`). Each client
/// has one.
#[derive(Debug, Clone)]
pub enum KeyChooser {
    /// All keys with equal probability.
    Uniform(Uniform),
    /// YCSB's zipfian.
    Zipfian(ScrambledZipfian),
    /// Zipf's law over the keys, scattered.
    ScatteredZipf(ScatteredZipf),
    /// YCSB's latest: Zipfian by distance from the newest key.
    Latest(SkewedLatest),
    /// A share of the draws on the first part of the range.
    Hotspot(Hotspot),
    /// Exponential by distance from the newest key.
    Exponential(Exponential),
    /// All keys in order.
    Sequential(Sequential),
}

impl KeyChooser {
    /// Draws a key that exists: at most `newest`, the last acknowledged key.
    ///
    /// Exponential is redrawn while the key is below 0, the others while it is
    /// above `newest`. The expected number of draws is the inverse of the
    /// probability of the acknowledged part of the range: for uniform, its
    /// fraction of the range; for zipfian, nearly the same, depending on the
    /// hottest keys; for exponential, 1 - e^(-gamma (newest+1)). `newest` must
    /// not be below [`lowest`](KeyChooser::lowest): then the loop would not
    /// end.
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
                    // An infinite distance saturates, which is also too far.
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

    /// Returns the smallest key that can be drawn.
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
