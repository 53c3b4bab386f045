//! Java 17's `ThreadLocalRandom`, for replaying the draws of YCSB.

use serval_workload::random::Random;

/// Methods of a bounded draw. YCSB's generators use both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    /// `Math.abs(nextLong()) % n`
    AbsoluteModulo,
    /// `nextInt(n)`
    NextInt,
}

/// `ThreadLocalRandom` of thread 1, from a known state.
#[derive(Debug, Clone)]
pub(crate) struct ThreadLocalRandom {
    pub(crate) seed: u64,
    pub(crate) below: Below,
}

impl ThreadLocalRandom {
    pub(crate) fn new(seed: i64) -> Self {
        ThreadLocalRandom { seed: seed as u64, below: Below::AbsoluteModulo }
    }

    fn next_seed(&mut self) -> u64 {
        // The golden ratio, plus twice the number of the thread.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15 + 2);
        self.seed
    }

    pub(crate) fn next_int(&mut self) -> i32 {
        let z = self.next_seed();
        let z = (z ^ (z >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        ((z ^ (z >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 32) as i32
    }

    fn next(&mut self, bits: u32) -> u32 {
        self.next_int() as u32 >> (32 - bits)
    }

    pub(crate) fn next_int_below(&mut self, bound: i32) -> i32 {
        let mut bits = self.next(31) as i32;
        let mask = bound - 1;
        if bound & mask == 0 {
            return ((i64::from(bound) * i64::from(bits)) >> 31) as i32;
        }
        loop {
            let rest = bits % bound;
            if bits.wrapping_sub(rest).wrapping_add(mask) >= 0 {
                return rest;
            }
            bits = self.next(31) as i32;
        }
    }
}

impl Random for ThreadLocalRandom {
    fn next_u64(&mut self) -> u64 {
        let z = self.next_seed();
        let z = (z ^ (z >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let z = (z ^ (z >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        z ^ (z >> 33)
    }

    fn next_f64(&mut self) -> f64 {
        let high = u64::from(self.next(26)) << 27;
        (high + u64::from(self.next(27))) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    fn below(&mut self, n: u64) -> u64 {
        match self.below {
            Below::AbsoluteModulo => ((self.next_u64() as i64).wrapping_abs() % n as i64) as u64,
            Below::NextInt => self.next_int_below(n as i32) as u64,
        }
    }
}
