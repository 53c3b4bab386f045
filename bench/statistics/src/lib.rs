//! What numbers allow to be said: intervals, comparisons, steadiness.
