//! The endpoint as a process: `headwater-s3-double --port N`.

use std::process::ExitCode;

use headwater_s3_double::{ACCESS_KEY_ID, S3Double, SECRET_ACCESS_KEY};

const USAGE: &str = "usage: headwater-s3-double [--port N]   (0, the default, is a free port)";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let port = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(0),
        ["--port", port] => port.parse::<u16>().map_err(|_| format!("not a port: {port}")),
        _ => Err("unknown arguments".to_owned()),
    };
    let port = match port {
        Ok(port) => port,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut double = match S3Double::start_on(port).await {
        Ok(double) => double,
        Err(error) => {
            eprintln!("cannot listen on port {port}: {error}");
            return ExitCode::FAILURE;
        }
    };
    // One line on standard output, for whoever started it and reads no further.
    eprintln!("bucket {}, key {ACCESS_KEY_ID}, secret {SECRET_ACCESS_KEY}", double.bucket());
    println!("{}", double.endpoint());
    let ended = tokio::signal::ctrl_c().await;
    double.stop().await;
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
