//! Random numbers that depend on the seed only, on every machine and in every version.
//! The generator is part of Serval's contract, so it is not a library's, which may
//! change.

/// Source of uniform draws. Distributions accept any source, so that tests can
/// replay another program's draws.
pub trait Random {
    /// Returns 64 random bits.
    fn next_u64(&mut self) -> u64;

    /// Returns a uniform number in [0, 1), a multiple of 2^-53, as Java's `nextDouble`.
    #[inline]
    fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a uniform number in [0, `n`), without bias; 0 if `n` is 0. Lemire's method
    /// ("Fast Random Integer Generation in an Interval", 2019).
    #[inline]
    fn below(&mut self, n: u64) -> u64 {
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            let threshold = n.wrapping_neg() % n;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
/// Generators", 2014), for seeding.
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Derives a seed of 53 bits, which every JSON reader represents exactly.
pub fn derived_seed(mut state: u64) -> u64 {
    split_mix(&mut state) >> 11
}

/// Generator xoshiro256++ (Blackman and Vigna, "Scrambled Linear Pseudorandom Number Generators", 2021).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// Returns the generator of a seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Rng { s: std::array::from_fn(|_| split_mix(&mut state)) }
    }

    /// Returns the generator of one of many streams of a seed, such as a client's.
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut state = stream;
        let mixed = split_mix(&mut state);
        Rng::new(seed ^ mixed)
    }
}

impl Random for Rng {
    #[inline]
    fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.s;
        let result = s0.wrapping_add(s3).rotate_left(23).wrapping_add(s0);
        let t = s1 << 17;
        let (s2, s3) = (s2 ^ s0, s3 ^ s1);
        self.s = [s0 ^ s3, s1 ^ s2, s2 ^ t, s3.rotate_left(45)];
        result
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, Rng, split_mix};
    use proptest::{prop_assert, prop_assert_ne, prop_assume, proptest};

    #[test]
    fn streams_equal_those_of_the_published_algorithms() {
        // Reference values of splitmix64.c for seed 0.
        let mut state = 0;
        assert_eq!(split_mix(&mut state), 0xe220_a839_7b1d_cdaf);
        assert_eq!(split_mix(&mut state), 0x6e78_9e6a_a1b9_65f4);
        // Reference values of xoshiro256plusplus.c for the state 1, 2, 3, 4.
        let mut rng = Rng { s: [1, 2, 3, 4] };
        let drawn: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(drawn, [41943041, 58720359, 3588806011781223, 3591011842654386]);
    }

    proptest! {
        #[test]
        fn draws_stay_in_range(seed: u64, n in 1u64..) {
            let mut rng = Rng::new(seed);
            prop_assert!(rng.below(n) < n);
            let f = rng.next_f64();
            prop_assert!((0.0..1.0).contains(&f));
        }

        #[test]
        fn streams_differ(seed: u64, a in 0u64..1000, b in 0u64..1000) {
            prop_assume!(a != b);
            prop_assert_ne!(Rng::stream(seed, a), Rng::stream(seed, b));
        }
    }
}
