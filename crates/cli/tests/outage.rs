//! A store that is down for a minute, on virtual time: the process stays what it
//! is, says so, and two seconds after the store is back everything works again,
//! without a restart.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use headwater_core::decide::Ask;
use headwater_core::id::{HistoryId, HistoryName, OperationId};
use headwater_core::operation::{Issue, Key, Mutation, Operation, Request};
use headwater_core::publish::Answer;
use headwater_core::version::StateVersion;
use headwater_daemon::health::{Health, ReadyOptions, STORE, watch_store};
use headwater_replica::{Consistency, ReadinessOptions, Replica, ReplicaConfig};
use headwater_store::{Call, Clock, Entropy, Fault, Faults, Layers, LayersConfig, Memory, Rule};
use headwater_writer::{Question, Writer, WriterConfig};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// How long the store is down, and how soon all has to be well after it.
const OUTAGE: Duration = Duration::from_secs(60);
const RECOVERY: Duration = Duration::from_secs(2);

struct Process {
    faults: Faults,
    writer: Writer,
    replica: Replica,
    health: Health,
    history: HistoryName,
    _watching: AbortOnDropHandle<()>,
}

impl Process {
    async fn start(readiness: ReadinessOptions) -> Self {
        let entropy = Entropy::from_seed(7);
        let faults = Faults::new(Arc::new(Memory::new()));
        let layers = Layers::around(faults.store(), LayersConfig::default(), entropy.clone());
        let health = Health::new();
        let watching = watch_store(health.clone(), layers.meter, ReadyOptions::default());
        let watching = AbortOnDropHandle::new(tokio::spawn(watching));
        let store = layers.store;
        let (config, clock) = (WriterConfig::default(), Clock::virtual_from(0));
        let writer =
            headwater_writer::start(Arc::clone(&store), config, entropy.clone(), clock).unwrap();
        let replica = headwater_replica::start(store, ReplicaConfig::default(), entropy).unwrap();
        let history = HistoryName::parse("shop").unwrap();
        let id = HistoryId::from_bytes([7; 16]);
        writer.create(&history, id, false).await.unwrap();
        replica.keep_ready(readiness, health.clone());
        Self { faults, writer, replica, health, history, _watching: watching }
    }

    async fn write(&self, n: u64) -> bool {
        let put = Mutation::Put(Key::new("key").unwrap(), "value".into());
        let request = Request::new(Vec::new(), vec![put]).unwrap();
        let issue = Issue::ClientKept(StateVersion::ZERO);
        let id = OperationId::parse(&format!("operation-{n}")).unwrap();
        let question = Question::Ask(Ask::Submit(Operation::new(id, request, issue)));
        let told = self.writer.ask(&self.history, question).await;
        told.is_ok_and(|it| matches!(it.answer, Answer::Accepted { .. }))
    }

    async fn read(&self) -> bool {
        let reader = self.replica.reader(self.history.clone());
        let deadline = Instant::now() + Duration::from_secs(1);
        reader.get(&Key::new("key").unwrap(), Consistency::Strong, deadline).await.is_ok()
    }

    fn store_is_well(&self) -> bool {
        let findings = self.health.findings();
        findings.iter().any(|it| it.name == STORE && it.trouble.is_none())
    }
}

