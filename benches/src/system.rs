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
use headwater_daemon::writer_line::WriterLineOptions;
use headwater_replica::{Consistency, Reader, Replica, ReplicaConfig};
use headwater_store::{Clock, Entropy, HeadRead, Latency, Meter, Readings, Store};
use headwater_writer::{GrpcLine, Question, Writer, WriterConfig};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Plan;

/// Anything that went wrong.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A bucket in memory, for processes that each see it from as far away.
#[derive(Clone, Debug)]
pub(crate) struct World {
    plan: Plan,
    memory: Arc<dyn Store>,
    pub(crate) history: HistoryName,
    entropy: Entropy,
}

impl World {
    /// A bucket with one history.
    pub(crate) async fn new(plan: Plan) -> Result<Self, BoxError> {
        let memory = headwater_store::open("memory:")?;
        let entropy = Entropy::from_os();
        let world = Self { plan, memory, history: HistoryName::parse("bench")?, entropy };
        let (writer, _) = world.writer()?;
        let id = HistoryId::from_bytes(world.entropy.bytes16());
        writer.create(&world.history, id, false).await?;
        writer.shutdown().await;
        Ok(world)
    }

    /// The bucket, from where a process sees it, and what that asks of it.
    pub(crate) fn store(&self) -> (Arc<dyn Store>, Arc<Meter>) {
        let Plan { read, write, .. } = self.plan;
        let far: Arc<dyn Store> = Arc::new(Latency::new(Arc::clone(&self.memory), read, write));
        let meter = Arc::new(Meter::new(far));
        (Arc::<Meter>::clone(&meter), meter)
    }

    pub(crate) fn writer(&self) -> Result<(Writer, Arc<Meter>), BoxError> {
        let (store, meter) = self.store();
        let (config, entropy) = (WriterConfig::default(), self.entropy.clone());
        Ok((headwater_writer::start(store, config, entropy, Clock::system())?, meter))
    }

    /// A writer that others can reach over a socket of this machine, and that
    /// hands operations to them where they contend. It is served until the token
    /// is cancelled.
    pub(crate) async fn linked_writer(
        &self,
        stop: CancellationToken,
    ) -> Result<(Writer, Arc<Meter>), BoxError> {
        let listening = Listening::bind(([127, 0, 0, 1], 0).into()).await?;
        let config = WriterConfig {
            advertise: format!("http://{}", listening.local_address()),
            forward_to: vec!["127.0.0.1".to_owned()],
            ..WriterConfig::default()
        };
        let (store, meter) = self.store();
        let writer = headwater_writer::start_linked(
            store,
            config,
            self.entropy.clone(),
            Clock::system(),
            &headwater_daemon::metrics::none(),
            Some(Arc::new(GrpcLine::new(WriterLineOptions::default()))),
        )?;
        let services = Services::new().with(writer.forward_service());
        let serving = listening.serve(services, stop, Duration::from_secs(5));
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                eprintln!("headwater-bench: the server failed: {error}");
            }
        });
        Ok((writer, meter))
    }

    /// A replica that has opened the history.
    pub(crate) async fn replica(
        &self,
        config: ReplicaConfig,
    ) -> Result<(Replica, Arc<Meter>), BoxError> {
        let (store, meter) = self.store();
        let replica = headwater_replica::start(store, config, self.entropy.clone())?;
        self.open(&replica).await?;
        Ok((replica, meter))
    }

    /// The same bucket, from as far away as `plan` says.
    pub(crate) fn seen_from(&self, plan: Plan) -> Self {
        Self { plan, ..self.clone() }
    }

    /// A replica that has opened nothing.
    pub(crate) fn bare_replica(&self, store: Arc<dyn Store>) -> Result<Replica, BoxError> {
        let config = ReplicaConfig::default();
        Ok(headwater_replica::start(store, config, self.entropy.clone())?)
    }

    /// Size of the head as it is.
    pub(crate) async fn head_bytes(&self) -> Result<usize, BoxError> {
        match self.memory.read_head(&self.history.head_key(), None).await? {
            HeadRead::Found { bytes, .. } => Ok(bytes.len()),
            HeadRead::Unchanged | HeadRead::Missing => Err("there is no head".into()),
        }
    }

    /// Reads something, strongly.
    pub(crate) async fn open(&self, replica: &Replica) -> Result<(), BoxError> {
        let deadline = Instant::now() + Duration::from_secs(60);
        replica.reader(self.history.clone()).pin(Consistency::Strong, deadline).await?;
        Ok(())
    }

    pub(crate) fn putter(&self, writer: &Writer, value_bytes: usize) -> Putter {
        Putter::new(self.history.clone(), writer.clone(), value_bytes)
    }
}

/// Everything that a scenario calls.
#[derive(Debug)]
pub struct System {
    /// The history that is written and read.
    pub history: HistoryName,
    /// Its writer.
    pub writer: Writer,
    /// A replica in the same process.
    pub replica: Replica,
    store: Arc<dyn Store>,
    meter: Arc<Meter>,
    grpc: Option<Grpc>,
}

#[derive(Debug)]
struct Grpc {
    client: Client,
    session: Session,
    stop: CancellationToken,
    server: tokio::task::JoinHandle<()>,
}

