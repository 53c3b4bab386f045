//! Servers with misbehaving or slow clients.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod corrections;
mod crowds;
mod half_messages;
mod slow_readers;
mod support;
mod watchers;
