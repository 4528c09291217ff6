//! `cargo run -p xtask -- codegen`, `cargo run -p xtask -- sbom`

use std::env;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use xtask::{codegen, sbom};

const USAGE: &str = "usage: cargo run -p xtask -- codegen    write the wire code again
       cargo run -p xtask -- sbom       print the bill of materials";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["codegen"] => codegen::generate(&codegen::generated_dir()).map_err(|error| {
            let source = source_of(&error);
            format!("{error}: {source}").into()
        }),
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