impl System {
    /// Starts both over a new store in memory, as far away as `plan` says.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from starting.
    pub async fn start(plan: Plan) -> Result<Self, BoxError> {
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
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn floor_ms(&self, is_write: bool) -> Result<f64, BoxError> {
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

    /// What the store was asked so far.
    pub fn readings(&self) -> Readings {
        self.meter.read()
    }

    /// What a caller puts with.
    pub fn putter(&self, value_bytes: usize) -> Putter {
        Putter {
            history: self.history.clone(),
            writer: self.writer.clone(),
            grpc: self.grpc.as_ref().map(|it| (it.client.clone(), it.session.clone())),
            value: Bytes::from(vec![b'v'; value_bytes]),
        }
    }

    /// What a caller reads with.
    pub fn getter(&self) -> Getter {
        Getter {
            reader: self.replica.reader(self.history.clone()),
            session: self.grpc.as_ref().map(|it| it.session.clone()),
        }
    }

    /// Stops writer, replica and server.
    pub async fn stop(self) {
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
#[derive(Clone, Debug)]
pub struct Putter {
    history: HistoryName,
    writer: Writer,
    grpc: Option<(Client, Session)>,
    value: Bytes,
}

impl Putter {
    /// One that goes to a writer in this process.
    pub(crate) fn new(history: HistoryName, writer: Writer, value_bytes: usize) -> Self {
        Self { history, writer, grpc: None, value: Bytes::from(vec![b'v'; value_bytes]) }
    }

    /// Puts a key of the caller's choice, under an operation id that is first
    /// used after version `seen`; the version at which it was accepted.
    pub(crate) async fn put_since(
        &self,
        seen: StateVersion,
        id: &str,
        key: String,
    ) -> Result<StateVersion, BoxError> {
        self.put_issued(Issue::ClientKept(seen), id, key).await
    }

    /// Whether it was accepted.
    pub async fn put(&self, caller: usize, n: u64) -> bool {
        let key = format!("key/{caller:05}/{:03}", n % 100);
        let id = format!("op-{caller}-{n}");
        match &self.grpc {
            Some((client, session)) => self.put_by_grpc(client, session, key).await,
            None => self.put_in_process(&id, key).await.is_ok(),
        }
    }

    /// As [`Putter::put_since`], with a value of the same size that does not
    /// compress.
    pub(crate) async fn put_at(
        &self,
        seen: StateVersion,
        key: &str,
        n: u64,
    ) -> Result<StateVersion, BoxError> {
        let random = Entropy::from_seed(n);
        let mut value: Vec<u8> = Vec::with_capacity(self.value.len() + 16);
        while value.len() < self.value.len() {
            value.extend_from_slice(&random.bytes16());
        }
        value.truncate(self.value.len());
        let putter = Self { value: value.into(), ..self.clone() };
        putter.put_since(seen, &format!("at-{n}"), key.to_owned()).await
    }

    /// As [`Putter::put`], and the version at which it was accepted.
    pub(crate) async fn put_version(
        &self,
        caller: usize,
        n: u64,
    ) -> Result<StateVersion, BoxError> {
        let key = format!("key/{caller:05}/{:03}", n % 100);
        self.put_in_process(&format!("op-{caller}-{n}"), key).await
    }

    /// Puts through the writer itself.
    async fn put_in_process(&self, id: &str, key: String) -> Result<StateVersion, BoxError> {
        self.put_issued(Issue::ClientKept(StateVersion::ZERO), id, key).await
    }

    async fn put_issued(
        &self,
        issue: Issue,
        id: &str,
        key: String,
    ) -> Result<StateVersion, BoxError> {
        let put = Mutation::Put(Key::new(key)?, self.value.clone());
        let request = Request::new(Vec::new(), vec![put])?;
        let operation = Operation::new(OperationId::parse(id)?, request, issue);
        let question = Question::Ask(Ask::Submit(operation));
        let told = self.writer.ask(&self.history, question).await?;
        let Answer::Accepted { receipt, .. } = told.answer else {
            return Err(format!("not accepted: {:?}", told.answer).into());
        };
        Ok(receipt.accepted_at)
    }

    async fn put_by_grpc(&self, client: &Client, session: &Session, key: String) -> bool {
        let operation = client.operation().put(key, self.value.clone());
        let submitted = session.submit(operation).await;
        submitted.is_ok_and(|it| matches!(it, Outcome::Accepted(_)))
    }
}

/// Reads one key, strongly.
#[derive(Clone, Debug)]
pub struct Getter {
    reader: Reader,
    session: Option<Session>,
}

impl Getter {
    /// Whether the key was found.
    pub async fn get(&self, caller: usize) -> bool {
        use headwater_client::Consistency as Asked;
        self.get_as(caller, Consistency::Strong, Asked::Strong).await
    }

    /// The same, of whatever the replica has at hand.
    pub async fn get_at_hand(&self, caller: usize) -> bool {
        use headwater_client::Consistency as Asked;
        self.get_as(caller, Consistency::Any, Asked::Any).await
    }

    async fn get_as(
        &self,
        caller: usize,
        consistency: Consistency,
        asked: headwater_client::Consistency,
    ) -> bool {
        let key = format!("key/{caller:05}/000");
        if let Some(session) = &self.session {
            let read = session.get(key, asked).await;
            return read.is_ok_and(|it| it.value.is_some());
        }
        let Ok(key) = Key::new(key) else { return false };
        let deadline = Instant::now() + Duration::from_secs(30);
        let read = self.reader.get(&key, consistency, deadline).await;
        read.is_ok_and(|(entry, _)| entry.is_some())
    }
}
