//! When a replica is to be sent reads.
//!
//! A replica opens a history when it is first asked for, so one that has just
//! started can answer everything, slowly. With `--replica-open` it opens the
//! named histories first, keeps them open, and is ready once each of them was
//! opened and proven current. That one of them is not there, or is damaged, is an answer too:
//! it is no reason to keep the others from being read. That the store refuses
//! access to every one of them is none: it says that the credentials are wrong,
//! and a rollout of wrong credentials must not go on to the last replica. (Of
//! one alone it may mean that the history is not there: a store says no to those
//! that may not list.) What was opened once stays so.
//!
//! Lag alone makes no replica unready: whatever makes one of them lag, the
//! store most of all, makes all of them lag, and a caller that needs freshness
//! asks for it and is told. `--replica-ready-lag-ms-max` is for those who want
//! it all the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_core::id::HistoryName;
use headwater_daemon::health::{Check, For, Health};
use tokio::time::{Instant, sleep};

use crate::consistency::Consistency;
use crate::failure::ReadFailure;
use crate::histories::Histories;

/// The services that wait for it.
const SERVICES: For = For::Services(&["headwater.v1.ReadService", "headwater.v1.WatchService"]);

/// How often histories are looked at.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long a history rests that could not be opened for a reason that stays: a
/// look at one that is not there is an opening of it, with all that it reads.
const REST: Duration = Duration::from_secs(30);
/// Longest time for one look.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// What is shown as lag where nothing decides by it.
const LAG_SHOWN: Duration = Duration::from_secs(10);

/// What a replica does before it is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ReadinessOptions {
    /// Open these histories at the start, and keep them open; not ready before
    /// each is open and proven current. Several are separated by commas.
    #[arg(
        id = "replica-open",
        long = "replica-open",
        value_name = "HISTORY",
        value_delimiter = ',',
        value_parser = history_name,
        env = "HEADWATER_REPLICA_OPEN"
    )]
    pub open: Vec<HistoryName>,
    /// Not ready while one of the histories of `--replica-open` was not proven
    /// current for so long, in milliseconds. 0: lag is listed, and decides
    /// nothing.
    #[arg(
        id = "replica-ready-lag-ms-max",
        long = "replica-ready-lag-ms-max",
        default_value_t = 0,
        env = "HEADWATER_REPLICA_READY_LAG_MS_MAX"
    )]
    pub lag_ms_max: u64,
}

fn history_name(text: &str) -> Result<HistoryName, String> {
    HistoryName::parse(text).map_err(|error| error.to_string())
}

/// The check that [`run`] makes ready.
pub(crate) fn check(health: &Health) -> Check {
    health.check("replica-histories", SERVICES)
}

/// Opens the histories, then looks at them again and again. Ends with whoever
/// runs it.
pub(crate) async fn run(
    histories: Arc<Histories>,
    options: ReadinessOptions,
    health: Health,
    opened: Check,
) {
    let mut resting = Resting::default();
    open(&histories, &options.open, &mut resting, &opened).await;
    let (lag_max, for_whom) = match options.lag_ms_max {
        0 => (LAG_SHOWN, For::Nobody),
        ms => (Duration::from_millis(ms), SERVICES),
    };
    let lag = health.check("replica-lag", for_whom);
    loop {
        // A look at each proves it current again where the last proof is too
        // old, so that a replica does not lag because nobody reads.
        let level = Consistency::MaxStaleness(lag_max);
        match looked_at(&histories, &options.open, &mut resting, level).await {
            Ok(_) => lag.ready(),
            Err((name, failure)) => {
                lag.not_ready(format!(
                    "{name} is more than {} ms behind: {failure}",
                    lag_max.as_millis()
                ));
            }
        }
        sleep(INTERVAL).await;
    }
}

async fn open(
    histories: &Arc<Histories>,
    names: &[HistoryName],
    resting: &mut Resting,
    check: &Check,
) {
    loop {
        match looked_at(histories, names, resting, Consistency::Strong).await {
            Ok(Access::Granted) => return check.ready(),
            Ok(Access::Denied) => {
                check.not_ready("the object store refuses access to every history of them");
            }
            Err((name, failure)) => {
                check.not_ready(format!("{name} is not open yet: {failure}"));
            }
        }
        sleep(INTERVAL).await;
    }
}

/// What the store has said of the credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// It answered about one history at least.
    Granted,
    /// It refused access to each of them.
    Denied,
}

/// Histories that are left alone until then. Of those that are named to it, so
/// there are no more of them.
type Resting = BTreeMap<HistoryName, Instant>;

/// What the store says of all of them, or the first that cannot be read so.
async fn looked_at<'a>(
    histories: &Arc<Histories>,
    names: &'a [HistoryName],
    resting: &mut Resting,
    level: Consistency,
) -> Result<Access, (&'a HistoryName, ReadFailure)> {
    let mut access = Access::Denied;
    for name in names {
        let now = Instant::now();
        if resting.get(name).is_some_and(|until| now < *until) {
            // The store has spoken of it.
            access = Access::Granted;
            continue;
        }
        resting.remove(name);
        match histories.pin(name, None, level, now + LOOK_TIMEOUT).await {
            Err(failure) if passes(&failure) => return Err((name, failure)),
            Err(ReadFailure::Denied { .. }) => {}
            Ok(_) => access = Access::Granted,
            Err(_) => {
                access = Access::Granted;
                resting.insert(name.clone(), Instant::now() + REST);
            }
        }
    }
    Ok(access)
}

/// Whether waiting helps against it.
fn passes(failure: &ReadFailure) -> bool {
    match failure {
        ReadFailure::FreshnessUnverified { .. }
        | ReadFailure::StoreUnavailable { .. }
        | ReadFailure::Expired { .. }
        | ReadFailure::TooManyHistories { .. }
        | ReadFailure::ShuttingDown => true,
        ReadFailure::HistoryMissing { .. }
        | ReadFailure::VersionRetired { .. }
        | ReadFailure::VersionAhead { .. }
        | ReadFailure::StoredDataBad { .. }
        | ReadFailure::FormatTooNew { .. }
        | ReadFailure::Denied { .. } => false,
    }
}
