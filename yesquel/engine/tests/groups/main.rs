//! Several groups, and what the commit protocol promises between them: one test for each fault and
//! each path of `docs/yesquel/cluster/commit.md`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod forgetting;
mod queued;
mod support;
mod values;
mod votes;
