//! What tells the servers apart that a process uses: their maps have the same
//! numbers.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use yesquel_model::ServerId;
use yesquel_transport::Address;

/// A server, as far as this process can know: one in it, or whoever is at an
/// address. It is a number so that maps can be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity(u64);

type Known = HashMap<(Address, ServerId), Identity>;

fn known() -> MutexGuard<'static, Option<Known>> {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Identity {
    /// One that no other server has.
    pub(crate) fn fresh() -> Identity {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Identity(NEXT.fetch_add(1, Relaxed))
    }

    /// That of the server at an address, the same for all who connect to it.
    pub(crate) fn at(address: &Address, server: ServerId) -> Identity {
        let mut known = known();
        let known = known.get_or_insert_default();
        *known.entry((address.clone(), server)).or_insert_with(Identity::fresh)
    }

    /// A server of this process is at an address from now on.
    pub(crate) fn is_at(self, address: &Address, server: ServerId) {
        known().get_or_insert_default().insert((address.clone(), server), self);
    }
}
