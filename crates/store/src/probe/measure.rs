//! How long calls take, and how often a head can be replaced. Nothing here is
//! judged.

use std::time::Duration;

use bytes::Bytes;
use headwater_core::id::Tag;
use tokio::time::Instant;

use super::Probe;
use super::report::{Latency, Rate};
use crate::{HeadRead, HeadWrite, NoAnswerKind, Store};

/// What was measured.
pub(super) struct Measures {
    pub(super) latencies: Vec<Latency>,
    pub(super) replacements: Option<Rate>,
}

/// The size of a change entry that is uploaded, about.
const OBJECT_LEN_BYTES: usize = 16 << 10;

/// The size of a head with a few inline changes.
const HEAD_LEN_BYTES: usize = 4 << 10;

/// Most replacements in a row.
const REPLACEMENTS_MAX: usize = 10_000;

/// Times of one kind of call.
struct Samples {
    call: &'static str,
    times: Vec<Duration>,
    n_failed: usize,
}

impl Samples {
    fn new(call: &'static str) -> Self {
        Self { call, times: Vec::new(), n_failed: 0 }
    }

    async fn take<T>(&mut self, call: impl Future<Output = T>, is_done: fn(&T) -> bool) -> T {
        let began = Instant::now();
        let answer = call.await;
        if is_done(&answer) {
            self.times.push(began.elapsed());
        } else {
            self.n_failed += 1;
        }
        answer
    }

    fn latency(mut self) -> Option<Latency> {
        self.times.sort_unstable();
        // The smallest that so many in a hundred do not exceed.
        let rank = |percent: usize| (self.times.len() * percent).div_ceil(100).max(1) - 1;
        let (p50, p99) = (self.times.get(rank(50))?, self.times.get(rank(99))?);
        Some(Latency {
            call: self.call,
            n_samples: self.times.len(),
            p50: *p50,
            p99: *p99,
            n_failed: self.n_failed,
        })
    }
}

fn is_replaced(answer: &HeadWrite) -> bool {
    matches!(answer, HeadWrite::Replaced { .. })
}

pub(super) async fn run(probe: &Probe) -> Measures {
    let samples = objects(probe).await.into_iter().chain(heads(probe).await);
    let latencies = samples.filter_map(Samples::latency).collect();
    Measures { latencies, replacements: replacements(probe).await }
}

async fn objects(probe: &Probe) -> [Samples; 4] {
    let (mut put, mut get) = (Samples::new("put 16 KiB"), Samples::new("get 16 KiB"));
    let (mut list, mut delete) = (Samples::new("list"), Samples::new("delete"));
    let bytes = Bytes::from(vec![b'x'; OBJECT_LEN_BYTES]);
    let store = &*probe.one;
    let began = Instant::now();
    for i in 0..probe.config.n_samples {
        if probe.config.measure_max.saturating_mul(4) < began.elapsed() {
            break;
        }
        let key = probe.key(&format!("measure/object-{i}"));
        if put.take(store.put(&key, bytes.clone()), Result::is_ok).await.is_err() {
            continue;
        }
        drop(get.take(store.get(&key), Result::is_ok).await);
        drop(list.take(store.list(&key, None, 10), Result::is_ok).await);
        drop(delete.take(store.delete(&key), Result::is_ok).await);
    }
    [put, get, list, delete]
}

async fn heads(probe: &Probe) -> [Samples; 4] {
    let (mut create, mut replace) =
        (Samples::new("create head"), Samples::new("replace head 4 KiB"));
    let (mut read, mut unchanged) =
        (Samples::new("read head 4 KiB"), Samples::new("read head, unchanged"));
    let store = &*probe.one;
    let began = Instant::now();
    for i in 0..probe.config.n_samples {
        if probe.config.measure_max.saturating_mul(4) < began.elapsed() {
            break;
        }
        // Heads of their own: a store may limit writes of one.
        let key = probe.key(&format!("measure/head-{i}/head.json"));
        let answer = create.take(store.create_head(&key, head(0)), is_replaced).await;
        let HeadWrite::Replaced { tag } = answer else { continue };
        let answer = replace.take(store.replace_head(&key, &tag, head(1)), is_replaced).await;
        let tag = if let HeadWrite::Replaced { tag } = answer { tag } else { tag };
        drop(read.take(store.read_head(&key, None), Result::is_ok).await);
        let is_unchanged = |it: &Result<HeadRead, _>| matches!(it, Ok(HeadRead::Unchanged));
        drop(unchanged.take(store.read_head(&key, Some(&tag)), is_unchanged).await);
    }
    [create, replace, read, unchanged]
}

fn head(number: usize) -> Bytes {
    format!("{number:0HEAD_LEN_BYTES$}").into()
}

/// Replaces one head, again and again.
async fn replacements(probe: &Probe) -> Option<Rate> {
    let store = &*probe.one;
    let key = probe.key("measure/rate/head.json");
    let HeadWrite::Replaced { mut tag } = store.create_head(&key, head(0)).await else {
        return None;
    };
    let (mut n_replaced, mut n_throttled) = (0, 0);
    let began = Instant::now();
    for number in 1..=REPLACEMENTS_MAX {
        if probe.config.measure_max < began.elapsed() {
            break;
        }
        match store.replace_head(&key, &tag, head(number)).await {
            HeadWrite::Replaced { tag: next } => {
                tag = next;
                n_replaced += 1;
            }
            HeadWrite::NoAnswer(it) => {
                n_throttled += usize::from(it.kind == NoAnswerKind::Throttled);
                tag = current(store, &key).await.unwrap_or(tag);
            }
            HeadWrite::Mismatch | HeadWrite::Gone => {
                tag = current(store, &key).await.unwrap_or(tag);
            }
        }
    }
    Some(Rate { n_replaced, n_throttled, elapsed: began.elapsed() })
}

async fn current(store: &dyn Store, key: &str) -> Option<Tag> {
    match store.read_head(key, None).await {
        Ok(HeadRead::Found { tag, .. }) => Some(tag),
        Ok(HeadRead::Missing | HeadRead::Unchanged) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let mut samples = Samples::new("x");
        assert_eq!(Samples::new("x").latency(), None);
        samples.times = (1..=200).rev().map(Duration::from_millis).collect();
        let latency = samples.latency().unwrap();
        assert_eq!(latency.p50, Duration::from_millis(100));
        assert_eq!(latency.p99, Duration::from_millis(198));
        let mut one = Samples::new("x");
        one.times = vec![Duration::from_millis(7)];
        assert_eq!(one.latency().unwrap().p99, Duration::from_millis(7));
    }
}
