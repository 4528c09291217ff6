//! The way to another writer over gRPC.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use headwater_core::id::WriterAddress;
use headwater_daemon::telemetry::with_causes;
use headwater_daemon::trace;
use headwater_daemon::writer_line::{Dial, WriterLine, WriterLineOptions};
use headwater_proto::limits::MESSAGE_BYTES_MAX;
use headwater_proto::v1;
use headwater_proto::v1::forward_service_client::ForwardServiceClient;
use tokio::time::Instant;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;

use super::outgoing::SILENT;
use super::{Handed, Line, LineError, Taken, Verdict, wire};

/// Writers that a process is connected to. It hands over to one for each
/// history, and few histories are contended.
const CONNECTIONS_MAX: usize = 64;
/// Shorter than any answer is waited for, so that "cannot be reached" is known
/// as what it is: nothing was sent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// As for replicas that listen.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Connections to other writers: TLS and the token as [`WriterLineOptions`] have
/// them. Clones share the connections.
#[derive(Clone, Debug)]
pub struct GrpcLine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: WriterLineOptions,
    connected: Mutex<BTreeMap<WriterAddress, WriterLine>>,
}

impl GrpcLine {
    /// Connected to nobody yet.
    pub fn new(options: WriterLineOptions) -> Self {
        Self(Arc::new(Inner { options, connected: Mutex::default() }))
    }
}

impl Line for GrpcLine {
    fn hand(
        &self,
        address: WriterAddress,
        handed: Handed,
    ) -> BoxFuture<'static, Result<Taken, LineError>> {
        let inner = Arc::clone(&self.0);
        async move { inner.hand(&address, handed).await }.boxed()
    }
}

/// Lets go of a connection on which nothing came for so long that whoever waited
/// has given up: nothing may ever come on it again.
struct Unanswered<'a> {
    of: Option<&'a Inner>,
    address: &'a WriterAddress,
    began: Instant,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(inner) = self.of
            && SILENT <= self.began.elapsed()
        {
            inner.connected().remove(self.address);
        }
    }
}

impl Inner {
    fn connected(&self) -> MutexGuard<'_, BTreeMap<WriterAddress, WriterLine>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn hand(&self, address: &WriterAddress, handed: Handed) -> Result<Taken, LineError> {
        let line = self.connect(address).await?;
        let mut client =
            ForwardServiceClient::new(line).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut unanswered = Unanswered { of: Some(self), address, began: Instant::now() };
        let answered = client.forward(request(&handed)).await;
        let response = answered.map_err(|status| {
            tracing::debug!(%address, error = with_causes(&status), "operations were not taken");
            // The next message finds out whether it can be reached.
            self.connected().remove(address);
            // Whatever it says is of one copy of the message. What lies between
            // may have sent two, the first of which was taken.
            LineError::NoAnswer
        })?;
        unanswered.of = None;
        taken(&handed, response.into_inner()).ok_or(LineError::NoAnswer)
    }

    async fn connect(&self, address: &WriterAddress) -> Result<WriterLine, LineError> {
        // Whoever can write a head has written the scheme. How safe a connection
        // has to be is the operator's word, and no head's.
        if address.as_str().starts_with("https://") != self.options.is_tls() {
            tracing::debug!(%address, "it is not reached in the way that was set");
            return Err(LineError::NotTaken);
        }
        if let Some(line) = self.connected().get(address) {
            return Ok(line.clone());
        }
        let settings = |endpoint: Endpoint| {
            endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEPALIVE)
                .keep_alive_timeout(KEEPALIVE)
        };
        let connecting = async {
            let dial = Dial::new(address.as_str(), &self.options, settings)?;
            // Here it is known that nothing was sent. Of a call that fails for want
            // of a token it could not be told.
            dial.check_token()?;
            Ok::<_, Box<dyn Error + Send + Sync>>(dial.connect().await?)
        };
        // Name resolution and TLS count too.
        let line = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(line)) => line,
            Ok(Err(error)) => {
                tracing::debug!(%address, error = with_causes(&*error), "no connection");
                return Err(LineError::NotTaken);
            }
            Err(_) => return Err(LineError::NotTaken),
        };
        let mut connected = self.connected();
        if connected.len() == CONNECTIONS_MAX {
            connected.pop_first();
        }
        connected.insert(address.clone(), line.clone());
        Ok(line)
    }
}

