//! `.schema --indent`: breaks long statements as SQLite's own shell does.

/// Statements up to this length stay on one line.
const LINE: usize = 79;

fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

/// Returns whether only spaces and a comment precede the line's end.
fn ends_line(rest: &[u8]) -> bool {
    match rest.iter().position(|byte| *byte == b'\n' || !is_space(*byte)) {
        None => true,
        Some(at) => rest[at] == b'\n' || rest[at..].starts_with(b"--"),
    }
}

/// Collapses spaces.
fn tightened(sql: &str) -> Vec<u8> {
    let mut tight: Vec<u8> = Vec::with_capacity(sql.len());
    for byte in sql.bytes().skip_while(|byte| is_space(*byte)) {
        if is_space(byte) {
            if tight.last() == Some(&b'\r') {
                tight.pop();
                tight.push(b'\n');
            }
            if tight.last().is_some_and(|last| is_space(*last) || *last == b'(') {
                continue;
            }
        } else if matches!(byte, b'(' | b')') && tight.last().is_some_and(|last| is_space(*last)) {
            tight.pop();
        }
        tight.push(byte);
    }
    while tight.last().is_some_and(|last| is_space(*last)) {
        tight.pop();
    }
    tight
}

/// Indents a statement of the schema, given without its semicolon.
pub(super) fn indented(sql: &str) -> String {
    let starts = |kind: &str| sql.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind));
    if starts("CREATE VIEW") || starts("CREATE TRIG") {
        return sql.to_owned();
    }
    let tight = tightened(sql);
    if tight.len() < LINE {
        return String::from_utf8_lossy(&tight).into_owned();
    }
    let (mut out, mut line): (Vec<u8>, Vec<u8>) = (Vec::with_capacity(2 * tight.len()), Vec::new());
    let (mut depth, mut lines, mut close, mut at) = (0_i64, 0, None, 0);
    while let Some(byte) = tight.get(at).copied() {
        if close == Some(byte) {
            close = None;
        } else if matches!(byte, b'"' | b'\'' | b'`') {
            close = Some(byte);
        } else if byte == b'[' {
            close = Some(b']');
        } else if byte == b'-' && tight.get(at + 1) == Some(&b'-') {
            close = Some(b'\n');
        } else if byte == b'(' {
            depth += 1;
        } else if byte == b')' {
            depth -= 1;
            if lines > 0 && depth == 0 && !line.is_empty() {
                out.append(&mut line);
                out.push(b'\n');
            }
        }
        line.push(byte);
        let rest = &tight[at + 1..];
        if depth == 1
            && close.is_none()
            && (matches!(byte, b'(' | b'\n') || (byte == b',' && !ends_line(rest)))
        {
            if byte == b'\n' {
                line.pop();
            }
            out.append(&mut line);
            out.extend_from_slice(b"\n  ");
            lines += 1;
            at += rest.iter().take_while(|byte| is_space(**byte)).count();
        }
        at += 1;
    }
    out.append(&mut line);
    // The text was cut at ASCII characters only.
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::indented;

    /// Output of sqlite3 3.40.1, except for the semicolon.
    #[test]
    fn long_statements_break_like_in_sqlite3() {
        let sql = "CREATE TABLE \"q r\" ( a, b,[c,d],\n e  text default('(xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'), \
             primary key (a,b) ) without rowid";
        // Brackets inside quotes count.
        let wanted = "CREATE TABLE \"q r\"(\n  a,\n  b,\n  [c,d],\n  \
             e text default('(xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'), primary key(a,b)) without rowid";
        assert_eq!(indented(sql), wanted);
        let sql = "CREATE TABLE people ( id INTEGER PRIMARY KEY,\n name TEXT, -- the name, all\n \
             weight REAL CHECK (weight > 0 AND weight < 1000), UNIQUE (name , weight) )";
        let wanted = "CREATE TABLE people(\n  id INTEGER PRIMARY KEY,\n  name TEXT, -- the name, all\n  \
             weight REAL CHECK(weight > 0 AND weight < 1000),\n  UNIQUE(name , weight)\n)";
        assert_eq!(indented(sql), wanted);
        assert_eq!(indented("CREATE TABLE a ( b , c )"), "CREATE TABLE a(b , c)");
        let view = "CREATE VIEW  v AS SELECT ( 1 )";
        assert_eq!(indented(view), view);
    }
}
