//! The socket, and the life of the endpoint.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::S3Result;
use s3s::access::{S3Access, S3AccessContext};
use s3s::service::S3ServiceBuilder;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::front::{Api, Front};
use crate::keys::{self, Keys, TemporaryKey};
use crate::stored::Objects;
use crate::{BUCKET, Conduct, Faults, Request, Requests};

/// A running endpoint on a port of this host. Dropping it ends it at once.
pub struct S3Double {
    objects: Objects,
    front: Front,
    addr: SocketAddr,
    /// `None` while stopped.
    accepting: Option<Accepting>,
}

/// The task that accepts connections and owns them.
struct Accepting {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl fmt::Debug for S3Double {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Double").field("addr", &self.addr).finish_non_exhaustive()
    }
}

/// Lets requests in with and without a signature. A wrong one is refused before.
struct Anybody;

#[async_trait::async_trait]
impl S3Access for Anybody {
    async fn check(&self, _context: &mut S3AccessContext<'_>) -> S3Result<()> {
        Ok(())
    }
}

impl S3Double {
    /// Starts an empty bucket on a free port.
    ///
    /// # Errors
    ///
    /// When no port of the loopback address can be had.
    pub async fn start() -> io::Result<Self> {
        Self::start_on(0).await
    }

    /// Starts an empty bucket on `port`; 0 is a free one.
    ///
    /// # Errors
    ///
    /// When the port cannot be had.
    pub async fn start_on(port: u16) -> io::Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
    }

    /// Starts an empty bucket on an address, which may be one that others reach:
    /// whoever does may read and write.
    ///
    /// # Errors
    ///
    /// When the address cannot be had.
    pub async fn start_at(address: SocketAddr) -> io::Result<Self> {
        let (objects, keys) = (Objects::default(), Keys::default());
        let mut builder = S3ServiceBuilder::new(objects.clone());
        builder.set_auth(keys.clone());
        builder.set_access(Anybody);
        Self::start_as(address, Api::S3(builder.build()), objects, keys).await
    }

    async fn start_as(
        addr: SocketAddr,
        api: Api,
        objects: Objects,
        keys: Keys,
    ) -> io::Result<Self> {
        let front = Front {
            api,
            faults: Faults::default(),
            objects: objects.clone(),
            keys,
            log: Arc::default(),
            tasks: TaskTracker::new(),
        };
        let mut double = Self { objects, front, addr, accepting: None };
        double.restart().await?;
        Ok(double)
    }

    /// `http://127.0.0.1:<port>`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The only bucket.
    pub fn bucket(&self) -> &'static str {
        BUCKET
    }

    /// The URL of `prefix` in the bucket, as stores are opened with it. The keys
    /// are [`ACCESS_KEY_ID`](crate::ACCESS_KEY_ID) and
    /// [`SECRET_ACCESS_KEY`](crate::SECRET_ACCESS_KEY).
    pub fn url(&self, prefix: &str) -> String {
        let endpoint = self.endpoint();
        format!("s3://{BUCKET}/{prefix}?endpoint={endpoint}&region=us-east-1&allow_http=true")
    }

    /// For ordering faults.
    pub fn faults(&self) -> &Faults {
        &self.front.faults
    }

    /// Makes the bucket behave like this from the next request on.
    pub fn set_conduct(&self, conduct: Conduct) {
        self.objects.set_conduct(conduct);
    }

    /// A key pair that is accepted for `lifetime`, and then answered with
    /// `ExpiredToken`.
    pub fn issue_key(&self, lifetime: Duration) -> TemporaryKey {
        self.front.keys.issue(lifetime)
    }

    /// Makes all temporary keys expire now.
    pub fn expire_keys(&self) {
        self.front.keys.expire();
    }

    /// Sets how long keys last that are fetched from the services of a machine
    /// or a container; an hour, if nothing is said.
    pub fn set_key_lifetime(&self, lifetime: Duration) {
        self.front.keys.set_lifetime(lifetime);
    }

    /// How often keys were fetched from those services.
    pub fn n_keys_fetched(&self) -> u64 {
        self.front.keys.n_fetched()
    }

    /// Where a machine's keys are fetched (`AWS_METADATA_ENDPOINT`).
    pub fn metadata_endpoint(&self) -> String {
        self.endpoint()
    }

    /// Where a container's keys are fetched
    /// (`AWS_CONTAINER_CREDENTIALS_FULL_URI`).
    pub fn container_credentials_uri(&self) -> String {
        format!("{}{}", self.endpoint(), keys::CONTAINER_PATH)
    }

    /// The requests that came so far, those that met a fault included: the last
    /// million.
    pub fn requests(&self) -> Requests {
        Requests(self.log().iter().cloned().collect())
    }

    /// Forgets the requests that came.
    pub fn clear_requests(&self) {
        self.log().clear();
    }

    fn log(&self) -> MutexGuard<'_, VecDeque<Request>> {
        self.front.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of an object, as the bucket has them.
    pub fn object(&self, key: &str) -> Option<Bytes> {
        self.objects.bytes(key)
    }

    /// All keys of the bucket, in order.
    pub fn keys(&self) -> Vec<String> {
        self.objects.keys()
    }

    /// Multipart uploads that were begun and neither completed nor aborted.
    pub fn n_open_uploads(&self) -> usize {
        self.objects.stored().uploads.n_open()
    }

    /// Ends all connections and takes no new ones. The objects stay. A request
    /// that is being applied is applied.
    pub async fn stop(&mut self) {
        if let Some(Accepting { stop, task }) = self.accepting.take() {
            stop.cancel();
            if let Err(error) = task.await {
                tracing::warn!(%error, "accepting connections ended badly");
            }
        }
    }

    /// Stops, and starts again on the same port with the same objects.
    ///
    /// # Errors
    ///
    /// When the port was taken meanwhile.
    pub async fn restart(&mut self) -> io::Result<()> {
        self.stop().await;
        let listener = TcpListener::bind(self.addr).await?;
        self.addr = listener.local_addr()?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(accept(listener, self.front.clone(), stop.clone()));
        self.accepting = Some(Accepting { stop, task });
        Ok(())
    }
}

