//! The words of errors, shared by servers and clients.
//!
//! Every error is a `google.rpc.Status` with an `ErrorInfo` whose domain is
//! [`DOMAIN`] and whose reason is one of [`ALL`]. Its metadata always has
//! [`DETERMINACY`].
//!
//! | reason | gRPC code | details beside `ErrorInfo` | applied? |
//! | --- | --- | --- | --- |
//! | [`FIELD_INVALID`] | `INVALID_ARGUMENT` | `BadRequest` | no |
//! | [`OPERATION_ID_REUSED`] | `INVALID_ARGUMENT` | | no |
//! | [`HISTORY_MISSING`] | `NOT_FOUND` | `ResourceInfo` | no |
//! | [`HISTORY_EXISTS`] | `ALREADY_EXISTS` | `ResourceInfo` | no |
//! | [`PIN_EXISTS`] | `ALREADY_EXISTS` | `ResourceInfo` | no |
//! | [`PIN_MISSING`] | `NOT_FOUND` | `ResourceInfo` | no |
//! | [`PINS_FULL`] | `RESOURCE_EXHAUSTED` | `QuotaFailure` | no |
//! | [`HISTORY_NEEDED`] | `FAILED_PRECONDITION` | `ResourceInfo` | no |
//! | [`HEAD_CONTENDED`] | `ABORTED` | `RetryInfo` | no |
//! | [`QUEUE_FULL`], [`HEAD_TOO_LARGE`] | `RESOURCE_EXHAUSTED` | `QuotaFailure`, `RetryInfo` | no |
//! | [`TOO_MANY_REQUESTS`] | `RESOURCE_EXHAUSTED` | `QuotaFailure`, `RetryInfo` | no |
//! | [`MESSAGE_TOO_LARGE`] | `RESOURCE_EXHAUSTED` | `QuotaFailure` | no |
//! | [`STORE_UNAVAILABLE`] | `UNAVAILABLE` | `RetryInfo` | no |
//! | [`SHUTTING_DOWN`] | `UNAVAILABLE` | `RetryInfo` | no |
//! | [`PUBLICATION_IN_DOUBT`] | `UNAVAILABLE` | `RetryInfo` | maybe |
//! | [`FRESHNESS_UNVERIFIED`] | `UNAVAILABLE` | `RetryInfo` | (read) |
//! | [`EXPIRED`] | `DEADLINE_EXCEEDED` | | no |
//! | [`VERSION_RETIRED`], [`VERSION_AHEAD`] | `OUT_OF_RANGE` | [`OLDEST_VERSION`], [`NEWEST_VERSION`] | (read) |
//! | [`WATCHER_SLOW`] | `ABORTED` | `RetryInfo` | (read) |
//! | [`FENCED`] | `FAILED_PRECONDITION` | [`WRITER_EPOCH`] | no |
//! | [`FORMAT_TOO_NEW`] | `FAILED_PRECONDITION` | [`FORMAT`] | no |
//! | [`STORED_DATA_BAD`] | `DATA_LOSS` | [`OBJECT_KEY`] | maybe |
//! | [`UNAUTHENTICATED`], [`PERMISSION_DENIED`] | the same | | no |
//!
//! A read changes nothing, so its errors say [`NOT_APPLIED`].

/// `ErrorInfo.domain` of every error of Headwater.
pub const DOMAIN: &str = "headwater.v1";

