//! `cost`: what a history costs in a month, from a described load or from what a
//! running process has asked of its store.
//!
//! ```text
//! flags ----> model::Load ----+
//!                             +--> Usage --> bill::Bill --> text, JSON
//! process --> its counters ---+               prices
//! ```

mod bill;
mod model;
mod page;

use std::path::{Path, PathBuf};

use clap::Args;
use headwater_client::{Client, StoreUsage};
use headwater_daemon::prices::{self, GB, Prices, PricesError};
use headwater_daemon::telemetry::with_causes;
use headwater_replica::ReplicaConfig;
use headwater_writer::WriterConfig;
use serde_json::{Value, json};

use self::bill::{Bill, MONTH_SECONDS, dollars};
use self::model::{Load, Usage};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::Output;

/// `cost`
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct CostArgs {
    /// The store: s3-standard, s3-express, gcs-standard, azure-hot, or a name of
    /// the file of --prices. May be given several times. Default: all of them.
    #[arg(long = "price-of", value_name = "NAME")]
    pub stores: Vec<String>,
    /// A file with prices, instead of those that come along. `--show-prices`
    /// prints them in its form.
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Print the prices and nothing else.
    #[arg(long, exclusive = true)]
    pub show_prices: bool,
    /// Print the tables of docs/cost.md.
    #[arg(long, exclusive = true, hide = true)]
    pub page: bool,
    /// Ask the process at --writer what it has asked of its store since it
    /// began. What replicas elsewhere ask, they have to be asked for.
    #[arg(long, conflicts_with_all = ["operations", "value_bytes", "replica_count"])]
    pub from_process: bool,
    /// Operations a second, on average.
    #[arg(long = "operations", value_name = "PER_SECOND", default_value_t = 10.0)]
    pub operations: f64,
    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 1_024)]
    pub value_bytes: u32,
    /// Operations are service-kept: each leaves a request record.
    #[arg(long)]
    pub service_kept: bool,
    /// Replicas that follow the history, the one in `serve` included.
    #[arg(long = "replicas", value_name = "COUNT", default_value_t = 1)]
    pub replica_count: u32,
    /// Strong reads a second of each replica.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 0.0)]
    pub strong_reads: f64,
    /// Replicas are not told of new heads by the writer.
    #[arg(long)]
    pub no_push: bool,
    /// Keys and values of the history, in GiB.
    #[arg(long, value_name = "GIB", default_value_t = 1.0)]
    pub state_gib: f64,
    /// What a write takes in the store, in milliseconds. Default: as a rule.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub write_ms: Option<u64>,
    /// What a read takes in the store, in milliseconds. Default: as a rule.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub read_ms: Option<u64>,
    /// The writer's settings.
    #[command(flatten, next_help_heading = "Writer")]
    pub writer: WriterConfig,
    /// How often a replica checks by itself, in milliseconds; 0 for never.
    #[arg(long, value_name = "MS", default_value_t = ReplicaConfig::default().poll_ms)]
    pub poll_ms: u64,
}

pub(crate) async fn cost(
    client: &Client,
    args: &CostArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let all = tables(args.prices.as_deref())?;
    if args.show_prices {
        output.line(prices::BUILT_IN.trim_end())?;
        return Ok(Exit::Done);
    }
    if args.page {
        output.line(&page::tables(&all))?;
        return Ok(Exit::Done);
    }
    check(args)?;
    let chosen = choose(&all, &args.stores)?;
    if args.from_process {
        let usage = client.store_usage().await?;
        return from_process(&usage, &chosen, output);
    }
    for prices in chosen {
        let load = load_of(args, prices);
        let parts = load.parts();
        let named =
            [("commits", parts.commits), ("upkeep", parts.upkeep), ("replicas", parts.replicas)];
        let stored_bytes = load.state_bytes;
        answer(prices, &named, MONTH_SECONDS, stored_bytes, output)?;
    }
    Ok(Exit::Done)
}

fn tables(file: Option<&Path>) -> Result<Vec<Prices>, Failed> {
    prices::tables(file).map_err(|error| match error {
        PricesError::File { path, source } => Failed::file("read", &path, &source),
        PricesError::Table { .. } | PricesError::Unknown { .. } => {
            Failed::usage(with_causes(&error))
        }
    })
}

fn check(args: &CostArgs) -> Result<(), Failed> {
    let numbers = [
        ("--operations", args.operations, 1e6),
        ("--strong-reads", args.strong_reads, 1e6),
        ("--state-gib", args.state_gib, 1e6),
    ];
    for (flag, value, max) in numbers {
        if !(0.0..=max).contains(&value) {
            return Err(Failed::usage(format!("{flag} is {value}, it must be 0 to {max}")));
        }
    }
    args.writer.validate().map_err(|error| Failed::usage(error.to_string()))
}

