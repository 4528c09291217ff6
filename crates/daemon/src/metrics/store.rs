//! What the process asks of its store: counted below repeats, where every call
//! is one that the bucket sees.

use std::sync::Arc;
use std::time::Duration;

use headwater_store::{Call, CallWatcher, Meter as StoreMeter, Outcome};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};

use super::seconds;
use crate::prices::Prices;

/// Times of calls, by operation.
#[derive(Debug)]
struct CallTimes {
    histogram: Histogram<f64>,
    labels: Vec<[KeyValue; 1]>,
}

impl CallWatcher for CallTimes {
    fn ended(&self, call: Call, _outcome: Outcome, took: Duration) {
        self.histogram.record(took.as_secs_f64(), &self.labels[call as usize]);
    }
}

/// Measures the calls of `store`, and what they cost by `prices`. Once for each
/// meter of a store.
pub fn measure(meter: &Meter, store: &Arc<StoreMeter>, prices: Option<Prices>) {
    let histogram = seconds(
        meter,
        "headwater.store.call.duration",
        "Time of one request to the object store, below repeats.",
    );
    let labels = Call::ALL.map(|it| [KeyValue::new("operation", it.as_str())]).to_vec();
    store.watch_with(Arc::new(CallTimes { histogram, labels }));
    count_calls(meter, store);
    count_bytes(meter, store);
    count_requests(meter, store);
    if let Some(prices) = prices {
        estimate(meter, store, prices);
    }
}

fn count_calls(meter: &Meter, store: &Arc<StoreMeter>) {
    let labels: Vec<_> = Call::ALL
        .iter()
        .flat_map(|call| Outcome::ALL.iter().map(|outcome| (*call, *outcome)))
        .map(|(call, outcome)| {
            let labels = [
                KeyValue::new("operation", call.as_str()),
                KeyValue::new("outcome", outcome.as_str()),
            ];
            (call, outcome, labels)
        })
        .collect();
    let store = Arc::clone(store);
    let _kept_by_the_meter = meter
        .u64_observable_counter("headwater.store.calls")
        .with_unit("{call}")
        .with_description("Requests to the object store that ended, below repeats.")
        .with_callback(move |observer| {
            let readings = store.read();
            for (call, outcome, labels) in &labels {
                observer.observe(readings.count(*call, *outcome), labels);
            }
        })
        .build();
}

fn count_bytes(meter: &Meter, store: &Arc<StoreMeter>) {
    let labels = ["transmit", "receive"].map(|it| [KeyValue::new("direction", it)]);
    let store = Arc::clone(store);
    let _kept_by_the_meter = meter
        .u64_observable_counter("headwater.store.io")
        .with_unit("By")
        .with_description("Bytes of objects and heads sent to the store and received from it.")
        .with_callback(move |observer| {
            let readings = store.read();
            observer.observe(readings.bytes_up(), &labels[0]);
            observer.observe(readings.bytes_down(), &labels[1]);
        })
        .build();
}

fn count_requests(meter: &Meter, store: &Arc<StoreMeter>) {
    let labels = ["put", "get", "delete"].map(|it| [KeyValue::new("class", it)]);
    let store = Arc::clone(store);
    let _kept_by_the_meter = meter
        .u64_observable_counter("headwater.store.requests")
        .with_unit("{request}")
        .with_description("Requests by the class of price lists. put: PUT, COPY, POST and LIST.")
        .with_callback(move |observer| {
            let requests = store.read().requests();
            observer.observe(requests.puts, &labels[0]);
            observer.observe(requests.gets, &labels[1]);
            observer.observe(requests.deletes, &labels[2]);
        })
        .build();
}

fn estimate(meter: &Meter, store: &Arc<StoreMeter>, prices: Prices) {
    let labels = [
        KeyValue::new("prices", prices.name.clone()),
        KeyValue::new("prices_as_of", prices.as_of.clone()),
    ];
    let store = Arc::clone(store);
    let _kept_by_the_meter = meter
        .f64_observable_counter("headwater.store.cost")
        .with_unit("{USD}")
        .with_description(
            "What the requests and bytes so far cost by a price list, in US dollars; storage is \
             not in it. An estimate.",
        )
        .with_callback(move |observer| observer.observe(prices.cost(&store.read()), &labels))
        .build();
}
