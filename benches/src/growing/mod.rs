//! A history that grows: many operations, and what stays as it was.
//!
//! ```text
//! single commits ─▶ batches of many callers ─▶ single commits ─▶ sweep ─▶ verify
//!     first p50         every head looked at        last p50
//! ```
//!
//! Whatever does not stay within its bound is named, and the program fails.
//! Single commits at the end take turns with those of a history that is new:
//! what the machine does meanwhile slows both down.

mod figures;
mod watched;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::version::{Revision, StateVersion};
use headwater_store::{Clock, Entropy, Latency, Store};
use headwater_verify::{Options, Progress, Report, Verifier};
use headwater_writer::{SweepOptions, Writer, WriterConfig};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::figures::{Figures, Limits};
use self::watched::Watched;
use crate::load::Measured;
use crate::system::{BoxError, Putter};

/// Operations that one caller sends one after the other, at the start and at
/// the end.
const SINGLE_PART: u64 = 500;
/// What they are compared in: the history and a new one take turns.
const TURN: u64 = 10;
/// How often the objects are counted on the way.
const COUNTS: u64 = 100;
/// Objects listed at a time.
const LIST_PAGE: usize = 1_000;

/// `growing-head`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GrowingArgs {
    /// Operations accepted in all.
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Callers that send at the same time, so that operations form batches.
    #[arg(long, default_value_t = 256)]
    callers: u64,
    /// Keys that are written, again and again.
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 64)]
    value_bytes: usize,
    /// What a write takes in the store, in milliseconds.
    #[arg(long, default_value_t = 5)]
    write_ms: u64,
    /// What a read takes in the store, in milliseconds.
    #[arg(long, default_value_t = 2)]
    read_ms: u64,
    /// How many times the p50 of commits at the start that at the end may be.
    #[arg(long, default_value_t = 1.2)]
    ratio_max: f64,
    /// Objects that may be there at any moment. What is staged between two
    /// sweeps, some six seconds of 150 versions, and what stays: changes,
    /// segments, receipt pages and chunks.
    #[arg(long, default_value_t = 2_500)]
    objects_max: u64,
    /// Objects that may be left once it is swept.
    #[arg(long, default_value_t = 300)]
    swept_objects_max: u64,
}

/// Runs it, prints a line of JSON, and fails if something did not hold.
pub(crate) async fn run(args: &GrowingArgs) -> Result<(), BoxError> {
    let bench = Bench::new(args)?;
    let figures = bench.measure().await?;
    println!("{}", serde_json::to_string(&figures)?);
    if figures.violations.is_empty() { Ok(()) } else { Err(figures.violations.join("; ").into()) }
}

struct Bench<'a> {
    args: &'a GrowingArgs,
    memory: Arc<dyn Store>,
    watched: Arc<Watched>,
    writer: Writer,
    config: WriterConfig,
    old: HistoryName,
    young: HistoryName,
    entropy: Entropy,
}

/// One caller: what it has seen, and what its calls took.
struct Caller {
    putter: Putter,
    seen: StateVersion,
    keys: u64,
}

impl Caller {
    /// Puts the `n`-th key, as an operation of this name.
    async fn put(&mut self, label: &str, n: u64, measured: &mut Measured) {
        let key = format!("k/{:08}", n.wrapping_mul(0x9e37_79b9) % self.keys);
        let sent = Instant::now();
        let put = self.putter.put_since(self.seen, &format!("{label}-{n}"), key).await;
        measured.note(sent.elapsed(), put.is_ok());
        if let Ok(version) = put {
            self.seen = version;
        }
    }
}

/// Keeps and sweeps in seconds what is kept for hours otherwise.
fn config() -> WriterConfig {
    WriterConfig {
        retain_versions: 1_000,
        retain_age_ms: 0,
        sweep_every_ms: 2_000,
        sweep_grace_ms: 2_000,
        ..WriterConfig::default()
    }
}

impl<'a> Bench<'a> {
    fn new(args: &'a GrowingArgs) -> Result<Self, BoxError> {
        let (config, entropy) = (config(), Entropy::from_os());
        let memory = headwater_store::open("memory:")?;
        let (read, write) =
            (Duration::from_millis(args.read_ms), Duration::from_millis(args.write_ms));
        let far: Arc<dyn Store> = match (read, write) {
            (Duration::ZERO, Duration::ZERO) => Arc::clone(&memory),
            (read, write) => Arc::new(Latency::new(Arc::clone(&memory), read, write)),
        };
        let watched = Arc::new(Watched::new(far, config.inline_bytes_max));
        let store: Arc<dyn Store> = Arc::<Watched>::clone(&watched);
        let writer =
            headwater_writer::start(store, config.clone(), entropy.clone(), Clock::system())?;
        let (old, young) = (HistoryName::parse("old")?, HistoryName::parse("young")?);
        Ok(Self { args, memory, watched, writer, config, old, young, entropy })
    }

