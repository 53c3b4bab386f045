//! Several groups, and what the commit protocol promises between them: one test for each fault and
//! each path of `docs/yesquel/cluster/commit.md`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "not all helpers are of use here")]
mod common;
mod forgetting;
mod queued;
mod support;
mod votes;
