//! The client against servers that follow a script.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod fake;
mod read;
mod stream;
mod submit;
mod txn;
mod watch;
