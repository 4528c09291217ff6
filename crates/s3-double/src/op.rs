//! Requests as a test names and counts them.

use http::{Method, Uri};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// `PutObject`.
    Put,
    /// Any step of a multipart upload. Who may not put may not do these.
    Upload,
    /// `GetObject`.
    Get,
    /// `HeadObject`, `HeadBucket`.
    Head,
    /// `DeleteObject`.
    Delete,
    /// `ListObjectsV2`.
    List,
    /// `GetBucketVersioning`, `GetBucketLifecycleConfiguration`; on GCS `Buckets:
    /// get` of the JSON API.
    Settings,
    /// Everything else.
    Other,
}

/// One request that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it does.
    pub op: Op,
    /// The object's key as the URL has it, percent-encoded; for what is
    /// asked of the bucket, the query.
    pub key: String,
}

/// Where the JSON API of GCS has buckets.
pub(crate) const BUCKETS: &str = "storage/v1/b/";

impl Request {
    pub(crate) fn of(method: &Method, uri: &Uri) -> Self {
        // Of any bucket: those that do not exist are asked too.
        let path = uri.path().trim_start_matches('/');
        let key = path.split_once('/').map_or("", |(_, key)| key);
        let query = uri.query().unwrap_or_default();
        let op = match (method.as_str(), key.is_empty()) {
            ("PUT" | "POST" | "DELETE", false) if has_name(query, &["uploadId", "uploads"]) => {
                Op::Upload
            }
            ("PUT", false) => Op::Put,
            ("GET", _) if path.starts_with(BUCKETS) => Op::Settings,
            ("GET", false) => Op::Get,
            ("HEAD", _) => Op::Head,
            ("DELETE", false) => Op::Delete,
            ("GET", true) if has_name(query, &["versioning", "lifecycle"]) => Op::Settings,
            ("GET", true) => Op::List,
            _ => Op::Other,
        };
        let key = if matches!(op, Op::List | Op::Settings) {
            uri.query().unwrap_or_default()
        } else {
            key
        };
        Self { op, key: key.into() }
    }
}

/// Whether a query has one of these names.
fn has_name(query: &str, names: &[&str]) -> bool {
    query.split('&').any(|it| it.split('=').next().is_some_and(|it| names.contains(&it)))
}

/// Requests that came, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(pub(crate) Vec<Request>);

impl Requests {
    /// How many did this.
    pub fn count(&self, op: Op) -> usize {
        self.count_with(op, "")
    }

    /// How many did this to a key with `key_part` in it.
    pub fn count_with(&self, op: Op, key_part: &str) -> usize {
        self.0.iter().filter(|it| it.op == op && it.key.contains(key_part)).count()
    }

    /// All of them.
    pub fn all(&self) -> &[Request] {
        &self.0
    }
}
