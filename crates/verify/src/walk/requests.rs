//! Request records: counted, and read where that was asked for.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use headwater_core::format;
use headwater_store::{Listed, Store as _};

use super::Walk;
use crate::finding::{Kind, Role};
use crate::metered::Metered;
use crate::report::Reason;
use crate::trouble::Trouble;

/// Records listed by one call.
const LIST_PAGE: usize = 1_000;

impl Walk<'_> {
    pub(super) async fn walk_requests(&mut self) {
        let folder = format!("{}/requests/", self.head.history);
        let mut after: Option<String> = None;
        loop {
            let listed = match self.store.list(&folder, after.as_deref(), LIST_PAGE).await {
                Ok(listed) => listed,
                Err(error) => return self.blame_listing(&folder, &error),
            };
            let is_end = listed.len() < LIST_PAGE;
            after = listed.last().map(|it| it.key.clone());
            let is_record = |it: &Listed| {
                let name = it.key.strip_prefix(&*folder).unwrap_or_default();
                name.len() == 64 && name.bytes().all(|it| it.is_ascii_hexdigit())
            };
            let (records, strangers): (Vec<_>, Vec<_>) = listed.into_iter().partition(is_record);
            for it in &strangers {
                self.unreached.foreign.add(it.size_bytes);
                self.unreached(Kind::Foreign, it);
            }
            for it in &records {
                self.requests.add(it.size_bytes);
            }
            if self.options.reads_requests {
                self.read_records(records).await;
            }
            if is_end {
                break;
            }
        }
        if !self.options.reads_requests && 0 < self.requests.objects {
            self.leave_gap(Reason::NotAsked);
        }
    }

    async fn read_records(&mut self, records: Vec<Listed>) {
        let store = Arc::clone(&self.store);
        let reads = stream::iter(records).map(|listed| {
            let store: Arc<Metered> = Arc::clone(&store);
            async move {
                let bytes = store.get(&listed.key).await;
                (listed, bytes)
            }
        });
        let mut reads = Box::pin(reads.buffer_unordered(self.fetches()));
        while let Some((listed, bytes)) = reads.next().await {
            let bytes = bytes.map_err(|error| Trouble::of_read(&error));
            let record = bytes
                .and_then(|it| format::record::decode(&it).map_err(Trouble::of_decode))
                .and_then(|record| {
                    let name = &self.head.history;
                    let key = name.request_key(record.history_id, &record.operation_id);
                    if key == listed.key {
                        return Ok(());
                    }
                    let what = format!("it is of operation {}", record.operation_id.as_str());
                    Err(Trouble::Damaged(what))
                });
            match record {
                Ok(()) => self.sound.add(&listed.key, listed.size_bytes),
                Err(trouble) => self.blame(Role::Request, &listed.key, None, trouble),
            }
        }
    }
}
