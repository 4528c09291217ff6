//! The binary: see [`headwater_cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    headwater_cli::run()
}
