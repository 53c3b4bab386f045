//! Why a request was not sent, or has no reply.

use crate::{LossCause, LostCall};
use std::io;

/// Why a request was not sent, or has no reply.
#[derive(Debug, Clone)]
pub(super) struct LostConnection {
    pub(super) cause: LossCause,
    pub(super) why: String,
}

impl LostConnection {
    pub(super) fn other(why: impl Into<String>) -> LostConnection {
        LostConnection { cause: LossCause::Other, why: why.into() }
    }

    pub(super) fn cancelled() -> LostConnection {
        LostConnection { cause: LossCause::Cancelled, why: String::new() }
    }

    /// The loss of a call to a server at this place.
    pub(super) fn at(self, place: String) -> LostCall {
        let LostConnection { cause, why } = self;
        // The reason may begin with the address too.
        let why = why.strip_prefix(&format!("{place}: ")).map(str::to_owned).unwrap_or(why);
        LostCall { place, cause, why }
    }

    /// From an error of the operating system.
    pub(super) fn of(error: &io::Error) -> LostConnection {
        LostConnection { cause: LossCause::Disconnected, why: error.to_string() }
    }
}
