//! Layout of the cells of a histogram: that of an HdrHistogram with three significant decimal
//! digits and a lowest value of 1 ns.
//!
//! Values below 2048 ns have a cell each. Above, every power of two is divided into 1024 cells, so
//! the width of a cell is at most 1/1024 of its value.

/// Sub-buckets of the first bucket: 2 * 10^3, rounded up to a power of two, keeps any three digits
/// apart.
const SUB_BUCKETS: u64 = 2048;
const HALF: u64 = SUB_BUCKETS / 2;
const HALF_BITS: u32 = HALF.trailing_zeros();

/// Number of significant decimal digits.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// Largest time with a cell of its own, ns: about 73 minutes. Longer times count as this one. An
/// operation of an hour shows a broken store, not a latency.
pub const VALUE_MAX: u64 = (1 << 42) - 1;

/// Number of cells.
pub const CELLS: usize = index_of(VALUE_MAX) + 1;

/// Returns the cell of a value in nanoseconds.
#[inline]
pub const fn index_of(value: u64) -> usize {
    let value = if value > VALUE_MAX { VALUE_MAX } else { value };
    let bucket = (u64::BITS - 1) - (value | (SUB_BUCKETS - 1)).leading_zeros() - HALF_BITS;
    let sub_bucket = value >> bucket;
    (((bucket as u64 + 1) << HALF_BITS) + sub_bucket - HALF) as usize
}

/// Returns the lowest value of a cell.
pub const fn lowest_of(index: usize) -> u64 {
    let index = index as u64;
    if index < SUB_BUCKETS {
        return index;
    }
    let bucket = (index >> HALF_BITS) - 1;
    ((index & (HALF - 1)) + HALF) << bucket
}

/// Returns the highest value of a cell, which HdrHistogram reports for a percentile.
pub const fn highest_of(index: usize) -> u64 {
    lowest_of(index + 1) - 1
}

/// Returns the value in the middle of a cell, for means.
pub const fn middle_of(index: usize) -> u64 {
    let (low, high) = (lowest_of(index), highest_of(index));
    low + (high - low).div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cells_are_contiguous() {
        for index in 0..CELLS {
            let (low, high) = (lowest_of(index), highest_of(index));
            assert!(low <= high);
            assert_eq!((index_of(low), index_of(high)), (index, index));
        }
        assert_eq!(highest_of(CELLS - 1), VALUE_MAX);
        assert_eq!(index_of(u64::MAX), CELLS - 1);
    }

    proptest! {
        #[test]
        fn cells_have_the_promised_width_and_hdrhistograms_bounds(value in 0u64..=VALUE_MAX) {
            let index = index_of(value);
            prop_assert!(lowest_of(index) <= value && value <= highest_of(index));
            let width = highest_of(index) - lowest_of(index) + 1;
            prop_assert!(width == 1 || width * 1000 <= value);
            let hdr = hdrhistogram::Histogram::<u64>::new_with_bounds(1, VALUE_MAX, SIGNIFICANT_DIGITS).unwrap();
            prop_assert_eq!(hdr.lowest_equivalent(value), lowest_of(index));
            prop_assert_eq!(hdr.highest_equivalent(value), highest_of(index));
        }
    }
}
