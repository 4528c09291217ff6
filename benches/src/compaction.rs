//! What opening, compacting and checking a large state take: memory, requests,
//! bytes.
//!
//! Each step is a process of its own, so that the memory of one is not that of
//! another: the greatest resident size is what the system says about it
//! (`VmHWM` in `/proc/self/status`). Nothing but `fill` is published, so every
//! step starts from the same snapshot.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use headwater_core::change::{AcceptedOperation, Change, Resolved};
use headwater_core::format;
use headwater_core::hash::{ContentHash, RequestHash};
use headwater_core::head::{Head, Publisher};
use headwater_core::id::{HistoryId, HistoryName, Nonce, OperationId};
use headwater_core::keys::HEAD;
use headwater_core::operation::Key;
use headwater_core::version::{Revision, StateVersion};
use headwater_state::{
    BuildOptions, ChunkCache, LoadOptions, Loader, View, build_snapshot, write_empty_snapshot,
};
use headwater_store::{Call, HeadRead, HeadWrite, Meter, Store};
use headwater_verify::{Options, Progress, Verdict, Verifier};
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

type BoxError = Box<dyn Error + Send + Sync>;

/// Entries written before each compaction of `fill`, in bytes.
const FILL_BYTES: u64 = 32 << 20;
/// Memory for decoded chunks, the default of a writer.
const CACHE_BYTES: u64 = 64 << 20;
const ID: HistoryId = HistoryId::from_bytes([0xbe; 16]);

/// `compaction`
#[derive(Debug, clap::Args)]
pub(crate) struct CompactionArgs {
    /// Size of the state, in bytes of values.
    #[arg(long, default_value_t = 1 << 30)]
    state_bytes: u64,
    /// Bytes of a value. They do not compress.
    #[arg(long, default_value_t = 1_024)]
    value_bytes: u64,
    /// Entries that change before a compaction.
    #[arg(long, default_value_t = 64)]
    changed: u64,
    /// Memory that a step may have resident, in bytes: one that takes more fails.
    #[arg(long, default_value_t = 512 << 20)]
    resident_bytes_max: u64,
    /// A directory for the state, which is left there; it has to be new or
    /// empty. None: a temporary one.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// One step alone, over a directory that was filled.
    #[arg(long, value_enum, requires = "dir")]
    step: Option<Step>,
}

/// What one process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Step {
    /// Makes the state, 32 MiB to a compaction.
    Fill,
    /// Opens it as a process that starts, and reads one key.
    Open,
    /// Changes entries side by side, and compacts.
    Adjacent,
    /// Changes entries all over the state, and compacts.
    Spread,
    /// Checks all of it.
    Verify,
}

const STEPS: [Step; 5] = [Step::Fill, Step::Open, Step::Adjacent, Step::Spread, Step::Verify];

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    seconds: f64,
    peak_resident_bytes: u64,
    objects_read: u64,
    bytes_read: u64,
    objects_written: u64,
    bytes_written: u64,
    chunks_written: usize,
    chunks_reused: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    scenario: &'static str,
    step: Step,
    state_bytes: u64,
    value_bytes: u64,
    changed: u64,
    #[serde(flatten)]
    figures: Figures,
}

/// Runs every step, or the one that was asked for.
pub(crate) async fn run(args: &CompactionArgs) -> Result<(), BoxError> {
    if let (Some(step), Some(dir)) = (args.step, &args.dir) {
        return print(args, step, measure(args, step, dir).await?);
    }
    let temporary = std::env::temp_dir().join(format!("headwater-bench-{}", std::process::id()));
    let dir = args.dir.clone().unwrap_or_else(|| temporary.clone());
    std::fs::create_dir_all(&dir)?;
    let done = STEPS.into_iter().try_for_each(|step| spawn(args, step, &dir));
    if args.dir.is_none() {
        std::fs::remove_dir_all(&temporary)?;
    }
    done
}

