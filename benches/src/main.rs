//! The binary: see [`headwater_benches`].

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    headwater_benches::run().await
}
