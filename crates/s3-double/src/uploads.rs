//! Objects that come in parts.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use s3s::dto::ETag;
use s3s::{S3Result, s3_error};

use crate::stored::md5_of;

/// Uploads that are kept at once. The oldest goes first.
const UPLOADS_MAX: usize = 1_000;

/// Least bytes of each part but the last, as S3 has it.
const PART_LEN_BYTES_MIN: usize = 5 << 20;

/// Uploads that were begun and are not finished.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    by_id: BTreeMap<String, Upload>,
    n_begun: u64,
}

#[derive(Debug)]
struct Upload {
    key: String,
    parts: BTreeMap<i32, Part>,
}

#[derive(Clone, Debug)]
struct Part {
    bytes: Bytes,
    hash: String,
}

impl Uploads {
    pub(crate) fn begin(&mut self, key: &str) -> String {
        self.n_begun += 1;
        // Sorted by number: the first is the oldest.
        let id = format!("upload-{:010}", self.n_begun);
        self.by_id.insert(id.clone(), Upload { key: key.into(), parts: BTreeMap::new() });
        if UPLOADS_MAX < self.by_id.len() {
            self.by_id.pop_first();
        }
        id
    }

    pub(crate) fn add(&mut self, id: &str, key: &str, n: i32, bytes: Bytes) -> S3Result<ETag> {
        let upload = self.by_id.get_mut(id).filter(|it| it.key == key);
        let upload = upload.ok_or_else(|| s3_error!(NoSuchUpload))?;
        let hash = md5_of(&bytes);
        upload.parts.insert(n, Part { bytes, hash: hash.clone() });
        Ok(ETag::Strong(hash))
    }

    /// The object that the named parts make, with its tag.
    pub(crate) fn assemble(
        &self,
        id: &str,
        key: &str,
        named: &[(i32, String)],
    ) -> S3Result<(Bytes, ETag)> {
        let upload = self.by_id.get(id).filter(|it| it.key == key);
        let upload = upload.ok_or_else(|| s3_error!(NoSuchUpload))?;
        if !named.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(s3_error!(InvalidPartOrder));
        }
        let (mut whole, mut hashes) = (BytesMut::new(), String::new());
        for (at, (n, hash)) in named.iter().enumerate() {
            let part = upload.parts.get(n).filter(|it| it.hash == *hash);
            let part = part.ok_or_else(|| s3_error!(InvalidPart))?;
            if at + 1 < named.len() && part.bytes.len() < PART_LEN_BYTES_MIN {
                return Err(s3_error!(EntityTooSmall));
            }
            whole.extend_from_slice(&part.bytes);
            hashes.push_str(&part.hash);
        }
        // As S3 has it: a hash of the hashes, and how many there were.
        let tag = format!("{}-{}", md5_of(hashes.as_bytes()), named.len());
        Ok((whole.freeze(), ETag::Strong(tag)))
    }

    pub(crate) fn end(&mut self, id: &str) -> S3Result<()> {
        self.by_id.remove(id).map(drop).ok_or_else(|| s3_error!(NoSuchUpload))
    }

    /// How many there are.
    pub(crate) fn n_open(&self) -> usize {
        self.by_id.len()
    }
}