/// A step in a process of its own, whose line goes where ours do.
fn spawn(args: &CompactionArgs, step: Step, dir: &Path) -> Result<(), BoxError> {
    let step = clap::ValueEnum::to_possible_value(&step).ok_or("a step without a name")?;
    let status = Command::new(std::env::current_exe()?)
        .args(["compaction", "--step", step.get_name()])
        .args(["--state-bytes", &args.state_bytes.to_string()])
        .args(["--value-bytes", &args.value_bytes.to_string()])
        .args(["--changed", &args.changed.to_string()])
        .args(["--resident-bytes-max", &args.resident_bytes_max.to_string()])
        .arg("--dir")
        .arg(dir)
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("a step ended with {status}").into()) }
}

fn print(args: &CompactionArgs, step: Step, figures: Figures) -> Result<(), BoxError> {
    let CompactionArgs { state_bytes, value_bytes, changed, .. } = *args;
    let scenario = "compaction";
    let line = Line { scenario, step, state_bytes, value_bytes, changed, figures };
    println!("{}", serde_json::to_string(&line)?);
    let (found, limit) = (line.figures.peak_resident_bytes, args.resident_bytes_max);
    if limit < found {
        return Err(format!("{found} bytes were resident, over {limit}").into());
    }
    Ok(())
}

async fn measure(args: &CompactionArgs, step: Step, dir: &Path) -> Result<Figures, BoxError> {
    let url = format!("file://{}", std::path::absolute(dir)?.display());
    let meter = Arc::new(Meter::new(headwater_store::open(&url)?));
    let history = HistoryName::parse("bench")?;
    let cache = ChunkCache::new(CACHE_BYTES);
    let store: Arc<dyn Store> = Arc::<Meter>::clone(&meter);
    let loader = Loader::new(store, history, cache, LoadOptions::default());
    let began = Instant::now();
    let bench = Bench { loader, args };
    let (chunks_written, chunks_reused) = match step {
        Step::Fill => bench.fill().await?,
        Step::Open => bench.open_and_read().await?,
        Step::Adjacent => bench.compact(bench.adjacent()).await?,
        Step::Spread => bench.compact(bench.spread()).await?,
        Step::Verify => bench.verify().await?,
    };
    let seconds = began.elapsed().as_secs_f64();
    let readings = meter.read();
    Ok(Figures {
        seconds,
        peak_resident_bytes: peak_resident_bytes()?,
        objects_read: readings.calls(Call::Get) + readings.calls(Call::ReadHead),
        bytes_read: readings.bytes_down(),
        objects_written: readings.calls(Call::Put),
        bytes_written: readings.bytes_up(),
        chunks_written,
        chunks_reused,
    })
}

struct Bench<'a> {
    loader: Loader,
    args: &'a CompactionArgs,
}

