//! Whether the bucket answers, and what this process may do there.

use bytes::Bytes;

use super::report::{CheckId, Permission, Report, Verdict};
use super::{Probe, told};
use crate::{NoBucket, PutError, ReadError};

/// How a call of each kind went.
pub(super) enum Access {
    Allowed,
    Denied(String),
    /// The answer is about something else.
    Open(String),
    /// There is no such bucket.
    NoBucket(String),
}

pub(super) async fn check(probe: &Probe, report: &mut Report) {
    let key = probe.key("access/object");
    let bytes = Bytes::from_static(b"a probe of headwater; it may be deleted");
    let put = match probe.one.put(&key, bytes).await {
        Ok(()) => Access::Allowed,
        Err(PutError::Store(error)) => access(&error),
        Err(error @ PutError::Occupied { .. }) => Access::Open(told(&error)),
    };
    let get = probe.one.get(&key).await.map_or_else(|it| access(&it), |_| Access::Allowed);
    match (&put, &get) {
        (Access::NoBucket(why), _) | (_, Access::NoBucket(why)) => {
            return report.add(CheckId::Reachable, Verdict::Broken, why);
        }
        (Access::Open(why), Access::Open(_)) => {
            return report.add(CheckId::Reachable, Verdict::Open, why);
        }
        (Access::Allowed | Access::Denied(_) | Access::Open(_), _) => {
            report.holds(CheckId::Reachable);
        }
    }
    let is_written = matches!(put, Access::Allowed);
    note(report, Permission::Put, put, Verdict::Broken);
    note(report, Permission::Get, get, Verdict::Broken);
    let list = probe.one.list(&probe.key("access/"), None, 10).await;
    note(report, Permission::List, of(list), Verdict::Warns);
    // Deleting what is not there may be allowed where deleting is not.
    let delete = if is_written { of(probe.one.delete(&key).await) } else { Access::Allowed };
    note(report, Permission::Delete, delete, Verdict::Warns);
}

pub(super) fn of<T>(answer: Result<T, ReadError>) -> Access {
    answer.map_or_else(|it| access(&it), |_| Access::Allowed)
}

fn access(error: &ReadError) -> Access {
    match error {
        ReadError::Denied { cause, .. } if cause.is::<NoBucket>() => {
            Access::NoBucket(cause.to_string())
        }
        ReadError::Denied { .. } => Access::Denied(told(error)),
        // An object that could not be written is missing, and may be asked for.
        ReadError::Missing { .. } => Access::Allowed,
        ReadError::Unavailable { .. } | ReadError::Sealed { .. } => Access::Open(told(error)),
    }
}

pub(super) fn note(report: &mut Report, permission: Permission, access: Access, severity: Verdict) {
    let (id, without) = match permission {
        Permission::Put => {
            (CheckId::PutAllowed, "nothing can be written: replicas run, writers do not")
        }
        Permission::Get => (CheckId::GetAllowed, "nothing can be read"),
        Permission::List => (
            CheckId::ListAllowed,
            "histories cannot be listed or deleted, and what is missing looks refused",
        ),
        Permission::Delete => {
            (CheckId::DeleteAllowed, "histories cannot be deleted, and what is swept stays")
        }
    };
    match access {
        Access::Allowed => report.holds(id),
        Access::Denied(why) | Access::NoBucket(why) => {
            report.denied.push(permission);
            let action = permission.s3_action();
            report.add(id, severity, format!("{action} is missing: {without} ({why})"));
        }
        Access::Open(why) => report.add(id, Verdict::Open, why),
    }
}
