//! One line a measurement.

use std::collections::BTreeMap;

use headwater_store::{Call, Readings};
use serde::Serialize;

use crate::Plan;
use crate::load::Measured;

/// A measurement, as printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    scenario: &'static str,
    callers: usize,
    is_grpc: bool,
    store_write_ms: f64,
    store_read_ms: f64,
    /// What one call of the kind that the scenario cannot do without took, by
    /// itself, in this run.
    store_measured_ms: f64,
    value_bytes: usize,
    seconds: f64,
    calls: u64,
    failures: u64,
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// p50 as a multiple of `store_measured_ms`.
    p50_ratio: f64,
    /// Of the whole process, callers and store included.
    cpu_us_per_call: f64,
    puts_per_call: f64,
    gets_per_call: f64,
    bytes_up_per_call: f64,
    bytes_down_per_call: f64,
    /// Figures that only this scenario has.
    #[serde(flatten)]
    more: BTreeMap<&'static str, f64>,
}

impl Line {
    /// With one figure more.
    #[must_use]
    pub fn with(mut self, name: &'static str, figure: f64) -> Self {
        self.more.insert(name, figure);
        self
    }
}

/// Puts a line together. `floor_ms` is what one call of the store took.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn line(
    scenario: &'static str,
    plan: Plan,
    floor_ms: f64,
    measured: &Measured,
    store: &Readings,
) -> Line {
    let calls = measured.calls.max(1) as f64;
    let ms = |quantile| measured.latency.value_at_quantile(quantile) as f64 / 1_000.0;
    let puts = [Call::Put, Call::CreateHead, Call::ReplaceHead];
    let gets = [Call::Get, Call::ReadHead];
    let count = |of: &[Call]| of.iter().map(|it| store.calls(*it)).sum::<u64>() as f64;
    Line {
        scenario,
        callers: plan.callers,
        is_grpc: plan.is_grpc,
        store_write_ms: plan.write.as_secs_f64() * 1_000.0,
        store_read_ms: plan.read.as_secs_f64() * 1_000.0,
        store_measured_ms: floor_ms,
        value_bytes: plan.value_bytes,
        seconds: measured.time.as_secs_f64(),
        calls: measured.calls,
        failures: measured.failures,
        per_second: measured.rate(),
        p50_ms: ms(0.5),
        p99_ms: ms(0.99),
        max_ms: measured.latency.max() as f64 / 1_000.0,
        p50_ratio: ms(0.5) / floor_ms,
        cpu_us_per_call: measured.cpu_us(),
        puts_per_call: count(&puts) / calls,
        gets_per_call: count(&gets) / calls,
        bytes_up_per_call: store.bytes_up() as f64 / calls,
        bytes_down_per_call: store.bytes_down() as f64 / calls,
        more: BTreeMap::new(),
    }
}

/// The first line of the table on standard error.
pub fn header() {
    eprintln!(
        "{:<16} {:>7} {:>11} {:>9} {:>9} {:>6} {:>8} {:>9} {:>9} {:>9}",
        "scenario",
        "callers",
        "calls/s",
        "p50 ms",
        "p99 ms",
        "ratio",
        "cpu µs",
        "puts/call",
        "gets/call",
        "up B/call"
    );
}

/// One line of JSON, and one of the table.
pub fn print(line: &Line, is_json_only: bool) {
    if !is_json_only {
        eprintln!(
            "{:<16} {:>7} {:>11.0} {:>9.2} {:>9.2} {:>6.2} {:>8.1} {:>9.4} {:>9.4} {:>9.0}",
            line.scenario,
            line.callers,
            line.per_second,
            line.p50_ms,
            line.p99_ms,
            line.p50_ratio,
            line.cpu_us_per_call,
            line.puts_per_call,
            line.gets_per_call,
            line.bytes_up_per_call
        );
        for (name, figure) in &line.more {
            eprintln!("  {name} {figure:.4}");
        }
    }
    match serde_json::to_string(line) {
        Ok(text) => println!("{text}"),
        Err(error) => eprintln!("headwater-bench: a line could not be written: {error}"),
    }
}