/// A field of the request breaks a documented rule.
pub const FIELD_INVALID: &str = "FIELD_INVALID";
/// The operation id belongs to another request.
pub const OPERATION_ID_REUSED: &str = "OPERATION_ID_REUSED";
/// There is no history of this name, or it has another id than the request
/// says.
pub const HISTORY_MISSING: &str = "HISTORY_MISSING";
/// There is a history of this name already.
pub const HISTORY_EXISTS: &str = "HISTORY_EXISTS";
/// There is a pin of this name already, on another version.
pub const PIN_EXISTS: &str = "PIN_EXISTS";
/// There is no pin of this name.
pub const PIN_MISSING: &str = "PIN_MISSING";
/// The history has as many pins as it can have.
pub const PINS_FULL: &str = "PINS_FULL";
/// A forked history still needs this one, or its pin.
pub const HISTORY_NEEDED: &str = "HISTORY_NEEDED";
/// Other writers kept winning the head.
pub const HEAD_CONTENDED: &str = "HEAD_CONTENDED";
/// The writer has more waiting operations than it accepts.
pub const QUEUE_FULL: &str = "QUEUE_FULL";
/// The head has reached its limit; maintenance has to make room.
pub const HEAD_TOO_LARGE: &str = "HEAD_TOO_LARGE";
/// This caller, or all callers together, ask for more than the server takes.
pub const TOO_MANY_REQUESTS: &str = "TOO_MANY_REQUESTS";
/// The message is longer than servers take.
pub const MESSAGE_TOO_LARGE: &str = "MESSAGE_TOO_LARGE";
/// The object store does not answer, or asks for less; nothing was published.
pub const STORE_UNAVAILABLE: &str = "STORE_UNAVAILABLE";
/// The process is draining; another one takes the call.
pub const SHUTTING_DOWN: &str = "SHUTTING_DOWN";
/// A publication got no answer. The same operation id finds out.
pub const PUBLICATION_IN_DOUBT: &str = "PUBLICATION_IN_DOUBT";
/// The store could not be asked whether the view is current.
pub const FRESHNESS_UNVERIFIED: &str = "FRESHNESS_UNVERIFIED";
/// The deadline passed before anything was published.
pub const EXPIRED: &str = "EXPIRED";
/// The version is no longer at hand.
pub const VERSION_RETIRED: &str = "VERSION_RETIRED";
/// The version does not exist yet.
pub const VERSION_AHEAD: &str = "VERSION_AHEAD";
/// A watch was ended because its caller does not read.
pub const WATCHER_SLOW: &str = "WATCHER_SLOW";
/// The operation's writer epoch is not the history's.
pub const FENCED: &str = "FENCED";
/// A stored object has a format that this build does not know.
pub const FORMAT_TOO_NEW: &str = "FORMAT_TOO_NEW";
/// A stored object is missing, truncated or altered.
pub const STORED_DATA_BAD: &str = "STORED_DATA_BAD";
/// No identity was proved.
pub const UNAUTHENTICATED: &str = "UNAUTHENTICATED";
/// The identity may not do this.
pub const PERMISSION_DENIED: &str = "PERMISSION_DENIED";

/// Every reason, in the order of the table above.
pub const ALL: [&str; 26] = [
    FIELD_INVALID,
    OPERATION_ID_REUSED,
    HISTORY_MISSING,
    HISTORY_EXISTS,
    PIN_EXISTS,
    PIN_MISSING,
    PINS_FULL,
    HISTORY_NEEDED,
    HEAD_CONTENDED,
    QUEUE_FULL,
    HEAD_TOO_LARGE,
    TOO_MANY_REQUESTS,
    MESSAGE_TOO_LARGE,
    STORE_UNAVAILABLE,
    SHUTTING_DOWN,
    PUBLICATION_IN_DOUBT,
    FRESHNESS_UNVERIFIED,
    EXPIRED,
    VERSION_RETIRED,
    VERSION_AHEAD,
    WATCHER_SLOW,
    FENCED,
    FORMAT_TOO_NEW,
    STORED_DATA_BAD,
    UNAUTHENTICATED,
    PERMISSION_DENIED,
];

/// Metadata key: [`NOT_APPLIED`] or [`MAYBE_APPLIED`]. A status without it
/// counts as maybe applied.
pub const DETERMINACY: &str = "determinacy";
/// Value of [`DETERMINACY`]: this call changed nothing, and never will.
pub const NOT_APPLIED: &str = "not_applied";
/// Value of [`DETERMINACY`]: the operation may have been applied, or may be
/// applied yet.
pub const MAYBE_APPLIED: &str = "maybe_applied";

/// Metadata key: the oldest state version at hand, in decimal.
pub const OLDEST_VERSION: &str = "oldest_version";
/// Metadata key: the newest state version, in decimal.
pub const NEWEST_VERSION: &str = "newest_version";
/// Metadata key: the version to go on after, of a watch that was ended, in
/// decimal.
pub const RESUME_AFTER_VERSION: &str = "resume_after_version";
/// Metadata key: the history's current writer epoch, in decimal.
pub const WRITER_EPOCH: &str = "writer_epoch";
/// Metadata key: the format that was met, in decimal.
pub const FORMAT: &str = "format";
/// Metadata key: the key of the object, below the root of the store.
pub const OBJECT_KEY: &str = "object_key";
