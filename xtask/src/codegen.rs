//! Generates the Rust side of the wire contract.
//!
//! The output is committed, so that building Headwater compiles no generator
//! and needs no installed protoc. A test compares what is committed with what
//! this module makes, so the two cannot drift apart.

use std::path::{Path, PathBuf};
use std::{fs, io};

use prost::Message;

/// The files of the contract, below [`proto_root`].
const FILES: &[&str] = &[
    "headwater/v1/types.proto",
    "headwater/v1/history.proto",
    "headwater/v1/retention.proto",
    "headwater/v1/write.proto",
    "headwater/v1/read.proto",
    "headwater/v1/watch.proto",
    "headwater/v1/forward.proto",
    "headwater/v1/process.proto",
];

/// File name of the encoded descriptor set, which server reflection serves.
pub const DESCRIPTOR_SET: &str = "headwater.v1.bin";

/// Why nothing was generated.
#[derive(Debug, thiserror::Error)]
pub enum CodegenError {
    /// A .proto file does not compile.
    #[error("a .proto file does not compile")]
    Compile(#[from] protox::Error),
    /// The output cannot be written.
    #[error("the output cannot be written")]
    Write(#[from] io::Error),
}

/// Where the .proto files are.
pub fn proto_root() -> PathBuf {
    repository_root().join("crates/proto/proto")
}

/// Where the generated files are kept.
pub fn generated_dir() -> PathBuf {
    repository_root().join("crates/proto/src/generated")
}

/// The folder that holds the workspace's `Cargo.toml`.
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// Writes the generated files into `out_dir`, which is created if absent.
///
/// # Errors
///
/// [`CodegenError`]; files may have been written.
pub fn generate(out_dir: &Path) -> Result<(), CodegenError> {
    fs::create_dir_all(out_dir)?;
    let descriptors = protox::compile(FILES, [proto_root()])?;
    fs::write(out_dir.join(DESCRIPTOR_SET), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .out_dir(out_dir)
        // Keys and values are slices of the received message, not copies of it.
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
