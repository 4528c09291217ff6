//! Pages of change entries.

use headwater_core::change::{AcceptedOperation, Resolved};
use headwater_core::operation::KeyRange;
use headwater_core::version::StateVersion;
use headwater_proto::v1;
use headwater_proto::v1::resolved_mutation::Kind;
use headwater_state::LoadedChange;
use tonic::{Request, Response, Status};

use super::ReadRpc;
use super::answer::stamp;
use super::request::Violations;
use crate::changes::{ChangeRange, oldest};
use crate::failure::ReadFailure;

const PAGE_SIZE_DEFAULT: u32 = 100;
const PAGE_SIZE_MAX: u32 = 1_000;
/// Entries of a page as stored, in bytes.
const PAGE_BYTES_MAX: usize = 2 << 20;

impl ReadRpc {
    pub(super) async fn change_page(
        &self,
        request: Request<v1::ListChangesRequest>,
    ) -> Result<Response<v1::ListChangesResponse>, Status> {
        let mut violations = Violations::default();
        let wire = request.get_ref();
        let checked = violations.common(&wire.history, &wire.history_id, wire.consistency.as_ref());
        let size = violations.page_size(wire.page_size, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX);
        let (checked, size) = violations.finish(checked.zip(size))?;

        let from = StateVersion::new(wire.from_version);
        let range = ChangeRange { from, versions_max: size.into(), bytes_max: PAGE_BYTES_MAX };
        let call = self.call(&request, checked);
        let read = call.reader.changes(range, call.consistency, call.deadline).await;
        let (changes, pinned) = read.map_err(|it| call.status(&it))?;
        let (oldest, newest) = (oldest(pinned.head()), pinned.version());
        let Some(changes) = changes else {
            let failure = ReadFailure::VersionRetired { wanted: from, oldest, newest };
            return Err(call.status(&failure));
        };
        // One past the newest is where a reader waits for more.
        if newest.next() < from {
            let failure = ReadFailure::VersionAhead { wanted: from, oldest, newest };
            return Err(call.status(&failure));
        }
        let last = changes.last().map(|it| it.version);
        let next = last.filter(|it| *it < newest).map_or(0, |it| it.next().get());
        Ok(Response::new(v1::ListChangesResponse {
            stamp: Some(stamp(&pinned)),
            changes: changes.iter().map(change).collect(),
            oldest_version: oldest.get(),
            next_version: next,
        }))
    }
}

fn change(change: &LoadedChange) -> v1::ChangeEntry {
    let operations = change.change.operations.iter().map(operation).collect();
    v1::ChangeEntry { version: change.version.get(), operations }
}

fn operation(operation: &AcceptedOperation) -> v1::AcceptedOperation {
    v1::AcceptedOperation {
        operation_id: operation.id.as_str().into(),
        request_hash: bytes::Bytes::copy_from_slice(operation.request_hash.as_bytes()),
        mutations: operation.mutations.iter().map(mutation).collect(),
    }
}

/// An entry carries no versions of keys: the change's own is the one.
fn mutation(mutation: &Resolved) -> v1::ResolvedMutation {
    let kind = match mutation {
        Resolved::Put(key, value) => {
            let (key, value) = (key.as_bytes().clone(), value.clone());
            Kind::Put(v1::Entry { key, value, version: 0 })
        }
        Resolved::Delete(key) => Kind::Delete(key.as_bytes().clone()),
        Resolved::DeleteRange(range) => Kind::DeleteRange(key_range(range)),
    };
    v1::ResolvedMutation { kind: Some(kind) }
}

pub(super) fn key_range(range: &KeyRange) -> v1::KeyRange {
    let end = range.end().cloned().unwrap_or_default();
    v1::KeyRange { start: range.start().clone(), end }
}
