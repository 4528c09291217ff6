//! The tables of docs/cost.md.

use headwater_daemon::prices::{GB, Prices};
use headwater_replica::ReplicaConfig;
use headwater_writer::WriterConfig;

use super::bill::{Bill, MONTH_SECONDS, dollars};
use super::model::Load;

/// A GiB of state, values of 1 KiB, push on, settings as they are by default.
fn usual(prices: &Prices, operations_per_second: f64, replicas: f64) -> Load {
    let seconds = |ms: u64| std::time::Duration::from_millis(ms).as_secs_f64();
    Load {
        operations_per_second,
        value_bytes: 1_024.0,
        is_service_kept: false,
        replicas,
        strong_reads_per_second: 0.0,
        is_pushed: true,
        state_bytes: GB,
        write_seconds: seconds(prices.write_ms),
        read_seconds: seconds(prices.read_ms),
        head_interval_seconds: seconds(prices.head_interval_ms),
        writer: WriterConfig::default(),
        replica: ReplicaConfig::default(),
    }
}

fn month(load: &Load, prices: &Prices) -> String {
    let parts = load.parts();
    let usage = parts.commits.plus(parts.upkeep).plus(parts.replicas).times(MONTH_SECONDS);
    dollars(Bill::of(&usage, load.state_bytes, prices).total())
}

fn row(cells: impl IntoIterator<Item = String>) -> String {
    format!("| {} |", cells.into_iter().collect::<Vec<_>>().join(" | "))
}

fn table(first: &str, columns: &[String], rows: Vec<(String, Vec<String>)>) -> String {
    let mut lines = vec![row(std::iter::once(first.to_owned()).chain(columns.iter().cloned()))];
    lines.push(row(std::iter::repeat_n("---".to_owned(), columns.len() + 1)));
    lines.extend(rows.into_iter().map(|(name, cells)| row(std::iter::once(name).chain(cells))));
    lines.join("\n")
}

/// Everything between the marks of the page.
pub(super) fn tables(all: &[Prices]) -> String {
    let names: Vec<_> = all.iter().map(|it| it.name.clone()).collect();
    let mut parts = vec![loads(all, &names)];
    parts.push(settings(all, &names));
    parts.push(prices(all));
    parts.join("\n\n")
}

fn loads(all: &[Prices], names: &[String]) -> String {
    let mut rows = Vec::new();
    for operations in [0.0, 10.0, 1_000.0, 10_000.0] {
        for replicas in [1.0, 10.0, 100.0] {
            let name = match operations {
                0.0 => format!("idle, {replicas} replicas"),
                _ => format!("{operations} a second, {replicas} replicas"),
            };
            let cells = all.iter().map(|it| month(&usual(it, operations, replicas), it));
            rows.push((name.replace("1 replicas", "1 replica"), cells.collect()));
        }
    }
    format!("### By load\n\n{}", table("operations", names, rows))
}

fn settings(all: &[Prices], names: &[String]) -> String {
    type Change = (&'static str, fn(&mut Load));
    let changes: [Change; 12] = [
        ("as it is", |_| ()),
        ("no push", |it| it.is_pushed = false),
        ("no push, poll every 5 s", |it| {
            it.is_pushed = false;
            it.replica.poll_ms = 5_000;
        }),
        ("no push, poll every 100 ms", |it| {
            it.is_pushed = false;
            it.replica.poll_ms = 100;
        }),
        ("10 strong reads a second of each replica", |it| it.strong_reads_per_second = 10.0),
        ("1,000 strong reads a second of each replica", |it| it.strong_reads_per_second = 1_000.0),
        ("service-kept operations", |it| it.is_service_kept = true),
        ("`--writer-compact-tail-versions 1024`", |it| it.writer.compact_tail_versions = 1_024),
        ("`--writer-compact-tail-versions 16384`", |it| it.writer.compact_tail_versions = 16_384),
        ("`--writer-head-soft-bytes 262144`", |it| it.writer.head_soft_bytes = 256 << 10),
        ("`--writer-fold-changes 32`", |it| it.writer.fold_changes = 32),
        ("`--writer-inline-bytes-max 16384`", |it| it.writer.inline_bytes_max = 16_384),
    ];
    let rows = changes.map(|(name, change)| {
        let cells = all.iter().map(|prices| {
            let mut load = usual(prices, 10.0, 10.0);
            change(&mut load);
            month(&load, prices)
        });
        (name.to_owned(), cells.collect())
    });
    let text = table("10 operations a second, 10 replicas", names, rows.into());
    format!("### What settings move\n\n{text}")
}

fn prices(all: &[Prices]) -> String {
    let columns = [
        "region",
        "1,000 PUT",
        "1,000 GET",
        "GB month",
        "GB up",
        "GB down",
        "write, read",
        "prices of",
    ];
    let columns = columns.map(str::to_owned);
    let rows = all.iter().map(|it| {
        let cells = vec![
            it.region.clone(),
            format!("${}", it.put_per1000),
            format!("${}", it.get_per1000),
            format!("${}", it.stored_gb_month),
            format!("${}", it.up_gb),
            format!("${}", it.down_gb),
            format!("{} ms, {} ms", it.write_ms, it.read_ms),
            format!("{}, <{}>", it.as_of, it.source.split(' ').next().unwrap_or_default()),
        ];
        (it.name.clone(), cells)
    });
    format!("### Prices\n\n{}", table("store", &columns, rows.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_daemon::prices::tables as price_tables;

    #[test]
    fn the_page_is_what_the_model_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cost.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (_, rest) = page.split_once("<!-- headwater cost --page -->\n").unwrap();
        let (shown, _) = rest.split_once("\n<!-- end -->").unwrap();
        let expected = tables(&price_tables(None).unwrap());
        assert_eq!(shown.trim(), expected, "run `headwater cost --page`, and put it there");
    }
}
