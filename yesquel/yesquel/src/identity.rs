//! Identities of the servers that a process uses. Maps of different servers may have equal numbers.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use yesquel_model::ServerId;
use yesquel_transport::Address;

/// Server as this process identifies it: one in this process, or the one at an address. It is a
/// number so that maps can be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity(u64);

type IdentityMap = HashMap<(Address, ServerId), Identity>;

fn known() -> MutexGuard<'static, Option<IdentityMap>> {
    static KNOWN: Mutex<Option<IdentityMap>> = Mutex::new(None);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Identity {
    /// Returns a new, unique identity.
    pub(crate) fn new_unique() -> Identity {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Identity(NEXT.fetch_add(1, Relaxed))
    }

    /// Returns the identity of the server at an address, the same for all connections.
    pub(crate) fn at(address: &Address, server: ServerId) -> Identity {
        let mut known = known();
        let known = known.get_or_insert_default();
        *known.entry((address.clone(), server)).or_insert_with(Identity::new_unique)
    }

    /// Registers the address of a server of this process.
    pub(crate) fn is_at(self, address: &Address, server: ServerId) {
        known().get_or_insert_default().insert((address.clone(), server), self);
    }
}
