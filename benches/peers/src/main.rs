//! What a user might pick instead, measured beside Headwater in one process, in
//! pairs that alternate.
//!
//! ```sh
//! cd benches/peers && cargo run --release -- slatedb --callers 1,4096
//! cd benches/peers && cargo run --release -- grpc --callers 512 --etcd /usr/bin/etcd
//! ```
//!
//! - `slatedb`: durable puts in process over a store with the same latency.
//! - `grpc`: puts through gRPC, against a bare unary echo of the same size (what
//!   gRPC gives on this machine) and against etcd, where a binary is given.
//!
//! Each round measures all of them one after the other; a ratio is of one round.
//! A line of JSON for each round, and one with the medians.

mod echo;
mod etcd;
mod slate;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use headwater_benches::Plan;
use headwater_benches::load::{self, Measured};
use headwater_benches::system::{BoxError, System};
use serde_json::json;

#[derive(Debug, Parser)]
struct Arguments {
    /// Beside whom.
    #[arg(value_enum)]
    peer: Peer,
    /// Callers at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,1024,4096")]
    callers: Vec<usize>,
    /// Rounds: each measures everybody once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long each measurement takes, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// What a write takes in the store, in milliseconds.
    #[arg(long, default_value_t = 20)]
    write_ms: u64,
    /// What a read takes in the store, in milliseconds.
    #[arg(long, default_value_t = 10)]
    read_ms: u64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 1_024)]
    value_bytes: usize,
    /// The etcd binary. Without it, etcd is left out, and that is said.
    #[arg(long)]
    etcd: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Peer {
    Slatedb,
    Grpc,
}

/// One measurement of somebody.
#[derive(Clone, Debug)]
struct Figure {
    who: &'static str,
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Of this process: etcd's own is not in it.
    cpu_us: f64,
    failures: u64,
}

impl Figure {
    #[allow(clippy::cast_precision_loss)]
    fn of(who: &'static str, measured: &Measured) -> Self {
        let ms = |quantile| measured.latency.value_at_quantile(quantile) as f64 / 1_000.0;
        Self {
            who,
            per_second: measured.rate(),
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            cpu_us: measured.cpu_us(),
            failures: measured.failures,
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("headwater-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), BoxError> {
    for &callers in &arguments.callers {
        let plan = Plan {
            callers: callers.max(1),
            per_second: None,
            time: Duration::from_secs(arguments.seconds.max(1)),
            write: Duration::from_millis(arguments.write_ms),
            read: Duration::from_millis(arguments.read_ms),
            value_bytes: arguments.value_bytes,
            is_grpc: matches!(arguments.peer, Peer::Grpc),
            writers: 1,
            replicas: 1,
            state_mib: 1,
            changes: 1,
        };
        let mut rounds = Vec::new();
        for round in 0..arguments.rounds.max(1) {
            let figures = one_round(arguments, plan).await?;
            print(callers, Some(round), &figures);
            rounds.push(figures);
        }
        print(callers, None, &medians(&rounds));
    }
    Ok(())
}

async fn one_round(arguments: &Arguments, plan: Plan) -> Result<Vec<Figure>, BoxError> {
    let mut figures = vec![Figure::of("headwater", &headwater(plan).await?)];
    match arguments.peer {
        Peer::Slatedb => figures.push(Figure::of("slatedb", &slate::measure(plan).await?)),
        Peer::Grpc => {
            figures.push(Figure::of("echo", &echo::measure(plan).await?));
            match &arguments.etcd {
                Some(binary) => {
                    figures.push(Figure::of("etcd", &etcd::measure(binary, plan).await?));
                }
                None => eprintln!("headwater-peers: no etcd binary was given; it is left out"),
            }
        }
    }
    Ok(figures)
}

async fn headwater(plan: Plan) -> Result<Measured, BoxError> {
    let system = System::start(plan).await?;
    let putter = system.putter(plan.value_bytes);
    let call = move |caller, n| {
        let putter = putter.clone();
        async move { putter.put(caller, n).await }
    };
    let measured = load::run(plan.callers, plan.time, call, || ()).await;
    system.stop().await;
    Ok(measured)
}

/// The first one as a multiple of each other one.
fn print(callers: usize, round: Option<usize>, figures: &[Figure]) {
    let Some((ours, peers)) = figures.split_first() else { return };
    let shown: Vec<_> = figures
        .iter()
        .map(|it| {
            json!({
                "who": it.who,
                "perSecond": it.per_second,
                "p50Ms": it.p50_ms,
                "p99Ms": it.p99_ms,
                "cpuUsPerCall": it.cpu_us,
                "failures": it.failures,
            })
        })
        .collect();
    let ratios: serde_json::Map<_, _> = peers
        .iter()
        .map(|it| {
            let ratio = json!({
                "perSecond": ours.per_second / it.per_second,
                "p50": ours.p50_ms / it.p50_ms,
                "p99": ours.p99_ms / it.p99_ms,
            });
            (format!("to_{}", it.who), ratio)
        })
        .collect();
    let which = round.map_or(json!("median"), |it| json!(it));
    println!(
        "{}",
        json!({ "callers": callers, "round": which, "figures": shown, "ratios": ratios })
    );
}

fn medians(rounds: &[Vec<Figure>]) -> Vec<Figure> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let median = |at: usize, of: fn(&Figure) -> f64| {
        let mut all: Vec<_> = rounds.iter().map(|it| of(&it[at])).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    (0..first.len())
        .map(|at| Figure {
            who: first[at].who,
            per_second: median(at, |it| it.per_second),
            p50_ms: median(at, |it| it.p50_ms),
            p99_ms: median(at, |it| it.p99_ms),
            cpu_us: median(at, |it| it.cpu_us),
            failures: rounds.iter().map(|it| it[at].failures).sum(),
        })
        .collect()
}
