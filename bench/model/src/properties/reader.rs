//! Typed reading of properties. It collects all faults instead of stopping at
//! the first.

use super::{Fault, Faults, Kind, Properties, Property, units};
use std::{path::PathBuf, time::Duration};

/// Reads properties by their tables. For a bad value it records a fault and
/// returns the default (or zero), so that one [`finish`](Reader::finish)
/// reports all faults of a configuration.
#[derive(Debug)]
pub struct Reader<'a> {
    properties: &'a Properties,
    faults: Vec<Fault>,
}

impl<'a> Reader<'a> {
    /// Returns a reader of these properties.
    pub fn new(properties: &'a Properties) -> Self {
        Reader { properties, faults: Vec::new() }
    }

    /// Returns a reader of other properties that keeps this one's faults.
    #[must_use]
    pub fn over<'b>(self, properties: &'b Properties) -> Reader<'b> {
        Reader { properties, faults: self.faults }
    }

    /// The properties being read.
    pub fn properties(&self) -> &'a Properties {
        self.properties
    }

    /// Whether a property was set, rather than left at its default.
    pub fn given(&self, property: &Property) -> bool {
        self.properties.has(property)
    }

    /// Records a fault of a property, with the place where it was set.
    pub fn fault(&mut self, property: &Property, problem: impl std::fmt::Display) {
        let fault = match self.properties.setting(property) {
            Some((name, setting)) => Fault {
                origin: Some(setting.origin.clone()),
                problem: format!("{name}={}: {problem}", setting.value),
            },
            None => Fault { origin: None, problem: format!("{}: {problem}", property.name) },
        };
        self.faults.push(fault);
    }

    /// Records a fault that belongs to no single property.
    pub fn fault_overall(&mut self, problem: impl Into<String>) {
        self.faults.push(Fault { origin: None, problem: problem.into() });
    }

    /// Takes over the faults of another reader's result. Returns its value, if there is one.
    pub fn absorb<T>(&mut self, result: Result<T, Faults>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(faults) => {
                self.faults.extend(faults.0);
                None
            }
        }
    }

    /// Returns the faults recorded, if any.
    pub fn finish(self) -> Result<(), Faults> {
        if self.faults.is_empty() { Ok(()) } else { Err(Faults(self.faults)) }
    }

    /// Returns the value as text, or the default.
    pub fn optional_text(&self, property: &Property) -> Option<String> {
        match self.properties.setting(property) {
            Some((_, setting)) => Some(setting.value.clone()),
            None => property.default.map(str::to_owned),
        }
    }

    /// Returns the value as text, or the default, or empty text.
    pub fn text(&self, property: &Property) -> String {
        self.optional_text(property).unwrap_or_default()
    }

    /// Returns the value or default as a path, unless it is empty.
    pub fn path(&self, property: &Property) -> Option<PathBuf> {
        self.optional_text(property).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    fn parse<T>(&mut self, property: &Property, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.optional_text(property)?;
        match parse(text.trim()) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.fault(property, problem);
                property.default.and_then(|text| parse(text).ok())
            }
        }
    }

    /// Returns `true` or `false`. YCSB's flags accept the words that YCSB accepts
    /// ([`Property::ycsb_word`]).
    pub fn flag(&mut self, property: &Property) -> bool {
        self.parse(property, |text| match text {
            _ if text.eq_ignore_ascii_case("true") => Ok(true),
            _ if text.eq_ignore_ascii_case("false") || property.ycsb_word(text).is_some() => Ok(false),
            _ => Err("must be true or false".into()),
        })
        .unwrap_or(false)
    }

    /// Returns the value or default as a whole number, if there is one.
    pub fn optional_count(&mut self, property: &Property) -> Option<u64> {
        let (min, max) = match property.kind {
            Kind::Count { min, max } => (min, max),
            _ => (0, u64::MAX),
        };
        let allowed = property.kind.describe();
        self.parse(property, |text| {
            let value: u64 = text
                .strip_prefix('+')
                .unwrap_or(text)
                .replace('_', "")
                .parse()
                .map_err(|_| format!("must be {allowed}"))?;
            if (min..=max).contains(&value) { Ok(value) } else { Err(format!("must be {allowed}")) }
        })
    }

    /// Returns the value or default as a whole number, or 0.
    pub fn count(&mut self, property: &Property) -> u64 {
        self.optional_count(property).unwrap_or(0)
    }

    /// Returns the value or default as a real number, or 0.
    pub fn number(&mut self, property: &Property) -> f64 {
        let (min, max) = match property.kind {
            Kind::Number { min, max } => (min, max),
            _ => (f64::NEG_INFINITY, f64::INFINITY),
        };
        let allowed = property.kind.describe();
        self.parse(property, |text| {
            // Java's Double.parseDouble takes a type suffix.
            let digits = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
            let value: f64 = digits.parse().map_err(|_| format!("must be {allowed}"))?;
            if value >= min && value <= max { Ok(value) } else { Err(format!("must be {allowed}")) }
        })
        .unwrap_or(0.0)
    }

    /// Returns the value or default as a size in bytes, or 0.
    pub fn size(&mut self, property: &Property) -> u64 {
        self.parse(property, units::parse_size).unwrap_or(0)
    }

    /// Returns the value or default as a duration, or zero.
    pub fn duration(&mut self, property: &Property) -> Duration {
        let bare_ns = match property.kind {
            Kind::Duration { bare_ns } => bare_ns,
            _ => 1_000_000_000,
        };
        self.parse(property, |text| units::parse_duration(text, bare_ns))
            .map_or(Duration::ZERO, Duration::from_nanos)
    }

    /// Returns the one of the property's words that matches, in any case; the
    /// first word if there is neither value nor default.
    pub fn choice(&mut self, property: &Property) -> &'static str {
        let Kind::Choice(words) = property.kind else { return "" };
        self.parse(property, |text| {
            let chosen = words.iter().copied().find(|word| word.eq_ignore_ascii_case(text));
            chosen.ok_or_else(|| {
                let near = words.iter().find(|word| strsim::levenshtein(word, text) <= 2);
                let hint = near.map(|word| format!("; did you mean '{word}'?")).unwrap_or_default();
                format!("must be one of {}{hint}", words.join(", "))
            })
        })
        .unwrap_or(words[0])
    }

    /// Returns numbers separated by commas. Drops commas at the end, as Java's `split` does.
    pub fn numbers(&mut self, property: &Property) -> Vec<f64> {
        self.parse(property, |text| {
            let numbers = text.trim_end_matches(',');
            if numbers.is_empty() && !text.is_empty() {
                return Ok(Vec::new());
            }
            numbers
                .split(',')
                .map(|part| {
                    let part = part.trim();
                    part.parse::<f64>()
                        .ok()
                        .filter(|number| number.is_finite())
                        .ok_or_else(|| format!("'{part}' is not a number"))
                })
                .collect()
        })
        .unwrap_or_default()
    }

    /// Returns names separated by commas. Drops empty ones.
    pub fn names(&self, property: &Property) -> Vec<String> {
        let text = self.text(property);
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}
