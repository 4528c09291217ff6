//! What is made and committed, or printed: see [`USAGE`].

use std::env;
use std::error::Error;
use std::io::Write;
use std::process::{Command, ExitCode};

use xtask::{codegen, sbom};

const USAGE: &str = "usage: cargo run -p xtask -- codegen        write the wire code again
       cargo run -p xtask -- configuration  write docs/configuration.md again
       cargo run -p xtask -- sbom           print the bill of materials";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["codegen"] => codegen::generate(&codegen::generated_dir()).map_err(|error| {
            let source = source_of(&error);
            format!("{error}: {source}").into()
        }),
        ["configuration"] => write_configuration(),
        ["sbom"] => print_sbom(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The settings are defined by crates that depend on nearly everything, which the
/// generator of code must not: the test that compares the page writes it.
fn write_configuration() -> Result<(), Box<dyn Error>> {
    let status = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["test", "-p", "headwater-cli", "--test", "configuration", "the_page"])
        .env("HEADWATER_WRITE_PAGES", "1")
        .status()?;
    if status.success() { Ok(()) } else { Err("the page could not be written".into()) }
}

fn print_sbom() -> Result<(), Box<dyn Error>> {
    let bill = sbom::generate(&codegen::repository_root())?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&bill)?)?;
    Ok(())
}

fn source_of(error: &codegen::CodegenError) -> String {
    match error {
        codegen::CodegenError::Compile(source) => format!("{source:?}"),
        codegen::CodegenError::Write(source) => source.to_string(),
    }
}
