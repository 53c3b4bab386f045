//! Transactions and lists in words.

use crate::history::{Element, Operation, Outcome, Transaction};
use std::fmt::Write;

/// So many elements at the end of a list are shown.
const ELEMENTS_MAX: usize = 8;
/// So many operations of a transaction are.
const OPERATIONS_MAX: usize = 16;

/// A list; of a long one the end, where the news is.
pub(crate) fn list(elements: &[Element]) -> String {
    let hidden = elements.len().saturating_sub(ELEMENTS_MAX);
    let mut words: Vec<String> = elements[hidden..].iter().map(Element::to_string).collect();
    if hidden > 0 {
        words.insert(0, format!("({hidden} more)"));
    }
    format!("[{}]", words.join(", "))
}

/// One line for each transaction that takes part.
pub(crate) fn transactions(all: &[Transaction], which: &[usize]) -> String {
    let mut text = String::new();
    for at in which {
        let Transaction { process, invoked, completed, operations, outcome } = &all[*at];
        let outcome = match outcome {
            Outcome::Committed => "committed",
            Outcome::Aborted => "aborted",
            Outcome::Unknown => "outcome unknown",
        };
        let mut words: Vec<String> = operations
            .iter()
            .take(OPERATIONS_MAX)
            .map(|operation| match operation {
                Operation::Append { key, element } => format!("append {element} to key {key}"),
                Operation::Read { key, list: Some(elements) } => {
                    format!("read key {key} as {}", list(elements))
                }
                Operation::Read { key, list: None } => format!("read key {key} without an answer"),
            })
            .collect();
        if operations.len() > OPERATIONS_MAX {
            words.push(format!("and {} more", operations.len() - OPERATIONS_MAX));
        }
        let words = words.join(", ");
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "  T{at} (process {process}, from {invoked} to {completed}, {outcome}): {words}");
    }
    text
}
