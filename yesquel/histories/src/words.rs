//! Transactions and lists in words.

use crate::history::{Element, ListOperation, RecordedOutcome, RecordedTransaction};
use std::fmt::Write;

/// Number of elements at the end of a list that are printed.
const ELEMENTS_MAX: usize = 8;
/// Number of operations of a transaction that are printed.
const OPERATIONS_MAX: usize = 16;

/// Formats a list; of a long one its end.
pub(crate) fn list(elements: &[Element]) -> String {
    let hidden = elements.len().saturating_sub(ELEMENTS_MAX);
    let mut words: Vec<String> = elements[hidden..].iter().map(Element::to_string).collect();
    if hidden > 0 {
        words.insert(0, format!("({hidden} more)"));
    }
    format!("[{}]", words.join(", "))
}

/// Formats each transaction involved on a line.
pub(crate) fn transactions(all: &[RecordedTransaction], which: &[usize]) -> String {
    let mut text = String::new();
    for at in which {
        let RecordedTransaction { process, invoked, completed, operations, outcome } = &all[*at];
        let outcome = match outcome {
            RecordedOutcome::Committed => "committed",
            RecordedOutcome::Aborted => "aborted",
            RecordedOutcome::Unknown => "outcome unknown",
        };
        let mut words: Vec<String> = operations
            .iter()
            .take(OPERATIONS_MAX)
            .map(|operation| match operation {
                ListOperation::Append { key, element } => format!("append {element} to key {key}"),
                ListOperation::Read { key, list: Some(elements) } => {
                    format!("read key {key} as {}", list(elements))
                }
                ListOperation::Read { key, list: None } => format!("read key {key} without an answer"),
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