fn choose<'a>(all: &'a [Prices], names: &[String]) -> Result<Vec<&'a Prices>, Failed> {
    if names.is_empty() {
        return Ok(all.iter().collect());
    }
    let known = || all.iter().map(|it| &*it.name).collect::<Vec<_>>().join(", ");
    names
        .iter()
        .map(|name| {
            let found = all.iter().find(|it| it.name == *name);
            found.ok_or_else(|| {
                Failed::usage(format!("there are no prices of `{name}`: there are {}", known()))
            })
        })
        .collect()
}

fn load_of(args: &CostArgs, prices: &Prices) -> Load {
    let seconds = |ms: u64| std::time::Duration::from_millis(ms).as_secs_f64();
    Load {
        operations_per_second: args.operations,
        value_bytes: args.value_bytes.into(),
        is_service_kept: args.service_kept,
        replicas: args.replica_count.into(),
        strong_reads_per_second: args.strong_reads,
        is_pushed: !args.no_push,
        state_bytes: args.state_gib * GB,
        write_seconds: seconds(args.write_ms.unwrap_or(prices.write_ms)),
        read_seconds: seconds(args.read_ms.unwrap_or(prices.read_ms)),
        head_interval_seconds: seconds(prices.head_interval_ms),
        writer: args.writer.clone(),
        replica: ReplicaConfig { poll_ms: args.poll_ms, ..ReplicaConfig::default() },
    }
}

/// What the process would cost if it went on as it did.
fn from_process(
    usage: &StoreUsage,
    chosen: &[&Prices],
    output: &mut Output,
) -> Result<Exit, Failed> {
    let seconds = usage.counted_for.as_secs_f64();
    if seconds < 1.0 {
        let message = "the process has counted for less than a second";
        return Err(Failed::new(Exit::Unavailable, message).advise("ask again later"));
    }
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let counted = Usage {
        puts: usage.puts as f64,
        gets: usage.gets as f64,
        deletes: usage.deletes as f64,
        up_bytes: usage.bytes_up as f64,
        down_bytes: usage.bytes_down as f64,
    };
    for prices in chosen {
        let a_second = counted.times(1.0 / seconds);
        answer(prices, &[("process", a_second)], MONTH_SECONDS, 0.0, output)?;
    }
    Ok(Exit::Done)
}

/// Prints one store's month: `parts` are what is asked a second.
fn answer(
    prices: &Prices,
    parts: &[(&str, Usage)],
    seconds: f64,
    stored_bytes: f64,
    output: &mut Output,
) -> Result<(), Failed> {
    let bills: Vec<_> = parts
        .iter()
        .map(|(name, usage)| {
            let month = usage.times(seconds);
            (*name, month, Bill::of(&month, 0.0, prices))
        })
        .collect();
    let all = parts.iter().fold(Usage::default(), |sum, (_, it)| sum.plus(*it)).times(seconds);
    let whole = Bill::of(&all, stored_bytes, prices);
    output.answer(
        || {
            let parts: serde_json::Map<String, Value> = bills
                .iter()
                .map(|(name, month, bill)| {
                    let value = json!({ "usage": usage_json(month), "dollars": bill.to_json() });
                    ((*name).to_owned(), value)
                })
                .collect();
            json!({
                "store": prices.name,
                "region": prices.region,
                "pricesOf": prices.as_of,
                "parts": parts,
                "usage": usage_json(&all),
                "dollarsPerMonth": whole.to_json(),
            })
        },
        || {
            let mut lines = vec![format!(
                "{} in {}, prices of {}: {} a month",
                prices.name,
                prices.region,
                prices.as_of,
                dollars(whole.total())
            )];
            for (name, month, bill) in &bills {
                lines.push(format!(
                    "  {name:<9} {:>9}  {} PUT, {} GET",
                    dollars(bill.total()),
                    requests(month.puts),
                    requests(month.gets)
                ));
            }
            if 0.0 < stored_bytes {
                lines.push(format!("  {:<9} {:>9}", "stored", dollars(whole.stored)));
            }
            lines.join("\n")
        },
    )
}

fn usage_json(usage: &Usage) -> Value {
    json!({
        "puts": usage.puts.round(),
        "gets": usage.gets.round(),
        "deletes": usage.deletes.round(),
        "bytesUp": usage.up_bytes.round(),
        "bytesDown": usage.down_bytes.round(),
    })
}

/// A number of requests for people.
fn requests(count: f64) -> String {
    match count {
        it if it < 10_000.0 => format!("{it:.0}"),
        it if it < 1_000_000.0 => format!("{:.0} thousand", it / 1e3),
        it if it < 10_000_000.0 => format!("{:.1} million", it / 1e6),
        it => format!("{:.0} million", it / 1e6),
    }
}
