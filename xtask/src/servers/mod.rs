//! Real servers on loopback, one module a system. A server is a guard: it
//! answers once it exists, and is gone with its files once dropped.

pub(crate) mod redis;
mod resp;
