//! Which seeds are run.

use std::{
    env::{VarError, var},
    ops::Range,
};

/// The seeds that `SEEDS` chooses, otherwise this number from zero; or the error in it.
pub(crate) fn chosen(count: u64) -> Result<Range<u64>, String> {
    match var("SEEDS") {
        Ok(text) => parse(&text),
        Err(VarError::NotPresent) => Ok(0..count),
        Err(VarError::NotUnicode(text)) => Err(no_range(&text.to_string_lossy())),
    }
}

fn parse(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or_else(|| no_range(text))?;
    let seed = |number: &str| {
        number.parse::<u64>().map_err(|error| format!("SEEDS={text}: {number:?} is no seed: {error}"))
    };
    let seeds = seed(from)?..seed(to)?;
    // A test that runs nothing would pass.
    if seeds.is_empty() {
        return Err(format!("SEEDS={text} holds no seed: the end is not among them"));
    }
    Ok(seeds)
}

fn no_range(text: &str) -> String {
    format!("SEEDS={text} is no range of seeds: give from..to, such as 0..1000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_parsed_from_two_numbers() {
        assert_eq!(parse("0..10"), Ok(0..10));
        assert_eq!(parse("7..8"), Ok(7..8));
        assert_eq!(parse("0..18446744073709551615"), Ok(0..u64::MAX));
    }

    #[test]
    fn an_invalid_range_is_reported() {
        let no_range = "is no range of seeds: give from..to, such as 0..1000";
        let no_seed = "is no seed: invalid digit found in string";
        let empty = "holds no seed: the end is not among them";
        for (text, why) in [
            ("", format!("SEEDS= {no_range}")),
            ("5", format!("SEEDS=5 {no_range}")),
            ("0-5", format!("SEEDS=0-5 {no_range}")),
            ("a..5", format!("SEEDS=a..5: \"a\" {no_seed}")),
            ("0..=5", format!("SEEDS=0..=5: \"=5\" {no_seed}")),
            ("0 .. 5", format!("SEEDS=0 .. 5: \"0 \" {no_seed}")),
            ("-1..5", format!("SEEDS=-1..5: \"-1\" {no_seed}")),
            ("3..", "SEEDS=3..: \"\" is no seed: cannot parse integer from empty string".to_owned()),
            ("5..5", format!("SEEDS=5..5 {empty}")),
            ("6..5", format!("SEEDS=6..5 {empty}")),
        ] {
            assert_eq!(parse(text), Err(why));
        }
    }
}
