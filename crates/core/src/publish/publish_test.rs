//! The publisher, driven by hand over a bucket in memory.
//!
//! Each test in the `…_test` modules is one story. The rig checks every answer
//! against the bucket when it is given, so that a story also fails when a
//! publisher says something untrue on the way.

#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::clone_on_ref_ptr,
    clippy::needless_for_each,
    clippy::type_complexity,
    reason = "a test names what it expects, and fails on the rest"
)]

mod bucket;
mod check;
mod dice;
mod maintain;
mod model;
mod op;
mod rig;

mod beside_test;
mod control_test;
mod doubt_test;
mod pace_test;
mod pipeline_test;
mod race_test;
mod reject_test;
mod repeat_test;
mod soak_test;
