//! Merges sentences of several runs that differ only in their numbers.

/// Largest number of details below a warning.
const DETAILS_MAX: usize = 12;

/// Units and their factors, for the comparison of numbers.
const UNITS: [(&str, f64); 9] = [
    ("ns", 1.0),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("bytes", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

/// Placeholder of a number in the form of a sentence.
const NUMBER: char = '\u{0}';

/// A number of a sentence, with its unit if [`UNITS`] has it.
#[derive(Debug, Clone, PartialEq)]
struct Number {
    digits: String,
    unit: &'static str,
}

impl Number {
    fn value(&self) -> f64 {
        let size = UNITS.iter().find(|(unit, _)| *unit == self.unit).map_or(1.0, |(_, size)| *size);
        self.digits.replace(',', "").parse::<f64>().map_or(f64::MAX, |value| value * size)
    }

    fn words(&self) -> String {
        if self.unit.is_empty() { self.digits.clone() } else { format!("{} {}", self.digits, self.unit) }
    }
}

/// The unit at the start of a text, after a space; may be empty.
fn unit_of(text: &str) -> &'static str {
    let is = |(unit, _): &&(&str, f64)| {
        let rest = text.strip_prefix(' ').and_then(|text| text.strip_prefix(*unit));
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    UNITS.iter().find(is).map_or("", |(unit, _)| unit)
}

/// Splits a sentence into its form, with placeholders, and its numbers. Commas and decimal points are
/// parts of numbers.
fn apart(sentence: &str) -> (String, Vec<Number>) {
    let (mut form, mut numbers) = (String::new(), Vec::new());
    let mut rest = sentence;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let number = &rest[at..];
        let end = number.find(|c: char| !(c.is_ascii_digit() || c == ',' || c == '.'));
        let digits = number[..end.unwrap_or(number.len())].trim_end_matches([',', '.']);
        form.push_str(&rest[..at]);
        form.push(NUMBER);
        rest = &rest[at + digits.len()..];
        let unit = unit_of(rest);
        if !unit.is_empty() {
            rest = &rest[1 + unit.len()..];
        }
        numbers.push(Number { digits: digits.to_owned(), unit });
    }
    form.push_str(rest);
    (form, numbers)
}

/// The range of a number: `9.5 to 99`.
fn span(numbers: &[&Number]) -> String {
    let by_value = |a: &&&Number, b: &&&Number| a.value().total_cmp(&b.value());
    match (numbers.iter().min_by(by_value), numbers.iter().max_by(by_value)) {
        (Some(least), Some(most)) if least.words() == most.words() => least.words(),
        // A common unit is said once.
        (Some(least), Some(most)) if least.unit == most.unit => {
            format!("{} to {}", least.digits, most.words())
        }
        (Some(least), Some(most)) => format!("{} to {}", least.words(), most.words()),
        _ => String::new(),
    }
}

/// Merges sentences that differ only in their numbers into one with the range of each number, and
/// collects the places of each.
pub(super) fn together<P: PartialEq>(said: impl IntoIterator<Item = (P, String)>) -> Vec<(String, Vec<P>)> {
    let mut forms: Vec<(String, Vec<Vec<Number>>, Vec<P>)> = Vec::new();
    for (of, sentence) in said {
        let (form, numbers) = apart(&sentence);
        match forms.iter_mut().find(|(other, ..)| *other == form) {
            Some((_, all, places)) => {
                all.push(numbers);
                if !places.contains(&of) {
                    places.push(of);
                }
            }
            None => forms.push((form, vec![numbers], vec![of])),
        }
    }
    let sentence = |form: &str, all: &[Vec<Number>]| {
        let mut parts = form.split(NUMBER);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for (nth, part) in parts.enumerate() {
            let numbers: Vec<&Number> = all.iter().filter_map(|numbers| numbers.get(nth)).collect();
            out.push_str(&span(&numbers));
            out.push_str(part);
        }
        out
    };
    forms.into_iter().map(|(form, all, places)| (sentence(&form, &all), places)).collect()
}

/// The first lines, and how many more there are.
pub(super) fn cut(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(DETAILS_MAX);
    lines.truncate(DETAILS_MAX);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_that_differ_only_in_numbers_are_merged() {
        let all = [
            (1, "clients spent 58 % of 1,200 ms outside."),
            (2, "clients spent 9.5 % of 1,200 ms outside."),
            (2, "clients spent 60 % of 1,200 ms outside."),
            (3, "no processor was free."),
            (3, "clients spent 99 % of 1,200 ms outside."),
            (1, "begun 1.50 ms apart, of 3 stalls"),
            (3, "begun 880 µs apart, of 3 stalls"),
            (4, "begun 2.10 ms apart, of 4 stalls"),
            (1, "late by 1.21 ms."),
            (2, "late by 1.96 ms."),
        ];
        let found = together(all.map(|(of, sentence)| (of, sentence.to_owned())));
        let wanted = [
            ("clients spent 9.5 to 99 % of 1,200 ms outside.", vec![1, 2, 3]),
            ("no processor was free.", vec![3]),
            ("begun 880 µs to 2.10 ms apart, of 3 to 4 stalls", vec![1, 3, 4]),
            ("late by 1.21 to 1.96 ms.", vec![1, 2]),
        ];
        assert_eq!(found, wanted.map(|(sentence, of)| (sentence.to_owned(), of)));
    }
}
