//! How often everything happened.

use std::collections::BTreeMap;

/// Counts by name, in the order of the names.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FaultCounts(pub BTreeMap<&'static str, u64>);

impl FaultCounts {
    pub fn one(&mut self, name: &'static str) {
        self.add(name, 1);
    }

    pub fn add(&mut self, name: &'static str, count: u64) {
        *self.0.entry(name).or_default() += count;
    }

    pub fn merge(&mut self, other: &FaultCounts) {
        for (name, count) in &other.0 {
            self.add(name, *count);
        }
    }

    pub fn get(&self, name: &'static str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub fn print(&self) {
        for (name, count) in &self.0 {
            println!("{name:40} {count:>12}");
        }
    }
}
