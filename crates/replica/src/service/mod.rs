//! Being written.

use headwater_proto::v1;
use headwater_proto::v1::read_service_server::ReadService;
use tonic::{Request, Response, Status};

/// `headwater.v1.ReadService` of one replica.
#[derive(Clone, Debug)]
pub struct ReadRpc;

#[tonic::async_trait]
impl ReadService for ReadRpc {
    async fn get(
        &self,
        _: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        Err(Status::unimplemented("being written"))
    }
    async fn batch_get(
        &self,
        _: Request<v1::BatchGetRequest>,
    ) -> Result<Response<v1::BatchGetResponse>, Status> {
        Err(Status::unimplemented("being written"))
    }
    async fn scan(
        &self,
        _: Request<v1::ScanRequest>,
    ) -> Result<Response<v1::ScanResponse>, Status> {
        Err(Status::unimplemented("being written"))
    }
    async fn get_head(
        &self,
        _: Request<v1::GetHeadRequest>,
    ) -> Result<Response<v1::GetHeadResponse>, Status> {
        Err(Status::unimplemented("being written"))
    }
    async fn list_changes(
        &self,
        _: Request<v1::ListChangesRequest>,
    ) -> Result<Response<v1::ListChangesResponse>, Status> {
        Err(Status::unimplemented("being written"))
    }
}
