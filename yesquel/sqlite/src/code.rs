//! SQLite's result codes.

use yesquel::Error;

/// What SQLite is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

/// SQLite's codes, where they are of use here.
impl Code {
    pub(crate) const INTERNAL: Code = Code(2);
    pub(crate) const BUSY: Code = Code(5);
    pub(crate) const BUSY_SNAPSHOT: Code = Code(5 | 2 << 8);
    pub(crate) const INTERRUPT: Code = Code(9);
    pub(crate) const IOERR: Code = Code(10);
    pub(crate) const CORRUPT: Code = Code(11);
    pub(crate) const NOTFOUND: Code = Code(12);
    pub(crate) const FULL: Code = Code(13);
    pub(crate) const CANTOPEN: Code = Code(14);
    pub(crate) const SCHEMA: Code = Code(17);
    pub(crate) const TOOBIG: Code = Code(18);
    pub(crate) const MISUSE: Code = Code(21);
    pub(crate) const DONE: Code = Code(101);
}

impl From<&Error> for Code {
    fn from(error: &Error) -> Code {
        match error {
            // Whoever gave up did not learn it.
            Error::OutcomeUnknown(_) | Error::Connect(_) if yesquel::has_given_up() => Code::INTERRUPT,
            Error::Conflict(_) | Error::SnapshotTooOld(_) | Error::Exists => Code::BUSY_SNAPSHOT,
            Error::Leased(_) => Code::BUSY,
            // The table was dropped by another one, as the schema will say at the
            // next moment: at this one it is there.
            Error::NoMap(_) => Code::BUSY_SNAPSHOT,
            Error::NoDatabase(_) | Error::Name { .. } | Error::Location { .. } => Code::CANTOPEN,
            Error::Connect(_) | Error::InUse(_) | Error::Denied(_) | Error::Open(_) => Code::CANTOPEN,
            Error::Damaged(_) => Code::CORRUPT,
            Error::Interrupted(_) => Code::INTERRUPT,
            Error::TooLong { .. } => Code::TOOBIG,
            Error::OutOfMemory(_) => Code::FULL,
            Error::NoRowIds => Code::FULL,
            Error::DiskFailed(_)
            | Error::Unavailable(_)
            | Error::Disconnected(_)
            | Error::OutcomeUnknown(_) => Code::IOERR,
            _ => Code::INTERNAL,
        }
    }
}