/// Asks until it works, for as long as recovery may take.
async fn recovers(mut works: impl AsyncFnMut() -> bool) -> bool {
    let trying = async {
        while !works().await {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(RECOVERY, trying).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_minute_without_the_store_is_over_two_seconds_after_it() {
    let it = Process::start(ReadinessOptions::default()).await;
    assert!(it.write(0).await && it.read().await);
    sleep(RECOVERY).await;
    assert!(it.health.is_ready() && it.store_is_well());

    it.faults.set_outage(true);
    let up_at = Instant::now() + OUTAGE;
    let mut n_failed = 0;
    while Instant::now() < up_at {
        // Callers go on asking, as they do.
        let read = timeout(Duration::from_millis(500), it.read()).await;
        n_failed += u32::from(read != Ok(true));
        sleep(Duration::from_millis(100)).await;
    }
    assert!(10 < n_failed, "{n_failed}");
    assert!(!it.store_is_well(), "it is said");
    assert!(it.health.is_ready(), "and decides nothing");

    it.faults.set_outage(false);
    let back = Instant::now();
    let mut n = 1;
    let write = recovers(async || {
        n += 1;
        it.write(n).await
    });
    let (write, read, well) = tokio::join!(
        write,
        recovers(async || it.read().await),
        recovers(async || it.store_is_well()),
    );

    assert!(write && read && well, "write {write}, read {read}, said {well}");
    assert!(back.elapsed() <= RECOVERY);
}

#[tokio::test(start_paused = true)]
async fn writes_in_flight_when_the_store_went_away_are_settled_when_it_is_back() {
    let it = Process::start(ReadinessOptions::default()).await;
    assert!(it.write(0).await);
    it.faults.set_outage(true);
    let down = Instant::now();
    // The default deadline of an operation: what was not told by then is not
    // known, and the caller asks again by its id.
    let told = it.write(1).await;
    assert!(!told && down.elapsed() <= OUTAGE);
    sleep(OUTAGE.saturating_sub(down.elapsed())).await;

    it.faults.set_outage(false);

    assert!(recovers(async || it.write(1).await).await, "the same id finds out");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_opens_histories_is_ready_once_they_are_open() {
    let open = vec![HistoryName::parse("shop").unwrap(), HistoryName::parse("other").unwrap()];
    let it = Process::start(ReadinessOptions { open: Vec::new(), lag_ms_max: 0 }).await;
    sleep(RECOVERY).await;
    assert!(it.health.is_ready(), "nothing is to be opened");

    it.faults.set_outage(true);
    it.replica.keep_ready(ReadinessOptions { open, lag_ms_max: 0 }, it.health.clone());
    sleep(OUTAGE).await;
    assert!(!it.health.is_ready());
    it.faults.set_outage(false);

    assert!(
        recovers(async || it.health.is_ready()).await,
        "one is there, and one is known not to be"
    );
    assert_eq!(it.replica.open_histories(), std::slice::from_ref(&it.history));
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_credentials_are_refused_is_not_ready_until_they_are_not() {
    let open = vec![HistoryName::parse("shop").unwrap(), HistoryName::parse("other").unwrap()];
    let it = Process::start(ReadinessOptions::default()).await;
    sleep(RECOVERY).await;
    let is_opened = || {
        let findings = it.health.findings();
        let found = findings.into_iter().find(|it| it.name == "replica-histories");
        found.is_some_and(|it| it.trouble.is_none())
    };
    let refused = it.faults.while_set(Call::ReadHead, Fault::Denied);

    it.replica.keep_ready(ReadinessOptions { open, lag_ms_max: 0 }, it.health.clone());
    assert!(!it.health.is_ready(), "at once, before a task has run");
    sleep(OUTAGE).await;
    assert!(!is_opened() && !it.health.is_ready());

    // One that is not there is refused to those that may not list; the other
    // says that the credentials are good.
    it.faults.remove(refused);
    it.faults.add(Rule::new(Fault::Denied).on(Call::ReadHead).key_has("other"));
    assert!(recovers(async || is_opened() && it.health.is_ready()).await);

    it.faults.while_set(Call::ReadHead, Fault::Denied);
    sleep(OUTAGE).await;
    assert!(is_opened(), "what was opened once stays so");
}

#[tokio::test(start_paused = true)]
async fn lag_decides_only_where_it_is_to() {
    for (lag_ms_max, is_ready) in [(0, true), (5_000, false)] {
        let open = vec![HistoryName::parse("shop").unwrap()];
        let it = Process::start(ReadinessOptions { open, lag_ms_max }).await;
        sleep(RECOVERY).await;
        assert!(it.health.is_ready());

        it.faults.set_outage(true);
        sleep(OUTAGE).await;
        let service = it.health.findings().into_iter().find(|it| it.name == "replica-lag").unwrap();
        assert!(service.trouble.is_some());
        assert_eq!(it.health.is_ready(), is_ready);

        it.faults.set_outage(false);
        assert!(recovers(async || it.health.is_ready()).await);
    }
}
