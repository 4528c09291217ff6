//! Large objects, read in parts.
//!
//! In here: a read of an object whose size is known, by several requests at
//! once, as it was written: one connection to a bucket carries tens of MiB a
//! second. Not in
//! here: reads of a part for its own sake. A reader uses no byte before it
//! verified the hash of the whole (docs/protocol.md, 2).
//!
//! An object is never written again with other bytes, so parts need no
//! condition that ties them to each other; the hash would tell.

use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::StatusCode;
use object_store::{GetOptions, GetRange, ObjectStore as _};

use super::exchange::Exchange;
use super::parts::{PART_LEN_BYTES, PARTS_AT_ONCE, SINGLE_LEN_BYTES_MAX};
use super::{Bucket, Dialect};
use crate::ReadError;

/// Requests of a read of an object of that size.
pub(super) fn requests(size_bytes: u64) -> u64 {
    if size_bytes <= SINGLE_LEN_BYTES_MAX as u64 {
        return 1;
    }
    size_bytes.div_ceil(PART_LEN_BYTES as u64)
}

enum Part {
    Found(Bytes),
    /// The store does not answer with parts, or the object has another size.
    NotPartial,
}

impl<D: Dialect> Bucket<D> {
    /// The object; `None` where it has to be read whole.
    pub(super) async fn get_in_parts(
        &self,
        key: &str,
        size_bytes: u64,
    ) -> Result<Option<Bytes>, ReadError> {
        let Ok(len_bytes) = usize::try_from(size_bytes) else { return Ok(None) };
        let starts = (0..size_bytes).step_by(PART_LEN_BYTES);
        let reading = starts.map(|from| async move {
            let to = size_bytes.min(from + PART_LEN_BYTES as u64);
            match self.get_part(key, from, to, size_bytes).await {
                Ok(Part::Found(bytes)) => Ok(bytes),
                Ok(Part::NotPartial) => Err(None),
                Err(error) => Err(Some(error)),
            }
        });
        // Room for what arrives, and not for what somebody said would.
        let parts = stream::iter(reading).buffered(PARTS_AT_ONCE);
        let whole = parts.try_fold(BytesMut::new(), |mut whole, part| async move {
            whole.extend_from_slice(&part);
            Ok(whole)
        });
        match whole.await {
            Ok(whole) if whole.len() == len_bytes => Ok(Some(whole.freeze())),
            Ok(_) | Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }

    async fn get_part(
        &self,
        key: &str,
        from: u64,
        to: u64,
        size_bytes: u64,
    ) -> Result<Part, ReadError> {
        let path = self.read_path(key)?;
        let exchange = Exchange::default();
        let options = GetOptions {
            range: Some(GetRange::Bounded(from..to)),
            extensions: exchange.extensions(),
            ..GetOptions::default()
        };
        match self.dialect.client().get_opts(&path, options).await {
            Ok(got) if got.meta.size != size_bytes => Ok(Part::NotPartial),
            Ok(got) => {
                let bytes = got.bytes().await;
                bytes.map(Part::Found).map_err(|it| self.read_error(key, &exchange, it))
            }
            Err(error) => match exchange.status() {
                // 200 to a question for a part is all of it; 206 with another
                // part than was asked for is not better.
                Some(
                    StatusCode::OK
                    | StatusCode::PARTIAL_CONTENT
                    | StatusCode::RANGE_NOT_SATISFIABLE,
                ) => Ok(Part::NotPartial),
                _ => Err(self.read_error(key, &exchange, error)),
            },
        }
    }
}
