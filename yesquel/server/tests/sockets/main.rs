//! Servers with misbehaving or slow clients.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

mod crowds;
mod half_messages;
mod slow_readers;
mod support;
