//! The same, for real: `headwater-writer` and `headwater-replica` as processes,
//! sockets, an S3 endpoint, the client library, and the clock on the wall.
//!
//! ```text
//! clients --- proxy ---> headwater-writer  --- proxy ---> S3 endpoint
//!         \-- proxy ---> headwater-replica --- proxy --/       |
//!                        killed, stopped, replaced          witness
//! ```
//!
//! In here: starting and ending processes, cutting their connections, logging
//! what clients were told, and the checks of the logs against every version
//! that a follower of the bucket has seen. Not in here: determinism. What the
//! kernel does has no seed; the seed decides what is sent and what is done to
//! whom.

mod child;
mod load;
mod log;
mod outside;
mod proxy;
mod trouble;
mod witness;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_client::{Client, RetryConfig};
use headwater_core::id::HistoryName;
use headwater_s3_double::S3Double;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::child::{Child, Program};
use self::load::Loader;
use self::log::Log;
use self::witness::Witness;
use crate::dice::Dice;

pub use self::outside::{Outside, Shown, load_outside};

/// Clients at work.
const CLIENTS: usize = 12;
/// After the last fault everything that was begun ends within this.
const CALM_MAX: Duration = Duration::from_secs(90);

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides what is sent, and what is done to whom and when.
    pub seed: u64,
    /// How long faults go on.
    pub lasts: Duration,
    /// Where `headwater-writer` and `headwater-replica` are.
    pub programs: PathBuf,
    /// Says what is done to whom.
    pub is_talkative: bool,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was wrong.
    pub violations: Vec<String>,
    /// Submissions that ended, one way or the other.
    pub operations: usize,
    /// Reads that were answered.
    pub reads: usize,
    /// Of these, those in each whole second from the first on.
    pub reads_by_second: Vec<usize>,
    /// The longest time that a read took.
    pub slowest_read: Duration,
    /// Operations of which their client does not know whether they were
    /// applied.
    pub open: usize,
    /// Versions in the history.
    pub versions: usize,
    /// Calls that their client gave up, whatever came of them later.
    pub failed: usize,
    /// The first of those, in words.
    pub first_failures: Vec<String>,
    /// How often each kind of fault was made.
    pub faults: Vec<(&'static str, u64)>,
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// A process, a socket or a program is missing.
    #[error("{what}")]
    Setup {
        /// What was tried.
        what: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The history could not be created, or the bucket not be read.
    #[error("{0}")]
    Begin(String),
}

fn setup(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> RealError {
    let what = what.into();
    |source| RealError::Setup { what, source }
}

/// The endpoint, which can be stopped and started again with what it holds.
type Endpoint = Arc<Mutex<S3Double>>;

const NAME: &str = "real/history";

/// Runs it all, once.
///
/// # Errors
///
/// [`RealError`] where it could not be set up; what went wrong afterwards is in
/// the outcome.
pub async fn run(options: Options) -> Result<Outcome, RealError> {
    let double = S3Double::start().await.map_err(setup("the S3 endpoint"))?;
    let url = double.url("root");
    let s3 = double.endpoint();
    let endpoint: Endpoint = Arc::new(Mutex::new(double));
    let mut children = Vec::new();
    for n in 0..4 {
        let program = if n < 2 { Program::Writer } else { Program::Replica };
        children.push(Child::start(program, n, &options.programs, &url, &s3).await?);
    }
    let fronts = |of: Program| {
        let of_kind = children.iter().filter(move |it| it.program == of);
        of_kind.map(|it| it.front.address().to_string()).collect::<Vec<_>>()
    };
    let retry = RetryConfig { attempt_max: Duration::from_secs(4), ..RetryConfig::default() };
    let client = Client::builder()
        .writers(fronts(Program::Writer))
        .replicas(fronts(Program::Replica))
        .retry(retry)
        .deadline(Duration::from_secs(15))
        .seed(options.seed)
        .build()
        .map_err(|error| RealError::Begin(error.to_string()))?;
    let created = client.create_history(NAME, false).await;
    created.map_err(|error| RealError::Begin(format!("creating the history: {error}")))?;
    let name = HistoryName::parse(NAME).map_err(|error| RealError::Begin(error.to_string()))?;
    let witness = Witness::begin(&url, name, options.seed).map_err(RealError::Begin)?;
    let faults;
    let log = Arc::new(Log::begin());
    {
        let until = Instant::now() + options.lasts;
        let mut clients = JoinSet::new();
        for index in 0..CLIENTS {
            let dice = Dice::new(options.seed, &format!("real client {index}"));
            let session = client.session(NAME);
            clients.spawn(Loader { index, dice, session, log: Arc::clone(&log) }.run(until));
        }
        faults = trouble::run(&options, &mut children, &endpoint, until).await?;
        trouble::heal(&mut children, &endpoint).await?;
        let all = async { while clients.join_next().await.is_some() {} };
        if timeout(CALM_MAX, all).await.is_err() {
            log.violation(format!("clients still wait {CALM_MAX:?} after the last fault"));
        }
    }
    sleep(Duration::from_secs(1)).await;
    load::last_look(&client.session(NAME), &log).await;
    let changes = witness.end().await;
    let outcome = log.check(&changes);
    for child in children {
        child.stop().await;
    }
    endpoint.lock().await.stop().await;
    Ok(Outcome { faults, ..outcome })
}
