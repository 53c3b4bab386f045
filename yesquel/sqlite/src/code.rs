//! SQLite's result codes.

use yesquel::Error;

/// Result code of SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResultCode(pub(crate) i32);

/// SQLite's codes that are used here.
impl ResultCode {
    pub(crate) const INTERNAL: ResultCode = ResultCode(2);
    pub(crate) const BUSY: ResultCode = ResultCode(5);
    pub(crate) const BUSY_SNAPSHOT: ResultCode = ResultCode(5 | 2 << 8);
    pub(crate) const INTERRUPT: ResultCode = ResultCode(9);
    pub(crate) const IOERR: ResultCode = ResultCode(10);
    /// The outcome of a commit is not known; SQLite's own code for a commit that failed midway, which
    /// arises nowhere else on trees.
    pub(crate) const IOERR_COMMIT_ATOMIC: ResultCode = ResultCode(10 | 30 << 8);
    pub(crate) const CORRUPT: ResultCode = ResultCode(11);
    pub(crate) const NOTFOUND: ResultCode = ResultCode(12);
    pub(crate) const FULL: ResultCode = ResultCode(13);
    pub(crate) const CANTOPEN: ResultCode = ResultCode(14);
    pub(crate) const SCHEMA: ResultCode = ResultCode(17);
    pub(crate) const TOOBIG: ResultCode = ResultCode(18);
    pub(crate) const MISUSE: ResultCode = ResultCode(21);
    pub(crate) const DONE: ResultCode = ResultCode(101);
}

impl From<&Error> for ResultCode {
    fn from(error: &Error) -> ResultCode {
        match error {
            // A cancelled wait learns no outcome.
            Error::OutcomeUnknown(_) | Error::Connect(_) if yesquel::was_cancelled() => ResultCode::INTERRUPT,
            Error::Conflict(_) | Error::SnapshotTooOld(_) | Error::Exists => ResultCode::BUSY_SNAPSHOT,
            Error::Leased(_) => ResultCode::BUSY,
            // Another connection has dropped the table; the schema of a later snapshot will show
            // that.
            Error::NoMap(_) => ResultCode::BUSY_SNAPSHOT,
            Error::NoDatabase(_) | Error::NoGroup(_) | Error::Name { .. } | Error::Location { .. } => {
                ResultCode::CANTOPEN
            }
            Error::Connect(_) | Error::InUse(_) | Error::OldFormat(_) | Error::Denied(_) | Error::Open(_) => {
                ResultCode::CANTOPEN
            }
            Error::Damaged(_) => ResultCode::CORRUPT,
            Error::Interrupted(_) => ResultCode::INTERRUPT,
            Error::TooLong { .. } => ResultCode::TOOBIG,
            Error::OutOfMemory(_) | Error::DiskFull(_) | Error::NoRowIds => ResultCode::FULL,
            Error::DiskFailed(_)
            | Error::ClockDiffers(_)
            | Error::ClockBehind(_)
            | Error::Unavailable(_)
            | Error::HomeGroupUnreachable(_)
            | Error::Disconnected(_) => ResultCode::IOERR,
            Error::OutcomeUnknown(_) => ResultCode::IOERR_COMMIT_ATOMIC,
            _ => ResultCode::INTERNAL,
        }
    }
}
