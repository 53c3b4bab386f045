//! The choice of an operation's key.

use super::{Exponential, Hotspot, ScatteredZipf, ScrambledZipfian, Sequential, SkewedLatest, Uniform};
use crate::random::Random;

/// A distribution of keys, with YCSB's rules for keys that do not exist yet
/// (`CoreWorkload.nextKeynum`). Each client has its own.
#[derive(Debug, Clone)]
pub enum KeyChooser {
    /// All keys equally likely.
    Uniform(Uniform),
    /// YCSB's Zipfian distribution.
    Zipfian(ScrambledZipfian),
    /// Zipf's law.
    ScatteredZipf(ScatteredZipf),
    /// Zipfian by age, the newest key the most popular.
    Latest(SkewedLatest),
    /// The keys at the start of the range are hot.
    Hotspot(Hotspot),
    /// Exponential by age, the newest key the most popular.
    Exponential(Exponential),
    /// Each key in turn.
    Sequential(Sequential),
}

impl KeyChooser {
    /// Draws the number of an existing key: at most `newest`, the last acknowledged
    /// key.
    ///
    /// Exponential redraws while the key is below 0, the others while it is above
    /// `newest`. The expected number of draws is the reciprocal of the probability
    /// of the acknowledged keys: for uniform their fraction of the range; for
    /// Zipfian nearly the same, depending on the positions of the hottest keys; for
    /// exponential 1 - e^(-gamma (newest+1)). `newest` must not be below
    /// [`lowest`](KeyChooser::lowest), or the loop never ends.
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
                    // An infinite distance saturates, which is out of range as well.
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

    /// Returns the smallest key that can be drawn. `newest` must not be below it.
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
