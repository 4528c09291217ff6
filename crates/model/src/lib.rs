//! Every schedule of a few processes over one head, by exhaustion.
//!
//! The decisions are those of `headwater_core`, compiled from the same files:
//! publishers, the format of heads and changes, the rules for following. This
//! crate adds what is around them, as little of it as will do: a bucket, a
//! network that loses, delays and repeats, processes that die, clients that ask
//! again, maintenance, a sweep, a replica. A [`setup::Setup`] says how much of
//! each there is. [`stateright`] visits every state that can be reached.
//!
//! ```text
//! setup::Setup ──▶ world::World ── step::Step ──▶ world::World ──▶ ...
//!                       │
//!                       └─ broken: the promise that a step broke, if any
//! ```
//!
//! # Architecture invariants
//!
//! - Nothing decides here what may be accepted, published, answered or
//!   followed. If core is wrong, a world is.
//! - What is checked is checked without core's own checks wherever these could
//!   be what is broken ([`bucket`], [`client`], [`domain`]).
//! - A state holds no counter that its future does not depend on, so that a
//!   state is visited once and not once for each way to it.

pub mod bucket;
pub mod client;
pub mod domain;
pub mod explore;
pub mod finish;
pub mod planted;
pub mod promise;
pub mod replica;
pub mod setup;
pub mod step;
pub mod sweeper;
pub mod upkeep;
pub mod world;
pub mod worlds;
pub mod writer;
