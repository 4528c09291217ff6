//! The endpoint as a process: `headwater-s3-double --port N --conduct NAME`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use headwater_s3_double::{ACCESS_KEY_ID, Conduct, S3Double, SECRET_ACCESS_KEY};

const USAGE: &str = "usage: headwater-s3-double [--address IP] [--port N] [--conduct NAME]...
  --address IP    where to listen; whoever reaches it may read and write.
                  127.0.0.1 by default
  --port N        0, the default, is a free port
  --conduct NAME  misbehaves in this way, at every request; may be repeated";

/// What the command line asks for.
struct Asked {
    address: IpAddr,
    port: u16,
    conduct: Conduct,
}

fn read_arguments(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
    let address = IpAddr::from(Ipv4Addr::LOCALHOST);
    let mut asked = Asked { address, port: 0, conduct: Conduct::default() };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("no value after {name}"))?;
        match name.as_str() {
            "--address" => {
                asked.address = value.parse().map_err(|_| format!("not an address: {value}"))?;
            }
            "--port" => asked.port = value.parse().map_err(|_| format!("not a port: {value}"))?,
            "--conduct" => {
                asked.conduct = asked.conduct.with(&value).map_err(|it| it.to_string())?;
            }
            _ => return Err(format!("unknown argument: {name}")),
        }
    }
    Ok(asked)
}

#[tokio::main]
async fn main() -> ExitCode {
    let Asked { address, port, conduct } = match read_arguments(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut double = match S3Double::start_at(SocketAddr::new(address, port)).await {
        Ok(double) => double,
        Err(error) => {
            eprintln!("cannot listen on {address}, port {port}: {error}");
            return ExitCode::FAILURE;
        }
    };
    double.set_conduct(conduct);
    // One line on standard output, for whoever started it and reads no further.
    eprintln!("bucket {}, key {ACCESS_KEY_ID}, secret {SECRET_ACCESS_KEY}", double.bucket());
    println!("{}", double.endpoint());
    let ended = tokio::signal::ctrl_c().await;
    double.stop().await;
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
