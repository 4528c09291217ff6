//! The writer against stores that misbehave on order, one file a subject.
//!
//! One binary: linking takes longer than running.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]
#![allow(
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest"
)]

mod fixture;

mod company;
mod cost;
mod damage;
mod exclusive;
mod forwarding;
mod forwarding_rpc;
mod identity;
mod lifecycle;
mod limits;
mod lost_answer;
mod older;
mod overload;
mod overview;
mod pacing;
mod process;
mod races;
mod soak;
mod space;
mod store_faults;
mod stream;
mod upkeep;
