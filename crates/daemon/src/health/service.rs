//! `grpc.health.v1`, answered from [`Health`].

use std::pin::Pin;

use futures::{Stream, StreamExt as _, future};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthService, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::Health;
use crate::auth::methods::OPEN_REQUEST_BYTES_MAX;
use crate::serve::Leaving;

/// The standard health service of one process.
#[derive(Clone, Debug)]
pub struct HealthRpc(Health);

impl HealthRpc {
    /// The service, to be added to a server.
    pub fn service(health: Health) -> HealthServer<Self> {
        HealthServer::new(Self(health)).max_decoding_message_size(OPEN_REQUEST_BYTES_MAX)
    }
}

fn answer(readiness: Option<bool>) -> HealthCheckResponse {
    let status = match readiness {
        Some(true) => ServingStatus::Serving,
        Some(false) => ServingStatus::NotServing,
        None => ServingStatus::ServiceUnknown,
    };
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl HealthService for HealthRpc {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let readiness = self.0.readiness(&request.get_ref().service);
        if readiness.is_none() {
            return Err(Status::not_found("this process does not serve that service"));
        }
        Ok(Response::new(answer(readiness)))
    }

    /// Says how the service stands now, and then every change, until the
    /// connection ends.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let leaving = Leaving::of(request.extensions());
        let service = request.into_inner().service;
        let health = self.0.clone();
        let changes = WatchStream::new(self.0.changes());
        let mut told = None;
        let answers = changes.filter_map(move |_| {
            let now = answer(health.readiness(&service));
            let is_new = told.replace(now) != Some(now);
            future::ready(is_new.then_some(Ok(now)))
        });
        let until = answers.take_until(leaving.token().cancelled_owned());
        Ok(Response::new(Box::pin(until)))
    }
}
