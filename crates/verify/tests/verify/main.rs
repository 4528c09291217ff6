//! What a check says of histories that real writers have made: of sound ones,
//! and with every object damaged in turn.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names what it expects")]

mod budget;
mod clean;
mod damage;
mod fixture;
mod growing;
mod moving;
mod paged;
mod repair;
mod sealed;
mod unreached;
