//! A receiver of traces and metrics.
#![allow(unreachable_pub, reason = "shared by test files")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use headwater_tls::Acceptor;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status};

/// What it has got so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Received {
    spans: Arc<Mutex<Vec<Span>>>,
    metrics: Arc<Mutex<BTreeSet<String>>>,
}

impl Received {
    /// Receives on a port that the system chooses, until the runtime ends.
    pub async fn listen() -> (Self, SocketAddr) {
        let received = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = received.server().serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        (received, address)
    }

    /// The same over TLS; connections whose handshake fails are dropped.
    pub async fn listen_with(acceptor: Acceptor) -> (Self, SocketAddr) {
        let received = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, accepted) = tokio::sync::mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                if let Ok(it) = acceptor.accept(socket).await {
                    let stream = Secured(it.stream);
                    if sender.send(Ok::<_, std::io::Error>(stream)).await.is_err() {
                        return;
                    }
                }
            }
        });
        let server = received.server().serve_with_incoming(ReceiverStream::new(accepted));
        tokio::spawn(server);
        (received, address)
    }

    fn server(&self) -> tonic::transport::server::Router {
        Server::builder()
            .add_service(TraceServiceServer::new(self.clone()))
            .add_service(MetricsServiceServer::new(self.clone()))
    }

    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }

    /// Names of the metrics.
    pub fn metrics(&self) -> BTreeSet<String> {
        self.metrics.lock().unwrap().clone()
    }
}

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let spans = resources.flat_map(|it| it.scope_spans).flat_map(|it| it.spans);
        self.spans.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Received {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let resources = request.into_inner().resource_metrics.into_iter();
        let metrics = resources.flat_map(|it| it.scope_metrics).flat_map(|it| it.metrics);
        self.metrics.lock().unwrap().extend(metrics.map(|it| it.name));
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

/// A connection over TLS, as tonic takes one.
struct Secured(TlsStream<TcpStream>);

impl Connected for Secured {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
