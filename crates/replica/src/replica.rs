//! A replica as one thing to start and to stop.

use std::sync::Arc;

use headwater_proto::v1::read_service_server::ReadServiceServer;
use headwater_store::{Entropy, Store};

use crate::config::ReplicaConfig;
use crate::service::ReadRpc;

/// A running replica. Dropping it does not stop it: call
/// [`Replica::shutdown`].
#[derive(Debug)]
pub struct Replica {}

/// Starts a replica over `store`. Nothing is read until a history is asked for.
///
/// Must be called inside a tokio runtime.
pub fn start(store: Arc<dyn Store>, config: ReplicaConfig, entropy: Entropy) -> Replica {
    drop((store, config, entropy));
    Replica {}
}

impl Replica {
    /// The gRPC service, to be added to a server.
    pub fn service(&self) -> ReadServiceServer<ReadRpc> {
        ReadServiceServer::new(ReadRpc)
            .max_decoding_message_size(headwater_proto::limits::MESSAGE_BYTES_MAX)
    }

    /// Ends every task and waits for them. Reads that wait get
    /// [`ReadFailure::ShuttingDown`](crate::ReadFailure::ShuttingDown).
    pub async fn shutdown(self) {}
}
