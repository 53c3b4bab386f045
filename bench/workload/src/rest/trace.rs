//! A trace: a file with one URL per line.

use crate::files::{self, InputFiles};
use std::{
    io::{BufRead, BufReader},
    path::Path,
};

/// Largest trace, bytes: ten million URLs of 25 characters. It is kept in memory.
pub const TRACE_FILE_MAX: u64 = 256 << 20;

/// Longest URL, bytes; servers accept less.
pub const URL_LENGTH_MAX: usize = 64 << 10;

/// Most faults reported for a file: a file that is not a trace has one per line.
const FAULTS_MAX: usize = 10;

/// URLs in file order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trace {
    text: String,
    /// End of each URL in the text; a file is shorter than 4 GiB.
    ends: Vec<u32>,
}

impl Trace {
    /// Reads the first `most` URLs of a file. Faults have file and line.
    pub fn read(files: &dyn InputFiles, path: &Path, most: u64) -> Result<Trace, String> {
        let content = files::open(files, path, TRACE_FILE_MAX)?;
        Trace::parse(BufReader::new(content), &path.display().to_string(), most)
    }

    fn parse(mut lines: impl BufRead, place: &str, most: u64) -> Result<Trace, String> {
        let mut trace = Trace::default();
        let mut faults = Vec::new();
        let mut bytes = Vec::new();
        // Empty lines are allowed at the end, and faults before a URL.
        let (mut line, mut empty) = (0u64, Vec::new());
        while trace.ends.len() < usize::try_from(most).unwrap_or(usize::MAX) && faults.len() < FAULTS_MAX {
            bytes.clear();
            let count = lines.read_until(b'\n', &mut bytes);
            if count.map_err(|error| format!("{place}: cannot be read: {error}"))? == 0 {
                break;
            }
            line += 1;
            match url(&bytes) {
                Ok("") if empty.len() < FAULTS_MAX => empty.push(line),
                Ok("") => {}
                Ok(url) => {
                    let fault = |line| {
                        format!("{place}:{line}: has no URL: take the line out, or write / for the root")
                    };
                    faults.extend(empty.drain(..).map(fault));
                    trace.text.push_str(url);
                    trace
                        .ends
                        .push(u32::try_from(trace.text.len()).map_err(|_| format!("{place}: is too large"))?);
                }
                Err(problem) => faults.push(format!("{place}:{line}: {problem}")),
            }
        }
        if faults.is_empty() && trace.ends.is_empty() {
            faults.push(format!("{place}: has no URL: there must be one a line"));
        }
        faults.truncate(FAULTS_MAX);
        if faults.is_empty() { Ok(trace) } else { Err(faults.join("; ")) }
    }

    /// Returns the number of URLs, at least one.
    pub fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Returns false: a trace is never empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the URL of a line, from 0.
    #[inline]
    pub fn url(&self, index: u64) -> &str {
        let index = index as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.text[start..self.ends[index] as usize]
    }

    /// Returns all URLs.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|index| self.url(index))
    }
}

/// Returns the URL on a line; may be empty.
fn url(line: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(line).map_err(|_| "is not UTF-8".to_owned())?.trim();
    if text.len() > URL_LENGTH_MAX {
        return Err(format!("a URL of {} bytes: at most {URL_LENGTH_MAX} are possible", text.len()));
    }
    if let Some(wrong) = text.chars().find(|c| c.is_whitespace() || c.is_control()) {
        return Err(format!("a URL cannot have {wrong:?}: write it in percent, as %20 for a blank"));
    }
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use super::*;
    use crate::files::InputFile;
    use std::{collections::BTreeMap, io};

    fn parse(text: &[u8], most: u64) -> Result<Trace, String> {
        Trace::parse(text, "t.txt", most)
    }

    #[test]
    fn urls_are_trimmed_lines() {
        let trace = parse(b"a\r\n  b?x=1  \n\xc3\xa4\nlast", u64::MAX).unwrap();
        assert_eq!(trace.iter().collect::<Vec<_>>(), ["a", "b?x=1", "ä", "last"]);
        assert_eq!((trace.len(), trace.url(3)), (4, "last"));
        assert_eq!(parse(b"a\nb\n\n\n", u64::MAX).unwrap().len(), 2);
        // Unused lines may contain anything.
        assert_eq!(parse(b"a\nb\n\n\xff c", 2).unwrap().len(), 2);
    }

    #[test]
    fn faults_name_file_and_line_and_are_bounded() {
        let problem = parse(b"a\n\nb c\n\xff\nd\x01\ne\n", u64::MAX).unwrap_err();
        for words in
            ["t.txt:3: a URL cannot have ' '", "t.txt:4: is not UTF-8", "t.txt:5: ", "t.txt:2: has no URL"]
        {
            assert!(problem.contains(words), "{words}: {problem}");
        }
        assert!(!problem.contains("t.txt:6") && !problem.contains("t.txt:1:"), "{problem}");
        assert!(parse(b"", 1).unwrap_err().contains("t.txt: has no URL"));
        assert!(parse(b"\n\n", 1).unwrap_err().contains("t.txt: has no URL"));
        let many = parse("a b\n".repeat(1000).as_bytes(), u64::MAX).unwrap_err();
        assert_eq!(many.matches("t.txt:").count(), FAULTS_MAX);
        let gaps = parse(format!("{}x", "\n".repeat(1000)).as_bytes(), u64::MAX).unwrap_err();
        assert_eq!(gaps.matches("t.txt:").count(), FAULTS_MAX);
        let long = "x".repeat(URL_LENGTH_MAX + 1);
        assert!(parse(long.as_bytes(), 1).unwrap_err().contains("at most"));
        let nothing = BTreeMap::new();
        let problem = Trace::read(&nothing, Path::new("/nowhere.txt"), 1).unwrap_err();
        assert!(problem.contains("/nowhere.txt: cannot be read"), "{problem}");
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        struct Huge;
        impl InputFiles for Huge {
            fn open(&self, _: &Path) -> io::Result<InputFile> {
                Ok(InputFile { size: TRACE_FILE_MAX + 1, content: Box::new(io::empty()) })
            }
        }
        assert!(Trace::read(&Huge, Path::new("t.txt"), 1).unwrap_err().contains("at most"));
    }
}
