//! The Headwater protocol as plain values: no clock, no network, no tasks.
//!
//! Everything that decides *what* may be published, answered, followed or
//! deleted lives here. Everything that *does* it lives in the other crates,
//! which call in with events and carry out the effects they get back. The
//! production daemons and every test rig drive this same code.
//!
//! ```text
//!            Event                        Effect
//! driver ------------>  publish::Publisher ------------> driver
//!                       decide, head,
//!                       receipts, change
//! ```
//!
//! # Architecture invariants
//!
//! - The crate is `no_std`: it cannot read a clock, open a socket, spawn a
//!   thread or iterate a randomly seeded map, because none of those exist here.
//! - Nothing here is async and nothing here fails for an outside reason. The
//!   only errors are decisions about requests or about stored bytes.
//! - Domain types are not serializable. [`format`] owns every stored byte.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// Whether a rig has planted this fault (`planted::Fault`). Without the feature
/// `planted`, which no package that is shipped switches on, it says `false`
/// and nothing else: the compiler drops what depends on it.
#[cfg(feature = "planted")]
macro_rules! planted {
    ($fault:ident) => {
        $crate::planted::is($crate::planted::Fault::$fault)
    };
}
#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($fault:ident) => {
        false
    };
}

#[cfg(feature = "planted")]
pub mod planted;

// Suggested reading order.
pub mod hash;
pub mod id;
pub mod version;

pub mod keys;

pub mod operation;

pub mod receipt;

pub mod change;
pub mod decide;

pub mod follow;
pub mod head;

pub mod archive;
pub mod sweep;

pub mod format;

pub mod publish;
