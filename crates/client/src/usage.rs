//! What a process has asked of its store.

use std::time::Duration;

use headwater_proto::v1;
use headwater_proto::v1::process_service_client::ProcessServiceClient;

use crate::admin::{HistoryError, nothing_changed};
use crate::call::timed;
use crate::client::Client;

/// Requests by the classes that stores charge for, since a process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreUsage {
    /// How long the process has counted.
    pub counted_for: Duration,
    /// PUT, COPY, POST and LIST.
    pub puts: u64,
    /// GET, those answered with 304 included.
    pub gets: u64,
    /// DELETE.
    pub deletes: u64,
    /// Bytes of objects and heads sent.
    pub bytes_up: u64,
    /// Bytes of objects and heads received.
    pub bytes_down: u64,
}

impl Client {
    /// What one of the writers has asked of its store since it began. Where
    /// there are several, it is one of them and not all together.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Expired`] and [`HistoryError::Refused`].
    pub async fn store_usage(&self) -> Result<StoreUsage, HistoryError> {
        let call = self.to_writers("");
        let answer = call
            .run(|channel, time| {
                let request = timed(v1::GetStoreUsageRequest {}, time);
                async move { ProcessServiceClient::new(channel).get_store_usage(request).await }
            })
            .await
            .map_err(nothing_changed)?
            .value;
        Ok(StoreUsage {
            counted_for: Duration::from_millis(answer.counted_for_ms),
            puts: answer.puts,
            gets: answer.gets,
            deletes: answer.deletes,
            bytes_up: answer.bytes_up,
            bytes_down: answer.bytes_down,
        })
    }
}
