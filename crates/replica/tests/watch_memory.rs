//! What a slow watcher costs in memory. In a process of its own, which is what
//! is measured.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]
#![cfg(target_os = "linux")]

#[path = "replica/bucket.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod bucket;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use headwater_core::version::StateVersion;
use headwater_replica::{
    Consistency, KeyFilter, ReplicaConfig, SnapshotMode, Watch, WatchEvent, WatchOptions, start,
};
use headwater_store::{Entropy, LocalDir, Store};

use self::bucket::{TestWriter, deadline, quiet};

const VERSIONS: u64 = 100_000;
const VALUE_BYTES: usize = 1_000;
/// More than limits and allocator take, and much less than what passes.
const GROWTH_BYTES_MAX: u64 = 40 << 20;

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn options(after: u64) -> WatchOptions {
    WatchOptions {
        after: Some(StateVersion::new(after)),
        filter: KeyFilter::everything(),
        previous_values: false,
        progress: Duration::from_secs(10),
        snapshot: SnapshotMode::Never,
    }
}

async fn versions(watch: &mut Watch, count: u64, seen: &mut u64) {
    let upto = *seen + count;
    while *seen < upto {
        let told = watch.next().await.unwrap().unwrap();
        if let WatchEvent::Change(change) = told.event {
            assert_eq!(change.version.get(), *seen + 1);
            *seen += 1;
        }
    }
}

/// Over a directory, so that what is stored is not in memory. The clock is
/// stopped while something is to do, so nothing depends on how fast that is.
#[test]
fn a_slow_watcher_costs_no_memory_while_100_000_versions_pass_and_goes_on_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Box::pin(slow_watcher(folder.path())));
}

async fn slow_watcher(folder: &Path) {
    let store: Arc<dyn Store> = Arc::new(LocalDir::open(folder).unwrap());
    let mut writer = TestWriter::create(Arc::clone(&store), "h", 1).await;
    let config = ReplicaConfig {
        watch_live_bytes: 1 << 20,
        watch_older_bytes: 1 << 20,
        recent_bytes_max: 1 << 20,
        // Far beyond what the test takes: flow control alone is what holds.
        watch_stall_ms: 3_600_000,
        ..quiet()
    };
    let replica = start(store, config, Entropy::from_seed(1)).unwrap();
    let reader = replica.reader(writer.head.history.clone());
    let mut slow = reader.watch(options(0), deadline()).await.unwrap();
    let mut seen = 0;
    let mut before = 0;

    for batch in 0..VERSIONS / 500 {
        writer.put_versions(500, VALUE_BYTES).await;
        writer.fold().await;
        reader.pin(Consistency::Strong, deadline()).await.unwrap();
        if batch == 0 {
            versions(&mut slow, 10, &mut seen).await;
        }
        if batch == 20 {
            // Allocator, caches and code are warm.
            before = resident_bytes();
        }
        if 20 < batch {
            let grown = resident_bytes().saturating_sub(before);
            assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more after batch {batch}");
        }
    }
    let figures = replica.watch_figures(&writer.head.history).unwrap();
    assert_eq!(figures.watchers, 1);
    assert!(figures.bytes_shared <= 2 << 20, "{figures:?}");

    // It reads again, and has everything.
    versions(&mut slow, VERSIONS - seen, &mut seen).await;
    assert_eq!(seen, VERSIONS);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more after it caught up");
}