fn request(handed: &Handed) -> Request<v1::ForwardRequest> {
    let operations = handed.operations.iter().map(|it| v1::ForwardedOperation {
        request: Some(wire::request(&it.operation)),
        timeout_ms: u64::try_from(it.time.as_millis()).unwrap_or(u64::MAX),
    });
    let mut request = Request::new(v1::ForwardRequest {
        history: handed.history.as_str().to_owned(),
        history_id: handed.history_id.to_string(),
        publisher_id: handed.publisher_id.clone(),
        life: handed.life.to_vec().into(),
        number: handed.number,
        operations: operations.collect(),
    });
    request.set_timeout(handed.patience);
    let traceparent = handed.traceparent.as_deref().and_then(|it| MetadataValue::try_from(it).ok());
    if let Some(value) = traceparent {
        request.metadata_mut().insert(trace::HEADER, value);
    }
    request
}

fn taken(handed: &Handed, response: v1::ForwardResponse) -> Option<Taken> {
    if response.results.len() != handed.operations.len() {
        return None;
    }
    let verdicts = handed.operations.iter().zip(response.results).map(|(it, result)| {
        use v1::forwarded_result::Result as Outcome;
        match result.result {
            Some(Outcome::Response(response)) => {
                wire::outcome(&it.operation, handed.history_id, response)
                    .map_or(Verdict::MaybeApplied, Verdict::Outcome)
            }
            Some(Outcome::MaybeApplied(false)) => Verdict::NotApplied,
            Some(Outcome::MaybeApplied(true)) | None => Verdict::MaybeApplied,
        }
    });
    Some(Taken {
        verdicts: verdicts.collect(),
        is_shared: response.is_shared,
        instead: WriterAddress::parse(&response.instead).ok(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use headwater_core::id::{HistoryId, HistoryName};

    use super::*;

    fn handed() -> Handed {
        Handed {
            history: HistoryName::parse("h").unwrap(),
            history_id: HistoryId::from_bytes([7; 16]),
            publisher_id: "w".into(),
            life: [3; 16],
            number: 0,
            operations: Vec::new(),
            patience: Duration::from_secs(1),
            traceparent: None,
        }
    }

    #[tokio::test]
    async fn without_its_token_nothing_is_sent_and_nothing_is_in_doubt() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let address = WriterAddress::parse(&address).unwrap();
        let options =
            WriterLineOptions { writers_token_file: Some(file.clone()), ..Default::default() };
        let line = GrpcLine::new(options);

        let answer = line.hand(address.clone(), handed()).await;

        assert_eq!(answer.err(), Some(LineError::NotTaken));
        let nobody = listener.accept().map_err(|it| it.kind());
        assert_eq!(nobody.err(), Some(std::io::ErrorKind::WouldBlock));

        // Once it has been there, its loss keeps no connection from being used.
        std::fs::write(&file, "one").unwrap();
        line.0.connect(&address).await.unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(line.0.connect(&address).await.is_ok());
        assert!(listener.accept().is_ok());
    }

    /// Whoever can write a head could have operations and tokens sent in the
    /// clear otherwise.
    #[tokio::test]
    async fn an_address_does_not_choose_how_safe_its_connection_is() {
        let plain = WriterLineOptions::default();
        let writers_tls_server_name = Some("writer".into());
        let tls = WriterLineOptions { writers_tls_server_name, ..plain.clone() };
        for (options, scheme) in [(tls, "http"), (plain, "https")] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = format!("{scheme}://{}", listener.local_addr().unwrap());
            let line = GrpcLine::new(options);
            let answer = line.hand(WriterAddress::parse(&address).unwrap(), handed()).await;
            assert_eq!(answer.err(), Some(LineError::NotTaken), "{scheme}");
            let nobody = listener.accept().map_err(|it| it.kind());
            assert_eq!(nobody.err(), Some(std::io::ErrorKind::WouldBlock), "{scheme}");
        }
    }
}
