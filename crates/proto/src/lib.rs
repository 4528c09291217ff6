//! The wire contract: `headwater.v1`.
//!
//! In here: the code generated from the `.proto` files beside this crate's
//! sources, whose comments are the reference for every field; and the words of
//! errors, [`reason`], the [`limits`] that servers and clients share, and how a
//! [`duration`] is read. Not in here: any decision, and any type of the protocol
//! core. Services convert.
//!
//! ```text
//! proto/headwater/v1/*.proto --(cargo run -p xtask -- codegen)--> src/generated
//! ```
//!
//! # Architecture invariants
//!
//! - The generated code is committed: a build needs no protoc and compiles no
//!   generator. A test of `xtask` regenerates and compares.
//! - Fields of type `bytes` are [`prost::bytes::Bytes`]: they share the received
//!   buffer.

pub mod duration;
pub mod limits;
pub mod reason;

/// Messages, clients and servers of package `headwater.v1`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::clone_on_ref_ptr,
    clippy::missing_errors_doc,
    clippy::wildcard_enum_match_arm,
    reason = "generated; the .proto files are linted by their readers"
)]
pub mod v1 {
    include!("generated/headwater.v1.rs");
}

/// The encoded `google.protobuf.FileDescriptorSet` of the contract, comments
/// included, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/headwater.v1.bin");
