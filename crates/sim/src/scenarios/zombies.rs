//! Processes that stop in the middle, and go on as if nothing had happened.

use std::time::Duration;

use headwater_store::{Call, LayersConfig, TimeoutConfig};
use headwater_writer::WriterConfig;

use super::{add, busy_upkeep, play, put_large, quiet};
use crate::plan::Plan;
use crate::run::Report;
use crate::trace::Keep;

/// A process that is paused notices no time: its limits are far away.
fn patient(seed: u64, config: WriterConfig) -> Plan {
    let hours = Duration::from_secs(12 * 3_600);
    let timeout = TimeoutConfig { small: hours, object: hours, ..TimeoutConfig::default() };
    let layers = LayersConfig { timeout, ..LayersConfig::default() };
    let config = WriterConfig { operation_timeout_ms: 12 * 3_600_000, ..config };
    let plan = quiet(seed, vec![config; 2]);
    let mix = crate::plan::Mix { patience_ms: (40_000_000, 40_000_000), ..plan.mix };
    Plan { mix, layers, ..plan }
}

/// A writer stops with a replacement in hand. A thousand commits, snapshots and
/// sweeps later it goes on: it loses, and its operation is decided again.
pub(super) fn zombie_after_sweep(seed: u64, keep: Keep) -> Report {
    play(patient(seed, busy_upkeep()), keep, async |stage| {
        let hold = stage.world.processes[0].hold.clone();
        let (mut one, mut other) = (stage.client_of(0, 0), stage.client_of(0, 1));
        stage.commit(&mut one, "before", 3).await;
        hold.set(Some(Call::ReplaceHead));
        let late = put_large("late", 0);
        let first = tokio::spawn(async move { one.submit(&late).await });
        stage.until(|_| hold.n_held() == 1).await;
        stage.commit(&mut other, "meanwhile", 1_000).await;
        let compacted = stage.head().snapshot.version.get();
        stage.expect(500 < compacted, &format!("the snapshot is of v{compacted}"));
        stage.expect_sweeps();
        hold.set(None);
        match first.await {
            Ok(end) => stage.expect_accepted(end),
            Err(error) => stage.expect(false, &error.to_string()),
        }
        stage.expect(stage.head().operation_count == 1_004, "each is applied once");
    })
}

/// A writer stops with a replacement in hand. Its client asks another one, and
/// is answered; when the first one goes on, nothing is applied twice.
pub(super) fn paused_writer(seed: u64, keep: Keep) -> Report {
    play(patient(seed, WriterConfig::default()), keep, async |stage| {
        let hold = stage.world.processes[0].hold.clone();
        let (mut one, mut other) = (stage.client_of(0, 0), stage.client_of(0, 1));
        stage.commit(&mut one, "before", 2).await;
        hold.set(Some(Call::ReplaceHead));
        let operation = add("retried", 1);
        let same = operation.clone();
        let waiting = tokio::spawn(async move { one.submit(&same).await });
        stage.until(|_| hold.n_held() == 1).await;
        let elsewhere = other.submit(&operation).await;
        stage.expect_accepted(elsewhere);
        stage.commit(&mut other, "meanwhile", 5).await;
        hold.set(None);
        match waiting.await {
            Ok(end) => stage.expect(end == elsewhere, "both are told the same"),
            Err(error) => stage.expect(false, &error.to_string()),
        }
        stage.expect(stage.head().operation_count == 8, "each is applied once");
    })
}

/// A replica hears of nothing while snapshots and sweeps pass. It serves again
/// by itself.
pub(super) fn replica_past_retention(seed: u64, keep: Keep) -> Report {
    play(quiet(seed, vec![busy_upkeep()]), keep, async |stage| {
        let replica = 1;
        let mut client = stage.client_of(0, 0);
        stage.commit(&mut client, "before", 5).await;
        stage.read_all(replica).await;
        let party = crate::weather::Party::Process(replica);
        stage.world.climate.set_cut(party, crate::weather::Party::Bucket, true);
        stage.commit(&mut client, "meanwhile", 400).await;
        stage.expect(200 < stage.head().snapshot.version.get(), "there are newer snapshots");
        stage.expect_sweeps();
        stage.world.climate.set_cut(party, crate::weather::Party::Bucket, false);
        stage.read_all(replica).await;
    })
}
