//! Conversion of the driver's errors.

use mongodb::error::{Error, ErrorKind, WriteFailure};
use serval_model::{Outcome, Status};

/// Converts a failure to an outcome.
pub(super) fn failure(error: &Error) -> Outcome {
    let said = words(error);
    match &*error.kind {
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => {
            Outcome::failed(Status::ServiceUnavailable, format!("connection lost: {said}"))
        }
        ErrorKind::ServerSelection { .. } | ErrorKind::Shutdown => {
            Outcome::failed(Status::ServiceUnavailable, said)
        }
        ErrorKind::Authentication { .. } => Outcome::failed(Status::Forbidden, said),
        // The driver validates sizes and names itself.
        ErrorKind::InvalidArgument { .. } | ErrorKind::BsonSerialization(_) => {
            Outcome::failed(Status::BadRequest, said)
        }
        _ => Outcome::failed(code(error).map_or(Status::Error, status), said),
    }
}

/// Converts a server's error number to a status.
fn status(code: i32) -> Status {
    match code {
        // Unauthorized, AuthenticationFailed, Atlas's code.
        13 | 18 | 8000 => Status::Forbidden,
        // Unreachable, not primary, shutting down, too slow, too few servers for
        // the write concern.
        6 | 7 | 50 | 64 | 89 | 91 | 100 | 134 | 189 | 202 | 262 | 9001 | 10058 | 10107 | 11600 | 11602
        | 13435 | 13436 => Status::ServiceUnavailable,
        // Invalid values, types, names, sizes, or documents that fail the
        // collection's validation.
        2 | 9 | 14 | 15 | 40 | 52 | 55 | 57 | 66 | 73 | 121 | 10334 | 17280 | 17419 | 17420 | 17421 => {
            Status::BadRequest
        }
        _ => Status::Error,
    }
}

/// Returns the server's number of an error.
pub(super) fn code(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(error) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => Some(error.code),
        ErrorKind::InsertMany(many) => {
            let write = many.write_errors.as_ref().and_then(|errors| errors.first()).map(|error| error.code);
            write.or(many.write_concern_error.as_ref().map(|error| error.code))
        }
        _ => None,
    }
}

/// Returns whether the server rejects user and password. An error that has cleared the
/// connection pool has this in its text only.
pub(super) fn is_of_login(error: &Error) -> bool {
    matches!(*error.kind, ErrorKind::Authentication { .. }) || words(error).contains("SCRAM")
}

/// Returns the server's message, or the driver's cause.
pub(super) fn words(error: &Error) -> String {
    match &*error.kind {
        ErrorKind::Command(error) => error.message.clone(),
        ErrorKind::Write(WriteFailure::WriteError(error)) => error.message.clone(),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => {
            format!("the write concern was not met: {}", error.message)
        }
        ErrorKind::InsertMany(many) => match many.write_errors.as_ref().and_then(|errors| errors.first()) {
            Some(error) => error.message.clone(),
            None => many.write_concern_error.as_ref().map_or_else(String::new, |error| {
                format!("the write concern was not met: {}", error.message)
            }),
        },
        ErrorKind::ServerSelection { message, .. } => selection(message),
        ErrorKind::Io(error) => error.to_string(),
        kind => kind.to_string(),
    }
}

/// Extracts the cause of the last failure from the driver's description of all servers,
/// which contains times.
fn selection(message: &str) -> String {
    let cause = message.split("Error: Kind: ").nth(1).and_then(|rest| rest.split(", labels:").next());
    let cause = cause.or_else(|| {
        let rest = message.split("Compatibility Error: ").nth(1)?;
        rest.split(", Servers:").next()
    });
    let cause = cause.or_else(|| message.split(" Topology:").next()).unwrap_or(message);
    let cause = cause.strip_prefix("Server selection timeout: ").unwrap_or(cause);
    format!("no server can be used: {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_extracted_from_the_drivers_message() {
        let long = "Server selection timeout: No available servers. Topology: { Type: Unknown, Servers: [ { Address: \
                    127.0.0.1:1, Type: Unknown, Error: Kind: I/O error: Connection refused (os error 111), labels: {}, \
                    source: None } ] }";
        assert_eq!(selection(long), "no server can be used: I/O error: Connection refused (os error 111)");
        let short = "Server selection timeout: No available servers. Topology: { Type: Unknown }";
        assert_eq!(selection(short), "no server can be used: No available servers.");
    }

    #[test]
    fn error_codes_of_the_server_map_to_statuses() {
        assert_eq!(status(13), Status::Forbidden);
        assert_eq!(status(10107), Status::ServiceUnavailable);
        assert_eq!(status(10334), Status::BadRequest);
        assert_eq!(status(11000), Status::Error);
    }
}
