//! What is measured, and under which names.
//!
//! Whoever is measured is handed a [`Meter`] and makes its instruments from it;
//! nothing is global, so that a simulator and tests can have many writers and
//! replicas in one process, each with its own figures or with none ([`none`]).
//!
//! In here: counters and histograms whose label is an enum, and what a server
//! measures of itself: [`rpc`], [`store`], [`process`], [`credentials`]; figures that are read when
//! somebody looks, and what writers and replicas measure alike ([`observed`]).
//! What only one of them measures is in its crate.
//!
//! # Invariants
//!
//! - A label has few values, known beforehand: never an operation id, a key or a
//!   caller. The name of a history is one only where an operator has asked for
//!   it, and up to a number of them.
//! - A counter is there from the start, at zero, with each value of its label:
//!   the first failure is an increase, which an alert can see.

pub mod credentials;
pub mod observed;
pub mod process;
pub mod rpc;
pub mod store;

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, MeterProvider as _, NoopMeterProvider};

/// Bounds of times in seconds: from what memory takes to what a store in
/// trouble does.
pub const SECONDS: [f64; 15] =
    [0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// Bounds of numbers of things.
pub const NUMBERS: [f64; 14] =
    [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 4_096.0];

/// The name under which everything of ours is measured.
pub const SCOPE: &str = "headwater";

/// Measures nothing.
pub fn none() -> Meter {
    NoopMeterProvider::new().meter(SCOPE)
}

/// A label of a metric, as an enum.
pub trait Label: Copy + 'static {
    /// Its name.
    const NAME: &'static str;
    /// Its values, in the order of their numbers.
    const ALL: &'static [Self];
    /// The word.
    fn as_str(self) -> &'static str;
    /// Its place in [`Label::ALL`].
    fn index(self) -> usize;
}

/// Makes an enum a [`Label`]: `label! { enum Kind: "kind" { Fold = "fold", } }`.
#[macro_export]
macro_rules! label {
    ($(#[$about:meta])* $visibility:vis enum $type:ident: $name:literal {
        $($(#[$what:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $type {
            $($(#[$what])* $variant,)+
        }

        impl $crate::metrics::Label for $type {
            const NAME: &'static str = $name;
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

fn labels<L: Label>() -> Vec<[KeyValue; 1]> {
    L::ALL.iter().map(|it| [KeyValue::new(L::NAME, it.as_str())]).collect()
}

/// A counter with a label.
#[derive(Clone, Debug)]
pub struct Counts<L> {
    counter: Counter<u64>,
    labels: Vec<[KeyValue; 1]>,
    label: std::marker::PhantomData<L>,
}

impl<L: Label> Counts<L> {
    /// A counter, at zero for each value of the label. `unit` is one of the
    /// semantic conventions: `{publication}`, `By`.
    pub fn new(meter: &Meter, name: &'static str, unit: &'static str, about: &'static str) -> Self {
        let counter = meter.u64_counter(name).with_unit(unit).with_description(about).build();
        let labels = labels::<L>();
        for label in &labels {
            counter.add(0, label);
        }
        Self { counter, labels, label: std::marker::PhantomData }
    }

    /// Counts one.
    pub fn add(&self, label: L) {
        self.add_many(label, 1);
    }

    /// Counts some.
    pub fn add_many(&self, label: L, count: u64) {
        self.counter.add(count, &self.labels[label.index()]);
    }
}

/// A histogram of times with a label.
#[derive(Clone, Debug)]
pub struct Times<L> {
    histogram: Histogram<f64>,
    labels: Vec<[KeyValue; 1]>,
    label: std::marker::PhantomData<L>,
}

impl<L: Label> Times<L> {
    /// A histogram of seconds.
    pub fn new(meter: &Meter, name: &'static str, about: &'static str) -> Self {
        let (histogram, labels) = (seconds(meter, name, about), labels::<L>());
        Self { histogram, labels, label: std::marker::PhantomData }
    }

    /// Takes a time in.
    pub fn record(&self, label: L, took: Duration) {
        self.histogram.record(took.as_secs_f64(), &self.labels[label.index()]);
    }
}

/// A counter without a label, at zero.
pub fn count(
    meter: &Meter,
    name: &'static str,
    unit: &'static str,
    about: &'static str,
) -> Counter<u64> {
    let counter = meter.u64_counter(name).with_unit(unit).with_description(about).build();
    counter.add(0, &[]);
    counter
}

/// A histogram of seconds.
pub fn seconds(meter: &Meter, name: &'static str, about: &'static str) -> Histogram<f64> {
    let bounds = SECONDS.to_vec();
    let builder = meter.f64_histogram(name).with_unit("s").with_description(about);
    builder.with_boundaries(bounds).build()
}

/// A histogram of numbers of things.
pub fn numbers(
    meter: &Meter,
    name: &'static str,
    unit: &'static str,
    about: &'static str,
) -> Histogram<u64> {
    let builder = meter.u64_histogram(name).with_unit(unit).with_description(about);
    builder.with_boundaries(NUMBERS.to_vec()).build()
}
