//! Processors as queues: work is done in the order of its arrival, each piece without interruption.
//!
//! A processor may be held to a quota, as by a control group of Linux: a share of each period. What is
//! used is compared with the share at the ticks of the system and when a piece of work begins, so a
//! piece may use more than is left. The debt is taken from the shares of the next periods.

use std::ops::Range;

/// Share of a processor that is used in each period, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Length of a period; above zero.
    pub period_ns: u64,
    /// Processor time in a period; above zero, at most the period.
    pub share_ns: u64,
    /// Interval at which the use is compared with the share while work goes on; zero: at once.
    pub tick_ns: u64,
}

/// State of a quota.
#[derive(Debug)]
struct QuotaState {
    quota: Quota,
    /// What is left in this period; a debt if it is below zero.
    left_ns: i64,
    /// Number of the period.
    period: u64,
    /// When the periods began.
    from_ns: u64,
}

impl QuotaState {
    /// Begins the periods up to a time.
    fn refill(&mut self, at_ns: u64) {
        let period = at_ns.saturating_sub(self.from_ns) / self.quota.period_ns;
        let begun = period.saturating_sub(self.period);
        let share = self.quota.share_ns.cast_signed();
        let added = share.saturating_mul(i64::try_from(begun).unwrap_or(i64::MAX));
        self.left_ns = self.left_ns.saturating_add(added).min(share);
        self.period = self.period.max(period);
    }

    fn next_period_ns(&self) -> u64 {
        self.from_ns + (self.period + 1) * self.quota.period_ns
    }

    /// Returns the time until the use is compared with the share.
    fn until_check_ns(&self, at_ns: u64) -> u64 {
        match self.quota.tick_ns {
            0 => self.left_ns.max(0).cast_unsigned(),
            tick_ns => tick_ns - at_ns % tick_ns,
        }
    }
}

/// The processors of a machine: one queue before all of them.
#[derive(Debug)]
pub struct Processor {
    /// When each one has done the work that it has taken.
    free_at_ns: Vec<u64>,
    /// Of a machine with one processor.
    quota: Option<QuotaState>,
    /// Time in which use is counted.
    counted: Range<u64>,
    busy_ns: u64,
}

impl Processor {
    /// Returns some idle processors.
    pub fn new(count: usize) -> Processor {
        Processor { free_at_ns: vec![0; count.max(1)], quota: None, counted: 0..u64::MAX, busy_ns: 0 }
    }

    /// Holds the first processor to a quota from a time on; there is no other one then.
    pub fn limit(&mut self, quota: Quota, from_ns: u64) {
        self.free_at_ns.truncate(1);
        self.quota = Some(QuotaState { quota, left_ns: quota.share_ns.cast_signed(), period: 0, from_ns });
    }

    /// Counts the use within a range of time, from zero.
    pub fn count_within(&mut self, range: Range<u64>) {
        (self.counted, self.busy_ns) = (range, 0);
    }

    /// Processor time that was used within the range.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Adds work that arrives now. Returns when it is done.
    pub fn work(&mut self, now_ns: u64, work_ns: u64) -> u64 {
        // There is at least one.
        let first = (0..self.free_at_ns.len()).min_by_key(|at| self.free_at_ns[*at]).unwrap_or(0);
        let begins_ns = self.free_at_ns[first].max(now_ns);
        let done_ns = match &mut self.quota {
            Some(_) if work_ns > 0 => self.work_within_quota(begins_ns, work_ns),
            _ => {
                self.count(begins_ns, work_ns);
                begins_ns + work_ns
            }
        };
        self.free_at_ns[first] = done_ns;
        done_ns
    }

    fn work_within_quota(&mut self, begins_ns: u64, work_ns: u64) -> u64 {
        let (mut at_ns, mut left_ns) = (begins_ns, work_ns);
        while left_ns > 0 {
            let Some(state) = &mut self.quota else { break };
            state.refill(at_ns);
            let next_ns = state.next_period_ns();
            if state.left_ns <= 0 {
                at_ns = next_ns;
                continue;
            }
            let piece_ns = left_ns.min(state.until_check_ns(at_ns)).min(next_ns - at_ns);
            state.left_ns -= piece_ns.cast_signed();
            self.count(at_ns, piece_ns);
            at_ns += piece_ns;
            left_ns -= piece_ns;
        }
        at_ns
    }

    fn count(&mut self, from_ns: u64, work_ns: u64) {
        let (from, to) = (from_ns.max(self.counted.start), (from_ns + work_ns).min(self.counted.end));
        self.busy_ns += to.saturating_sub(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_waits_for_the_work_before_it() {
        let mut processor = Processor::new(1);
        assert_eq!(
            [processor.work(100, 50), processor.work(110, 20), processor.work(500, 5)],
            [150, 170, 505]
        );
        assert_eq!(processor.busy_ns(), 75);
    }

    #[test]
    fn two_processors_share_a_queue() {
        let mut processor = Processor::new(2);
        let done = [(0, 100), (0, 30), (10, 10), (10, 70)].map(|(now, work)| processor.work(now, work));
        assert_eq!(done, [100, 30, 40, 110]);
    }

    #[test]
    fn use_is_counted_within_a_range() {
        let mut processor = Processor::new(1);
        processor.count_within(100..200);
        [(50, 100), (180, 100), (400, 10)].into_iter().for_each(|(now, work)| {
            processor.work(now, work);
        });
        assert_eq!(processor.busy_ns(), 50 + 20);
    }

    #[test]
    fn a_quota_is_a_share_of_each_period() {
        let mut processor = Processor::new(1);
        processor.limit(Quota { period_ns: 100, share_ns: 10, tick_ns: 0 }, 1_000);
        // Two whole shares and half of the third one.
        assert_eq!(processor.work(1_050, 25), 1_205);
        // The rest of that share, and the next one.
        assert_eq!(processor.work(1_205, 10), 1_305);
        // Idle periods leave no more than one share.
        assert_eq!(processor.work(2_000, 20), 2_110);
    }

    #[test]
    fn work_between_two_ticks_is_a_debt() {
        let mut processor = Processor::new(1);
        processor.limit(Quota { period_ns: 100, share_ns: 10, tick_ns: 40 }, 0);
        // It goes on to the tick at 40, which takes the shares of the next three periods.
        assert_eq!(processor.work(0, 41), 401);
        // In the long run it is the share.
        let mut now = 401;
        for _ in 0..1_000 {
            now = processor.work(now, 1_000);
        }
        assert!((9_990_000..10_010_000).contains(&now), "{now}");
        assert_eq!(processor.busy_ns(), 41 + 1_000_000);
    }
}
