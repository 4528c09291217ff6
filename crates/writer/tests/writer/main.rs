//! The writer against stores that misbehave on order, one file a subject.
//!
//! One binary: linking takes longer than running.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]
#![allow(clippy::panic, reason = "an answer of another kind fails the test")]

mod fixture;

mod lost_answer;