impl Bench<'_> {
    fn n_entries(&self) -> u64 {
        self.args.state_bytes / self.args.value_bytes.max(1)
    }

    /// Neighbours in the middle.
    fn adjacent(&self) -> Vec<u64> {
        let from = self.n_entries() / 2;
        (from..from + self.args.changed).collect()
    }

    /// All over, and the same in every run.
    fn spread(&self) -> Vec<u64> {
        let draw = |number: u64| {
            let hash = blake3::hash(&number.to_be_bytes());
            let drawn = hash.as_bytes().first_chunk().map_or(0, |it| u64::from_be_bytes(*it));
            drawn % self.n_entries()
        };
        (0..self.args.changed).map(draw).collect()
    }

    fn put(&self, number: u64, round: u8) -> Result<Resolved, BoxError> {
        let mut value = vec![0; usize::try_from(self.args.value_bytes)?];
        let mut seed = blake3::Hasher::new();
        seed.update(&number.to_be_bytes()).update(&[round]);
        seed.finalize_xof().fill(&mut value);
        Ok(Resolved::Put(Key::new(format!("key-{number:016}"))?, value.into()))
    }

    fn change(&self, numbers: impl Iterator<Item = u64>, round: u8) -> Result<Change, BoxError> {
        let mutations = numbers.map(|it| self.put(it, round)).collect::<Result<_, _>>()?;
        let operation = AcceptedOperation {
            id: OperationId::parse("bench")?,
            request_hash: RequestHash::from_bytes([1; 32]),
            results: Vec::new(),
            mutations,
        };
        Ok(Change { decided_at_ms: 0, operations: vec![operation] })
    }

    async fn fill(&self) -> Result<(usize, usize), BoxError> {
        let (store, history) = (self.loader.store(), self.loader.history());
        let empty = write_empty_snapshot(&**store, history, ID, Revision::new(0)).await?;
        let publisher =
            Publisher { id: "bench".into(), nonce: Nonce::from_bytes([1; 16]), address: None };
        let mut head = Head::first(history.clone(), ID, Revision::FIRST, false, publisher, empty);
        let (mut chunks_written, mut chunks_reused) = (0, 0);
        let at_once = (FILL_BYTES / self.args.value_bytes.max(1)).max(1);
        let mut next = 0;
        while next < self.n_entries() {
            let end = self.n_entries().min(next + at_once);
            let view = self.loader.open_snapshot(&head.snapshot, ID).await?;
            let change = self.change(next..end, 0)?;
            let view = view.apply(&change, hash_of(&change));
            let staged = Revision::new(view.version().get());
            let built =
                build_snapshot(&self.loader, &view, staged, BuildOptions::default()).await?;
            chunks_written += built.chunks_written;
            chunks_reused += built.chunks_reused;
            follow(&mut head, &view);
            head.snapshot = built.snapshot;
            next = end;
        }
        head.check()?;
        let bytes = format::head::encode(&head);
        match store.create_head(&history.head_key(), bytes.into()).await {
            HeadWrite::Replaced { .. } => Ok((chunks_written, chunks_reused)),
            other @ (HeadWrite::Mismatch | HeadWrite::Gone | HeadWrite::NoAnswer(_)) => {
                Err(format!("{HEAD} was not created: {other:?}").into())
            }
        }
    }

    async fn open(&self) -> Result<View, BoxError> {
        let key = self.loader.history().head_key();
        let HeadRead::Found { bytes, .. } = self.loader.store().read_head(&key, None).await? else {
            return Err("there is no head: run the step `fill` first".into());
        };
        Ok(self.loader.open(&format::head::decode(&bytes)?).await?.view)
    }

    async fn open_and_read(&self) -> Result<(usize, usize), BoxError> {
        let view = self.open().await?;
        let key = Key::new(format!("key-{:016}", self.n_entries() / 3))?;
        view.get(&key).await?.ok_or("the state is not of this size")?;
        Ok((0, 0))
    }

    async fn verify(&self) -> Result<(usize, usize), BoxError> {
        let store = Arc::clone(self.loader.store());
        let (progress, stop) = (Progress::default(), CancellationToken::new());
        // What the other steps built and did not publish is young.
        let verifier = Verifier::new(store, Options::default(), progress, stop);
        let report = verifier.verify(self.loader.history()).await?;
        let verdict = report.verdict();
        if verdict == Verdict::Clean {
            return Ok((0, 0));
        }
        Err(format!("verify says {}", verdict.word()).into())
    }

    async fn compact(&self, numbers: Vec<u64>) -> Result<(usize, usize), BoxError> {
        let view = self.open().await?;
        let change = self.change(numbers.into_iter(), 1)?;
        let view = view.apply(&change, hash_of(&change));
        let staged = Revision::new(view.version().get());
        let built = build_snapshot(&self.loader, &view, staged, BuildOptions::default()).await?;
        Ok((built.chunks_written, built.chunks_reused))
    }
}

fn follow(head: &mut Head, view: &View) {
    head.state_version = view.version();
    head.operation_count = view.version().get();
    head.chain_hash = view.chain_hash();
    head.receipt_coverage_from = StateVersion::next(view.version());
}

fn hash_of(change: &Change) -> ContentHash {
    ContentHash::of(&Bytes::from(format::change::encode(change)))
}

/// The most memory that was resident in this process at a time.
fn peak_resident_bytes() -> Result<u64, BoxError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kib = line.and_then(|it| it.trim().strip_suffix("kB")).ok_or("no VmHWM in the status")?;
    Ok(kib.trim().parse::<u64>()? * 1_024)
}
