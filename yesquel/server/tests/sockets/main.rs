//! Servers and clients that do not do as they should, or do it slowly.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

mod crowds;
mod half_messages;
mod slow_readers;
mod support;
