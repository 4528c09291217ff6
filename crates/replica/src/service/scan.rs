//! Pages of a range.

use headwater_core::id::HistoryId;
use headwater_daemon::status::{FieldViolation, field_invalid};
use headwater_proto::v1;
use headwater_state::Scan;
use tonic::{Request, Response, Status};

use super::answer::{entry, stamp};
use super::request::Violations;
use super::token::{ScanId, Token};
use super::{Call, ReadRpc};
use crate::consistency::Consistency;
use crate::failure::ReadFailure;

const PAGE_SIZE_DEFAULT: u32 = 1_000;
const PAGE_SIZE_MAX: u32 = 10_000;
/// Keys and values of a page, in bytes.
const PAGE_BYTES_MAX: usize = 2 << 20;

impl ReadRpc {
    pub(super) async fn scan_page(
        &self,
        request: Request<v1::ScanRequest>,
    ) -> Result<Response<v1::ScanResponse>, Status> {
        let mut violations = Violations::default();
        let wire = request.get_ref();
        let checked = violations.common(&wire.history, &wire.history_id, wire.consistency.as_ref());
        let range = violations.range(wire.range.as_ref());
        let size = violations.page_size(wire.page_size, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX);
        let ((mut checked, range), size) = violations.finish(checked.zip(range).zip(size))?;

        let id = ScanId::of(&checked.history, &range, wire.reverse, wire.keys_only);
        let token = match wire.page_token.as_ref() {
            [] => None,
            bytes => Some(Token::decode(bytes).filter(|it| it.scan == id).ok_or_else(foreign)?),
        };
        let mut named_id = None;
        if let Some(token) = &token {
            let is_other = checked.history_id.is_some_and(|it| it != token.history_id);
            if is_other {
                return Err(foreign());
            }
            named_id = checked.history_id;
            checked.history_id = Some(token.history_id);
            checked.consistency = Consistency::Exact(token.version);
        }
        let is_first = token.is_none();
        let scan = Scan {
            range,
            after: token.map(|it| it.after),
            reverse: wire.reverse,
            keys_only: wire.keys_only,
            entries_max: size as usize,
            bytes_max: PAGE_BYTES_MAX,
        };
        let call = self.call(&request, checked);
        let read = call.reader.scan(&scan, call.consistency, call.deadline).await;
        let (page, pinned) = match read {
            Ok(read) => read,
            Err(failure) if is_first => return Err(call.status(&failure)),
            Err(failure) => return Err(refusal(&failure, &call, named_id).await),
        };
        let next = page.next.map(|after| Token {
            history_id: pinned.history_id(),
            scan: id,
            version: pinned.version(),
            after,
        });
        Ok(Response::new(v1::ScanResponse {
            stamp: Some(stamp(&pinned)),
            entries: page.entries.into_iter().map(entry).collect(),
            next_page_token: next.map(|it| it.encode()).unwrap_or_default(),
        }))
    }
}

/// The token is of another scan, or of none.
fn foreign() -> Status {
    let rule = "a token is taken from the answer to the same scan: history, range, direction and \
                keys_only; begin again without one";
    field_invalid([FieldViolation::new("page_token", rule)])
}

/// A history or version that only the token has named does not exist: then the
/// token is not from here.
async fn refusal(failure: &ReadFailure, call: &Call, named_id: Option<HistoryId>) -> Status {
    match failure {
        ReadFailure::VersionAhead { .. } => foreign(),
        ReadFailure::HistoryMissing { .. } => {
            let named = call.reader.clone().of_id(named_id);
            match named.pin(Consistency::Any, call.deadline).await {
                Ok(_) => foreign(),
                Err(failure) => call.status(&failure),
            }
        }
        ReadFailure::FreshnessUnverified { .. }
        | ReadFailure::StoreUnavailable { .. }
        | ReadFailure::Expired { .. }
        | ReadFailure::VersionRetired { .. }
        | ReadFailure::StoredDataBad { .. }
        | ReadFailure::FormatTooNew { .. }
        | ReadFailure::Denied { .. }
        | ReadFailure::TooManyHistories { .. }
        | ReadFailure::ShuttingDown => call.status(failure),
    }
}
