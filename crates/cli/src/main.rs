//! The binary: see [`headwater_cli`].

use std::process::ExitCode;

headwater_store::refuse_planted!();

fn main() -> ExitCode {
    headwater_cli::run()
}
