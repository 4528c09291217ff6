//! `ProcessService`: what this process has asked of its store.

use std::sync::Arc;

use headwater_proto::v1;
use headwater_proto::v1::process_service_server::{ProcessService, ProcessServiceServer};
use headwater_store::{Call, Meter, Outcome, Readings};
use tonic::{Request, Response, Status};

use crate::auth::{Role, allow_process};

/// Answers from the meter of the process's store.
#[derive(Clone, Debug)]
pub struct Usage(Arc<Meter>);

impl Usage {
    /// The service.
    pub fn service(meter: Arc<Meter>) -> ProcessServiceServer<Self> {
        ProcessServiceServer::new(Self(meter))
    }
}

#[tonic::async_trait]
impl ProcessService for Usage {
    async fn get_store_usage(
        &self,
        request: Request<v1::GetStoreUsageRequest>,
    ) -> Result<Response<v1::GetStoreUsageResponse>, Status> {
        allow_process(&request, Role::Maintain)?;
        let readings = self.0.read();
        let requests = readings.requests();
        let counted_for_ms = self.0.counted_for().as_millis();
        Ok(Response::new(v1::GetStoreUsageResponse {
            counted_for_ms: u64::try_from(counted_for_ms).unwrap_or(u64::MAX),
            puts: requests.puts,
            gets: requests.gets,
            deletes: requests.deletes,
            bytes_up: readings.bytes_up(),
            bytes_down: readings.bytes_down(),
            calls: calls(&readings),
        }))
    }
}

fn calls(readings: &Readings) -> Vec<v1::StoreCalls> {
    let all = Call::ALL.iter().flat_map(|call| Outcome::ALL.iter().map(move |it| (*call, *it)));
    let counted = all.map(|(call, outcome)| v1::StoreCalls {
        call: call.as_str().to_owned(),
        outcome: outcome.as_str().to_owned(),
        count: readings.count(call, outcome),
    });
    counted.filter(|it| it.count != 0).collect()
}
