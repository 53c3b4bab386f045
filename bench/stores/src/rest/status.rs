//! Meaning of status codes.

use hyper::StatusCode;
use serval_model::{Outcome, Status};

/// Maximum bytes of a body that a failure quotes.
const QUOTED_CHARS: usize = 200;

/// Converts a code to a status, YCSB's if it has one. Unlike YCSB, which treats all other
/// codes below 500 as OK, a refused request is a failure.
pub(super) fn status(code: StatusCode) -> Status {
    match code.as_u16() {
        200..=299 | 304 => Status::Ok,
        401 | 403 | 407 => Status::Forbidden,
        404 | 410 => Status::NotFound,
        405 | 501 => Status::NotImplemented,
        408 | 429 | 503 => Status::ServiceUnavailable,
        // The record exists, or has changed.
        409 | 412 => Status::Error,
        400..=499 => Status::BadRequest,
        _ => Status::Error,
    }
}

/// Converts a code to an outcome, with the start of a failure's body.
pub(super) fn outcome(code: StatusCode, location: Option<&str>, body: &[u8]) -> Outcome {
    let status = status(code);
    match status {
        Status::Ok => return Outcome::OK,
        Status::NotFound => return Outcome::NOT_FOUND,
        _ => {}
    }
    let mut words = format!("HTTP {code}");
    if code.is_redirection() {
        let place = location.unwrap_or("somewhere else");
        words += &format!(" to {place}: redirections are not followed");
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * QUOTED_CHARS)]);
    let text: Vec<&str> = text.split_ascii_whitespace().collect();
    if !text.is_empty() {
        words += ": ";
        words.extend(text.join(" ").chars().take(QUOTED_CHARS));
    }
    Outcome::failed(status, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_ycsbs_statuses_except_for_some_that_it_reads_as_ok() {
        let of = |code| status(StatusCode::from_u16(code).unwrap_or_default());
        let table = [
            (Status::Ok, &[200, 201, 202, 204, 206, 304][..]),
            (Status::BadRequest, &[400, 402, 406, 411, 413, 414, 415, 422, 431, 451]),
            (Status::Forbidden, &[401, 403, 407]),
            (Status::NotFound, &[404, 410]),
            (Status::NotImplemented, &[405, 501]),
            (Status::ServiceUnavailable, &[408, 429, 503]),
            (Status::Error, &[301, 302, 307, 409, 412, 500, 502, 504, 599, 600, 999]),
        ];
        for (status, codes) in table {
            for code in codes {
                assert_eq!(of(*code), status, "{code}");
            }
        }
    }

    #[test]
    fn a_failure_has_the_services_message_truncated() {
        let words = |code, body: &[u8]| {
            outcome(StatusCode::from_u16(code).unwrap_or_default(), Some("/there"), body).message
        };
        assert_eq!(
            words(500, b"<h1>out\n  of order</h1>").as_deref(),
            Some("HTTP 500 Internal Server Error: <h1>out of order</h1>")
        );
        assert_eq!(words(503, b" ").as_deref(), Some("HTTP 503 Service Unavailable"));
        assert_eq!(
            words(301, b"").as_deref(),
            Some("HTTP 301 Moved Permanently to /there: redirections are not followed")
        );
        assert_eq!(words(404, b"no such page"), None);
        let long = words(500, "日".repeat(100_000).as_bytes()).map_or(0, |words| words.chars().count());
        assert_eq!(long, "HTTP 500 Internal Server Error: ".len() + QUOTED_CHARS);
    }
}
