//! Who is let in, who is not, and what happens to the others meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod admin_port;
mod check_config;
mod fixture;
mod flood;
mod identity;
mod jwt;
mod matrix;
mod push;
mod rotation;
mod secrets;
#[path = "../support/mod.rs"]
mod support;
mod unread;
