//! The stored bytes: the only place that knows them. See `docs/formats.md`.
//!
//! Stored shapes are separate from domain types on purpose: a domain type that
//! derived `Serialize` would turn every rename into a format change.
//!
//! The head and request records are JSON, for people; everything else is a
//! small binary encoding, read without copying values. Each binary object
//! begins with four bytes: `HW`, a letter for the kind, and the format number.
//!
//! # Architecture invariants
//!
//! - A decoder accepts exactly what the encoder of some format version writes.
//!   What it accepts encodes to the same bytes again. Of a head the checksum is
//!   compared instead: another order of its fields, or white space, is read by
//!   whoever put the right checksum behind it.
//! - A decoder never panics, and allocates no more than a small multiple of
//!   the bytes that it is given.

pub mod archive;
pub mod change;
pub mod chunk;
pub mod head;
mod owners;
pub mod receipts;
pub mod record;
pub mod request;
pub mod segment;
pub mod snapshot;
pub mod snapshot_page;
mod text;
mod wire;

/// The format that this build writes, and the newest that it reads.
pub const FORMAT: u8 = 1;

/// Why bytes are not an object that this build can trust.
///
/// It does not know the object's key; whoever fetched the bytes adds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not of the object's shape. Truncated, altered, or another object.
    #[error("malformed: {what}")]
    Malformed {
        /// The part that does not fit.
        what: &'static str,
    },
    /// Written by a newer build. Upgrading cures it.
    #[error("format {found} is newer than this build reads (up to {FORMAT})")]
    TooNew {
        /// The stored format number.
        found: u8,
    },
}

pub(crate) const fn malformed(what: &'static str) -> DecodeError {
    DecodeError::Malformed { what }
}
