//! Load and checks for servers that somebody else runs, kills and replaces: pods,
//! say. The clients, the witness and the checks are those of a run with
//! processes of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_client::{Client, ClientBuilder, RetryConfig};
use headwater_core::id::HistoryName;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::load::{self, Loader};
use super::log::Log;
use super::witness::Witness;
use super::{CALM_MAX, CLIENTS, Outcome, RealError};
use crate::dice::Dice;

/// Sessions among which the reads are divided: enough that one that waits for a
/// server that went away holds back few others.
const READERS: u64 = 64;

/// What is sent, and where to.
#[derive(Clone, Debug)]
pub struct Outside {
    /// `HOST:PORT` of writers, or `https://HOST:PORT`.
    pub writers: Vec<String>,
    /// `HOST:PORT` of replicas.
    pub replicas: Vec<String>,
    /// The URL of their store, with the keys of the S3 endpoint for tests.
    pub store: String,
    /// A history that does not exist yet.
    pub history: String,
    /// Decides what is sent.
    pub seed: u64,
    /// How long clients go on.
    pub lasts: Duration,
    /// Reads a second on top of what the writing clients read.
    pub reads_per_second: u32,
    /// Whether a call that its client gives up is a violation.
    pub is_strict: bool,
    /// Whether each client has one of the writers and not all: so that writers
    /// contend for the history.
    pub contends: bool,
    /// What clients trust and show.
    pub shown: Shown,
}

/// What clients trust and show: files, which are read again when they change.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Authorities of servers' certificates.
    pub authorities: Option<PathBuf>,
    /// Their own certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Their token.
    pub token: Option<PathBuf>,
}

impl Shown {
    fn by(self, mut client: ClientBuilder) -> ClientBuilder {
        if let Some(file) = self.authorities {
            client = client.tls_authorities(file);
        }
        if let Some((certificate, key)) = self.identity {
            client = client.tls_identity(certificate, key);
        }
        if let Some(file) = self.token {
            client = client.token_file(file);
        }
        client
    }
}

/// Sends load, looks on, and checks.
///
/// # Errors
///
/// [`RealError`] where it could not begin; what went wrong afterwards is in the
/// outcome.
pub async fn load_outside(options: Outside) -> Result<Outcome, RealError> {
    // Each with a seed of its own: those that draw alike would wait alike.
    let with = |writers: &[String], seed: u64| {
        let retry = RetryConfig { attempt_max: Duration::from_secs(4), ..RetryConfig::default() };
        let client = Client::builder()
            .writers(writers)
            .replicas(&options.replicas)
            .retry(retry)
            .deadline(Duration::from_secs(15))
            .seed(seed);
        let client = options.shown.clone().by(client).build();
        client.map_err(|error| RealError::Begin(error.to_string()))
    };
    let of_all: Result<Vec<Client>, RealError> = if options.contends {
        options.writers.chunks(1).zip(options.seed..).map(|(it, seed)| with(it, seed)).collect()
    } else {
        with(&options.writers, options.seed).map(|it| vec![it])
    };
    let of_all = of_all?;
    let client = of_all.first().ok_or_else(|| RealError::Begin("no writer is named".to_owned()))?;
    let history = options.history.as_str();
    let created = client.create_history(history, false).await;
    created.map_err(|error| RealError::Begin(format!("creating the history: {error}")))?;
    let name = HistoryName::parse(history).map_err(|error| RealError::Begin(error.to_string()))?;
    let witness = Witness::begin(&options.store, name, options.seed).map_err(RealError::Begin)?;
    let log = Arc::new(Log::begin());
    let until = Instant::now() + options.lasts;
    let loader = |kind: &str, index: usize| {
        let dice = Dice::new(options.seed, &format!("{kind} {index}"));
        let session = of_all[index % of_all.len()].session(history);
        Loader { index, dice, session, log: Arc::clone(&log) }
    };
    let mut clients = JoinSet::new();
    for index in 0..CLIENTS {
        clients.spawn(loader("real client", index).run(until));
    }
    if let Some(every) = distance(options.reads_per_second) {
        for index in (CLIENTS..).take(usize::try_from(READERS).unwrap_or_default()) {
            clients.spawn(loader("reader", index).read_every(every, until));
        }
    }
    let all = async { while clients.join_next().await.is_some() {} };
    if timeout(options.lasts + CALM_MAX, all).await.is_err() {
        log.violation(format!("clients still wait {CALM_MAX:?} after the end"));
    }
    sleep(Duration::from_secs(1)).await;
    load::last_look(&client.session(history), &log).await;
    let mut outcome = log.check(&witness.end().await);
    if options.is_strict && outcome.failed > 0 {
        let told = outcome.first_failures.join("; ");
        outcome.violations.push(format!("{} calls failed: {told}", outcome.failed));
    }
    Ok(outcome)
}

/// Between two reads of one reader.
fn distance(reads_per_second: u32) -> Option<Duration> {
    let all = u64::from(reads_per_second);
    (all > 0).then(|| Duration::from_nanos(1_000_000_000 * READERS / all))
}