impl Drop for S3Double {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.task.abort();
        }
    }
}

/// A running endpoint that speaks the XML API of Google Cloud Storage instead.
/// Everything else is as [`S3Double`] has it.
#[derive(Debug)]
pub struct GcsDouble(S3Double);

impl GcsDouble {
    /// Starts an empty bucket on a free port.
    ///
    /// # Errors
    ///
    /// When no port of the loopback address can be had.
    pub async fn start() -> io::Result<Self> {
        let (objects, keys) = (Objects::default(), Keys::default());
        Ok(Self(
            S3Double::start_as(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Api::Gcs, objects, keys)
                .await?,
        ))
    }

    /// The URL of `prefix` in the bucket, as stores are opened with it. The
    /// access token is [`ACCESS_TOKEN`](crate::ACCESS_TOKEN).
    pub fn url(&self, prefix: &str) -> String {
        format!("gs://{BUCKET}/{prefix}?endpoint={}&allow_http=true", self.0.endpoint())
    }
}

impl Deref for GcsDouble {
    type Target = S3Double;

    fn deref(&self) -> &S3Double {
        &self.0
    }
}

impl DerefMut for GcsDouble {
    fn deref_mut(&mut self) -> &mut S3Double {
        &mut self.0
    }
}

async fn accept(listener: TcpListener, front: Front, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(connect(stream, front.clone()));
            }
            Err(error) => tracing::warn!(%error, "a connection was not accepted"),
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn connect(stream: TcpStream, front: Front) {
    // Small answers must not wait for the client's delayed acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::warn!(%error, "a connection is slow");
    }
    let is_reset = AtomicBool::new(false);
    let serve = service_fn(|request| Box::pin(front.serve(request, &is_reset)));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), serve);
    let ended = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
    let stream = connection.into_parts().io.into_inner();
    if is_reset.load(Ordering::Relaxed)
        && let Err(error) = stream.set_zero_linger()
    {
        tracing::warn!(%error, "a connection is closed instead of reset");
    }
}
