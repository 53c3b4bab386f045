//! Times as MediaWiki stores them: `YYYYMMDDHHMMSS`, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// Returns the present time.
pub(crate) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    timestamp(since.as_secs())
}

/// Returns a time by its seconds since 1970.
pub(crate) fn timestamp(seconds: u64) -> String {
    // Days since 1 March of the year 0, in cycles of 400 years, whose years begin in March.
    let days = seconds / DAY + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let day_of_month = day - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = cycle * 400 + year + u64::from(month <= 2);
    let second = seconds % DAY;
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}{month:02}{day_of_month:02}{hour:02}{minute:02}{:02}", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `date -u -d @SECONDS +%Y%m%d%H%M%S`.
    #[test]
    fn days_are_those_of_the_calendar() {
        let expected = [
            (0, "19700101000000"),
            (951_782_399, "20000228235959"),
            (951_782_400, "20000229000000"),
            (1_709_251_199, "20240229235959"),
            (1_709_251_200, "20240301000000"),
            (1_735_689_599, "20241231235959"),
            (4_107_542_400, "21000301000000"),
        ];
        for (seconds, text) in expected {
            assert_eq!(timestamp(seconds), text);
        }
    }
}
