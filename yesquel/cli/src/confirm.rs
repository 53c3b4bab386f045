//! Confirmation of commands that cannot be undone.

use crate::failure::CliError;
use std::io::{BufRead, IsTerminal, Write};

/// Asks for confirmation on a terminal. Without one the answer is no.
pub(crate) fn is_sure(question: &str) -> Result<bool, CliError> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Ok(false);
    }
    let mut output = anstream::stderr();
    write!(output, "{question} [y/N] ")?;
    output.flush()?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yes_is_accepted_in_any_case() {
        assert!(["y", "Y", "yes", "YES", " Yes\n"].into_iter().all(is_yes));
        assert!(!["", "\n", "n", "no", "ye", "yes please"].into_iter().any(is_yes));
    }
}
