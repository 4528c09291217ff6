//! A receiver of traces and metrics.
#![allow(unreachable_pub, reason = "shared by test files")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

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
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
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
        let server = Server::builder()
            .add_service(TraceServiceServer::new(received.clone()))
            .add_service(MetricsServiceServer::new(received.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        (received, address)
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