    async fn measure(&self) -> Result<Figures, BoxError> {
        let began = Instant::now();
        self.create(&self.old).await?;
        let (mut first, mut last, mut young) = (empty(), empty(), empty());
        let mut caller = self.caller(&self.old, StateVersion::ZERO);
        for n in 0..SINGLE_PART {
            caller.put("first", n, &mut first).await;
        }
        let rest = self.args.operations.saturating_sub(2 * SINGLE_PART);
        let batched = self.batches(rest, caller.seen).await?;
        caller.seen = batched.newest;
        self.create(&self.young).await?;
        let mut young_caller = self.caller(&self.young, StateVersion::ZERO);
        for turn in 0..SINGLE_PART / TURN {
            for n in turn * TURN..(turn + 1) * TURN {
                caller.put("last", n, &mut last).await;
            }
            for n in turn * TURN..(turn + 1) * TURN {
                young_caller.put("young", n, &mut young).await;
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let swept_objects = self.sweep_all().await?;
        let report = self.verify().await?;
        self.writer.shutdown().await;
        let mut figures = Figures {
            operations: self.args.operations,
            callers: self.args.callers,
            seconds,
            first_p50_ms: first.p50_ms(),
            last_p50_ms: last.p50_ms(),
            young_p50_ms: young.p50_ms(),
            first_batched_p50_ms: batched.parts[0].p50_ms(),
            last_batched_p50_ms: batched.parts[9].p50_ms(),
            failures: [&first, &last].into_iter().chain(&batched.parts).map(|it| it.failures).sum(),
            heads: self.watched.heads(),
            head_bytes_most: self.watched.head_bytes_most(),
            kept_bytes_most: self.watched.kept_bytes_most(),
            objects_most: batched.objects_most,
            swept_objects,
            verdict: report.verdict().word(),
            ..Figures::default()
        };
        if let Some((_, revision, version)) = report.head {
            (figures.revision, figures.versions) = (revision.get(), version.get());
        }
        figures.judge(&Limits {
            kept_bytes: self.config.head_soft_bytes,
            // On top of it two entries may travel, in base64.
            head_bytes: self.config.head_soft_bytes
                + 2 * self.config.beside_bytes_max.div_ceil(3) * 4,
            ratio: self.args.ratio_max,
            objects: self.args.objects_max,
            swept_objects: self.args.swept_objects_max,
            bad_heads: self.watched.bad_heads(),
        });
        Ok(figures)
    }

    async fn create(&self, history: &HistoryName) -> Result<(), BoxError> {
        let id = HistoryId::from_bytes(self.entropy.bytes16());
        Ok(self.writer.create(history, id, false).await?)
    }

    fn caller(&self, history: &HistoryName, seen: StateVersion) -> Caller {
        let putter = Putter::new(history.clone(), self.writer.clone(), self.args.value_bytes);
        Caller { putter, seen, keys: self.args.keys.max(1) }
    }

    /// So many operations, each caller's one after the other.
    async fn batches(&self, count: u64, seen: StateVersion) -> Result<Batched, BoxError> {
        let next = Arc::new(AtomicU64::new(0));
        let caller = || {
            let (next, mut caller) = (Arc::clone(&next), self.caller(&self.old, seen));
            tokio::spawn(async move {
                let mut parts = [(); 10].map(|()| empty());
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if count <= n {
                        return (parts, caller.seen);
                    }
                    let part = usize::try_from(n * 10 / count).unwrap_or_default().min(9);
                    caller.put("op", n, &mut parts[part]).await;
                }
            })
        };
        let callers: Vec<_> = (0..self.args.callers.max(1)).map(|_| caller()).collect();
        let counted = self.count_until(&next, count);
        let (callers, objects_most) = tokio::join!(join_all(callers), counted);
        let mut parts = [(); 10].map(|()| empty());
        let mut newest = seen;
        for caller in callers {
            let (of_caller, seen) = caller?;
            newest = newest.max(seen);
            parts.iter_mut().zip(of_caller).for_each(|(all, it)| all.add(it));
        }
        Ok(Batched { parts, newest, objects_most: objects_most? })
    }

    /// The most objects of the history that there were at a time.
    async fn count_until(&self, next: &AtomicU64, count: u64) -> Result<u64, BoxError> {
        let mut most = 0;
        for part in 0..COUNTS {
            while next.load(Ordering::Relaxed) < count * part / COUNTS {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            most = most.max(self.objects().await?);
        }
        Ok(most)
    }

    async fn objects(&self) -> Result<u64, BoxError> {
        let (mut count, mut after) = (0, None);
        let prefix = format!("{}/", self.old);
        loop {
            let page = self.memory.list(&prefix, after.as_deref(), LIST_PAGE).await?;
            count += page.len() as u64;
            match page.last() {
                Some(last) if page.len() == LIST_PAGE => after = Some(last.key.clone()),
                _ => return Ok(count),
            }
        }
    }

    /// Sweeps everything that may go; how many objects are left.
    async fn sweep_all(&self) -> Result<u64, BoxError> {
        // What the first one lets go by name goes with the second.
        for _ in 0..2 {
            let options = SweepOptions {
                is_dry_run: false,
                is_full: true,
                deletes_max: u64::MAX,
                below: Some(Revision::new(u64::MAX)),
            };
            self.writer.sweep(&self.old, options, |_| ()).await?;
        }
        self.objects().await
    }

    async fn verify(&self) -> Result<Report, BoxError> {
        let store = Arc::clone(&self.memory);
        let (progress, stop) = (Progress::default(), CancellationToken::new());
        let verifier = Verifier::new(store, Options::default(), progress, stop);
        Ok(verifier.verify(&self.old).await?)
    }
}

struct Batched {
    /// The operations in ten parts.
    parts: [Measured; 10],
    /// The newest version that a caller was told.
    newest: StateVersion,
    objects_most: u64,
}

fn empty() -> Measured {
    Measured::empty(Duration::ZERO)
}
