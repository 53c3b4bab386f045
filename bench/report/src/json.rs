//! The result document as a file.

use serde::Deserialize;
use serval_result::document::{ResultDocument, SCHEMA_VERSION};
use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

/// Largest size of a result, in bytes. An interval takes about 1 KiB an operation: a day of seconds
/// with two operations fits.
pub const RESULT_MAX: u64 = 256 << 20;

/// A result that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the result: {0}")]
    Io(#[from] io::Error),
    /// Longer than [`RESULT_MAX`].
    #[error("the result is longer than {} MiB, which is the most that is read", RESULT_MAX >> 20)]
    TooLong,
    /// The document is truncated.
    #[error("the result is incomplete: it ends at line {line}, column {column}; was the run killed?")]
    Truncated {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// The file is not a result.
    #[error("not a result of Serval's: {0}")]
    NotAResult(String),
    /// Written by a later Serval.
    #[error(
        "the result has schema version {found}, this Serval reads up to {SCHEMA_VERSION}: use a newer Serval"
    )]
    Newer {
        /// The version found.
        found: u64,
    },
    /// The document does not match the schema.
    #[error("the result has a fault at line {line}, column {column}: {fault}")]
    Fault {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong.
        fault: String,
    },
}

/// Writes a result, pretty-printed, with a newline at the end.
pub fn write(document: &ResultDocument, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)?;
    out.flush()
}

/// Reads the result in a file.
pub fn read_file(path: &Path) -> Result<ResultDocument, ReadError> {
    read(File::open(path)?)
}

/// Reads a result.
pub fn read(input: impl Read) -> Result<ResultDocument, ReadError> {
    read_at_most(input, RESULT_MAX)
}

fn read_at_most(input: impl Read, max: u64) -> Result<ResultDocument, ReadError> {
    let mut bytes = Vec::new();
    input.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(ReadError::TooLong);
    }
    /// The version alone: documents of later versions may have other fields.
    #[derive(Deserialize)]
    struct ResultVersion {
        schema_version: Option<u64>,
    }
    let version: ResultVersion = serde_json::from_slice(&bytes).map_err(not_a_result)?;
    match version.schema_version {
        None | Some(0) => return Err(ReadError::NotAResult("it has no `schema_version`".to_owned())),
        Some(found) if found > u64::from(SCHEMA_VERSION) => return Err(ReadError::Newer { found }),
        Some(_) => (),
    }
    serde_json::from_slice(&bytes).map_err(|error| ReadError::Fault {
        line: error.line(),
        column: error.column(),
        fault: without_place(&error),
    })
}

fn not_a_result(error: serde_json::Error) -> ReadError {
    // An empty file is not a truncated result.
    if error.is_eof() && (error.line(), error.column()) > (1, 0) {
        return ReadError::Truncated { line: error.line(), column: error.column() };
    }
    ReadError::NotAResult(error.to_string())
}

/// The message without serde's ` at line …`, which our error has.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use proptest::prelude::*;

    fn text(document: &ResultDocument) -> Vec<u8> {
        let mut out = Vec::new();
        write(document, &mut out).unwrap();
        out
    }

    fn error(bytes: &[u8]) -> String {
        read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_their_cause() {
        let whole = text(&sample::paced());
        assert!(error(&whole[..whole.len() / 2]).starts_with("the result is incomplete: it ends at line"));
        assert!(error(b"").starts_with("not a result of Serval's"));
        assert!(error(b"[OVERALL], RunTime(ms), 1\n").starts_with("not a result of Serval's"));
        assert!(error(b"{\"a\": 1}").contains("no `schema_version`"));
        assert!(error(b"{\"schema_version\": 2, \"new\": []}").contains("use a newer Serval"));
        assert!(error(b"{\"schema_version\": 1}").contains("fault at line 1, column 21: missing field"));
        assert!(matches!(read_at_most(&whole[..], 10), Err(ReadError::TooLong)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_written_is_read_back(document in sample::any_document()) {
            prop_assert_eq!(read(&text(&document)[..]).unwrap(), document);
        }

        #[test]
        fn no_file_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(read(&bytes[..]).is_err());
        }
    }
}
