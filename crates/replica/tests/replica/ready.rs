//! Histories that a replica opens before it is ready.

use std::time::Duration;

use headwater_daemon::health::Health;
use headwater_replica::ReadinessOptions;
use headwater_store::Call;
use tokio::time::sleep;

use crate::bucket::{Rig, TestWriter, name, quiet};

/// Two looks, and what an opening reads.
const READS_A_MINUTE_MAX: usize = 8;

#[tokio::test(start_paused = true)]
async fn a_history_that_is_not_there_is_looked_for_now_and_then() {
    let rig = Rig::new(quiet()).await;
    let open = vec![name("missing"), name("h")];
    let key = name("missing").head_key();
    rig.replica.keep_ready(ReadinessOptions { open, lag_ms_max: 0 }, Health::new());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.replica.open_histories(), [name("h")], "it keeps no other from being opened");

    rig.faults.clear_log();
    sleep(Duration::from_secs(60)).await;
    let n_reads =
        rig.faults.log().iter().filter(|(it, at)| *it == Call::ReadHead && *at == key).count();
    assert!((1..=READS_A_MINUTE_MAX).contains(&n_reads), "{n_reads} reads in a minute");

    TestWriter::create(rig.faults.behind(), "missing", 2).await;
    sleep(Duration::from_secs(31)).await;
    assert_eq!(rig.replica.open_histories(), [name("h"), name("missing")]);
}
