//! Who is let in, who is not, and what happens to the others meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod fixture;
mod flood;
mod identity;
mod matrix;
mod rotation;
mod secrets;
#[path = "../support/mod.rs"]
mod support;
