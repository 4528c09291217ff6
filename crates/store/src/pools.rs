//! Connections for heads, and others for everything else.

use std::sync::Arc;

use async_trait::async_trait;

use crate::Store;
use crate::forward::forward;

/// Two ways to one bucket, each with connections of its own: a replacement of a
/// head never waits behind the megabytes of a snapshot.
#[derive(Debug)]
pub struct Pools {
    heads: Arc<dyn Store>,
    bulk: Arc<dyn Store>,
}

impl Pools {
    /// Both have to lead to the same root of the same bucket.
    pub fn new(heads: Arc<dyn Store>, bulk: Arc<dyn Store>) -> Self {
        Self { heads, bulk }
    }

    /// Whether the store behind `url` is one that opening it twice reaches by
    /// two sets of connections. A store in memory would be two stores.
    pub fn suit(url: &str) -> bool {
        ["s3://", "gs://", "az://"].iter().any(|it| url.starts_with(it))
    }
}

#[async_trait]
impl Store for Pools {
    forward!(heads: replacement_pause, reads_in_vain, read_head, create_head, replace_head);
    forward!(bulk: put_requests, get_requests, put, get, get_sized, list, list_folder, delete);
}
