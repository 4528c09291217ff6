//! Large objects, in parts.
//!
//! In here: an upload whose completion is conditioned on the absence of the
//! object, so that it is a creation like any other. Not in here: GCS and Azure,
//! which take 5 TiB and 5,000 MiB in one request, more than anything that a
//! history writes; S3 takes 5 GiB, but drops a request that lasts too long, and
//! AWS advises parts from 100 MB on.

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Error, MultipartId};

use super::exchange::Exchange;
use super::{Bucket, Dialect};
use crate::PutError;

/// Bytes of the largest object that is written by one request.
pub(super) const SINGLE_LEN_BYTES_MAX: usize = 32 << 20;

/// Bytes of each part but the last. S3 takes 10,000 parts of 5 MiB or more.
pub(super) const PART_LEN_BYTES: usize = 16 << 20;

/// Parts of one object that are on their way at once.
pub(super) const PARTS_AT_ONCE: usize = 4;

/// Requests of a put: the start of an upload, its parts, and its end.
pub(super) fn requests(size_bytes: u64) -> u64 {
    if size_bytes <= SINGLE_LEN_BYTES_MAX as u64 {
        return 1;
    }
    size_bytes.div_ceil(PART_LEN_BYTES as u64) + 2
}

impl<D: Dialect> Bucket<D> {
    pub(super) async fn put_in_parts(
        &self,
        key: &str,
        path: &Path,
        bytes: Bytes,
        store: &dyn MultipartStore,
    ) -> Result<(), PutError> {
        let start = Exchange::default();
        let id = match start.around(store.create_multipart(path)).await {
            Ok(id) => id,
            Err(error) => return self.put_error(key, &bytes, error, &start).await,
        };
        let (error, exchange) = match upload(store, path, &id, &bytes).await {
            Ok(parts) => {
                let completion = Exchange::default();
                let completing = store.complete_multipart(path, &id, parts);
                match completion.around_creation(completing).await {
                    Ok(_) => return Ok(()),
                    Err(error) => (error, completion),
                }
            }
            Err(failed) => failed,
        };
        // What was uploaded is paid for until it is taken back. Where this fails
        // too, the bucket's own rule has to do it (docs/stores.md).
        if let Err(error) = Exchange::default().around(store.abort_multipart(path, &id)).await {
            tracing::debug!(key, %error, "an unfinished upload stays in the bucket");
        }
        self.put_error(key, &bytes, error, &exchange).await
    }
}

async fn upload(
    store: &dyn MultipartStore,
    path: &Path,
    id: &MultipartId,
    bytes: &Bytes,
) -> Result<Vec<PartId>, (Error, Exchange)> {
    let n_parts = bytes.len().div_ceil(PART_LEN_BYTES);
    let sending = (0..n_parts).map(|n| {
        let from = n * PART_LEN_BYTES;
        let part = bytes.slice(from..bytes.len().min(from + PART_LEN_BYTES));
        async move {
            let exchange = Exchange::default();
            let sent = exchange.around(store.put_part(path, id, n, part.into())).await;
            sent.map_err(|error| (error, exchange))
        }
    });
    stream::iter(sending).buffered(PARTS_AT_ONCE).try_collect().await
}
