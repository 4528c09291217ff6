//! A replica over a bucket in memory whose answers a test can order, and a
//! small publisher that writes heads into it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod archive;
mod bucket;
mod cold;
mod damage;
mod endings;
mod freshness;
mod limits;
mod memory;
mod outage;
mod overlap;
mod overview;
mod polling;
mod push;
mod ready;
mod restored;
mod rpc;
mod scan;
mod sharing;
mod times;
mod versions;
mod watch;
mod watch_client;
mod watch_rpc;
