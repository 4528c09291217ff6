//! Writer and replica over a store with set latencies, in this process.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_client::{Client, Outcome, Session};
use headwater_core::decide::Ask;
use headwater_core::id::{HistoryId, HistoryName, OperationId};
use headwater_core::operation::{Issue, Key, Mutation, Operation, Request};
use headwater_core::publish::Answer;
use headwater_core::version::StateVersion;
use headwater_daemon::serve::{Listening, Services};
use headwater_replica::{Consistency, Reader, Replica, ReplicaConfig};
use headwater_store::{Clock, Entropy, Latency, Meter, Readings, Store};
use headwater_writer::{Question, Writer, WriterConfig};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Plan;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Everything that a scenario calls.
pub(crate) struct System {
    pub(crate) history: HistoryName,
    pub(crate) writer: Writer,
    pub(crate) replica: Replica,
    store: Arc<dyn Store>,
    meter: Arc<Meter>,
    grpc: Option<Grpc>,
}

struct Grpc {
    client: Client,
    session: Session,
    stop: CancellationToken,
    server: tokio::task::JoinHandle<()>,
}

impl System {
    pub(crate) async fn start(plan: Plan) -> Result<Self, BoxError> {
        let entropy = Entropy::from_os();
        let memory = headwater_store::open("memory:")?;
        let latency: Arc<dyn Store> = Arc::new(Latency::new(memory, plan.read, plan.write));
        let meter = Arc::new(Meter::new(latency));
        let store: Arc<dyn Store> = Arc::<Meter>::clone(&meter);
        let below = Arc::clone(&store);
        let writer = headwater_writer::start(
            Arc::clone(&store),
            WriterConfig::default(),
            entropy.clone(),
            Clock::system(),
        )?;
        let replica = headwater_replica::start(store, ReplicaConfig::default(), entropy.clone())?;
        let history = HistoryName::parse("bench")?;
        writer.create(&history, HistoryId::from_bytes(entropy.bytes16()), false).await?;
        let grpc = if plan.is_grpc { Some(Grpc::start(&writer, &replica).await?) } else { None };
        Ok(Self { history, writer, replica, store: below, meter, grpc })
    }

    /// What one write, or one read, takes in the store by itself: the median of
    /// some, in milliseconds.
    pub(crate) async fn floor_ms(&self, is_write: bool) -> Result<f64, BoxError> {
        const CALLS: usize = 21;
        self.store.put("floor/object", Bytes::from_static(b"x")).await?;
        let mut took = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let began = Instant::now();
            if is_write {
                self.store.put(&format!("floor/{}", took.len()), Bytes::new()).await?;
            } else {
                self.store.get("floor/object").await?;
            }
            took.push(began.elapsed());
        }
        took.sort_unstable();
        Ok(took[CALLS / 2].as_secs_f64() * 1_000.0)
    }

    pub(crate) fn readings(&self) -> Readings {
        self.meter.read()
    }

    /// What a caller puts with.
    pub(crate) fn putter(&self, value_bytes: usize) -> Putter {
        Putter {
            history: self.history.clone(),
            writer: self.writer.clone(),
            grpc: self.grpc.as_ref().map(|it| (it.client.clone(), it.session.clone())),
            value: Bytes::from(vec![b'v'; value_bytes]),
        }
    }

    /// What a caller reads with.
    pub(crate) fn getter(&self) -> Getter {
        Getter {
            reader: self.replica.reader(self.history.clone()),
            session: self.grpc.as_ref().map(|it| it.session.clone()),
        }
    }

    pub(crate) async fn stop(self) {
        if let Some(grpc) = self.grpc {
            drop(grpc.session);
            grpc.stop.cancel();
            let _ended = grpc.server.await;
        }
        self.writer.shutdown().await;
        self.replica.shutdown().await;
    }
}

impl Grpc {
    async fn start(writer: &Writer, replica: &Replica) -> Result<Self, BoxError> {
        let listening = Listening::bind(([127, 0, 0, 1], 0).into()).await?;
        let address = listening.local_address().to_string();
        let services = Services::new()
            .with(writer.write_service())
            .with(writer.history_service())
            .with(replica.service());
        let stop = CancellationToken::new();
        let serving = listening.serve(services, stop.clone(), Duration::from_secs(5));
        let server = tokio::spawn(async move {
            if let Err(error) = serving.await {
                eprintln!("headwater-bench: the server failed: {error}");
            }
        });
        let client = Client::builder().writers([address.clone()]).replicas([address]).build()?;
        let session = client.session("bench");
        Ok(Self { client, session, stop, server })
    }
}

/// Puts one key.
#[derive(Clone)]
pub(crate) struct Putter {
    history: HistoryName,
    writer: Writer,
    grpc: Option<(Client, Session)>,
    value: Bytes,
}

impl Putter {
    /// Whether it was accepted.
    pub(crate) async fn put(&self, caller: usize, n: u64) -> bool {
        let key = format!("key/{caller:05}/{:03}", n % 100);
        let id = format!("op-{caller}-{n}");
        match &self.grpc {
            Some((client, session)) => self.put_by_grpc(client, session, key).await,
            None => self.put_in_process(&id, key).await.unwrap_or(false),
        }
    }

    async fn put_in_process(&self, id: &str, key: String) -> Result<bool, BoxError> {
        let put = Mutation::Put(Key::new(key)?, self.value.clone());
        let request = Request::new(Vec::new(), vec![put])?;
        let issue = Issue::ClientKept(StateVersion::ZERO);
        let operation = Operation::new(OperationId::parse(id)?, request, issue);
        let question = Question::Ask(Ask::Submit(operation));
        let told = self.writer.ask(&self.history, question).await?;
        Ok(matches!(told.answer, Answer::Accepted { .. }))
    }

    async fn put_by_grpc(&self, client: &Client, session: &Session, key: String) -> bool {
        let operation = client.operation().put(key, self.value.clone());
        let submitted = session.submit(operation).await;
        submitted.is_ok_and(|it| matches!(it, Outcome::Accepted(_)))
    }
}

/// Reads one key, strongly.
#[derive(Clone)]
pub(crate) struct Getter {
    reader: Reader,
    session: Option<Session>,
}

impl Getter {
    /// Whether the key was found.
    pub(crate) async fn get(&self, caller: usize) -> bool {
        let key = format!("key/{caller:05}/000");
        if let Some(session) = &self.session {
            let read = session.get(key, headwater_client::Consistency::Strong).await;
            return read.is_ok_and(|it| it.value.is_some());
        }
        let Ok(key) = Key::new(key) else { return false };
        let deadline = Instant::now() + Duration::from_secs(30);
        let read = self.reader.get(&key, Consistency::Strong, deadline).await;
        read.is_ok_and(|(entry, _)| entry.is_some())
    }
}
