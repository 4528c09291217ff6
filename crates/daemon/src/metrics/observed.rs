//! Figures that exist anyway, read whenever somebody looks; and what writers and
//! replicas measure alike, declared once.

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use super::Label as _;
use crate::label;

/// A gauge over something that is there.
#[derive(Debug)]
pub struct Gauge<T> {
    /// Its name.
    pub name: &'static str,
    /// Its unit, by the semantic conventions: `{history}`, `By`.
    pub unit: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Reads it.
    pub read: fn(&T) -> u64,
}

/// Measures `of` for as long as it is there.
pub fn gauges<T: Send + Sync + 'static>(
    meter: &Meter,
    of: &Arc<T>,
    gauges: impl IntoIterator<Item = Gauge<T>>,
) {
    for Gauge { name, unit, about, read } in gauges {
        let of = Arc::downgrade(of);
        let _kept_by_the_meter = meter
            .u64_observable_gauge(name)
            .with_unit(unit)
            .with_description(about)
            .with_callback(move |observer| {
                if let Some(of) = of.upgrade() {
                    observer.observe(read(&of), &[]);
                }
            })
            .build();
    }
}

label! {
    /// Which part of a process has measured what both have.
    pub enum Part: "part" {
        /// The writer.
        Writer = "writer",
        /// The replica.
        Replica = "replica",
    }
}

/// Counts how often `part` had to open a history from an older snapshot.
pub fn snapshot_fallbacks<T: Send + Sync + 'static>(
    meter: &Meter,
    part: Part,
    of: &Arc<T>,
    read: fn(&T) -> u64,
) {
    let (of, label) = (Arc::downgrade(of), [KeyValue::new(Part::NAME, part.as_str())]);
    let _kept_by_the_meter = meter
        .u64_observable_counter("headwater.snapshot.fallbacks")
        .with_unit("{fallback}")
        .with_description("Histories opened from an older snapshot because the head's is lost.")
        .with_callback(move |observer| {
            if let Some(of) = of.upgrade() {
                observer.observe(read(&of), &label);
            }
        })
        .build();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry_sdk::metrics::SdkMeterProvider;
    use prometheus::{Registry, TextEncoder};

    use super::*;

    #[test]
    fn writer_and_replica_of_one_process_count_beside_each_other() {
        let registry = Registry::new();
        let reader =
            opentelemetry_prometheus::exporter().with_registry(registry.clone()).build().unwrap();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        let meter = provider.meter("test");
        let counts = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
        let read: fn(&AtomicU64) -> u64 = |it| it.load(Ordering::Relaxed);
        for (part, count) in [Part::Writer, Part::Replica].into_iter().zip(&counts) {
            snapshot_fallbacks(&meter, part, count, read);
        }
        let text = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let has = |text: &str, part: &str, count: u64| {
            text.lines().any(|it| {
                it.starts_with("headwater_snapshot_fallbacks_total{")
                    && it.contains(&format!("part=\"{part}\""))
                    && it.ends_with(&format!(" {count}"))
            })
        };
        let before = text();
        assert!(has(&before, "writer", 0) && has(&before, "replica", 0), "{before}");

        counts[0].fetch_add(2, Ordering::Relaxed);
        let [_, replica] = counts;
        drop(replica);
        let after = text();
        assert!(has(&after, "writer", 2), "{after}");
    }
}
