//! `cargo run -p xtask -- codegen`

use std::env;
use std::process::ExitCode;

use xtask::codegen;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments != ["codegen"] {
        eprintln!("usage: cargo run -p xtask -- codegen");
        return ExitCode::from(2);
    }
    match codegen::generate(&codegen::generated_dir()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}: {}", source_of(&error));
            ExitCode::FAILURE
        }
    }
}

fn source_of(error: &codegen::CodegenError) -> String {
    match error {
        codegen::CodegenError::Compile(source) => format!("{source:?}"),
        codegen::CodegenError::Write(source) => source.to_string(),
    }
}
