//! The numbers of a seed.

/// A xorshift64* generator. What a seed gives is a promise: a seed that is
/// named as failing must fail again years later.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed. Seeds that are neighbours begin far apart.
    pub fn new(seed: u64) -> Random {
        Random::from_state(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A generator in a state, but for the lowest bit: that is set, as from
    /// zero nothing but zeros would come.
    ///
    /// States that are neighbours begin alike, and two of them are the same.
    pub fn from_state(state: u64) -> Random {
        Random(state | 1)
    }

    /// The next number, below a bound of at most 2³¹.
    ///
    /// # Panics
    ///
    /// If the bound is zero.
    ///
    /// ```
    /// use yesquel_seeds::Random;
    ///
    /// let mut random = Random::new(7);
    /// assert_eq!([random.next(1000), random.next(1000)], [774, 460]);
    /// ```
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(mut random: Random) -> [u64; 8] {
        std::array::from_fn(|_| random.next(1000))
    }

    /// Taken from a program of its own, by the definition.
    #[test]
    fn the_numbers_of_a_seed_are_stable() {
        assert_eq!(first(Random::new(0)), [677, 276, 727, 208, 680, 405, 332, 404]);
        assert_eq!(first(Random::new(7)), [774, 460, 216, 200, 860, 562, 779, 545]);
        assert_eq!(first(Random::from_state(7)), [303, 931, 789, 138, 574, 391, 16, 28]);
    }

    #[test]
    fn no_state_gives_only_zeros() {
        assert_eq!(first(Random::from_state(0)), first(Random::from_state(1)));
        assert_ne!(first(Random::from_state(0)), [0; 8]);
    }
}
